/* Where a lease's objects come from: the compile pool, ahead of the measurement, or the build it names.
 * Memory and threads: lease_execution.h. */
#include "agent/lease_execution.h"

#define COMPILE_POLL_MS 50

void execution_list(struct execution *execution) {
  const struct config_ranges *ranges = &execution->lease->configs;
  execution->n = (size_t)config_ranges_count(ranges);
  execution->works = xcalloc(execution->n, sizeof *execution->works);
  execution->baseline.config = execution->lease->baseline;
  size_t at = 0;
  for (size_t i = 0; i < ranges->n; i++) {
    for (uint64_t j = 0; j < ranges->ranges[i].count; j++)
      execution->works[at++].config = ranges->ranges[i].first + j;
  }
}

void execution_release(struct execution *execution) {
  for (size_t i = 0; i < execution->n; i++) {
    struct work *work = &execution->works[i];
    if (i < execution->n_submitted && !work->object)
      compile_pool_drop(execution->executor->pool, work->ticket);
    lease_object_release(&work->compiled);
  }
  free(execution->works);
  lease_object_release(&execution->baseline.compiled);
  lease_object_release(&execution->reference);
}

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

/* Takes what the result owns. */
static struct lease_object object_of_compile(struct compile_result *result) {
  struct lease_object object = {
      .is_ok = result->ok,
      .path = TAKE(result->object),
      .launch = launch_spec_default(),
      .outcome = result->timed_out ? OUTCOME_TIMEOUT : OUTCOME_COMPILE,
      .detail = TAKE(result->detail),
      .compile_ms = result->compile_ms,
  };
  object.launch.resources = result->ok ? result->resources : code_resources_unknown;
  return object;
}

/* Waits for a compile, unless the lease is stopped meanwhile; the ticket is given back in any case. */
static enum step compile_wait(struct execution *execution, uint64_t ticket, struct lease_object *ret_object) {
  struct compile_pool *pool = execution->executor->pool;
  while (!compile_pool_is_done(pool, ticket, COMPILE_POLL_MS)) {
    if (execution_stopped(execution)) {
      compile_pool_drop(pool, ticket);
      return STEP_STOPPED;
    }
  }
  struct compile_result result = compile_pool_wait(pool, ticket);
  enum step step = STEP_ON;
  if (result.could_not_run) {
    error_set(execution->error, "cannot compile %s here: %s", execution->lease->kernel->name, result.detail);
    step = STEP_FAILED;
  } else {
    *ret_object = object_of_compile(&result);
  }
  compile_result_release(&result);
  return step;
}

static enum step work_take(struct execution *execution, struct work *work) {
  work->object = &work->compiled;
  if (!execution->lease->objects)
    return compile_wait(execution, work->ticket, &work->compiled);
  work->object = build_objects_find(execution->lease->objects, work->config);
  return STEP_ON;
}

static void works_submit(struct execution *execution, size_t until) {
  for (; execution->n_submitted < until; execution->n_submitted++) {
    struct work *next = &execution->works[execution->n_submitted];
    next->ticket = compile_submit(execution, next->config, false);
  }
}

enum step object_take(struct execution *execution, size_t index) {
  struct work *work = &execution->works[index];
  size_t ahead = index + 1 + (size_t)execution->executor->compile_window;
  if (work->object)
    return STEP_ON;
  if (!execution->lease->objects)
    works_submit(execution, ahead < execution->n && !execution->executor->compiles_first ? ahead : execution->n);
  return work_take(execution, work);
}

enum step object_take_all(struct execution *execution) {
  for (size_t i = 0; i < execution->n; i++) {
    enum step step = execution_stopped(execution) ? STEP_STOPPED : object_take(execution, i);
    if (step != STEP_ON)
      return step;
  }
  return STEP_ON;
}

enum step object_take_baseline(struct execution *execution) {
  bool has_reference = execution->lease->kernel->reference.path != NULL;
  struct work *baseline = &execution->baseline;
  if (!execution->lease->objects)
    baseline->ticket = compile_submit(execution, baseline->config, false);
  uint64_t reference = has_reference ? compile_submit(execution, 0, true) : 0;
  enum step step = work_take(execution, baseline);
  if (has_reference && step == STEP_ON)
    step = compile_wait(execution, reference, &execution->reference);
  else if (has_reference)
    compile_pool_drop(execution->executor->pool, reference);
  if (step != STEP_ON)
    return step;
  if (!baseline->object->is_ok)
    return end_with_baseline(execution, baseline->object->outcome, baseline->object->detail);
  if (has_reference && !execution->reference.is_ok) {
    cleanup_free char *detail = xasprintf("the reference does not compile: %s", execution->reference.detail);
    return end_with_baseline(execution, execution->reference.outcome, detail);
  }
  return STEP_ON;
}
