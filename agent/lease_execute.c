/* One lease on one device, from its configs to its measurements. See lease_execute.h for memory and threads. */
#include "agent/lease_execute.h"

#include <math.h>

#define COMPILE_POLL_MS 50
#define OPEN_ATTEMPTS 2  /* a worker may die for a reason of the node's, too: out of memory, a device that resets */
#define UNKNOWN_DEATHS 2 /* of workers in a final that died of none of its configs, or while the baseline ran */

struct compiling {
  uint64_t config;
  uint64_t ticket;
  bool is_taken;
  struct compile_result result;
};

/* A lease being executed. */
struct execution {
  struct executor *executor;
  const struct lease *lease;
  const struct lease_hooks *hooks;
  struct error *error;
  struct compile_result reference, baseline;
  size_t n;
  struct compiling *compiling; /* n */
  size_t n_submitted;
  bool baseline_worked;
};

enum step { STEP_ON, STEP_DONE, STEP_STOPPED, STEP_FAILED };

static bool execution_stopped(void *context) {
  const struct execution *execution = context;
  return execution->hooks->stopped(execution->hooks->context);
}

static enum step hand_on(struct execution *execution, const struct measurement *measurement) {
  bool goes_on = execution->hooks->measured(execution->hooks->context, execution->lease, measurement);
  return goes_on ? STEP_ON : STEP_STOPPED;
}

static enum step hand_on_failure(struct execution *execution, const struct compiling *compiling, enum outcome outcome,
                                 const char *detail, int64_t device_us) {
  struct measurement measurement = {
      .config = compiling->config,
      .outcome = outcome,
      .detail = (char *)detail,
      .compile_ms = compiling->result.compile_ms,
      .device_us = device_us,
  };
  return hand_on(execution, &measurement);
}

/* Nothing can be paired with a baseline that does not work: its outcome is the lease's only one. */
static enum step end_with_baseline(struct execution *execution, enum outcome outcome, const char *detail) {
  cleanup_free char *text = xasprintf("baseline: %s", detail);
  struct measurement measurement = {
      .config = execution->lease->baseline,
      .outcome = outcome,
      .detail = text,
      .compile_ms = execution->baseline.compile_ms,
  };
  enum step step = hand_on(execution, &measurement);
  return step == STEP_ON ? STEP_DONE : step;
}

/* Compiling */

static uint64_t compile_submit(struct execution *execution, uint64_t config, bool is_reference) {
  const struct lease *lease = execution->lease;
  struct compile_request request = {
      .kernel = lease->kernel,
      .key = &lease->key,
      .space = lease->space,
      .config = config,
      .is_reference = is_reference,
      .sources = lease->sources,
      .gpu_name = execution->executor->gpu_name,
      .arch = execution->executor->arch,
  };
  return compile_pool_submit(execution->executor->pool, &request);
}

/* Waits for a compile, unless the lease is stopped meanwhile. */
static enum step compile_wait(struct execution *execution, uint64_t ticket, struct compile_result *ret_result) {
  struct compile_pool *pool = execution->executor->pool;
  while (!compile_pool_is_done(pool, ticket, COMPILE_POLL_MS)) {
    if (execution_stopped(execution)) {
      compile_pool_drop(pool, ticket);
      return STEP_STOPPED;
    }
  }
  *ret_result = compile_pool_wait(pool, ticket);
  if (!ret_result->could_not_run)
    return STEP_ON;
  error_set(execution->error, "cannot compile %s here: %s", execution->lease->kernel->name, ret_result->detail);
  return STEP_FAILED;
}

static enum outcome compile_outcome(const struct compile_result *result) {
  return result->timed_out ? OUTCOME_TIMEOUT : OUTCOME_COMPILE;
}

/* The config's compile is in its result then. */
static enum step compile_take(struct execution *execution, size_t index) {
  struct compiling *compiling = &execution->compiling[index];
  size_t ahead = index + 1 + (size_t)execution->executor->compile_window;
  size_t until = ahead < execution->n && !execution->executor->compiles_first ? ahead : execution->n;
  while (execution->n_submitted < until) {
    struct compiling *next = &execution->compiling[execution->n_submitted++];
    next->ticket = compile_submit(execution, next->config, false);
  }
  if (compiling->is_taken)
    return STEP_ON;
  compiling->is_taken = true;
  return compile_wait(execution, compiling->ticket, &compiling->result);
}

