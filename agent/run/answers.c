/* Reading a server's answers. Owns nothing but what the header says; any thread. */
#include "agent/run/answers.h"

#include "agent/lease/lease.h"

/* a token that is replaced all the time would be all that the agent does */
#define ROTATE_LEAST_MS 500

static bool answer_read(const struct record *record, const json_t *json, void *answer,
                        struct error *error) {
  if (record_read_answer(record, json, "", answer, error))
    return true;
  record_release(record, answer);
  return false;
}

/* What is due already (below 0) is due in a moment. */
static void rotation_settle(int64_t *rotate_in_ms) {
  if (*rotate_in_ms != FIELD_NONE && *rotate_in_ms < ROTATE_LEAST_MS)
    *rotate_in_ms = ROTATE_LEAST_MS;
}

bool enrolled_read(const json_t *json, struct enrolled *ret, struct error *error) {
  record_init(&agent_answer_record, ret);
  ret->heartbeat_every_ms = HEARTBEAT_MS_DEFAULT;
  ret->reclaimed = 0;
  if (!answer_read(&agent_answer_record, json, ret, error))
    return false;
  rotation_settle(&ret->rotate_in_ms);
  return true;
}

bool rotated_read(const json_t *json, struct rotated *ret, struct error *error) {
  record_init(&agent_token_answer_record, ret);
  if (!answer_read(&agent_token_answer_record, json, ret, error))
    return false;
  rotation_settle(&ret->rotate_in_ms);
  return true;
}

bool beaten_read(const json_t *json, struct beaten *ret, struct error *error) {
  *ret = (struct beaten){.heartbeat_every_ms = HEARTBEAT_MS_DEFAULT};
  return answer_read(&heartbeat_answer_record, json, ret, error);
}

void enrolled_release(struct enrolled *enrolled) { record_release(&agent_answer_record, enrolled); }
void rotated_release(struct rotated *rotated) {
  record_release(&agent_token_answer_record, rotated);
}

/* Servers that give nothing away have no `configs`. */
bool renewed_read(const json_t *json, struct renewed *ret, struct error *error) {
  struct renewed renewed = {0};
  json_t *configs = NULL;
  if (!json_get_integer(json, "", "expires_in_ms", JSON_REQUIRED, 1, LEASE_MS_MAX,
                        &renewed.expires_in_ms, error) ||
      !json_get_array(json, "", "configs", JSON_OPTIONAL, &configs, error))
    return false;
  renewed.is_limited = configs != NULL;
  if (configs && !config_ranges_from_json(configs, &renewed.configs, error))
    return error_pointer_prefix(error, "/configs");
  *ret = renewed;
  return true;
}
