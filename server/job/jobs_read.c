/* SQL that reads jobs, their measurements and their events. Answers are made as JSON by the database, which has their
 * order-sensitive parts as text. Memory and threads: as jobs.h says. */
#include "server/db/values.h"
#include "server/job/job_store.h"

#define SQL_DIGEST(column) "'sha256:' || encode(" column ", 'hex')"

/* A job's summary; what only a single job shows is added by the caller. */
/* clang-format off */
#define SQL_SUMMARY(more)                                                                                              \
  "json_build_object('job', j.id::text, 'state', j.state, 'stage', j.stage, 'round', j.round,"                         \
  " 'kernel', " SQL_DIGEST("j.kernel") ", 'name', k.name, 'key', j.key,"                                               \
  " 'space_digest', " SQL_DIGEST("j.space_digest") ", 'environment', e.identity, 'tag', j.tag, 'run', j.run,"          \
  " 'regime', j.regime, 'purpose', j.purpose,"                                                                         \
  " 'priority', j.priority, 'budget', CASE WHEN j.budget_device_ms IS NOT NULL THEN"                                   \
  "  json_build_object('device_seconds', j.budget_device_ms / 1000.0::float8) END,"                                    \
  " 'runner', j.runner, 'build', " SQL_DIGEST("j.build") ", 'baseline', j.baseline,"                                   \
  " 'baseline_from', j.baseline_from, 'seed', j.seed, 'search', CASE WHEN j.search_strategy IS NOT NULL THEN"          \
  "  json_build_object('strategy', j.search_strategy, 'trials', j.search_trials) END,"                                 \
  " 'finals', json_build_object('devices', j.final_devices),"                                                          \
  " 'configs', j.configs,"                                                                                             \
  " 'measured', t.correct + t.compile + t.runtime + t.correctness + t.timeout + t.constraints,"                        \
  " 'outcomes', json_strip_nulls(json_build_object('correct', nullif(t.correct, 0), 'compile', nullif(t.compile, 0),"  \
  "  'runtime', nullif(t.runtime, 0), 'correctness', nullif(t.correctness, 0), 'timeout', nullif(t.timeout, 0),"       \
  "  'constraints', nullif(t.constraints, 0))),"                                                                       \
  " 'spent_device_seconds', t.spent_us / 1e6::float8, 'opening_device_seconds', t.opening_us / 1e6::float8,"           \
  " 'reason', j.reason,"                                                                                               \
  " 'created_at', " SQL_TIME("j.created_at") ", 'finished_at', " SQL_TIME("j.finished_at") ","                         \
  " " SQL_BY("j", "submitted_by") ", " SQL_BY("j", "cancelled_by") more ")"

/* What the finalists took, each from the last process that it was measured in. */
#define SQL_RESOURCES                                                                                                  \
  "(SELECT COALESCE(json_agg(json_build_object('config', config, 'vgprs', vgprs, 'agprs', agprs, 'spills', spills,"    \
  "  'lds_bytes', lds_bytes, 'occupancy', occupancy, 'object', " SQL_DIGEST("object") ", 'conditions', conditions)"    \
  "  ORDER BY config), '[]') FROM (SELECT DISTINCT ON (config) config, vgprs, agprs, spills, lds_bytes, occupancy,"    \
  "   object, conditions FROM measurements m LEFT JOIN measurement_objects o ON o.job_id = m.job_id"                   \
  "   AND o.measurement = m.id WHERE m.job_id = j.id AND stage = 'final' AND NOT late"                                 \
  "   AND outcome = 'correct' ORDER BY config, process DESC) last)"
/* clang-format on */

