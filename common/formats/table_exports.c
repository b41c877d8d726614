/* Mapping a kernel's key and configs to rows of tables, and back; table_exports.h. */
#include "common/formats/table_exports.h"

#include "common/base/json.h"
#include "common/base/numbers.h"

bool table_is_positive(const json_t *json) {
  return json_is_integer(json) && json_integer_value(json) > 0 &&
         json_integer_value(json) <= TABLE_NUMBER_MAX;
}

bool table_block_shape(const char *text, long long ret[2]) {
  char tight[64], spaced[64];
  if (!text || sscanf(text, "[%10lld,%10lld]", &ret[0], &ret[1]) != 2 || ret[0] < 1 || ret[1] < 1 ||
      ret[0] > TABLE_NUMBER_MAX || ret[1] > TABLE_NUMBER_MAX)
    return false;
  snprintf(tight, sizeof tight, "[%lld,%lld]", ret[0], ret[1]);
  snprintf(spaced, sizeof spaced, "[%lld, %lld]", ret[0], ret[1]);
  return string_equal(text, tight) || string_equal(text, spaced);
}

void table_mapping_release(struct table_mapping *mapping) {
  for (size_t i = 0; i < TABLE_MEMBERS_MAX; i++) {
    expr_free(mapping->sources[i].expr);
    json_decref(mapping->sources[i].constant);
  }
  expr_free(mapping->prefer);
}

static json_t *exports_of(const struct table_kind *kind, const struct kernel *kernel) {
  return json_object_get(json_object_get(kernel->json, "exports"), kind->name);
}

bool table_is_exported(const struct table_kind *kind, const struct kernel *kernel) {
  return exports_of(kind, kernel) != NULL;
}

static bool expression_read(const struct kernel *kernel, const char *text, struct expr **ret,
                            struct error *error) {
  return expr_parse(text, ret, error) && expr_bind(*ret, KEY_NAMES(kernel), error);
}

/* `json`: what the exports have for the member, or NULL. */
static bool source_read(const struct kernel *kernel, const struct table_member *member,
                        json_t *json, struct table_source *source, struct error *error) {
  const char *text = json_string_value(json);
  const char *const *names = (const char *const *)kernel->key_names;

  for (size_t i = 0; text && i < kernel->n_key_names; i++) {
    if (string_equal(names[i], text)) {
      source->member = names[i];
      return true;
    }
  }

  if (text && member->value != TABLE_TEXT && member->value != TABLE_BLOCK_SHAPE)
    return expression_read(kernel, text, &source->expr, error);
  if (!json) {
    source->constant = member->value == TABLE_FLAG ? json_false() : json_null();
    return true;
  }

  switch (member->value) {
  case TABLE_NUMBER:
  case TABLE_BOUND:
    source->constant = json_incref(json);
    return table_is_positive(json) ||
           error_set(error,
                     "must be a member of the key, an expression over it or a positive integer");
  case TABLE_TEXT:
    source->constant = json_incref(json);
    return json_string_length(json) > 0 ||
           error_set(error, "must be a member of the key or the text of a %s", member->name);
  case TABLE_BLOCK_SHAPE:
    source->constant =
        json_sprintf("[%lld,%lld]", (long long)json_integer_value(json_array_get(json, 0)),
                     (long long)json_integer_value(json_array_get(json, 1)));
    return (json_array_size(json) == 2 && table_is_positive(json_array_get(json, 0)) &&
            table_is_positive(json_array_get(json, 1))) ||
           error_set(error, "must be a member of the key or two positive integers");
  case TABLE_FLAG:
    source->constant = json_incref(json);
    return json_is_boolean(json) ||
           error_set(error, "must be a member of the key, an expression over it, true or false");
  }

  die("member %s", member->name);
}

