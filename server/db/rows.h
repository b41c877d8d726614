/* The rows that a statement returned, as libpq has them; only server/db/ includes this. Memory:
 * rows own the result. Threads: as their db. */
#ifndef WAVETUNE_SERVER_DB_ROWS_H
#define WAVETUNE_SERVER_DB_ROWS_H

#include <libpq-fe.h>

#include "server/db/db.h"

struct db_rows {
  PGresult *result;
};

#endif
