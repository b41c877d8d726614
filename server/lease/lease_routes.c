/* Leases: pull work, keep it, post what was measured, hand it back. Requests that came together are served together.
 *
 * Memory: what a handler makes lives as long as it runs. Threads: database workers. */
#include "common/base/log.h"
#include "common/campaign/campaign.h"
#include "server/agent/drift.h"
#include "server/agent/identity.h"
#include "server/blob/blobs.h"
#include "server/counters.h"
#include "server/http/answers.h"
#include "server/http/routes.h"
#include "server/job/jobs.h"
#include "server/lease/lease_id.h"
#include "server/lease/lease_plan.h"
#include "server/lease/leases.h"

#define WAIT_SECONDS_MAX 60
#define NONCE_MAX 128
#define RENEWALS_PER_LEASE 3
#define POST_ATTEMPTS 8
#define POST_MEASUREMENTS_MAX 2000 /* of one statement, which compares new with known ones */

struct pull {
  struct request *request;
  struct lease_wish wish;
  int64_t deadline_ms;
};

static bool text_get(const json_t *json, const char *name, const char **ret, struct error *error) {
  char at[JSON_POINTER_SIZE];
  if (!json_get_string(json, "", name, JSON_REQUIRED, ret, error))
    return false;
  if (!**ret || strlen(*ret) > NONCE_MAX * 2)
    return error_at(error, json_pointer_member(at, sizeof at, "", name), "\"%s\" has %zu bytes; it must have 1 to %d",
                    name, strlen(*ret), NONCE_MAX * 2);
  return true;
}

/* False: the request is answered. */
static bool pull_parse(struct request *request, struct pull *pull) {
  static const char *const members[] = {"agent", "device", "nonce", "wait", NULL};
  struct error error;
  double wait = 0;
  const json_t *json = request->json;
  *pull = (struct pull){.request = request, .wish.token = request->token_id};
  if (!json_only_members(json, "", members, &error) || !text_get(json, "agent", &pull->wish.agent, &error) ||
      !text_get(json, "device", &pull->wish.device, &error) || !text_get(json, "nonce", &pull->wish.nonce, &error) ||
      !json_get_number(json, "", "wait", JSON_NOT_NULL, &wait, &error)) {
    request_refuse(request, 422, &error);
    return false;
  }
  if (!(wait >= 0 && wait <= WAIT_SECONDS_MAX)) {
    request_problem(request, 422, "/wait", "\"wait\" is %g; it must be 0 to %d seconds", wait, WAIT_SECONDS_MAX);
    return false;
  }
  if (request->is_parked_before && !request_client_is_there(request)) {
    request_answer_empty(request, 204); /* to nobody: its lease would be lost */
    return false;
  }
  pull->deadline_ms = request->deadline_passed ? 0 : request->arrived_ms + (int64_t)(wait * 1000);
  return true;
}

static void ranges_write(FILE *out, const struct config_ranges *ranges) {
  fputc('[', out);
  for (size_t i = 0; i < ranges->n; i++)
    fprintf(out, "%s[%llu,%llu]", i ? "," : "", (unsigned long long)ranges->ranges[i].first,
            (unsigned long long)ranges->ranges[i].count);
  fputc(']', out);
}

/* Those of the job's that are the lease's. */
static void likely_write(FILE *out, const struct lease_wish *wish, const struct lease_job *job) {
  bool is_any = false;
  fputs("\"likely\":[", out);
  for (size_t i = 0; i < job->n_likely && wish->stage != STAGE_FINAL; i++)
    if (config_ranges_hold(&wish->configs, job->likely[i])) {
      fprintf(out, "%s%llu", is_any ? "," : "", (unsigned long long)job->likely[i]);
      is_any = true;
    }
  fputs("],", out);
}

/* Its share, by its configs, of what its stage may still spend of the job's budget. Opening the kernel is
 * taken from the stage's rest, as a device opens it once for many leases; in a final each process opens
 * it, and pays for it alone. */
