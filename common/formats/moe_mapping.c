/* How a kernel's key and configs are those of mixture-of-experts tables, both ways, and reading
 * such tables.
 *
 * Memory and threads: moe.h. */
#include "common/formats/moe.h"

#define CONFIG_MEMBERS_MAX 64

/* Mapping */

void moe_mapping_release(struct moe_mapping *mapping) {
  struct moe_source *const sources[] = {&mapping->e,           &mapping->n,
                                        &mapping->m,           &mapping->dtype,
                                        &mapping->block_shape, &mapping->per_channel_quant,
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
  return json_is_integer(json) && json_integer_value(json) > 0 &&
         json_integer_value(json) <= MOE_NUMBER_MAX;
}

static bool read_number(const struct kernel *kernel, const json_t *json, struct moe_source *source,
                        struct error *error) {
  if (is_positive(json)) {
    source->kind = MOE_NUMBER;
    source->numbers[0] = json_integer_value(json);
    return true;
  }
  if (!json_is_string(json))
    return error_set(error,
                     "must be a member of the key, an expression over it or a positive integer");
  if (find_member(kernel, json_string_value(json), source))
    return true;
  source->kind = MOE_EXPRESSION;
  return expr_parse(json_string_value(json), &source->expr, error) &&
         expr_bind(source->expr, (const char *const *)kernel->key_names, kernel->n_key_names,
                   error);
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

static bool read_block_shape(const struct kernel *kernel, const json_t *json,
                             struct moe_source *source, struct error *error) {
  if (json_is_string(json) && find_member(kernel, json_string_value(json), source))
    return true;
  if (json_array_size(json) != 2 || !is_positive(json_array_get(json, 0)) ||
      !is_positive(json_array_get(json, 1)))
    return error_set(error, "must be a member of the key or two positive integers");
  source->kind = MOE_PAIR;
  for (size_t i = 0; i < 2; i++)
    source->numbers[i] = json_integer_value(json_array_get(json, i));
  return true;
}

static bool read_flag(const struct kernel *kernel, const json_t *json, struct moe_source *source,
                      struct error *error) {
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
      return error_set(error, "must have for \"%.60s\" the name of a config's member or an integer",
                       name);
  }
  return json_is_object(json) ||
         error_set(error, "must be an object: members of the table and of configs");
}

bool moe_mapping_read(const struct moe_dialect *dialect, const struct kernel *kernel,
                      struct moe_mapping *ret, struct error *error) {
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
  const json_t *exports =
      json_object_get(json_object_get(kernel->json, "exports"), dialect->format);
  if (!exports)
    return error_set(
        error,
        "the manifest has no \"exports\" for %s: how its key and configs are those of the tables",
        dialect->format);
  size_t n_known = 0;
  for (size_t i = 0; i < ARRAY_LENGTH(members); i++) {
    const json_t *json = json_object_get(exports, members[i].name);
    if (members[i].is_variant && !dialect->has_variants)
      continue;
    if (!json && members[i].is_required)
      return error_set(error, "the manifest's exports for %s lack \"%s\"", dialect->format,
                       members[i].name);
    if (json && !members[i].read(kernel, json, members[i].source, error))
      return error_prefix(error, "in the manifest's exports for %s \"%s\": ", dialect->format,
                          members[i].name);
    n_known += json ? 1 : 0;
  }
  mapping.config = json_object_get(exports, "config");
  if (mapping.config && !read_config(mapping.config, error))
    return error_prefix(error, "in the manifest's exports for %s \"config\": ", dialect->format);
  if (n_known + (mapping.config ? 1 : 0) != json_object_size(exports))
    return error_set(
        error,
        "the manifest's exports for %s have members that are not known; there are E, N, M, dtype, "
        "block_shape, config%s",
        dialect->format, dialect->has_variants ? ", per_channel_quant and down" : "");
  *ret = mapping;
  mapping = (struct moe_mapping){0};
  return true;
}

static bool number_of(const struct moe_source *source, const struct value *values, const char *name,
                      int64_t *ret, struct error *error) {
  struct value value = value_int(source->numbers[0]);
  if (source->kind == MOE_MEMBER)
    value = values[source->member];
  else if (source->kind == MOE_EXPRESSION && !expr_eval(source->expr, values, &value, error))
    return error_prefix(error, "%s: ", name);
  if (value.type != VALUE_INT || value.integer < 1 || value.integer > MOE_NUMBER_MAX)
    return error_set(error, "%s is not an integer of 1 to %d for this key", name, MOE_NUMBER_MAX);
  *ret = value.integer;
  return true;
}

static bool dtype_of(const struct moe_source *source, const struct value *values, char **ret,
                     struct error *error) {
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

static bool block_shape_of(const struct moe_source *source, const struct value *values,
                           struct moe_name *name, struct error *error) {
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

static bool flag_of(const struct moe_source *source, const struct value *values, const char *name,
                    bool *ret, struct error *error) {
  *ret = source->kind == MOE_MEMBER
             ? values[source->member].type == VALUE_BOOL && values[source->member].boolean
             : source->numbers[0] != 0;
  return source->kind != MOE_MEMBER || values[source->member].type == VALUE_BOOL ||
         error_set(error, "%s is not true or false for this key", name);
}

bool moe_mapping_name(const struct moe_mapping *mapping, const struct value *values,
                      struct moe_name *ret, int64_t *ret_m, struct error *error) {
  cleanup_moe_name struct moe_name name = {0};
  if (!number_of(&mapping->e, values, "E", &name.e, error) ||
      !number_of(&mapping->n, values, "N", &name.n, error) ||
      !number_of(&mapping->m, values, "M", ret_m, error) ||
      !dtype_of(&mapping->dtype, values, &name.dtype, error) ||
      !block_shape_of(&mapping->block_shape, values, &name, error) ||
      !flag_of(&mapping->per_channel_quant, values, "per_channel_quant", &name.per_channel_quant,
               error) ||
      !flag_of(&mapping->down, values, "down", &name.down, error))
    return false;
  *ret = name;
  name = (struct moe_name){0};
  return true;
}

/* What the readers look at in every config. */
static bool check_config(const json_t *config, struct error *error) {
  static const char *const needed[] = {"BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K",
                                       "GROUP_SIZE_M"};
  const char *name;
  json_t *value;
  for (size_t i = 0; i < ARRAY_LENGTH(needed); i++) {
    if (!is_positive(json_object_get(config, needed[i])))
      return error_set(error, "the config has no positive integer %s", needed[i]);
  }
  json_object_foreach ((json_t *)config, name, value) {
    if (!json_is_integer(value) && !json_is_boolean(value) && !json_is_string(value) &&
        !json_is_null(value))
      return error_set(error, "the config's %.60s is no integer, boolean, text or null", name);
  }
  return true;
}

bool moe_mapping_config(const struct moe_mapping *mapping, const json_t *config, json_t **ret,
                        struct error *error) {
  cleanup_json json_t *left = json_copy((json_t *)config), *table = json_object();
  const char *name;
  json_t *from;
  json_object_foreach ((json_t *)mapping->config, name, from) {
    json_t *value = json_is_integer(from) ? from : json_object_get(config, json_string_value(from));
    if (!value)
      return error_set(error, "the config has no %.60s, which the exports name",
                       json_string_value(from));
    json_object_set(table, name, value);
    if (json_is_string(from))
      json_object_del(left, json_string_value(from));
  }
  json_object_foreach (left, name, from) {
    if (json_object_get(table, name))
      return error_set(error, "the config's own %.60s is in the way of that which the exports name",
                       name);
    json_object_set(table, name, from);
  }
  if (!check_config(table, error))
    return false;
  *ret = moe_config_ordered(table);
  return true;
}

static bool set_back(const struct moe_mapping *mapping, const struct moe_source *source,
                     const char *what, json_t *value, json_t *key, struct error *error) {
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
                                : source->kind == MOE_PAIR
                                    ? json_sprintf("[%lld,%lld]", (long long)source->numbers[0],
                                                   (long long)source->numbers[1])
                                    : json_null();
  bool is_flag = json_is_boolean(owned);
  if (is_flag ? json_is_true(owned) == (source->numbers[0] != 0) : json_equal(stated, owned))
    return true;
  cleanup_free char *wanted = json_canonical(stated), *found = json_canonical(owned);
  return error_set(error, "the table's %s is %s, and the exports of %s say %s", what, found,
                   mapping->kernel->name, wanted);
}

/* The way back: the key and the config that a table's entry is for the kernel; new references. What
 * the exports say outright must be what the table says; expressions have no way back. */
static bool moe_mapping_key_back(const struct moe_mapping *mapping, const struct moe_name *name,
                                 int64_t m, json_t **ret, struct error *error) {
  cleanup_json json_t *key = json_object();
  json_t *block = name->has_block_shape
                      ? json_sprintf("[%lld,%lld]", (long long)name->block_shape[0],
                                     (long long)name->block_shape[1])
                      : json_null();
  json_t *dtype = name->dtype ? json_string(name->dtype) : json_null();
  bool ok = set_back(mapping, &mapping->e, "E", json_integer(name->e), key, error);
  ok = ok && set_back(mapping, &mapping->n, "N", json_integer(name->n), key, error);
  ok = ok && set_back(mapping, &mapping->m, "M", json_integer(m), key, error);
  ok = ok && set_back(mapping, &mapping->dtype, "dtype", json_incref(dtype), key, error);
  ok =
      ok && set_back(mapping, &mapping->block_shape, "block_shape", json_incref(block), key, error);
  ok = ok && set_back(mapping, &mapping->per_channel_quant, "per_channel_quant",
                      json_boolean(name->per_channel_quant), key, error);
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

static bool moe_mapping_config_back(const struct moe_mapping *mapping, const json_t *config,
                                    json_t **ret, struct error *error) {
  cleanup_json json_t *left = json_copy((json_t *)config), *back = json_object();
  const char *name;
  json_t *to;
  json_object_foreach ((json_t *)mapping->config, name, to) {
    json_t *value = json_object_get(config, name);
    if (!value || (json_is_integer(to) && !json_equal(value, to)))
      return error_set(error, "the config's %.60s is not what the exports of %s say", name,
                       mapping->kernel->name);
    if (json_is_string(to))
      json_object_set(back, json_string_value(to), value);
    json_object_del(left, name);
  }
  json_object_foreach (left, name, to) {
    if (json_object_get(back, name))
      return error_set(error, "the config's %.60s is two members for %s", name,
                       mapping->kernel->name);
    json_object_set(back, name, to);
  }
  *ret = TAKE(back);
  return true;
}

/* Reading */

struct reading {
  const struct moe_dialect *dialect;
  struct kernel *external; /* or NULL: mapped to the request's */
  struct moe_mapping mapping;
  struct imported imported;
  json_t *seen; /* canonical key: path of the file */
};

static void reading_release(struct reading *reading) {
  moe_mapping_release(&reading->mapping);
  imported_release(&reading->imported);
  if (reading->external)
    kernel_free(reading->external);
  json_decref(reading->seen);
}

/* The kernel that tables without a kernel are of: its key is what their names say. */
static json_t *external_manifest(const struct moe_dialect *dialect) {
  cleanup_free char *name = xasprintf("%s/fused_moe", dialect->format);
  json_t *exports = json_pack("{s:s, s:s, s:s, s:s, s:s}", "E", "E", "N", "N", "M", "M", "dtype",
                              "dtype", "block_shape", "block_shape");
  json_t *key = json_pack("[s, s, s, s]", "E", "N", "dtype", "block_shape");
  if (dialect->has_variants) {
    static const char *const variants[] = {"per_channel_quant", "down"};
    for (size_t i = 0; i < ARRAY_LENGTH(variants); i++) {
      json_object_set_new(exports, variants[i], json_string(variants[i]));
      json_array_append_new(key, json_string(variants[i]));
    }
  }
  json_array_append_new(key, json_string("M"));
  return json_pack("{s:s, s:s, s:o, s:{s:o}}", "name", name, "language", "external", "key", key,
                   "exports", dialect->format, exports);
}

/* "triton_3_4_0", the folder that the file lies in, as "3.4.0". */
static bool version_take(const char *path, json_t *environment, struct error *error) {
  const char *file = strrchr(path, '/'), *folder = file;
  while (folder && folder > path && folder[-1] != '/')
    folder--;
  size_t size = file ? (size_t)(file - folder) : 0;
  if (size < 8 || !string_starts(folder, "triton_") ||
      strspn(folder + 7, "0123456789_") + 7 != size)
    return error_set(
        error, "the table lies in no folder like triton_3_4_0, which says what Triton it is for");
  cleanup_free char *version = xstrndup(folder + 7, size - 7);
  for (char *c = version; *c; c++)
    *c = *c == '_' ? '.' : *c;
  json_object_set_new(environment, "triton", json_string(version));
  return true;
}

static bool environment_take(struct reading *reading, const char *path, const struct moe_name *name,
                             const char *triton, struct error *error) {
  cleanup_json json_t *json = json_object();
  cleanup_environment struct environment environment = {0};
  cleanup_free char *gpu = xstrdup(name->device);
  for (char *c = gpu; *c; c++)
    *c = *c == '_' ? ' ' : *c;
  json_object_set_new(json, "gpu", json_string(gpu));
  if (triton)
    json_object_set_new(json, "triton", json_string(triton));
  if (reading->dialect->has_versions && !version_take(path, json, error))
    return false;
  if (!environment_parse(json, &environment, error))
    return false;
  if (!reading->imported.environment)
    reading->imported.environment = json_incref(json);
  cleanup_free char *before = json_canonical(reading->imported.environment),
                    *now = json_canonical(json);
  return strcmp(before, now) == 0 ||
         error_set(error,
                   "the table is of %s, one before it of %s; import them one after the other", now,
                   before);
}

/* "16": positive, without leading zeros. */
static bool row_number(const char *text, int64_t *ret) {
  size_t size = strlen(text);
  if (size < 1 || size > 9 || text[0] == '0' || strspn(text, "0123456789") != size)
    return false;
  *ret = strtoll(text, NULL, 10);
  return true;
}

static bool table_config_check(const json_t *config, const char *at, struct error *error) {
  const char *name;
  json_t *value;
  char below[JSON_POINTER_SIZE];
  if (!json_object_size(config) || json_object_size(config) > CONFIG_MEMBERS_MAX)
    return error_at(error, at, "a config must be an object of 1 to %d members", CONFIG_MEMBERS_MAX);
  json_object_foreach ((json_t *)config, name, value) {
    if (!name[0] || strchr(name, ','))
      return error_at(error, json_pointer_member(below, sizeof below, at, name),
                      "the name of a member must be plain");
    if (!json_is_integer(value) && !json_is_boolean(value) && !json_is_string(value) &&
        !json_is_null(value))
      return error_at(error, json_pointer_member(below, sizeof below, at, name),
                      "a value must be an integer, a boolean, a text or null");
  }
  return true;
}

static char *order_of(const json_t *config) {
  const char *name;
  json_t *value;
  char *text = NULL;
  size_t size = 0;
  bool is_first = true;
  FILE *out = open_memstream(&text, &size);
  ALWAYS(out != NULL);
  json_object_foreach ((json_t *)config, name, value) {
    fprintf(out, "%s%s", is_first ? "" : ",", name);
    is_first = false;
  }
  ALWAYS(fclose(out) == 0);
  return text;
}

static json_t *provenance_of(const char *path, const json_t *config) {
  json_t *provenance = json_object();
  json_object_set_new(provenance, "source", imported_source(path));
  /* What comes out of a release is sorted by name before the usual members are put in front. */
  cleanup_free char *canonical = json_canonical(config);
  cleanup_json json_t *sorted = json_loads(canonical, 0, NULL);
  cleanup_json json_t *usual = moe_config_ordered(sorted);
  cleanup_free char *order = order_of(config), *usual_order = order_of(usual);
  if (strcmp(order, usual_order) != 0)
    json_object_set_new(provenance, "order", json_string(order));
  return provenance;
}

static bool row_take(struct reading *reading, const char *path, const struct moe_name *name,
                     const char *m_text, const json_t *config, struct error *error) {
  char at[JSON_POINTER_SIZE];
  int64_t m = 0;
  json_pointer_member(at, sizeof at, "", m_text);
  if (!row_number(m_text, &m))
    return error_at(error, at, "a member must be a number of tokens, 1 to 999999999");
  if (!table_config_check(config, at, error))
    return false;
  struct imported_entry *entry = imported_add_entry(&reading->imported.kernels[0]);
  entry->provenance = provenance_of(path, config);
  struct error why;
  if (!moe_mapping_key_back(&reading->mapping, name, m, &entry->key, &why) ||
      !moe_mapping_config_back(&reading->mapping, config, &entry->config, &why))
    return error_at(error, at, "%s", why.message);
  cleanup_free char *key = json_canonical(entry->key);
  const char *before = json_string_value(json_object_get(reading->seen, key));
  if (before)
    return error_at(error, at, "the key %.200s is also in %.250s", key, before);
  json_object_set_new(reading->seen, key, imported_source(path));
  return true;
}

static bool file_take(struct reading *reading, const struct cache_file *file, struct error *error) {
  const char *slash = strrchr(file->path, '/'), *m, *triton = NULL;
  cleanup_moe_name struct moe_name name = {0};
  cleanup_json json_t *json = NULL;
  json_t *config;
  if (!moe_name_parse(reading->dialect, slash ? slash + 1 : file->path, &name, error) ||
      !json_parse(file->bytes, file->size, &json, error))
    return false;
  if (!json_is_object(json))
    return error_set(error, "the document must be an object");
  if (!reading->dialect->has_versions &&
      !json_get_string(json, "", "triton_version", JSON_OPTIONAL, &triton, error))
    return false;
  if (!environment_take(reading, file->path, &name, triton, error))
    return false;
  json_object_foreach (json, m, config) {
    bool is_version = !reading->dialect->has_versions && strcmp(m, "triton_version") == 0;
    if (!is_version && !row_take(reading, file->path, &name, m, config, error))
      return false;
  }
  return true;
}

static bool is_table(const char *path) {
  const char *slash = strrchr(path, '/');
  return string_starts(slash ? slash + 1 : path, "E=");
}

static bool kernel_take(struct reading *reading, const struct import_request *request,
                        struct error *error) {
  struct imported_kernel *kernel = imported_add_kernel(&reading->imported);
  if (request->kernel) {
    kernel->hash = request->kernel->hash;
    return moe_mapping_read(reading->dialect, request->kernel, &reading->mapping, error);
  }
  kernel->manifest = external_manifest(reading->dialect);
  return kernel_parse(kernel->manifest, &reading->external, error) &&
         moe_mapping_read(reading->dialect, reading->external, &reading->mapping, error);
}

bool moe_read(const struct moe_dialect *dialect, const struct import_request *request,
              struct imported *ret, struct error *error) {
  __attribute__((cleanup(reading_release))) struct reading reading = {.dialect = dialect,
                                                                      .seen = json_object()};
  size_t n_files = 0;
  if (!kernel_take(&reading, request, error))
    return false;
  for (size_t i = 0; i < request->files->n; i++) {
    const struct cache_file *file = &request->files->files[i];
    if (!is_table(file->path))
      continue;
    n_files++;
    if (!file_take(&reading, file, error))
      return cache_file_refuse(file, error);
  }
  if (!reading.imported.kernels[0].n_entries)
    return error_set(error, n_files ? "no table there holds a config"
                                    : "there is no table, a file E=…,N=…,device_name=….json");
  *ret = reading.imported;
  reading.imported = (struct imported){0};
  return true;
}
