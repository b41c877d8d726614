/* Reading, following and cancelling jobs.
 *
 * Memory: what a handler makes lives as long as it runs. Threads: database workers. */
#include "server/http/answers.h"
#include "server/http/page.h"
#include "server/http/routes.h"
#include "server/job/job_store.h"
#include "server/job/jobs.h"
#include "server/lease/announce.h"
#include "server/measurement/measurements.h"

#define WAIT_SECONDS_MAX 60

/* False, and answered: an argument is wrong. `kernel` holds what the filter points to. */
static bool filter_read(struct request *request, struct job_filter *filter, struct digest *kernel) {
  static const char *const names[] = {"limit", "after", "state", "tag", "kernel", NULL};
  *filter = (struct job_filter){.state = request_query(request, "state"),
                                .tag = request_query(request, "tag")};
  if (!request_query_only(request, names) ||
      !page_by_id(request, INT64_MAX, &filter->limit, &filter->before))
    return false;

  const char *hash = request_query(request, "kernel");
  enum job_state state;
  struct error error;
  if (filter->state && !job_state_parse(filter->state, &state)) {
    error_set(&error, "state=\"%.40s\" is none of queued, running, done, failed and cancelled",
              filter->state);
    answer_failure(request, &error);
    return false;
  }
  if (hash && !digest_parse(hash, kernel)) {
    error_set(&error, "kernel=\"%.80s\" is no kernel hash (\"sha256:\" and 64 digits)", hash);
    answer_failure(request, &error);
    return false;
  }
  filter->kernel = hash ? kernel : NULL;
  return true;
}

void route_job_list(struct worker *worker, struct request *request) {
  struct job_filter filter;
  struct digest kernel;
  struct error error;
  json_t *items;
  int64_t next;
  if (!filter_read(request, &filter, &kernel))
    return;

  if (jobs_list(worker->db, &filter, &items, &next, &error))
    request_answer_json(request, 200, page_to_json(items, next));
  else
    answer_failure(request, &error);
}

static void absent_answer(struct request *request, int64_t job) {
  struct error error;
  error_of(&error, ERROR_MISSING, "there is no job %lld", (long long)job);
  answer_failure(request, &error);
}

/* Answers with the job's summary. */
static void summary_answer(struct worker *worker, struct request *request, int64_t job) {
  json_t *summary;
  struct error error;
  if (!job_get(worker->db, job, agent_live_ms(server_options(worker->server)), &summary, &error))
    answer_failure(request, &error);
  else if (!summary)
    absent_answer(request, job);
  else
    request_answer_json(request, 200, summary);
}

void route_job_get(struct worker *worker, struct request *request) {
  static const char *const names[] = {NULL};
  int64_t job;
  if (request_query_only(request, names) && answer_id(request, "job", &job))
    summary_answer(worker, request, job);
}

void route_job_measurements(struct worker *worker, struct request *request) {
  static const char *const names[] = {"limit", "after", NULL};
  struct error error;
  int64_t job, limit, after, next;
  json_t *items;
  bool is_known;
  if (!request_query_only(request, names) || !page_by_id(request, 0, &limit, &after) ||
      !answer_id(request, "job", &job))
    return;
  if (!job_measurements_list(worker->db, job, after, limit, &items, &next, &is_known, &error)) {
    answer_failure(request, &error);
  } else if (!is_known) {
    json_decref(items);
    absent_answer(request, job);
  } else {
    request_answer_json(request, 200, page_to_json(items, next));
  }
}

/* False, and answered: an argument is wrong. *ret_deadline_ms: until when an empty answer waits
 * for an event. */
static bool events_read(struct request *request, int64_t *ret_limit, int64_t *ret_after,
                        int64_t *ret_deadline_ms) {
  static const char *const names[] = {"limit", "after", "wait", NULL};
  if (!request_query_only(request, names) || !page_by_id(request, 0, ret_limit, ret_after))
    return false;

  const char *wait = request_query(request, "wait");
  char *end;
  double seconds = wait && *wait ? strtod(wait, &end) : 0;
  if (wait && (!*wait || *end || !(seconds >= 0 && seconds <= WAIT_SECONDS_MAX))) {
    struct error error;
    error_set(&error, "wait=\"%.40s\" must be 0 to %d seconds", wait, WAIT_SECONDS_MAX);
    answer_failure(request, &error);
    return false;
  }
  *ret_deadline_ms = request->deadline_passed ? 0 : request->arrived_ms + (int64_t)(seconds * 1000);
  return true;
}

void route_job_events(struct worker *worker, struct request *request) {
  int64_t job, limit, after, deadline_ms, last;
  json_t *items;
  struct error error;
  if (!events_read(request, &limit, &after, &deadline_ms) || !answer_id(request, "job", &job))
    return;
  if (!job_events_list(worker->db, job, after, limit, &items, &last, &error)) {
    answer_failure(request, &error);
    return;
  }
  if (!items) {
    absent_answer(request, job);
    return;
  }

  if (json_array_size(items) == 0 && clock_monotonic_ms() < deadline_ms) {
    char key[PARK_KEY_SIZE];
    json_decref(items);
    request_park(worker, request, job_park_key(job, key), deadline_ms);
    return;
  }
  cleanup_free char *next = xasprintf("%lld", (long long)last);
  request_answer_json(request, 200, json_pack("{s:o, s:s}", "items", items, "next", next));
}

void route_job_delete(struct worker *worker, struct request *request) {
  cleanup_json json_t *summary = NULL;
  struct error error;
  int64_t job;
  bool ended;
  if (!answer_id(request, "job", &job))
    return;
  if (!job_end(worker, job, JOB_CANCELLED, NULL, request_author(request), &ended, &error) ||
      !job_get(worker->db, job, agent_live_ms(server_options(worker->server)), &summary, &error)) {
    answer_failure(request, &error);
    return;
  }
  if (!summary) {
    absent_answer(request, job);
    return;
  }

  const char *state = json_string_value(json_object_get(summary, "state"));
  if (!ended && strcmp(state, job_state_name(JOB_CANCELLED)) != 0) {
    error_of(&error, ERROR_CONFLICT, "job %lld is %s already; nothing is left to cancel",
             (long long)job, state);
    answer_failure(request, &error);
    return;
  }
  request_answer_json(request, 200, TAKE(summary));
}
