/* One device's thread: requests a task, and lets its runner work at it. */
#include "agent/run/device_thread.h"

#include <time.h>

#include "agent/run/task.h"
#include "agent/run/yield.h"
#include "common/base/log.h"

#define LEASE_WAIT_S 20
#define LEASE_ANSWER_MS 15000 /* beyond the wait */
#define IDLE_LEAST_MS 1000    /* between two requests for leases without result */
#define BACKOFF_LEAST_MS 250
#define BACKOFF_MOST_MS 10000
/* after a lease without a measurement: it had ended, or all its configs had been given away */
#define EMPTY_LEAST_MS 20
#define EMPTY_MOST_MS 10000
/* after a lease that could not be executed: another agent may be able to execute it */
#define FAILED_LEAST_MS 1000
#define FAILED_MOST_MS 60000
#define QUARANTINE_LEAST_MS 1000
#define QUARANTINE_MOST_MS 60000

/* Executes a lease. False: it could not be executed here, or its end not be spooled.
 * *ret_n_measured: configs, in either case. */
static bool lease_granted(struct device_thread *thread, const json_t *json, int64_t requested_ms,
                          size_t *ret_n_measured) {
  struct agent *agent = thread->agent;
  struct task_grant task = {0};
  struct error error;
  *ret_n_measured = 0;
  if (!record_read_answer(&task_grant_record, json, "", &task, &error)) {
    log_error("lease: the server granted an invalid lease: %s", error.message);
    record_release(&task_grant_record, &task);
    return false;
  }

  struct granted granted = {
      .thread = thread, .task = &task, .backoff = backoff_new(BACKOFF_LEAST_MS, BACKOFF_MOST_MS)};
  held_add(agent->held, &(struct held_grant){.lease = task.lease,
                                             .epoch = task.epoch,
                                             .requested_ms = requested_ms,
                                             .expires_in_ms = task.expires_in_ms,
                                             .renew_every_ms = task.renew_every_ms,
                                             .current = &thread->executor.current});
  agent_signal(agent, &agent->must_renew);
  thread->executor.opening_us = 0; /* this lease may end before it is executed */
  enum lease_end end = task_run(&granted, json, &error);

  /* What failed since another process came may have failed because of it. */
  size_t n_dropped = granted_settle(&granted);
  bool is_whole = (end == LEASE_DONE || end == LEASE_SPENT) && !n_dropped && !granted.has_failed;
  if (!is_whole && (device_is_yielded(thread) || n_dropped || granted.has_failed)) {
    end = LEASE_STOPPED;
    thread->executor.is_suspect = thread->executor.is_suspect && !device_is_yielded(thread);
  }
  if (n_dropped)
    log_info("lease: lease=%s epoch=%lld: %zu measurements are thrown away: since the last look "
             "that found %s free",
             task.lease, (long long)task.epoch, n_dropped, thread->executor.device);
  granted.n_measured -= n_dropped;

  if (end == LEASE_FAILED)
    log_error("lease: failed lease=%s epoch=%lld: %s", task.lease, (long long)task.epoch,
              error.message);
  else
    log_info("lease: %s lease=%s epoch=%lld measured=%zu",
             end == LEASE_DONE    ? "done"
             : end == LEASE_SPENT ? "spent"
                                  : "stopped",
             task.lease, (long long)task.epoch, granted.n_measured);
  *ret_n_measured = granted.n_measured;
  bool is_spooled = granted_end(&granted, end, &error);
  held_end(agent->held, task.lease, task.epoch);
  if (!is_spooled)
    held_drop(agent->held, task.lease, task.epoch); /* it expires */
  agent_signal(agent, &agent->must_post);
  record_release(&task_grant_record, &task);

  return is_spooled && end != LEASE_FAILED;
}

static void leases_count(struct agent *agent, int change) {
  HOLD(&agent->mutex);
  agent->n_leases += (size_t)change;
  agent->worked_ms = clock_monotonic_ms();
}

/* Ends an agent after --idle-exit without work. */
static void idle_end(struct agent *agent) {
  int64_t exit_s = option_integer(agent->options, "idle-exit"), now_ms = clock_monotonic_ms();
  pthread_mutex_lock(&agent->mutex);
  bool is_idle = agent->n_leases == 0 && exit_s && now_ms - agent->worked_ms >= exit_s * 1000;
  pthread_mutex_unlock(&agent->mutex);
  if (!is_idle || !spool_is_empty(agent->spool))
    return;
  log_info("agent: no work for %lld s; it ends", (long long)exit_s);
  agent_stop(agent);
}

static bool device_stopped(void *context) {
  struct device_thread *thread = context;
  return agent_is_stopping(thread->agent) || device_is_yielded(thread);
}

/* Waits until the device passes its sentinel in a fresh worker; no lease is requested meanwhile. */
static void device_quarantine(struct device_thread *thread) {
  struct agent *agent = thread->agent;
  struct backoff backoff = backoff_new(QUARANTINE_LEAST_MS, QUARANTINE_MOST_MS);
  struct error error;

  for (int tries = 1; !device_stopped(thread); tries++) {
    if (executor_sentinel(&thread->executor, device_stopped, thread, &error)) {
      log_info("device: %s passed its sentinel at try %d; it works again", thread->executor.device,
               tries);
      thread->executor.is_suspect = false;
      return;
    }
    if (device_stopped(thread))
      return;
    log_error("device: %s is in quarantine after try %d: %s", thread->executor.device, tries,
              error.message);
    idle_end(agent);
    device_wait(thread, backoff_next_ms(&backoff, 0));
  }
}

