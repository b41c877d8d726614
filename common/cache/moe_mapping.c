/* Between keys and configs of a kernel and those of mixture-of-experts tables.
 *
 * Memory and threads: moe_mapping.h. */
#include "common/cache/moe_mapping.h"

#define NUMBER_MAX INT32_MAX

void moe_mapping_release(struct moe_mapping *mapping) {
  struct moe_source *const sources[] = {&mapping->e,     &mapping->n,           &mapping->m,
                                        &mapping->dtype, &mapping->block_shape, &mapping->per_channel_quant,
                                        &mapping->down};
  for (size_t i = 0; i < ARRAY_LENGTH(sources); i++)
    expr_free(sources[i]->expr);
  *mapping = (struct moe_mapping){0};
}

static bool find_member(const struct kernel *kernel, const char *name, struct moe_source *source) {
  for (size_t i = 0; i < kernel->n_key_names; i++) {
    if (strcmp(kernel->key_names[i], name) == 0) {
      source->kind = MOE_MEMBER;
      source->member = i;
      return true;
    }
  }
  return false;
}

static bool is_positive(const json_t *json) {
  return json_is_integer(json) && json_integer_value(json) > 0 && json_integer_value(json) <= NUMBER_MAX;
}

static bool read_number(const struct kernel *kernel, const json_t *json, struct moe_source *source,
                        struct error *error) {
  if (is_positive(json)) {
    source->kind = MOE_NUMBER;
    source->numbers[0] = json_integer_value(json);
    return true;
  }
  if (!json_is_string(json))
    return error_set(error, "must be a member of the key, an expression over it or a positive integer");
  if (find_member(kernel, json_string_value(json), source))
    return true;
  source->kind = MOE_EXPRESSION;
  return expr_parse(json_string_value(json), &source->expr, error) &&
         expr_bind(source->expr, (const char *const *)kernel->key_names, kernel->n_key_names, error);
}

static bool read_dtype(const struct kernel *kernel, const json_t *json, struct moe_source *source,
                       struct error *error) {
  if (!json_string_length(json))
    return error_set(error, "must be a member of the key or the text of a dtype");
  if (!find_member(kernel, json_string_value(json), source)) {
    source->kind = MOE_TEXT;
    source->text = json_string_value(json);
  }
  return true;
}

static bool read_block_shape(const struct kernel *kernel, const json_t *json, struct moe_source *source,
                             struct error *error) {
  if (json_is_string(json) && find_member(kernel, json_string_value(json), source))
    return true;
  if (json_array_size(json) != 2 || !is_positive(json_array_get(json, 0)) || !is_positive(json_array_get(json, 1)))
    return error_set(error, "must be a member of the key or two positive integers");
  source->kind = MOE_PAIR;
  for (size_t i = 0; i < 2; i++)
    source->numbers[i] = json_integer_value(json_array_get(json, i));
  return true;
}

static bool read_flag(const struct kernel *kernel, const json_t *json, struct moe_source *source, struct error *error) {
  if (json_is_string(json) && find_member(kernel, json_string_value(json), source))
    return true;
  source->kind = MOE_NUMBER;
  source->numbers[0] = json_is_true(json);
  return json_is_boolean(json) || error_set(error, "must be a member of the key, true or false");
}

static bool read_config(const json_t *json, struct error *error) {
  const char *name;
  json_t *value;
  json_object_foreach ((json_t *)json, name, value) {
    if (!json_is_string(value) && !json_is_integer(value))
      return error_set(error, "must have for \"%.60s\" the name of a config's member or an integer", name);
  }
  return json_is_object(json) || error_set(error, "must be an object: members of the table and of configs");
}

bool moe_mapping_read(const struct moe_dialect *dialect, const struct kernel *kernel, struct moe_mapping *ret,
                      struct error *error) {
  cleanup_moe_mapping struct moe_mapping mapping = {.kernel = kernel};
  const struct {
    const char *name;
    bool is_required, is_variant;
    bool (*read)(const struct kernel *, const json_t *, struct moe_source *, struct error *);
    struct moe_source *source;
  } members[] = {{"E", true, false, read_number, &mapping.e},
                 {"N", true, false, read_number, &mapping.n},
                 {"M", true, false, read_number, &mapping.m},
                 {"dtype", false, false, read_dtype, &mapping.dtype},
                 {"block_shape", false, false, read_block_shape, &mapping.block_shape},
                 {"per_channel_quant", false, true, read_flag, &mapping.per_channel_quant},
                 {"down", false, true, read_flag, &mapping.down}};
  const json_t *exports = json_object_get(json_object_get(kernel->json, "exports"), dialect->format);
  if (!exports)
    return error_set(error, "the manifest has no \"exports\" for %s: how its key and configs are those of the tables",
                     dialect->format);
  size_t n_known = 0;
  for (size_t i = 0; i < ARRAY_LENGTH(members); i++) {
    const json_t *json = json_object_get(exports, members[i].name);
    if (members[i].is_variant && !dialect->has_variants)
      continue;
    if (!json && members[i].is_required)
      return error_set(error, "the manifest's exports for %s lack \"%s\"", dialect->format, members[i].name);
    if (json && !members[i].read(kernel, json, members[i].source, error))
      return error_prefix(error, "in the manifest's exports for %s \"%s\": ", dialect->format, members[i].name);
    n_known += json ? 1 : 0;
  }
  mapping.config = json_object_get(exports, "config");
  if (mapping.config && !read_config(mapping.config, error))
    return error_prefix(error, "in the manifest's exports for %s \"config\": ", dialect->format);
  if (n_known + (mapping.config ? 1 : 0) != json_object_size(exports))
    return error_set(error,
                     "the manifest's exports for %s have members that are not known; there are E, N, M, dtype, "
                     "block_shape, config%s",
                     dialect->format, dialect->has_variants ? ", per_channel_quant and down" : "");
  *ret = mapping;
  mapping = (struct moe_mapping){0};
  return true;
}

