/* The verdict as JSON, and what a stored one says of a config that is served. Owns nothing; any
 * thread. */
#include <math.h>

#include "common/verdict/verdict.h"

/* With 9 significant digits. */
static json_t *json_rounded(double number) {
  char text[32];
  snprintf(text, sizeof text, "%.9g", number);
  return json_real(strtod(text, NULL));
}

static json_t *finalist_to_json(const struct verdict_finalist *finalist) {
  json_t *object = json_object();
  json_object_set_new(object, "config", json_integer((json_int_t)finalist->config));
  json_object_set_new(object, "ratio", json_rounded(finalist->ratio));
  if (isfinite(finalist->upper)) {
    json_object_set_new(object, "lower", json_rounded(finalist->lower));
    json_object_set_new(object, "upper", json_rounded(finalist->upper));
  }
  json_object_set_new(object, "winner_ratio", json_rounded(finalist->winner_ratio));
  if (isfinite(finalist->winner_upper)) {
    json_object_set_new(object, "winner_lower", json_rounded(finalist->winner_lower));
    json_object_set_new(object, "winner_upper", json_rounded(finalist->winner_upper));
  }
  json_object_set_new(object, "median_us", json_rounded(finalist->median_us));
  json_object_set_new(object, "equivalent", json_boolean(finalist->equivalent));
  return object;
}

json_t *verdict_to_json(const struct verdict *verdict) {
  json_t *object = json_object(), *equivalents = json_array(), *finalists = json_array();
  for (size_t i = 0; i < verdict->n_equivalents; i++)
    json_array_append_new(equivalents, json_integer((json_int_t)verdict->equivalents[i]));
  for (size_t i = 0; i < verdict->n_finalists; i++)
    json_array_append_new(finalists, finalist_to_json(&verdict->finalists[i]));
  json_object_set_new(object, "winner", json_integer((json_int_t)verdict->winner));
  json_object_set_new(object, "equivalence_set", equivalents);
  json_object_set_new(object, "regret_bound", json_rounded(verdict->regret_bound));
  json_object_set_new(object, "verdict", json_string(verdict_outcome_name(verdict->outcome)));
  json_object_set_new(object, "speedup", json_rounded(1 / verdict->baseline_ratio));
  json_object_set_new(object, "baseline_ratio", json_rounded(verdict->baseline_ratio));
  json_object_set_new(object, "baseline_lower", json_rounded(verdict->baseline_lower));
  json_object_set_new(object, "baseline_upper", json_rounded(verdict->baseline_upper));
  json_object_set_new(object, "winner_us", json_rounded(verdict->winner_us));
  json_object_set_new(object, "baseline_us", json_rounded(verdict->baseline_us));
  json_object_set_new(object, "samples", json_integer((json_int_t)verdict->n_samples));
  json_object_set_new(object, "processes", json_integer((json_int_t)verdict->n_processes));
  json_object_set_new(object, "devices", json_integer((json_int_t)verdict->n_devices));
  json_object_set_new(object, "finalists", finalists);
  return object;
}

static const json_t *finalist_find(const json_t *verdict, uint64_t config) {
  size_t index;
  const json_t *finalist;
  json_array_foreach (json_object_get(verdict, "finalists"), index, finalist)
    if ((uint64_t)json_integer_value(json_object_get(finalist, "config")) == config)
      return finalist;
  return NULL;
}

static bool is_equivalent(const json_t *verdict, uint64_t config) {
  size_t index;
  const json_t *element;
  json_array_foreach (json_object_get(verdict, "equivalence_set"), index, element)
    if ((uint64_t)json_integer_value(element) == config)
      return true;
  return false;
}

bool verdict_json_replaces(const json_t *verdict, uint64_t baseline, uint64_t served,
                           double min_gain, struct error *ret_reason) {
  const json_t *finalist = finalist_find(verdict, served);
  bool is_baseline = served == baseline;
  const json_t *ratio = is_baseline ? json_object_get(verdict, "baseline_ratio")
                                    : json_object_get(finalist, "winner_ratio");
  const json_t *upper = is_baseline ? json_object_get(verdict, "baseline_upper")
                                    : json_object_get(finalist, "winner_upper");
  if (is_equivalent(verdict, served))
    return error_set(ret_reason, "the served config %llu is in the job's equivalence set",
                     (unsigned long long)served);
  if (!is_baseline && !finalist)
    return error_set(ret_reason,
                     "the job measured the served config %llu neither as its baseline nor as a "
                     "finalist; submit one whose "
                     "baseline it is",
                     (unsigned long long)served);
  if (!json_is_number(ratio) || !json_is_number(upper))
    return error_set(ret_reason,
                     "the job's verdict has no interval of its winner against the served config "
                     "%llu; submit the job "
                     "with another run",
                     (unsigned long long)served);
  if (json_number_value(upper) >= 1)
    return error_set(ret_reason,
                     "the winner's time is %.4f of the served config %llu's, but its interval "
                     "reaches %.4f: not known "
                     "to be faster",
                     json_number_value(ratio), (unsigned long long)served,
                     json_number_value(upper));
  if (json_number_value(ratio) > 1 - min_gain)
    return error_set(
        ret_reason,
        "the winner gains %.2f %% over the served config %llu, less than the %.2f %% asked for",
        100 * (1 - json_number_value(ratio)), (unsigned long long)served, 100 * min_gain);
  return true;
}
