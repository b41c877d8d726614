/* Leases: pull work, keep it, hand it back; and post what was measured.
 *
 * Memory: what a handler makes lives as long as it runs. Threads: database workers. */
#include <math.h>

#include "common/base/log.h"
#include "common/node/environment.h"
#include "server/agent/drift.h"
#include "server/agent/identity.h"
#include "server/counters.h"
#include "server/db/db_record.h"
#include "server/db/values.h"
#include "server/http/answers.h"
#include "server/http/routes.h"
#include "common/campaign/campaign.h"
#include "server/job/jobs.h"
#include "server/lease/lease.h"
#include "server/lease/lease.sql.h"
#include "server/lease/lease_id.h"
#include "server/lease/lease_plan.h"
#include "server/lease/lease_store.h"
#include "server/records.h"

#define RENEWALS_PER_LEASE 3
#define POST_ATTEMPTS 8
#define POST_MEASUREMENTS_MAX 2000 /* of one statement, which compares new with known ones */

/* The share of a lease, by its configs, of what its stage may still spend of the job's budget. Opening the kernel is
 * taken from the stage's rest, as a device opens it once for many leases; in a final each process opens it, and pays for
 * it alone. */
static void bounds_set(struct lease_granted *granted) {
  struct lease_grant *grant = &granted->grant;
  grant->device_us = grant->budget_us = FIELD_NONE;
  if (granted->budget.total_us == 0)
    return;

  int64_t left_us = grant->stage == STAGE_FINAL
                        ? budget_process_us(&granted->budget, 1)
                        : budget_screen_left_us(&granted->budget, final_processes(granted->final_devices));
  double share =
      (double)config_ranges_count(&grant->configs) / (double)(granted->configs_left ? granted->configs_left : 1);
  int64_t device_us = (int64_t)((double)left_us * (share < 1 ? share : 1));
  int64_t budget_us = grant->stage == STAGE_FINAL ? device_us : left_us;
  grant->device_us = device_us > 0 ? device_us : 1;
  grant->budget_us = budget_us > 0 ? budget_us : 1;
}

static void granted_answer(struct worker *worker, struct request *request, struct lease_granted *granted) {
  struct lease_grant *grant = &granted->grant;
  char id[LEASE_ID_SIZE];
  lease_id_format(server_lease_secret(worker->server), granted->lease, grant->epoch, request->token_agent, id);
  free(grant->lease);
  grant->lease = xstrdup(id);

  grant->likely = json_array();
  for (size_t i = 0; i < granted->n_likely && grant->stage != STAGE_FINAL; i++)
    if (config_ranges_hold(&grant->configs, granted->likely[i]))
      ALWAYS(json_array_append_new(grant->likely, json_integer((json_int_t)granted->likely[i])) == 0);
  bounds_set(granted);

  /* A holder that may lose the tail of its lease asks often whether it did. */
  grant->renew_every_ms = server_options(worker->server)->lease_ms / RENEWALS_PER_LEASE;
  if (granted->may_be_split && grant->renew_every_ms > RENEW_SPLITTABLE_MS)
    grant->renew_every_ms = RENEW_SPLITTABLE_MS;
  request_answer_json(request, 200, record_write(&lease_grant_record, grant));
}

static void no_lease_answer(struct worker *worker, struct request *request, const struct lease_wish *wish) {
  int64_t deadline_ms = request->deadline_passed ? 0 : request->arrived_ms + (int64_t)(wish->wait_s * 1000);
  char key[PARK_KEY_SIZE];
  if (!wish->agent_known)
    request_problem(request, 404, "/agent", "agent \"%.40s\" is not enrolled; enrol it with POST /v1/agents",
                    wish->agent);
  else if (!wish->device_known)
    request_problem(request, 404, "/device", "agent \"%.40s\" has no device \"%.40s\"; enrol it with its devices",
                    wish->agent, wish->device);
  else if (wish->drain_reason && wish->only_device_drains)
    request_problem(request, 403, "/device",
                    "device \"%.40s\" is drained and gets no leases until an admin resumes it: %.300s", wish->device,
                    wish->drain_reason);
  else if (wish->drain_reason)
    request_problem(request, 403, "/agent", "agent \"%.40s\" is drained and gets no leases: %.300s", wish->agent,
                    wish->drain_reason);
  else if (clock_monotonic_ms() >= deadline_ms)
    request_answer_empty(request, 204);
  else
    (wish->is_idle ? request_park_idle : request_park)(
        worker, request, lease_park_key(&wish->hardware_digest, wish->wants_signatures, key), deadline_ms);
}

