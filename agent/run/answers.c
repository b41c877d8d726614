/* Reading a server's answers. Owns nothing but what the header says; any thread. */
#include "agent/run/answers.h"

#include "agent/lease/lease_read.h"

#define HEARTBEAT_MS_MAX 600000
#define ROTATE_LEAST_MS 500 /* a token that is replaced all the time would be all that the agent does */
#define ROTATE_MS_MAX (INT64_C(1) << 53)
#define AGENT_ID_MAX 64

bool token_is_plain(const char *token) {
  size_t length = token ? strspn(token, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") : 0;
  return length >= 1 && length <= 256 && !token[length];
}

static bool agent_id_read(const json_t *json, const char **ret, struct error *error) {
  const char *id;
  if (!json_get_string(json, "", "agent", JSON_REQUIRED, &id, error))
    return false;
  size_t length = strspn(id, "0123456789abcdef");
  if (length < 1 || length > AGENT_ID_MAX || id[length])
    return error_at(error, "/agent", "the agent's id is not 1 to %d lower-case hexadecimal digits", AGENT_ID_MAX);
  *ret = id;
  return true;
}

static bool token_read(const json_t *json, enum json_presence presence, const char **ret, struct error *error) {
  const char *token = NULL;
  if (!json_get_string(json, "", "token", presence, &token, error))
    return false;
  if (token && !token_is_plain(token))
    return error_at(error, "/token", "the token is not 1 to 256 of A-Z, a-z, 0-9, \"_\" and \"-\"");
  *ret = token;
  return true;
}

/* What is due already (below 0) is due in a moment. */
static bool rotate_in_ms_read(const json_t *json, int64_t *ret, struct error *error) {
  int64_t rotate_in_ms = INT64_MIN;
  if (!json_get_integer(json, "", "rotate_in_ms", JSON_OPTIONAL, -ROTATE_MS_MAX, ROTATE_MS_MAX, &rotate_in_ms, error))
    return false;
  *ret = rotate_in_ms == INT64_MIN ? -1 : rotate_in_ms < ROTATE_LEAST_MS ? ROTATE_LEAST_MS : rotate_in_ms;
  return true;
}

static bool heartbeat_read(const json_t *json, int64_t *ret, struct error *error) {
  *ret = HEARTBEAT_MS_DEFAULT;
  return json_get_integer(json, "", "heartbeat_every_ms", JSON_OPTIONAL, 1, HEARTBEAT_MS_MAX, ret, error);
}

bool enrolled_read(const json_t *json, struct enrolled *ret, struct error *error) {
  struct enrolled enrolled = {0};
  if (!agent_id_read(json, &enrolled.agent, error) || !token_read(json, JSON_OPTIONAL, &enrolled.token, error) ||
      !rotate_in_ms_read(json, &enrolled.rotate_in_ms, error) ||
      !heartbeat_read(json, &enrolled.heartbeat_every_ms, error) ||
      !json_get_integer(json, "", "reclaimed", JSON_OPTIONAL, 0, INT64_MAX, &enrolled.reclaimed, error))
    return false;
  *ret = enrolled;
  return true;
}

bool rotated_read(const json_t *json, struct rotated *ret, struct error *error) {
  struct rotated rotated;
  if (!token_read(json, JSON_REQUIRED, &rotated.token, error) || !rotate_in_ms_read(json, &rotated.rotate_in_ms, error))
    return false;
  *ret = rotated;
  return true;
}

bool beaten_read(const json_t *json, struct beaten *ret, struct error *error) {
  struct beaten beaten = {0};
  if (!json_get_bool(json, "", "draining", JSON_OPTIONAL, &beaten.is_draining, error) ||
      !heartbeat_read(json, &beaten.heartbeat_every_ms, error))
    return false;
  *ret = beaten;
  return true;
}

/* Servers that give nothing away have no `configs`. */
bool renewed_read(const json_t *json, struct renewed *ret, struct error *error) {
  struct renewed renewed = {0};
  json_t *configs = NULL;
  if (!json_get_integer(json, "", "expires_in_ms", JSON_REQUIRED, 1, LEASE_MS_MAX, &renewed.expires_in_ms, error) ||
      !json_get_array(json, "", "configs", JSON_OPTIONAL, &configs, error))
    return false;
  renewed.is_limited = configs != NULL;
  if (configs && !config_ranges_from_json(configs, &renewed.configs, error))
    return error_pointer_prefix(error, "/configs");
  *ret = renewed;
  return true;
}
