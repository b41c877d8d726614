/* The workers of an executor: chooses the worker of a lease, opens the lease in it, and checks that
 * the device passes its sentinel. */
#include <time.h>

#include "agent/lease/lease_execution.h"

/* a worker may also die because of the node: out of memory, a device that was reset */
#define OPEN_ATTEMPTS 2
#define SENTINEL_ATTEMPTS 3
/* a driver needs a moment to end what a killed process left running */
#define SENTINEL_WAIT_MS 1000
#define PAUSE_STEP_MS 50
#define DAY_US (INT64_C(86400) * 1000000)

static const struct {
  const char *name, *answered;
  size_t offset;
} spent_parts[] = {
#define X(name, answered) {#name, answered, offsetof(struct executor_spent, name##_us)},
    EXECUTOR_TIMES(X)
#undef X
};

json_t *executor_spent_to_json(const struct executor_spent *spent) {
  json_t *json = json_object();
  list_foreach (part, spent_parts) {
    const int64_t *us = (const void *)((const char *)spent + part->offset);
    json_put(json, part->name, json_real((double)*us * 1e-6));
  }
  return json;
}

void executor_spent_add(struct executor_spent *spent, const json_t *answer) {
  const json_t *parts = json_object_get(answer, "spent");
  struct error ignored;
  list_foreach (part, spent_parts) {
    int64_t us = 0;
    if (json_get_integer(parts, "", part->answered, JSON_OPTIONAL, 0, DAY_US, &us, &ignored))
      ((int64_t *)spent)[part->offset / sizeof(int64_t)] += us;
  }
}

static void reference_end(struct executor_worker *worker) {
  DISCARD(worker->reference, worker_abandon);
}

static void worker_end(struct executor_worker *worker) {
  DISCARD(worker->client, worker_free);
  reference_end(worker);
  free(worker->opened);
  free(worker->seen);
  *worker = (struct executor_worker){0};
}

void worker_drop(struct execution *execution) {
  if (execution->worker)
    worker_end(execution->worker);
  execution->worker = NULL;
}

static void helpers_forget(struct executor *executor) {
  array_foreach (helper, executor->helpers, HELPER_COUNT)
    free(TAKE(helper->path));
}

static void workers_end(struct executor *executor) {
  array_foreach (worker, executor->workers, EXECUTOR_WORKERS)
    if (worker->client)
      worker_dismiss(worker->client);
  array_foreach (worker, executor->workers, EXECUTOR_WORKERS)
    worker_end(worker);
  atomic_store(&executor->current, WORKER_CONFIG_NONE);
}

void executor_drop_workers(struct executor *executor) {
  workers_end(executor);
  helpers_forget(executor);
}

void executor_kill_workers(struct executor *executor) {
  array_foreach (worker, executor->workers, EXECUTOR_WORKERS)
    if (worker->client)
      worker_strike(worker->client);
  array_foreach (worker, executor->workers, EXECUTOR_WORKERS)
    DISCARD(worker->client, worker_abandon);
  executor_drop_workers(executor);
}

static bool worker_begin(struct executor *executor, struct executor_worker *worker,
                         struct error *error) {
  int64_t began_ns = clock_monotonic_ns();
  bool is_started = worker_start(executor->spawner, executor->limits, &worker->client, error);
  executor->spent.start_us += (clock_monotonic_ns() - began_ns) / 1000;
  return is_started;
}

static json_t *sentinel_request(const struct executor *executor) {
  return json_pack("{s:s, s:s}", "do", "sentinel", "device", executor->device);
}

static const char *answer_reason(const json_t *answer) {
  const char *reason = json_text(answer, "error");
  const char *detail = json_text(answer, "detail");
  return reason ? reason : detail ? detail : "the worker gave no reason";
}

bool executor_sentinel(struct executor *executor, bool (*stopped)(void *context), void *context,
                       struct error *error) {
  cleanup_json json_t *request = sentinel_request(executor), *answer = NULL;
  struct executor_worker worker = {0};
  struct worker_end end;
  workers_end(executor);
  if (!worker_begin(executor, &worker, error))
    return false;

  worker_request(worker.client, request);
  enum worker_event event = worker_next(worker.client, stopped, context, NULL, &answer, &end);
  worker_end(&worker);
  if (event != WORKER_ANSWER)
    return error_set(error, "%s does not pass its sentinel: the worker was %s", executor->device,
                     end.detail);

  return json_is_true(json_object_get(answer, "passed")) ||
         error_set(error, "%s does not pass its sentinel: %s", executor->device,
                   answer_reason(answer));
}

