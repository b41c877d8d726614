/* SQL of retention. Memory and threads: as the header says. */
#include "server/blob/collect.h"

#include "server/db/values.h"

#define TEXT_OF(number) #number
#define TEXT(macro) TEXT_OF(macro)
#define AGE "make_interval(days => $1::int)"

/* Renewals of an entry name its release again: what is kept is counted in releases. */
#define SQL_RELEASES                                                                                                   \
  " FROM releases r WHERE r.created_at < now() - " AGE                                                                 \
  " AND NOT EXISTS (SELECT FROM channels c WHERE c.release = r.digest)"                                                \
  " AND NOT EXISTS (SELECT FROM (SELECT release, row_number() OVER (PARTITION BY name, tag, regime, "                  \
  "environment_digest"                                                                                                 \
  "  ORDER BY max(counter) DESC) AS n FROM channel_entries GROUP BY name, tag, regime, environment_digest, release) e" \
  "  WHERE e.release = r.digest AND e.n <= " TEXT(                                                                     \
      COLLECT_ENTRIES) ")"                                                                                             \
                       " AND NOT EXISTS (SELECT FROM release_fetches f WHERE f.release = r.digest"                     \
                       "  AND f.fetched_at >= now() - " AGE ") ORDER BY r.id LIMIT " TEXT(COLLECT_AT_ONCE)

#define SQL_FILES                                                                                                      \
  " FROM blobs b WHERE b.created_at < now() - " AGE                                                                    \
  " AND NOT EXISTS (SELECT FROM kernel_files k WHERE k.digest = b.digest)"                                             \
  " AND NOT EXISTS (SELECT FROM build_files f WHERE f.digest = b.digest)"                                              \
  " AND NOT EXISTS (SELECT FROM measurement_objects o WHERE o.object = b.digest)"                                      \
  " ORDER BY b.digest LIMIT " TEXT(COLLECT_AT_ONCE)

#define RELEASE_COLUMNS                                                                                                \
  "r.digest, r.tag, r.winners, length(r.bytes) AS bytes, " SQL_TIME("r.created_at") " AS created_at"

static const struct statement releases_see = {"collect_releases_see", "SELECT " RELEASE_COLUMNS SQL_RELEASES};
static const struct statement releases_remove = {
    "collect_releases_remove", "DELETE FROM releases r USING (SELECT r.digest" SQL_RELEASES
                               " FOR UPDATE) due WHERE r.digest = due.digest RETURNING " RELEASE_COLUMNS};
static const struct statement files_see = {
    "collect_files_see", "SELECT count(*) AS n, coalesce(sum(size), 0) AS bytes FROM (SELECT b.size" SQL_FILES ") due"};
static const struct statement files_remove = {"collect_files_remove",
                                              "WITH gone AS (DELETE FROM blobs b USING (SELECT b.digest" SQL_FILES
                                              " FOR UPDATE) due WHERE b.digest = due.digest RETURNING b.size)"
                                              " SELECT count(*) AS n, coalesce(sum(size), 0) AS bytes FROM gone"};

#define SQL_DEMAND " FROM demand WHERE last_at < now() - " AGE
static const struct statement demand_see = {"collect_demand_see", "SELECT count(*) AS n" SQL_DEMAND};
static const struct statement demand_remove = {"collect_demand_remove",
                                               "WITH gone AS (DELETE FROM demand d USING (SELECT id" SQL_DEMAND
                                               " ORDER BY kernel, key_digest FOR UPDATE) due" /* as reports lock them */
                                               " WHERE d.id = due.id RETURNING d.id) SELECT count(*) AS n FROM gone"};

static json_t *releases_to_json(const struct db_rows *rows) {
  json_t *releases = json_array();
  for (int row = 0; row < db_count(rows); row++) {
    struct digest digest = db_get_digest(rows, row, "digest");
    ALWAYS(json_array_append_new(releases, json_pack("{s:o, s:s, s:I, s:I, s:s}", "release", json_digest_text(&digest),
                                                     "tag", db_get(rows, row, "tag"), "winners",
                                                     (json_int_t)db_get_integer(rows, row, "winners"), "bytes",
                                                     (json_int_t)db_get_integer(rows, row, "bytes"), "created_at",
                                                     db_get(rows, row, "created_at"))) == 0);
  }
  return releases;
}

