/* Granting a lease of configs to one device. */
#include <math.h>

#include "common/base/log.h"
#include "common/base/numbers.h"
#include "server/db/db_record.h"
#include "server/job/catalog.h"
#include "server/job/jobs.h"
#include "server/measure/grants.h"
#include "server/measure/lease_moves.sql.h"
#include "server/measure/measure.sql.h"
#include "server/measurement/lease_plan.h"
#include "server/measurement/leases.h"

static const struct field granted_fields[] = {
    RECORD_FIELD_AS("id", INTEGER, struct measure_granted, to.lease),
    RECORD_FIELD_AS("is_new", BOOL, struct measure_granted, to.is_new),
    RECORD_FIELD_AS("job", INTEGER, struct measure_granted, to.group),
    QUEUE_FIELDS("device_class", "owner_id", "priority", struct measure_granted, to.queue),
    RECORD_FIELD(RECORD, struct measure_granted, grant, .of = &lease_grant_record),
    RECORD_FIELDS(TEXT, struct measure_granted, manifest, space),
    RECORD_FIELDS(BOOL, struct measure_granted, may_be_split, is_search, has_budget),
    RECORD_FIELD(ENUM, struct measure_granted, job_state, .names = job_state_names),
    RECORD_FIELD(DIGEST, struct measure_granted, environment_digest),
    RECORD_FIELD(INTEGER, struct measure_granted, final_devices),
};
static const struct record granted_record = RECORD(NULL, struct measure_granted, granted_fields);

static void granted_release(void *granted) {
  record_release(&granted_record, granted);
  *(struct measure_granted *)granted = (struct measure_granted){0};
}

static bool held_read(struct db *db, const struct lease_wish *wish, void *context,
                      struct error *error) {
  struct measure_granted *ret = context;
  cleanup_rows struct db_rows *rows =
      db_query(db, &sql_lease_held, error, BIND("agent", wish->agent), BIND("device", wish->device),
               BIND("nonce", wish->nonce));
  if (!rows)
    return false;

  ret->to.is_stale = db_count(rows) && !db_get_bool(rows, 0, "is_live");
  if (!db_count(rows) || ret->to.is_stale)
    return true;

  db_read(rows, 0, &granted_record, ret);
  ret->n_warm_starts =
      ordinals_parse(db_get(rows, 0, "job_likely"), ret->warm_starts, WARM_STARTS_MAX);
  if (!ret->has_budget)
    return true;

  cleanup_rows struct db_rows *budget =
      db_query(db, &sql_lease_budget, error, BIND("job", ret->grant.job));
  if (!budget)
    return false;
  ret->budget = db_get_budget(budget, 0);
  ret->configs_left = (uint64_t)db_get_integer(budget, 0, "configs_left");
  return true;
}

static bool idleness_read(struct db *db, const struct lease_wish *wish,
                          const struct lease_candidates *queues, bool *ret_is_idle,
                          struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_values(&parameters, BIND("agent", wish->agent), BIND("device", wish->device),
              BIND("hardware_digest", &wish->hardware_digest));
  bind_lease_candidates(&parameters, queues);
  if (!db_run(db, &sql_lease_hardware_is_idle, &parameters, &rows, error))
    return false;
  *ret_is_idle = db_get_bool(rows, 0, "is_idle");
  return true;
}

/* Moving configs between the screen leases of a job */

/* Of the held screen leases that may be split for the device, takes the one with the most predicted
 * device time left and moves its last configs to a new open lease. */
static bool lease_split(struct db *db, const struct lease_wish *wish, struct lease_at *ret,
                        struct error *error) {
  cleanup_rows struct db_rows *chosen = db_query(
      db, &sql_leases_split_choose, error, BIND("agent", wish->agent), BIND("device", wish->device),
      BIND("configs_min", LEASE_CONFIGS_MIN), BIND("split_configs_min", SPLIT_CONFIGS_MIN),
      BIND("age_ms", SPLIT_AGE_MS), BIND("left_us", SPLIT_LEFT_US));
  if (!chosen)
    return false;

  *ret = (struct lease_at){0};
  if (db_count(chosen) == 0)
    return true;

  cleanup_config_ranges struct config_ranges remaining =
      multirange_parse(db_get(chosen, 0, "remaining"));
  cleanup_config_ranges struct config_ranges tail = lease_tail(&remaining);
  if (tail.n == 0)
    return true;

  struct measure_change change = {.lease = db_get_integer(chosen, 0, "id"),
                                  .from = LEASE_HELD,
                                  .to = LEASE_HELD,
                                  .less = tail,
                                  .is_split = true};
  if (!measure_change_state(db, &change, 1, error))
    return false;

  cleanup_rows struct db_rows *made =
      db_query(db, &sql_leases_split, error, BIND("lease", change.lease), BIND("tail", &tail),
               BIND("is_large", lease_is_large(&tail)));
  if (!made)
    return false;

  lease_fronts_move_back(db, made);
  db_read(made, 0, &lease_at_record, ret);
  return true;
}

/* Moves those of `configs` (sorted ordinals) that are in other open screen leases of the job to a
 * lease that was granted in this transaction. *ret_gained: whether there were any. */
