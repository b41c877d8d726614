/* SQL for leases whose holder is gone, whose configs are given up, or whose job has ended. Memory and threads: as
 * leases.h says. */
#include "common/campaign/campaign.h"
#include "server/db/values.h"
#include "server/kernel/code_signatures.h"
#include "server/lease/lease_store.h"

/* Opens what `gone` selects, counts a loss for the config that was being measured, and says so in the job's events. */
#define SQL_LOSE(gone)                                                                                                 \
  "WITH gone AS MATERIALIZED (SELECT id, job_id, epoch, agent, device, fruitless,"                                     \
  "   CASE WHEN current_config <@ remaining THEN current_config END AS config FROM leases WHERE " gone "),"            \
  " opened AS (UPDATE leases l SET state = 'open', current_config = NULL FROM gone WHERE l.id = gone.id),"             \
  " loss AS (INSERT INTO losses (job_id, config, lease_id, epoch, agent, device)"                                      \
  "  SELECT job_id, config, id, epoch, agent, device FROM gone WHERE config IS NOT NULL),"                             \
  " counter AS (UPDATE jobs SET events = events + c.n FROM " SQL_COUNT_BY_JOB(                                         \
      "gone") " c"                                                                                                     \
              "  WHERE jobs.id = c.job_id RETURNING jobs.id, jobs.events - c.n AS before),"                            \
              " event AS (INSERT INTO job_events (job_id, event, kind, detail) SELECT g.job_id, counter.before + g.k," \
              "   'lease_lost', json_build_object('lease', g.id::text, 'epoch', g.epoch, 'agent', g.agent, 'device', " \
              "g.device,"                                                                                              \
              "   'config', g.config) FROM (SELECT *, row_number() OVER (PARTITION BY job_id ORDER BY id)::int AS k "  \
              "FROM gone) g"                                                                                           \
              "  JOIN counter ON counter.id = g.job_id)"                                                               \
              " SELECT g.*, e.hardware_digest FROM gone g JOIN jobs j ON j.id = g.job_id"                              \
              " JOIN environments e ON e.id = j.environment_id ORDER BY g.id"

static const struct statement expire_statement = {
    "leases_expire",
    SQL_LOSE("state = 'held' AND expires_at < now() ORDER BY expires_at, id LIMIT $1 FOR UPDATE SKIP LOCKED")};
static const struct statement reclaim_statement = {"leases_reclaim",
                                                   SQL_LOSE("state = 'held' AND agent = $1 ORDER BY id FOR UPDATE")};

/* What is known of the configs that were lost, this time included. $3 is live_ms. */
static const struct statement facts_statement = {
    "lease_loss_facts",
    "SELECT r.n, count(*) AS losses, count(DISTINCT (o.agent, o.device)) AS devices,"
    " array_agg(DISTINCT o.agent) AS agents, (SELECT count(DISTINCT a.id) FROM jobs j JOIN environments e"
    "  ON e.digest = j.device_class OR e.hardware_digest = j.device_class JOIN devices d ON d.environment_id = e.id"
    "  JOIN agents a ON a.id = d.agent WHERE j.id = r.job AND COALESCE(a.drain_reason, d.drain_reason) IS NULL"
    "  AND a.last_seen > now() - $3::bigint * interval '1 ms' AND NOT EXISTS (SELECT FROM losses x"
    "   WHERE x.job_id = r.job AND x.config = r.config AND x.agent = a.id)) AS other_agents"
    " FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS r(job, config, n)"
    " JOIN losses o ON o.job_id = r.job AND o.config = r.config GROUP BY r.n, r.job, r.config"};

void lease_losses_release(struct lease_losses *losses) {
  for (size_t i = 0; i < losses->n; i++) {
    free(losses->all[i].agent);
    free(losses->all[i].device);
    free(losses->all[i].agents);
  }
  free(losses->all);
  *losses = (struct lease_losses){0};
}

static void losses_read(const struct db_rows *rows, struct lease_losses *losses) {
  losses->all = xcalloc((size_t)db_count(rows) + 1, sizeof *losses->all);
  for (int row = 0; row < db_count(rows); row++) {
    struct lease_loss *loss = &losses->all[losses->n++];
    loss->lease = db_get_integer(rows, row, "id");
    loss->epoch = db_get_integer(rows, row, "epoch");
    loss->job = db_get_integer(rows, row, "job_id");
    loss->fruitless = db_get_integer(rows, row, "fruitless");
    loss->config = db_is_null(rows, row, "config") ? -1 : db_get_integer(rows, row, "config");
    loss->agent = xstrdup(db_get(rows, row, "agent"));
    loss->device = xstrdup(db_get(rows, row, "device"));
    loss->hardware_digest = db_get_digest(rows, row, "hardware_digest");
  }
}

