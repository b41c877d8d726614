/* Writing a measurement. Owns nothing; any thread. */
#include "agent/run/measurement_json.h"

json_t *words_to_json(const char *text) {
  size_t size = strlen(text);
  if (size > MEASUREMENT_DETAIL_MAX) {
    size = MEASUREMENT_DETAIL_MAX;
    while (((unsigned char)text[size] & 0xc0) == 0x80 &&
           size > 0) /* not in the middle of a letter */
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

static void key_note(json_t *conditions, const char *member, bool is_verified,
                     const struct digest *key) {
  json_object_del(conditions, member);
  if (is_verified)
    ALWAYS(json_object_set_new(conditions, member, json_digest_text(key)) == 0);
}

/* What the worker says, which may run a stranger's code, and the keys that were verified here. A
 * new reference; NULL where nothing is known. */
static json_t *conditions_of(const struct lease *lease, const struct measurement *measurement) {
  if (!measurement->conditions && !lease->is_signed)
    return NULL;
  json_t *conditions =
      measurement->conditions ? json_copy((json_t *)measurement->conditions) : json_object();
  ALWAYS(conditions != NULL);
  key_note(conditions, "kernel_key", lease->is_signed, &lease->kernel_key);
  key_note(conditions, "build_key", lease->is_signed && lease->has_build, &lease->build_key);
  return conditions;
}

json_t *measurement_to_json(const struct lease *lease, const struct measurement *measurement,
                            const struct digest *object) {
  struct measurement posted = *measurement; /* borrows what that one points to */
  cleanup_json json_t *detail = measurement->detail ? words_to_json(measurement->detail) : NULL;
  cleanup_json json_t *conditions = posted.conditions = conditions_of(lease, measurement);
  posted.detail = (char *)json_string_value(detail);
  posted.process = lease->process;
  posted.round = lease->round;
  posted.regime = lease->regime;
  if (object)
    posted.object = *object;
  return record_write(&measurement_record, &posted);
}