static bool number_of(const struct moe_source *source, const struct value *values, const char *name, int64_t *ret,
                      struct error *error) {
  struct value value = value_int(source->numbers[0]);
  if (source->kind == MOE_MEMBER)
    value = values[source->member];
  else if (source->kind == MOE_EXPRESSION && !expr_eval(source->expr, values, &value, error))
    return error_prefix(error, "%s: ", name);
  if (value.type != VALUE_INT || value.integer < 1 || value.integer > NUMBER_MAX)
    return error_set(error, "%s is not an integer of 1 to %d for this key", name, NUMBER_MAX);
  *ret = value.integer;
  return true;
}

static bool dtype_of(const struct moe_source *source, const struct value *values, char **ret, struct error *error) {
  struct value value = source->kind == MOE_TEXT ? value_string(source->text) : value_none();
  if (source->kind == MOE_MEMBER)
    value = values[source->member];
  if (value.type == VALUE_NONE)
    return true;
  static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
  if (value.type != VALUE_STRING || !value.string[0] || strlen(value.string) > 64 ||
      value.string[strspn(value.string, plain)])
    return error_set(error, "the dtype is no text of letters, digits and _ - . for this key");
  *ret = xstrdup(value.string);
  return true;
}

static bool block_shape_of(const struct moe_source *source, const struct value *values, struct moe_name *name,
                           struct error *error) {
  if (source->kind == MOE_PAIR)
    memcpy(name->block_shape, source->numbers, sizeof name->block_shape);
  else if (source->kind == MOE_ABSENT || values[source->member].type == VALUE_NONE)
    return true;
  else if (values[source->member].type != VALUE_STRING ||
           !moe_block_shape_parse(values[source->member].string, name->block_shape))
    return error_set(error, "the block shape is no text like [128,128] for this key");
  name->has_block_shape = true;
  return true;
}

static bool flag_of(const struct moe_source *source, const struct value *values, const char *name, bool *ret,
                    struct error *error) {
  *ret = source->kind == MOE_MEMBER ? values[source->member].type == VALUE_BOOL && values[source->member].boolean
                                    : source->numbers[0] != 0;
  return source->kind != MOE_MEMBER || values[source->member].type == VALUE_BOOL ||
         error_set(error, "%s is not true or false for this key", name);
}

bool moe_mapping_name(const struct moe_mapping *mapping, const struct value *values, struct moe_name *ret,
                      int64_t *ret_m, struct error *error) {
  cleanup_moe_name struct moe_name name = {0};
  if (!number_of(&mapping->e, values, "E", &name.e, error) || !number_of(&mapping->n, values, "N", &name.n, error) ||
      !number_of(&mapping->m, values, "M", ret_m, error) || !dtype_of(&mapping->dtype, values, &name.dtype, error) ||
      !block_shape_of(&mapping->block_shape, values, &name, error) ||
      !flag_of(&mapping->per_channel_quant, values, "per_channel_quant", &name.per_channel_quant, error) ||
      !flag_of(&mapping->down, values, "down", &name.down, error))
    return false;
  *ret = name;
  name = (struct moe_name){0};
  return true;
}

/* What the readers look at in every config. */
static bool check_config(const json_t *config, struct error *error) {
  static const char *const needed[] = {"BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M"};
  const char *name;
  json_t *value;
  for (size_t i = 0; i < ARRAY_LENGTH(needed); i++) {
    if (!is_positive(json_object_get(config, needed[i])))
      return error_set(error, "the config has no positive integer %s", needed[i]);
  }
  json_object_foreach ((json_t *)config, name, value) {
    if (!json_is_integer(value) && !json_is_boolean(value) && !json_is_string(value) && !json_is_null(value))
      return error_set(error, "the config's %.60s is no integer, boolean, text or null", name);
  }
  return true;
}

