/* POST /v1/leases/{id}/results.
 *
 * Memory: what a handler makes lives as long as it runs. Threads: database workers. */
#include "common/base/log.h"
#include "server/blob/blobs.h"
#include "server/counters.h"
#include "server/http/request.h"
#include "server/job/jobs.h"
#include "server/lease/grant/grants.h"
#include "server/lease/identity.h"
#include "server/lease/lease.h"
#include "server/measurement/drift.h"
#include "server/measurement/measurements.h"

#define POST_ATTEMPTS 8 /* after conflicts with other transactions */

/* Checks that the code objects which finals name are stored. False: the request is answered. */
static bool objects_are_stored(struct worker *worker, struct request *request,
                               const struct results *results) {
  cleanup_free struct digest *objects = xcalloc(results->measurements.n + 1, sizeof *objects);
  size_t n = 0;
  for (size_t i = 0; i < results->measurements.n; i++) {
    const struct digest *object = &RESULTS_MEASUREMENT(results, i)->object;
    bool is_listed = digest_is_none(object);
    for (size_t k = 0; !is_listed && k < n; k++)
      is_listed = digest_equal(&objects[k], object);
    if (!is_listed)
      objects[n++] = *object;
  }
  return n == 0 || answer_missing_files(worker, request, objects, n);
}

/* In one transaction: locks the lease, reads which measurements are known, judges the post and
 * stores it. */
static bool post_store(struct db *db, int64_t id, const struct results *results,
                       struct posted_lease *lease, struct judgement *judgement,
                       struct drift_note *note, struct error *error) {
  cleanup_free struct known_measurement *known = NULL;
  size_t n_known = 0;
  bool is_lease;
  if (!db_begin(db, error))
    return false;

  bool is_good = posted_lease_lock(db, id, lease, &is_lease, error);
  if (is_good && is_lease && lease->posts)
    is_good = results_known(db, id, results, &known, &n_known, error);
  if (is_good)
    *judgement = results_judge(results, id, is_lease ? lease : NULL, known, n_known);
  is_good = is_good && results_store(db, lease, results, judgement, note, error);
  return db_end(db, is_good, error);
}

/* What follows from a post that counts: the job may fail, may have spent its budget, or may have
 * nothing left to measure in its stage. */
static bool post_settle(struct worker *worker, const struct results *results,
                        const struct posted_lease *lease, const struct judgement *judgement,
                        const struct drift_note *note, struct error *error) {
  const struct lease_change *change = &judgement->change;
  const char *failure = results_baseline_failure(results, lease->baseline);
  bool job_ended;
  int64_t fruitless = change->fruitless_less ? 0 : lease->fruitless;

  if (failure && !job_end(worker, lease->job, JOB_FAILED, failure, NULL, &job_ended, error))
    log_warning("job: cannot end job=%lld: %s", (long long)lease->job, error->message);
  if (post_ends_lease(judgement) && change->to == LEASE_OPEN)
    lease_settle_open(worker, change->lease, lease->job, fruitless, &lease->hardware_digest);
  drift_check(worker, note); /* before the job is decided from what a device measured that drifts */

  bool is_spent = false;
  if (lease->has_budget && !lease_settle_budget(worker, lease->job, &is_spent, error))
    return false;
  if (post_ends_lease(judgement) || is_spent)
    jobs_advance(worker, &lease->job, 1);
  return true;
}

static void post_answer(struct worker *worker, struct request *request,
                        const struct results *results, const struct posted_lease *lease,
                        const struct judgement *judgement) {
  int64_t id = identity_lease(request);
  size_t n_known = results->measurements.n - judgement->n_fresh;
  bool is_late = judgement->verdict == POST_LATE && judgement->n_fresh > 0;
  switch (judgement->verdict) {
  case POST_UNKNOWN:
  case POST_CONFLICT:
  case POST_OUTSIDE:
    answer_failure(request, &judgement->refusal);
    return;
  case POST_NEVER:
    lease_answer_stale(worker, request, id, ", which was never granted");
    return;
  case POST_TAKEN:
  case POST_LATE:
    break;
  }

  counter_add(is_late ? COUNTER_measurements_late : COUNTER_measurements_accepted,
              judgement->n_fresh);
  counter_add(COUNTER_measurements_known, n_known);
  if (is_late) {
    lease_answer_stale(worker, request, id, ", its new measurements are kept as evidence");
    return;
  }

  /* For the holder of an earlier epoch the lease is done, whatever its state is now. */
  enum lease_state state = lease->epoch != results->epoch ? LEASE_DONE
                           : judgement->is_change         ? judgement->change.to
                                                          : lease->state;
  json_t *answer = json_pack("{s:I, s:I, s:I, s:s}", "accepted", (json_int_t)judgement->n_fresh,
                             "late", (json_int_t)judgement->n_late, "known", (json_int_t)n_known,
                             "state", lease_state_name(state));
  ALWAYS(answer != NULL);
  request_answer_json(request, 200, answer);
}

void route_lease_results(struct worker *worker, struct request *request) {
  cleanup_results struct results results = {0};
  struct posted_lease lease;
  struct judgement judgement = {0};
  cleanup_drift_note struct drift_note note = {0};
  struct error error;
  if (!identity_may_hold(worker, request))
    return;
  if (!results_parse(request->json, &results, &error)) {
    answer_failure(request, &error);
    return;
  }
  if (!objects_are_stored(worker, request, &results))
    return;

  posted_lease_init(&lease);
  bool is_stored =
      post_store(worker->db, identity_lease(request), &results, &lease, &judgement, &note, &error);
  for (int attempt = 1; !is_stored && error.kind == ERROR_CONTENTION && attempt < POST_ATTEMPTS;
       attempt++) {
    drift_note_release(&note);
    judgement_release(&judgement);
    posted_lease_release(&lease);
    posted_lease_init(&lease);
    is_stored = post_store(worker->db, identity_lease(request), &results, &lease, &judgement, &note,
                           &error);
  }

  if (!is_stored) {
    answer_failure(request, &error);
  } else {
    /* A failure after the commit is not the agent's: the housekeeper does the rest. */
    if (judgement.verdict == POST_TAKEN &&
        !post_settle(worker, &results, &lease, &judgement, &note, &error))
      log_warning("lease: after results: %s", error.message);
    if (judgement.verdict == POST_LATE && judgement.n_fresh)
      job_announce(worker, lease.job);
    post_answer(worker, request, &results, &lease, &judgement);
  }
  judgement_release(&judgement);
  posted_lease_release(&lease);
}
