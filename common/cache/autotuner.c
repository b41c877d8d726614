/* Configs as Triton prints them, and tuning keys. Memory and threads: autotuner.h. */
#include "common/cache/autotuner.h"

#include "common/cache/text.h"

bool config_text_parse(const char *text, json_t **ret_config, struct error *error) {
  cleanup_json json_t *config = json_object();
  for (const char *at = text;; at += strlen(", ")) {
    const char *end = strstr(at, ", ");
    size_t size = end ? (size_t)(end - at) : strlen(at);
    cleanup_free char *name = xstrndup(at, size);
    char *separator = strstr(name, ": ");
    if (!separator || separator == name || strstr(separator + 2, ": "))
      return error_set(error, "the config \"%.200s\" has at column %zu no \"name: value\"", text,
                       (size_t)(at - text) + 1);
    *separator = '\0';
    if (json_object_get(config, name))
      return error_set(error, "the config \"%.200s\" has \"%.60s\" twice", text, name);
    if (json_object_size(config) == CONFIG_TEXT_MEMBERS_MAX)
      return error_set(error, "the config \"%.80s…\" has more than %d members", text,
                       CONFIG_TEXT_MEMBERS_MAX);
    json_put(config, name, value_to_json(python_value(separator + 2)));
    at += size;
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
  return value_format(scalar, false);
}

char *config_text_format(const json_t *config) {
  size_t size;
  cleanup_text struct text text = {0};

  json_members (config, name, value) {
    cleanup_free char *printed = member_str(value);
    text_add_string(&text, text.size ? ", " : "");
    text_add_string(&text, name);
    text_add_string(&text, ": ");
    text_add_string(&text, printed);
  }

  return text_finish(&text, &size);
}

json_t *config_names(const json_t *config) {
  json_t *names = json_array();
  json_members (config, name, value)
    json_push(names, json_string(name));
  return names;
}

bool config_field(const char *name, const char *triton, struct value *ret_default) {
  const struct {
    const char *name;
    int from, until; /* versions as major * 100 + minor, both included */
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
  int version = triton_version_number(triton);
  if (!version)
    version = 99900; /* a text that is not a version counts as the newest */

  for (size_t i = 0; i < ARRAY_LENGTH(fields); i++) {
    if (version >= fields[i].from && version <= fields[i].until &&
        string_equal(fields[i].name, name)) {
      *ret_default = fields[i].value;
      return true;
    }
  }

  return false;
}

char *config_text_normal(const json_t *config, const char *triton) {
  cleanup_json json_t *normal = json_object();

  json_members (config, name, value) {
    struct value standard;
    cleanup_free char *printed = member_str(value);
    cleanup_free char *printed_default =
        config_field(name, triton, &standard) ? value_format(standard, false) : NULL;
    if (!string_equal(printed, printed_default))
      json_put(normal, name, json_string(printed));
  }

  return json_canonical(normal);
}

static bool bind_part(const char *text, const char *const *names, size_t n_names,
                      struct tuning_key_part *ret, struct error *error) {
  for (size_t i = 0; i < n_names; i++) {
    if (string_equal(text, names[i])) {
      ret->member = i;
      return true;
    }
  }

  cleanup_expr struct expr *expr = NULL;
  if (!expr_parse(text, &expr, error) || !expr_bind(expr, names, n_names, error))
    return false;

  ret->expr = TAKE(expr);
  return true;
}

bool tuning_key_bind(const struct function_record *record, const struct kernel *kernel,
                     const char *const *key_names, size_t n_key_names, struct tuning_key *ret,
                     struct error *error) {
  cleanup_by(tuning_key_release) struct tuning_key key = {
      .parts = xcalloc(record->n_key_names + 1, sizeof *key.parts),
      .dtypes = xcalloc(record->n_dtypes + KERNEL_ARGUMENTS_MAX, sizeof *key.dtypes)};
  size_t n_arguments = kernel ? kernel->n_arguments : 0;
  for (size_t i = 0; i < record->n_key_names; i++) {
    struct tuning_key_part *part = &key.parts[key.n++];
    const char *name = record->key_names[i], *value = NULL;
    for (size_t j = 0; j < n_arguments && !value; j++)
      if (string_equal(kernel->arguments[j].name, name))
        value = kernel->arguments[j].value;
    if (!bind_part(record->tuning_key[i], key_names, n_key_names, part, error) &&
        !(value && bind_part(value, key_names, n_key_names, part, error)))
      return error_prefix(error, "the value of \"%.60s\" in the function's tuning key: ", name);
    part->name = name;
  }

  for (size_t i = 0; i < record->n_dtypes; i++)
    key.dtypes[key.n_dtypes++] = xstrdup(record->dtypes[i]);

  for (size_t i = 0; !record->dtypes && i < n_arguments; i++) /* not stated */
    if (kernel->arguments[i].is_buffer)
      key.dtypes[key.n_dtypes++] = xasprintf("torch.%s", dtype_name(kernel->arguments[i].dtype));

  *ret = key;
  key = (struct tuning_key){0};
  return true;
}

bool tuning_key_value(const struct tuning_key *key, size_t index, const struct value *values,
                      struct value *ret, struct error *error) {
  const struct tuning_key_part *part = &key->parts[index];
  if (index >= key->n)
    *ret = value_string(key->dtypes[index - key->n]);
  else if (!part->expr)
    *ret = values[part->member];
  else if (!expr_eval(part->expr, values, ret, error))
    return error_prefix(error, "the value of \"%.60s\" in the function's tuning key: ", part->name);
  return true;
}

bool tuning_key_texts(const struct tuning_key *key, const struct value *values, json_t *ret,
                      struct error *error) {
  for (size_t i = 0; i < key->n + key->n_dtypes; i++) {
    struct value value;
    cleanup_free char *tuple = NULL;
    if (!tuning_key_value(key, i, values, &value, error) ||
        !python_tuple_repr(&value, 1, &tuple, error))
      return false;
    /* "(VALUE,)" */
    json_push(ret, json_stringn(tuple + 1, strlen(tuple) - 3));
  }

  return true;
}

void tuning_key_release(struct tuning_key *key) {
  for (size_t i = 0; i < key->n; i++)
    expr_free(key->parts[i].expr);
  free(key->parts);
  for (size_t i = 0; i < key->n_dtypes; i++)
    free(key->dtypes[i]);
  free(key->dtypes);
}
