/* SQL of flags. Memory and threads: as the header says. */
#include "server/store/flags.h"

#include "server/store/values.h"

static const struct statement facts_statement = {
    "flag_facts",
    "SELECT j.baseline, j.default_config, j.seed, j.baseline_from = 'incumbent' AS is_incumbent,"
    " (SELECT count(*) FROM measurements q WHERE q.job_id = j.id AND q.stage = 'final' AND q.quarantined AND q.late"
    "  AND NOT EXISTS (SELECT FROM measurements m WHERE (m.job_id, m.stage, m.round, m.process, m.config)"
    "   = (q.job_id, q.stage, q.round, q.process, q.config) AND NOT m.late)) AS n_lacking FROM jobs j WHERE j.id = $1"};

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
                             .is_incumbent = db_get_bool(rows, 0, "is_incumbent"),
                             .has_default = !db_is_null(rows, 0, "default_config"),
                             .n_lacking = db_get_integer(rows, 0, "n_lacking")};
  return true;
}

static const struct statement flags_store_statement = {
    "flags_store",
    "WITH due AS MATERIALIZED (SELECT j.id FROM jobs later JOIN jobs j ON (j.environment_id, j.tag, j.kernel, "
    "j.key_digest)"
    "   = (later.environment_id, later.tag, later.kernel, later.key_digest) AND j.state = 'done'"
    "   AND j.finished_at <= later.created_at JOIN winners w ON w.job_id = j.id"
    "  WHERE later.id = $1 AND w.config_values::jsonb = $2::jsonb AND w.flagged IS NULL ORDER BY j.id"
    "  FOR NO KEY UPDATE OF j),"
    " flag AS MATERIALIZED (SELECT json_build_object('job', $1::bigint::text, 'ratio', $3::float8, 'lower', $4::float8,"
    "  'upper', $5::float8, 'at', " SQL_TIME(
        "now()") ") AS flag),"
                 " flagged AS (UPDATE winners w SET flagged = flag.flag FROM due, flag WHERE w.job_id = due.id "
                 "RETURNING w.job_id),"
                 " counter AS (UPDATE jobs SET events = events + 1 FROM flagged WHERE jobs.id = flagged.job_id"
                 "  RETURNING jobs.id, jobs.events)"
                 " INSERT INTO job_events (job_id, event, kind, detail) SELECT counter.id, counter.events, 'flagged', "
                 "flag.flag"
                 " FROM counter, flag"};

bool flags_store(struct db *db, int64_t job, const char *config_values, const struct flag *flag, size_t *ret_flagged,
                 struct error *error) {
  char ratio[FLOAT_TEXT_SIZE], lower[FLOAT_TEXT_SIZE], upper[FLOAT_TEXT_SIZE];
  struct db_parameters parameters = {0};
  db_integer(&parameters, job);
  db_text(&parameters, config_values);
  db_text(&parameters, float_format(flag->ratio, ratio));
  db_text(&parameters, float_format(flag->lower, lower));
  db_text(&parameters, float_format(flag->upper, upper));
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(db, &flags_store_statement, &parameters, &rows, error))
    return false;
  *ret_flagged = (size_t)db_affected(rows);
  return true;
}
