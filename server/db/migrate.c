/* Reads the migration files and applies them. One thread at a time; the lists are the caller's. */
#include "server/db/migrate.h"

#include <dirent.h>
#include <errno.h>

#include "common/base/digest.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "server/db/migrate.sql.h"

#define FILE_SIZE_MAX (1024 * 1024)
#define VERSION_DIGITS 4
/* A migration of a large database, and the wait for another program that applies it. */
#define MIGRATION_MS (24 * 60 * 60 * 1000LL)
/* Any number that no other program's advisory lock has: "wavetune" in hexadecimal. */
#define LOCK_SQL "SELECT pg_advisory_xact_lock(x'7761766574756e65'::bigint)"

struct migration {
  int64_t version;
  char *name; /* without the number and ".sql" */
  char *sql;
  char checksum[DIGEST_TEXT_SIZE];
};

struct migrations {
  char *folder;
  size_t n, capacity;
  struct migration *files; /* by version, 1, 2, 3, … */
};

void migrations_free(struct migrations *migrations) {
  for (size_t i = 0; i < migrations->n; i++) {
    free(migrations->files[i].name);
    free(migrations->files[i].sql);
  }
  free(migrations->files);
  free(migrations->folder);
  free(migrations);
}

static const char *folder_find(void) {
  const char *folder = getenv("WAVETUNE_MIGRATIONS");
  if (folder && *folder)
    return folder;
  return access(WAVETUNE_MIGRATIONS_INSTALLED, R_OK) == 0 ? WAVETUNE_MIGRATIONS_INSTALLED
                                                          : WAVETUNE_MIGRATIONS_SOURCE;
}

/* "0001_base.sql" → 1, "base". */
static bool name_parse(const char *file, int64_t *ret_version, char **ret_name) {
  size_t length = strlen(file);
  if (strspn(file, "0123456789") != VERSION_DIGITS || file[VERSION_DIGITS] != '_' ||
      length < VERSION_DIGITS + sizeof "_x.sql" - 1 || strcmp(file + length - 4, ".sql") != 0)
    return false;
  *ret_version = strtoll(file, NULL, 10);
  *ret_name = xstrndup(file + VERSION_DIGITS + 1, length - VERSION_DIGITS - 5);
  return true;
}

static int version_compare(const void *a, const void *b) {
  int64_t left = ((const struct migration *)a)->version,
          right = ((const struct migration *)b)->version;
  return (left > right) - (left < right);
}

static bool file_load(struct migrations *migrations, const char *file, struct error *error) {
  struct migration migration = {0};
  size_t size;
  cleanup_free char *path = xasprintf("%s/%s", migrations->folder, file);
  if (!name_parse(file, &migration.version, &migration.name))
    return error_set(error, "%s: a migration must be called NNNN_name.sql", path);
  if (!file_read(path, FILE_SIZE_MAX, &migration.sql, &size, error)) {
    free(migration.name);
    return false;
  }
  struct digest digest = digest_of(migration.sql, size);
  digest_format(&digest, migration.checksum);
  GROW(migrations->files, migrations->n, migrations->capacity);
  migrations->files[migrations->n++] = migration;
  return true;
}

static bool files_load(struct migrations *migrations, struct error *error) {
  DIR *folder = opendir(migrations->folder);
  if (!folder)
    return error_set(error,
                     "cannot read the migrations in %s: %s; WAVETUNE_MIGRATIONS names the folder",
                     migrations->folder, strerror(errno));
  bool is_good = true;
  for (struct dirent *entry; is_good && (entry = readdir(folder));) {
    const char *end = strrchr(entry->d_name, '.');
    if (entry->d_name[0] != '.' && end && strcmp(end, ".sql") == 0)
      is_good = file_load(migrations, entry->d_name, error);
  }
  closedir(folder);
  return is_good;
}

bool migrations_load(struct migrations **ret_migrations, struct error *error) {
  cleanup_migrations struct migrations *migrations = xcalloc(1, sizeof *migrations);
  migrations->folder = xstrdup(folder_find());
  if (!files_load(migrations, error))
    return false;
  if (migrations->n)
    qsort(migrations->files, migrations->n, sizeof *migrations->files, version_compare);
  for (size_t i = 0; i < migrations->n; i++)
    if (migrations->files[i].version != (int64_t)i + 1)
      return error_set(
          error,
          "the migrations in %s are not numbered 0001, 0002, …: %04zu is missing or there twice",
          migrations->folder, i + 1);
  if (!migrations->n)
    return error_set(error, "there are no migrations in %s; WAVETUNE_MIGRATIONS names the folder",
                     migrations->folder);
  *ret_migrations = TAKE(migrations);
  return true;
}

int64_t migrations_version(const struct migrations *migrations) { return (int64_t)migrations->n; }

/* Compares what was applied with the files. *ret_next is the index of the first file that was
 * not. */
