/* SQL that grants, renews and hands back leases. Every write locks its leases in the order of their ids, or skips what
 * others have locked. Memory and threads: as the header says. */
#include "server/lease/lease_store.h"

#include "server/db/values.h"
#include "server/kernel/code_signatures.h"
#include "server/lease/lease_plan.h"

void lease_wish_release(struct lease_wish *wish) {
  free(wish->drain_reason);
  config_ranges_release(&wish->configs);
}

/* A device waits for leases of two classes: those of its hardware, and those of its whole environment (of older databases).
 * The highest priority comes first, then the oldest job, so that jobs end in the order in which they were submitted. A nonce
 * is one device's: another one gets nothing by it.
 * An agent with trusted keys gets only what one of them signed. Those with the same keys are a group, so that open leases that
 * it may not have do not stand before those that it may. Two groups may choose one lease: one of the two wishes gets it, the
 * other looks again with the next poll.
 * A final that is to be apart is, for a while, not given to a device that has, or had, one of its job.
 * Wishes and open leases of a class are paired by rank; a lease is never given to an agent that it avoids, and the rank of
 * wishes is random so that such a pair does not meet for ever. Class and rank are one value, the place: the planner, who
 * expects few rows, would join by the class alone and sift the square of the batch for equal ranks. The second LIMIT cuts
 * nothing: it is a number, from which the planner knows that reading the index in order beats sorting all open leases.
 * The candidates are locked and were open when they were: the UPDATE does not ask again, which would let the planner find
 * them by reading leases_open as a whole (values.h: SQL_IS_OPEN). */
#define SQL_HAS_FINAL(job, agent, device)                                                                              \
  "EXISTS (SELECT FROM leases f WHERE f.job_id = " job " AND f.stage = 'final' AND f.state IN ('held', 'done')"        \
  " AND f.agent = " agent " AND f.device = " device ")"
#define SQL_DEMAND_MAY_RUN                                                                                             \
  "(demand.trusted_keys IS NULL OR (SELECT " SQL_MAY_RUN(                                                              \
      "demand.trusted_keys") "  FROM jobs j WHERE j.id = leases.job_id))"
