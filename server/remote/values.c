/* Checks what the autotuners of Inductor and Helion found. Memory and threads: values.h. */
#include "server/remote/values.h"

#include <ctype.h>
#include <string.h>

/* Arrays of a config of Helion, such as block_sizes and loop_orders, have at most two levels. */
#define ARRAY_DEPTH_MAX 3
#define HEX_DIGITS "0123456789abcdef"
#define HASH_DIGITS 64

/* Members of a config that replace code or name a file: no autotuner chooses them. */
static const char *const forbidden[] = {"ir_override", "pre_hook", "extra_options",
                                        "advanced_controls_file"};

bool remote_key_is_valid(const char *text) {
  return strlen(text) == HASH_DIGITS && strspn(text, HEX_DIGITS) == HASH_DIGITS;
}

static bool member_name_check(const char *name, const char *pointer, struct error *error) {
  size_t size = strlen(name);
  bool is_good = size >= 1 && size <= REMOTE_MEMBER_NAME_MAX && !isdigit((unsigned char)name[0]);
  for (size_t i = 0; is_good && i < size; i++)
    is_good = name[i] == '_' || isalnum((unsigned char)name[i]);
  for (size_t i = 0; is_good && i < ARRAY_LENGTH(forbidden); i++)
    is_good = strcmp(name, forbidden[i]) != 0;
  return is_good || error_at(error, pointer, "a config cannot have a member of this name");
}

/* A value of a config: null, a boolean, an integer of 32 bits, or a short printable string. */
static bool scalar_check(const json_t *value, const char *pointer, struct error *error) {
  if (json_is_null(value) || json_is_boolean(value))
    return true;
  if (json_is_integer(value))
    return (json_integer_value(value) >= INT32_MIN && json_integer_value(value) <= INT32_MAX) ||
           error_at(error, pointer, "an integer of a config has at most 32 bits");
  if (!json_is_string(value))
    return error_at(error, pointer,
                    "a value of a config must be an integer, a boolean, a string or null");

  const char *text = json_string_value(value);
  bool is_good = json_string_length(value) <= REMOTE_TEXT_MAX;
  for (const char *at = text; is_good && *at; at++)
    is_good = isalnum((unsigned char)*at) || strchr("_.:-", *at);
  return is_good || error_at(error, pointer,
                             "a string of a config has at most %d letters, digits and \"_.:-\"",
                             REMOTE_TEXT_MAX);
}

static bool value_check(const json_t *value, const char *pointer, int depth, struct error *error) {
  const json_t *element;
  size_t i;
  if (!json_is_array(value))
    return scalar_check(value, pointer, error);
  if (depth == 0)
    return error_at(error, pointer, "arrays of a config have at most %d levels", ARRAY_DEPTH_MAX);

  json_array_foreach (value, i, element) {
    char below[JSON_POINTER_SIZE];
    json_pointer_index(below, sizeof below, pointer, i);
    if (!value_check(element, below, depth - 1, error))
      return false;
  }
  return true;
}

static bool config_check(const json_t *config, const char *pointer, int depth,
                         struct error *error) {
  const char *name;
  json_t *value;
  if (!json_is_object(config) || json_object_size(config) > REMOTE_MEMBERS_MAX)
    return error_at(error, pointer, "a config is an object of at most %d members",
                    REMOTE_MEMBERS_MAX);

  json_object_foreach ((json_t *)config, name, value) {
    char below[JSON_POINTER_SIZE];
    json_pointer_member(below, sizeof below, pointer, name);
    if (!member_name_check(name, below, error) || !value_check(value, below, depth, error))
      return false;
  }
  return true;
}

bool remote_inductor_check(const json_t *json, struct error *error) {
  const char *hash;
  int64_t number;
  if (!config_check(json, "", 0, error) ||
      !json_get_integer(json, "", "num_warps", JSON_REQUIRED, 1, 64, &number, error) ||
      !json_get_integer(json, "", "num_stages", JSON_REQUIRED, 0, 64, &number, error) ||
      !json_get_string(json, "", "configs_hash", JSON_REQUIRED, &hash, error))
    return false;
  return remote_key_is_valid(hash) ||
         error_at(error, "/configs_hash", "it must be 64 lower-case hex digits");
}

/* A text of JSON in a string, as Helion stores configs. Helion may also store it as it is. */
static bool inner_read(json_t *value, const char *pointer, json_t **ret, struct error *error) {
  struct error inner;
  if (!json_is_string(value)) {
    *ret = json_incref(value);
    return true;
  }
  return json_parse(json_string_value(value), json_string_length(value), ret, &inner) ||
         error_at(error, pointer, "it has no JSON: %s", inner.message);
}

bool remote_helion_check(const json_t *json, struct error *error) {
  static const char *const names[] = {"config", "key", "flat_config", "backend_cache_key", NULL};
  cleanup_json json_t *config = NULL, *flat = NULL;
  const char *text = "", *name;
  json_t *key = NULL, *fields = NULL, *value;
  if (!json_only_members(json, "", names, error) ||
      !json_get_string(json, "", "config", JSON_REQUIRED, &text, error) ||
      !inner_read(json_object_get(json, "config"), "/config", &config, error) ||
      !config_check(config, "/config", ARRAY_DEPTH_MAX, error) ||
      !json_get_object(json, "", "key", JSON_REQUIRED, &key, error) ||
      !json_get_string(key, "/key", "type", JSON_REQUIRED, &text, error) ||
      !json_get_object(key, "/key", "fields", JSON_REQUIRED, &fields, error) ||
      !json_get_string(json, "", "backend_cache_key", JSON_OPTIONAL, &text, error))
    return false;

  json_object_foreach (fields, name, value)
    if (!json_is_string(value))
      return error_at(error, "/key/fields", "each field of a key is a string");

  value = json_object_get(json, "flat_config");
  if (!value || json_is_null(value))
    return true;
  if (!inner_read(value, "/flat_config", &flat, error))
    return false;
  return json_is_array(flat) ? value_check(flat, "/flat_config", ARRAY_DEPTH_MAX + 1, error)
                             : error_at(error, "/flat_config", "it must be an array");
}
