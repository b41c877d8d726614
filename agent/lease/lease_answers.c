/* From what a worker answered, or did not, to measurements for the hook. Memory and threads:
 * lease_execution.h. */
#include "agent/lease/lease_execution.h"
#include "common/verdict/verdict.h"

#define DAY_US (INT64_C(86400) * 1000000)

enum outcome end_outcome(enum worker_event event) {
  return event == WORKER_HUNG ? OUTCOME_TIMEOUT : OUTCOME_RUNTIME;
}

bool answer_is_correct(const json_t *answer) {
  return answer && string_equal(json_string_value(json_object_get(answer, "outcome")), "correct");
}

int64_t answer_spent_us(const json_t *answer, const char *part) {
  int64_t us = 0;
  struct error ignored;
  bool is_read = json_get_integer(json_object_get(answer, "spent"), "", part, JSON_OPTIONAL, 0,
                                  DAY_US, &us, &ignored);
  return is_read ? us : 0;
}

static enum step hand_on(struct execution *execution, struct work *work,
                         const struct measurement *measurement) {
  const struct lease_object *object = execution->executor->is_gpu ? work->object : NULL;
  work->is_over = true;
  bool goes_on =
      execution->hooks->measured(execution->hooks->context, execution->lease, measurement, object);
  return goes_on ? STEP_ON : STEP_STOPPED;
}

/* What is known of a config without its worker. */
static void facts_set(const struct work *work, struct measurement *measurement) {
  const struct lease_object *object = work->object;
  const struct code_resources *resources =
      object ? &object->launch.resources : &code_resources_unknown;
  bool is_known = resources->vgprs != CODE_UNKNOWN || resources->scratch_bytes != CODE_UNKNOWN;
  measurement->config = (int64_t)work->config;
  measurement->compile_ms = object ? object->compile_ms : 0;
  measurement->vgprs = resources->vgprs;
  measurement->agprs = resources->agprs;
  measurement->spills = is_known ? code_resources_spills(resources) : FIELD_NONE;
  if (measurement->lds_bytes == FIELD_NONE) /* of a launch it is static and dynamic */
    measurement->lds_bytes = resources->lds_bytes;
  measurement_trim(measurement);
}

static struct measurement failure_of(const struct work *work, enum outcome outcome,
                                     const char *detail) {
  struct measurement measurement;
  measurement_init(&measurement);
  facts_set(work, &measurement);
  measurement.outcome = outcome;
  measurement.detail = (char *)detail;
  measurement.device_us = 0;
  return measurement;
}

enum step hand_on_failure(struct execution *execution, struct work *work, enum outcome outcome,
                          const char *detail, int64_t device_us) {
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

/* Room for what the agent adds: ,"kernel_key":"sha256:…" and ,"build_key":"sha256:…". */
#define CONDITIONS_KEYS 192
static bool conditions_fit(const struct measurement *measurement) {
  cleanup_free char *text =
      measurement->conditions ? json_canonical(measurement->conditions) : NULL;
  return !text || strlen(text) + CONDITIONS_KEYS <= MEASUREMENT_CONDITIONS_MAX;
}

/* A worker may run a stranger's code: what it cannot know, it does not say. False: no server would
 * take it. */
static bool answer_read(const struct work *work, const json_t *answer,
                        struct measurement *measurement) {
  static const char *const not_its[] = {"seq",    "process",         "round",
                                        "regime", "baseline_failed", "object"};
  struct error ignored;
  cleanup_json json_t *own = json_copy((json_t *)answer);
  for (size_t i = 0; i < ARRAY_LENGTH(not_its); i++)
    json_object_del(own, not_its[i]);
  json_object_set_new(own, "seq", json_integer(1)); /* the poster numbers it */
  if (!measurement_read(own, "", measurement, &ignored) || !conditions_fit(measurement))
    return false;
  if (measurement->outcome == OUTCOME_CORRECT && !measurement->timer)
    return false;
  measurement->seq = FIELD_NONE;
  facts_set(work, measurement);
  return true;
}

/* What a later batch of the lease races against: not a config that left early, whose few rounds say
 * little. */
static void best_learn(struct execution *execution, const struct measurement *measurement) {
  size_t n = measurement->samples_us.n;
  if (!n || measurement_left_early(measurement) || execution->lease->stage == STAGE_FINAL)
    return;
  double ratio = verdict_paired_ratio(measurement->samples_us.all, measurement->baseline_us.all, n);
  if (execution->best_ratio == 0 || ratio < execution->best_ratio)
    execution->best_ratio = ratio;
}

enum step hand_on_answer(struct execution *execution, struct work *work, const json_t *answer) {
  if (!answer)
    return hand_on_failure(execution, work, OUTCOME_RUNTIME, "the worker gave no answer for it", 0);

  __attribute__((cleanup(measurement_release))) struct measurement measurement;
  measurement_init(&measurement);
  if (!answer_read(work, answer, &measurement))
    return hand_on_failure(execution, work, OUTCOME_RUNTIME,
                           "the worker's answer for it makes no sense", 0);
  best_learn(execution, &measurement);
  return hand_on(execution, work, &measurement);
}
