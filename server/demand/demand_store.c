/* SQL of demand. Memory and threads: as the header says. */
#include "server/demand/demand_store.h"

#include "server/db/values.h"
#include "server/demand/demand.h"

#define TEXT_OF(number) #number
#define TEXT(macro) TEXT_OF(macro)

static const struct statement kernels_statement = {
    "demand_kernels", "SELECT r.n, k.hash FROM unnest($1::text[]) WITH ORDINALITY AS r(name, n)"
                      " CROSS JOIN LATERAL (SELECT hash FROM kernels WHERE name = r.name AND language <> 'external'"
                      "  ORDER BY id DESC LIMIT 1) k"};

bool demand_kernels_find(struct db *db, const char *const *names, size_t n, struct digest *ret_hashes, bool *ret_known,
                         struct error *error) {
  struct db_array array;
  struct db_parameters parameters = {0};
  cleanup_rows struct db_rows *rows = NULL;
  db_array_init(&array);
  for (size_t i = 0; i < n; i++)
    db_array_text(&array, names[i]);
  db_text(&parameters, db_array_finish(&array));
  bool ok = db_run(db, &kernels_statement, &parameters, &rows, error);
  db_array_release(&array);
  for (int row = 0; ok && row < db_count(rows); row++) {
    size_t i = (size_t)db_get_integer(rows, row, "n") - 1;
    ret_hashes[i] = db_get_digest(rows, row, "hash");
    ret_known[i] = true;
  }
  return ok;
}

static const struct statement add_statement = {
    "demand_add",
    "INSERT INTO demand AS d (kernel, key_digest, key, environment_digest, environment, tag, regime, hits, misses,"
    "  tuning_ms, kernel_ms, last_by, last_by_id)"
    " SELECT r.kernel, r.key_digest, min(r.key)::json, $7, $8, $9, $11, sum(r.hits), sum(r.misses), sum(r.tuning_ms),"
    "  avg(nullif(r.kernel_ms, 0)), $12, $13::bigint"
    " FROM unnest($1::bytea[], $2::bytea[], $3::text[], $4::int8[], $5::int8[], $6::float8[], $10::float8[])"
    "  AS r(kernel, key_digest, key, hits, misses, tuning_ms, kernel_ms)"
    " WHERE EXISTS (SELECT FROM demand o WHERE (o.kernel, o.key_digest, o.environment_digest, o.tag,"
    "   o.regime) = (r.kernel, r.key_digest, $7, $9, $11))"
    "  OR (SELECT count(*) FROM (SELECT FROM demand LIMIT " TEXT(DEMAND_ROWS_MAX) ") kept) < " TEXT(
        DEMAND_ROWS_MAX) " GROUP BY r.kernel, r.key_digest ORDER BY r.kernel, "
                         "r.key_digest" /* everybody locks rows in one order */
                         " ON CONFLICT (kernel, key_digest, environment_digest, "
                         "tag, regime) DO UPDATE SET hits = least(d.hits, " TEXT(
                             DEMAND_TOTAL_MAX) ") + excluded.hits,"
                                               "  misses = least(d.misses, " TEXT(
                                                   DEMAND_TOTAL_MAX) ") + excluded.misses, tuning_ms = "
                                                                     "d.tuning_ms + excluded.tuning_ms,"
                                                                     "  kernel_ms = coalesce(excluded.kernel_ms, "
                                                                     "d.kernel_ms), "
                                                                     "last_at = now(), last_by = excluded.last_by, "
                                                                     "last_by_id = excluded.last_by_id"};

static void real_add(struct db_array *array, double number) {
  char text[FLOAT_TEXT_SIZE];
  db_array_text(array, float_format(number, text));
}

