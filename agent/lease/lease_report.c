/* Measurements for the hook, and the ends of a lease whose baseline has failed. */
#include "agent/lease/lease_execution.h"

enum outcome end_outcome(enum worker_event event) {
  return event == WORKER_HUNG ? OUTCOME_TIMEOUT : OUTCOME_RUNTIME;
}

enum step report_measurement(struct execution *execution, struct lease_config *config,
                             struct measurement *measurement) {
  const struct lease_object *object = config->object;
  const struct code_resources *resources =
      object ? &object->launch.resources : &code_resources_unknown;
  bool is_known = resources->vgprs != CODE_UNKNOWN || resources->scratch_bytes != CODE_UNKNOWN;
  measurement->config = (int64_t)config->ordinal;
  measurement->compile_ms = object ? object->compile_ms : 0;
  measurement->vgprs = resources->vgprs;
  measurement->agprs = resources->agprs;
  measurement->spills = is_known ? code_resources_spills(resources) : FIELD_NONE;
  if (measurement->lds_bytes == FIELD_NONE) /* the worker's includes dynamic memory */
    measurement->lds_bytes = resources->lds_bytes;
  measurement_trim(measurement);

  config->is_settled = true;
  return execution->hooks->measured(execution->hooks->context, execution->lease, measurement,
                                    execution->executor->is_gpu ? object : NULL)
             ? STEP_ON
             : STEP_STOPPED;
}

static struct measurement failure_of(enum outcome outcome, const char *detail) {
  struct measurement measurement;
  measurement_init(&measurement);
  measurement.outcome = outcome;
  measurement.detail = (char *)detail;
  measurement.device_us = 0;
  return measurement;
}

enum step report_failure(struct execution *execution, struct lease_config *config,
                         enum outcome outcome, const char *detail, int64_t device_us) {
  struct measurement measurement = failure_of(outcome, detail);
  measurement.device_us = device_us;
  return report_measurement(execution, config, &measurement);
}

static enum step end_with(struct execution *execution, enum outcome outcome, const char *detail,
                          json_t *conditions) {
  cleanup_free char *text = xasprintf("baseline: %s", detail);
  struct measurement measurement = failure_of(outcome, text);
  measurement.baseline_failed = true;
  measurement.conditions = conditions;
  enum step step = report_measurement(execution, &execution->baseline, &measurement);
  return step == STEP_ON ? STEP_DONE : step;
}

enum step end_with_baseline(struct execution *execution, enum outcome outcome, const char *detail) {
  return end_with(execution, outcome, detail, NULL);
}

enum step end_with_misinterpreted(struct execution *execution, const char *detail) {
  cleanup_json json_t *conditions =
      json_pack("{s:s}", "interpreted", agreement_name(AGREEMENT_DISAGREES));
  return end_with(execution, OUTCOME_CORRECTNESS, detail, conditions);
}
