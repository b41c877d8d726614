/* Reading and checking measurements. */
#include "common/measurement/measurement.h"

#include <math.h>

static const struct field fields[] = {
    MEASUREMENT_FIELDS(0, FIELD_OMITTED),
    RECORD_FIELD(BOOL, struct measurement, baseline_failed,
                 FIELD_NOT_NULL | FIELD_OMITTED | FIELD_NO_COLUMN),
    RECORD_FIELD(DIGEST, struct measurement, object, FIELD_OMITTED | FIELD_NO_COLUMN),
};
const struct record measurement_record = RECORD("MeasurementRequest", struct measurement, fields);

void measurement_init(struct measurement *measurement) {
  record_init(&measurement_record, measurement);
}

void measurement_release(struct measurement *measurement) {
  record_release(&measurement_record, measurement);
}

bool measurement_agrees(const struct measurement *measurement, const char *pointer,
                        struct error *error) {
  bool is_correct = measurement->outcome == OUTCOME_CORRECT;
  size_t n = measurement->samples_us.n;
  const char *member = NULL;

  if (measurement->baseline_us.n != n) {
    member = "baseline_us";
    error_set(error, "%zu baseline times for %zu samples; each sample is paired with one",
              measurement->baseline_us.n, n);
  } else if (is_correct && n == 0) {
    member = "samples_us";
    error_set(error, "a correct measurement has at least one sample");
  } else if (measurement->baseline_failed && (is_correct || !measurement->detail)) {
    member = is_correct ? "baseline_failed" : "detail";
    error_set(error,
              "a baseline that failed must have another outcome than correct, and the reason in "
              "\"detail\"");
  } else if (!is_correct && !digest_is_none(&measurement->object)) {
    member = "object";
    error_set(error, "a measurement with the outcome %s has no object; only correct ones have",
              outcome_name(measurement->outcome));
  } else if (measurement->conditions && !json_is_object(measurement->conditions)) {
    member = "conditions";
    error_set(error, "\"conditions\" must be an object");
  }

  char at[JSON_POINTER_SIZE];
  return !member ||
         error_pointer_prefix(error, json_pointer_member(at, sizeof at, pointer, member));
}

bool measurement_read(const json_t *json, const char *pointer, struct measurement *measurement,
                      struct error *error) {
  return record_read(&measurement_record, json, pointer, measurement, error) &&
         measurement_agrees(measurement, pointer, error);
}

void measurement_trim(struct measurement *measurement) {
  for (size_t i = 0; i < measurement_record.n; i++) {
    const struct field *field = &measurement_record.fields[i];
    void *at = field_at(field, measurement);
    int64_t *integer = at;
    double *number = at;
    if (field->type == FIELD_INTEGER && (*integer < field->least || *integer > field->most))
      *integer = FIELD_NONE;
    if (field->type == FIELD_NUMBER &&
        !(*number >= field->least_number && *number <= field->most_number))
      *number = NAN;
  }
}

bool measurement_left_early(const struct measurement *measurement) {
  return string_equal(measurement->end, "far") || string_equal(measurement->end, "behind");
}
