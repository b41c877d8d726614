/* Reading enrolments. Memory and threads: as the header says. */
#include "server/agent/enrolment.h"

#include "server/agent/agents.h"

void enrolment_release(struct enrolment *enrolment) {
  for (size_t i = 0; i < enrolment->n_devices; i++) {
    environment_release(&enrolment->devices[i].environment);
    free(enrolment->devices[i].facts);
  }
  enrolment->n_devices = 0;
}

/* A required text of 1 to AGENT_TEXT_MAX bytes without control characters. */
static bool text_get(const json_t *json, const char *pointer, const char *name, const char **ret, struct error *error) {
  char at[JSON_POINTER_SIZE];
  if (!json_get_string(json, pointer, name, JSON_REQUIRED, ret, error))
    return false;
  size_t length = strlen(*ret);
  json_pointer_member(at, sizeof at, pointer, name);
  if (length == 0 || length > AGENT_TEXT_MAX)
    return error_at(error, at, "\"%s\" has %zu bytes; it must have 1 to %d", name, length, AGENT_TEXT_MAX);
  for (const char *c = *ret; *c; c++)
    if ((unsigned char)*c < 0x20 || *c == 0x7f)
      return error_at(error, at, "\"%s\" holds a control character", name);
  return true;
}

static bool device_parse(const json_t *json, const char *pointer, struct enrolment_device *ret, struct error *error) {
  static const char *const members[] = {"device", "backend", "name", "environment", "facts", NULL};
  char at[JSON_POINTER_SIZE];
  json_t *environment, *facts = NULL;
  const char *name = NULL;
  if (!json_only_members(json, pointer, members, error) || !text_get(json, pointer, "device", &ret->device, error) ||
      !text_get(json, pointer, "backend", &ret->backend, error) ||
      !json_get_string(json, pointer, "name", JSON_NOT_NULL, &name, error) ||
      !json_get_object(json, pointer, "environment", JSON_REQUIRED, &environment, error) ||
      !json_get_object(json, pointer, "facts", JSON_OPTIONAL, &facts, error))
    return false;
  if (!environment_parse(environment, &ret->environment, error) || !environment_is_full(&ret->environment, error))
    return error_pointer_prefix(error, json_pointer_member(at, sizeof at, pointer, "environment"));
  if (facts) {
    ret->facts = json_dumps(facts, JSON_COMPACT);
    ALWAYS(ret->facts != NULL);
  }
  return true;
}

/* The ids of the keys that must have signed what the agent is given. */
static bool trusted_keys_parse(const json_t *json, struct enrolment *enrolment, struct error *error) {
  json_t *keys = NULL;
  if (!json_get_array(json, "", "trusted_keys", JSON_NOT_NULL, &keys, error))
    return false;
  size_t n = json_array_size(keys);
  if (keys && (n == 0 || n > ENROLMENT_KEYS_MAX))
    return error_at(error, "/trusted_keys", "%zu trusted keys; an agent that wants signatures has 1 to %d", n,
                    ENROLMENT_KEYS_MAX);
  for (size_t i = 0; i < n; i++) {
    char at[JSON_POINTER_SIZE];
    const char *text = json_string_value(json_array_get(keys, i));
    if (!text || !digest_parse(text, &enrolment->trusted_keys[i]))
      return error_at(error, json_pointer_index(at, sizeof at, "/trusted_keys", i),
                      "a trusted key is named by its id, \"sha256:\" and 64 hexadecimal digits");
  }
  enrolment->n_trusted_keys = n;
  return true;
}

bool enrolment_parse(const json_t *json, struct enrolment *ret, struct error *error) {
  static const char *const members[] = {"agent", "boot", "name", "version", "machine", "trusted_keys", "devices", NULL};
  cleanup_enrolment struct enrolment enrolment = {0};
  json_t *devices;
  if (!json_only_members(json, "", members, error) ||
      !json_get_string(json, "", "agent", JSON_OPTIONAL, &enrolment.agent, error) ||
      !text_get(json, "", "boot", &enrolment.boot, error) || !text_get(json, "", "name", &enrolment.name, error) ||
      !text_get(json, "", "version", &enrolment.version, error) ||
      !json_get_string(json, "", "machine", JSON_OPTIONAL, &enrolment.machine, error) ||
      !json_get_array(json, "", "devices", JSON_REQUIRED, &devices, error))
    return false;
  if (enrolment.agent && !agent_id_is_valid(enrolment.agent))
    return error_at(error, "/agent",
                    "\"agent\" must be the 32 hexadecimal digits of an earlier enrolment; leave it out for "
                    "a new one");
  if ((enrolment.machine && !text_get(json, "", "machine", &enrolment.machine, error)) ||
      !trusted_keys_parse(json, &enrolment, error))
    return false;
  size_t n = json_array_size(devices);
  if (n == 0 || n > ENROLMENT_DEVICES_MAX)
    return error_at(error, "/devices", "%zu devices; an agent has 1 to %d", n, ENROLMENT_DEVICES_MAX);
  for (size_t i = 0; i < n; i++) {
    char at[JSON_POINTER_SIZE];
    json_pointer_index(at, sizeof at, "/devices", i);
    struct enrolment_device *device = &enrolment.devices[enrolment.n_devices++];
    if (!device_parse(json_array_get(devices, i), at, device, error))
      return false;
    for (size_t other = 0; other < i; other++)
      if (string_equal(enrolment.devices[other].device, device->device))
        return error_at(error, at, "device \"%.60s\" is listed twice", device->device);
  }
  *ret = enrolment;
  enrolment.n_devices = 0;
  return true;
}
