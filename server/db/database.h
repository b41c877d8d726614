/* Whether a text can name a database; whether a PostgreSQL answers at all, and the database in it,
 * for clusters that wavetune made itself.
 *
 * Threads: any. */
#ifndef WAVETUNE_SERVER_DB_DATABASE_H
#define WAVETUNE_SERVER_DB_DATABASE_H

#include "server/db/db.h"

/* Whether libpq can read the connection string. The error does not quote it: it may hold a
 * password. */
must_check bool database_check(const char *conninfo, struct error *error);

/* Waits at most timeout_ms for PostgreSQL to take connections; gives up early when `is_hopeless`
 * says so. */
must_check bool database_wait(const char *conninfo, int64_t timeout_ms,
                              bool (*is_hopeless)(void *context), void *context,
                              struct error *error);

/* Makes the database "wavetune" where it is missing; `conninfo` names another database of the
 * cluster. */
must_check bool database_ensure(const char *conninfo, struct error *error);

#endif