void executor_start_workers(struct executor *executor, size_t n) {
  cleanup_json json_t *request = sentinel_request(executor);
  struct error ignored; /* it is started again when it is needed, and fails again */
  for (size_t i = 0; i < n && i < EXECUTOR_WORKERS; i++) {
    struct executor_worker *worker = &executor->workers[i];
    if (worker->client || !worker_begin(executor, worker, &ignored))
      continue;
    worker_request(worker->client, request);
    worker->is_starting = true;
  }
}

/* Waits for a worker's answer. A worker that died, or whose answer lacks the member, is ended. */
static enum step answer_expect(struct execution *execution, struct executor_worker *worker,
                               const char *member) {
  cleanup_json json_t *answer = NULL;
  struct worker_end end;
  enum worker_event event =
      worker_next(worker->client, execution_stopped, execution, NULL, &answer, &end);
  if (event != WORKER_ANSWER || !json_is_true(json_object_get(answer, member)))
    worker_end(worker);
  return event == WORKER_STOPPED ? STEP_STOPPED : STEP_ON;
}

/* Waits until a worker that is opening the device has done so. */
static enum step worker_settle(struct execution *execution, struct executor_worker *worker) {
  int64_t began_ns = clock_monotonic_ns();
  if (!worker->is_starting)
    return STEP_ON;
  worker->is_starting = false;
  enum step step = answer_expect(execution, worker, "passed");
  execution->executor->spent.start_us += (clock_monotonic_ns() - began_ns) / 1000;
  return step;
}

enum step workers_settle(struct execution *execution) {
  enum step step = STEP_ON;
  for (size_t i = 0; i < EXECUTOR_WORKERS && step == STEP_ON; i++)
    step = worker_settle(execution, &execution->executor->workers[i]);
  return step;
}

static enum step cannot_measure(struct execution *execution, const char *what, const char *reason) {
  error_set(execution->error, "%s cannot measure %s: %s%s", execution->executor->device,
            execution->lease->kernel->name, what, reason);
  return STEP_FAILED;
}

static enum step device_unfit(struct execution *execution, const char *reason) {
  execution->executor->is_suspect = true;
  error_set(execution->error,
            "%s is not trusted: nothing is measured on it until it passes its sentinel: %s",
            execution->executor->device, reason);
  return STEP_FAILED;
}

/* After the worker answered `open`. A failure of the baseline is not reported where it worked in an
 * earlier worker of this lease: then the lease fails. */
static enum step open_answered(struct execution *execution, const json_t *answer) {
  if (json_is_true(json_object_get(answer, "opened"))) {
    execution->baseline_worked = true;
    return STEP_ON;
  }

  const char *detail = json_text(answer, "detail");
  enum outcome outcome;
  bool is_baseline = outcome_parse(json_text(answer, "outcome"), &outcome);
  if (is_baseline && detail && !execution->baseline_worked)
    return json_is_true(json_object_get(answer, "misinterpreted"))
               ? end_with_misinterpreted(execution, detail)
               : end_with_baseline(execution, outcome, detail);
  return cannot_measure(execution, "", answer_reason(answer));
}

/* After workers died while they opened the lease. Where a GPU's worker died in the turn of no
 * config, or the baseline had worked, the device may be the reason. */
static enum step open_died(struct execution *execution, enum worker_event event,
                           const struct worker_end *end) {
  struct executor *executor = execution->executor;
  struct error reason;
  if (executor->is_gpu && (execution->baseline_worked || end->config == WORKER_CONFIG_NONE) &&
      !executor_sentinel(executor, execution_stopped, execution, &reason))
    return execution_stopped(execution) ? STEP_STOPPED : device_unfit(execution, reason.message);
  if (!execution->baseline_worked)
    return end_with_baseline(execution, end_outcome(event), end->detail);

  error_set(execution->error,
            "%s worked at the start of the lease and no longer does: a worker was %s",
            executor->device, end->detail);
  return STEP_FAILED;
}