static enum step compile_all(struct execution *execution) {
  for (size_t i = 0; i < execution->n; i++) {
    enum step step = execution_stopped(execution) ? STEP_STOPPED : compile_take(execution, i);
    if (step != STEP_ON)
      return step;
  }
  return STEP_ON;
}

static enum step compile_baseline(struct execution *execution) {
  const struct lease *lease = execution->lease;
  bool has_reference = lease->kernel->reference.path != NULL;
  uint64_t baseline = compile_submit(execution, lease->baseline, false);
  uint64_t reference = has_reference ? compile_submit(execution, 0, true) : 0;
  enum step step = compile_wait(execution, baseline, &execution->baseline);
  if (has_reference && step == STEP_ON)
    step = compile_wait(execution, reference, &execution->reference);
  else if (has_reference)
    compile_pool_drop(execution->executor->pool, reference);
  if (step != STEP_ON)
    return step;
  if (!execution->baseline.ok)
    return end_with_baseline(execution, compile_outcome(&execution->baseline), execution->baseline.detail);
  if (has_reference && !execution->reference.ok) {
    cleanup_free char *detail = xasprintf("the reference does not compile: %s", execution->reference.detail);
    return end_with_baseline(execution, compile_outcome(&execution->reference), detail);
  }
  return STEP_ON;
}

/* Workers */

void executor_drop_worker(struct executor *executor) {
  if (executor->worker)
    worker_free(executor->worker);
  executor->worker = NULL;
  free(executor->opened);
  executor->opened = NULL;
  atomic_store(&executor->current, WORKER_CONFIG_NONE);
}

static json_t *open_request(const struct execution *execution) {
  const struct lease *lease = execution->lease;
  return json_pack("{s:s, s:s, s:O, s:o, s:O, s:I, s:s, s:s?, s:{s:I, s:s}}", "do", "open", "device",
                   execution->executor->device, "kernel", lease->kernel->json, "key", key_to_json(&lease->key), "space",
                   lease->space->json, "seed", (json_int_t)lease->seed, "regime", lease->regime, "reference",
                   execution->reference.object, "baseline", "config", (json_int_t)lease->baseline, "object",
                   execution->baseline.object);
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

/* Starts a worker and opens the lease in it. */
static enum step worker_open(struct execution *execution, const json_t *request) {
  struct executor *executor = execution->executor;
  enum worker_event event = WORKER_STOPPED;
  struct worker_end end;
  for (int attempt = 0; attempt < OPEN_ATTEMPTS; attempt++) {
    executor_drop_worker(executor);
    if (!worker_start(executor->spawner, executor->limits, &executor->worker, execution->error))
      return STEP_FAILED;
    executor->configs_in_worker = 0;
    cleanup_json json_t *answer = NULL;
    worker_ask(executor->worker, request);
    event = worker_next(executor->worker, execution_stopped, execution, NULL, &answer, &end);
    if (event == WORKER_ANSWER)
      return open_answered(execution, answer);
    executor_drop_worker(executor);
    if (event == WORKER_STOPPED)
      return STEP_STOPPED;
  }
  if (!execution->baseline_worked)
    return end_with_baseline(execution, event == WORKER_HUNG ? OUTCOME_TIMEOUT : OUTCOME_RUNTIME, end.detail);
  error_set(execution->error, "%s does not work any more, though it did at the start of the lease: a worker was %s",
            executor->device, end.detail);
  return STEP_FAILED;
}

/* Makes sure that there is a worker in which the lease is open. The one that an earlier lease left serves when that
 * lease opened the same. */
static enum step worker_ready(struct execution *execution, bool fresh) {
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

static void measure_ask(struct execution *execution, const size_t *indices, size_t n, int64_t rounds) {
  cleanup_json json_t *request =
      json_pack("{s:s, s:I, s:[]}", "do", "measure", "rounds", (json_int_t)rounds, "configs");
  json_t *configs = json_object_get(request, "configs");
  for (size_t i = 0; i < n; i++) {
    const struct compiling *compiling = &execution->compiling[indices[i]];
    json_array_append_new(
        configs, json_pack("{s:I, s:s}", "config", (json_int_t)compiling->config, "object", compiling->result.object));
  }
  worker_ask(execution->executor->worker, request);
}

/* Measurements from answers */

static bool numbers_read(const json_t *array, double **ret_numbers) {
  size_t n = json_array_size(array);
  cleanup_free double *numbers = xcalloc(n, sizeof *numbers);
  for (size_t i = 0; i < n; i++) {
    numbers[i] = json_number_value(json_array_get(array, i));
    if (!isfinite(numbers[i]) || numbers[i] <= 0)
      return false;
  }
  *ret_numbers = TAKE(numbers);
  return true;
}

/* The answer as a measurement, which borrows its texts. The caller frees the samples. */
static bool measurement_read(const json_t *answer, struct measurement *ret) {
  const json_t *samples = json_object_get(answer, "samples_us"), *baseline = json_object_get(answer, "baseline_us");
  struct measurement measurement = {
      .config = (uint64_t)json_integer_value(json_object_get(answer, "config")),
      .detail = (char *)json_string_value(json_object_get(answer, "detail")),
      .timer = json_string_value(json_object_get(answer, "timer")),
      .n = json_array_size(samples),
      .device_us = json_integer_value(json_object_get(answer, "device_us")),
      .clock_mhz = json_number_value(json_object_get(answer, "clock_mhz")),
  };
  if (!outcome_parse(json_string_value(json_object_get(answer, "outcome")), &measurement.outcome))
    return false;
  if (measurement.outcome != OUTCOME_CORRECT)
    measurement.n = 0;
  else if (!measurement.timer || measurement.n == 0 || measurement.n != json_array_size(baseline))
    return false;
  if (measurement.n && !numbers_read(samples, &measurement.samples_us))
    return false;
  if (measurement.n && !numbers_read(baseline, &measurement.baseline_us)) {
    free(measurement.samples_us);
    return false;
  }
  *ret = measurement;
  return true;
}

/* Hands on what the worker answered (NULL: nothing) for one config. */
static enum step hand_on_answer(struct execution *execution, const struct compiling *compiling, const json_t *answer) {
  struct measurement measurement;
  if (!answer)
    return hand_on_failure(execution, compiling, OUTCOME_RUNTIME, "the worker gave no answer for it", 0);
  if (!measurement_read(answer, &measurement))
    return hand_on_failure(execution, compiling, OUTCOME_RUNTIME, "the worker's answer for it makes no sense", 0);
  measurement.compile_ms = compiling->result.compile_ms;
  enum step step = hand_on(execution, &measurement);
  free(measurement.samples_us);
  free(measurement.baseline_us);
  return step;
}

/* Takes answers until the worker is done or has ended; answers[i] gets that of indices[i]. STEP_ON: *ret_event says
 * which of the two. */
static enum step measure_wait(struct execution *execution, const size_t *indices, size_t n, json_t **answers,
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
          json_is_integer(config) && (uint64_t)json_integer_value(config) == execution->compiling[indices[i]].config;
      if (is_its && !answers[i])
        answers[i] = json_incref(answer);
    }
  }
}