static bool facts_read(struct db *db, int64_t live_ms, struct lease_losses *losses, struct error *error) {
  struct db_array jobs, configs;
  db_array_init(&jobs);
  db_array_init(&configs);
  bool any = false;
  for (size_t i = 0; i < losses->n; i++) {
    db_array_integer(&jobs, losses->all[i].job);
    db_array_integer(&configs, losses->all[i].config);
    any = any || losses->all[i].config >= 0;
  }
  struct db_parameters parameters = {0};
  db_text(&parameters, db_array_finish(&jobs));
  db_text(&parameters, db_array_finish(&configs));
  db_integer(&parameters, live_ms);
  cleanup_rows struct db_rows *rows = NULL;
  bool ok = !any || db_run(db, &facts_statement, &parameters, &rows, error);
  db_array_release(&jobs);
  db_array_release(&configs);
  for (int row = 0; any && ok && row < db_count(rows); row++) {
    struct lease_loss *loss = &losses->all[db_get_integer(rows, row, "n") - 1];
    loss->losses = db_get_integer(rows, row, "losses");
    loss->devices = db_get_integer(rows, row, "devices");
    loss->other_agents = db_get_integer(rows, row, "other_agents");
    loss->agents = xstrdup(db_get(rows, row, "agents"));
  }
  return ok;
}

static bool lose(struct db *db, const struct statement *statement, const struct db_parameters *parameters,
                 int64_t live_ms, struct lease_losses *ret, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(db, statement, parameters, &rows, error))
    return false;
  struct lease_losses losses = {0};
  losses_read(rows, &losses);
  if (!facts_read(db, live_ms, &losses, error)) {
    lease_losses_release(&losses);
    return false;
  }
  *ret = losses;
  return true;
}

bool leases_expire(struct db *db, int64_t limit, int64_t live_ms, struct lease_losses *ret, struct error *error) {
  struct db_parameters parameters = {0};
  db_integer(&parameters, limit);
  return lose(db, &expire_statement, &parameters, live_ms, ret, error);
}

bool leases_reclaim(struct db *db, const char *agent, int64_t live_ms, struct lease_losses *ret, struct error *error) {
  struct db_parameters parameters = {0};
  db_text(&parameters, agent);
  return lose(db, &reclaim_statement, &parameters, live_ms, ret, error);
}

static const struct statement set_apart_statement = {
    "lease_set_apart",
    "WITH source AS MATERIALIZED (SELECT *, int8multirange(int8range($2::bigint, $2::bigint + 1)) AS one FROM leases"
    "  WHERE id = $1 AND state = 'open' AND $2::bigint <@ remaining FOR UPDATE),"
    " alone AS (UPDATE leases l SET avoid_agents = $3::text[] FROM source s WHERE l.id = s.id AND s.remaining = s.one),"
    " rest AS (UPDATE leases l SET remaining = s.remaining - s.one FROM source s"
    "  WHERE l.id = s.id AND s.remaining <> s.one)"
    " INSERT INTO leases (job_id, stage, round, process, configs, remaining, device_class, priority, avoid_agents)"
    " SELECT job_id, stage, round, process, one, one, device_class, priority, $3::text[] FROM source"
    " WHERE remaining <> one"};

bool lease_set_apart(struct db *db, int64_t lease, int64_t config, const char *agents, struct error *error) {
  struct db_parameters parameters = {0};
  db_integer(&parameters, lease);
  db_integer(&parameters, config);
  db_text(&parameters, agents);
  cleanup_rows struct db_rows *rows = NULL;
  return db_run(db, &set_apart_statement, &parameters, &rows, error);
}