void route_lease_post(struct worker *worker, struct request *request) {
  struct lease_wish wish;
  struct lease_granted granted = {0};
  struct error error;
  record_init(&lease_wish_record, &wish);
  if (!identity_may_act(worker, request))
    return;

  wish.wait_s = 0;
  wish.token = request->token_id;
  if (!record_read(&lease_wish_record, request->json, "", &wish, &error))
    answer_failure(request, &error);
  else if (request->is_parked_before && !request_client_is_there(request))
    request_answer_empty(request, 204); /* to nobody: its lease would be lost */
  else if (!lease_grant(worker, &wish, &granted, &error))
    answer_failure(request, &error);
  else if (granted.lease)
    granted_answer(worker, request, &granted);
  else
    no_lease_answer(worker, request, &wish);

  record_release(&lease_wish_record, &wish);
  lease_granted_release(&granted);
}

struct renewal {
  int64_t epoch, config;
};
static const struct field renewal_fields[] = {
    {"epoch", FIELD_INTEGER, offsetof(struct renewal, epoch), FIELD_REQUIRED, .least = 1, .most = INT64_MAX},
    {"config", FIELD_INTEGER, offsetof(struct renewal, config), .least = 0, .most = INT64_MAX - 1,
     .about = "that is being measured"},
};
const struct record renewal_record = RECORD("RenewRequest", struct renewal, renewal_fields);

/* What remains the lease's is said when some of it was given away. */
struct renewed {
  int64_t expires_in_ms;
  json_t *configs;
};
static const struct field renewed_fields[] = {
    {"expires_in_ms", FIELD_INTEGER, offsetof(struct renewed, expires_in_ms), FIELD_ANSWER},
    {"configs", FIELD_JSON, offsetof(struct renewed, configs), FIELD_ANSWER | FIELD_OMITTED, .schema = SCHEMA_RANGES},
};
const struct record renewed_record = RECORD("RenewAnswer", struct renewed, renewed_fields);

/* The present epoch is said to the lease's holder, and null to others: agents of before know a lost lease by the member. */
void lease_answer_stale(struct worker *worker, struct request *request, int64_t lease, const char *what) {
  struct error error;
  int64_t epoch = 0;
  log_set_request(request->id);
  if (!identities_held_epoch(worker->db, lease, request->token_agent, request->token_id, &epoch, &error))
    log_warning("lease: cannot tell who holds lease=%lld: %s", (long long)lease, error.message);
  if (epoch)
    error_set(&error, "lease %lld is no longer yours at this epoch%s; its epoch is %lld", (long long)lease, what,
              (long long)epoch);
  else
    error_set(&error, "lease %lld is no longer yours at this epoch%s", (long long)lease, what);
  error_become(&error, ERROR_CONFLICT);
  request_problem_extra(request, 409, &error,
                        json_pack("{s:o}", "epoch", epoch ? json_integer((json_int_t)epoch) : json_null()));
}

void lease_answer_unknown(struct request *request, int64_t lease) {
  request_problem(request, 404, "", "there is no lease %lld", (long long)lease);
}

static bool lease_exists(struct db *db, int64_t lease, bool *ret_exists, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "lease", lease);
  if (!db_run(db, &sql_lease_exists, &parameters, &rows, error))
    return false;
  *ret_exists = db_count(rows) > 0;
  return true;
}

