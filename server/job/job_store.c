/* SQL that submits and changes jobs. Memory and threads: as the header says. */
#include "server/job/job_store.h"

#include "common/campaign/campaign.h"
#include "server/agent/environments.h"
#include "server/counters.h"
#include "server/db/values.h"

#define JOB_ID_SIZE 24

static const struct statement kernels_load_statement = {
    "job_kernels_load",
    "SELECT k.manifest FROM unnest($1::bytea[]) WITH ORDINALITY AS r(hash, n) LEFT JOIN kernels k ON k.hash = r.hash"
    " ORDER BY r.n"};

bool job_kernels_load(struct db *db, const struct digest *hashes, size_t n, char **ret_manifests, struct error *error) {
  struct db_array array;
  db_array_init(&array);
  for (size_t i = 0; i < n; i++)
    db_array_digest(&array, &hashes[i]);
  struct db_parameters parameters = {0};
  db_text(&parameters, db_array_finish(&array));
  cleanup_rows struct db_rows *rows = NULL;
  bool ok = db_run(db, &kernels_load_statement, &parameters, &rows, error);
  db_array_release(&array);
  for (size_t i = 0; ok && i < n; i++)
    ret_manifests[i] = db_is_null(rows, (int)i, "manifest") ? NULL : xstrdup(db_get(rows, (int)i, "manifest"));
  return ok;
}

static const struct statement builds_load_statement = {
    "job_builds_load", "SELECT digest, head FROM builds WHERE kernel = $1 ORDER BY id DESC LIMIT 256"};

bool job_builds_load(struct db *db, const struct digest *kernel, struct job_build **ret_builds, size_t *ret_n,
                     struct error *error) {
  struct db_parameters parameters = {0};
  db_digest(&parameters, kernel);
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(db, &builds_load_statement, &parameters, &rows, error))
    return false;
  *ret_n = (size_t)db_count(rows);
  *ret_builds = xcalloc(*ret_n + 1, sizeof **ret_builds);
  for (size_t i = 0; i < *ret_n; i++)
    (*ret_builds)[i] = (struct job_build){db_get_digest(rows, (int)i, "digest"), xstrdup(db_get(rows, (int)i, "head"))};
  return true;
}

/* The identity's columns as arrays, in this order everywhere. */
struct identity_arrays {
  struct db_array kernels, keys, spaces, environments, tags, runs, regimes;
};

static void identity_init(struct identity_arrays *arrays, struct job_row *const *jobs, size_t n) {
  db_array_init(&arrays->kernels);
  db_array_init(&arrays->keys);
  db_array_init(&arrays->spaces);
  db_array_init(&arrays->environments);
  db_array_init(&arrays->tags);
  db_array_init(&arrays->runs);
  db_array_init(&arrays->regimes);
  for (size_t i = 0; i < n; i++) {
    db_array_digest(&arrays->kernels, &jobs[i]->kernel);
    db_array_digest(&arrays->keys, &jobs[i]->key_digest);
    db_array_digest(&arrays->spaces, &jobs[i]->space_digest);
    db_array_digest(&arrays->environments, &jobs[i]->environment_digest);
    db_array_text(&arrays->tags, jobs[i]->tag);
    db_array_text(&arrays->runs, jobs[i]->run);
    db_array_text(&arrays->regimes, regime_name(jobs[i]->regime));
  }
}

static void identity_bind(struct identity_arrays *arrays, struct db_parameters *parameters) {
  db_text(parameters, db_array_finish(&arrays->kernels));
  db_text(parameters, db_array_finish(&arrays->keys));
  db_text(parameters, db_array_finish(&arrays->spaces));
  db_text(parameters, db_array_finish(&arrays->environments));
  db_text(parameters, db_array_finish(&arrays->tags));
  db_text(parameters, db_array_finish(&arrays->runs));
  db_text(parameters, db_array_finish(&arrays->regimes));
}

static void identity_release(struct identity_arrays *arrays) {
  db_array_release(&arrays->kernels);
  db_array_release(&arrays->keys);
  db_array_release(&arrays->spaces);
  db_array_release(&arrays->environments);
  db_array_release(&arrays->tags);
  db_array_release(&arrays->runs);
  db_array_release(&arrays->regimes);
}

