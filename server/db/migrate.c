/* Reads and applies migrations; checks, awaits and makes databases. */
#include "server/db/migrate.h"

#include <dirent.h>
#include <errno.h>
#include <libpq-fe.h>
#include <time.h>

#include "common/base/digest.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "server/db/db_record.h"
#include "server/db/migrate.sql.h"

#define FILE_SIZE_MAX (1024 * 1024)
#define DIGITS "0123456789"
#define BASE_DIGITS 2
#define VERSION_DIGITS 4
#define BASE_VERSION 100
/* Databases from before the base had versions 1 to 49. Those of one commit are adopted;
 * ADOPTED_FILES is the SHA-256 of the checksums of its files, with blanks between them. */
#define ADOPTED_VERSION 39
#define ADOPTED_COMMIT "9b92b43d"
#define ADOPTED_FILES "fc1ecb93993bebe7fef5a2df586b1eecb0084a4a3a1fd564cfaea74d34b46555"
/* A migration of a large database, and the wait for another program that applies it. */
#define MIGRATION_MS (24 * 60 * 60 * 1000LL)
#define PING_EVERY_MS 20
/* Any number that no other program's advisory lock has: "wavetune" in hexadecimal. */
#define LOCK_SQL "SELECT pg_advisory_xact_lock(x'7761766574756e65'::bigint)"

struct migrations {
  char *folder;
  size_t n_base;   /* how many files the base has */
  char *functions; /* the text of the base's NN_functions.sql */
  size_t n, capacity;
  struct migration {
    char *name; /* without the number and ".sql" */
    char *file; /* of the base the last one */
    char *sql;
    char checksum[DIGEST_TEXT_SIZE];
  } *list; /* BASE_VERSION, which is the base, BASE_VERSION + 1, … */
};

void migrations_free(struct migrations *migrations) {
  for (size_t i = 0; i < migrations->n; i++) {
    free(migrations->list[i].name);
    free(migrations->list[i].file);
    free(migrations->list[i].sql);
  }
  free(migrations->list);
  free(migrations->functions);
  free(migrations->folder);
  free(migrations);
}

static int is_sql(const struct dirent *entry) {
  const char *end = strrchr(entry->d_name, '.');
  return entry->d_name[0] != '.' && string_equal(end, ".sql");
}

/* The files of the base first: 01_tokens.sql, 02_kernels.sql, …, 0101_next.sql. */
static int in_order(const struct dirent **a, const struct dirent **b) {
  size_t digits_a = strspn((*a)->d_name, DIGITS), digits_b = strspn((*b)->d_name, DIGITS);
  return digits_a != digits_b ? (digits_a > digits_b) - (digits_a < digits_b)
                              : strcmp((*a)->d_name, (*b)->d_name);
}

/* Adds a file, which must be the next one, to the base or as a migration of its own. */
static bool file_load(struct migrations *migrations, const char *file, struct error *error) {
  cleanup_free char *path = xasprintf("%s/%s", migrations->folder, file), *sql = NULL;
  size_t digits = strspn(file, DIGITS), length = strlen(file), size;
  bool is_base = digits == BASE_DIGITS;
  if ((!is_base && digits != VERSION_DIGITS) || file[digits] != '_' ||
      length < digits + strlen("_x.sql"))
    return error_set(
        error, "%s: a migration must be called NNNN_name.sql, and a file of the base NN_name.sql",
        path);
  bool wants_base = is_base || migrations->n == 0;
  size_t wanted = wants_base ? migrations->n_base + 1 : BASE_VERSION + migrations->n;
  if (is_base != wants_base || strtoul(file, NULL, 10) != wanted)
    return error_set(error,
                     "the migrations in %s are not numbered 01, 02, …, 0101, 0102, …: %0*zu is "
                     "missing or there twice",
                     migrations->folder, wants_base ? BASE_DIGITS : VERSION_DIGITS, wanted);
  if (!file_read(path, FILE_SIZE_MAX, &sql, &size, error))
    return false;

  if (is_base && string_equal(file + digits, "_functions.sql")) {
    free(migrations->functions);
    migrations->functions = xstrdup(sql);
  }

  struct migration *migration = migrations->list;
  if (is_base && migrations->n_base++ > 0) {
    char *longer = xasprintf("%s%s", migration->sql, sql);
    free(migration->sql);
    free(migration->file);
    migration->sql = longer;
  } else {
    GROW(migrations->list, migrations->n, migrations->capacity);
    migration = &migrations->list[migrations->n++];
    migration->sql = TAKE(sql);
    migration->name =
        is_base ? xstrdup("base") : xstrndup(file + digits + 1, length - digits - strlen("_.sql"));
  }

  migration->file = xstrdup(file);
  struct digest digest = digest_of(migration->sql, strlen(migration->sql));
  digest_format(&digest, migration->checksum);
  return true;
}

