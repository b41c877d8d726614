/* Granting a lease to one device. */
#include <math.h>
#include <pthread.h>

#include "common/base/log.h"
#include "common/base/numbers.h"
#include "server/counters.h"
#include "server/db/db_record.h"
#include "server/job/catalog.h"
#include "server/job/jobs.h"
#include "server/lease/lease.sql.h"
#include "server/measure/grants.h"
#include "server/measure/measure.sql.h"
#include "server/measurement/leases.h"

#define GRANT_ATTEMPTS 4
/* How many queues a grant tries at most. */
#define QUEUES_TRIED_MAX (16 * LEASE_CANDIDATES)
#define CLASSES_OF_DEVICE 2 /* its hardware, its environment */
#define KNOWN_DEVICES 16384
#define WAIT_SECONDS_MAX 60
#define NAME_MAX_BYTES 256

static const struct field wish_fields[] = {
    RECORD_FIELD(TEXT, struct lease_wish, agent, FIELD_REQUIRED, .least = 1,
                 .most = NAME_MAX_BYTES),
    RECORD_FIELD(TEXT, struct lease_wish, device, FIELD_REQUIRED, .least = 1,
                 .most = NAME_MAX_BYTES),
    RECORD_FIELD(TEXT, struct lease_wish, nonce, FIELD_REQUIRED, .least = 1,
                 .most = NAME_MAX_BYTES),
    RECORD_FIELD_AS("wait", NUMBER, struct lease_wish, wait_s, FIELD_NOT_NULL | FIELD_NO_COLUMN,
                    .least_number = 0, .most_number = WAIT_SECONDS_MAX),
    RECORD_FIELD(TEXT, struct lease_wish, drain_reason, FIELD_NO_JSON | FIELD_NO_COLUMN),
};
const struct record lease_wish_record = RECORD("LeaseRequest", struct lease_wish, wish_fields);

void lease_granted_release(struct lease_granted *granted) {
  record_release(&lease_grant_record, &granted->grant);
  free(granted->manifest);
  free(granted->space);
  *granted = (struct lease_granted){0};
}

static bool device_read(struct db *db, struct lease_wish *wish, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_record(&parameters, &lease_wish_record, wish);
  if (!db_run(db, &sql_lease_asker, &parameters, &rows, error))
    return false;

  wish->agent_known = db_count(rows) > 0;
  wish->device_known = wish->agent_known && !db_is_null(rows, 0, "hardware_digest");
  if (!wish->device_known)
    return true;

  if (!db_is_null(rows, 0, "drain_reason"))
    wish->drain_reason = xstrdup(db_get(rows, 0, "drain_reason"));
  wish->only_device_drains = db_get_bool(rows, 0, "only_device_drains");
  wish->wants_signatures = db_get_bool(rows, 0, "wants_signatures");
  wish->hardware_digest = db_get_digest(rows, 0, "hardware_digest");
  wish->environment_digest = db_get_digest(rows, 0, "environment_digest");
  return true;
}

/* The classes of devices that requested leases, by a hash of agent and device. The statement that
 * grants checks them: a device whose classes are forgotten, or are no longer these, only costs
 * another statement. */
static struct {
  pthread_mutex_t lock;
  struct {
    uint64_t hash;
    struct digest classes[CLASSES_OF_DEVICE];
  } all[KNOWN_DEVICES];
} devices = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* FNV-1a; 0 is no device's. */
static uint64_t device_hash(const struct lease_wish *wish) {
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  const char *const texts[] = {wish->agent, wish->device};
  for (size_t i = 0; i < ARRAY_LENGTH(texts); i++)
    for (size_t k = 0; k <= strlen(texts[i]); k++)
      hash = (hash ^ (uint8_t)texts[i][k]) * UINT64_C(0x100000001b3);
  return hash ? hash : 1;
}

static bool device_recall(const struct lease_wish *wish,
                          struct digest ret_classes[CLASSES_OF_DEVICE]) {
  uint64_t hash = device_hash(wish);
  pthread_mutex_lock(&devices.lock);
  bool is_known = devices.all[hash % KNOWN_DEVICES].hash == hash;
  memcpy(ret_classes, devices.all[hash % KNOWN_DEVICES].classes,
         CLASSES_OF_DEVICE * sizeof *ret_classes);
  pthread_mutex_unlock(&devices.lock);
  return is_known;
}

/* *ret_changed: the classes were others. */
static void device_remember(const struct lease_wish *wish, struct digest classes[CLASSES_OF_DEVICE],
                            bool *ret_changed) {
  uint64_t hash = device_hash(wish);
  *ret_changed = !digest_equal(&classes[0], &wish->hardware_digest) ||
                 !digest_equal(&classes[1], &wish->environment_digest);
  classes[0] = wish->hardware_digest;
  classes[1] = wish->environment_digest;
  pthread_mutex_lock(&devices.lock);
  devices.all[hash % KNOWN_DEVICES].hash = hash;
  memcpy(devices.all[hash % KNOWN_DEVICES].classes, classes, CLASSES_OF_DEVICE * sizeof *classes);
  pthread_mutex_unlock(&devices.lock);
}

