/* What this process knows of each statement that it ran: its text as PostgreSQL has it, and its
 * counts for /metrics. Only db.c uses this.
 *
 * Memory: nothing is freed. Threads: any; the entries are atomic. */
#ifndef WAVETUNE_SERVER_DB_STATEMENT_H
#define WAVETUNE_SERVER_DB_STATEMENT_H

#include "server/db/db.h"

/* Slots of the statements that this process has run: an open hash by address. There are about
 * 150. */
#define STATEMENTS_MAX 1024

/* The statement's slot, below STATEMENTS_MAX, the same for as long as the process lives. */
size_t statement_slot(const struct statement *statement);

/* Its text with $1, $2, … in place of :name. `parameters` (NULL: none) state the record. */
const char *statement_text(const struct statement *statement,
                           const struct db_parameters *parameters);
/* The text with the record's columns in place of {columns}, {arrays} and {values}
 * (db_record.h); the caller's. */
must_check char *statement_expand(const char *sql, const struct record *record);

/* Parameters in the order of the statement, as libpq takes them; borrowed. */
struct bound {
  int n;
  const char *values[DB_PARAMETERS_MAX];
  int lengths[DB_PARAMETERS_MAX], formats[DB_PARAMETERS_MAX];
};
/* Binds by name. A name that is bound twice or not at all, and a parameter that the statement does
 * not have, are mistakes in this program. */
void statement_bind(const struct statement *statement, const struct db_parameters *parameters,
                    struct bound *ret);

/* Counts a run that began at `began_ns`, by clock_monotonic_ns. */
void statement_count(const struct statement *statement, int64_t began_ns, uint64_t rows,
                     bool is_failure);

#endif