static bool collect_once(struct db *db, int64_t keep_days, bool remove, json_t **ret_collected, struct error *error) {
  cleanup_rows struct db_rows *releases = NULL, *files = NULL, *demand = NULL;
  struct db_parameters parameters = {0};
  db_integer(&parameters, keep_days);
  if (!db_run(db, remove ? &releases_remove : &releases_see, &parameters, &releases, error) ||
      !db_run(db, remove ? &files_remove : &files_see, &parameters, &files, error) ||
      !db_run(db, remove ? &demand_remove : &demand_see, &parameters, &demand, error))
    return false;
  int64_t n_files = db_get_integer(files, 0, "n");
  *ret_collected = json_pack("{s:o, s:{s:I, s:I}, s:I, s:b}", "releases", releases_to_json(releases), "files", "n",
                             (json_int_t)n_files, "bytes", (json_int_t)db_get_integer(files, 0, "bytes"), "demand",
                             (json_int_t)db_get_integer(demand, 0, "n"), "more",
                             db_count(releases) == COLLECT_AT_ONCE || n_files == COLLECT_AT_ONCE);
  ALWAYS(*ret_collected != NULL);
  return true;
}

/* What was removed, by number; nothing where nothing was. */
static bool collected_note(struct db *db, int64_t keep_days, const struct author *remover, const json_t *collected,
                           struct error *error) {
  json_int_t releases = (json_int_t)json_array_size(json_object_get(collected, "releases")),
             files = json_integer_value(json_object_get(json_object_get(collected, "files"), "n")),
             demand = json_integer_value(json_object_get(collected, "demand"));
  if (!releases && !files && !demand)
    return true;
  cleanup_free char *object = xasprintf("older than %lld days", (long long)keep_days);
  return audit_note(db, remover, AUDIT_COLLECT, object,
                    json_pack("{s:I, s:I, s:I}", "releases", releases, "files", files, "demand", demand), error);
}

static bool remove_once(struct db *db, int64_t keep_days, const struct author *remover, json_t **ret_collected,
                        struct error *error) {
  cleanup_json json_t *collected = NULL;
  if (!db_begin(db, error))
    return false;
  bool ok =
      collect_once(db, keep_days, true, &collected, error) && collected_note(db, keep_days, remover, collected, error);
  if (!db_end(db, ok, error))
    return false;
  *ret_collected = TAKE(collected);
  return true;
}

/* What was named by somebody after the statement had looked is refused by the database: the next look sees it. */
#define ATTEMPTS 16

bool collect(struct db *db, int64_t keep_days, const struct author *remover, json_t **ret_collected,
             struct error *error) {
  if (!remover)
    return collect_once(db, keep_days, false, ret_collected, error);
  bool ok = remove_once(db, keep_days, remover, ret_collected, error);
  for (int attempt = 1; !ok && error->kind == ERROR_REFERENCE && attempt < ATTEMPTS; attempt++)
    ok = remove_once(db, keep_days, remover, ret_collected, error);
  return ok;
}

bool fetches_store(struct db *db, const struct digest *releases, size_t n, struct error *error) {
  static const struct statement statement = {
      "fetches_store", "INSERT INTO release_fetches (release, fetched_at) SELECT r.digest, now() FROM releases r"
                       " WHERE r.digest = ANY ($1::bytea[]) ORDER BY r.digest"
                       " ON CONFLICT (release) DO UPDATE SET fetched_at = excluded.fetched_at"};
  struct db_parameters parameters = {0};
  struct db_array array;
  db_array_init(&array);
  for (size_t i = 0; i < n; i++)
    db_array_digest(&array, &releases[i]);
  db_text(&parameters, db_array_finish(&array));
  bool ok = db_run(db, &statement, &parameters, NULL, error);
  db_array_release(&array);
  return ok;
}