static bool budget_read(struct db *db, struct lease_granted *granted, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "job", granted->grant.job);
  if (!db_run(db, &sql_lease_budget, &parameters, &rows, error))
    return false;

  granted->budget = db_get_budget(rows, 0);
  granted->configs_left = (uint64_t)db_get_integer(rows, 0, "configs_left");
  return true;
}

/* Reads the lease that the nonce holds; ret->lease is 0 when there is none. *ret_is_stale: it has
 * expired or another device holds it, and it is not read. */
static bool held_read(struct db *db, const struct lease_wish *wish, struct lease_granted *ret,
                      bool *ret_is_stale, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_record(&parameters, &lease_wish_record, wish);
  if (!db_run(db, &sql_lease_held, &parameters, &rows, error))
    return false;

  lease_granted_release(ret);
  *ret_is_stale = db_count(rows) && !db_get_bool(rows, 0, "is_live");
  if (!db_count(rows) || *ret_is_stale)
    return true;

  ret->lease = db_get_integer(rows, 0, "id");
  ret->is_new = db_get_bool(rows, 0, "is_new");
  ALWAYS(job_state_parse(db_get(rows, 0, "job_state"), &ret->job_state));
  db_read(rows, 0, &lease_grant_record, &ret->grant);
  ret->manifest = xstrdup(db_get(rows, 0, "manifest"));
  ret->space = xstrdup(db_get(rows, 0, "space"));
  ret->may_be_split = db_get_bool(rows, 0, "may_be_split");
  ret->is_search = db_get_bool(rows, 0, "is_search");
  ret->environment_digest = db_get_digest(rows, 0, "environment_digest");
  ret->queue = lease_queue_read(rows, 0);
  ret->n_warm_starts =
      ordinals_parse(db_get(rows, 0, "job_likely"), ret->warm_starts, WARM_STARTS_MAX);
  ret->final_devices = db_get_integer(rows, 0, "final_devices");
  return !db_get_bool(rows, 0, "has_budget") || budget_read(db, ret, error);
}

/* Grants the first open lease of the candidates unless the nonce holds one, and reads it. Both
 * statements are sent together. */
static bool lease_obtain(struct worker *worker, const struct lease_wish *wish,
                         const struct lease_candidates *candidates, struct lease_granted *ret,
                         bool *ret_is_stale, struct error *error) {
  const struct lease_holder holder = {
      wish->agent, wish->device, wish->nonce, wish->token, server_options(worker->server)->lease_ms,
      candidates};
  return (candidates->n == 0 || lease_take(worker->db, &sql_lease_take, &holder, error)) &&
         held_read(worker->db, wish, ret, ret_is_stale, error);
}

/* The same with all queues of the classes, in the order of their shares. *ret_tried: the last
 * candidates. */
static bool lease_obtain_by_turn(struct worker *worker, const struct lease_wish *wish,
                                 const struct digest classes[CLASSES_OF_DEVICE],
                                 struct lease_candidates *ret_tried, struct lease_granted *ret,
                                 bool *ret_is_stale, struct error *error) {
  bool has_more = true;
  for (size_t skip = 0; has_more && skip < QUEUES_TRIED_MAX; skip += LEASE_CANDIDATES) {
    lease_candidates_find(classes, CLASSES_OF_DEVICE, skip, ret_tried);
    if (!lease_obtain(worker, wish, ret_tried, ret, ret_is_stale, error))
      return false;
    has_more = ret_tried->has_more && !ret->lease && !*ret_is_stale;
  }
  return true;
}

static bool idleness_read(struct db *db, struct lease_wish *wish, struct error *error) {
  struct lease_candidates candidates;
  lease_candidates_find(&wish->hardware_digest, 1, 0, &candidates);
  wish->is_idle = false;
  if (candidates.has_more)
    return true;

  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_record(&parameters, &lease_wish_record, wish);
  bind_digest(&parameters, "hardware_digest", &wish->hardware_digest);
  bind_lease_candidates(&parameters, &candidates);
  if (!db_run(db, &sql_lease_hardware_is_idle, &parameters, &rows, error))
    return false;
  wish->is_idle = db_get_bool(rows, 0, "is_idle");
  return true;
}