/* After the reference's process ended while the lease was opened. A reason that it stated is not
 * the kernel's fault: the reference cannot be loaded, or there is no memory for its inputs. */
static enum step reference_lost(struct execution *execution, struct executor_worker *worker,
                                bool is_last) {
  bool has_stated;
  cleanup_free char *reason = worker_death_reason(worker->reference, &has_stated);
  reference_end(worker);
  if (has_stated)
    return cannot_measure(execution, "", reason);
  if (!is_last)
    return STEP_ON;
  if (execution->baseline_worked)
    return cannot_measure(execution, "the reference: ", reason);

  cleanup_free char *detail = xasprintf("the reference: %s", reason);
  return end_with_baseline(execution, OUTCOME_RUNTIME, detail);
}

static bool worker_has_seen(const struct executor_worker *worker, uint64_t job) {
  array_foreach (hash, worker->seen, worker->n_seen)
    if (*hash == job)
      return true;
  return false;
}

static bool is_used_up(const struct executor *executor, const struct executor_worker *worker) {
  return worker->configs >= executor->configs_per_worker || worker->n_seen >= EXECUTOR_SEEN_MAX;
}

static bool is_fresh_for(const struct executor *executor, const struct executor_worker *worker,
                         uint64_t job) {
  return worker->client && !is_used_up(executor, worker) && !worker_has_seen(worker, job);
}

/* A running worker that has not seen the job; the worker of the screens only if there is no other.
 * Else a place for a new worker: an empty one, else that of the least recently used worker, which
 * is ended. */
static struct executor_worker *worker_for_final(struct executor *executor, uint64_t job) {
  struct executor_worker *empty = NULL, *oldest = NULL;
  for (size_t i = 1; i < EXECUTOR_WORKERS; i++) {
    struct executor_worker *worker = &executor->workers[i];
    if (is_fresh_for(executor, worker, job))
      return worker;
    if (!worker->client && !empty)
      empty = worker;
    if (worker->client && (!oldest || worker->used_ns < oldest->used_ns))
      oldest = worker;
  }

  if (is_fresh_for(executor, &executor->workers[0], job))
    return &executor->workers[0];
  if (empty)
    return empty;

  worker_end(oldest);
  return oldest;
}

/* Closes the problems of other workers, which use the device's memory. */
static enum step others_close(struct execution *execution, const struct executor_worker *chosen) {
  cleanup_json json_t *request = json_pack("{s:s}", "do", "close");
  enum step step = STEP_ON;

  for (size_t i = 0; i < EXECUTOR_WORKERS && step == STEP_ON; i++) {
    struct executor_worker *worker = &execution->executor->workers[i];
    if (worker == chosen || !worker->opened)
      continue;
    free(TAKE(worker->opened));
    worker_request(worker->client, request);
    step = answer_expect(execution, worker, "closed");
    reference_end(worker);
  }

  return step;
}

/* One attempt to open the lease. */
struct opening {
  bool is_first;   /* the worker had seen no other job, which might have damaged its process */
  bool is_refused; /* the device did not pass its sentinel */
  enum worker_event event;
  struct worker_end end;
  json_t *answer;
};

/* Starts the worker if need be, sends it `open` and waits for the result. */
static enum step open_once(struct execution *execution, const json_t *request, uint64_t job,
                           struct opening *ret) {
  struct executor *executor = execution->executor;
  struct executor_worker *worker = execution->worker;
  if (worker_settle(execution, worker) != STEP_ON)
    return STEP_STOPPED;
  if (!worker->client && !worker_begin(executor, worker, execution->error))
    return STEP_FAILED;

  cleanup_fd int socket = -1;
  ret->is_first = worker->n_seen == 0;
  reference_end(worker);
  if (!reference_start(execution, &worker->reference, &socket, execution->error))
    return STEP_FAILED;

  if (!worker_has_seen(worker, job)) {
    *APPEND(worker->seen, worker->n_seen) = job;
  }

  worker->kernel = execution->lease->kernel->hash;
  free(TAKE(worker->opened));
  int64_t began_ns = clock_monotonic_ns();
  if (!worker_request_with(worker->client, request, socket, execution->error)) {
    /* The file that changed may be a helper's: the pool checks them again. */
    helpers_forget(executor);
    return STEP_FAILED;
  }

  ret->event =
      worker_next(worker->client, execution_stopped, execution, NULL, &ret->answer, &ret->end);
  ret->is_refused = json_is_false(json_object_get(ret->answer, "passed"));
  if (ret->is_refused)
    return STEP_ON;

  /* The time in which a process opens the device is charged to no job, because the process serves
   * many. Without an answer that time is not known. */
  int64_t start_us = executor->spent.start_us;
  executor_spent_add(&executor->spent, ret->answer);
  int64_t opening_us =
      (clock_monotonic_ns() - began_ns) / 1000 - (executor->spent.start_us - start_us);
  executor->opening_us += opening_us > 0 ? opening_us : 1;

  return STEP_ON;
}

