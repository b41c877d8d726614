/* Races configs until each has its outcome, in new workers when workers die, and turns answers into
 * measurements for the hook. */
#include "agent/lease/fault.h"
#include "agent/lease/lease_execution.h"
#include "agent/worker/scheduling.h"
#include "common/verdict/budget.h"

/* unexplained deaths of workers, after which each config is tried alone */
#define DEATHS_TOGETHER 2
/* deaths of new workers with a single config, after which that config has failed */
#define DEATHS_ALONE 2
/* room for the members that the agent adds: ,"kernel_key":"sha256:…" and ,"build_key":"sha256:…"
 * (server_client.c), ,"scheduling":"restored" and ,"self_timed":true */
#define CONDITIONS_ADDED 240

static bool answer_is_correct(const json_t *answer) {
  return answer && string_equal(json_text(answer, "outcome"), "correct");
}

/* A worker may run untrusted code: members that are not the worker's to state are ignored. False: a
 * server would refuse the answer. */
static bool answer_read(const json_t *answer, struct measurement *measurement) {
  static const char *const ignored[] = {"seq",    "process",         "round",
                                        "regime", "baseline_failed", "object"};
  struct error error;
  cleanup_json json_t *own = json_copy((json_t *)answer);
  list_foreach (name, ignored)
    json_object_del(own, *name);
  json_object_set_new(own, "seq", json_integer(1)); /* the poster numbers it */
  if (!measurement_read(own, "", measurement, &error))
    return false;

  measurement->seq = FIELD_NONE;

  cleanup_free char *conditions =
      measurement->conditions ? json_canonical(measurement->conditions) : NULL;
  if (conditions && strlen(conditions) + CONDITIONS_ADDED > MEASUREMENT_CONDITIONS_MAX)
    return false;
  return measurement->outcome != OUTCOME_CORRECT || measurement->timer;
}

/* Adds what the worker does not know, or could falsify. */
static void conditions_complete(const struct execution *execution,
                                struct measurement *measurement) {
  bool is_restored;
  bool was_changed = scheduling_check(&is_restored) != execution->n_rescheduled;
  if (!measurement->conditions)
    measurement->conditions = json_object();
  json_object_del(measurement->conditions, "scheduling");
  json_object_del(measurement->conditions, "self_timed");
  if (was_changed)
    json_put(measurement->conditions, "scheduling",
             json_string(is_restored ? "restored" : "changed"));
  if (!execution->executor->is_gpu)
    json_put(measurement->conditions, "self_timed", json_true());
}

/* Reports the measurement in a worker's answer; NULL: there was no answer. */
static enum step report_answer(struct execution *execution, struct lease_config *config,
                               const json_t *answer) {
  if (!answer)
    return report_failure(execution, config, OUTCOME_RUNTIME, "the worker gave no answer for it",
                          0);

  __attribute__((cleanup(measurement_release))) struct measurement measurement;
  measurement_init(&measurement);
  if (!answer_read(answer, &measurement))
    return report_failure(execution, config, OUTCOME_RUNTIME,
                          "the worker's answer for it is invalid", 0);

  /* Later batches of the lease race against the best ratio. A config that left early does not
   * count: its few rounds are not precise. */
  size_t n = measurement.samples_us.n;
  if (n && !measurement_left_early(&measurement) && execution->lease->stage != STAGE_FINAL) {
    double ratio = verdict_paired_ratio(measurement.samples_us.all, measurement.baseline_us.all, n);
    if (execution->best_ratio == 0 || ratio < execution->best_ratio)
      execution->best_ratio = ratio;
  }
  if (n)
    conditions_complete(execution, &measurement);
  return report_measurement(execution, config, &measurement);
}

/* The device time that is left for the configs of a bounded lease, after opening the kernel. */
static int64_t left_us(const struct execution *execution) {
  const struct lease *lease = execution->lease;
  int64_t bound_us = lease->budget_us ? budget_configs_us(lease->device_us, lease->budget_us,
                                                          execution->executor->opening_us)
                                      : lease->device_us;
  return bound_us - execution->spent_us;
}

/* A final is measured whole: when one finalist fails, its process gives no result for the others.
 */
static bool is_spent(const struct execution *execution) {
  return execution->lease->stage != STAGE_FINAL && execution->lease->device_us &&
         left_us(execution) <= 0;
}

