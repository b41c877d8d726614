/* The worker of an executor: opening a lease in it, asking it to measure, and trusting its device.
 * Memory and threads: lease_execution.h. */
#include <time.h>

#include "agent/lease_execution.h"

#define OPEN_ATTEMPTS 2 /* a worker may die for a reason of the node's, too: out of memory, a device that resets */
#define SENTINEL_ATTEMPTS 3
#define SENTINEL_WAIT_MS 1000 /* a driver needs a moment to end what a killed process left running */
#define PAUSE_STEP_MS 50

bool execution_stopped(void *context) {
  const struct execution *execution = context;
  return execution->hooks->stopped(execution->hooks->context);
}

void executor_drop_worker(struct executor *executor) {
  if (executor->worker)
    worker_free(executor->worker);
  executor->worker = NULL;
  free(executor->opened);
  executor->opened = NULL;
  atomic_store(&executor->current, WORKER_CONFIG_NONE);
}

bool executor_sentinel(struct executor *executor, bool (*stopped)(void *context), void *context, struct error *error) {
  cleanup_json json_t *request = json_pack("{s:s, s:s}", "do", "sentinel", "device", executor->device), *answer = NULL;
  struct worker_end end;
  executor_drop_worker(executor);
  if (!worker_start(executor->spawner, executor->limits, &executor->worker, error))
    return false;
  worker_ask(executor->worker, request);
  enum worker_event event = worker_next(executor->worker, stopped, context, NULL, &answer, &end);
  executor_drop_worker(executor);
  bool passed = json_is_true(json_object_get(answer, "passed"));
  const char *reason = json_string_value(json_object_get(answer, "error"));
  if (event != WORKER_ANSWER)
    return error_set(error, "%s does not pass its sentinel: the worker was %s", executor->device, end.detail);
  return passed || error_set(error, "%s does not pass its sentinel: %s", executor->device,
                             reason ? reason : "the worker did not say why");
}

json_t *config_request(const struct work *work) {
  json_t *request = json_pack("{s:I, s:s, s:o}", "config", (json_int_t)work->config, "object", work->object->path,
                              "launch", launch_spec_to_json(&work->object->launch));
  ALWAYS(request != NULL);
  return request;
}

json_t *open_request(const struct execution *execution) {
  const struct lease *lease = execution->lease;
  return json_pack("{s:s, s:s, s:O, s:o, s:O, s:I, s:s, s:s?, s:o}", "do", "open", "device",
                   execution->executor->device, "kernel", lease->kernel->json, "key", key_to_json(&lease->key), "space",
                   lease->space->json, "seed", (json_int_t)lease->seed, "regime", lease->regime, "reference",
                   execution->reference.path, "baseline", config_request(&execution->baseline));
}

/* What `open` was answered. The baseline that worked in an earlier worker of this lease is not to blame any more. */
static enum step open_answered(struct execution *execution, const json_t *answer) {
  if (json_is_true(json_object_get(answer, "opened"))) {
    execution->baseline_worked = true;
    return STEP_ON;
  }
  const char *detail = json_string_value(json_object_get(answer, "detail"));
  const char *reason = json_string_value(json_object_get(answer, "error"));
  enum outcome outcome;
  bool is_baseline = outcome_parse(json_string_value(json_object_get(answer, "outcome")), &outcome);
  if (is_baseline && detail && !execution->baseline_worked)
    return end_with_baseline(execution, outcome, detail);
  const char *what = reason ? reason : detail ? detail : "the worker did not say why";
  error_set(execution->error, "%s cannot measure %s: %s", execution->executor->device, execution->lease->kernel->name,
            what);
  return STEP_FAILED;
}

static enum step device_unfit(struct execution *execution, const char *reason) {
  execution->executor->is_suspect = true;
  error_set(execution->error, "%s is not trusted any more, nothing is measured on it before it passes its sentinel: %s",
            execution->executor->device, reason);
  return STEP_FAILED;
}

/* Workers died while they opened the lease. On a GPU, when it was no config's turn, the device may be the reason. */
static enum step open_died(struct execution *execution, enum worker_event event, const struct worker_end *end) {
  struct executor *executor = execution->executor;
  struct error reason;
  if (executor->is_gpu && (execution->baseline_worked || end->config == WORKER_CONFIG_NONE) &&
      !executor_sentinel(executor, execution_stopped, execution, &reason))
    return execution_stopped(execution) ? STEP_STOPPED : device_unfit(execution, reason.message);
  if (!execution->baseline_worked)
    return end_with_baseline(execution, end_outcome(event), end->detail);
  error_set(execution->error, "%s does not work any more, though it did at the start of the lease: a worker was %s",
            executor->device, end->detail);
  return STEP_FAILED;
}