/* Opens the lease in execution->worker. After a failure it is tried again in a new worker: up to
 * OPEN_ATTEMPTS deaths of workers, as many of references, and SENTINEL_ATTEMPTS failed sentinels.
 */
static enum step worker_open(struct execution *execution, const json_t *request, const char *text,
                             uint64_t job) {
  struct executor_worker *worker = execution->worker;
  for (int deaths = 0, refusals = 0, losses = 0;;) {
    struct opening opening = {0};
    enum step step = open_once(execution, request, job, &opening);
    cleanup_json json_t *answer = opening.answer;
    if (step != STEP_ON)
      return step;

    if (json_object_get(answer, "reference") && worker->reference) {
      step = reference_lost(execution, worker, ++losses == OPEN_ATTEMPTS);
      if (step != STEP_ON)
        return step;
      continue;
    }
    if (opening.event == WORKER_ANSWER && !opening.is_refused) {
      step = open_answered(execution, answer);
      if (step == STEP_ON)
        worker->opened = xstrdup(text);
      worker->used_ns = clock_monotonic_ns();
      return step;
    }

    worker_end(worker);
    if (opening.event == WORKER_STOPPED)
      return STEP_STOPPED;

    if (!opening.is_refused) {
      deaths += opening.is_first;
      if (deaths == OPEN_ATTEMPTS)
        return open_died(execution, opening.event, &opening.end);
      continue;
    }
    if (++refusals == SENTINEL_ATTEMPTS)
      return device_unfit(execution, answer_reason(answer));

    struct timespec pause = {.tv_nsec = PAUSE_STEP_MS * 1000000};
    int64_t until_ms = clock_monotonic_ms() + refusals * SENTINEL_WAIT_MS;
    while (clock_monotonic_ms() < until_ms) {
      if (execution_stopped(execution))
        return STEP_STOPPED;
      nanosleep(&pause, NULL);
    }
  }
}

enum step worker_ready(struct execution *execution, bool fresh) {
  struct executor *executor = execution->executor;
  cleanup_json json_t *request = open_request(execution);
  cleanup_free char *text = json_dumps(request, JSON_COMPACT);

  /* Jobs are distinguished by 64 bits of a digest. */
  struct digest digest = digest_of(execution->lease->job, strlen(execution->lease->job));
  uint64_t job;
  memcpy(&job, digest.bytes, sizeof job);
  struct executor_worker *worker = fresh ? worker_for_final(executor, job) : &executor->workers[0];
  array_foreach (other, executor->workers, EXECUTOR_WORKERS)
    if (!fresh && string_equal(other->opened, text))
      worker = other; /* in place of the worker of the screens */
  execution->worker = worker;

  /* On the CPU a kernel runs in the worker's process, where it must not affect another kernel. */
  bool has_other_kernel = !executor->is_gpu && worker->n_seen > 0 &&
                          !digest_equal(&worker->kernel, &execution->lease->kernel->hash);
  if (worker->client && (is_used_up(executor, worker) || has_other_kernel))
    worker_end(worker);
  if (!fresh && string_equal(worker->opened, text)) {
    execution->baseline_worked = true;
    worker->used_ns = clock_monotonic_ns();
    return STEP_ON;
  }

  enum step step = others_close(execution, worker);
  return step == STEP_ON ? worker_open(execution, request, text, job) : step;
}