/* A space or key that cannot be read is logged: without warm starts a job only takes longer. */
static bool warm_starts_find(struct db *db, struct lease_granted *granted, struct error *error) {
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

/* Called for the first lease of a job. Chooses the job's warm-start configs (those of a search were
 * chosen when it was submitted), moves them from other open leases to this one, and makes the job
 * running. */
static bool job_begin(struct worker *worker, const struct lease_wish *wish,
                      struct lease_granted *granted, struct error *error) {
  if (!granted->is_search) {
    if (!warm_starts_find(worker->db, granted, error))
      return false;

    uint64_t sorted[WARM_STARTS_MAX];
    size_t n = granted->n_warm_starts;
    bool has_all = true, has_gained = false, is_stale;
    memcpy(sorted, granted->warm_starts, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, compare_ordinals);
    for (size_t i = 0; i < n; i++)
      has_all = has_all && config_ranges_contain(&granted->grant.configs, sorted[i]);

    if (n > 0 &&
        !job_set_warm_starts(worker->db, granted->grant.job, granted->warm_starts, n, error))
      return false;
    if (!has_all && !lease_gather(worker->db, granted, sorted, n, &has_gained, error))
      return false;
    if (has_gained && !held_read(worker->db, wish, granted, &is_stale, error))
      return false;
  }

  struct job_change change = {
      .jobs = &granted->grant.job, .n = 1, .from = JOB_QUEUED, .to = JOB_RUNNING};
  size_t n_changed;
  if (!job_change_state(worker->db, &change, &n_changed, error))
    return false;
  granted->has_started = n_changed > 0;
  return true;
}

/* *ret_split: the lease that was split off another one, or 0. *ret_tried: the candidates of the
 * statement that granted the lease. */
static bool grant_in(struct worker *worker, struct lease_wish *wish, struct lease_granted *ret,
                     struct lease_candidates *ret_tried, int64_t *ret_split, struct error *error) {
  struct digest classes[CLASSES_OF_DEVICE] = {0};
  struct lease_queue split;
  bool is_stale = false, moved_back, is_recalled = device_recall(wish, classes), is_other;
  *ret_split = 0;
  if (is_recalled && !lease_obtain_by_turn(worker, wish, classes, ret_tried, ret, &is_stale, error))
    return false;

  if (!ret->lease) {
    if (!device_read(worker->db, wish, error))
      return false;
    if (is_stale || !wish->device_known || (wish->drain_reason && is_recalled))
      return true;

    /* Another server may have opened a lease before the front of this one. */
    device_remember(wish, classes, &is_other);
    if (!lease_front_search(worker->db, &wish->hardware_digest, &moved_back, error) ||
        ((moved_back || is_other || !is_recalled) &&
         !lease_obtain_by_turn(worker, wish, classes, ret_tried, ret, &is_stale, error)))
      return false;
    if (is_stale || (!ret->lease && wish->drain_reason))
      return true;
  }

  if (!ret->lease) {
    if (!lease_split(worker->db, wish, ret_split, &split, error))
      return false;

    /* Which leases an agent with trusted keys may have does not follow from their class alone. */
    if (!*ret_split)
      return wish->wants_signatures || idleness_read(worker->db, wish, error);

    /* A better lease may have been opened meanwhile. Or another thread may have moved the front of
     * the new one on, as it is not committed. */
    if (!lease_front_search(worker->db, &wish->hardware_digest, &moved_back, error) ||
        !lease_obtain_by_turn(worker, wish, classes, ret_tried, ret, &is_stale, error))
      return false;
    *ret_tried = ret->lease ? *ret_tried : lease_candidates_of(&split);
    if (!ret->lease && !lease_obtain(worker, wish, ret_tried, ret, &is_stale, error))
      return false;
  }

  return !ret->lease || ret->job_state != JOB_QUEUED || job_begin(worker, wish, ret, error);
}

static bool grant_once(struct worker *worker, struct lease_wish *wish, struct lease_granted *ret,
                       struct error *error) {
  struct lease_candidates tried;
  int64_t split;
  free(wish->drain_reason);
  wish->drain_reason = NULL;

  if (!db_begin(worker->db, error) ||
      !db_end(worker->db, grant_in(worker, wish, ret, &tried, &split, error), error))
    return false;

  counter_add(COUNTER_leases_granted, ret->is_new);
  struct error late;
  if (ret->is_new &&
      !lease_front_note_grant(worker->db, &tried, &ret->queue, ret->grant.job, &late))
    log_warning("leases: %s", late.message);
  if (ret->has_started)
    job_announce(worker, ret->grant.job);
  if (split) {
    counter_add(COUNTER_leases_split, 1);
    log_info("lease: split lease=%lld agent=%s device=%s", (long long)split, wish->agent,
             wish->device);

    /* When a better lease was opened in between, another device gets the new one. */
    if (ret->lease != split)
      leases_announce(worker, &wish->hardware_digest, 1);
  }

  return true;
}

bool lease_grant(struct worker *worker, struct lease_wish *wish, struct lease_granted *ret,
                 struct error *error) {
  for (int attempt = 1;; attempt++) {
    lease_granted_release(ret);
    if (grant_once(worker, wish, ret, error))
      return true;
    lease_granted_release(ret);

    /* A concurrent request with this nonce was granted a lease: the next attempt finds it. */
    bool may_retry = error->kind == ERROR_UNIQUE || error->kind == ERROR_CONTENTION;
    if (may_retry && attempt == GRANT_ATTEMPTS)
      return error_of(error, ERROR_CONTENTION,
                      "several requests use this nonce at the same time; try again");
    if (!may_retry)
      return false;
  }
}
