/* Racing configs in a worker until each has its outcome, whoever dies meanwhile. Memory and
 * threads: lease_execution.h. */
#include "agent/lease/lease_execution.h"
#include "common/verdict/budget.h"

/* of workers that died of none of the configs: then each of them is tried by itself */
#define DEATHS_TOGETHER 2
/* with a config that is alone in a worker of its own: then it is to blame */
#define DEATHS_ALONE 2

/* What the configs of a lease that is bounded may spend: less by what opening the kernel took. */
static int64_t configs_us(const struct execution *execution) {
  const struct lease *lease = execution->lease;
  return lease->budget_us ? budget_configs_us(lease->device_us, lease->budget_us,
                                              execution->executor->opening_us)
                          : lease->device_us;
}

/* A final is measured whole: without one finalist its process says nothing of the others. */
static bool is_spent(const struct execution *execution) {
  return execution->lease->stage != STAGE_FINAL && execution->lease->device_us &&
         execution->spent_us >= configs_us(execution);
}

/* worker_ready, or STEP_SPENT: opening the kernel may have taken the rest. */
static enum step race_ready(struct execution *execution, bool fresh) {
  enum step step = worker_ready(execution, fresh);
  return step == STEP_ON && is_spent(execution) ? STEP_SPENT : step;
}

static void heat_sift(struct heat *heat) {
  size_t n = 0;
  for (size_t i = 0; i < heat->n; i++) {
    if (!heat->works[i]->is_over)
      heat->works[n++] = heat->works[i];
  }
  heat->n = n;
}

static struct work *heat_find(const struct heat *heat, uint64_t config) {
  for (size_t i = 0; i < heat->n; i++) {
    if (heat->works[i]->config == config && !heat->works[i]->is_over)
      return heat->works[i];
  }
  return NULL;
}

static void answers_drop(const struct heat *heat) {
  for (size_t i = 0; i < heat->n; i++)
    json_decref(TAKE(heat->works[i]->answer));
}

static bool race_ask(struct execution *execution, const struct heat *heat) {
  int64_t bound_us = execution->lease->device_us;
  int64_t left_us = bound_us ? configs_us(execution) - execution->spent_us : 0;
  struct race_request request = {
      .works = heat->works,
      .n = heat->n,
      .terms = heat->terms,
      .device_us = bound_us ? (left_us > 0 ? left_us : 1) : 0,
      .best_ratio = heat->is_final ? 0 : execution->best_ratio,
      .is_serial = heat->is_serial,
      .is_whole = heat->is_final,
  };
  cleanup_json json_t *json = measure_request(&request);
  execution->worker->configs += (int64_t)heat->n;
  return worker_ask_with(execution->worker->client, json, -1, execution->error);
}

/* A config's line. What failed is handed on at once, and so is everything but a final's. */
static enum step answer_take(struct execution *execution, const struct heat *heat, json_t *answer,
                             struct heat_end *ended) {
  const json_t *config = json_object_get(answer, "config");
  struct work *work =
      json_is_integer(config) ? heat_find(heat, (uint64_t)json_integer_value(config)) : NULL;
  if (!work || work->answer)
    return STEP_ON;
  bool is_correct = answer_is_correct(answer);
  ended->has_failed = ended->has_failed || !is_correct;
  if (!heat->is_final || !is_correct)
    return hand_on_answer(execution, work, answer);
  work->answer = json_incref(answer);
  return STEP_ON;
}

static enum step measuring_failed(struct execution *execution, const char *reason) {
  error_set(execution->error, "%s cannot measure %s: %s", execution->executor->device,
            execution->lease->kernel->name, reason);
  return STEP_FAILED;
}

static void spent_add(struct execution *execution, const json_t *done) {
  struct executor_spent *all = &execution->executor->spent;
  const struct {
    const char *name;
    int64_t *sum;
  } parts[] = {{"load_us", &all->load_us},
               {"check_us", &all->check_us},
               {"warm_up_us", &all->warm_up_us},
               {"timing_us", &all->timing_us}};
  for (size_t i = 0; i < ARRAY_LENGTH(parts); i++) {
    int64_t us = answer_spent_us(done, parts[i].name);
    *parts[i].sum += us;
    execution->spent_us += us;
  }
}

enum step heat_answer(struct execution *execution, const struct heat *heat, json_t *answer,
                      struct heat_end *ended, bool *ret_is_over) {
  const char *reason = json_string_value(json_object_get(answer, "error"));
  const char *wrong = json_string_value(json_object_get(answer, "baseline_wrong"));
  *ret_is_over = true;
  if (reason)
    return measuring_failed(execution, reason);
  if (wrong)
    return end_with_baseline(execution, OUTCOME_CORRECTNESS, wrong);
  if (json_is_true(json_object_get(answer, "done"))) {
    ended->is_over_budget = json_is_true(json_object_get(answer, "over_budget"));
    spent_add(execution, answer);
    return STEP_ON;
  }
  *ret_is_over = false;
  return answer_take(execution, heat, answer, ended);
}

/* Takes what the worker says until it is done or has ended. */
static enum step race_wait(struct execution *execution, const struct heat *heat,
                           struct heat_end *ended) {
  struct executor *executor = execution->executor;
  for (;;) {
    cleanup_json json_t *answer = NULL;
    ended->event = worker_next(execution->worker->client, execution_stopped, execution,
                               &executor->current, &answer, &ended->end);
    bool is_over;
    if (ended->event == WORKER_STOPPED)
      return STEP_STOPPED;
    if (ended->event != WORKER_ANSWER)
      return STEP_ON;
    enum step step = heat_answer(execution, heat, answer, ended, &is_over);
    if (step != STEP_ON || is_over)
      return step;
  }
}

