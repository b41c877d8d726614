/* Reads connection strings, waits for PostgreSQL and makes a database. */
#include "server/db/database.h"

#include <libpq-fe.h>
#include <time.h>

#include "server/db/migrate.sql.h"

#define LOOK_EVERY_MS 20

bool database_check(const char *conninfo, struct error *error) {
  char *reason = NULL; /* quotes the string, password and all */
  PQconninfoOption *options = PQconninfoParse(conninfo, &reason);
  bool is_good = options != NULL;
  PQconninfoFree(options);
  PQfreemem(reason);
  return is_good ||
         error_set(error,
                   "the database is neither \"name=value …\" with the names that libpq knows nor a "
                   "postgresql:// URI, for example \"host=/run/postgresql dbname=wavetune\"");
}

bool database_wait(const char *conninfo, int64_t timeout_ms, bool (*is_hopeless)(void *context),
                   void *context, struct error *error) {
  int64_t until_ms = clock_monotonic_ms() + timeout_ms;
  while (PQping(conninfo) != PQPING_OK) {
    if (is_hopeless(context))
      return error_set(error, "PostgreSQL ended before it took a connection");
    if (clock_monotonic_ms() >= until_ms)
      return error_set(error, "PostgreSQL took no connection within %lld s",
                       (long long)timeout_ms / 1000);
    nanosleep(&(struct timespec){.tv_nsec = LOOK_EVERY_MS * 1000000}, NULL);
  }
  return true;
}

static bool ensure_with(struct db *db, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(db, &sql_database_exists, NULL, &rows, error))
    return false;
  return db_count(rows) > 0 || db_run_script(db, "CREATE DATABASE wavetune", error);
}

bool database_ensure(const char *conninfo, struct error *error) {
  struct db *db = db_new(conninfo, "wavetune-server dev");
  bool is_good = ensure_with(db, error);
  db_free(db);
  return is_good;
}