static enum job_state state_get(const struct db_rows *rows, int row) {
  enum job_state state;
  ALWAYS(job_state_parse(db_get(rows, row, "state"), &state));
  return state;
}

static enum baseline_from baseline_from_get(const struct db_rows *rows, int row) {
#define X(id, name) name,
  static const char *const names[] = {BASELINE_ORIGINS(X)};
#undef X
  size_t from;
  ALWAYS(name_find(names, BASELINE_FROM_COUNT, db_get(rows, row, "baseline_from"), &from));
  return (enum baseline_from)from;
}

static void stored_read(const struct db_rows *rows, struct job_row *const *jobs) {
  for (int row = 0; row < db_count(rows); row++) {
    struct job_row *job = jobs[db_get_integer(rows, row, "n") - 1];
    job->known = true;
    job->id = db_get_integer(rows, row, "id");
    job->known_priority = db_get_integer(rows, row, "priority");
    job->configs = db_get_integer(rows, row, "configs");
    job->state = state_get(rows, row);
    job->baseline_from = baseline_from_get(rows, row);
    job->created = db_get_bool(rows, row, "created");
  }
}

static const struct statement jobs_find_statement = {
    "jobs_find", "SELECT r.n, j.id, j.state, j.configs, j.priority, j.baseline_from, false AS created"
                 " FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bytea[], $5::text[], $6::text[], $7::text[])"
                 "  WITH ORDINALITY AS r(kernel, key_digest, space_digest, environment, tag, run, regime, n)"
                 " JOIN environments e ON e.digest = r.environment"
                 " JOIN jobs j ON (j.kernel, j.key_digest, j.space_digest, j.environment_id, j.tag, j.run, j.regime)"
                 "  = (r.kernel, r.key_digest, r.space_digest, e.id, r.tag, r.run, r.regime)"};

bool jobs_find(struct db *db, struct job_row *const *jobs, size_t n, struct error *error) {
  struct identity_arrays arrays;
  identity_init(&arrays, jobs, n);
  struct db_parameters parameters = {0};
  identity_bind(&arrays, &parameters);
  cleanup_rows struct db_rows *rows = NULL;
  bool ok = db_run(db, &jobs_find_statement, &parameters, &rows, error);
  identity_release(&arrays);
  if (ok)
    stored_read(rows, jobs);
  return ok;
}

static const struct statement spaces_store_statement = {
    "spaces_store", "INSERT INTO spaces (digest, space) SELECT digest, space"
                    " FROM unnest($1::bytea[], $2::text[]) AS s(digest, space)"
                    " WHERE NOT EXISTS (SELECT FROM spaces known WHERE known.digest = s.digest)"
                    " ORDER BY digest ON CONFLICT (digest) DO NOTHING"};

static bool spaces_store(struct db *db, struct job_row *const *jobs, size_t n, struct error *error) {
  struct db_array digests, texts;
  db_array_init(&digests);
  db_array_init(&texts);
  for (size_t i = 0; i < n; i++) {
    size_t same = i; /* a campaign's jobs share one, mostly their neighbour's */
    while (same-- > 0 && !digest_equal(&jobs[same]->space_digest, &jobs[i]->space_digest))
      ;
    if (same != SIZE_MAX)
      continue;
    db_array_digest(&digests, &jobs[i]->space_digest);
    db_array_text(&texts, jobs[i]->space);
  }
  struct db_parameters parameters = {0};
  db_text(&parameters, db_array_finish(&digests));
  db_text(&parameters, db_array_finish(&texts));
  cleanup_rows struct db_rows *rows = NULL;
  bool ok = db_run(db, &spaces_store_statement, &parameters, &rows, error);
  db_array_release(&digests);
  db_array_release(&texts);
  return ok;
}

