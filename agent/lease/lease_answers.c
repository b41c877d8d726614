/* From what a worker answered, or did not, to measurements for the hook. Memory and threads: lease_execution.h. */
#include <math.h>

#include "agent/lease/lease_execution.h"
#include "common/verdict/verdict.h"

enum outcome end_outcome(enum worker_event event) { return event == WORKER_HUNG ? OUTCOME_TIMEOUT : OUTCOME_RUNTIME; }

bool answer_is_correct(const json_t *answer) {
  return answer && string_equal(json_string_value(json_object_get(answer, "outcome")), "correct");
}

static enum step hand_on(struct execution *execution, struct work *work, const struct measurement *measurement) {
  work->is_over = true;
  bool goes_on = execution->hooks->measured(execution->hooks->context, execution->lease, measurement);
  return goes_on ? STEP_ON : STEP_STOPPED;
}

/* What is known of a config without a launch. */
static struct measurement measurement_of(const struct work *work) {
  const struct lease_object *object = work->object;
  struct measurement measurement = {
      .config = work->config,
      .resources = object ? object->launch.resources : code_resources_unknown,
      .occupancy = CODE_UNKNOWN,
      .compile_ms = object ? object->compile_ms : 0,
  };
  return measurement;
}

static struct measurement failure_of(const struct work *work, enum outcome outcome, const char *detail) {
  struct measurement measurement = measurement_of(work);
  measurement.outcome = outcome;
  measurement.detail = (char *)detail;
  return measurement;
}

enum step hand_on_failure(struct execution *execution, struct work *work, enum outcome outcome, const char *detail,
                          int64_t device_us) {
  struct measurement measurement = failure_of(work, outcome, detail);
  measurement.device_us = device_us;
  return hand_on(execution, work, &measurement);
}

enum step end_with_baseline(struct execution *execution, enum outcome outcome, const char *detail) {
  cleanup_free char *text = xasprintf("baseline: %s", detail);
  struct measurement measurement = failure_of(&execution->baseline, outcome, text);
  measurement.baseline_failed = true;
  enum step step = hand_on(execution, &execution->baseline, &measurement);
  return step == STEP_ON ? STEP_DONE : step;
}

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

static int64_t known_integer(const json_t *answer, const char *name, int64_t otherwise) {
  const json_t *value = json_object_get(answer, name);
  return json_is_integer(value) ? json_integer_value(value) : otherwise;
}

/* Adds the answer, whose texts the measurement borrows. The caller frees the samples. */
static bool measurement_read(const json_t *answer, struct measurement *measurement) {
  const json_t *samples = json_object_get(answer, "samples_us"), *baseline = json_object_get(answer, "baseline_us");
  const json_t *conditions = json_object_get(answer, "conditions");
  measurement->detail = (char *)json_string_value(json_object_get(answer, "detail"));
  measurement->timer = json_string_value(json_object_get(answer, "timer"));
  measurement->end = json_string_value(json_object_get(answer, "end"));
  measurement->device_us = json_integer_value(json_object_get(answer, "device_us"));
  measurement->clock_mhz = json_number_value(json_object_get(answer, "clock_mhz"));
  measurement->occupancy = known_integer(answer, "occupancy", CODE_UNKNOWN);
  measurement->resources.lds_bytes = known_integer(answer, "lds_bytes", measurement->resources.lds_bytes);
  measurement->conditions = json_object_size(conditions) ? conditions : NULL;
  if (!outcome_parse(json_string_value(json_object_get(answer, "outcome")), &measurement->outcome))
    return false;
  if (measurement->outcome != OUTCOME_CORRECT)
    return true;
  size_t n = json_array_size(samples);
  if (!measurement->timer || n == 0 || n != json_array_size(baseline) ||
      !numbers_read(samples, &measurement->samples_us) || !numbers_read(baseline, &measurement->baseline_us))
    return false;
  measurement->n = n;
  return true;
}

/* What a later batch of the lease races against: not a config that left early, whose few rounds say little. */
static void best_learn(struct execution *execution, const struct measurement *measurement) {
  if (!measurement->n || measurement_left_early(measurement) || execution->lease->stage == STAGE_FINAL)
    return;
  double ratio = verdict_paired_ratio(measurement->samples_us, measurement->baseline_us, measurement->n);
  if (execution->best_ratio == 0 || ratio < execution->best_ratio)
    execution->best_ratio = ratio;
}

enum step hand_on_answer(struct execution *execution, struct work *work, const json_t *answer) {
  struct measurement measurement = measurement_of(work);
  if (!answer)
    return hand_on_failure(execution, work, OUTCOME_RUNTIME, "the worker gave no answer for it", 0);
  bool is_read = measurement_read(answer, &measurement);
  if (execution->executor->is_gpu)
    measurement.object = work->object->path;
  if (is_read)
    best_learn(execution, &measurement);
  enum step step =
      is_read ? hand_on(execution, work, &measurement)
              : hand_on_failure(execution, work, OUTCOME_RUNTIME, "the worker's answer for it makes no sense", 0);
  free(measurement.samples_us);
  free(measurement.baseline_us);
  return step;
}