#define SQL_JOBS                                                                                                       \
  " FROM jobs j JOIN kernels k ON k.hash = j.kernel JOIN environments e ON e.id = j.environment_id"                    \
  " LEFT JOIN winners w ON w.job_id = j.id CROSS JOIN LATERAL (SELECT"                                                 \
  " COALESCE(sum(device_us + opening_us), 0)::bigint AS spent_us, COALESCE(sum(opening_us), 0)::bigint AS opening_us," \
  " COALESCE(sum(outcomes[1]) FILTER (WHERE l.stage = 'screen'), 0) AS correct,"                                       \
  " COALESCE(sum(outcomes[2]) FILTER (WHERE l.stage = 'screen'), 0) AS compile,"                                       \
  " COALESCE(sum(outcomes[3]) FILTER (WHERE l.stage = 'screen'), 0) AS runtime,"                                       \
  " COALESCE(sum(outcomes[4]) FILTER (WHERE l.stage = 'screen'), 0) AS correctness,"                                   \
  " COALESCE(sum(outcomes[5]) FILTER (WHERE l.stage = 'screen'), 0) AS timeout,"                                       \
  " COALESCE(sum(outcomes[6]) FILTER (WHERE l.stage = 'screen'), 0) AS constraints"                                    \
  " FROM leases l WHERE l.job_id = j.id) t"

static const struct statement jobs_list_statement = {
    "jobs_list",
    "SELECT j.id, " SQL_SUMMARY(
        ", 'winner', CASE WHEN w.job_id IS NOT NULL THEN json_build_object("
        "'config', w.config, 'config_values', w.config_values) END") " AS item" SQL_JOBS
                                                                     " WHERE j.id < $1 AND ($2::job_state IS NULL OR "
                                                                     "j.state = $2::job_state) AND ($3::text IS NULL "
                                                                     "OR j.tag = $3::text)"
                                                                     " AND ($4::bytea IS NULL OR j.kernel = $4::bytea) "
                                                                     "ORDER BY j.id DESC LIMIT $5"};

bool jobs_list(struct db *db, const struct job_filter *filter, json_t **ret_items, int64_t *ret_next,
               struct error *error) {
  struct db_parameters parameters = {0};
  db_integer(&parameters, filter->before);
  db_text(&parameters, filter->state);
  db_text(&parameters, filter->tag);
  if (filter->kernel)
    db_digest(&parameters, filter->kernel);
  else
    db_text(&parameters, NULL);
  db_integer(&parameters, filter->limit);
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(db, &jobs_list_statement, &parameters, &rows, error))
    return false;
  *ret_items = db_get_json_rows(rows, "item");
  *ret_next = db_count(rows) == filter->limit ? db_get_integer(rows, db_count(rows) - 1, "id") : 0;
  return true;
}

/* Why nothing of the job is measured that could be, or NULL. $2 is live_ms. */
#define SQL_DEVICES(drained)                                                                                           \
  "(SELECT count(*) FROM environments o JOIN devices d ON d.environment_id = o.id JOIN agents a ON a.id = d.agent"     \
  " WHERE (o.digest = j.device_class OR o.hardware_digest = j.device_class)"                                           \
  " AND COALESCE(a.drain_reason, d.drain_reason) IS " drained "NULL"                                                   \
  " AND a.last_seen > now() - $2::bigint * interval '1 ms')"
#define SQL_OPEN "FROM leases l WHERE l.job_id = j.id AND " SQL_IS_OPEN
#define SQL_WAITING                                                                                                    \
  "CASE WHEN j.state NOT IN ('queued', 'running') OR NOT EXISTS (SELECT " SQL_OPEN ") THEN NULL"                       \
  " WHEN " SQL_DEVICES("") " = 0 THEN 'no device that could measure it is live and takes leases'"                      \
                           " || COALESCE('; drained: ' || NULLIF(" SQL_DEVICES(                                        \
                               "NOT ") ", 0), '')"                                                                     \
                                       " ELSE (SELECT count(*) || ' of its final''s processes are kept for devices "   \
                                       "that have none of them, as "                                                   \
                                       "it asks for '"                                                                 \
                                       "  || j.final_devices || ', for at most ' || ceil(extract(epoch FROM "          \
                                       "max(l.apart_until) - now())) || ' "                                            \
                                       "s more'"                                                                       \
                                       "  " SQL_OPEN " AND l.apart_until > now() HAVING count(*) > 0) END"

