/* Reading posted measurements. Memory and threads: as the header says. */
#include "server/measurement/results.h"

#include "common/verdict/verdict.h"

void results_release(struct results *results) {
  for (size_t i = 0; i < results->n; i++)
    free(results->measurements[i].conditions);
  free(results->measurements);
  *results = (struct results){0};
}

static bool text_get(const json_t *json, const char *pointer, const char *name, size_t max, const char **ret,
                     struct error *error) {
  if (!json_get_string(json, pointer, name, JSON_OPTIONAL, ret, error))
    return false;
  if (*ret && strlen(*ret) > max) {
    char at[JSON_POINTER_SIZE];
    return error_at(error, json_pointer_member(at, sizeof at, pointer, name),
                    "\"%s\" has %zu bytes; at most %zu are kept", name, strlen(*ret), max);
  }
  return true;
}

/* Reads a list of times into `times`, which has MEASUREMENT_SAMPLES_MAX elements. */
static bool times_get(const json_t *json, const char *pointer, const char *name, const json_t **ret, double *times,
                      struct error *error) {
  json_t *array = NULL;
  char at[JSON_POINTER_SIZE], element_at[JSON_POINTER_SIZE];
  if (!json_get_array(json, pointer, name, JSON_NOT_NULL, &array, error))
    return false;
  *ret = array;
  json_pointer_member(at, sizeof at, pointer, name);
  if (json_array_size(array) > MEASUREMENT_SAMPLES_MAX)
    return error_at(error, at, "%zu samples; at most %d are taken", json_array_size(array), MEASUREMENT_SAMPLES_MAX);
  for (size_t i = 0; i < json_array_size(array); i++) {
    const json_t *element = json_array_get(array, i);
    times[i] = json_number_value(element);
    if (!json_is_number(element) || !(times[i] >= VERDICT_US_MIN && times[i] <= VERDICT_US_MAX))
      return error_at(error, json_pointer_index(element_at, sizeof element_at, at, i),
                      "a sample must be a number of microseconds from %g to %g", VERDICT_US_MIN, VERDICT_US_MAX);
  }
  return true;
}

static bool samples_get(const json_t *json, const char *pointer, struct measurement *measurement, double *samples,
                        double *baselines, struct error *error) {
  char at[JSON_POINTER_SIZE];
  if (!times_get(json, pointer, "samples_us", &measurement->samples_us, samples, error) ||
      !times_get(json, pointer, "baseline_us", &measurement->baseline_us, baselines, error))
    return false;
  size_t n = json_array_size(measurement->samples_us);
  if (json_array_size(measurement->baseline_us) != n)
    return error_at(error, json_pointer_member(at, sizeof at, pointer, "baseline_us"),
                    "%zu baseline times for %zu samples; each sample is paired with one",
                    json_array_size(measurement->baseline_us), n);
  if (measurement->outcome == OUTCOME_CORRECT && n == 0)
    return error_at(error, json_pointer_member(at, sizeof at, pointer, "samples_us"),
                    "a correct measurement has at least one sample");
  if (n > 0)
    measurement->ratio = verdict_paired_ratio(samples, baselines, n);
  return true;
}

static bool clock_get(const json_t *json, const char *pointer, double *ret, struct error *error) {
  char at[JSON_POINTER_SIZE];
  if (!json_get_number(json, pointer, "clock_mhz", JSON_OPTIONAL, ret, error))
    return false;
  if (!(*ret >= 0 && *ret <= MEASUREMENT_CLOCK_MHZ_MAX))
    return error_at(error, json_pointer_member(at, sizeof at, pointer, "clock_mhz"),
                    "\"clock_mhz\" is %g; it must be 0 to 1000000", *ret);
  return true;
}

