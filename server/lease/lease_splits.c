/* SQL that moves configs between the screen leases of a job: the tail of a held one to an idle device, and likely winners to
 * the lease that is measured first. Nothing here waits for a lock. Memory and threads: as leases.h says. */
#include "server/db/values.h"
#include "server/kernel/code_signatures.h"
#include "server/lease/lease_plan.h"
#include "server/lease/lease_store.h"

#define TEXT(number) #number
#define NUMBER(macro) TEXT(macro)

/* A config's pace is what the lease's measurements took of the device, or what went by for each of them since the grant
 * where that is more (compilers, checks); before there are any, what the job's kernel took before. */
#define SQL_PREDICTED_US                                                                                               \
  "f.configs * GREATEST(CASE WHEN f.measured > 0 THEN l.device_us / f.measured ELSE l.config_us END,"                  \
  " CASE WHEN f.measured >= " NUMBER(LEASE_CONFIGS_MIN) " THEN f.age_us / f.measured ELSE 0 END)"
#define SQL_IS_WORTH_IT                                                                                                \
  "f.age_us > 1000 * " NUMBER(SPLIT_AGE_MS) " AND f.configs > 2 * " NUMBER(                                            \
      LEASE_CONFIGS_MIN) " AND predicted.us > " NUMBER(SPLIT_LEFT_US)

/* The job's row is held, too, so that it cannot end before its new lease is there to be cancelled with it. */
static const struct statement choose_statement = {
    "leases_split_choose",
    "WITH wish AS MATERIALIZED (SELECT r.agent, r.device, a.trusted_keys, c.class FROM unnest($1::text[], $2::text[])"
    "   AS r(agent, device) JOIN devices d ON d.agent = r.agent AND d.device = r.device"
    "  JOIN agents a ON a.id = d.agent JOIN environments e ON e.id = d.environment_id"
    "  CROSS JOIN LATERAL (SELECT e.hardware_digest UNION SELECT e.digest) AS c(class)),"
    " demand AS MATERIALIZED (SELECT class, count(*) AS n FROM wish GROUP BY class)"
    " SELECT chosen.* FROM demand CROSS JOIN LATERAL (SELECT l.id, l.remaining FROM leases l"
    "  JOIN jobs j ON j.id = l.job_id"
    "  CROSS JOIN LATERAL (SELECT (SELECT sum(upper(r) - lower(r)) FROM unnest(l.remaining) r) AS configs,"
    "   (SELECT sum(o) FROM unnest(l.outcomes) o) AS measured,"
    "   extract(epoch FROM now() - l.granted_at) * 1e6 AS age_us) f"
    "  CROSS JOIN LATERAL (SELECT " SQL_PREDICTED_US " AS us) predicted"
    "  WHERE l.device_class = demand.class AND l.state = 'held' AND l.config_us IS NOT NULL"
    "  AND l.expires_at > now() AND j.state = 'running' AND j.stage = l.stage AND " SQL_IS_WORTH_IT
    "  AND NOT EXISTS (SELECT FROM wish w WHERE w.agent = l.agent AND w.device = l.device)"
    "  AND EXISTS (SELECT FROM wish w WHERE w.class = demand.class AND " SQL_MAY_RUN(
        "w.trusted_keys") ")"
                          "  ORDER BY predicted.us DESC, l.id LIMIT demand.n"
                          "  FOR UPDATE OF l SKIP LOCKED FOR SHARE OF j SKIP LOCKED) chosen"};

static const struct statement split_statement = {
    "leases_split",
    "WITH split AS (UPDATE leases l SET remaining = l.remaining - s.tail, is_split = true"
    "  FROM unnest($1::bigint[], $2::int8multirange[], $3::bool[]) AS s(id, tail, is_large) WHERE l.id = s.id"
    "  RETURNING l.job_id, l.stage, l.round, l.process, s.tail, s.is_large, l.device_class, l.priority, l.config_us)"
    " INSERT INTO leases (job_id, stage, round, process, configs, remaining, device_class, priority, config_us)"
    " SELECT job_id, stage, round, process, tail, tail, device_class, priority, CASE WHEN is_large THEN config_us END"
    " FROM split"};