#define GRANT_MAX 256
#define GRANT_MAX_TEXT "256"
static const struct statement grant_statement = {
    "leases_grant",
    "WITH request AS MATERIALIZED (SELECT r.n, r.agent, r.device, r.nonce, r.token, a.id IS NOT NULL AS agent_known,"
    "   COALESCE(a.drain_reason, d.drain_reason) AS drain_reason, a.drain_reason IS NULL AS only_device,"
    "   d.environment_id, e.hardware_digest, e.digest, a.trusted_keys,"
    "   (SELECT string_agg(k, '' ORDER BY k) FROM unnest(a.trusted_keys) k) AS trust"
    "  FROM unnest($1::text[], $2::text[], $3::text[], $5::bigint[]) WITH ORDINALITY AS r(agent, device, nonce, token, "
    "n)"
    "  LEFT JOIN agents a ON a.id = r.agent LEFT JOIN devices d ON d.agent = r.agent AND d.device = r.device"
    "  LEFT JOIN environments e ON e.id = d.environment_id),"
    " replay AS MATERIALIZED (SELECT r.n, l.id, l.expires_at > now() AND l.device = r.device AS live FROM request r"
    "  JOIN leases l ON l.agent = r.agent AND l.nonce = r.nonce AND l.state = 'held'),"
    " hungry AS MATERIALIZED (SELECT DISTINCT ON (agent, nonce) * FROM request r WHERE environment_id IS NOT NULL"
    "  AND drain_reason IS NULL AND NOT EXISTS (SELECT FROM replay WHERE replay.n = r.n) ORDER BY agent, nonce, n),"
    " wish AS MATERIALIZED (SELECT g.*,"
    "  g.pool || int8send(row_number() OVER (PARTITION BY g.pool ORDER BY random())) AS place"
    "  FROM (SELECT h.n, h.agent, h.device, h.trusted_keys, c.class,"
    "    CASE WHEN h.trust IS NULL THEN c.class ELSE c.class || h.trust END AS pool"
    "   FROM hungry h CROSS JOIN LATERAL (SELECT h.hardware_digest UNION SELECT h.digest) AS c(class)) g),"
    " demand AS MATERIALIZED (SELECT pool, class, trusted_keys, count(*) AS n, array_agg(agent) AS agents"
    "  FROM wish GROUP BY pool, class, trusted_keys),"
    " candidate AS MATERIALIZED (SELECT demand.pool, l.* FROM demand CROSS JOIN LATERAL"
    "  (SELECT * FROM (SELECT id, job_id, priority, avoid_agents, apart_until FROM leases"
    "    WHERE device_class = demand.class AND state = 'open' AND NOT avoid_agents @> demand.agents"
    "    AND " SQL_DEMAND_MAY_RUN "    AND (apart_until IS NULL OR apart_until < now()"
    "     OR EXISTS (SELECT FROM wish w WHERE w.pool = demand.pool"
    "     AND NOT " SQL_HAS_FINAL(
        "leases.job_id", "w.agent",
        "w.device") "))"
                    "    ORDER BY priority DESC, job_id, id LIMIT demand.n"
                    "    FOR UPDATE SKIP LOCKED) first LIMIT " GRANT_MAX_TEXT ") l),"
                    " pick AS MATERIALIZED (SELECT DISTINCT ON (id) n, id"
                    "  FROM (SELECT DISTINCT ON (w.n) w.n, c.id FROM wish w JOIN"
                    "  (SELECT *, pool || int8send(row_number() OVER (PARTITION BY pool ORDER BY priority DESC, id)) "
                    "AS place"
                    "   FROM candidate) c USING (place) WHERE NOT w.agent = ANY (c.avoid_agents)"
                    "  AND (c.apart_until IS NULL OR c.apart_until < now()"
                    "   OR NOT " SQL_HAS_FINAL(
                        "c.job_id", "w.agent",
                        "w.device") ") ORDER BY w.n, c.priority DESC, c.id) first ORDER BY id, n),"
                                    " granted AS (UPDATE leases l SET state = 'held', epoch = l.epoch + 1, agent = "
                                    "r.agent, device = r.device,"
                                    "   nonce = r.nonce, granted_at = now(), expires_at = clock_timestamp() + "
                                    "$4::bigint * interval '1 ms',"
                                    "   current_config = NULL, is_split = false, fruitless = l.fruitless + 1, "
                                    "epoch_opening_us = 0,"
                                    "   token_id = r.token"
                                    "  FROM pick JOIN request r USING (n) WHERE l.id = pick.id"
                                    "  RETURNING pick.n, l.id, l.epoch, l.job_id, l.stage, l.round, l.process, "
                                    "l.remaining, l.config_us, l.expires_at)"
                                    " SELECT r.n, r.agent_known, r.drain_reason, r.only_device, r.hardware_digest, "
                                    "r.trusted_keys IS NOT NULL AS wants_signatures, "
                                    "g.id, g.epoch, "
                                    "g.job_id, g.stage, g.round, "
                                    "g.process,"
                                    "  g.remaining, g.config_us IS NOT NULL AS may_be_split, (extract(epoch FROM "
                                    "g.expires_at - clock_timestamp()) * 1000)::bigint AS expires_in_ms"
                                    " FROM request r LEFT JOIN (SELECT * FROM granted UNION ALL SELECT p.n, l.id, "
                                    "l.epoch, l.job_id, l.stage, l.round,"
                                    "  l.process, l.remaining, l.config_us, l.expires_at FROM replay p JOIN leases l "
                                    "USING (id) WHERE p.live) g USING (n)"};

