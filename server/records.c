/* The list of all records. */
#include "server/records.h"

const struct server_record server_records[] = {
#define X(variable, table) {&variable, table},
    SERVER_RECORDS(X)
#undef X
        {NULL, NULL}};