static void bounds_write(FILE *out, const struct lease_wish *wish, const struct lease_job *job) {
  char ratio[FLOAT_TEXT_SIZE];
  fprintf(out, "\"best_ratio\":%s,", job->best_ratio > 0 ? float_format(job->best_ratio, ratio) : "null");
  if (job->budget.total_us == 0) {
    fputs("\"device_us\":null,\"budget_us\":null,", out);
    return;
  }
  int64_t left_us = wish->stage == STAGE_FINAL
                        ? budget_process_us(&job->budget, 1)
                        : budget_screen_left_us(&job->budget, final_processes(job->final_devices));
  double share = (double)config_ranges_count(&wish->configs) / (double)(job->configs_left ? job->configs_left : 1);
  int64_t device_us = (int64_t)((double)left_us * (share < 1 ? share : 1));
  int64_t budget_us = wish->stage == STAGE_FINAL ? device_us : left_us;
  fprintf(out, "\"device_us\":%lld,\"budget_us\":%lld,", (long long)(device_us > 0 ? device_us : 1),
          (long long)(budget_us > 0 ? budget_us : 1));
}

/* Who may lose a tail asks often whether it did. */
static int64_t renew_every_ms(const struct worker *worker, const struct lease_wish *wish) {
  int64_t every_ms = server_options(worker->server)->lease_ms / RENEWALS_PER_LEASE;
  return wish->may_be_split && every_ms > RENEW_SPLITTABLE_MS ? RENEW_SPLITTABLE_MS : every_ms;
}

/* Written as text: manifest, key and space are stored as such, and their order means something. */
static void lease_answer(struct worker *worker, const struct pull *pull, const struct lease_job *job) {
  const struct lease_wish *wish = &pull->wish;
  char *text = NULL, id[LEASE_ID_SIZE];
  size_t size;
  FILE *out = open_memstream(&text, &size);
  ALWAYS(out != NULL);
  lease_id_format(server_lease_secret(worker->server), wish->lease, wish->epoch, pull->request->token_agent, id);
  fprintf(
      out,
      "{\"lease\":\"%s\",\"epoch\":%lld,\"job\":\"%lld\",\"kernel\":\"%s\",\"manifest\":%s,\"key\":%s,\"space\":%s,",
      id, (long long)wish->epoch, (long long)wish->job, job->kernel, job->manifest, job->key, job->space);
  fprintf(out, job->build ? "\"build\":\"%s\",\"configs\":" : "\"build\":null,\"configs\":", job->build);
  ranges_write(out, &wish->configs);
  fputc(',', out);
  if (wish->wants_signatures)
    fprintf(out, "\"signatures\":%s,\"build_signatures\":%s,", job->signatures,
            job->build_signatures ? job->build_signatures : "[]");
  likely_write(out, wish, job);
  bounds_write(out, wish, job);
  fprintf(out,
          "\"baseline\":%lld,\"stage\":\"%s\",\"round\":%lld,\"process\":%lld,\"seed\":%lld,\"regime\":\"%s\","
          "\"expires_in_ms\":%lld,\"renew_every_ms\":%lld}",
          (long long)job->baseline, stage_name(wish->stage), (long long)wish->round, (long long)wish->process,
          (long long)job->seed, job->regime, (long long)wish->expires_in_ms, (long long)renew_every_ms(worker, wish));
  ALWAYS(fclose(out) == 0);
  request_answer_text(pull->request, 200, "application/json", text, size);
}

static void no_lease_answer(struct worker *worker, struct pull *pull) {
  const struct lease_wish *wish = &pull->wish;
  char key[PARK_KEY_SIZE];
  if (!wish->agent_known)
    request_problem(pull->request, 404, "/agent", "agent \"%.40s\" is not enrolled; enrol it with POST /v1/agents",
                    wish->agent);
  else if (!wish->device_known)
    request_problem(pull->request, 404, "/device", "agent \"%.40s\" has no device \"%.40s\"; enrol it with its devices",
                    wish->agent, wish->device);
  else if (wish->drain_reason && wish->only_device_drains)
    request_problem(pull->request, 403, "/device",
                    "device \"%.40s\" is drained and gets no leases until an admin resumes it: %.300s", wish->device,
                    wish->drain_reason);
  else if (wish->drain_reason)
    request_problem(pull->request, 403, "/agent", "agent \"%.40s\" is drained and gets no leases: %.300s", wish->agent,
                    wish->drain_reason);
  else if (clock_monotonic_ms() >= pull->deadline_ms)
    request_answer_empty(pull->request, 204);
  else
    request_park(worker, pull->request, lease_park_key(&wish->hardware_digest, wish->wants_signatures, key),
                 pull->deadline_ms);
}

