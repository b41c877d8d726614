/* Configs as Triton prints them. Pure functions, any thread; results are the caller's. */
#include "common/cache/config_text.h"

#include "common/cache/python_text.h"

/* Takes "name: value", which ends at ", " or with the text; returns what is behind it. */
static const char *member_take(const char *text, const char *at, json_t *config,
                               struct error *error) {
  size_t size = 0;
  while (at[size] && !string_starts(at + size, ", "))
    size++;
  cleanup_free char *name = xstrndup(at, size);
  char *separator = strstr(name, ": ");
  if (!separator || separator == name || strstr(separator + 2, ": ")) {
    error_set(error, "the config \"%.200s\" has at column %zu no \"name: value\"", text,
              (size_t)(at - text) + 1);
    return NULL;
  }
  *separator = '\0';
  if (json_object_get(config, name)) {
    error_set(error, "the config \"%.200s\" has \"%.60s\" twice", text, name);
    return NULL;
  }
  if (json_object_size(config) == CONFIG_TEXT_MEMBERS_MAX) {
    error_set(error, "the config \"%.80s…\" has more than %d members", text,
              CONFIG_TEXT_MEMBERS_MAX);
    return NULL;
  }
  ALWAYS(json_object_set_new(config, name, value_to_json(python_value(separator + 2))) == 0);
  return at + size;
}

bool config_text_parse(const char *text, json_t **ret_config, struct error *error) {
  cleanup_json json_t *config = json_object();
  for (const char *at = text;; at += 2) {
    at = member_take(text, at, config, error);
    if (!at)
      return false;
    if (!*at)
      break;
  }
  *ret_config = TAKE(config);
  return true;
}

static char *member_str(const json_t *value) {
  struct value scalar;
  struct error error;
  ALWAYS(value_from_json(value, &scalar, &error)); /* configs are flat */
  return python_str(scalar);
}

char *config_text_format(const json_t *config) {
  const char *name;
  json_t *value;
  char *text = NULL;
  size_t size = 0;
  bool is_first = true;
  FILE *out = open_memstream(&text, &size);
  ALWAYS(out != NULL);
  json_object_foreach ((json_t *)config, name, value) {
    cleanup_free char *printed = member_str(value);
    fprintf(out, "%s%s: %s", is_first ? "" : ", ", name, printed);
    is_first = false;
  }
  ALWAYS(fclose(out) == 0);
  return text;
}

/* major * 100 + minor; a text that is no version counts as the newest. */
static int triton_number(const char *triton) {
  int major, minor;
  if (!triton || sscanf(triton, "%4d.%4d", &major, &minor) != 2 || major < 0 || minor < 0 ||
      minor > 99)
    return 99900;
  return major * 100 + minor;
}

bool config_field(const char *name, const char *triton, struct value *ret_default) {
  const struct {
    const char *name;
    int from, until; /* versions, both included */
    struct value value;
  } fields[] = {
      {"num_warps", 0, 99999, value_int(4)},
      {"num_stages", 0, 302, value_int(2)},
      {"num_stages", 303, 99999, value_int(3)},
      {"num_ctas", 0, 99999, value_int(1)},
      {"maxnreg", 300, 99999, value_none()},
      {"ir_override", 304, 99999, value_none()},
      {"num_buffers_warp_spec", 302, 303, value_int(0)},
      {"num_consumer_groups", 302, 303, value_int(0)},
      {"reg_dec_producer", 302, 303, value_int(0)},
      {"reg_inc_consumer", 302, 303, value_int(0)},
      {"enable_warp_specialization", 0, 299, value_bool(false)},
      {"enable_persistent", 0, 299, value_bool(false)},
  };
  int number = triton_number(triton);
  for (size_t i = 0; i < ARRAY_LENGTH(fields); i++) {
    if (number >= fields[i].from && number <= fields[i].until &&
        strcmp(fields[i].name, name) == 0) {
      *ret_default = fields[i].value;
      return true;
    }
  }
  return false;
}

char *config_text_normal(const json_t *config, const char *triton) {
  cleanup_json json_t *normal = json_object();
  const char *name;
  json_t *value;
  json_object_foreach ((json_t *)config, name, value) {
    struct value standard;
    cleanup_free char *printed = member_str(value);
    cleanup_free char *printed_default =
        config_field(name, triton, &standard) ? python_str(standard) : NULL;
    if (!string_equal(printed, printed_default))
      ALWAYS(json_object_set_new(normal, name, json_string(printed)) == 0);
  }
  return json_canonical(normal);
}