bool leases_grant(struct db *db, struct lease_wish *const *wishes, size_t n, int64_t lease_ms, struct error *error) {
  struct db_array agents, devices, nonces, tokens;
  ALWAYS(n <= GRANT_MAX);
  db_array_init(&agents);
  db_array_init(&devices);
  db_array_init(&nonces);
  db_array_init(&tokens);
  for (size_t i = 0; i < n; i++) {
    db_array_text(&agents, wishes[i]->agent);
    db_array_text(&devices, wishes[i]->device);
    db_array_text(&nonces, wishes[i]->nonce);
    db_array_integer(&tokens, wishes[i]->token);
  }
  struct db_parameters parameters = {0};
  db_text(&parameters, db_array_finish(&agents));
  db_text(&parameters, db_array_finish(&devices));
  db_text(&parameters, db_array_finish(&nonces));
  db_integer(&parameters, lease_ms);
  db_text(&parameters, db_array_finish(&tokens));
  cleanup_rows struct db_rows *rows = NULL;
  bool ok = db_run(db, &grant_statement, &parameters, &rows, error);
  /* The same nonce asked twice at the same time on two connections: the other one's grant is there now. */
  for (int again = 0; !ok && error->kind == ERROR_UNIQUE && again < 3; again++)
    ok = db_run(db, &grant_statement, &parameters, &rows, error);
  db_array_release(&agents);
  db_array_release(&devices);
  db_array_release(&nonces);
  db_array_release(&tokens);
  if (!ok)
    return false;
  for (int row = 0; row < db_count(rows); row++) {
    struct lease_wish *wish = wishes[db_get_integer(rows, row, "n") - 1];
    wish->agent_known = db_get_bool(rows, row, "agent_known");
    wish->device_known = !db_is_null(rows, row, "hardware_digest");
    if (!db_is_null(rows, row, "drain_reason"))
      wish->drain_reason = xstrdup(db_get(rows, row, "drain_reason"));
    wish->only_device_drains = db_get_bool(rows, row, "only_device");
    wish->wants_signatures = db_get_bool(rows, row, "wants_signatures");
    if (wish->device_known)
      wish->hardware_digest = db_get_digest(rows, row, "hardware_digest");
    if (db_is_null(rows, row, "id"))
      continue;
    wish->lease = db_get_integer(rows, row, "id");
    wish->epoch = db_get_integer(rows, row, "epoch");
    wish->job = db_get_integer(rows, row, "job_id");
    ALWAYS(stage_parse(db_get(rows, row, "stage"), &wish->stage));
    wish->round = db_get_integer(rows, row, "round");
    wish->process = db_get_integer(rows, row, "process");
    wish->configs = multirange_parse(db_get(rows, row, "remaining"));
    wish->may_be_split = db_get_bool(rows, row, "may_be_split");
    wish->expires_in_ms = db_get_integer(rows, row, "expires_in_ms");
  }
  return true;
}

/* $2: whether they are asked for. */
#define SQL_JOB_SIGNATURES                                                                                             \
  "CASE WHEN $2::bool THEN " SQL_SIGNATURES(                                                                           \
      "j.kernel") " END AS signatures,"                                                                                \
                  " CASE WHEN $2::bool AND j.build IS NOT NULL THEN " SQL_SIGNATURES(                                  \
                      "j.build") " END AS build_signatures"
static const struct statement lease_jobs_statement = {
    "leases_jobs",
    "SELECT j.id, j.state, j.baseline, j.seed, j.kernel AS kernel_hash, j.key_digest, e.digest AS environment_digest,"
    " 'sha256:' || encode(j.kernel, 'hex') AS kernel, k.manifest, j.key, s.space,"
    " 'sha256:' || encode(j.build, 'hex') AS build, j.regime, j.search_strategy IS NOT NULL AS is_search, j.likely,"
    " j.best_ratio,"
    " j.final_devices, " SQL_BUDGET ","
    " CASE WHEN j.budget_device_ms IS NOT NULL THEN (SELECT sum(upper(r) - lower(r)) FROM leases l, "
    "unnest(l.remaining) r"
    "  WHERE l.job_id = j.id AND l.state IN ('open', 'held')) END AS configs_left, " SQL_JOB_SIGNATURES
    " FROM jobs j JOIN kernels k ON k.hash = j.kernel JOIN spaces s ON s.digest = j.space_digest"
    " JOIN environments e ON e.id = j.environment_id" SQL_BUDGET_JOIN " WHERE j.id = ANY ($1::bigint[])"};