/* The rows are inserted in the order of their identity, so that two batches of the same jobs cannot deadlock. */
static const struct statement jobs_insert_statement = {
    "jobs_insert",
    "WITH input AS MATERIALIZED (SELECT i.*, e.id AS environment_id FROM unnest($1::bytea[], $2::bytea[], $3::bytea[],"
    "  $4::bytea[], $5::text[], $6::text[], $7::text[], $8::text[], $9::int[], $10::bigint[], $11::bigint[],"
    "  $12::bigint[], $13::bigint[], $14::bytea[], $15::bytea[], $16::text[], $17::bigint[], $18::bigint[], "
    "$19::text[],"
    "  $20::int[], $21::int[], $22::text[], $23::bool[], $24::bool[], $25::text[], $26::bigint[]) WITH ORDINALITY"
    "  AS i(kernel, key_digest, space_digest,"
    "  environment, tag, run, regime, key, priority, budget, baseline, seed, configs, build, device_class,"
    "  baseline_from, default_config, config_us, search_strategy, search_trials, final_devices, likely,"
    "  is_revalidation, is_plain, submitted_by, submitted_by_id, n)"
    "  JOIN environments e ON e.digest = i.environment),"
    " stored AS (INSERT INTO jobs AS j (kernel, key, key_digest, space_digest, environment_id, tag, run, regime, "
    "priority,"
    "  budget_device_ms, baseline, seed, configs, build, device_class, baseline_from, default_config, "
    "config_us,"
    "  search_strategy, search_trials, final_devices, likely, purpose, is_plain, events, submitted_by, submitted_by_id)"
    "  SELECT kernel, key::json, key_digest, space_digest, environment_id, tag, run, regime, priority, budget, "
    "baseline,"
    "  seed, configs, build, device_class, baseline_from, default_config, config_us, search_strategy,"
    "  search_trials, final_devices, likely::bigint[], CASE WHEN is_revalidation THEN 'revalidate' ELSE 'tune' END,"
    "  is_plain, 1, submitted_by, submitted_by_id"
    "  FROM input"
    "  ORDER BY kernel, key_digest, space_digest, environment_id, tag, run, regime"
    "  ON CONFLICT (kernel, key_digest, space_digest, environment_id, tag, run, regime)"
    "  DO UPDATE SET priority = GREATEST(j.priority, excluded.priority)"
    "  RETURNING j.*, j.xmax = 0 AS created),"
    " event AS (INSERT INTO job_events (job_id, event, kind, detail) SELECT id, 1, 'queued', '{}' FROM stored"
    "  WHERE created)"
    " SELECT i.n, s.id, s.state, s.configs, s.priority, s.baseline_from, s.created FROM input i JOIN stored s"
    "  ON (s.kernel, s.key_digest, s.space_digest, s.environment_id, s.tag, s.run, s.regime)"
    "  = (i.kernel, i.key_digest, i.space_digest, i.environment_id, i.tag, i.run, i.regime)"};

static void add_or_null(struct db_array *array, bool is_known, int64_t integer) {
  if (is_known)
    db_array_integer(array, integer);
  else
    db_array_text(array, NULL);
}

static void add_digest_or_null(struct db_array *array, bool is_known, const struct digest *digest) {
  if (is_known)
    db_array_digest(array, digest);
  else
    db_array_text(array, NULL);
}

/* {17,3} */
static char *ordinals_format(const uint64_t *ordinals, size_t n) {
  struct db_array array;
  db_array_init(&array);
  for (size_t i = 0; i < n; i++)
    db_array_integer(&array, (int64_t)ordinals[i]);
  char *text = xstrdup(db_array_finish(&array));
  db_array_release(&array);
  return text;
}

enum job_column {
  KEY,
  PRIORITY,
  BUDGET,
  BASELINE,
  SEED,
  CONFIGS,
  BUILD,
  CLASS,
  BASELINE_FROM,
  DEFAULT,
  CONFIG_US,
  STRATEGY,
  TRIALS,
  DEVICES,
  LIKELY,
  REVALIDATION,
  PLAIN,
  SUBMITTED_BY,
  SUBMITTED_BY_ID,
  COLUMNS
};