static bool baseline_failure_get(const json_t *json, const char *pointer, struct measurement *measurement,
                                 struct error *error) {
  char at[JSON_POINTER_SIZE];
  bool has_failed = false, is_correct = measurement->outcome == OUTCOME_CORRECT;
  if (!json_get_bool(json, pointer, "baseline_failed", JSON_NOT_NULL, &has_failed, error))
    return false;
  if (has_failed && (is_correct || !measurement->detail))
    return error_at(error, json_pointer_member(at, sizeof at, pointer, is_correct ? "baseline_failed" : "detail"),
                    "a baseline that failed has another outcome than correct, and a \"detail\" that says why");
  if (has_failed)
    measurement->baseline_failure = BASELINE_FAILED;
  else if (!is_correct && measurement->detail && string_starts(measurement->detail, "baseline: "))
    measurement->baseline_failure = BASELINE_FAILED_BY_DETAIL;
  return true;
}

/* The code that was timed: what was not correct has none to show. */
static bool object_get(const json_t *json, const char *pointer, struct measurement *measurement, struct error *error) {
  char at[JSON_POINTER_SIZE];
  const json_t *object = json_object_get(json, "object");
  measurement->has_object = object && !json_is_null(object);
  if (!json_get_digest(json, pointer, "object", JSON_OPTIONAL, &measurement->object, error))
    return false;
  if (measurement->has_object && measurement->outcome != OUTCOME_CORRECT)
    return error_at(error, json_pointer_member(at, sizeof at, pointer, "object"),
                    "a measurement with the outcome %s has no object; only correct ones have",
                    outcome_name(measurement->outcome));
  return true;
}

static bool conditions_get(const json_t *json, const char *pointer, char **ret_text, struct error *error) {
  char at[JSON_POINTER_SIZE];
  json_t *conditions = NULL;
  if (!json_get_object(json, pointer, "conditions", JSON_OPTIONAL, &conditions, error))
    return false;
  if (!conditions)
    return true;
  cleanup_free char *text = json_canonical(conditions);
  if (strlen(text) > MEASUREMENT_CONDITIONS_MAX)
    return error_at(error, json_pointer_member(at, sizeof at, pointer, "conditions"),
                    "\"conditions\" has %zu bytes; at most %d are kept", strlen(text), MEASUREMENT_CONDITIONS_MAX);
  *ret_text = TAKE(text);
  return true;
}

/* Equal bodies have equal digests. The samples go in as they lie in memory: writing them as text would cost more than all
 * the rest of a post. */
static struct digest body_digest(const json_t *json, const struct measurement *measurement, const double *samples,
                                 const double *baselines) {
  cleanup_json json_t *rest = json_copy((json_t *)json);
  json_object_del(rest, "samples_us");
  json_object_del(rest, "baseline_us");
  cleanup_free char *text = json_dumps(rest, JSON_COMPACT | JSON_SORT_KEYS);
  ALWAYS(text != NULL);
  struct digest_stream *stream = digest_stream_new();
  digest_stream_add(stream, text, strlen(text) + 1);
  digest_stream_add(stream, samples, json_array_size(measurement->samples_us) * sizeof *samples);
  digest_stream_add(stream, baselines, json_array_size(measurement->baseline_us) * sizeof *baselines);
  return digest_stream_finish(stream);
}