void route_lease_renew(struct worker *worker, struct request *request) {
  struct renewal renewal;
  struct renewed renewed = {.expires_in_ms = server_options(worker->server)->lease_ms};
  struct error error;
  bool exists;
  if (!identity_may_hold(worker, request))
    return;
  int64_t lease = identity_lease(request);
  record_init(&renewal_record, &renewal);
  if (!record_read(&renewal_record, request->json, "", &renewal, &error)) {
    answer_failure(request, &error);
    return;
  }

  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "lease", lease);
  bind_integer(&parameters, "lease_ms", renewed.expires_in_ms);
  bind_record(&parameters, &renewal_record, &renewal);
  if (!db_run(worker->db, &sql_leases_renew, &parameters, &rows, &error)) {
    answer_failure(request, &error);
    return;
  }

  if (db_count(rows) == 0) {
    if (!lease_exists(worker->db, lease, &exists, &error))
      answer_failure(request, &error);
    else if (!exists)
      lease_answer_unknown(request, lease);
    else
      lease_answer_stale(worker, request, lease, "");
    return;
  }

  counter_add(COUNTER_leases_renewed, 1);
  if (!db_is_null(rows, 0, "remaining")) {
    cleanup_config_ranges struct config_ranges remaining = multirange_parse(db_get(rows, 0, "remaining"));
    renewed.configs = config_ranges_to_json(&remaining);
  }
  request_answer_json(request, 200, record_write(&renewed_record, &renewed));
  json_decref(renewed.configs);
}

struct handback {
  int64_t epoch, opening_us;
  char *reason;
};
static const struct field handback_fields[] = {
    {"epoch", FIELD_INTEGER, offsetof(struct handback, epoch), FIELD_REQUIRED, .least = 1, .most = INT64_MAX},
    {"reason", FIELD_TEXT, offsetof(struct handback, reason)},
    {"opening_us", FIELD_INTEGER, offsetof(struct handback, opening_us), FIELD_NOT_NULL, .least = 0,
     .most = OPENING_US_MAX, .about = "what opening the kernel took of the device in this epoch"},
};
const struct record handback_record = RECORD("HandBackRequest", struct handback, handback_fields);

/* Opens a lease again for what remains of it, and counts what opening the kernel took. One that has spent its share of
 * its job's budget is cancelled, with the event. A grant does not count as one in vain when the agent trusts no key that
 * signed the lease's code. *ret_state: LEASE_STATE_COUNT when it was not held at this epoch. */
static bool lease_hand_back(struct db *db, int64_t id, const struct handback *handback, struct lease *lease,
                            bool *ret_known, enum lease_state *ret_state, struct error *error) {
  bool is_spent = string_equal(handback->reason, RELEASE_REASON_SPENT);
  bool is_unsigned = handback->reason && string_starts(handback->reason, RELEASE_REASON_UNSIGNED);
  *ret_state = LEASE_STATE_COUNT;
  if (!lease_lock(db, id, lease, ret_known, error))
    return false;
  if (!*ret_known || lease->state != LEASE_HELD || lease->epoch != handback->epoch)
    return true;

  bool is_over = is_spent && lease->has_budget && lease->stage != STAGE_FINAL;
  int64_t more_us = handback->opening_us - lease->epoch_opening_us; /* of a repeated request: none */
  struct lease_change change = {.lease = id,
                                .from = LEASE_HELD,
                                .to = is_over ? LEASE_CANCELLED : LEASE_OPEN,
                                .fruitless_less = is_unsigned,
                                .opening_us = more_us > 0 ? more_us : 0};
  lease->fruitless -= is_unsigned && lease->fruitless > 0;
  *ret_state = change.to;
  return lease_change_state(db, &change, 1, error) && (!is_over || lease_note_cancelled(db, lease->job_id, 1, error));
}