bool leases_jobs(struct db *db, const int64_t *jobs, size_t n, bool with_signatures, struct lease_job **ret_jobs,
                 size_t *ret_n, struct error *error) {
  struct db_array ids;
  db_array_init(&ids);
  for (size_t i = 0; i < n; i++)
    db_array_integer(&ids, jobs[i]);
  struct db_parameters parameters = {0};
  db_text(&parameters, db_array_finish(&ids));
  db_text(&parameters, with_signatures ? "t" : "f");
  cleanup_rows struct db_rows *rows = NULL;
  bool ok = db_run(db, &lease_jobs_statement, &parameters, &rows, error);
  db_array_release(&ids);
  if (!ok)
    return false;
  *ret_n = (size_t)db_count(rows);
  *ret_jobs = xcalloc(*ret_n + 1, sizeof **ret_jobs);
  for (int row = 0; row < db_count(rows); row++) {
    struct lease_job *job = &(*ret_jobs)[row];
    job->id = db_get_integer(rows, row, "id");
    ALWAYS(job_state_parse(db_get(rows, row, "state"), &job->state));
    job->baseline = db_get_integer(rows, row, "baseline");
    job->seed = db_get_integer(rows, row, "seed");
    job->kernel = xstrdup(db_get(rows, row, "kernel"));
    job->manifest = xstrdup(db_get(rows, row, "manifest"));
    job->key = xstrdup(db_get(rows, row, "key"));
    job->space = xstrdup(db_get(rows, row, "space"));
    job->build = db_is_null(rows, row, "build") ? NULL : xstrdup(db_get(rows, row, "build"));
    job->kernel_hash = db_get_digest(rows, row, "kernel_hash");
    job->key_digest = db_get_digest(rows, row, "key_digest");
    job->environment_digest = db_get_digest(rows, row, "environment_digest");
    job->regime = xstrdup(db_get(rows, row, "regime"));
    job->is_search = db_get_bool(rows, row, "is_search");
    job->n_likely = ordinals_parse(db_get(rows, row, "likely"), job->likely, WARM_STARTS_MAX);
    job->best_ratio = db_get_double(rows, row, "best_ratio");
    job->budget = db_get_budget(rows, row);
    job->final_devices = db_get_integer(rows, row, "final_devices");
    job->configs_left = (uint64_t)db_get_integer(rows, row, "configs_left");
    if (with_signatures)
      job->signatures = xstrdup(db_get(rows, row, "signatures"));
    if (with_signatures && job->build)
      job->build_signatures = xstrdup(db_get(rows, row, "build_signatures"));
  }
  return true;
}

void lease_jobs_free(struct lease_job *jobs, size_t n) {
  for (size_t i = 0; i < n; i++) {
    free(jobs[i].kernel);
    free(jobs[i].manifest);
    free(jobs[i].key);
    free(jobs[i].space);
    free(jobs[i].build);
    free(jobs[i].signatures);
    free(jobs[i].build_signatures);
    free(jobs[i].regime);
  }
  free(jobs);
}

static const struct statement renew_statement = {
    "leases_renew",
    "WITH request AS MATERIALIZED (SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) WITH ORDINALITY"
    "  AS r(lease, epoch, config, n)),"
    " locked AS MATERIALIZED (SELECT id, epoch, state, is_split, remaining FROM leases WHERE id = ANY ($1::bigint[])"
    "  ORDER BY id FOR UPDATE),"
    " renewed AS (UPDATE leases l SET expires_at = clock_timestamp() + $4::bigint * interval '1 ms',"
    "   current_config = CASE WHEN r.config >= 0 THEN r.config END"
    "  FROM locked JOIN (SELECT DISTINCT ON (lease, epoch) * FROM request ORDER BY lease, epoch, n DESC) r"
    "   ON r.lease = locked.id AND r.epoch = locked.epoch"
    "  WHERE l.id = locked.id AND locked.state = 'held' RETURNING l.id, l.epoch)"
    " SELECT r.n, locked.id IS NOT NULL AS known, locked.epoch, renewed.id IS NOT NULL AS renewed,"
    "  CASE WHEN locked.is_split AND renewed.id IS NOT NULL THEN locked.remaining END AS remaining FROM request r"
    " LEFT JOIN locked ON locked.id = r.lease LEFT JOIN renewed ON renewed.id = r.lease AND renewed.epoch = r.epoch"};