static void batch_drop_settled(struct race_batch *batch) {
  size_t n = 0;
  array_foreach (config, batch->configs, batch->n)
    if (!(*config)->is_settled)
      batch->configs[n++] = *config;
  batch->n = n;
}

static struct lease_config *batch_find(const struct race_batch *batch, uint64_t ordinal) {
  array_foreach (config, batch->configs, batch->n)
    if ((*config)->ordinal == ordinal && !(*config)->is_settled)
      return *config;
  return NULL;
}

static void answers_drop(const struct race_batch *batch) {
  array_foreach (config, batch->configs, batch->n)
    json_decref(TAKE((*config)->answer));
}

enum step batch_answer(struct execution *execution, const struct race_batch *batch, json_t *answer,
                       struct race_result *result, bool *ret_is_over) {
  const char *reason = json_text(answer, "error");
  const char *wrong = json_text(answer, "baseline_wrong");
  *ret_is_over = true;
  if (reason) {
    error_set(execution->error, "%s cannot measure %s: %s", execution->executor->device,
              execution->lease->kernel->name, reason);
    return STEP_FAILED;
  }

  if (wrong)
    return end_with_baseline(execution, OUTCOME_CORRECTNESS, wrong);
  if (json_is_true(json_object_get(answer, "done"))) {
    struct executor_spent spent = {0};
    executor_spent_add(&spent, answer);
    execution->spent_us += spent.load_us + spent.check_us + spent.warm_up_us + spent.timing_us;
    executor_spent_add(&execution->executor->spent, answer);
    result->is_over_budget = json_is_true(json_object_get(answer, "over_budget"));
    return STEP_ON;
  }

  /* A config's line. Failures are reported at once, and so is everything but a final's. */
  *ret_is_over = false;
  const json_t *ordinal = json_object_get(answer, "config");
  struct lease_config *config =
      json_is_integer(ordinal) ? batch_find(batch, (uint64_t)json_integer_value(ordinal)) : NULL;
  if (!config || config->answer)
    return STEP_ON;

  bool is_correct = answer_is_correct(answer);
  result->has_failed = result->has_failed || !is_correct;
  if (!batch->is_final || !is_correct)
    return report_answer(execution, config, answer);

  config->answer = json_incref(answer);
  return STEP_ON;
}

/* Runs one race in execution->worker, until that is done or has ended. */
static enum step batch_race(struct execution *execution, const struct race_batch *batch,
                            struct race_result *result) {
  struct executor *executor = execution->executor;
  *result = (struct race_result){.event = WORKER_ANSWER};
  enum step step = workers_settle(execution);
  if (step != STEP_ON)
    return step;

  int64_t began_ns = clock_monotonic_ns(), bound_us = left_us(execution);
  if (bound_us < 1)
    bound_us = 1;
  cleanup_json json_t *request = measure_request(batch, execution->lease->device_us ? bound_us : 0,
                                                 batch->is_final ? 0 : execution->best_ratio);
  execution->worker->configs += (int64_t)batch->n;
  if (!worker_request_with(execution->worker->client, request, -1, execution->error))
    return STEP_FAILED;

  for (bool is_over = false; !is_over && step == STEP_ON;) {
    cleanup_json json_t *answer = NULL;
    result->event = worker_next(execution->worker->client, execution_stopped, execution,
                                &executor->current, &answer, &result->end);
    if (result->event == WORKER_ANSWER)
      step = batch_answer(execution, batch, answer, result, &is_over);
    else if (result->event == WORKER_STOPPED)
      step = STEP_STOPPED;
    else
      is_over = true;
  }

  atomic_store(&executor->current, WORKER_CONFIG_NONE);
  if (step == STEP_ON && result->event != WORKER_ANSWER) {
    execution->spent_us += (clock_monotonic_ns() - began_ns) / 1000;
    worker_drop(execution);
  }
  return step;
}

enum step batch_finish(struct execution *execution, const struct race_batch *batch,
                       const struct race_result *result) {
  enum step step = STEP_ON;
  bool is_short = false;

  for (size_t i = 0; i < batch->n && step == STEP_ON; i++) {
    struct lease_config *config = batch->configs[i];
    cleanup_json json_t *answer = TAKE(config->answer);
    if (config->is_settled)
      continue;
    if (!answer && result->is_over_budget)
      is_short = true;
    else
      step = report_answer(execution, config, answer);
  }

  return step == STEP_ON && is_short ? STEP_SPENT : step;
}