/* After the commit. It may have spent the rest of its job's budget on opening the kernel. */
static void handback_settle(struct worker *worker, const struct lease *lease, enum lease_state state) {
  bool is_spent = false;
  struct error error;
  if (lease->has_budget && !lease_settle_budget(worker, lease->job_id, &is_spent, &error))
    log_warning("lease: after a hand-back: %s", error.message);
  if (is_spent)
    jobs_advance(worker, &lease->job_id, 1);

  if (state == LEASE_OPEN) {
    lease_settle_open(worker, lease->id, lease->job_id, lease->fruitless, &lease->hardware_digest);
    return;
  }
  jobs_advance(worker, &lease->job_id, 1);
  job_announce(worker, lease->job_id);
}

void route_lease_release(struct worker *worker, struct request *request) {
  struct handback handback;
  cleanup_lease struct lease lease = {0};
  struct error error;
  if (!identity_may_hold(worker, request))
    return;
  int64_t id = identity_lease(request);
  record_init(&handback_record, &handback);
  handback.opening_us = 0;
  if (!record_read(&handback_record, request->json, "", &handback, &error)) {
    record_release(&handback_record, &handback);
    answer_failure(request, &error);
    return;
  }
  log_info("lease: handed back lease=%lld epoch=%lld reason=%.200s", (long long)id, (long long)handback.epoch,
           handback.reason ? handback.reason : "none given");

  bool is_known = false;
  enum lease_state state = LEASE_STATE_COUNT;
  bool ok = db_begin(worker->db, &error) &&
            db_end(worker->db, lease_hand_back(worker->db, id, &handback, &lease, &is_known, &state, &error), &error);
  record_release(&handback_record, &handback);
  if (!ok) {
    answer_failure(request, &error);
  } else if (!is_known) {
    lease_answer_unknown(request, id);
  } else if (state == LEASE_STATE_COUNT) {
    lease_answer_stale(worker, request, id, "");
  } else {
    handback_settle(worker, &lease, state);
    request_answer_json(request, 200, json_pack("{s:s}", "state", lease_state_name(state)));
  }
}

struct posting {
  struct request *request;
  struct results results;
  struct lease_post post;
  bool is_stored;
};

/* False: the request is answered. */
static bool posting_parse(struct request *request, struct posting *posting) {
  struct error error;
  *posting = (struct posting){.request = request};
  posting->post.lease = identity_lease(request);
  if (results_parse(request->json, &posting->results, &error))
    return true;
  request_refuse(request, 422, &error);
  return false;
}

/* Only finals name objects, so most often nothing is asked. False: the request is answered. */
static bool objects_are_stored(struct worker *worker, const struct posting *posting) {
  const struct results *results = &posting->results;
  cleanup_free struct digest *objects = xcalloc(results->n + 1, sizeof *objects);
  size_t n = 0;
  for (size_t i = 0; i < results->n; i++) {
    const struct measurement *measurement = &results->measurements[i];
    bool is_listed = !measurement->has_object;
    for (size_t k = 0; !is_listed && k < n; k++)
      is_listed = digest_equal(&objects[k], &measurement->object);
    if (!is_listed)
      objects[n++] = measurement->object;
  }
  return n == 0 || answer_missing_files(worker, posting->request, objects, n);
}

/* What one statement takes of the posts that are left: one of a lease, and no more measurements than it is good for. */
static size_t postings_choose(struct posting *postings, size_t n, struct posting **ret_chosen,
                              struct lease_post **ret_posts) {
  size_t n_chosen = 0, n_measurements = 0;
  for (size_t i = 0; i < n; i++) {
    struct posting *posting = &postings[i];
    bool fits = n_chosen == 0 || n_measurements + posting->results.n <= POST_MEASUREMENTS_MAX;
    bool is_next = !posting->is_stored && fits;
    for (size_t other = 0; is_next && other < n_chosen; other++)
      is_next = ret_posts[other]->lease != posting->post.lease;
    if (!is_next)
      continue;
    posting->post.results = &posting->results;
    n_measurements += posting->results.n;
    ret_chosen[n_chosen] = posting;
    ret_posts[n_chosen++] = &posting->post;
  }
  return n_chosen;
}