bool leases_renew(struct db *db, struct lease_renewal *const *renewals, size_t n, int64_t lease_ms,
                  struct error *error) {
  struct db_array leases, epochs, configs;
  db_array_init(&leases);
  db_array_init(&epochs);
  db_array_init(&configs);
  for (size_t i = 0; i < n; i++) {
    db_array_integer(&leases, renewals[i]->lease);
    db_array_integer(&epochs, renewals[i]->epoch);
    db_array_integer(&configs, renewals[i]->config);
  }
  struct db_parameters parameters = {0};
  db_text(&parameters, db_array_finish(&leases));
  db_text(&parameters, db_array_finish(&epochs));
  db_text(&parameters, db_array_finish(&configs));
  db_integer(&parameters, lease_ms);
  cleanup_rows struct db_rows *rows = NULL;
  bool ok = db_run(db, &renew_statement, &parameters, &rows, error);
  db_array_release(&leases);
  db_array_release(&epochs);
  db_array_release(&configs);
  for (int row = 0; ok && row < db_count(rows); row++) {
    struct lease_renewal *renewal = renewals[db_get_integer(rows, row, "n") - 1];
    renewal->known = db_get_bool(rows, row, "known");
    renewal->renewed = db_get_bool(rows, row, "renewed");
    renewal->is_split = !db_is_null(rows, row, "remaining");
    if (renewal->is_split)
      renewal->remaining = multirange_parse(db_get(rows, row, "remaining"));
  }
  return ok;
}

static const struct statement release_statement = {
    "leases_release",
    "WITH request AS MATERIALIZED (SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bool[], $4::bigint[],"
    "  $5::bool[]) WITH ORDINALITY AS r(lease, epoch, is_spent, opening_us, is_unsigned, n)),"
    " locked AS MATERIALIZED (SELECT * FROM leases WHERE id = ANY ($1::bigint[]) ORDER BY id FOR UPDATE),"
    " ended AS (UPDATE leases l SET current_config = NULL, fruitless = GREATEST(l.fruitless - r.is_unsigned::int, 0),"
    "   state = CASE WHEN r.is_spent AND j.budget_device_ms IS NOT NULL AND l.stage <> 'final' THEN 'cancelled'"
    "    ELSE 'open' END::lease_state,"
    "   opening_us = l.opening_us + " SQL_OPENING_MORE ", epoch_opening_us = l.epoch_opening_us + " SQL_OPENING_MORE
    "  FROM locked JOIN (SELECT lease, epoch, bool_or(is_spent) AS is_spent, max(opening_us) AS opening_us,"
    "   bool_and(is_unsigned) AS is_unsigned FROM request GROUP BY lease, epoch) r"
    "   ON r.lease = locked.id AND r.epoch = locked.epoch JOIN jobs j ON j.id = locked.job_id"
    "  WHERE l.id = locked.id AND locked.state = 'held' RETURNING l.id, l.epoch, l.state, l.job_id, l.fruitless),"
    " counter AS (UPDATE jobs SET events = events + 1 FROM " SQL_COUNT_BY_JOB(
        "ended WHERE state = 'cancelled'") " c"
                                           "  WHERE jobs.id = c.job_id RETURNING jobs.id, jobs.events, c.n),"
                                           " event AS (INSERT INTO job_events (job_id, event, kind, detail) SELECT id, "
                                           "events, 'budget',"
                                           "  json_build_object('cancelled_leases', n) FROM counter)"
                                           " SELECT r.n, locked.id IS NOT NULL AS known, locked.epoch, ended.id IS NOT "
                                           "NULL AS done,"
                                           "  ended.state = 'cancelled' AS is_cancelled, "
                                           "  j.budget_device_ms IS NOT NULL AS has_budget, locked.job_id, "
                                           "COALESCE(ended.fruitless, locked.fruitless) AS fruitless, e.hardware_digest"
                                           " FROM request r LEFT JOIN locked ON locked.id = r.lease"
                                           " LEFT JOIN ended ON ended.id = r.lease AND ended.epoch = r.epoch"
                                           " LEFT JOIN jobs j ON j.id = locked.job_id LEFT JOIN environments e ON e.id "
                                           "= j.environment_id"};

