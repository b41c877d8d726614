/* Checks and makes databases, and migrates them.
 *
 * The files 01_….sql, 02_….sql, … are the base: together they make version 100 of an empty
 * database. 0101_….sql, 0102_….sql, … follow. The base and each of these is applied in a
 * transaction of its own under one advisory lock, so that any number of servers may do it at the
 * same time. adopt/0039.sql and then the base's NN_functions.sql bring databases of commit
 * 9b92b43d, which had 39 migrations, to the base; others from before the base are refused.
 *
 * The table schema_migrations lists what was applied, with the SHA-256 of its text. A text that
 * changed after it was applied, and a database that is newer than the program, are refused. The
 * folder is $WAVETUNE_MIGRATIONS, else the installed one, else the one of the source tree. Memory:
 * a migrations list owns its texts. Threads: one at a time. */
#ifndef WAVETUNE_SERVER_DB_MIGRATE_H
#define WAVETUNE_SERVER_DB_MIGRATE_H

#include "server/db/db.h"

struct migrations;

must_check bool migrations_load(struct migrations **ret_migrations, struct error *error);
void migrations_free(struct migrations *migrations);
DEFINE_CLEANUP(struct migrations *, cleanup_migrations_free, migrations_free)
#define cleanup_migrations __attribute__((cleanup(cleanup_migrations_free)))
int64_t migrations_version(const struct migrations *migrations); /* of the newest file */

/* Applies what was not applied yet; *ret_applied: how many migrations, of which the base is one. */
must_check bool migrate(struct db *db, const struct migrations *migrations, int *ret_applied,
                        struct error *error);

/* The database's version, 0 when no migration was applied. Quick, for /readyz. */
must_check bool migrate_version(struct db *db, int64_t *ret_version, struct error *error);

/* Revokes the rights of a database role and grants those that serving needs. The owner of the
 * tables calls it after each migration. */
must_check bool migrate_grant(struct db *db, const char *role, struct error *error);

/* Whether libpq can read the connection string. The error does not quote it: it may hold a
 * password. */
must_check bool database_check(const char *conninfo, struct error *error);

/* Waits at most timeout_ms for PostgreSQL to accept connections; gives up early when `is_hopeless`
 * returns true. */
must_check bool database_wait(const char *conninfo, int64_t timeout_ms,
                              bool (*is_hopeless)(void *context), void *context,
                              struct error *error);

/* Makes the database "wavetune" where it is missing; `conninfo` names another database of the
 * cluster. */
must_check bool database_ensure(const char *conninfo, struct error *error);

#endif
