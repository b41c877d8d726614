/* SQL of flags. Memory and threads: as the header says. */
#include "server/agent/flag_store.h"

#include "server/db/values.h"

/* Winners that job $1 may flag. */
#define SQL_EARLIER                                                                                                    \
  " FROM jobs later JOIN jobs j ON (j.environment_id, j.tag, j.regime, j.kernel, j.key_digest)"                        \
  "  = (later.environment_id, later.tag, later.regime, later.kernel, later.key_digest) AND j.state = 'done'"           \
  "  AND j.finished_at <= later.created_at JOIN winners w ON w.job_id = j.id AND w.flagged IS NULL"

/* Of its measurements those of its finals are read, by their leases: a job may have a million. */
static const struct statement facts_statement = {
    "flag_facts", "SELECT now.baseline, now.default_config, now.seed,"
                  " EXISTS (SELECT" SQL_EARLIER " WHERE later.id = now.id) AS has_earlier,"
                  " (SELECT count(*) FROM leases l JOIN measurements q ON q.lease_id = l.id"
                  "  WHERE l.job_id = now.id AND l.stage = 'final' AND q.quarantined AND q.late"
                  "  AND NOT EXISTS (SELECT FROM measurements m WHERE (m.job_id, m.stage, m.round, m.process, m.config)"
                  "   = (q.job_id, q.stage, q.round, q.process, q.config) AND NOT m.late)) AS n_lacking FROM jobs now"
                  " WHERE now.id = $1"};

bool flag_facts_load(struct db *db, int64_t job, struct flag_facts *ret, struct error *error) {
  struct db_parameters parameters = {0};
  db_integer(&parameters, job);
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(db, &facts_statement, &parameters, &rows, error))
    return false;
  ALWAYS(db_count(rows) == 1);
  *ret = (struct flag_facts){.baseline = (uint64_t)db_get_integer(rows, 0, "baseline"),
                             .default_config = (uint64_t)db_get_integer(rows, 0, "default_config"),
                             .seed = (uint64_t)db_get_integer(rows, 0, "seed"),
                             .has_default = !db_is_null(rows, 0, "default_config"),
                             .has_earlier = db_get_bool(rows, 0, "has_earlier"),
                             .n_lacking = db_get_integer(rows, 0, "n_lacking")};
  return true;
}

static const struct statement flags_store_statement = {
    "flags_store",
    "WITH due AS MATERIALIZED (SELECT j.id, json_build_object('job', $1::bigint::text, 'ratio', f.ratio,"
    "   'lower', f.lower, 'upper', f.upper, 'at', " SQL_TIME(
        "now()") ") AS flag" SQL_EARLIER "  JOIN unnest($2::text[], $3::float8[], $4::float8[], $5::float8[]) AS "
                 "f(config_values, ratio, lower, upper)"
                 "   ON w.config_values::jsonb = f.config_values::jsonb WHERE later.id = $1 ORDER BY j.id FOR NO KEY "
                 "UPDATE OF j),"
                 " flagged AS (UPDATE winners w SET flagged = due.flag FROM due WHERE w.job_id = due.id),"
                 " counter AS (UPDATE jobs SET events = events + 1 FROM due WHERE jobs.id = due.id"
                 "  RETURNING jobs.id, jobs.events, due.flag)"
                 " INSERT INTO job_events (job_id, event, kind, detail) SELECT id, events, 'flagged', flag FROM "
                 "counter"};

static void real_add(struct db_array *array, double number) {
  char text[FLOAT_TEXT_SIZE];
  db_array_text(array, float_format(number, text));
}

bool flags_store(struct db *db, int64_t job, const char *const *config_values, const struct flag *flags, size_t n,
                 size_t *ret_flagged, struct error *error) {
  enum { VALUES, RATIO, LOWER, UPPER, COLUMNS };
  struct db_array columns[COLUMNS];
  struct db_parameters parameters = {0};
  for (size_t i = 0; i < COLUMNS; i++)
    db_array_init(&columns[i]);
  for (size_t i = 0; i < n; i++) {
    db_array_text(&columns[VALUES], config_values[i]);
    real_add(&columns[RATIO], flags[i].ratio);
    real_add(&columns[LOWER], flags[i].lower);
    real_add(&columns[UPPER], flags[i].upper);
  }
  db_integer(&parameters, job);
  for (size_t i = 0; i < COLUMNS; i++)
    db_text(&parameters, db_array_finish(&columns[i]));
  cleanup_rows struct db_rows *rows = NULL;
  bool ok = db_run(db, &flags_store_statement, &parameters, &rows, error);
  for (size_t i = 0; i < COLUMNS; i++)
    db_array_release(&columns[i]);
  if (ok)
    *ret_flagged = (size_t)db_affected(rows);
  return ok;
}