bool demand_add(struct db *db, const struct demand_row *rows, size_t n, const struct digest *environment,
                const char *environment_text, const char *tag, enum regime regime, const struct author *author,
                struct error *error) {
  enum { KERNEL, KEY_DIGEST, KEY, HITS, MISSES, TUNING, KERNEL_MS, COLUMNS };
  struct db_array columns[COLUMNS];
  struct db_parameters parameters = {0};
  for (size_t i = 0; i < COLUMNS; i++)
    db_array_init(&columns[i]);
  for (size_t i = 0; i < n; i++) {
    db_array_digest(&columns[KERNEL], &rows[i].kernel);
    db_array_digest(&columns[KEY_DIGEST], &rows[i].key_digest);
    db_array_text(&columns[KEY], rows[i].key);
    db_array_integer(&columns[HITS], rows[i].hits);
    db_array_integer(&columns[MISSES], rows[i].misses);
    real_add(&columns[TUNING], rows[i].tuning_ms);
    real_add(&columns[KERNEL_MS], rows[i].kernel_ms);
  }
  for (size_t i = 0; i < KERNEL_MS; i++)
    db_text(&parameters, db_array_finish(&columns[i]));
  db_digest(&parameters, environment);
  db_text(&parameters, environment_text);
  db_text(&parameters, tag);
  db_text(&parameters, db_array_finish(&columns[KERNEL_MS]));
  db_text(&parameters, regime_name(regime));
  db_author(&parameters, author);
  bool ok = db_run(db, &add_statement, &parameters, NULL, error);
  for (size_t i = 0; i < COLUMNS; i++)
    db_array_release(&columns[i]);
  return ok;
}

void demand_list_release(struct demand_list *list) {
  for (size_t i = 0; i < list->n; i++) {
    struct demand_wanted *wanted = &list->all[i];
    free(wanted->name);
    free(wanted->tag);
    free(wanted->regime);
    free(wanted->last_at);
    json_decref(wanted->key);
    json_decref(wanted->environment);
    json_decref(wanted->space);
  }
  free(list->all);
  *list = (struct demand_list){0};
}

/* Tuned is what a done job has a winner for in an environment that is the deployment's, or agrees with what it states. That
 * is asked last, key by key in the order of the ranking until there are enough, and by the index of jobs: to join all jobs
 * takes seconds where there are many. */
static const struct statement wanted_statement = {
    "demand_wanted",
    "WITH open AS (SELECT * FROM demand d WHERE d.misses > 0 AND d.job_id IS NULL"
    "  AND (d.decided_at IS NULL OR d.decided_at < now() - interval '1 day')),"
    " gains AS (SELECT k.kernel, coalesce(g.gain, $2::float8) AS gain FROM (SELECT DISTINCT kernel FROM open) k"
    "  CROSS JOIN LATERAL (SELECT avg(1 - CASE WHEN j.baseline = COALESCE(j.default_config, j.baseline)"
    "    THEN (w.verdict ->> 'baseline_ratio')::float8"
    "    ELSE (SELECT (f ->> 'winner_ratio')::float8 FROM json_array_elements(w.verdict -> 'finalists') f"
    "          WHERE (f ->> 'config')::bigint = j.default_config) END) AS gain"
    "   FROM (SELECT id, baseline, default_config FROM jobs WHERE jobs.kernel = k.kernel AND state = 'done'"
    "    AND purpose = 'tune' ORDER BY id DESC LIMIT 64) j JOIN winners w ON w.job_id = j.id) g),"
    " wanted AS (SELECT * FROM (SELECT o.*, g.gain,"
    "   o.tuning_ms + (o.hits + o.misses) * coalesce(o.kernel_ms, 0) * greatest(g.gain, 0) AS saved_ms"
    "   FROM open o JOIN gains g USING (kernel) ORDER BY saved_ms DESC, o.misses DESC, o.id) ranked"
    "  WHERE (SELECT count(*) FROM (SELECT FROM (SELECT id, environment_id FROM jobs WHERE kernel = ranked.kernel"
    "     AND key_digest = ranked.key_digest AND tag = ranked.tag AND regime = ranked.regime AND state = 'done' OFFSET "
    "0) j"
    "    JOIN winners w ON w.job_id = j.id JOIN environments e ON e.id = j.environment_id"
    "    AND e.identity::jsonb @> ranked.environment::jsonb LIMIT 1) tuned) = 0"
    "  ORDER BY saved_ms DESC, misses DESC, id LIMIT $1)"
    " SELECT r.id, r.kernel, k.name, r.tag, r.regime, r.key, r.environment, r.hits, r.misses, r.tuning_ms, "
    "r.kernel_ms, r.gain,"
    "  r.saved_ms, " SQL_TIME(
        "r.last_at") " AS last_at, j.space, j.budget_ms FROM wanted r JOIN kernels k ON k.hash = "
                     "r.kernel LEFT JOIN LATERAL (SELECT s.space, jobs.budget_device_ms AS budget_ms FROM jobs JOIN "
                     "spaces s ON s.digest = jobs.space_digest"
                     "   WHERE jobs.kernel = r.kernel AND jobs.state = 'done' AND jobs.purpose = 'tune' ORDER BY "
                     "jobs.id DESC LIMIT 1) j"
                     "  ON true ORDER BY r.saved_ms DESC, r.misses DESC, r.id"};

