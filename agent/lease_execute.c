/* One lease on one device, from its configs to its measurements. See lease_execute.h for memory and threads. */
#include "agent/lease_execution.h"

#define UNKNOWN_DEATHS 2 /* of workers in a final that died of none of its configs, or while the baseline ran */

/* Screen */

static enum step screen_config(struct execution *execution, size_t index) {
  struct executor *executor = execution->executor;
  const struct work *work = &execution->works[index];
  if (!work->object->is_ok)
    return hand_on_failure(execution, work, work->object->outcome, work->object->detail, 0);
  for (int unknown_deaths = 0;;) {
    enum step opened = worker_ready(execution, false);
    if (opened != STEP_ON)
      return opened;
    bool is_first = executor->configs_in_worker++ == 0;
    atomic_store(&executor->current, work->config);
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
      return hand_on_answer(execution, work, answer);
    /* What died was the baseline, maybe of what an earlier config had left in the process, or the device by itself. */
    bool is_nobodys = end.config == WORKER_CONFIG_NONE && unknown_deaths++ == 0;
    if (end.config != work->config && (!is_first || is_nobodys))
      continue;
    cleanup_free char *told = event == WORKER_CRASHED ? fault_rerun(execution, work) : NULL;
    cleanup_free char *detail = xasprintf("%s%s%s", end.detail, told ? "; run again alone: " : "", told ? told : "");
    return hand_on_failure(execution, work, end_outcome(event), detail, (clock_monotonic_ns() - began_ns) / 1000);
  }
}

/* Configs whose registers spill to memory come last: they seldom win, and a budget may end before. */
static bool is_for_later(const struct work *work) {
  return work->object->is_ok && code_resources_spills(&work->object->launch.resources) > 0;
}

static enum step screen(struct execution *execution) {
  cleanup_free size_t *later = xcalloc(execution->n, sizeof *later);
  size_t n_later = 0;
  enum step step = execution->executor->compiles_first ? object_take_all(execution) : STEP_ON;
  for (size_t i = 0; i < execution->n && step == STEP_ON; i++) {
    step = execution_stopped(execution) ? STEP_STOPPED : object_take(execution, i);
    if (step == STEP_ON && is_for_later(&execution->works[i]))
      later[n_later++] = i;
    else if (step == STEP_ON)
      step = screen_config(execution, i);
  }
  for (size_t i = 0; i < n_later && step == STEP_ON; i++)
    step = execution_stopped(execution) ? STEP_STOPPED : screen_config(execution, later[i]);
  return step == STEP_ON ? STEP_DONE : step;
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

/* Hands on the outcomes of those that are out; with `all` everything. */
static enum step final_hand_on(struct execution *execution, struct finalists *finalists, bool all) {
  for (size_t at = 0; at < finalists->n;) {
    json_t *answer = finalists->answers[at];
    bool is_out = answer && !answer_is_correct(answer);
    if (!all && !is_out) {
      at++;
      continue;
    }
    enum step step = hand_on_answer(execution, &execution->works[finalists->indices[at]], answer);
    finalists_remove(finalists, at);
    if (step != STEP_ON)
      return step;
  }
  return STEP_ON;
}

static bool is_culprit(const struct execution *execution, const struct work *work, const struct worker_end *end) {
  return end->config == work->config && end->config != execution->lease->baseline;
}

/* A worker died in a final: its culprit is out. What the others measured beside it is dropped, so that all that is
 * handed on comes from one process. */
static enum step final_died(struct execution *execution, struct finalists *finalists, enum worker_event event,
                            const struct worker_end *end, int64_t device_us) {
  size_t n = finalists->n;
  enum step step = final_hand_on(execution, finalists, false);
  if (step != STEP_ON)
    return step;
  bool is_known = event == WORKER_CRASHED && finalists->n < n; /* it answered for what had spoiled it */
  for (size_t at = 0; at < finalists->n && step == STEP_ON;) {
    struct work *work = &execution->works[finalists->indices[at]];
    if (is_culprit(execution, work, end)) {
      is_known = true;
      step = hand_on_failure(execution, work, end_outcome(event), end->detail, device_us);
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
  const struct work *work = &execution->works[index];
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
    if (event == WORKER_ANSWER || (answer && !answer_is_correct(answer)))
      return *ret_is_out ? hand_on_answer(execution, work, answer) : STEP_ON;
    int64_t device_us = (clock_monotonic_ns() - began_ns) / 1000;
    if (is_culprit(execution, work, &end))
      return hand_on_failure(execution, work, end_outcome(event), end.detail, device_us);
    if (deaths < UNKNOWN_DEATHS)
      continue;
    cleanup_free char *detail = xasprintf("the baseline died beside it alone, in %d processes: %s", deaths, end.detail);
    return hand_on_failure(execution, work, end_outcome(event), detail, device_us);
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
  enum step step = object_take_all(execution);
  for (size_t i = 0; i < execution->n && step == STEP_ON; i++) {
    const struct work *work = &execution->works[i];
    if (work->object->is_ok)
      finalists->indices[finalists->n++] = i;
    else
      step = hand_on_failure(execution, work, work->object->outcome, work->object->detail, 0);
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

enum lease_end lease_execute(struct executor *executor, const struct lease *lease, const struct lease_hooks *hooks,
                             struct error *error) {
  ALWAYS(executor->screen_rounds > 0 && executor->final_rounds > 0 && executor->configs_per_worker > 0);
  struct execution execution = {.executor = executor, .lease = lease, .hooks = hooks, .error = error};
  atomic_store(&executor->current, WORKER_CONFIG_NONE);
  execution_list(&execution);
  enum step step = object_take_baseline(&execution);
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