static void job_add(struct db_array *columns, const struct job_row *job) {
  const struct job_search *search = &job->search;
  cleanup_free char *likely = ordinals_format(job->likely, job->n_likely);
  db_array_text(&columns[KEY], job->key);
  db_array_integer(&columns[PRIORITY], job->priority);
  add_or_null(&columns[BUDGET], job->budget_ms > 0, job->budget_ms);
  db_array_integer(&columns[BASELINE], (int64_t)job->plan.baseline);
  db_array_integer(&columns[SEED], (int64_t)job->seed);
  db_array_integer(&columns[CONFIGS], job->known ? job->configs : (int64_t)job->plan.configs);
  add_digest_or_null(&columns[BUILD], job->has_build, &job->build);
  db_array_digest(&columns[CLASS], &job->device_class);
  db_array_text(&columns[BASELINE_FROM], baseline_from_name(job->plan.baseline_from));
  add_or_null(&columns[DEFAULT], job->has_default, (int64_t)job->default_config);
  db_array_integer(&columns[CONFIG_US], job->sizing.config_us);
  db_array_text(&columns[STRATEGY], search->wanted ? search_strategy_name(search->strategy) : NULL);
  add_or_null(&columns[TRIALS], search->wanted, search->trials);
  db_array_integer(&columns[DEVICES], job->final_devices);
  db_array_text(&columns[LIKELY], likely);
  db_array_bool(&columns[REVALIDATION], job->is_revalidation);
  db_array_bool(&columns[PLAIN], job->is_plain);
  db_array_text(&columns[SUBMITTED_BY], job->author->name);
  add_or_null(&columns[SUBMITTED_BY_ID], job->author->token != 0, job->author->token);
}

static bool jobs_store(struct db *db, struct job_row *const *jobs, size_t n, struct error *error) {
  struct identity_arrays identity;
  identity_init(&identity, jobs, n);
  struct db_array columns[COLUMNS];
  for (size_t i = 0; i < COLUMNS; i++)
    db_array_init(&columns[i]);
  for (size_t i = 0; i < n; i++)
    job_add(columns, jobs[i]);
  struct db_parameters parameters = {0};
  identity_bind(&identity, &parameters);
  for (size_t i = 0; i < COLUMNS; i++)
    db_text(&parameters, db_array_finish(&columns[i]));
  cleanup_rows struct db_rows *rows = NULL;
  bool ok = db_run(db, &jobs_insert_statement, &parameters, &rows, error);
  identity_release(&identity);
  for (size_t i = 0; i < COLUMNS; i++)
    db_array_release(&columns[i]);
  if (ok) {
    ALWAYS((size_t)db_count(rows) == n);
    stored_read(rows, jobs);
  }
  return ok;
}

static const struct statement screen_leases_statement = {
    "leases_insert_screen",
    "INSERT INTO leases (job_id, stage, round, process, configs, remaining, device_class, priority, config_us)"
    " SELECT j.id, 'screen', 0, 0, l.configs, l.configs, j.device_class, j.priority,"
    "  CASE WHEN l.is_large THEN j.config_us END"
    " FROM unnest($1::bigint[], $2::int8multirange[], $3::bool[]) WITH ORDINALITY AS l(job, configs, is_large, n)"
    " JOIN jobs j ON j.id = l.job ORDER BY l.n"};

static bool screen_leases_insert(struct db *db, struct job_row *const *jobs, size_t n, struct error *error) {
  struct db_array ids, configs, are_large;
  db_array_init(&ids);
  db_array_init(&configs);
  db_array_init(&are_large);
  for (size_t i = 0; i < n; i++)
    for (size_t l = 0; jobs[i]->created && l < jobs[i]->plan.n; l++) {
      cleanup_free char *ranges = multirange_format(&jobs[i]->plan.leases[l]);
      db_array_integer(&ids, jobs[i]->id);
      db_array_text(&configs, ranges);
      db_array_bool(&are_large, lease_is_large(&jobs[i]->plan.leases[l]));
    }
  struct db_parameters parameters = {0};
  db_text(&parameters, db_array_finish(&ids));
  db_text(&parameters, db_array_finish(&configs));
  db_text(&parameters, db_array_finish(&are_large));
  cleanup_rows struct db_rows *rows = NULL;
  bool ok = ids.n == 0 || db_run(db, &screen_leases_statement, &parameters, &rows, error);
  db_array_release(&ids);
  db_array_release(&configs);
  db_array_release(&are_large);
  return ok;
}