static bool applied_check(struct db *db, const struct migrations *migrations, size_t *ret_next,
                          struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(db, &sql_migrations_list, NULL, &rows, error))
    return false;
  for (int row = 0; row < db_count(rows); row++) {
    int64_t version = db_get_integer(rows, row, "version");
    if (version > migrations_version(migrations))
      return error_set(error,
                       "the database has migration %04lld_%s, this program knows %lld: it is older "
                       "than the database; "
                       "install the newer wavetune-server",
                       (long long)version, db_get(rows, row, "name"), (long long)migrations->n);
    if (version != row + 1)
      return error_set(
          error, "the table schema_migrations lacks version %d: restore it from a backup", row + 1);
    if (strcmp(db_get(rows, row, "checksum"), migrations->files[row].checksum) != 0)
      return error_set(error,
                       "%s/%04lld_%s.sql is not the file that was applied to this database: put "
                       "the old file back and "
                       "write a new migration",
                       migrations->folder, (long long)version, migrations->files[row].name);
  }
  *ret_next = (size_t)db_count(rows);
  return true;
}

static bool file_apply(struct db *db, const struct migration *migration, struct error *error) {
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "version", migration->version);
  bind_text(&parameters, "name", migration->name);
  bind_text(&parameters, "checksum", migration->checksum);
  if (!db_run_script(db, migration->sql, error) ||
      !db_run(db, &sql_migrations_note, &parameters, NULL, error))
    return error_prefix(error, "migration %04lld_%s failed and was undone: ",
                        (long long)migration->version, migration->name);
  return true;
}

/* One transaction: the lock, the table, the first file that is missing. */
static bool step(struct db *db, const struct migrations *migrations, bool *ret_applied,
                 struct error *error) {
  size_t next = 0;
  if (!db_run_script(
          db,
          "SET LOCAL statement_timeout = 0; " LOCK_SQL "; "
          /* A role that only serves may not even try to. */
          "DO $$ BEGIN IF to_regclass('schema_migrations') IS NULL THEN "
          "CREATE TABLE schema_migrations (version integer PRIMARY KEY, name text NOT NULL, "
          "checksum text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now()); END IF; END $$",
          error) ||
      !applied_check(db, migrations, &next, error))
    return false;
  *ret_applied = next < migrations->n;
  if (!*ret_applied)
    return true;
  log_info("migrate: applying %04zu_%s", next + 1, migrations->files[next].name);
  return file_apply(db, &migrations->files[next], error);
}

static bool migrate_patiently(struct db *db, const struct migrations *migrations, int *ret_applied,
                              struct error *error) {
  int applied = 0;
  for (bool more = true; more; applied += more) {
    if (!db_begin(db, error))
      return false;
    if (!step(db, migrations, &more, error)) {
      db_rollback(db);
      return false;
    }
    if (!db_commit(db, error))
      return false;
  }
  *ret_applied = applied;
  return true;
}

bool migrate(struct db *db, const struct migrations *migrations, int *ret_applied,
             struct error *error) {
  int64_t run_ms = db_run_ms(db);
  db_set_run_ms(db, MIGRATION_MS);
  bool is_good = migrate_patiently(db, migrations, ret_applied, error);
  db_set_run_ms(db, run_ms);
  return is_good;
}

bool migrate_version(struct db *db, int64_t *ret_version, struct error *error) {
  cleanup_rows struct db_rows *there = NULL, *rows = NULL;
  if (!db_run(db, &sql_migrations_exist, NULL, &there, error))
    return false;
  if (!db_get_bool(there, 0, "there")) {
    *ret_version = 0;
    return true;
  }
  if (!db_run(db, &sql_migrations_version, NULL, &rows, error))
    return false;
  *ret_version = db_get_integer(rows, 0, "version");
  return true;
}

/* Rights of the role that serves: it reads and writes rows, of which those of the audit table are
 * only added to and the list of migrations is only read. It owns nothing, so it can change no
 * table. */
static char *grants_script(const char *schema, const char *role) {
  return xasprintf("REVOKE CREATE ON SCHEMA %1$s FROM PUBLIC;"
                   "REVOKE ALL ON ALL TABLES IN SCHEMA %1$s FROM %2$s;"
                   "GRANT USAGE ON SCHEMA %1$s TO %2$s;"
                   "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %1$s TO %2$s;"
                   "REVOKE ALL ON audit, schema_migrations FROM %2$s;"
                   "GRANT SELECT, INSERT ON audit TO %2$s;"
                   "GRANT SELECT ON schema_migrations TO %2$s;"
                   "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA %1$s TO %2$s;",
                   schema, role);
}

bool migrate_grant(struct db *db, const char *role, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_text(&parameters, "role", role);
  if (!db_run(db, &sql_migrate_role, &parameters, &rows, error))
    return false;
  if (!db_count(rows))
    return error_set(error,
                     "there is no database role \"%.64s\"; make it with \"createuser %.64s\"", role,
                     role);
  if (db_get_bool(rows, 0, "is_owner"))
    return error_set(error,
                     "the database role \"%.64s\" owns the tables, or may act as who does, so that "
                     "nothing could be kept "
                     "from it; name another to serve as",
                     role);

  cleanup_free char *script = grants_script(db_get(rows, 0, "schema"), db_get(rows, 0, "role"));
  if (!db_begin(db, error))
    return false;
  return db_end(db, db_run_script(db, script, error), error);
}