/* "prefer" and "switches". */
static bool conditions_read(const struct kernel *kernel, const json_t *exports,
                            struct table_mapping *ret, struct error *error) {
  json_t *prefer = json_object_get(exports, "prefer");
  if (prefer && !json_is_string(prefer))
    return error_set(error, "\"prefer\": must be an expression over the key");
  if (prefer && !expression_read(kernel, json_string_value(prefer), &ret->prefer, error))
    return error_prefix(error, "\"prefer\": ");

  ret->switches = json_object_get(exports, "switches");
  if (ret->switches && !json_is_object(ret->switches))
    return error_set(error, "\"switches\": must be an object of environment variables");
  json_members (ret->switches, name, value)
    if (!json_is_string(value) && !json_is_null(value))
      return error_set(error, "\"switches\": %.60s must be a text or null", name);
  return true;
}

bool table_mapping_read(const struct table_kind *kind, const struct kernel *kernel,
                        struct table_mapping *ret, struct error *error) {
  const json_t *exports = exports_of(kind, kernel);
  if (!exports)
    return error_set(error,
                     "the manifest has no \"exports\" for %s, which state how its key and configs "
                     "map to the tables",
                     kind->name);

  cleanup_json json_t *names = json_array();
  size_t n_known = 0;
  for (size_t i = 0; i < kind->n_members; i++) {
    const struct table_member *member = &kind->members[i];
    json_t *json = json_object_get(exports, member->name);
    if (!json && member->use != TABLE_OPTIONAL)
      return error_set(error, "the manifest's exports for %s lack \"%s\"", kind->name,
                       member->name);
    if (!source_read(kernel, member, json, &ret->sources[i], error))
      return error_prefix(error, "in the manifest's exports for %s \"%s\": ", kind->name,
                          member->name);
    n_known += json ? 1 : 0;
    json_push(names, json_string(member->name));
  }

  ret->kind = kind;
  ret->kernel = kernel;
  ret->config = json_object_get(exports, "config");
  if (ret->config && !json_is_object(ret->config))
    return error_set(
        error,
        "in the manifest's exports for %s \"config\": must be an object of names in the "
        "table and names in configs",
        kind->name);

  json_members (ret->config, name, value)
    if (!json_is_string(value) && !json_is_integer(value))
      return error_set(error,
                       "in the manifest's exports for %s "
                       "\"config\": must have for \"%.60s\" the "
                       "name of a config's member or an integer",
                       kind->name, name);

  if (!conditions_read(kernel, exports, ret, error))
    return error_prefix(error, "in the manifest's exports for %s ", kind->name);

  cleanup_free char *all = json_texts_join(names, ", ");
  n_known += (ret->config ? 1 : 0) + (ret->prefer ? 1 : 0) + (ret->switches ? 1 : 0);
  return n_known == json_object_size(exports) ||
         error_set(error,
                   "the manifest's exports for %s have members that are not known; there are %s, "
                   "config, prefer and switches",
                   kind->name, all);
}

/* Whether a row may have the value. */
static bool value_check(const struct table_member *member, const json_t *value,
                        struct error *error) {
  static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.=";
  const char *name = member->name, *text = json_string_value(value);
  long long shape[2];

  if (json_is_null(value))
    return (member->use == TABLE_OPTIONAL && member->value != TABLE_FLAG) ||
           error_set(error, "%s is None for this key", name);

  switch (member->value) {
  case TABLE_NUMBER:
    return table_is_positive(value) ||
           error_set(error, "%s is not an integer of 1 to %d for this key", name, TABLE_NUMBER_MAX);
  case TABLE_FLAG:
    return json_is_boolean(value) || error_set(error, "%s is not true or false for this key", name);
  case TABLE_TEXT:
    return (text && *text && strlen(text) <= 64 && !text[strspn(text, plain)]) ||
           error_set(error, "the %s is not a text of letters, digits and _ - . = for this key",
                     name);
  case TABLE_BLOCK_SHAPE:
    return table_block_shape(text, shape) ||
           error_set(error, "the block shape is not a text like [128,128] for this key");
  case TABLE_BOUND:
    return (text ? table_row_number(member, text) >= 0
                 : json_is_integer(value) && table_bound_is_read(json_integer_value(value))) ||
           error_set(error, "%s is not one of 1, 4, 8, 16, … 8192, the bounds that AITER reads",
                     name);
  }

  die("member %s", name);
}