/* Waits, unless the lease is stopped meanwhile. */
static enum step pause_ms(struct execution *execution, int64_t ms) {
  struct timespec step = {.tv_nsec = PAUSE_STEP_MS * 1000000};
  for (int64_t until_ms = clock_monotonic_ms() + ms; clock_monotonic_ms() < until_ms;) {
    if (execution_stopped(execution))
      return STEP_STOPPED;
    nanosleep(&step, NULL);
  }
  return STEP_ON;
}

/* Starts a worker and opens the lease in it. */
static enum step worker_open(struct execution *execution, const json_t *request) {
  struct executor *executor = execution->executor;
  for (int deaths = 0, refusals = 0;;) {
    executor_drop_worker(executor);
    if (!worker_start(executor->spawner, executor->limits, &executor->worker, execution->error))
      return STEP_FAILED;
    executor->configs_in_worker = 0;
    cleanup_json json_t *answer = NULL;
    struct worker_end end;
    worker_ask(executor->worker, request);
    enum worker_event event = worker_next(executor->worker, execution_stopped, execution, NULL, &answer, &end);
    bool is_refused = json_is_false(json_object_get(answer, "passed"));
    if (event == WORKER_ANSWER && !is_refused)
      return open_answered(execution, answer);
    executor_drop_worker(executor);
    if (event == WORKER_STOPPED)
      return STEP_STOPPED;
    if (event != WORKER_ANSWER && ++deaths == OPEN_ATTEMPTS)
      return open_died(execution, event, &end);
    const char *reason = json_string_value(json_object_get(answer, "error"));
    if (is_refused && ++refusals == SENTINEL_ATTEMPTS)
      return device_unfit(execution, reason ? reason : "the worker did not say why");
    if (is_refused && pause_ms(execution, refusals * SENTINEL_WAIT_MS) != STEP_ON)
      return STEP_STOPPED;
  }
}

/* The worker that an earlier lease left serves when that lease opened the same. */
enum step worker_ready(struct execution *execution, bool fresh) {
  struct executor *executor = execution->executor;
  cleanup_json json_t *request = open_request(execution);
  cleanup_free char *text = json_dumps(request, JSON_COMPACT);
  bool is_used_up = executor->configs_in_worker >= executor->configs_per_worker;
  if (!fresh && !is_used_up && executor->worker && string_equal(executor->opened, text)) {
    execution->baseline_worked = true;
    return STEP_ON;
  }
  enum step step = worker_open(execution, request);
  if (step == STEP_ON)
    executor->opened = TAKE(text);
  return step;
}

void measure_ask(struct execution *execution, const size_t *indices, size_t n, int64_t rounds) {
  cleanup_json json_t *request =
      json_pack("{s:s, s:I, s:[]}", "do", "measure", "rounds", (json_int_t)rounds, "configs");
  json_t *configs = json_object_get(request, "configs");
  for (size_t i = 0; i < n; i++)
    ALWAYS(json_array_append_new(configs, config_request(&execution->works[indices[i]])) == 0);
  worker_ask(execution->executor->worker, request);
}

enum step measure_wait(struct execution *execution, const size_t *indices, size_t n, json_t **answers,
                       enum worker_event *ret_event, struct worker_end *ret_end) {
  for (;;) {
    cleanup_json json_t *answer = NULL;
    enum worker_event event = worker_next(execution->executor->worker, execution_stopped, execution,
                                          &execution->executor->current, &answer, ret_end);
    const char *reason = json_string_value(json_object_get(answer, "error"));
    if (reason) {
      error_set(execution->error, "%s cannot measure %s: %s", execution->executor->device,
                execution->lease->kernel->name, reason);
      return STEP_FAILED;
    }
    if (event != WORKER_ANSWER || json_is_true(json_object_get(answer, "done"))) {
      *ret_event = event;
      return event == WORKER_STOPPED ? STEP_STOPPED : STEP_ON;
    }
    const json_t *config = json_object_get(answer, "config");
    for (size_t i = 0; i < n; i++) {
      bool is_its =
          json_is_integer(config) && (uint64_t)json_integer_value(config) == execution->works[indices[i]].config;
      if (is_its && !answers[i])
        answers[i] = json_incref(answer);
    }
  }
}
