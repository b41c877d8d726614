/* Writing a measurement. Owns nothing; any thread. */
#include "agent/run/measurement_json.h"

json_t *words_to_json(const char *text) {
  size_t size = strlen(text);
  if (size > MEASUREMENT_DETAIL_MAX) {
    size = MEASUREMENT_DETAIL_MAX;
    while (((unsigned char)text[size] & 0xc0) == 0x80 && size > 0) /* not in the middle of a letter */
      size--;
  }
  json_t *json = json_stringn(text, size);
  if (json)
    return json;
  cleanup_free char *copy = xstrndup(text, size);
  for (char *at = copy; *at; at++) {
    if ((unsigned char)*at >= 0x80)
      *at = '?';
  }
  return json_string(copy);
}

/* What code objects say is a stranger's, too. */
static void known_add(json_t *json, const char *name, int64_t value, int64_t most) {
  if (value != CODE_UNKNOWN && value >= 0 && value <= most)
    json_object_set_new(json, name, json_integer(value));
}

static void resources_add(json_t *json, const struct measurement *measurement) {
  const struct code_resources *resources = &measurement->resources;
  bool is_known = resources->vgprs != CODE_UNKNOWN || resources->scratch_bytes != CODE_UNKNOWN;
  known_add(json, "vgprs", resources->vgprs, MEASUREMENT_REGISTERS_MAX);
  known_add(json, "agprs", resources->agprs, MEASUREMENT_REGISTERS_MAX);
  known_add(json, "lds_bytes", resources->lds_bytes, INT32_MAX);
  known_add(json, "spills", is_known ? code_resources_spills(resources) : CODE_UNKNOWN, INT32_MAX);
  known_add(json, "occupancy", measurement->occupancy, INT32_MAX);
}

static void key_note(json_t *conditions, const char *member, bool is_verified, const struct digest *key) {
  json_object_del(conditions, member);
  if (is_verified)
    ALWAYS(json_object_set_new(conditions, member, json_digest_text(key)) == 0);
}

/* What the worker says, which may run a stranger's code, and the keys that were verified here. A new reference; NULL where
 * nothing is known. */
static json_t *conditions_of(const struct lease *lease, const struct measurement *measurement) {
  if (!measurement->conditions && !lease->is_signed)
    return NULL;
  json_t *conditions = measurement->conditions ? json_copy((json_t *)measurement->conditions) : json_object();
  ALWAYS(conditions != NULL);
  key_note(conditions, "kernel_key", lease->is_signed, &lease->kernel_key);
  key_note(conditions, "build_key", lease->is_signed && lease->has_build, &lease->build_key);
  return conditions;
}

json_t *measurement_to_json(const struct lease *lease, const struct measurement *measurement) {
  json_t *json = json_pack("{s:I, s:I, s:I, s:s, s:s, s:I, s:I}", "config", (json_int_t)measurement->config, "process",
                           (json_int_t)lease->process, "round", (json_int_t)lease->round, "outcome",
                           outcome_name(measurement->outcome), "regime", lease->regime, "compile_ms",
                           (json_int_t)measurement->compile_ms, "device_us", (json_int_t)measurement->device_us);
  if (measurement->detail)
    json_object_set_new(json, "detail", words_to_json(measurement->detail));
  if (measurement->baseline_failed)
    json_object_set_new(json, "baseline_failed", json_true());
  if (measurement->n) {
    json_object_set_new(json, "timer", json_string(measurement->timer));
    json_object_set_new(json, "samples_us", json_numbers(measurement->samples_us, measurement->n));
    json_object_set_new(json, "baseline_us", json_numbers(measurement->baseline_us, measurement->n));
  }
  if (measurement->end)
    json_object_set_new(json, "end", words_to_json(measurement->end));
  if (measurement->clock_mhz > 0)
    json_object_set_new(json, "clock_mhz", json_real(measurement->clock_mhz));
  resources_add(json, measurement);
  json_t *conditions = conditions_of(lease, measurement);
  if (conditions)
    json_object_set_new(json, "conditions", conditions);
  return json;
}