static enum outcome end_outcome(enum worker_event event) {
  return event == WORKER_HUNG ? OUTCOME_TIMEOUT : OUTCOME_RUNTIME;
}

/* Screen */

static enum step screen_config(struct execution *execution, size_t index) {
  struct executor *executor = execution->executor;
  const struct compiling *compiling = &execution->compiling[index];
  const struct compile_result *compiled = &compiling->result;
  enum step taken = compile_take(execution, index);
  if (taken != STEP_ON)
    return taken;
  if (!compiled->ok)
    return hand_on_failure(execution, compiling, compile_outcome(compiled), compiled->detail, 0);
  for (;;) {
    enum step opened = worker_ready(execution, false);
    if (opened != STEP_ON)
      return opened;
    bool is_first = executor->configs_in_worker++ == 0;
    atomic_store(&executor->current, compiling->config);
    int64_t began_ns = clock_monotonic_ns();
    cleanup_json json_t *answer = NULL;
    struct worker_end end;
    measure_ask(execution, &index, 1, executor->screen_rounds);
    enum worker_event event;
    enum step step = measure_wait(execution, &index, 1, &answer, &event, &end);
    atomic_store(&executor->current, WORKER_CONFIG_NONE);
    if (step != STEP_ON)
      return step;
    if (event != WORKER_ANSWER)
      executor_drop_worker(executor);
    if (event == WORKER_ANSWER || answer)
      return hand_on_answer(execution, compiling, answer);
    /* What died was the baseline, maybe of what an earlier config had left in the process. */
    if (end.config != compiling->config && !is_first)
      continue;
    return hand_on_failure(execution, compiling, end_outcome(event), end.detail,
                           (clock_monotonic_ns() - began_ns) / 1000);
  }
}

