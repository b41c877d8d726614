/* Granting a lease of configs to one device. */
#include <math.h>

#include "common/base/log.h"
#include "common/base/numbers.h"
#include "server/db/db_record.h"
#include "server/job/catalog.h"
#include "server/job/jobs.h"
#include "server/measure/grants.h"
#include "server/measure/measure.sql.h"
#include "server/measurement/leases.h"

static void granted_release(void *context) {
  struct measure_granted *granted = context;
  record_release(&lease_grant_record, &granted->grant);
  free(granted->manifest);
  free(granted->space);
  *granted = (struct measure_granted){0};
}

static bool budget_read(struct db *db, struct measure_granted *granted, struct error *error) {
  cleanup_rows struct db_rows *rows =
      db_query(db, &sql_lease_budget, error, BIND("job", granted->grant.job));
  if (!rows)
    return false;

  granted->budget = db_get_budget(rows, 0);
  granted->configs_left = (uint64_t)db_get_integer(rows, 0, "configs_left");
  return true;
}

static bool held_read(struct db *db, const struct lease_wish *wish, void *context,
                      struct error *error) {
  struct measure_granted *ret = context;
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_record(&parameters, &lease_wish_record, wish);
  if (!db_run(db, &sql_lease_held, &parameters, &rows, error))
    return false;

  ret->to.is_stale = db_count(rows) && !db_get_bool(rows, 0, "is_live");
  if (!db_count(rows) || ret->to.is_stale)
    return true;

  ret->to.lease = db_get_integer(rows, 0, "id");
  ret->to.is_new = db_get_bool(rows, 0, "is_new");
  ALWAYS(job_state_parse(db_get(rows, 0, "job_state"), &ret->job_state));
  db_read(rows, 0, &lease_grant_record, &ret->grant);
  ret->manifest = xstrdup(db_get(rows, 0, "manifest"));
  ret->space = xstrdup(db_get(rows, 0, "space"));
  ret->may_be_split = db_get_bool(rows, 0, "may_be_split");
  ret->is_search = db_get_bool(rows, 0, "is_search");
  ret->environment_digest = db_get_digest(rows, 0, "environment_digest");
  ret->to.queue = lease_queue_read(rows, 0);
  ret->to.group = ret->grant.job;
  ret->n_warm_starts =
      ordinals_parse(db_get(rows, 0, "job_likely"), ret->warm_starts, WARM_STARTS_MAX);
  ret->final_devices = db_get_integer(rows, 0, "final_devices");
  return !db_get_bool(rows, 0, "has_budget") || budget_read(db, ret, error);
}

static bool idleness_read(struct db *db, const struct lease_wish *wish,
                          const struct lease_candidates *queues, bool *ret_is_idle,
                          struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_record(&parameters, &lease_wish_record, wish);
  bind_digest(&parameters, "hardware_digest", &wish->hardware_digest);
  bind_lease_candidates(&parameters, queues);
  if (!db_run(db, &sql_lease_hardware_is_idle, &parameters, &rows, error))
    return false;
  *ret_is_idle = db_get_bool(rows, 0, "is_idle");
  return true;
}

/* A space or key that cannot be read is logged: without warm starts a job only takes longer. */
static bool warm_starts_find(struct db *db, struct measure_granted *granted, struct error *error) {
  const struct lease_grant *grant = &granted->grant;
  cleanup_space struct space *space = NULL;
  cleanup_key struct key key = {0};
  struct past_winners winners = {0};
  if (!winners_past(db, &grant->kernel, 1, &winners, error))
    return false;

  struct error unreadable;
  cleanup_json json_t *json = NULL;
  if (winners.n > 0 && json_parse(granted->space, strlen(granted->space), &json, &unreadable) &&
      space_parse(json, &space, &unreadable) && key_parse(grant->key, NULL, 0, &key, &unreadable))
    granted->n_warm_starts =
        job_warm_starts(space, &key, &granted->environment_digest, &winners, granted->warm_starts);
  else if (winners.n > 0)
    log_warning("leases: cannot choose warm-start configs: %s", unreadable.message);
  past_winners_release(&winners);
  return true;
}

/* For the first lease of a job: chooses the job's warm-start configs (those of a search were
 * chosen when it was submitted), moves them from other open leases to this one, and makes the job
 * running. */
static bool job_begin(struct worker *worker, const struct lease_wish *wish, void *context,
                      struct error *error) {
  struct measure_granted *granted = context;
  if (granted->job_state != JOB_QUEUED)
    return true;

  if (!granted->is_search) {
    if (!warm_starts_find(worker->db, granted, error))
      return false;

    uint64_t sorted[WARM_STARTS_MAX];
    size_t n = granted->n_warm_starts;
    bool has_all = true, has_gained = false;
    memcpy(sorted, granted->warm_starts, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, compare_ordinals);
    for (size_t i = 0; i < n; i++)
      has_all = has_all && config_ranges_contain(&granted->grant.configs, sorted[i]);

    if (n > 0 &&
        !job_set_warm_starts(worker->db, granted->grant.job, granted->warm_starts, n, error))
      return false;
    if (!has_all && !lease_gather(worker->db, granted, sorted, n, &has_gained, error))
      return false;
    if (has_gained) {
      granted_release(granted);
      if (!held_read(worker->db, wish, granted, error))
        return false;
    }
  }

  struct job_change change = {
      .jobs = &granted->grant.job, .n = 1, .from = JOB_QUEUED, .to = JOB_RUNNING};
  size_t n_changed;
  if (!job_change_state(worker->db, &change, &n_changed, error))
    return false;
  granted->has_started = n_changed > 0;
  return true;
}

static void grant_committed(struct worker *worker, const void *context) {
  const struct measure_granted *granted = context;
  if (granted->has_started)
    job_announce(worker, granted->grant.job);
}

const struct lease_grants measure_grants = {.size = sizeof(struct measure_granted),
                                            .release = granted_release,
                                            .take = &sql_lease_take,
                                            .held = held_read,
                                            .begin = job_begin,
                                            .split = lease_split,
                                            .is_idle = idleness_read,
                                            .granted = grant_committed,
                                            .answer = measure_grant_answer,
                                            .renew = measure_renew,
                                            .hand_back = measure_hand_back,
                                            .results = measure_results};