/* One race in the worker that is ready. */
static enum step heat_race(struct execution *execution, const struct heat *heat,
                           struct heat_end *ended) {
  *ended = (struct heat_end){.event = WORKER_ANSWER};
  enum step step = workers_settle(execution);
  if (step != STEP_ON)
    return step;
  int64_t began_ns = clock_monotonic_ns();
  if (!race_ask(execution, heat))
    return STEP_FAILED;
  step = race_wait(execution, heat, ended);
  atomic_store(&execution->executor->current, WORKER_CONFIG_NONE);
  if (step == STEP_ON && ended->event != WORKER_ANSWER) {
    execution->spent_us += (clock_monotonic_ns() - began_ns) / 1000;
    worker_drop(execution);
  }
  return step;
}

enum step heat_finish(struct execution *execution, const struct heat *heat,
                      const struct heat_end *ended) {
  enum step step = STEP_ON;
  bool is_short = false;
  for (size_t i = 0; i < heat->n && step == STEP_ON; i++) {
    struct work *work = heat->works[i];
    cleanup_json json_t *answer = TAKE(work->answer);
    bool is_left_out = !work->is_over && !answer && ended->is_over_budget;
    is_short = is_short || is_left_out;
    if (!work->is_over && !is_left_out)
      step = hand_on_answer(execution, work, answer);
  }
  return step == STEP_ON && is_short ? STEP_SPENT : step;
}

static enum step blame(struct execution *execution, struct work *work,
                       const struct heat_end *ended) {
  cleanup_free char *told = ended->event == WORKER_CRASHED ? fault_rerun(execution, work) : NULL;
  cleanup_free char *detail =
      xasprintf("%s%s%s", ended->end.detail, told ? "; run again alone: " : "", told ? told : "");
  return hand_on_failure(execution, work, end_outcome(ended->event), detail, ended->end.turn_us);
}

/* The worker died: its culprit is out. What the others of a final measured beside it is dropped, so
 * that all that is handed on comes from one process. That the baseline ran when it died blames
 * nobody, also where it is among them. */
static enum step heat_died(struct execution *execution, struct heat *heat,
                           const struct heat_end *ended) {
  bool is_baselines = ended->end.config == execution->lease->baseline;
  struct work *culprit = is_baselines ? NULL : heat_find(heat, ended->end.config);
  answers_drop(heat);
  if (culprit)
    return blame(execution, culprit, ended);
  if (!ended->has_failed) {
    heat->is_serial = true;
    heat->unknown_deaths++;
  }
  return STEP_ON;
}

/* Races one config by itself until it is known whether workers die of it. Of a final a correct one
 * is not over then. */
static enum step race_alone(struct execution *execution, const struct heat *heat,
                            struct work *work) {
  struct heat alone = {
      .n = 1, .works = &work, .terms = heat->terms, .is_final = heat->is_final, .is_serial = true};
  for (int deaths = 0;;) {
    enum step step = race_ready(execution, false);
    if (step != STEP_ON)
      return step;
    bool is_first = execution->worker->configs == 0;
    struct heat_end ended;
    step = heat_race(execution, &alone, &ended);
    bool is_correct = answer_is_correct(work->answer);
    if (ended.event == WORKER_ANSWER && step == STEP_ON && !is_correct)
      return heat_finish(execution, &alone, &ended);
    answers_drop(&alone);
    if (step != STEP_ON || work->is_over || ended.event == WORKER_ANSWER)
      return step;
    if (ended.end.config == work->config)
      return blame(execution, work, &ended);
    deaths += is_first;
    if (deaths < DEATHS_ALONE)
      continue;
    cleanup_free char *detail =
        xasprintf("the worker died beside it alone, in %d processes: %s", deaths, ended.end.detail);
    return hand_on_failure(execution, work, end_outcome(ended.event), detail, ended.end.turn_us);
  }
}

/* Workers die in nobody's turn, or while the baseline runs, which had worked when each of them
 * opened it: something that a config left in the process may be the reason, and nothing tells
 * which. */
static enum step heat_isolate(struct execution *execution, struct heat *heat) {
  size_t n = heat->n;
  for (size_t i = 0; i < n; i++) {
    enum step step = is_spent(execution) ? STEP_SPENT : race_alone(execution, heat, heat->works[i]);
    if (step != STEP_ON)
      return step;
  }
  heat->unknown_deaths = 0;
  heat_sift(heat);
  if (heat->n < n)
    return STEP_ON;
  error_set(execution->error,
            "%s cannot measure %s: workers die beside all finalists together and beside none of "
            "them alone",
            execution->executor->device, execution->lease->kernel->name);
  return STEP_FAILED;
}

static enum step heat_step(struct execution *execution, struct heat *heat) {
  struct heat_end ended;
  if (execution_stopped(execution))
    return STEP_STOPPED;
  if (is_spent(execution))
    return STEP_SPENT;
  if (heat->unknown_deaths >= DEATHS_TOGETHER)
    return heat_isolate(execution, heat);
  enum step step = race_ready(execution, heat->is_final);
  if (step == STEP_ON)
    step = heat_race(execution, heat, &ended);
  if (step != STEP_ON)
    return step;
  return ended.event == WORKER_ANSWER ? heat_finish(execution, heat, &ended)
                                      : heat_died(execution, heat, &ended);
}

enum step heat_run(struct execution *execution, struct heat *heat) {
  enum step step = STEP_ON;
  while (heat->n && step == STEP_ON) {
    step = heat_step(execution, heat);
    heat_sift(heat);
  }
  return step;
}
