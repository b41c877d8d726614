/* A granted task: spools what its runner reports, and how it ended. */
#include "agent/run/task.h"

#include <time.h>

#include "agent/run/yield.h"
#include "common/base/log.h"
#include "common/task/task_cause.h"

#define BLOB_MS 60000
#define SETTLE_STEP_MS 1

static bool record_spool(const struct granted *granted, const json_t *record) {
  struct error error;
  uint64_t number;
  bool ok = spool_append(granted->thread->agent->spool, record, &number, &error);
  if (!ok)
    log_error("%s", error.message);
  return ok;
}

/* Spools the records that were made before a look that found the device free. */
static void pending_spool(struct granted *granted) {
  int64_t clean_ns = device_clean_ns(granted->thread);
  size_t n = 0;
  while (n < granted->n_pending && granted->pending[n].made_ns < clean_ns && !granted->has_failed) {
    granted->has_failed = !record_spool(granted, granted->pending[n].record);
    json_decref(granted->pending[n++].record);
  }
  granted->n_pending -= n;
  if (n)
    memmove(granted->pending, granted->pending + n, granted->n_pending * sizeof *granted->pending);
}

bool granted_stopped(void *context) {
  struct granted *granted = context;
  struct agent *agent = granted->thread->agent;
  pending_spool(granted);
  return agent_is_stopping(agent) || granted->has_failed || device_is_yielded(granted->thread) ||
         !held_is_alive(agent->held, granted->task->lease, granted->task->epoch);
}

size_t granted_settle(struct granted *granted) {
  const struct timespec pause = {.tv_nsec = SETTLE_STEP_MS * 1000000};
  struct agent *agent = granted->thread->agent;
  if (granted->n_pending)
    agent_signal(agent, &agent->must_look);
  for (pending_spool(granted); granted->n_pending && !granted->has_failed; pending_spool(granted)) {
    if (device_is_yielded(granted->thread) ||
        !held_is_alive(agent->held, granted->task->lease, granted->task->epoch))
      break;
    nanosleep(&pause, NULL);
  }

  array_foreach (record, granted->pending, granted->n_pending)
    json_decref(record->record);
  free(TAKE(granted->pending));
  return granted->n_pending;
}

/* `object`: the file of the code that a measurement names; NULL: none. Each record has the time of
 * opening the kernel so far: the server uses the greatest that it got, in any order. */
static json_t *record_make(const struct granted *granted, const char *member, json_t *taken,
                           const char *object) {
  const struct task_grant *task = granted->task;
  int64_t opening_us = granted->thread->executor.opening_us;
  json_t *record = json_pack("{s:s, s:I, s:o, s:s*}", "lease", task->lease, "epoch",
                             (json_int_t)task->epoch, member, taken, "object_path", object);
  if (opening_us)
    json_object_set_new(record, "opening_us", json_integer(opening_us));
  return record;
}

bool granted_report(struct granted *granted, const char *member, json_t *taken,
                    const char *object) {
  *APPEND(granted->pending, granted->n_pending) =
      (struct pending_record){clock_monotonic_ns(), record_make(granted, member, taken, object)};
  pending_spool(granted);
  return !granted->has_failed;
}

bool granted_download(struct granted *granted, const char *path, const char *what, char **ret_bytes,
                      size_t *ret_size, struct error *error) {
  struct http_request request = {.method = "GET", .path = path, .timeout_ms = BLOB_MS};
  while (!granted_stopped(granted)) {
    cleanup_http_response struct http_response response = {0};
    if (http_send(granted->thread->client, &request, &response, error)) {
      if (response.status == 200) {
        *ret_bytes = TAKE(response.body);
        *ret_size = response.size;
        return true;
      }
      /* A redirect is not followed, and waiting does not change where it leads. */
      enum error_kind kind = response.status < 400 ? ERROR_MISSING : server_error_kind(&response);
      error_of(error, kind, "the server answered %d to GET %s, %s", response.status, path, what);
      if (!error_is_retryable(kind))
        return false;
    }
    log_warning("lease: lease=%s waits for %s: %s", granted->task->lease, what, error->message);
    device_wait(granted->thread, backoff_next_ms(&granted->backoff, response.retry_after_s));
  }

  return error_set(error, "the lease ended before %s was downloaded", what);
}

bool granted_end(struct granted *granted, enum lease_end end, const struct error *error) {
  if (end == LEASE_DONE) {
    cleanup_json json_t *done = record_make(granted, "done", json_true(), NULL);
    return record_spool(granted, done);
  }

  static const char *const reasons[TASK_CAUSE_COUNT] = {
      [TASK_CAUSE_SPENT] = "its device time is spent",
      [TASK_CAUSE_STOPPED] = "the agent ends",
      [TASK_CAUSE_UNSTORED] = "the agent could not store a measurement",
      [TASK_CAUSE_EXPIRED] = "the agent could not renew it in time",
  };
  const struct device_thread *thread = granted->thread;
  cleanup_free char *user = device_yield_reason(granted->thread);
  enum task_cause cause = TASK_CAUSE_EXPIRED;
  if (end == LEASE_FAILED)
    cause = granted->is_unreadable           ? TASK_CAUSE_UNREADABLE
            : error->kind == ERROR_UNTRUSTED ? TASK_CAUSE_UNSIGNED
            : thread->executor.is_suspect    ? TASK_CAUSE_DEVICE
                                             : TASK_CAUSE_FAILED;
  else if (end == LEASE_SPENT)
    cause = TASK_CAUSE_SPENT;
  else if (agent_is_stopping(thread->agent))
    cause = TASK_CAUSE_STOPPED;
  else if (device_is_yielded(granted->thread))
    cause = TASK_CAUSE_YIELDED;
  else if (granted->has_failed)
    cause = TASK_CAUSE_UNSTORED;

  const char *reason = end == LEASE_FAILED           ? error->message
                       : cause == TASK_CAUSE_YIELDED ? user
                                                     : reasons[cause];
  cleanup_json json_t *record = record_make(granted, "release", text_to_json(reason), NULL);
  json_put(record, "cause", json_string(task_cause_names[cause]));
  return record_spool(granted, record);
}