static const struct lease_job *job_find(const struct lease_job *jobs, size_t n, int64_t id) {
  for (size_t i = 0; i < n; i++)
    if (jobs[i].id == id)
      return &jobs[i];
  die("a lease without a job");
}

/* The same nonce twice in one batch: both get the lease. */
static void duplicates_join(struct pull *pulls, size_t n) {
  for (size_t i = 0; i < n; i++)
    for (size_t other = 0; pulls[i].wish.lease == 0 && other < n; other++) {
      const struct lease_wish *twin = &pulls[other].wish;
      struct lease_wish *wish = &pulls[i].wish;
      if (!twin->lease || strcmp(twin->nonce, wish->nonce) != 0 || strcmp(twin->agent, wish->agent) != 0 ||
          strcmp(twin->device, wish->device) != 0)
        continue;
      char *drain_reason = wish->drain_reason;
      *wish = *twin;
      wish->drain_reason = drain_reason;
      wish->configs = (struct config_ranges){.n = twin->configs.n, .capacity = twin->configs.n};
      wish->configs.ranges = xmemdup(twin->configs.ranges, twin->configs.n * sizeof *twin->configs.ranges);
    }
}

/* Marks jobs as running whose first lease this is. What fails here is made good by the next grant or advance. */
static void granted_start(struct worker *worker, const struct lease_job *jobs, size_t n) {
  struct error error;
  cleanup_free int64_t *queued = xcalloc(n + 1, sizeof *queued);
  size_t n_queued = 0;
  for (size_t i = 0; i < n; i++)
    if (jobs[i].state == JOB_QUEUED)
      queued[n_queued++] = jobs[i].id;
  if (n_queued && !jobs_start(worker, queued, n_queued, &error))
    log_warning("job: cannot mark as running: %s", error.message);
}

static bool pulls_serve(struct worker *worker, struct pull *pulls, size_t n, struct error *error) {
  cleanup_free struct lease_wish **wishes = xcalloc(n + 1, sizeof *wishes);
  cleanup_free int64_t *granted = xcalloc(n + 1, sizeof *granted);
  size_t n_granted = 0, n_jobs = 0;
  bool with_signatures = false;
  struct lease_job *jobs = NULL;
  for (size_t i = 0; i < n; i++)
    wishes[i] = &pulls[i].wish;
  if (!leases_grant(worker->db, wishes, n, server_options(worker->server)->lease_ms, error))
    return false;
  leases_take_tails(worker, wishes, n);
  for (size_t i = 0; i < n; i++)
    if (pulls[i].wish.lease) {
      granted[n_granted++] = pulls[i].wish.job;
      with_signatures |= pulls[i].wish.wants_signatures;
    }
  if (n_granted && !leases_jobs(worker->db, granted, n_granted, with_signatures, &jobs, &n_jobs, error))
    return false;
  leases_choose_likely(worker, wishes, n, jobs, n_jobs);
  duplicates_join(pulls, n);
  granted_start(worker, jobs, n_jobs);
  counter_add(COUNTER_leases_granted, n_granted);
  for (size_t i = 0; i < n; i++) {
    if (pulls[i].wish.lease)
      lease_answer(worker, &pulls[i], job_find(jobs, n_jobs, pulls[i].wish.job));
    else
      no_lease_answer(worker, &pulls[i]);
  }
  lease_jobs_free(jobs, n_jobs);
  return true;
}

void route_lease_post(struct worker *worker, struct request **requests, size_t n) {
  cleanup_free struct pull *pulls = xcalloc(n, sizeof *pulls);
  struct error error;
  size_t n_pulls = 0;
  n = identity_keep_agents(worker, requests, n);
  for (size_t i = 0; i < n; i++)
    if (pull_parse(requests[i], &pulls[n_pulls]))
      n_pulls++;
  if (n_pulls && !pulls_serve(worker, pulls, n_pulls, &error))
    for (size_t i = 0; i < n_pulls; i++)
      answer_failure(pulls[i].request, &error);
  for (size_t i = 0; i < n_pulls; i++)
    lease_wish_release(&pulls[i].wish);
}