/* Reports the config that killed its worker. */
static enum step death_report(struct execution *execution, struct lease_config *config,
                              const struct race_result *result) {
  cleanup_free char *fault =
      result->event == WORKER_CRASHED ? fault_rerun(execution, config) : NULL;
  cleanup_free char *detail = xasprintf("%s%s%s", result->end.detail,
                                        fault ? "; run again alone: " : "", fault ? fault : "");
  return report_failure(execution, config, end_outcome(result->event), detail, result->end.turn_us);
}

/* As worker_ready, or STEP_SPENT: opening the kernel may have spent the rest of the bound. */
static enum step race_ready(struct execution *execution, bool fresh) {
  enum step step = worker_ready(execution, fresh);
  return step == STEP_ON && is_spent(execution) ? STEP_SPENT : step;
}

/* Races one config alone until it is known whether it kills its worker. In a final, a correct
 * config is not settled afterwards. */
static enum step race_alone(struct execution *execution, const struct race_batch *batch,
                            struct lease_config *config) {
  struct race_batch alone = *batch;
  alone.n = 1;
  alone.configs = &config;
  alone.is_serial = true;

  for (int deaths = 0;;) {
    enum step step = race_ready(execution, false);
    if (step != STEP_ON)
      return step;

    bool is_first = execution->worker->configs == 0;
    struct race_result result;
    step = batch_race(execution, &alone, &result);
    if (step == STEP_ON && result.event == WORKER_ANSWER && !answer_is_correct(config->answer))
      return batch_finish(execution, &alone, &result);
    answers_drop(&alone);
    if (step != STEP_ON || config->is_settled || result.event == WORKER_ANSWER)
      return step;

    if (result.end.config == config->ordinal)
      return death_report(execution, config, &result);
    deaths += is_first;
    if (deaths < DEATHS_ALONE)
      continue;
    cleanup_free char *detail = xasprintf(
        "the worker died with this config alone, in %d processes: %s", deaths, result.end.detail);
    return report_failure(execution, config, end_outcome(result.event), detail, result.end.turn_us);
  }
}

/* Tries each config alone, after workers died in the turn of no config or while the baseline ran.
 * The baseline worked when each worker opened it, so a config may have damaged the process, and it
 * is not known which. */
static enum step batch_isolate(struct execution *execution, struct race_batch *batch) {
  size_t n = batch->n;
  array_foreach (config, batch->configs, n) {
    enum step step = is_spent(execution) ? STEP_SPENT : race_alone(execution, batch, *config);
    if (step != STEP_ON)
      return step;
  }

  batch->unexplained_deaths = 0;
  batch_drop_settled(batch);
  if (batch->n < n)
    return STEP_ON;

  error_set(execution->error,
            "%s cannot measure %s: workers die with all finalists together, and with none of them "
            "alone",
            execution->executor->device, execution->lease->kernel->name);
  return STEP_FAILED;
}

static enum step batch_step(struct execution *execution, struct race_batch *batch) {
  struct race_result result;
  if (execution_stopped(execution))
    return STEP_STOPPED;
  if (is_spent(execution))
    return STEP_SPENT;
  if (batch->unexplained_deaths >= DEATHS_TOGETHER)
    return batch_isolate(execution, batch);

  enum step step = race_ready(execution, batch->is_final);
  if (step == STEP_ON)
    step = batch_race(execution, batch, &result);
  if (step != STEP_ON)
    return step;
  if (result.event == WORKER_ANSWER)
    return batch_finish(execution, batch, &result);

  /* The worker died. In a final the answers of the other configs are dropped, so that all reports
   * come from one process. A death while the baseline ran is no config's failure, even if the
   * baseline is one of the configs. */
  struct lease_config *config =
      result.end.config == execution->lease->baseline ? NULL : batch_find(batch, result.end.config);
  answers_drop(batch);
  if (config)
    return death_report(execution, config, &result);
  if (!result.has_failed) {
    batch->is_serial = true;
    batch->unexplained_deaths++;
  }

  return STEP_ON;
}

enum step batch_run(struct execution *execution, struct race_batch *batch) {
  enum step step = STEP_ON;
  while (batch->n && step == STEP_ON) {
    step = batch_step(execution, batch);
    batch_drop_settled(batch);
  }
  return step;
}