bool migrations_load(struct migrations **ret_migrations, struct error *error) {
  cleanup_migrations struct migrations *migrations = xcalloc(1, sizeof *migrations);
  const char *folder = getenv("WAVETUNE_MIGRATIONS");
  if (!folder || !*folder)
    folder = access(WAVETUNE_MIGRATIONS_INSTALLED, R_OK) == 0 ? WAVETUNE_MIGRATIONS_INSTALLED
                                                              : WAVETUNE_MIGRATIONS_SOURCE;

  migrations->folder = xstrdup(folder);
  migrations->functions = xstrdup("");

  struct dirent **entries;
  int n = scandir(folder, &entries, is_sql, in_order);
  if (n < 0)
    return error_set(error,
                     "cannot read the migrations in %s: %s; WAVETUNE_MIGRATIONS names the folder",
                     folder, strerror(errno));

  bool is_good = n > 0 || error_set(error,
                                    "there are no migrations in %s; WAVETUNE_MIGRATIONS names the "
                                    "folder",
                                    folder);
  for (int i = 0; i < n; i++) {
    is_good = is_good && file_load(migrations, entries[i]->d_name, error);
    free(entries[i]);
  }

  free(entries);
  if (is_good)
    *ret_migrations = TAKE(migrations);
  return is_good;
}

int64_t migrations_version(const struct migrations *migrations) {
  return BASE_VERSION - 1 + (int64_t)migrations->n;
}

/* Compares the files with what was applied. *ret_next: the index of the first migration that was
 * not. */
static bool applied_check(struct db *db, const struct migrations *migrations, size_t *ret_next,
                          struct error *error) {
  cleanup_rows struct db_rows *rows =
      db_query(db, &sql_migrations_list, error, BIND("base", BASE_VERSION));
  if (!rows)
    return false;

  for (int row = 0; row < db_count(rows); row++) {
    int64_t version = db_get_integer(rows, row, "version");
    if (version > migrations_version(migrations))
      return error_set(error,
                       "the database has migration %04lld_%s, this program knows %lld: it is older "
                       "than the database; install the newer wavetune-server",
                       (long long)version, db_get(rows, row, "name"),
                       (long long)migrations_version(migrations));
    if (version != BASE_VERSION + row)
      return error_set(error,
                       "the table schema_migrations lacks version %d: restore it from a backup",
                       BASE_VERSION + row);
    if (strcmp(db_get(rows, row, "checksum"), migrations->list[row].checksum) != 0)
      return error_set(
          error,
          "%s/%s%s changed after it was applied to this database: put the old text back and write "
          "a new migration",
          migrations->folder, row ? "" : "01_….sql, … or ", migrations->list[row].file);
  }

  *ret_next = (size_t)db_count(rows);
  return true;
}

/* The text that makes the base: of an empty database, or of one that is adopted. */
static bool base_read(struct db *db, const struct migrations *migrations, char **ret_sql,
                      struct error *error) {
  cleanup_rows struct db_rows *rows =
      db_query(db, &sql_migrations_before_base, error, BIND("base", BASE_VERSION));
  if (!rows)
    return false;
  if (db_count(rows) == 0) {
    *ret_sql = xstrdup(migrations->list[0].sql);
    return true;
  }

  int64_t version = db_get_integer(rows, 0, "version");
  if (version < ADOPTED_VERSION)
    return error_set(error,
                     "the database has schema version %lld, and this program upgrades those of %d "
                     "or later: first run \"wavetune-server migrate\" of commit " ADOPTED_COMMIT,
                     (long long)version, ADOPTED_VERSION);
  if (version > ADOPTED_VERSION)
    return error_set(error,
                     "the database has schema version %lld, of a development tree, which no "
                     "program upgrades: restore a backup from version %d (commit " ADOPTED_COMMIT
                     ") or before, or begin with an empty database",
                     (long long)version, ADOPTED_VERSION);
  if (!string_equal(db_get(rows, 0, "checksums"), ADOPTED_FILES))
    return error_set(error,
                     "the database has schema version %d, but not by the migrations of "
                     "commit " ADOPTED_COMMIT ": restore a backup that has",
                     ADOPTED_VERSION);

  cleanup_free char *path = xasprintf("%s/adopt/%04d.sql", migrations->folder, ADOPTED_VERSION);
  cleanup_free char *tables = NULL;
  size_t size;
  if (!file_read(path, FILE_SIZE_MAX, &tables, &size, error))
    return false;

  log_info("migrate: adopting a database with schema version %d", ADOPTED_VERSION);
  *ret_sql = xasprintf("%s%s", tables, migrations->functions);
  return true;
}

/* In the caller's transaction: takes the lock, makes the table if it is missing, and applies the
 * first migration that was not applied. */