/* The measurements that the server writes have negative seqs and no body, so that they never meet an agent's. */
static const struct statement give_up_statement = {
    "lease_give_up",
    "WITH source AS MATERIALIZED (SELECT *, CASE WHEN $2::bigint < 0 THEN remaining"
    "   ELSE remaining * int8multirange(int8range($2::bigint, $2::bigint + 1)) END AS given FROM leases"
    "  WHERE id = $1 AND state = 'open' FOR UPDATE),"
    " written AS (INSERT INTO measurements (job_id, lease_id, epoch, seq, config, stage, round, process, agent, device,"
    "   outcome, detail, late) SELECT s.job_id, s.id, s.epoch, -1 - c.config, c.config, s.stage, s.round, s.process,"
    "   s.agent, s.device, 'runtime', $3, false FROM source s CROSS JOIN LATERAL (SELECT generate_series(lower(r),"
    "   upper(r) - 1) AS config FROM unnest(s.given) r) c RETURNING config),"
    " total AS MATERIALIZED (SELECT count(*)::int AS n FROM written),"
    " ended AS (UPDATE leases l SET remaining = s.remaining - s.given, outcomes[3] = l.outcomes[3] + total.n,"
    "   state = CASE WHEN isempty(s.remaining - s.given) THEN 'done' ELSE 'open' END::lease_state"
    "  FROM source s, total WHERE l.id = s.id AND total.n > 0),"
    " counter AS (UPDATE jobs SET events = events + 1 FROM source s, total WHERE jobs.id = s.job_id AND total.n > 0"
    "  RETURNING jobs.id, jobs.events)"
    " INSERT INTO job_events (job_id, event, kind, detail) SELECT counter.id, counter.events, 'poisoned',"
    "  json_build_object('lease', s.id::text, 'config', CASE WHEN $2::bigint >= 0 THEN $2::bigint END,"
    "  'configs', total.n, 'detail', $3::text) FROM counter, source s, total"};

bool lease_give_up(struct db *db, int64_t lease, int64_t config, const char *detail, struct error *error) {
  struct db_parameters parameters = {0};
  db_integer(&parameters, lease);
  db_integer(&parameters, config);
  db_text(&parameters, detail);
  cleanup_rows struct db_rows *rows = NULL;
  return db_run(db, &give_up_statement, &parameters, &rows, error);
}

static const struct statement unwanted_statement = {
    "leases_unwanted",
    "SELECT l.id, l.job_id FROM leases l JOIN jobs j ON j.id = l.job_id JOIN LATERAL (SELECT count(*) AS n,"
    "  count(*) FILTER (WHERE a.id <> ALL (l.avoid_agents)) AS willing FROM environments e"
    "  JOIN devices d ON d.environment_id = e.id JOIN agents a ON a.id = d.agent"
    "  WHERE (e.digest = l.device_class OR e.hardware_digest = l.device_class)"
    "  AND COALESCE(a.drain_reason, d.drain_reason) IS NULL AND " SQL_MAY_RUN(
        "a.trusted_keys") "  AND a.last_seen > now() - $1::bigint * interval '1 ms') live ON live.n > 0 AND "
                          "live.willing = 0"
                          " WHERE l.state = 'open' AND l.avoid_agents <> '{}' ORDER BY l.id LIMIT $2"};

bool leases_unwanted(struct db *db, int64_t live_ms, int64_t limit, int64_t **ret_leases, int64_t **ret_jobs,
                     size_t *ret_n, struct error *error) {
  struct db_parameters parameters = {0};
  db_integer(&parameters, live_ms);
  db_integer(&parameters, limit);
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(db, &unwanted_statement, &parameters, &rows, error))
    return false;
  *ret_n = (size_t)db_count(rows);
  *ret_leases = xcalloc(*ret_n + 1, sizeof **ret_leases);
  *ret_jobs = xcalloc(*ret_n + 1, sizeof **ret_jobs);
  for (int row = 0; row < db_count(rows); row++) {
    (*ret_leases)[row] = db_get_integer(rows, row, "id");
    (*ret_jobs)[row] = db_get_integer(rows, row, "job_id");
  }
  return true;
}

static void ids_bind(struct db_array *array, const int64_t *ids, size_t n, struct db_parameters *parameters) {
  db_array_init(array);
  for (size_t i = 0; i < n; i++)
    db_array_integer(array, ids[i]);
  db_text(parameters, db_array_finish(array));
}

static const struct statement budgets_statement = {
    "jobs_budgets", "SELECT j.id, j.final_devices, " SQL_BUDGET " FROM jobs j" SQL_BUDGET_JOIN
                    " WHERE j.id = ANY ($1::bigint[]) AND j.stage = 'screen' AND j.state IN ('queued', 'running')"};