static bool measurement_parse(const json_t *json, const char *pointer, double *samples, double *baselines,
                              struct measurement *ret, struct error *error) {
  static const char *const members[] = {"seq",
                                        "config",
                                        "process",
                                        "round",
                                        "outcome",
                                        "detail",
                                        "baseline_failed",
                                        "timer",
                                        "regime",
                                        "samples_us",
                                        "baseline_us",
                                        "clock_mhz",
                                        "object",
                                        "conditions",
                                        "end",
#define X(member, least, most) #member,
                                        MEASUREMENT_INTEGERS(X)
#undef X
                                            NULL};
  struct measurement measurement = {.process = MEASUREMENT_NONE, .round = MEASUREMENT_NONE};
  const char *outcome;
  char at[JSON_POINTER_SIZE];
#define X(member, least, most) measurement.member = MEASUREMENT_NONE;
  MEASUREMENT_INTEGERS(X)
#undef X
  if (!json_only_members(json, pointer, members, error) ||
      !json_get_integer(json, pointer, "seq", JSON_REQUIRED, 1, INT64_MAX, &measurement.seq, error) ||
      !json_get_integer(json, pointer, "config", JSON_REQUIRED, 0, INT64_MAX - 1, &measurement.config, error) ||
      !json_get_integer(json, pointer, "process", JSON_NOT_NULL, 0, INT32_MAX, &measurement.process, error) ||
      !json_get_integer(json, pointer, "round", JSON_NOT_NULL, 0, INT32_MAX, &measurement.round, error) ||
      !json_get_string(json, pointer, "outcome", JSON_REQUIRED, &outcome, error) ||
      !text_get(json, pointer, "detail", MEASUREMENT_DETAIL_MAX, &measurement.detail, error) ||
      !text_get(json, pointer, "timer", MEASUREMENT_NAME_MAX, &measurement.timer, error) ||
      !text_get(json, pointer, "regime", MEASUREMENT_NAME_MAX, &measurement.regime, error) ||
      !text_get(json, pointer, "end", MEASUREMENT_NAME_MAX, &measurement.end, error) ||
      !clock_get(json, pointer, &measurement.clock_mhz, error))
    return false;
#define X(member, least, most)                                                                                         \
  if (!json_get_integer(json, pointer, #member, JSON_OPTIONAL, least, most, &measurement.member, error))               \
    return false;
  MEASUREMENT_INTEGERS(X)
#undef X
  if (!outcome_parse(outcome, &measurement.outcome))
    return error_at(error, json_pointer_member(at, sizeof at, pointer, "outcome"),
                    "\"%.40s\" is no outcome; they are correct, compile, runtime, correctness, timeout and constraints",
                    outcome);
  if (!samples_get(json, pointer, &measurement, samples, baselines, error) ||
      !baseline_failure_get(json, pointer, &measurement, error) || !object_get(json, pointer, &measurement, error) ||
      !conditions_get(json, pointer, &measurement.conditions, error))
    return false;
  measurement.body = body_digest(json, &measurement, samples, baselines);
  *ret = measurement;
  return true;
}

static int by_seq(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

static bool seqs_are_distinct(const struct results *results, struct error *error) {
  cleanup_free int64_t *seqs = xcalloc(results->n + 1, sizeof *seqs);
  for (size_t i = 0; i < results->n; i++)
    seqs[i] = results->measurements[i].seq;
  qsort(seqs, results->n, sizeof *seqs, by_seq);
  for (size_t i = 1; i < results->n; i++)
    if (seqs[i] == seqs[i - 1])
      return error_at(error, "/measurements", "seq %lld occurs twice; it is unique in a lease's epoch",
                      (long long)seqs[i]);
  return true;
}

bool results_parse(const json_t *json, struct results *ret, struct error *error) {
  static const char *const members[] = {"epoch", "measurements", "done", "opening_us", NULL};
  __attribute__((cleanup(results_release))) struct results results = {0};
  json_t *array;
  if (!json_only_members(json, "", members, error) ||
      !json_get_integer(json, "", "epoch", JSON_REQUIRED, 1, INT64_MAX, &results.epoch, error) ||
      !json_get_array(json, "", "measurements", JSON_REQUIRED, &array, error) ||
      !json_get_bool(json, "", "done", JSON_NOT_NULL, &results.done, error) ||
      !json_get_integer(json, "", "opening_us", JSON_NOT_NULL, 0, OPENING_US_MAX, &results.opening_us, error))
    return false;
  size_t n = json_array_size(array);
  if (n > RESULTS_MEASUREMENTS_MAX || (n == 0 && !results.done))
    return error_at(error, "/measurements", "%zu measurements; post 1 to %d, or none with \"done\"", n,
                    RESULTS_MEASUREMENTS_MAX);
  cleanup_free double *times = xcalloc(2 * MEASUREMENT_SAMPLES_MAX, sizeof *times);
  results.measurements = xcalloc(n + 1, sizeof *results.measurements);
  for (; results.n < n; results.n++) {
    char at[JSON_POINTER_SIZE];
    json_pointer_index(at, sizeof at, "/measurements", results.n);
    if (!measurement_parse(json_array_get(array, results.n), at, times, times + MEASUREMENT_SAMPLES_MAX,
                           &results.measurements[results.n], error))
      return false;
  }
  if (!seqs_are_distinct(&results, error))
    return false;
  *ret = results;
  results = (struct results){0};
  return true;
}