static bool lease_gather(struct db *db, const struct measure_granted *granted,
                         const uint64_t *configs, size_t n, bool *ret_gained, struct error *error) {
  cleanup_config_ranges struct config_ranges wanted = {0}, gained = {0};
  for (size_t i = 0; i < n; i++)
    config_ranges_add(&wanted, configs[i]);

  *ret_gained = false;
  cleanup_rows struct db_rows *rows = db_query(
      db, &sql_lease_gather, error, BIND("job", granted->grant.job), BIND("wanted", &wanted));
  if (!rows)
    return false;
  if (db_count(rows) == 0)
    return true;

  size_t n_others = (size_t)db_count(rows);
  cleanup_free struct measure_change *changes = xcalloc(n_others + 1, sizeof *changes);
  for (size_t i = 0; i < n_others; i++)
    changes[i] =
        (struct measure_change){.lease = db_get_integer(rows, (int)i, "id"),
                                .from = LEASE_OPEN,
                                .to = db_get_bool(rows, (int)i, "is_all") ? LEASE_DONE : LEASE_OPEN,
                                .less = multirange_parse(db_get(rows, (int)i, "taken"))};

  for (size_t i = 0; i < n; i++)
    for (size_t k = 0; k < n_others; k++)
      if (config_ranges_contain(&changes[k].less, configs[i]))
        config_ranges_add(&gained, configs[i]);

  changes[n_others] = (struct measure_change){
      .lease = granted->to.lease, .from = LEASE_HELD, .to = LEASE_HELD, .more = gained};

  bool ok = measure_change_state(db, changes, n_others + 1, error);
  for (size_t i = 0; i < n_others; i++)
    config_ranges_release(&changes[i].less);
  *ret_gained = ok;
  return ok;
}

/* The first lease of a job */

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

/* Gives the leases of a search that was not begun another first batch: takes what is not in it out
 * of them, and adds what is new to the granted one. A lease that another device is being granted
 * keeps what it has. */
static bool batch_replace(struct db *db, const struct measure_granted *granted, uint64_t *batch,
                          size_t n, struct error *error) {
  cleanup_rows struct db_rows *rows =
      db_query(db, &sql_lease_batch, error, BIND("job", granted->grant.job));
  if (!rows)
    return false;

  size_t n_leases = (size_t)db_count(rows), n_changes = 0;
  cleanup_free struct measure_change *changes = xcalloc(n_leases, sizeof *changes);
  cleanup_free bool *is_there = xcalloc(n, sizeof *is_there);
  cleanup_config_ranges struct config_ranges more = {0};
  qsort(batch, n, sizeof *batch, compare_ordinals);
  for (size_t i = 0; i < n_leases; i++) {
    cleanup_config_ranges struct config_ranges remaining =
        multirange_parse(db_get(rows, (int)i, "remaining"));
    struct config_ranges less = {0};
    int64_t lease = db_get_integer(rows, (int)i, "id");
    bool is_own = lease == granted->to.lease;
    array_foreach (range, remaining.ranges, remaining.n)
      for (uint64_t config = range->first; config < range->first + range->count; config++) {
        const uint64_t *found = bsearch(&config, batch, n, sizeof *batch, compare_ordinals);
        if (found)
          is_there[found - batch] = true;
        else
          config_ranges_add(&less, config);
      }
    enum lease_state from = is_own ? LEASE_HELD : LEASE_OPEN;
    if (is_own || (less.n && db_get_bool(rows, (int)i, "may_change")))
      changes[n_changes++] =
          (struct measure_change){.lease = lease,
                                  .from = from,
                                  .to = is_own ? from : lease_state_after(&remaining, &less, from),
                                  .less = less};
    else
      config_ranges_release(&less);
  }

  for (size_t i = 0; i < n; i++)
    if (!is_there[i])
      config_ranges_add(&more, batch[i]);
  for (size_t i = 0; i < n_changes; i++) {
    struct measure_change *own = &changes[i];
    if (own->lease != granted->to.lease)
      continue;
    own->more = more;
    if (!more.n && config_ranges_count(&own->less) == config_ranges_count(&granted->grant.configs))
      config_ranges_release(&own->less); /* a lease that is granted has configs */
  }
  bool ok = measure_change_state(db, changes, n_changes, error);
  for (size_t i = 0; i < n_changes; i++)
    config_ranges_release(&changes[i].less);
  return ok;
}

/* For the first lease of a search: winners that were decided since it was submitted become its
 * warm-start configs. */
static bool search_begin(struct worker *worker, const struct lease_wish *wish,
                         struct measure_granted *granted, struct error *error) {
  uint64_t batch[SEARCH_BATCH_MAX];
  size_t n;
  if (!warm_starts_find(worker->db, granted, error))
    return false;
  if (!granted->n_warm_starts)
    return true;
  if (!job_search_warm(worker->db, granted->grant.job, granted->warm_starts, granted->n_warm_starts,
                       batch, &n, error) ||
      !job_poison_filter(worker->db, granted->grant.job, batch, &n, error))
    return false;
  if (!n)
    return true;
  if (!batch_replace(worker->db, granted, batch, n, error))
    return false;
  granted_release(granted);
  return held_read(worker->db, wish, granted, error);
}

/* For the first lease of a job: chooses the job's warm-start configs, moves them from other open
 * leases to this one, and makes the job running. */
static bool job_begin(struct worker *worker, const struct lease_wish *wish, void *context,
                      struct error *error) {
  struct measure_granted *granted = context;
  if (granted->job_state != JOB_QUEUED)
    return true;

  if (granted->is_search) {
    if (!search_begin(worker, wish, granted, error))
      return false;
  } else {
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