static bool chosen_split(struct db *db, const struct db_rows *chosen, size_t *ret_n, struct error *error) {
  struct db_array ids, tails, are_large;
  db_array_init(&ids);
  db_array_init(&tails);
  db_array_init(&are_large);
  for (int row = 0; row < db_count(chosen); row++) {
    cleanup_config_ranges struct config_ranges remaining = multirange_parse(db_get(chosen, row, "remaining"));
    cleanup_config_ranges struct config_ranges tail = lease_tail(&remaining);
    cleanup_free char *text = multirange_format(&tail);
    db_array_integer(&ids, db_get_integer(chosen, row, "id"));
    db_array_text(&tails, text);
    db_array_bool(&are_large, lease_is_large(&tail));
  }
  struct db_parameters parameters = {0};
  db_text(&parameters, db_array_finish(&ids));
  db_text(&parameters, db_array_finish(&tails));
  db_text(&parameters, db_array_finish(&are_large));
  cleanup_rows struct db_rows *rows = NULL;
  bool ok = db_run(db, &split_statement, &parameters, &rows, error);
  db_array_release(&ids);
  db_array_release(&tails);
  db_array_release(&are_large);
  if (ok)
    *ret_n = (size_t)db_affected(rows);
  return ok;
}

bool leases_split(struct db *db, struct lease_wish *const *wishes, size_t n, size_t *ret_n, struct error *error) {
  struct db_array agents, devices;
  db_array_init(&agents);
  db_array_init(&devices);
  for (size_t i = 0; i < n; i++) {
    db_array_text(&agents, wishes[i]->agent);
    db_array_text(&devices, wishes[i]->device);
  }
  struct db_parameters parameters = {0};
  db_text(&parameters, db_array_finish(&agents));
  db_text(&parameters, db_array_finish(&devices));
  cleanup_rows struct db_rows *chosen = NULL;
  bool ok = db_run(db, &choose_statement, &parameters, &chosen, error);
  db_array_release(&agents);
  db_array_release(&devices);
  *ret_n = 0;
  return ok && (db_count(chosen) == 0 || chosen_split(db, chosen, ret_n, error));
}

static const struct statement gather_statement = {
    "lease_gather",
    "WITH mine AS MATERIALIZED (SELECT id, job_id FROM leases WHERE id = $1 AND epoch = $2 AND state = 'held'"
    "  FOR UPDATE SKIP LOCKED),"
    " others AS MATERIALIZED (SELECT l.id, l.remaining * $3::int8multirange AS taken FROM leases l"
    "  JOIN mine ON mine.job_id = l.job_id WHERE " SQL_IS_OPEN " AND l.stage = 'screen'"
    "  AND l.remaining && $3::int8multirange ORDER BY l.id FOR UPDATE OF l SKIP LOCKED),"
    " less AS (UPDATE leases l SET remaining = l.remaining - o.taken,"
    "   state = CASE WHEN isempty(l.remaining - o.taken) THEN 'done' ELSE 'open' END::lease_state"
    "  FROM others o WHERE l.id = o.id RETURNING o.taken),"
    " more AS (SELECT range_agg(r) AS taken FROM less CROSS JOIN LATERAL unnest(less.taken) AS r)"
    " UPDATE leases l SET configs = l.configs + more.taken, remaining = l.remaining + more.taken"
    "  FROM mine, more WHERE l.id = mine.id AND more.taken IS NOT NULL RETURNING l.remaining"};

bool lease_gather(struct db *db, int64_t lease, int64_t epoch, const struct config_ranges *configs, bool *ret_gained,
                  struct config_ranges *ret_remaining, struct error *error) {
  cleanup_free char *text = multirange_format(configs);
  struct db_parameters parameters = {0};
  db_integer(&parameters, lease);
  db_integer(&parameters, epoch);
  db_text(&parameters, text);
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(db, &gather_statement, &parameters, &rows, error))
    return false;
  *ret_gained = db_count(rows) > 0;
  if (*ret_gained)
    *ret_remaining = multirange_parse(db_get(rows, 0, "remaining"));
  return true;
}