bool leases_release(struct db *db, struct lease_handback *const *handbacks, size_t n, struct error *error) {
  struct db_array leases, epochs, are_spent, openings, are_unsigned;
  db_array_init(&leases);
  db_array_init(&epochs);
  db_array_init(&are_spent);
  db_array_init(&openings);
  db_array_init(&are_unsigned);
  for (size_t i = 0; i < n; i++) {
    db_array_integer(&leases, handbacks[i]->lease);
    db_array_integer(&epochs, handbacks[i]->epoch);
    db_array_bool(&are_spent, handbacks[i]->is_spent);
    db_array_integer(&openings, handbacks[i]->opening_us);
    db_array_bool(&are_unsigned, handbacks[i]->is_unsigned);
  }
  struct db_parameters parameters = {0};
  db_text(&parameters, db_array_finish(&leases));
  db_text(&parameters, db_array_finish(&epochs));
  db_text(&parameters, db_array_finish(&are_spent));
  db_text(&parameters, db_array_finish(&openings));
  db_text(&parameters, db_array_finish(&are_unsigned));
  cleanup_rows struct db_rows *rows = NULL;
  bool ok = db_run(db, &release_statement, &parameters, &rows, error);
  db_array_release(&leases);
  db_array_release(&epochs);
  db_array_release(&are_spent);
  db_array_release(&openings);
  db_array_release(&are_unsigned);
  for (int row = 0; ok && row < db_count(rows); row++) {
    struct lease_handback *handback = handbacks[db_get_integer(rows, row, "n") - 1];
    handback->known = db_get_bool(rows, row, "known");
    handback->done = db_get_bool(rows, row, "done");
    handback->has_budget = db_get_bool(rows, row, "has_budget");
    handback->state = db_get_bool(rows, row, "is_cancelled") ? LEASE_CANCELLED : LEASE_OPEN;
    handback->job = db_get_integer(rows, row, "job_id");
    handback->fruitless = db_get_integer(rows, row, "fruitless");
    if (handback->known)
      handback->hardware_digest = db_get_digest(rows, row, "hardware_digest");
  }
  return ok;
}

/* How long a final waits for a device that has none of its job yet. */
#define SQL_APART "interval '60 s'"

static const struct statement insert_statement = {
    "leases_insert",
    "INSERT INTO leases (job_id, stage, round, process, configs, remaining, device_class, priority, config_us,"
    "  apart_until) SELECT j.id, $2::stage, $3::int, r.process, r.configs, r.configs, j.device_class, j.priority,"
    "  CASE WHEN r.is_large THEN j.config_us END, CASE WHEN r.is_apart THEN now() + " SQL_APART " END"
    " FROM jobs j, unnest($4::int[], $5::int8multirange[], $6::bool[], $7::bool[]) WITH ORDINALITY"
    "  AS r(process, configs, is_large, is_apart, n) WHERE j.id = $1 ORDER BY r.n"};

bool leases_insert(struct db *db, int64_t job, enum stage stage, int64_t round, const struct lease_row *rows, size_t n,
                   struct error *error) {
  enum { PROCESS, CONFIGS, LARGE, APART, COLUMNS };
  struct db_array columns[COLUMNS];
  for (size_t i = 0; i < COLUMNS; i++)
    db_array_init(&columns[i]);
  for (size_t i = 0; i < n; i++) {
    cleanup_free char *configs = multirange_format(rows[i].configs);
    db_array_integer(&columns[PROCESS], rows[i].process);
    db_array_text(&columns[CONFIGS], configs);
    db_array_bool(&columns[LARGE], stage == STAGE_SCREEN && lease_is_large(rows[i].configs));
    db_array_bool(&columns[APART], rows[i].is_apart);
  }
  struct db_parameters parameters = {0};
  db_integer(&parameters, job);
  db_text(&parameters, stage_name(stage));
  db_integer(&parameters, round);
  for (size_t i = 0; i < COLUMNS; i++)
    db_text(&parameters, db_array_finish(&columns[i]));
  cleanup_rows struct db_rows *done = NULL;
  bool ok = db_run(db, &insert_statement, &parameters, &done, error);
  for (size_t i = 0; i < COLUMNS; i++)
    db_array_release(&columns[i]);
  return ok;
}
