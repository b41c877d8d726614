/* From what a worker answered, or did not, to measurements for the hook. Memory and threads: lease_execution.h. */
#include "agent/lease/lease_execution.h"
#include "common/verdict/verdict.h"

#define DAY_US (INT64_C(86400) * 1000000)

enum outcome end_outcome(enum worker_event event) { return event == WORKER_HUNG ? OUTCOME_TIMEOUT : OUTCOME_RUNTIME; }

bool answer_is_correct(const json_t *answer) {
  return answer && string_equal(json_string_value(json_object_get(answer, "outcome")), "correct");
}

int64_t answer_spent_us(const json_t *answer, const char *part) {
  int64_t us = 0;
  struct error ignored;
  bool is_read = json_get_integer(json_object_get(answer, "spent"), "", part, JSON_OPTIONAL, 0, DAY_US, &us, &ignored);
  return is_read ? us : 0;
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
    if (!(numbers[i] >= VERDICT_US_MIN && numbers[i] <= VERDICT_US_MAX))
      return false;
  }
  *ret_numbers = TAKE(numbers);
  return true;
}

static bool name_read(const json_t *answer, const char *member, const char **ret) {
  struct error ignored;
  return json_get_string(answer, "", member, JSON_OPTIONAL, ret, &ignored) &&
         (!*ret || strlen(*ret) <= MEASUREMENT_NAME_MAX);
}

/* Room for what the agent adds: ,"kernel_key":"sha256:…" and ,"build_key":"sha256:…". */
#define CONDITIONS_KEYS 192
static bool conditions_read(const json_t *answer, const json_t **ret) {
  struct error ignored;
  json_t *conditions = NULL;
  if (!json_get_object(answer, "", "conditions", JSON_OPTIONAL, &conditions, &ignored))
    return false;
  cleanup_free char *text = conditions ? json_canonical(conditions) : NULL;
  *ret = json_object_size(conditions) ? conditions : NULL;
  return !text || strlen(text) + CONDITIONS_KEYS <= MEASUREMENT_CONDITIONS_MAX;
}

/* Adds the answer, whose texts the measurement borrows. The caller frees the samples. False: no server would take it. */
static bool measurement_read(const json_t *answer, struct measurement *measurement) {
  const json_t *samples = json_object_get(answer, "samples_us"), *baseline = json_object_get(answer, "baseline_us");
  int64_t *lds_bytes = &measurement->resources.lds_bytes;
  struct error ignored;
  if (!json_get_string(answer, "", "detail", JSON_OPTIONAL, (const char **)&measurement->detail, &ignored) ||
      !name_read(answer, "timer", &measurement->timer) || !name_read(answer, "end", &measurement->end) ||
      !json_get_integer(answer, "", "device_us", JSON_OPTIONAL, 0, MEASUREMENT_DEVICE_US_MAX, &measurement->device_us,
                        &ignored) ||
      !json_get_number(answer, "", "clock_mhz", JSON_OPTIONAL, &measurement->clock_mhz, &ignored) ||
      !(measurement->clock_mhz >= 0 && measurement->clock_mhz <= MEASUREMENT_CLOCK_MHZ_MAX) ||
      !json_get_integer(answer, "", "occupancy", JSON_OPTIONAL, 0, INT32_MAX, &measurement->occupancy, &ignored) ||
      !json_get_integer(answer, "", "lds_bytes", JSON_OPTIONAL, 0, INT32_MAX, lds_bytes, &ignored) ||
      !conditions_read(answer, &measurement->conditions) ||
      !outcome_parse(json_string_value(json_object_get(answer, "outcome")), &measurement->outcome))
    return false;
  if (measurement->outcome != OUTCOME_CORRECT)
    return true;

  size_t n = json_array_size(samples);
  if (!measurement->timer || n == 0 || n > MEASUREMENT_SAMPLES_MAX || n != json_array_size(baseline) ||
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
    measurement.object = work->object->path, measurement.object_digest = work->object->digest;
  if (is_read)
    best_learn(execution, &measurement);
  enum step step =
      is_read ? hand_on(execution, work, &measurement)
              : hand_on_failure(execution, work, OUTCOME_RUNTIME, "the worker's answer for it makes no sense", 0);
  free(measurement.samples_us);
  free(measurement.baseline_us);
  return step;
}