bool table_row_of_key(const struct table_mapping *mapping, const struct value *values, json_t **ret,
                      struct error *error) {
  cleanup_json json_t *row = json_object();

  for (size_t i = 0; i < mapping->kind->n_members; i++) {
    const struct table_member *member = &mapping->kind->members[i];
    const struct table_source *source = &mapping->sources[i];
    const char *name = member->name;
    json_t *value = json_incref(source->constant);
    struct value evaluated;
    if (source->expr) {
      if (!expr_eval(source->expr, values, &evaluated, error))
        return error_prefix(error, "%s: ", name);
      value = value_to_json(evaluated);
    }
    for (size_t j = 0; source->member && j < mapping->kernel->n_key_names; j++)
      if (source->member == mapping->kernel->key_names[j])
        value = value_to_json(values[j]);
    json_put(row, name, value);

    if (!value_check(member, value, error))
      return false;
  }

  *ret = TAKE(row);
  return true;
}

/* "M_LEQ_16" is 16 in a key. */
static bool bound_to_key(json_t **value, struct error *error) {
  const char *text = json_string_value(*value);
  long long m;
  if (sscanf(text, "M_LEQ_%10lld", &m) != 1)
    return error_set(error, "the row %s is no number M of a key; import it without --kernel", text);
  json_decref(*value);
  *value = json_integer(m);
  return true;
}

bool table_key_of_row(const struct table_mapping *mapping, const json_t *row, json_t **ret,
                      struct error *error) {
  const struct kernel *kernel = mapping->kernel;
  cleanup_json json_t *key = json_object();

  for (size_t i = 0; i < mapping->kind->n_members; i++) {
    const struct table_source *source = &mapping->sources[i];
    const char *name = mapping->kind->members[i].name;
    cleanup_json json_t *value = json_incref(json_object_get(row, name));
    if (mapping->kind->members[i].value == TABLE_BOUND && !bound_to_key(&value, error))
      return false;
    if (source->expr)
      return error_set(error,
                       "the exports of %s have an expression for %s, which cannot be inverted",
                       kernel->name, name);
    if (source->member) {
      const json_t *before = json_object_get(key, source->member);
      if (before && !json_equal(before, value))
        return error_set(error, "the key's %.60s would have two values", source->member);
      json_object_set(key, source->member, value);
    } else if (!json_equal(source->constant, value)) {
      cleanup_free char *wanted = json_canonical(source->constant), *found = json_canonical(value);
      return error_set(error, "the table's %s is %s, and the exports of %s state %s", name, found,
                       kernel->name, wanted);
    }
  }

  for (size_t i = 0; i < kernel->n_key_names; i++)
    if (!json_object_get(key, kernel->key_names[i]))
      return error_set(error, "the exports of %s do not give the key's %.60s", kernel->name,
                       kernel->key_names[i]);

  *ret = TAKE(key);
  return true;
}

bool table_config_map(const struct table_mapping *mapping, const json_t *config, bool to_table,
                      json_t **ret, struct error *error) {
  cleanup_json json_t *left = json_copy((json_t *)config), *mapped = json_object();

  json_members (mapping->config, name, value) {
    const char *own = json_string_value(value); /* NULL: a constant */
    const char *from = to_table ? own : name, *to = to_table ? name : own;
    json_t *found = from ? json_object_get(config, from) : value;
    if (!found || (!own && !json_equal(found, value)))
      return error_set(error, "the config's %.60s is not what the exports of %s state", from,
                       mapping->kernel->name);
    const json_t *before = json_object_get(mapped, to);
    if (before && !json_equal(before, found))
      return error_set(error, "the config's %.60s would have two values", to);
    if (to)
      json_object_set(mapped, to, found);
    if (from)
      json_object_del(left, from);
  }

  json_members (left, name, value)
    if (json_object_get(mapped, name))
      return error_set(error, "the config's %.60s would occur twice by the exports of %s", name,
                       mapping->kernel->name);

  json_object_update(mapped, left);
  *ret = TAKE(mapped);
  return true;
}