/* A job that another transaction stored meanwhile was asked for, and nothing was written. */
static bool jobs_note(struct db *db, struct job_row *const *jobs, size_t n, struct error *error) {
  cleanup_free struct audit_row *notes = xcalloc(n + 1, sizeof *notes);
  cleanup_json json_t *kept = json_array();
  cleanup_free char *ids = xcalloc(n + 1, JOB_ID_SIZE);
  size_t n_notes = 0;
  for (size_t i = 0; i < n; i++) {
    const struct job_row *job = jobs[i];
    if (!job->created && job->plan.n)
      continue;
    char *id = &ids[n_notes * JOB_ID_SIZE];
    json_t *detail = json_pack("{s:I}", "priority", (json_int_t)job->priority);
    ALWAYS(json_array_append_new(kept, detail) == 0);
    snprintf(id, JOB_ID_SIZE, "%lld", (long long)job->id);
    enum audit_action action = !job->created ? AUDIT_RAISE : job->is_revalidation ? AUDIT_REVALIDATE : AUDIT_SUBMIT;
    if (job->created) {
      json_object_set_new(detail, "kernel", json_digest_text(&job->kernel));
      json_object_set_new(detail, "tag", json_string(job->tag));
    }
    notes[n_notes++] = (struct audit_row){job->created ? job->author : job->raiser, action, id, detail};
  }
  return audit_add(db, notes, n_notes, error);
}

bool jobs_insert(struct db *db, struct job_row *const *jobs, size_t n, struct error *error) {
  cleanup_free const struct environment **environments = xcalloc(n + 1, sizeof(struct environment *));
  for (size_t i = 0; i < n; i++)
    environments[i] = jobs[i]->environment;
  return spaces_store(db, jobs, n, error) && environments_store(db, environments, n, error) &&
         jobs_store(db, jobs, n, error) && screen_leases_insert(db, jobs, n, error) && jobs_note(db, jobs, n, error);
}

static const struct statement jobs_raise_statement = {
    "jobs_raise_leases",
    "WITH below AS MATERIALIZED (SELECT l.id, j.priority FROM leases l JOIN jobs j ON j.id = l.job_id"
    "  WHERE l.job_id = ANY ($1::bigint[]) AND l.state IN ('open', 'held') AND l.priority < j.priority"
    "  ORDER BY l.id FOR UPDATE OF l)"
    " UPDATE leases l SET priority = below.priority FROM below WHERE l.id = below.id"};

static void ids_bind(struct db_array *array, const int64_t *ids, size_t n, struct db_parameters *parameters) {
  db_array_init(array);
  for (size_t i = 0; i < n; i++)
    db_array_integer(array, ids[i]);
  db_text(parameters, db_array_finish(array));
}

bool jobs_raise_leases(struct db *db, const int64_t *jobs, size_t n, struct error *error) {
  struct db_array ids;
  struct db_parameters parameters = {0};
  ids_bind(&ids, jobs, n, &parameters);
  cleanup_rows struct db_rows *rows = NULL;
  bool ok = db_run(db, &jobs_raise_statement, &parameters, &rows, error);
  db_array_release(&ids);
  return ok;
}

static const struct statement job_change_state_statement = {
    "job_change_state",
    "WITH due AS MATERIALIZED (SELECT id FROM jobs WHERE id = ANY ($1::bigint[]) AND state = $2::job_state"
    "  AND ($6::stage IS NULL OR (stage = $6::stage AND round = $7::int)) ORDER BY id FOR NO KEY UPDATE),"
    " changed AS (UPDATE jobs j SET state = $3::job_state, reason = $4, events = events + 1,"
    "  cancelled_by = $8, cancelled_by_id = $9::bigint, finished_at = CASE WHEN $3::job_state IN ('done', 'failed', "
    "'cancelled') THEN now() END"
    "  FROM due WHERE j.id = due.id RETURNING j.id, j.events),"
    " event AS (INSERT INTO job_events (job_id, event, kind, detail) SELECT id, events, $3::job_state::text, $5::json"
    "  FROM changed)"
    " SELECT id FROM changed"};