bool moe_mapping_config(const struct moe_mapping *mapping, const json_t *config, json_t **ret, struct error *error) {
  cleanup_json json_t *left = json_copy((json_t *)config), *table = json_object();
  const char *name;
  json_t *from;
  json_object_foreach ((json_t *)mapping->config, name, from) {
    json_t *value = json_is_integer(from) ? from : json_object_get(config, json_string_value(from));
    if (!value)
      return error_set(error, "the config has no %.60s, which the exports name", json_string_value(from));
    json_object_set(table, name, value);
    if (json_is_string(from))
      json_object_del(left, json_string_value(from));
  }
  json_object_foreach (left, name, from) {
    if (json_object_get(table, name))
      return error_set(error, "the config's own %.60s is in the way of that which the exports name", name);
    json_object_set(table, name, from);
  }
  if (!check_config(table, error))
    return false;
  *ret = moe_config_ordered(table);
  return true;
}

static bool set_back(const struct moe_mapping *mapping, const struct moe_source *source, const char *what,
                     json_t *value, json_t *key, struct error *error) {
  cleanup_json json_t *owned = value;
  if (source->kind == MOE_EXPRESSION)
    return error_set(error, "the exports of %s have an expression for %s, which cannot be undone",
                     mapping->kernel->name, what);
  if (source->kind == MOE_MEMBER) {
    const char *member = mapping->kernel->key_names[source->member];
    const json_t *before = json_object_get(key, member);
    if (before && !json_equal(before, owned))
      return error_set(error, "the key's %.60s would be two values", member);
    json_object_set(key, member, owned);
    return true;
  }
  cleanup_json json_t *stated = source->kind == MOE_TEXT     ? json_string(source->text)
                                : source->kind == MOE_NUMBER ? json_integer(source->numbers[0])
                                : source->kind == MOE_PAIR ? json_sprintf("[%lld,%lld]", (long long)source->numbers[0],
                                                                          (long long)source->numbers[1])
                                                           : json_null();
  bool is_flag = json_is_boolean(owned);
  if (is_flag ? json_is_true(owned) == (source->numbers[0] != 0) : json_equal(stated, owned))
    return true;
  cleanup_free char *wanted = json_canonical(stated), *found = json_canonical(owned);
  return error_set(error, "the table's %s is %s, and the exports of %s say %s", what, found, mapping->kernel->name,
                   wanted);
}

bool moe_mapping_key_back(const struct moe_mapping *mapping, const struct moe_name *name, int64_t m, json_t **ret,
                          struct error *error) {
  cleanup_json json_t *key = json_object();
  json_t *block = name->has_block_shape
                      ? json_sprintf("[%lld,%lld]", (long long)name->block_shape[0], (long long)name->block_shape[1])
                      : json_null();
  json_t *dtype = name->dtype ? json_string(name->dtype) : json_null();
  bool ok = set_back(mapping, &mapping->e, "E", json_integer(name->e), key, error);
  ok = ok && set_back(mapping, &mapping->n, "N", json_integer(name->n), key, error);
  ok = ok && set_back(mapping, &mapping->m, "M", json_integer(m), key, error);
  ok = ok && set_back(mapping, &mapping->dtype, "dtype", json_incref(dtype), key, error);
  ok = ok && set_back(mapping, &mapping->block_shape, "block_shape", json_incref(block), key, error);
  ok = ok && set_back(mapping, &mapping->per_channel_quant, "per_channel_quant", json_boolean(name->per_channel_quant),
                      key, error);
  ok = ok && set_back(mapping, &mapping->down, "down", json_boolean(name->down), key, error);
  json_decref(block);
  json_decref(dtype);
  if (!ok)
    return false;
  for (size_t i = 0; i < mapping->kernel->n_key_names; i++) {
    if (!json_object_get(key, mapping->kernel->key_names[i]))
      return error_set(error, "the exports of %s leave the key's %.60s open", mapping->kernel->name,
                       mapping->kernel->key_names[i]);
  }
  *ret = TAKE(key);
  return true;
}

bool moe_mapping_config_back(const struct moe_mapping *mapping, const json_t *config, json_t **ret,
                             struct error *error) {
  cleanup_json json_t *left = json_copy((json_t *)config), *back = json_object();
  const char *name;
  json_t *to;
  json_object_foreach ((json_t *)mapping->config, name, to) {
    json_t *value = json_object_get(config, name);
    if (!value || (json_is_integer(to) && !json_equal(value, to)))
      return error_set(error, "the config's %.60s is not what the exports of %s say", name, mapping->kernel->name);
    if (json_is_string(to))
      json_object_set(back, json_string_value(to), value);
    json_object_del(left, name);
  }
  json_object_foreach (left, name, to) {
    if (json_object_get(back, name))
      return error_set(error, "the config's %.60s is two members for %s", name, mapping->kernel->name);
    json_object_set(back, name, to);
  }
  *ret = TAKE(back);
  return true;
}