/* What remains the lease's is told when some of it was given away. */
static void renewed_answer(struct request *request, const struct lease_renewal *renewal, int64_t lease_ms) {
  json_t *answer = json_pack("{s:I}", "expires_in_ms", (json_int_t)lease_ms);
  if (renewal->is_split)
    ALWAYS(json_object_set_new(answer, "configs", config_ranges_to_json(&renewal->remaining)) == 0);
  request_answer_json(request, 200, answer);
}

/* The epoch is told to who holds the lease now, and null to others: agents of before know a lost lease by the member. */
static void stale_answer(struct worker *worker, struct request *request, int64_t lease, const char *what) {
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
  request_problem_extra(request, 409, &error,
                        json_pack("{s:o}", "epoch", epoch ? json_integer((json_int_t)epoch) : json_null()));
}

static void unknown_answer(struct request *request, int64_t lease) {
  request_problem(request, 404, "", "there is no lease %lld", (long long)lease);
}

/* False: the request is answered. */
static bool renewal_parse(struct request *request, struct lease_renewal *renewal) {
  static const char *const members[] = {"epoch", "config", NULL};
  struct error error;
  *renewal = (struct lease_renewal){.config = -1};
  renewal->lease = identity_lease(request);
  if (json_only_members(request->json, "", members, &error) &&
      json_get_integer(request->json, "", "epoch", JSON_REQUIRED, 1, INT64_MAX, &renewal->epoch, &error) &&
      json_get_integer(request->json, "", "config", JSON_OPTIONAL, 0, INT64_MAX - 1, &renewal->config, &error))
    return true;
  request_refuse(request, 422, &error);
  return false;
}

void route_lease_renew(struct worker *worker, struct request **requests, size_t n) {
  cleanup_free struct lease_renewal *all = xcalloc(n, sizeof *all);
  cleanup_free struct lease_renewal **renewals = xcalloc(n, sizeof *renewals);
  cleanup_free struct request **askers = xcalloc(n, sizeof *askers);
  struct error error;
  size_t n_renewals = 0, n_renewed = 0;
  int64_t lease_ms = server_options(worker->server)->lease_ms;
  n = identity_keep_leases(worker, requests, n);
  for (size_t i = 0; i < n; i++)
    if (renewal_parse(requests[i], &all[i])) {
      askers[n_renewals] = requests[i];
      renewals[n_renewals++] = &all[i];
    }
  bool ok = n_renewals == 0 || leases_renew(worker->db, renewals, n_renewals, lease_ms, &error);
  for (size_t i = 0; i < n_renewals; i++) {
    if (!ok)
      answer_failure(askers[i], &error);
    else if (!renewals[i]->known)
      unknown_answer(askers[i], renewals[i]->lease);
    else if (!renewals[i]->renewed)
      stale_answer(worker, askers[i], renewals[i]->lease, "");
    else
      renewed_answer(askers[i], renewals[i], lease_ms);
    n_renewed += ok && renewals[i]->renewed;
    config_ranges_release(&renewals[i]->remaining);
  }
  counter_add(COUNTER_leases_renewed, n_renewed);
}

/* A lease came back open with something left: it is given up after too many vain grants, else somebody is woken. */
static void opened_settle(struct worker *worker, int64_t lease, int64_t job, int64_t fruitless,
                          const struct digest *hardware_digest) {
  struct error error;
  bool given_up = false;
  if (!lease_check_fruitless(worker, lease, fruitless, &given_up, &error))
    log_warning("lease: cannot give up lease=%lld: %s", (long long)lease, error.message);
  if (given_up)
    jobs_advance(worker, &job, 1);
  else
    leases_announce(worker, hardware_digest, 1);
  job_announce(worker, job);
}

/* Those of `jobs` that have spent what their budget leaves the screen lose its open leases, and are added
 * to `ended`. */
static bool budgets_settle(struct worker *worker, const int64_t *jobs, size_t n, int64_t *ended, size_t *n_ended,
                           struct error *error) {
  cleanup_free int64_t *over = NULL;
  size_t n_over = 0;
  if (n && !leases_cancel_over_budget(worker->db, jobs, n, &over, &n_over, error))
    return false;
  for (size_t i = 0; i < n_over; i++) {
    job_announce(worker, over[i]);
    ended[(*n_ended)++] = over[i];
  }
  return true;
}