bool job_change_state(struct db *db, const struct job_change *change, size_t *ret_changed, struct error *error) {
  ALWAYS(job_state_may_change(change->from, change->to));
  struct db_array ids;
  struct db_parameters parameters = {0};
  ids_bind(&ids, change->jobs, change->n, &parameters);
  db_text(&parameters, job_state_name(change->from));
  db_text(&parameters, job_state_name(change->to));
  db_text(&parameters, change->reason);
  db_text(&parameters, change->detail ? change->detail : "{}");
  db_text(&parameters, change->at_stage ? stage_name(change->stage) : NULL);
  db_integer(&parameters, change->round);
  if (change->author) {
    db_author(&parameters, change->author);
  } else {
    db_text(&parameters, NULL);
    db_text(&parameters, NULL);
  }
  cleanup_rows struct db_rows *rows = NULL;
  bool ok = db_run(db, &job_change_state_statement, &parameters, &rows, error);
  db_array_release(&ids);
  if (!ok)
    return false;
  *ret_changed = (size_t)db_count(rows);
  if (change->to == JOB_DONE)
    counter_add(COUNTER_jobs_done, *ret_changed);
  if (change->to == JOB_FAILED)
    counter_add(COUNTER_jobs_failed, *ret_changed);
  return true;
}

static const struct statement job_change_stage_statement = {
    "job_change_stage",
    "WITH changed AS (UPDATE jobs SET stage = $4::stage, round = $5::int, events = events + 1"
    "  WHERE id = $1 AND state = 'running' AND stage = $2::stage AND round = $3::int RETURNING id, events)"
    " INSERT INTO job_events (job_id, event, kind, detail) SELECT id, events, 'stage', $6::json FROM changed"};

bool job_change_stage(struct db *db, int64_t job, enum stage from_stage, int64_t from_round, enum stage stage,
                      int64_t round, const char *detail, bool *ret_moved, struct error *error) {
  struct db_parameters parameters = {0};
  db_integer(&parameters, job);
  db_text(&parameters, stage_name(from_stage));
  db_integer(&parameters, from_round);
  db_text(&parameters, stage_name(stage));
  db_integer(&parameters, round);
  db_text(&parameters, detail);
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(db, &job_change_stage_statement, &parameters, &rows, error))
    return false;
  *ret_moved = db_affected(rows) > 0;
  return true;
}

/* Two statements: one plan does not serve a few known jobs and all of them. Open and held leases are looked for at once, by
 * the job: for each of them alone there is an index that the planner may read as a whole (values.h: SQL_IS_OPEN). They are
 * counted to one, because NOT EXISTS may become a join that reads the leases of all jobs. The
 * LIMIT keeps the jobs apart from their budgets, which are summed over all leases of those that are ready alone. */
#define SQL_READY(which)                                                                                               \
  "SELECT j.id, j.state, j.stage, j.round, j.baseline, j.seed, j.default_config, j.search_strategy, j.search_trials,"  \
  " j.final_devices, j.config_us, e.hardware_digest, " SQL_BUDGET ", j.budget_device_ms IS NOT NULL"                   \
  "  AND EXISTS (SELECT FROM leases WHERE job_id = j.id AND state = 'cancelled') AS is_cut,"                           \
  " CASE WHEN j.search_strategy IS NOT NULL THEN (SELECT count(*) FROM environments o JOIN devices d"                  \
  "   ON d.environment_id = o.id JOIN agents a ON a.id = d.agent WHERE (o.digest = j.device_class"                     \
  "   OR o.hardware_digest = j.device_class) AND COALESCE(a.drain_reason, d.drain_reason) IS NULL"                     \
  "   AND a.last_seen > now() - $2::bigint * interval '1 ms') END AS devices"                                          \
  " FROM (SELECT * FROM jobs j WHERE " which " AND j.state IN ('queued', 'running')"                                   \
  "  AND (SELECT count(*) FROM (SELECT FROM leases l WHERE l.job_id = j.id AND l.state IN ('open', 'held') LIMIT 1) "  \
  "l) = 0"                                                                                                             \
  "  ORDER BY j.id LIMIT $1) j JOIN environments e ON e.id = j.environment_id" SQL_BUDGET_JOIN " ORDER BY j.id"