struct requesting {
  char nonce[33]; /* sent again if an answer may be lost: the server then grants the same lease */
  struct backoff backoff, failed, empty;
};

/* Requests a lease, and executes it. */
static void device_step(struct device_thread *thread, struct requesting *requesting) {
  struct agent *agent = thread->agent;
  cleanup_free char *id = agent_id(agent);
  int64_t began_ms = clock_monotonic_ms(), requested_ms = held_clock_ms();
  int64_t idle_s = option_integer(agent->options, "idle-exit");
  int64_t wait_s = idle_s && idle_s < LEASE_WAIT_S ? idle_s : LEASE_WAIT_S;
  cleanup_json json_t *body =
      json_pack("{s:s, s:s, s:s, s:I}", "agent", id, "device", thread->executor.device, "nonce",
                requesting->nonce, "wait", (json_int_t)wait_s);
  cleanup_server_answer struct server_answer answer =
      server_ask(thread->client, "POST", "/v1/leases", body, wait_s * 1000 + LEASE_ANSWER_MS);

  if (!answer.is_ok) {
    if (device_stopped(thread))
      return;
    log_warning("lease: %s gets no lease: %s", thread->executor.device, answer.error.message);
    if (answer_is(&answer, ERROR_MISSING)) {
      agent_signal(agent, &agent->must_enrol);
      agent_signal(agent, &agent->must_renew);
    }
    if (!answer_is_for_later(&answer))
      random_hex(requesting->nonce, 16);
    device_wait(thread, backoff_next_ms(&requesting->backoff, answer.retry_after_s));
    return;
  }

  backoff_reset(&requesting->backoff);
  random_hex(requesting->nonce, 16);
  if (!answer.json) { /* there is no work */
    executor_drop_workers(&thread->executor);
    idle_end(agent);
    int64_t left_ms = IDLE_LEAST_MS - (clock_monotonic_ms() - began_ms);
    if (left_ms > 0)
      device_wait(thread, left_ms);
    return;
  }

  thread->n_leases++;
  thread->asking_ms += clock_monotonic_ms() - began_ms;
  leases_count(agent, 1);
  size_t n_measured;
  bool ok = lease_granted(thread, answer.json, requested_ms, &n_measured);
  leases_count(agent, -1);

  if (ok)
    backoff_reset(&requesting->failed);
  if (n_measured)
    backoff_reset(&requesting->empty);
  if (device_is_yielded(thread))
    return;
  if (ok && !n_measured)
    device_wait(thread, backoff_next_ms(&requesting->empty, 0));
  else if (!ok && !thread->executor.is_suspect)
    device_wait(thread, backoff_next_ms(&requesting->failed, 0));
}

/* Logs how long the thread did what. */
static void times_log(const struct device_thread *thread, int64_t began_ms) {
  cleanup_json json_t *spent = executor_spent_to_json(&thread->executor.spent);
  cleanup_free char *text = NULL;
  size_t size;
  const char *name;
  json_t *seconds;
  FILE *out = open_memstream(&text, &size);
  ALWAYS(out != NULL);

  json_object_foreach (spent, name, seconds)
    fprintf(out, " %s=%.2f", name, json_real_value(seconds));
  ALWAYS(fclose(out) == 0);
  log_info("device: %s ends after %.2f s and %lld leases; seconds that it spent: asking=%.2f "
           "preparing=%.2f%s",
           thread->executor.device, (double)(clock_monotonic_ms() - began_ms) / 1000,
           (long long)thread->n_leases, (double)thread->asking_ms / 1000,
           (double)thread->preparing_ms / 1000, text);
}

void *device_thread_run(void *context) {
  struct device_thread *thread = context;
  struct agent *agent = thread->agent;
  MAGIC_CHECK(agent, AGENT_MAGIC);
  struct requesting requesting = {
      .backoff = backoff_new(BACKOFF_LEAST_MS, BACKOFF_MOST_MS),
      .failed = backoff_new(FAILED_LEAST_MS, FAILED_MOST_MS),
      .empty = backoff_new(EMPTY_LEAST_MS, EMPTY_MOST_MS),
  };
  int64_t began_ms = clock_monotonic_ms();
  random_hex(requesting.nonce, 16);

  while (!agent_is_stopping(agent)) {
    if (device_is_yielded(thread)) { /* until others have left it for long enough */
      executor_kill_workers(&thread->executor);
      while (!agent_is_stopping(agent) && !device_settle(thread)) {
        idle_end(agent);
        agent_wait(agent, YIELD_LOOK_MS, NULL);
      }
      http_client_resume(thread->client);
    } else if (thread->executor.is_suspect) {
      device_quarantine(thread);
    } else {
      device_step(thread, &requesting);
    }
  }

  executor_drop_workers(&thread->executor);
  times_log(thread, began_ms);
  json_decref(thread->build);
  pthread_mutex_lock(&agent->mutex);
  agent->is_measured = --agent->n_measuring == 0;
  pthread_mutex_unlock(&agent->mutex);
  spool_wake(agent->spool);
  agent_signal(agent, &agent->must_post);

  return NULL;
}