static const struct statement over_budget_statement = {
    "leases_cancel_over_budget",
    "WITH over AS MATERIALIZED (SELECT j.id FROM jobs j WHERE j.id = ANY ($1::bigint[]) AND j.stage = 'screen'"
    "  AND j.state IN ('queued', 'running')),"
    " due AS MATERIALIZED (SELECT l.id, l.job_id FROM leases l WHERE l.job_id IN (SELECT id FROM over)"
    "  AND " SQL_IS_OPEN " AND l.stage = 'screen' ORDER BY l.id FOR UPDATE),"
    " cancelled AS (UPDATE leases l SET state = 'cancelled' FROM due WHERE l.id = due.id),"
    " counter AS (UPDATE jobs SET events = events + 1 FROM " SQL_COUNT_BY_JOB(
        "due") " c"
               "  WHERE jobs.id = c.job_id RETURNING jobs.id, jobs.events, c.n),"
               " event AS (INSERT INTO job_events (job_id, event, kind, detail) SELECT id, events, 'budget',"
               "  json_build_object('cancelled_leases', n) FROM counter)"
               " SELECT id FROM counter"};

bool leases_cancel_over_budget(struct db *db, const int64_t *jobs, size_t n, int64_t **ret_jobs, size_t *ret_n,
                               struct error *error) {
  struct db_array ids, over_ids;
  struct db_parameters parameters = {0}, over_parameters = {0};
  cleanup_rows struct db_rows *budgets = NULL, *rows = NULL;
  ids_bind(&ids, jobs, n, &parameters);
  bool ok = db_run(db, &budgets_statement, &parameters, &budgets, error);
  db_array_release(&ids);
  if (!ok)
    return false;

  cleanup_free int64_t *over = xcalloc((size_t)db_count(budgets) + 1, sizeof *over);
  size_t n_over = 0;
  for (int row = 0; row < db_count(budgets); row++) {
    struct budget budget = db_get_budget(budgets, row);
    if (budget_screen_left_us(&budget, final_processes(db_get_integer(budgets, row, "final_devices"))) == 0)
      over[n_over++] = db_get_integer(budgets, row, "id");
  }
  *ret_jobs = NULL;
  *ret_n = 0;
  if (n_over == 0)
    return true;

  ids_bind(&over_ids, over, n_over, &over_parameters);
  ok = db_run(db, &over_budget_statement, &over_parameters, &rows, error);
  db_array_release(&over_ids);
  if (!ok)
    return false;
  *ret_n = (size_t)db_count(rows);
  *ret_jobs = xcalloc(*ret_n + 1, sizeof **ret_jobs);
  for (int row = 0; row < db_count(rows); row++)
    (*ret_jobs)[row] = db_get_integer(rows, row, "id");
  return true;
}

/* Two statements: one plan does not serve a few known jobs and all of them. */
#define SQL_CANCEL_ENDED(jobs)                                                                                         \
  "WITH ended AS MATERIALIZED (SELECT id FROM jobs WHERE id " jobs " AND state IN ('done', 'failed', 'cancelled')),"   \
  " due AS MATERIALIZED (SELECT l.id FROM leases l JOIN ended ON ended.id = l.job_id"                                  \
  "  WHERE l.state IN ('open', 'held') ORDER BY l.id FOR UPDATE OF l) UPDATE leases l SET state = 'cancelled' FROM "   \
  "due WHERE l.id = due.id"
/* From the indexes of open and of held leases, not from the leases of all times. */
#define SQL_JOBS_WITH_LEASES                                                                                           \
  "IN (SELECT job_id FROM leases WHERE state = 'open' UNION SELECT job_id FROM leases WHERE state = 'held')"

static const struct statement cancel_ended_statement = {"leases_cancel_ended",
                                                        SQL_CANCEL_ENDED("= ANY ($1::bigint[])")};
static const struct statement cancel_all_ended_statement = {"leases_cancel_all_ended",
                                                            SQL_CANCEL_ENDED(SQL_JOBS_WITH_LEASES)};

bool leases_cancel_ended(struct db *db, const int64_t *jobs, size_t n, struct error *error) {
  struct db_array ids;
  struct db_parameters parameters = {0};
  if (jobs)
    ids_bind(&ids, jobs, n, &parameters);
  cleanup_rows struct db_rows *rows = NULL;
  bool ok = db_run(db, jobs ? &cancel_ended_statement : &cancel_all_ended_statement, &parameters, &rows, error);
  if (jobs)
    db_array_release(&ids);
  return ok;
}