static const struct statement jobs_ready_statement = {"jobs_ready", SQL_READY("j.id = ANY ($3::bigint[])")};
static const struct statement jobs_ready_all_statement = {"jobs_ready_all", SQL_READY("true")};

bool jobs_ready(struct db *db, const int64_t *jobs, size_t n, int64_t live_ms, int64_t limit,
                struct job_brief **ret_ready, size_t *ret_n, struct error *error) {
  struct db_array ids;
  struct db_parameters parameters = {0};
  db_integer(&parameters, limit);
  db_integer(&parameters, live_ms);
  if (jobs)
    ids_bind(&ids, jobs, n, &parameters);
  cleanup_rows struct db_rows *rows = NULL;
  bool ok = db_run(db, jobs ? &jobs_ready_statement : &jobs_ready_all_statement, &parameters, &rows, error);
  if (jobs)
    db_array_release(&ids);
  if (!ok)
    return false;
  *ret_n = (size_t)db_count(rows);
  *ret_ready = xcalloc(*ret_n + 1, sizeof **ret_ready);
  for (int row = 0; row < db_count(rows); row++) {
    struct job_brief *brief = &(*ret_ready)[row];
    brief->id = db_get_integer(rows, row, "id");
    brief->state = state_get(rows, row);
    ALWAYS(stage_parse(db_get(rows, row, "stage"), &brief->stage));
    brief->round = db_get_integer(rows, row, "round");
    brief->baseline = (uint64_t)db_get_integer(rows, row, "baseline");
    brief->seed = (uint64_t)db_get_integer(rows, row, "seed");
    brief->has_default = !db_is_null(rows, row, "default_config");
    brief->default_config = (uint64_t)db_get_integer(rows, row, "default_config");
    brief->search.wanted = !db_is_null(rows, row, "search_strategy");
    if (brief->search.wanted)
      ALWAYS(search_strategy_parse(db_get(rows, row, "search_strategy"), &brief->search.strategy));
    brief->search.trials = db_get_integer(rows, row, "search_trials");
    brief->final_devices = db_get_integer(rows, row, "final_devices");
    brief->config_us = db_get_integer(rows, row, "config_us");
    brief->devices = db_get_integer(rows, row, "devices");
    brief->budget = db_get_budget(rows, row);
    brief->is_spent = db_get_bool(rows, row, "is_cut") ||
                      budget_screen_left_us(&brief->budget, final_processes(brief->final_devices)) == 0;
    brief->hardware_digest = db_get_digest(rows, row, "hardware_digest");
  }
  return true;
}

static const struct statement winner_statement = {
    "job_store_winner",
    "INSERT INTO winners (job_id, config, config_values, verdict) VALUES ($1, $2, $3::json, $4::json)"};

bool job_store_winner(struct db *db, int64_t job, uint64_t config, const char *config_values, const char *verdict,
                      struct error *error) {
  struct db_parameters parameters = {0};
  db_integer(&parameters, job);
  db_integer(&parameters, (int64_t)config);
  db_text(&parameters, config_values);
  db_text(&parameters, verdict);
  cleanup_rows struct db_rows *rows = NULL;
  return db_run(db, &winner_statement, &parameters, &rows, error);
}

static const struct statement set_likely_statement = {
    "job_set_likely", "UPDATE jobs SET likely = $2::bigint[] WHERE id = $1 AND likely = '{}'"};

bool job_set_likely(struct db *db, int64_t job, const uint64_t *likely, size_t n, struct error *error) {
  cleanup_free char *text = ordinals_format(likely, n);
  struct db_parameters parameters = {0};
  db_integer(&parameters, job);
  db_text(&parameters, text);
  cleanup_rows struct db_rows *rows = NULL;
  return db_run(db, &set_likely_statement, &parameters, &rows, error);
}
