/* Reading mixture-of-experts tables. Memory and threads: what format.h says. */
#include "common/cache/moe_mapping.h"

#define CONFIG_MEMBERS_MAX 64

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
  json_t *exports = json_pack("{s:s, s:s, s:s, s:s, s:s}", "E", "E", "N", "N", "M", "M", "dtype", "dtype",
                              "block_shape", "block_shape");
  json_t *key = json_pack("[s, s, s, s]", "E", "N", "dtype", "block_shape");
  if (dialect->has_variants) {
    static const char *const variants[] = {"per_channel_quant", "down"};
    for (size_t i = 0; i < ARRAY_LENGTH(variants); i++) {
      json_object_set_new(exports, variants[i], json_string(variants[i]));
      json_array_append_new(key, json_string(variants[i]));
    }
  }
  json_array_append_new(key, json_string("M"));
  return json_pack("{s:s, s:s, s:o, s:{s:o}}", "name", name, "language", "external", "key", key, "exports",
                   dialect->format, exports);
}

/* "triton_3_4_0", the folder that the file lies in, as "3.4.0". */
static bool version_take(const char *path, json_t *environment, struct error *error) {
  const char *file = strrchr(path, '/'), *folder = file;
  while (folder && folder > path && folder[-1] != '/')
    folder--;
  size_t size = file ? (size_t)(file - folder) : 0;
  if (size < 8 || !string_starts(folder, "triton_") || strspn(folder + 7, "0123456789_") + 7 != size)
    return error_set(error, "the table lies in no folder like triton_3_4_0, which says what Triton it is for");
  cleanup_free char *version = xstrndup(folder + 7, size - 7);
  for (char *c = version; *c; c++)
    *c = *c == '_' ? '.' : *c;
  json_object_set_new(environment, "triton", json_string(version));
  return true;
}

static bool environment_take(struct reading *reading, const char *path, const struct moe_name *name, const char *triton,
                             struct error *error) {
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
  cleanup_free char *before = json_canonical(reading->imported.environment), *now = json_canonical(json);
  return strcmp(before, now) == 0 ||
         error_set(error, "the table is of %s, one before it of %s; import them one after the other", now, before);
}

/* "16": positive, without leading zeros. */
static bool row_number(const char *text, int64_t *ret) {
  size_t size = strlen(text);
  if (size < 1 || size > 9 || text[0] == '0' || strspn(text, "0123456789") != size)
    return false;
  *ret = strtoll(text, NULL, 10);
  return true;
}

static bool check_config(const json_t *config, const char *at, struct error *error) {
  const char *name;
  json_t *value;
  char below[JSON_POINTER_SIZE];
  if (!json_object_size(config) || json_object_size(config) > CONFIG_MEMBERS_MAX)
    return error_at(error, at, "a config must be an object of 1 to %d members", CONFIG_MEMBERS_MAX);
  json_object_foreach ((json_t *)config, name, value) {
    if (!name[0] || strchr(name, ','))
      return error_at(error, json_pointer_member(below, sizeof below, at, name), "the name of a member must be plain");
    if (!json_is_integer(value) && !json_is_boolean(value) && !json_is_string(value) && !json_is_null(value))
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

static bool row_take(struct reading *reading, const char *path, const struct moe_name *name, const char *m_text,
                     const json_t *config, struct error *error) {
  char at[JSON_POINTER_SIZE];
  int64_t m = 0;
  json_pointer_member(at, sizeof at, "", m_text);
  if (!row_number(m_text, &m))
    return error_at(error, at, "a member must be a number of tokens, 1 to 999999999");
  if (!check_config(config, at, error))
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
  if (!reading->dialect->has_versions && !json_get_string(json, "", "triton_version", JSON_OPTIONAL, &triton, error))
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

static bool kernel_take(struct reading *reading, const struct import_request *request, struct error *error) {
  struct imported_kernel *kernel = imported_add_kernel(&reading->imported);
  if (request->kernel) {
    kernel->hash = request->kernel->hash;
    return moe_mapping_read(reading->dialect, request->kernel, &reading->mapping, error);
  }
  kernel->manifest = external_manifest(reading->dialect);
  return kernel_parse(kernel->manifest, &reading->external, error) &&
         moe_mapping_read(reading->dialect, reading->external, &reading->mapping, error);
}

bool moe_read(const struct moe_dialect *dialect, const struct import_request *request, struct imported *ret,
              struct error *error) {
  __attribute__((cleanup(reading_release))) struct reading reading = {.dialect = dialect, .seen = json_object()};
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