static enum step screen(struct execution *execution) {
  enum step compiled = execution->executor->compiles_first ? compile_all(execution) : STEP_ON;
  if (compiled != STEP_ON)
    return compiled;
  for (size_t i = 0; i < execution->n; i++) {
    enum step step = execution_stopped(execution) ? STEP_STOPPED : screen_config(execution, i);
    if (step != STEP_ON)
      return step;
  }
  return STEP_DONE;
}

/* Final */

/* The configs of a final that still have no outcome. */
struct finalists {
  size_t n;
  size_t *indices;
  json_t **answers; /* of the running process */
  int unknown_deaths;
};

static void finalists_remove(struct finalists *finalists, size_t at) {
  json_decref(finalists->answers[at]);
  finalists->n--;
  memmove(finalists->indices + at, finalists->indices + at + 1, (finalists->n - at) * sizeof *finalists->indices);
  memmove(finalists->answers + at, finalists->answers + at + 1, (finalists->n - at) * sizeof *finalists->answers);
  finalists->answers[finalists->n] = NULL;
}

static bool answer_is_correct(const json_t *answer) {
  return answer && string_equal(json_string_value(json_object_get(answer, "outcome")), "correct");
}

/* Hands on the outcomes of those that are out; with `all` everything. */
static enum step final_hand_on(struct execution *execution, struct finalists *finalists, bool all) {
  for (size_t at = 0; at < finalists->n;) {
    json_t *answer = finalists->answers[at];
    bool is_out = answer && !answer_is_correct(answer);
    if (!all && !is_out) {
      at++;
      continue;
    }
    enum step step = hand_on_answer(execution, &execution->compiling[finalists->indices[at]], answer);
    finalists_remove(finalists, at);
    if (step != STEP_ON)
      return step;
  }
  return STEP_ON;
}

static bool is_culprit(const struct execution *execution, const struct compiling *compiling,
                       const struct worker_end *end) {
  return end->config == compiling->config && end->config != execution->lease->baseline;
}

/* A worker died in a final: its culprit is out. What the others measured beside it is dropped, so that all that is
 * handed on comes from one process. */
static enum step final_died(struct execution *execution, struct finalists *finalists, enum worker_event event,
                            const struct worker_end *end, int64_t device_us) {
  enum step step = final_hand_on(execution, finalists, false);
  if (step != STEP_ON)
    return step;
  bool is_known = false;
  for (size_t at = 0; at < finalists->n && step == STEP_ON;) {
    struct compiling *compiling = &execution->compiling[finalists->indices[at]];
    if (is_culprit(execution, compiling, end)) {
      is_known = true;
      step = hand_on_failure(execution, compiling, end_outcome(event), end->detail, device_us);
      finalists_remove(finalists, at);
    } else {
      json_decref(finalists->answers[at]);
      finalists->answers[at++] = NULL;
    }
  }
  finalists->unknown_deaths += !is_known;
  return step;
}

static enum step final_process(struct execution *execution, struct finalists *finalists) {
  enum step opened = worker_ready(execution, true);
  if (opened != STEP_ON)
    return opened;
  int64_t began_ns = clock_monotonic_ns();
  struct worker_end end;
  measure_ask(execution, finalists->indices, finalists->n, execution->executor->final_rounds);
  enum worker_event event;
  enum step step = measure_wait(execution, finalists->indices, finalists->n, finalists->answers, &event, &end);
  executor_drop_worker(execution->executor);
  if (step != STEP_ON)
    return step;
  if (event == WORKER_ANSWER)
    return final_hand_on(execution, finalists, true);
  return final_died(execution, finalists, event, &end, (clock_monotonic_ns() - began_ns) / 1000);
}

/* Measures one finalist in processes of its own. When it is not correct there, or they die, its outcome is handed on and
 * *ret_is_out. */
static enum step final_alone(struct execution *execution, size_t index, bool *ret_is_out) {
  const struct compiling *compiling = &execution->compiling[index];
  int64_t began_ns = clock_monotonic_ns();
  *ret_is_out = true;
  for (int deaths = 1;; deaths++) {
    enum step step = worker_ready(execution, true);
    if (step != STEP_ON)
      return step;
    cleanup_json json_t *answer = NULL;
    struct worker_end end;
    enum worker_event event;
    measure_ask(execution, &index, 1, execution->executor->final_rounds);
    step = measure_wait(execution, &index, 1, &answer, &event, &end);
    executor_drop_worker(execution->executor);
    if (step != STEP_ON)
      return step;
    *ret_is_out = event != WORKER_ANSWER || !answer_is_correct(answer);
    if (event == WORKER_ANSWER)
      return *ret_is_out ? hand_on_answer(execution, compiling, answer) : STEP_ON;
    int64_t device_us = (clock_monotonic_ns() - began_ns) / 1000;
    if (is_culprit(execution, compiling, &end))
      return hand_on_failure(execution, compiling, end_outcome(event), end.detail, device_us);
    if (deaths < UNKNOWN_DEATHS)
      continue;
    cleanup_free char *detail = xasprintf("the baseline died beside it alone, in %d processes: %s", deaths, end.detail);
    return hand_on_failure(execution, compiling, end_outcome(event), detail, device_us);
  }
}