static bool next_apply(struct db *db, const struct migrations *migrations, bool *ret_applied,
                       struct error *error) {
  size_t next = 0;
  if (!db_run_script(
          db,
          "SET LOCAL statement_timeout = 0; " LOCK_SQL "; "
          /* A role that only serves has no right to create tables, even with IF NOT EXISTS. */
          "DO $$ BEGIN IF to_regclass('schema_migrations') IS NULL THEN "
          "CREATE TABLE schema_migrations (version integer PRIMARY KEY, name text NOT NULL, "
          "checksum text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now()); END IF; END $$",
          error) ||
      !applied_check(db, migrations, &next, error))
    return false;

  *ret_applied = next < migrations->n;
  if (!*ret_applied)
    return true;

  const struct migration *migration = &migrations->list[next];
  cleanup_free char *base = NULL;
  if (next == 0 && !base_read(db, migrations, &base, error))
    return false;

  size_t version = BASE_VERSION + next;
  log_info("migrate: applying %04zu_%s", version, migration->name);
  if (!db_run_script(db, base ? base : migration->sql, error) ||
      !db_execute(db, &sql_migrations_note, error, BIND("version", (int64_t)version),
                  BIND("name", migration->name), BIND("checksum", migration->checksum)))
    return error_prefix(error, "migration %04zu_%s failed and was undone: ", version,
                        migration->name);

  return true;
}

bool migrate(struct db *db, const struct migrations *migrations, int *ret_applied,
             struct error *error) {
  int64_t run_ms = db_set_run_ms(db, MIGRATION_MS);
  int applied = 0;
  bool is_good = true;
  for (bool more = true; is_good && more; applied += more)
    is_good = db_begin(db, error) && db_end(db, next_apply(db, migrations, &more, error), error);
  db_set_run_ms(db, run_ms);
  if (is_good)
    *ret_applied = applied;
  return is_good;
}

bool migrate_version(struct db *db, int64_t *ret_version, struct error *error) {
  cleanup_rows struct db_rows *there = NULL, *rows = NULL;
  if (!(there = db_query(db, &sql_migrations_exist, error)))
    return false;
  if (!db_get_bool(there, 0, "there")) {
    *ret_version = 0;
    return true;
  }

  if (!(rows = db_query(db, &sql_migrations_version, error)))
    return false;

  *ret_version = db_get_integer(rows, 0, "version");
  return true;
}

bool migrate_grant(struct db *db, const char *role, struct error *error) {
  cleanup_rows struct db_rows *rows = db_query(db, &sql_migrate_role, error, BIND("role", role));
  if (!rows)
    return false;
  if (!db_count(rows))
    return error_set(error,
                     "there is no database role \"%.64s\"; make it with \"createuser %.64s\"", role,
                     role);
  if (db_get_bool(rows, 0, "is_owner"))
    return error_set(error,
                     "the database role \"%.64s\" owns the tables, or may act as their owner, so "
                     "its rights cannot be limited; name another role",
                     role);

  /* The role reads and writes rows; to the audit table it only adds, and the list of migrations it
   * only reads. It owns nothing, so it cannot change a table. */
  cleanup_free char *script =
      xasprintf("REVOKE CREATE ON SCHEMA %1$s FROM PUBLIC;"
                "REVOKE ALL ON ALL TABLES IN SCHEMA %1$s FROM %2$s;"
                "GRANT USAGE ON SCHEMA %1$s TO %2$s;"
                "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %1$s TO %2$s;"
                "REVOKE ALL ON audit, schema_migrations FROM %2$s;"
                "GRANT SELECT, INSERT ON audit TO %2$s;"
                "GRANT SELECT ON schema_migrations TO %2$s;"
                "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA %1$s TO %2$s;",
                db_get(rows, 0, "schema"), db_get(rows, 0, "role"));
  return db_begin(db, error) && db_end(db, db_run_script(db, script, error), error);
}

bool database_check(const char *conninfo, struct error *error) {
  char *reason = NULL; /* not for the error: it quotes the string with its password */
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
      return error_set(error, "PostgreSQL ended before it accepted a connection");
    if (clock_monotonic_ms() >= until_ms)
      return error_set(error, "PostgreSQL accepted no connection within %lld s",
                       (long long)timeout_ms / 1000);
    nanosleep(&(struct timespec){.tv_nsec = PING_EVERY_MS * 1000000}, NULL);
  }

  return true;
}

bool database_ensure(const char *conninfo, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  struct db *db = db_new(conninfo, "wavetune-server dev");
  bool is_good = (rows = db_query(db, &sql_database_exists, error)) &&
                 (db_count(rows) > 0 || db_run_script(db, "CREATE DATABASE wavetune", error));
  db_free(db);
  return is_good;
}
