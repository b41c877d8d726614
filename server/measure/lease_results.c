/* POST /v1/leases/{id}/results.
 *
 * Memory: a handler frees what it makes when it returns. Threads: database workers. */
#include "common/base/log.h"
#include "server/blob/blobs.h"
#include "server/counters.h"
#include "server/http/request.h"
#include "server/job/jobs.h"
#include "server/lease/shares.h"
#include "server/measure/grants.h"
#include "server/measurement/drift.h"
#include "server/measurement/leases.h"
#include "server/measurement/measurements.h"

/* Checks that the code objects which finals name are stored. False: the request has been
 * answered. */
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

/* A post of results, the lease that it is for, and what it changes. */
struct post {
  int64_t id; /* of the lease in the path */
  const struct results *results;
  struct lease lease;
  struct judgement judgement;
  struct drift_note note;
};

static void post_reset(struct post *post) {
  drift_note_release(&post->note);
  judgement_release(&post->judgement);
  lease_release(&post->lease);
}

/* Locks the lease, reads which measurements are known, judges the post and stores it. */
bool measure_answer(struct db *db, void *answer, struct error *error) {
  struct post *post = answer;
  const struct results *results = post->results;
  cleanup_free struct known_measurement *known = NULL;
  size_t n_known = 0;
  bool is_lease;
  post_reset(post);
  if (!lease_lock_for_results(db, post->id, &post->lease, &is_lease, error))
    return false;
  if (is_lease && post->lease.posts &&
      !results_known(db, post->lease.job, post->id, results, &known, &n_known, error))
    return false;

  post->judgement =
      results_judge(results, post->id, is_lease ? &post->lease : NULL, known, n_known);
  return results_store(db, &post->lease, results, &post->judgement, &post->note, error);
}

/* What follows from a post that counts: the job may fail, may have spent its budget, or may have
 * nothing left to measure in its stage. */
static bool post_settle(struct worker *worker, const struct post *post, struct error *error) {
  const struct lease *lease = &post->lease;
  const struct measure_change *change = &post->judgement.change;
  const struct measurement *failure = results_baseline_failure(post->results, lease->baseline);
  bool job_ended, ends_lease = post_ends_lease(&post->judgement);
  shares_charge(worker->db, lease->owner_id, change->device_us + change->opening_us, ends_lease);
  int64_t fruitless = change->fruitless_less ? 0 : lease->fruitless;

  struct error disagreement;
  bool disagrees =
           failure && results_baseline_disagrees(post->results, lease->baseline, &disagreement),
       is_moved = false;
  if (failure && outcome_does_not_run(failure->outcome)) {
    if (job_move_baseline(worker, lease->job, (uint64_t)lease->baseline, failure->detail, &is_moved,
                          error)) {
      fruitless = is_moved ? 0 : fruitless;
    } else {
      log_warning("job: cannot change the baseline of job=%lld: %s", (long long)lease->job,
                  error->message);
      is_moved = true; /* the next lease reports it again */
    }
  }
  if (failure && !is_moved &&
      !(disagrees ? job_end_without_winner(worker, lease->job, JOB_DONE, NULL, disagreement.message,
                                           error)
                  : job_end(worker, lease->job, failure->detail, NULL, &job_ended, error)))
    log_warning("job: cannot end job=%lld: %s", (long long)lease->job, error->message);
  if (ends_lease && change->to == LEASE_OPEN)
    lease_settle_open(worker, change->lease, lease->job, fruitless, &lease->hardware_digest);

  /* Before the job is decided from measurements of a device that drifts. */
  drift_check(worker, &post->note);

  bool is_spent = false;
  if (lease->has_budget && !lease_settle_budget(worker, lease->job, &is_spent, error))
    return false;
  if (ends_lease || is_spent)
    jobs_advance(worker, &lease->job, 1);
  return true;
}

/* A failure after the commit does not concern the agent: the housekeeper does the rest. */
void measure_settle(struct worker *worker, void *answer) {
  const struct post *post = answer;
  struct error error;
  if (post->judgement.verdict == POST_TAKEN && !post_settle(worker, post, &error))
    log_warning("lease: after results: %s", error.message);
  if (post->judgement.verdict == POST_LATE && post->judgement.n_fresh)
    job_announce(worker, post->lease.job);
}

static void post_answer(struct worker *worker, struct request *request, const struct post *post) {
  const struct judgement *judgement = &post->judgement;
  size_t n_known = post->results->measurements.n - judgement->n_fresh;
  switch (judgement->verdict) {
  case POST_UNKNOWN:
  case POST_CONFLICT:
  case POST_OUTSIDE:
    answer_failure(request, &judgement->refusal);
    return;
  case POST_NEVER:
    lease_answer_stale(worker, request, post->id, ", which was never granted");
    return;
  case POST_TAKEN:
  case POST_LATE:
    break;
  }

  counter_add(judgement->verdict == POST_LATE ? COUNTER_measurements_late
                                              : COUNTER_measurements_accepted,
              judgement->n_fresh);
  counter_add(COUNTER_measurements_known, n_known);
  if (judgement->is_refused) {
    lease_answer_stale(worker, request, post->id, ", its new measurements are kept as evidence");
    return;
  }

  /* For the holder of an earlier epoch the lease is done, whatever its state is now. */
  enum lease_state state = post->lease.epoch != post->results->epoch ? LEASE_DONE
                           : judgement->is_change                    ? judgement->change.to
                                                                     : post->lease.state;
  json_t *answer = json_pack("{s:I, s:I, s:I, s:s}", "accepted", (json_int_t)judgement->n_fresh,
                             "late", (json_int_t)judgement->n_late, "known", (json_int_t)n_known,
                             "state", lease_state_name(state));
  ALWAYS(answer != NULL);
  request_answer_json(request, 200, answer);
}

void measure_results(struct worker *worker, struct request *request, int64_t lease) {
  cleanup_results struct results results = {0};
  struct error error;
  if (!results_parse(request->json, &results, &error)) {
    answer_failure(request, &error);
    return;
  }
  if (!objects_are_stored(worker, request, &results))
    return;

  struct post post = {.id = lease, .results = &results};
  if (lease_answer(worker, &measure_kind, &post, &error))
    post_answer(worker, request, &post);
  else
    answer_failure(request, &error);
  post_reset(&post);
}