bool demand_wanted_load(struct db *db, int64_t limit, struct demand_list *ret, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  struct db_parameters parameters = {0};
  char gain[FLOAT_TEXT_SIZE];
  db_integer(&parameters, limit);
  db_text(&parameters, float_format(DEMAND_GAIN, gain));
  if (!db_run(db, &wanted_statement, &parameters, &rows, error))
    return false;
  ret->n = (size_t)db_count(rows);
  ret->all = xcalloc(ret->n + 1, sizeof *ret->all);
  for (int row = 0; row < db_count(rows); row++)
    ret->all[row] = (struct demand_wanted){.id = db_get_integer(rows, row, "id"),
                                           .kernel = db_get_digest(rows, row, "kernel"),
                                           .name = xstrdup(db_get(rows, row, "name")),
                                           .tag = xstrdup(db_get(rows, row, "tag")),
                                           .regime = xstrdup(db_get(rows, row, "regime")),
                                           .key = db_get_json(rows, row, "key"),
                                           .environment = db_get_json(rows, row, "environment"),
                                           .hits = db_get_integer(rows, row, "hits"),
                                           .misses = db_get_integer(rows, row, "misses"),
                                           .budget_ms = db_get_integer(rows, row, "budget_ms"),
                                           .tuning_ms = db_get_double(rows, row, "tuning_ms"),
                                           .kernel_ms = db_get_double(rows, row, "kernel_ms"),
                                           .gain = db_get_double(rows, row, "gain"),
                                           .saved_ms = db_get_double(rows, row, "saved_ms"),
                                           .last_at = xstrdup(db_get(rows, row, "last_at")),
                                           .space = db_get_json(rows, row, "space")};
  return true;
}

bool demand_decided(struct db *db, int64_t id, int64_t job, const char *refused, struct error *error) {
  static const struct statement statement = {
      "demand_decided",
      "UPDATE demand SET job_id = nullif($2::int8, 0), refused = $3, decided_at = now() WHERE id = $1"};
  struct db_parameters parameters = {0};
  db_integer(&parameters, id);
  db_integer(&parameters, job);
  db_text(&parameters, refused);
  return db_run(db, &statement, &parameters, NULL, error);
}

bool demand_queued_lately(struct db *db, int64_t *ret_jobs, struct error *error) {
  static const struct statement statement = {
      "demand_queued_lately",
      "SELECT count(*) AS n FROM demand WHERE job_id IS NOT NULL AND decided_at > now() - interval '1 hour'"};
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(db, &statement, NULL, &rows, error))
    return false;
  *ret_jobs = db_get_integer(rows, 0, "n");
  return true;
}