/* The baseline, which had worked when each process opened it, dies: something that a finalist left in the process may be
 * the reason, and nothing tells which. */
static enum step final_isolate(struct execution *execution, struct finalists *finalists) {
  size_t n = finalists->n;
  for (size_t at = 0; at < finalists->n;) {
    bool is_out = false;
    enum step step = final_alone(execution, finalists->indices[at], &is_out);
    if (step != STEP_ON)
      return step;
    if (is_out)
      finalists_remove(finalists, at);
    else
      at++;
  }
  finalists->unknown_deaths = 0;
  if (finalists->n < n)
    return STEP_ON;
  error_set(execution->error,
            "%s cannot measure %s: the baseline dies beside all finalists together and beside none of them alone",
            execution->executor->device, execution->lease->kernel->name);
  return STEP_FAILED;
}

static enum step final_run(struct execution *execution, struct finalists *finalists) {
  enum step step = compile_all(execution);
  for (size_t i = 0; i < execution->n && step == STEP_ON; i++) {
    const struct compiling *compiling = &execution->compiling[i];
    const struct compile_result *result = &compiling->result;
    if (result->ok)
      finalists->indices[finalists->n++] = i;
    else
      step = hand_on_failure(execution, compiling, compile_outcome(result), result->detail, 0);
  }
  while (finalists->n && step == STEP_ON) {
    if (execution_stopped(execution))
      step = STEP_STOPPED;
    else if (finalists->unknown_deaths >= UNKNOWN_DEATHS)
      step = final_isolate(execution, finalists);
    else
      step = final_process(execution, finalists);
  }
  return step == STEP_ON ? STEP_DONE : step;
}

static enum step final(struct execution *execution) {
  cleanup_free size_t *indices = xcalloc(execution->n, sizeof *indices);
  cleanup_free json_t **answers = xcalloc(execution->n, sizeof *answers);
  struct finalists finalists = {.indices = indices, .answers = answers};
  enum step step = final_run(execution, &finalists);
  while (finalists.n)
    finalists_remove(&finalists, 0);
  return step;
}

static void configs_list(struct execution *execution) {
  const struct config_ranges *ranges = &execution->lease->configs;
  execution->n = (size_t)config_ranges_count(ranges);
  execution->compiling = xcalloc(execution->n, sizeof *execution->compiling);
  size_t at = 0;
  for (size_t i = 0; i < ranges->n; i++) {
    for (uint64_t j = 0; j < ranges->ranges[i].count; j++)
      execution->compiling[at++].config = ranges->ranges[i].first + j;
  }
}

static void execution_release(struct execution *execution) {
  for (size_t i = 0; i < execution->n; i++) {
    if (i < execution->n_submitted && !execution->compiling[i].is_taken)
      compile_pool_drop(execution->executor->pool, execution->compiling[i].ticket);
    compile_result_release(&execution->compiling[i].result);
  }
  free(execution->compiling);
  compile_result_release(&execution->baseline);
  compile_result_release(&execution->reference);
}

enum lease_end lease_execute(struct executor *executor, const struct lease *lease, const struct lease_hooks *hooks,
                             struct error *error) {
  ALWAYS(executor->screen_rounds > 0 && executor->final_rounds > 0 && executor->configs_per_worker > 0);
  struct execution execution = {.executor = executor, .lease = lease, .hooks = hooks, .error = error};
  atomic_store(&executor->current, WORKER_CONFIG_NONE);
  configs_list(&execution);
  enum step step = compile_baseline(&execution);
  if (step == STEP_ON)
    step = lease->stage == STAGE_FINAL ? final(&execution) : screen(&execution);
  if (step != STEP_DONE)
    executor_drop_worker(executor); /* it may be in the middle of something */
  execution_release(&execution);
  switch (step) {
  case STEP_STOPPED:
    return LEASE_STOPPED;
  case STEP_FAILED:
    return LEASE_FAILED;
  default:
    return LEASE_DONE;
  }
}