/* A lease that is handed back may have spent the rest of its job's budget on opening the kernel. */
static bool handbacks_settle_budgets(struct worker *worker, struct lease_handback *const *handbacks, size_t n,
                                     struct error *error) {
  cleanup_free int64_t *budgeted = xcalloc(n + 1, sizeof *budgeted);
  cleanup_free int64_t *ended = xcalloc(n + 1, sizeof *ended);
  size_t n_budgeted = 0, n_ended = 0;
  for (size_t i = 0; i < n; i++)
    if (handbacks[i]->done && handbacks[i]->has_budget)
      budgeted[n_budgeted++] = handbacks[i]->job;
  if (!budgets_settle(worker, budgeted, n_budgeted, ended, &n_ended, error))
    return false;
  if (n_ended)
    jobs_advance(worker, ended, n_ended);
  return true;
}

static void handback_settle(struct worker *worker, const struct lease_handback *handback) {
  if (handback->state == LEASE_OPEN) {
    opened_settle(worker, handback->lease, handback->job, handback->fruitless, &handback->hardware_digest);
    return;
  }
  jobs_advance(worker, &handback->job, 1);
  job_announce(worker, handback->job);
}

/* False: the request is answered. */
static bool handback_parse(struct request *request, struct lease_handback *handback) {
  static const char *const members[] = {"epoch", "reason", "opening_us", NULL};
  struct error error;
  const char *reason = NULL;
  *handback = (struct lease_handback){0};
  handback->lease = identity_lease(request);
  if (!json_only_members(request->json, "", members, &error) ||
      !json_get_integer(request->json, "", "epoch", JSON_REQUIRED, 1, INT64_MAX, &handback->epoch, &error) ||
      !json_get_string(request->json, "", "reason", JSON_OPTIONAL, &reason, &error) ||
      !json_get_integer(request->json, "", "opening_us", JSON_NOT_NULL, 0, OPENING_US_MAX, &handback->opening_us,
                        &error)) {
    request_refuse(request, 422, &error);
    return false;
  }
  log_set_request(request->id);
  log_info("lease: handed back lease=%lld epoch=%lld reason=%.200s", (long long)handback->lease,
           (long long)handback->epoch, reason ? reason : "none given");
  handback->is_spent = string_equal(reason, RELEASE_REASON_SPENT);
  handback->is_unsigned = reason && string_starts(reason, RELEASE_REASON_UNSIGNED);
  return true;
}

void route_lease_release(struct worker *worker, struct request **requests, size_t n) {
  cleanup_free struct lease_handback *all = xcalloc(n, sizeof *all);
  cleanup_free struct lease_handback **handbacks = xcalloc(n, sizeof *handbacks);
  cleanup_free struct request **askers = xcalloc(n, sizeof *askers);
  struct error error;
  size_t count = 0;
  n = identity_keep_leases(worker, requests, n);
  for (size_t i = 0; i < n; i++)
    if (handback_parse(requests[i], &all[i])) {
      askers[count] = requests[i];
      handbacks[count++] = &all[i];
    }
  bool ok = count == 0 || leases_release(worker->db, handbacks, count, &error);
  if (ok && !handbacks_settle_budgets(worker, handbacks, count, &error))
    log_warning("lease: after a hand-back: %s", error.message);
  for (size_t i = 0; i < count; i++) {
    const struct lease_handback *handback = handbacks[i];
    if (!ok)
      answer_failure(askers[i], &error);
    else if (!handback->known)
      unknown_answer(askers[i], handback->lease);
    else if (!handback->done)
      stale_answer(worker, askers[i], handback->lease, "");
    else {
      log_set_request(askers[i]->id);
      handback_settle(worker, handback);
      request_answer_json(askers[i], 200, json_pack("{s:s}", "state", lease_state_name(handback->state)));
    }
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
      opened_settle(worker, post->lease, post->job, post->fruitless, &post->hardware_digest);
  }
  log_set_request(one);
  counter_add(COUNTER_leases_done, n_done);
  drift_look(worker, ends, n_ends); /* before a job is decided from what a device measured that drifts */
  if (!budgets_settle(worker, budgeted, n_budgeted, ended, &n_ended, error))
    return false;
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
    unknown_answer(request, post->lease);
    return;
  case POST_NEVER:
    stale_answer(worker, request, post->lease, ", which was never granted");
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
    stale_answer(worker, request, post->lease, ", its new measurements are kept as evidence");
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