/* The posts that do not go with the first ones, and those that met another connection's, come next. False: those that are
 * not stored are to be told. */
static bool postings_store(struct worker *worker, struct posting *postings, size_t n, struct error *error) {
  cleanup_free struct lease_post **posts = xcalloc(n, sizeof *posts);
  cleanup_free struct posting **chosen = xcalloc(n, sizeof *chosen);
  size_t left = n;
  for (int vain = 0; left > 0 && vain < POST_ATTEMPTS;) {
    size_t n_posts = postings_choose(postings, n, chosen, posts), left_before = left;
    bool ok = leases_post(worker->db, posts, n_posts, error);
    if (!ok && error->kind != ERROR_CONTENTION)
      return false;
    for (size_t i = 0; ok && i < n_posts; i++)
      if (posts[i]->verdict != POST_AGAIN) {
        chosen[i]->is_stored = true;
        left--;
      }
    vain += left == left_before;
  }
  return left == 0 ||
         error_of(error, ERROR_CONTENTION, "leases are being written by several connections at once; try again");
}

/* Why the job's baseline could not be measured; NULL: it was not reported to have failed. */
static const char *baseline_failure(const struct results *results, int64_t baseline) {
  for (size_t i = 0; i < results->n; i++) {
    const struct measurement *measurement = &results->measurements[i];
    if (measurement->baseline_failure != BASELINE_WORKED && measurement->config == baseline)
      return measurement->detail;
  }
  return NULL;
}

/* What follows from stored posts: jobs fail, spend their budget, or have a stage without anything left. */
static bool postings_settle(struct worker *worker, struct posting *postings, size_t n, struct error *error) {
  cleanup_free int64_t *ended = xcalloc(2 * n, sizeof *ended);
  cleanup_free int64_t *budgeted = xcalloc(n, sizeof *budgeted);
  cleanup_free struct drift_end *ends = xcalloc(n, sizeof *ends);
  size_t n_ended = 0, n_ends = 0, n_budgeted = 0, n_done = 0;
  char one[LOG_REQUEST_SIZE]; /* where they are not a batch */
  log_get_request(one);
  for (size_t i = 0; i < n; i++) {
    const struct lease_post *post = &postings[i].post;
    const char *failure = baseline_failure(&postings[i].results, post->baseline);
    bool job_ended;
    if (post->verdict == POST_LATE && post->accepted)
      job_announce(worker, post->job);
    if (post->verdict != POST_TAKEN)
      continue;
    if (postings[i].is_stored) /* else it is answered, and gone */
      log_set_request(postings[i].request->id);
    if (failure && !job_end(worker, post->job, JOB_FAILED, failure, NULL, &job_ended, error))
      log_warning("job: cannot end job=%lld: %s", (long long)post->job, error->message);
    if (post->has_budget)
      budgeted[n_budgeted++] = post->job;
    if (!post->ended)
      continue;
    n_done += post->state == LEASE_DONE;
    ended[n_ended++] = post->job;
    ends[n_ends++] = (struct drift_end){post->lease, postings[i].results.epoch};
    if (post->state == LEASE_OPEN)
      lease_settle_open(worker, post->lease, post->job, post->fruitless, &post->hardware_digest);
  }
  log_set_request(one);
  counter_add(COUNTER_leases_done, n_done);
  drift_look(worker, ends, n_ends); /* before a job is decided from what a device measured that drifts */
  for (size_t i = 0; i < n_budgeted; i++) {
    bool is_spent;
    if (!lease_settle_budget(worker, budgeted[i], &is_spent, error))
      return false;
    if (is_spent)
      ended[n_ended++] = budgeted[i];
  }
  if (n_ended)
    jobs_advance(worker, ended, n_ended);
  return true;
}