/* clang-format off */
static const struct statement job_get_statement = {
    "job_get",
    "SELECT " SQL_SUMMARY(", 'waiting', " SQL_WAITING ", 'space', s.space::json, 'flagged', w.flagged, 'quarantined', w.quarantined, 'winner', CASE WHEN w.job_id IS NOT NULL THEN json_build_object("
                          " 'config', w.config, 'config_values', w.config_values, 'verdict', w.verdict,"
                          " 'resources', " SQL_RESOURCES ") END") " AS item"
    SQL_JOBS " JOIN spaces s ON s.digest = j.space_digest WHERE j.id = $1"};
/* clang-format on */

bool job_get(struct db *db, int64_t job, int64_t live_ms, json_t **ret_summary, struct error *error) {
  struct db_parameters parameters = {0};
  db_integer(&parameters, job);
  db_integer(&parameters, live_ms);
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(db, &job_get_statement, &parameters, &rows, error))
    return false;
  *ret_summary = db_count(rows) ? db_get_json(rows, 0, "item") : NULL;
  return true;
}

static const struct statement job_space_statement = {
    "job_space", "SELECT s.space FROM jobs j JOIN spaces s ON s.digest = j.space_digest WHERE j.id = $1"};

bool job_space(struct db *db, int64_t job, char **ret_space, struct error *error) {
  struct db_parameters parameters = {0};
  db_integer(&parameters, job);
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(db, &job_space_statement, &parameters, &rows, error))
    return false;
  ALWAYS(db_count(rows) == 1);
  *ret_space = xstrdup(db_get(rows, 0, "space"));
  return true;
}

/* A page ends early when its samples are many, so that its size in memory is bounded; it has a measurement in any case. */
#define PAGE_TIMES_MAX "100000"

/* clang-format off */
static const struct statement measurements_list_statement = {
    "job_measurements_list",
    "SELECT j.id AS job, m.id, m.n, json_build_object('id', m.id::text, 'lease', m.lease_id::text, 'epoch', m.epoch,"
    " 'seq', m.seq, 'agent', m.agent, 'device', m.device, 'config', m.config, 'stage', m.stage, 'round', m.round,"
    " 'process', m.process, 'outcome', m.outcome, 'detail', m.detail, 'timer', m.timer, 'regime', m.regime,"
    " 'samples_us', m.samples_us, 'baseline_us', m.baseline_us, 'clock_mhz', m.clock_mhz,"
    " 'compile_ms', m.compile_ms, 'device_us', m.device_us, 'vgprs', m.vgprs, 'agprs', m.agprs, 'spills', m.spills,"
    " 'lds_bytes', m.lds_bytes, 'occupancy', m.occupancy, 'end', m.\"end\", 'object', " SQL_DIGEST("o.object") ","
    " 'conditions', m.conditions, 'late', m.late, 'quarantined', m.quarantined, 'at', " SQL_TIME("m.at") ") AS item"
    " FROM jobs j LEFT JOIN LATERAL (SELECT *, count(*) OVER () AS n,"
    "  sum(2 * cardinality(samples_us)) OVER (ORDER BY id) - 2 * cardinality(samples_us) AS times_before"
    "  FROM (SELECT * FROM measurements WHERE job_id = j.id AND id > $2 ORDER BY id LIMIT $3) page) m"
    " ON m.times_before < " PAGE_TIMES_MAX
    " LEFT JOIN measurement_objects o ON o.job_id = m.job_id AND o.measurement = m.id WHERE j.id = $1 ORDER BY m.id"};
/* clang-format on */