static void posting_answer(struct worker *worker, struct posting *posting) {
  const struct lease_post *post = &posting->post;
  struct request *request = posting->request;
  char at[JSON_POINTER_SIZE];
  json_pointer_index(at, sizeof at, "/measurements", (size_t)(post->culprit < 0 ? 0 : post->culprit));
  bool is_late = post->verdict == POST_LATE && post->accepted > 0;
  const struct measurement *culprit = post->culprit < 0 ? NULL : &posting->results.measurements[post->culprit];
  switch (post->verdict) {
  case POST_UNKNOWN:
    lease_answer_unknown(request, post->lease);
    return;
  case POST_NEVER:
    lease_answer_stale(worker, request, post->lease, ", which was never granted");
    return;
  case POST_CONFLICT:
    ALWAYS(culprit != NULL);
    request_problem(request, 409, at, "seq %lld of this lease and epoch is known with another body; nothing was stored",
                    (long long)culprit->seq);
    return;
  case POST_OUTSIDE:
    ALWAYS(culprit != NULL);
    if (culprit->baseline_failure == BASELINE_FAILED && culprit->config != post->baseline) {
      request_problem(request, 422, at, "\"baseline_failed\" of config %lld; the job's baseline is config %lld",
                      (long long)culprit->config, (long long)post->baseline);
      return;
    }
    request_problem(request, 422, at, "config %lld, process %lld, round %lld is not this lease's; nothing was stored",
                    (long long)culprit->config, (long long)(culprit->process < 0 ? 0 : culprit->process),
                    (long long)(culprit->round < 0 ? 0 : culprit->round));
    return;
  case POST_AGAIN:
    die("a post without an end");
  case POST_TAKEN:
  case POST_LATE:
    break;
  }
  counter_add(is_late ? COUNTER_measurements_late : COUNTER_measurements_accepted, (uint64_t)post->accepted);
  counter_add(COUNTER_measurements_known, (uint64_t)post->known);
  if (is_late) {
    lease_answer_stale(worker, request, post->lease, ", its new measurements are kept as evidence");
    return;
  }
  /* Of another epoch than the current one this agent's part is over, whatever the lease does now. */
  enum lease_state state = post->current_epoch == posting->results.epoch ? post->state : LEASE_DONE;
  json_t *answer =
      json_pack("{s:I, s:I, s:I, s:s}", "accepted", (json_int_t)post->accepted, "late", (json_int_t)post->late, "known",
                (json_int_t)post->known, "state", lease_state_name(state));
  ALWAYS(answer != NULL);
  request_answer_json(request, 200, answer);
}

void route_lease_results(struct worker *worker, struct request **requests, size_t n) {
  cleanup_free struct posting *postings = xcalloc(n, sizeof *postings);
  struct error error;
  size_t n_postings = 0;
  n = identity_keep_leases(worker, requests, n);
  for (size_t i = 0; i < n; i++) {
    struct posting *posting = &postings[n_postings];
    if (!posting_parse(requests[i], posting))
      continue;
    if (objects_are_stored(worker, posting))
      n_postings++;
    else
      results_release(&posting->results);
  }
  if (n_postings && !postings_store(worker, postings, n_postings, &error))
    for (size_t i = 0; i < n_postings; i++) {
      if (!postings[i].is_stored && postings[i].post.verdict == POST_AGAIN)
        request_unavailable(postings[i].request, &error);
      else if (!postings[i].is_stored)
        answer_failure(postings[i].request, &error);
    }
  /* Stored is stored: what cannot follow now, the housekeeper does. */
  if (n_postings && !postings_settle(worker, postings, n_postings, &error))
    log_warning("lease: after results: %s", error.message);
  for (size_t i = 0; i < n_postings; i++) {
    if (postings[i].is_stored)
      posting_answer(worker, &postings[i]);
    results_release(&postings[i].results);
  }
}