bool job_measurements_list(struct db *db, int64_t job, int64_t after, int64_t limit, json_t **ret_items,
                           int64_t *ret_next, bool *ret_known, struct error *error) {
  struct db_parameters parameters = {0};
  db_integer(&parameters, job);
  db_integer(&parameters, after);
  db_integer(&parameters, limit);
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(db, &measurements_list_statement, &parameters, &rows, error))
    return false;
  *ret_known = db_count(rows) > 0;
  bool empty = *ret_known && db_is_null(rows, 0, "id");
  int64_t n_page = *ret_known && !empty ? db_get_integer(rows, 0, "n") : 0; /* before it was cut */
  *ret_next = n_page == limit || n_page > db_count(rows) ? db_get_integer(rows, db_count(rows) - 1, "id") : 0;
  *ret_items = empty || !*ret_known ? json_array() : db_get_json_rows(rows, "item");
  return true;
}

static const struct statement job_events_statement = {
    "job_events_list",
    "SELECT r.n, j.id IS NOT NULL AS known, ev.items FROM unnest($1::bigint[], $2::bigint[], $3::bigint[])"
    " WITH ORDINALITY AS r(job, after, most, n) LEFT JOIN jobs j ON j.id = r.job"
    " LEFT JOIN LATERAL (SELECT json_agg(json_build_object('event', x.event, 'kind', x.kind,"
    "  'at', " SQL_TIME(
        "x.at") ", 'detail', x.detail) ORDER BY x.event) AS items FROM (SELECT * FROM job_events"
                "  WHERE job_id = j.id AND event > r.after ORDER BY event LIMIT r.most) x) ev ON true ORDER BY r.n"};

bool job_events_list(struct db *db, const int64_t *jobs, const int64_t *afters, const int64_t *limits, size_t n,
                     json_t **ret_items, struct error *error) {
  struct db_array ids, after, most;
  db_array_init(&ids);
  db_array_init(&after);
  db_array_init(&most);
  for (size_t i = 0; i < n; i++) {
    db_array_integer(&ids, jobs[i]);
    db_array_integer(&after, afters[i]);
    db_array_integer(&most, limits[i]);
  }
  struct db_parameters parameters = {0};
  db_text(&parameters, db_array_finish(&ids));
  db_text(&parameters, db_array_finish(&after));
  db_text(&parameters, db_array_finish(&most));
  cleanup_rows struct db_rows *rows = NULL;
  bool ok = db_run(db, &job_events_statement, &parameters, &rows, error);
  db_array_release(&ids);
  db_array_release(&after);
  db_array_release(&most);
  for (size_t i = 0; ok && i < n; i++) {
    if (!db_get_bool(rows, (int)i, "known"))
      ret_items[i] = json_null();
    else
      ret_items[i] = db_is_null(rows, (int)i, "items") ? json_array() : db_get_json(rows, (int)i, "items");
  }
  return ok;
}

static const struct statement search_input_statement = {
    "job_search_input",
    "SELECT s.space::json AS space, j.key, e.identity, j.likely FROM jobs j JOIN spaces s ON s.digest = j.space_digest"
    " JOIN environments e ON e.id = j.environment_id WHERE j.id = $1"};

bool job_search_input(struct db *db, int64_t job, struct job_search_input *ret, struct error *error) {
  struct db_parameters parameters = {0};
  db_integer(&parameters, job);
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(db, &search_input_statement, &parameters, &rows, error))
    return false;
  ALWAYS(db_count(rows) == 1);
  *ret = (struct job_search_input){
      db_get_json(rows, 0, "space"), db_get_json(rows, 0, "key"), db_get_json(rows, 0, "identity"), 0, {0}};
  ret->n_likely = ordinals_parse(db_get(rows, 0, "likely"), ret->likely, WARM_STARTS_MAX);
  return true;
}

void job_search_input_release(struct job_search_input *input) {
  json_decref(input->space);
  json_decref(input->key);
  json_decref(input->environment);
}
