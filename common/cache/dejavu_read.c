/* Reading triton-dejavu's caches: one cache.json, or a tree of them.
 *
 * Every file is checked whole: its place, its types, that it belongs into its folder, and that no key is there twice.
 * Memory: what was read is the caller's; nothing is kept of what was refused. Threads: a pure function. */
#include <math.h>

#include "common/cache/config_text.h"
#include "common/cache/dejavu.h"
#include "common/cache/python_text.h"
#include "common/kernel/kernel_parse.h"

#define NAME_PREFIX "dejavu/"
#define KERNEL_NAME_MAX 128

struct reading {
  const struct kernel *kernel; /* to map to, or NULL */
  struct imported imported;
  json_t *kernels; /* canonical manifest: index */
  json_t *seen;    /* "<index> <canonical key>": path of the file */
};

/* One file. */
struct table {
  const char *path; /* from dejavu_… on */
  struct dejavu_path parts;
  json_t *json, *keys, *cache, *timings, *timings_data; /* the last may be NULL, and keys when null */
  const char *signature;
  json_t *provenance;                  /* what its entries have in common */
  json_t *order;                       /* names of the first config's members */
  size_t kernels[KEY_MEMBERS_MAX + 1]; /* 1 + the index of the kernel of entries with so many elements; 0: none yet */
};

static void reading_release(struct reading *reading) {
  imported_release(&reading->imported);
  json_decref(reading->kernels);
  json_decref(reading->seen);
}

static void table_release(struct table *table) {
  dejavu_path_release(&table->parts);
  json_decref(table->json);
  json_decref(table->provenance);
  json_decref(table->order);
}

static bool check_keys(const struct table *table, struct error *error) {
  size_t i;
  json_t *key;
  char at[JSON_POINTER_SIZE], hash[DEJAVU_HASH_SIZE];
  if (json_array_size(table->keys) > KEY_MEMBERS_MAX)
    return error_at(error, "/keys", "more than %d names", KEY_MEMBERS_MAX);
  json_array_foreach (table->keys, i, key) {
    if (!json_string_length(key) || json_string_length(key) > IDENTIFIER_MAX)
      return error_at(error, json_pointer_index(at, sizeof at, "/keys", i), "a name must be a string of 1 to %d bytes",
                      IDENTIFIER_MAX);
  }
  if (table->keys && table->parts.tune_features &&
      strcmp(dejavu_names_hash(table->keys, hash), table->parts.tune_features) != 0)
    return error_at(error, "/keys", "the folder tune_features-%.12s… is of other names: theirs is %.12s…",
                    table->parts.tune_features, hash);
  return true;
}

static bool check_timings_data(const struct table *table, struct error *error) {
  static const char *const members[] = {"labels", "rep_t_ms", "warmup_t_ms", "cuda_graphs", NULL};
  const char *at = "/timings_data";
  json_t *labels = NULL;
  double ms = 0;
  bool graphs;
  if (!table->timings_data)
    return true;
  if (!json_only_members(table->timings_data, at, members, error) ||
      !json_get_array(table->timings_data, at, "labels", JSON_REQUIRED, &labels, error) ||
      !json_get_number(table->timings_data, at, "rep_t_ms", JSON_REQUIRED, &ms, error) ||
      !json_get_number(table->timings_data, at, "warmup_t_ms", JSON_REQUIRED, &ms, error) ||
      !json_get_bool(table->timings_data, at, "cuda_graphs", JSON_REQUIRED, &graphs, error))
    return false;
  static const char *const known[] = {"ms", "min_ms", "max_ms"};
  bool is_known = json_array_size(labels) == 1 || json_array_size(labels) == ARRAY_LENGTH(known);
  for (size_t i = 0; is_known && i < json_array_size(labels); i++)
    is_known = string_equal(json_string_value(json_array_get(labels, i)), known[i]);
  return is_known || error_at(error, "/timings_data/labels",
                              "the labels must be [\"ms\"], or that with \"min_ms\" and "
                              "\"max_ms\"");
}

static bool check_signature(const struct table *table, struct error *error) {
  cleanup_free char *function = dejavu_signature_function(table->signature);
  return string_equal(function, table->parts.function) ||
         error_at(error, "/signature", "\"%.200s\" is not JITFunction(module:%.100s), as the folder has it",
                  table->signature, table->parts.function);
}

static bool table_read(const struct cache_file *file, struct table *table, struct error *error) {
  double total = 0;
  int64_t evaluated = 0;
  if (!dejavu_path_parse(file->path, &table->parts, error))
    return false;
  table->path = dejavu_path_begin(file->path);
  if (!json_parse(file->bytes, file->size, &table->json, error))
    return false;
  const json_t *json = table->json;
  if (!json_is_object(json))
    return error_set(error, "the document must be an object");
  if (!json_get_string(json, "", "signature", JSON_REQUIRED, &table->signature, error) ||
      !json_get_number(json, "", "total_bench_time_s", JSON_REQUIRED, &total, error) ||
      !json_get_integer(json, "", "evaluated_configs", JSON_REQUIRED, 0, INT32_MAX, &evaluated, error) ||
      !json_get_object(json, "", "cache", JSON_REQUIRED, &table->cache, error))
    return false;
  if (!json_object_get(json, "keys"))
    return error_set(
        error,
        "a cache of triton-dejavu %.20s without \"keys\", as versions before 0.5.4 wrote it: what the members "
        "of its keys are is not known; import what a newer triton-dejavu writes",
        table->parts.layout + strlen("dejavu_"));
  if (!json_get_array(json, "", "keys", JSON_OPTIONAL, &table->keys, error) ||
      !json_get_object(json, "", "timings", JSON_REQUIRED, &table->timings, error) ||
      !json_get_object(json, "", "timings_data", JSON_OPTIONAL, &table->timings_data, error))
    return false;
  if (total < 0)
    return error_at(error, "/total_bench_time_s", "a time must not be negative");
  table->provenance = json_object();
  json_object_set_new(table->provenance, "evaluated_configs", json_integer(evaluated));
  json_object_set_new(table->provenance, "source", imported_source(table->path));
  json_object_set(table->provenance, "total_bench_time_s", json_object_get(json, "total_bench_time_s"));
  return check_signature(table, error) && check_keys(table, error) && check_timings_data(table, error);
}

/* The path has '_' for ' ' and '/' of the device's name; names with '/' are rare. */
static json_t *environment_of(const struct dejavu_path *path) {
  cleanup_free char *gpu = xstrdup(path->gpu);
  for (char *c = gpu; *c; c++)
    *c = *c == '_' ? ' ' : *c;
  json_t *environment = json_object();
  cleanup_free char *platform = xstrndup(path->runtime, 4);
  json_object_set_new(environment, platform, json_string(path->runtime + 5));
  if (path->torch)
    json_object_set_new(environment, "torch", json_string(path->torch));
  json_object_set_new(environment, "triton", json_string(path->triton));
  json_object_set_new(environment, "gpu", json_string(gpu));
  return environment;
}

static bool environment_take(struct reading *reading, const struct table *table, struct error *error) {
  cleanup_json json_t *json = environment_of(&table->parts);
  cleanup_environment struct environment environment = {0};
  if (!environment_parse(json, &environment, error))
    return false;
  if (!reading->imported.environment) {
    reading->imported.environment = TAKE(json);
    return true;
  }
  cleanup_free char *before = json_canonical(reading->imported.environment), *now = json_canonical(json);
  return strcmp(before, now) == 0 ||
         error_set(error, "it is of the environment %s, a file before it of %s; import them one after the other", now,
                   before);
}

/* A name that expressions may read, for a member of the key that the file calls `name`. */
static char *member_name(const json_t *names, const char *name, size_t index) {
  cleanup_free char *text = NULL;
  if (name && identifier_is_valid(name) && strlen(name) < IDENTIFIER_MAX - 8)
    text = xasprintf("%s%s", name, name_is_reserved(name) ? "_" : "");
  else
    text = xasprintf("key_%zu", index);
  for (size_t i = 0; i < json_array_size(names); i++) {
    if (strcmp(json_string_value(json_array_get(names, i)), text) != 0)
      continue;
    char *longer = xasprintf("%s_", text);
    free(text);
    text = longer;
    i = (size_t)-1;
  }
  return TAKE(text);
}

static json_t *member_names(const struct table *table, size_t n) {
  json_t *names = json_array();
  size_t n_keys = json_array_size(table->keys);
  for (size_t i = 0; i < n; i++) {
    char dtype[32];
    snprintf(dtype, sizeof dtype, "dtype_%zu", i - n_keys);
    const char *wanted = i < n_keys ? json_string_value(json_array_get(table->keys, i)) : table->keys ? dtype : NULL;
    cleanup_free char *name = member_name(names, wanted, i);
    json_array_append_new(names, json_string(name));
  }
  return names;
}

static json_t *exports_of(const struct table *table) {
  json_t *exports = json_object();
  json_object_set_new(exports, "layout", json_string(table->parts.layout));
  json_object_set_new(exports, "function", json_string(table->parts.function));
  json_object_set_new(exports, "signature", json_string(table->signature));
#define X(hash)                                                                                                        \
  if (table->parts.hash)                                                                                               \
    json_object_set_new(exports, #hash, json_string(table->parts.hash));
  DEJAVU_HASHES(X)
#undef X
  json_object_set_new(exports, "keys", table->keys ? json_deep_copy(table->keys) : json_null());
  json_object_set(exports, "config", table->order);
  json_t *data = table->timings_data ? json_deep_copy(table->timings_data)
                                     : json_pack("{s:i, s:i, s:b}", "rep_t_ms", DEJAVU_REP_MS, "warmup_t_ms",
                                                 DEJAVU_WARMUP_MS, "cuda_graphs", false);
  json_object_del(data, "labels"); /* those follow from the timings */
  json_object_set_new(exports, "timings_data", data);
  return exports;
}

static json_t *manifest_of(const struct table *table, size_t n) {
  cleanup_free char *name =
      xasprintf(NAME_PREFIX "%.*s", KERNEL_NAME_MAX - (int)strlen(NAME_PREFIX), table->parts.function);
  for (char *c = name; *c; c++) {
    bool is_plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9');
    *c = is_plain || strchr("._/-", *c) ? *c : '_';
  }
  json_t *manifest = json_object(), *exports = json_object();
  json_object_set_new(exports, "dejavu", exports_of(table));
  json_object_set_new(manifest, "name", json_string(name));
  json_object_set_new(manifest, "language", json_string("external"));
  json_object_set_new(manifest, "key", member_names(table, n));
  json_object_set_new(manifest, "exports", exports);
  return manifest;
}

/* The kernel that entries with n elements are of. */
static size_t kernel_find(struct reading *reading, struct table *table, size_t n) {
  if (table->kernels[n])
    return table->kernels[n] - 1;
  if (reading->kernel) {
    if (!reading->imported.n_kernels)
      imported_add_kernel(&reading->imported)->hash = reading->kernel->hash;
    table->kernels[n] = 1;
    return 0;
  }
  cleanup_json json_t *manifest = manifest_of(table, n);
  cleanup_free char *text = json_canonical(manifest);
  const json_t *known = json_object_get(reading->kernels, text);
  size_t index = known ? (size_t)json_integer_value(known) : reading->imported.n_kernels;
  if (!known) {
    imported_add_kernel(&reading->imported)->manifest = TAKE(manifest);
    json_object_set_new(reading->kernels, text, json_integer((json_int_t)index));
  }
  table->kernels[n] = index + 1;
  return index;
}

/* Of a registered kernel, whose key has the names of the table's. */
static bool mapped_key(const struct kernel *kernel, const struct table *table, char **elements, json_t **ret,
                       struct error *error) {
  size_t n_keys = json_array_size(table->keys);
  cleanup_json json_t *key = json_object();
  for (size_t i = 0; i < n_keys; i++)
    json_object_set_new(key, json_string_value(json_array_get(table->keys, i)),
                        value_to_json(python_value(elements[i])));
  bool fits = json_object_size(key) == kernel->n_key_names && n_keys == kernel->n_key_names;
  for (size_t i = 0; i < kernel->n_key_names; i++)
    fits = fits && json_object_get(key, kernel->key_names[i]);
  if (!fits) {
    cleanup_free char *names = table->keys ? json_canonical(table->keys) : xstrdup("null");
    return error_at(error, "/keys", "the table's keys %.300s are not the key of kernel %s", names, kernel->name);
  }
  *ret = TAKE(key);
  return true;
}

/* The config as a point of a space: without the fields that Config adds. */
static json_t *mapped_config(const json_t *config, const char *triton) {
  json_t *mapped = json_object(), *value;
  const char *name;
  json_object_foreach ((json_t *)config, name, value) {
    struct value standard;
    cleanup_json json_t *standard_json = config_field(name, triton, &standard) ? value_to_json(standard) : NULL;
    bool is_tuned = strcmp(name, "num_warps") == 0 || strcmp(name, "num_stages") == 0;
    if (is_tuned || !json_equal(value, standard_json))
      json_object_set(mapped, name, value);
  }
  return mapped;
}

static json_t *names_of(const json_t *config) {
  const char *name;
  json_t *value, *names = json_array();
  json_object_foreach ((json_t *)config, name, value)
    json_array_append_new(names, json_string(name));
  return names;
}

static bool take_timing(const struct table *table, const char *key, const char *at, struct imported_entry *entry,
                        struct error *error) {
  json_t *timing = json_object_get(table->timings, key);
  if (!timing)
    return true;
  size_t n = json_array_size(timing), n_labels = json_array_size(json_object_get(table->timings_data, "labels"));
  if ((n != 1 && n != RELEASE_MS_MAX) || (n_labels && n != n_labels))
    return error_at(error, at, "a timing must be a list of 1 or %d numbers, one for each label", RELEASE_MS_MAX);
  for (size_t i = 0; i < n; i++) {
    const json_t *ms = json_array_get(timing, i);
    if (!json_is_number(ms) || !(json_number_value(ms) > 0))
      return error_at(error, at, "a timing must be a number of milliseconds above 0");
    entry->ms[i] = json_number_value(ms);
  }
  entry->n_ms = n;
  return true;
}

struct elements {
  size_t n;
  char **all;
};

static void elements_release(struct elements *elements) { strings_free(elements->all, elements->n); }

static bool take_key(const struct reading *reading, const struct table *table, const struct elements *elements,
                     const json_t *manifest, json_t **ret, struct error *error) {
  if (elements->n < json_array_size(table->keys))
    return error_set(error, "the key has %zu elements and \"keys\" %zu names", elements->n,
                     json_array_size(table->keys));
  if (reading->kernel)
    return mapped_key(reading->kernel, table, elements->all, ret, error);
  const json_t *names = json_object_get(manifest, "key");
  json_t *key = json_object();
  for (size_t i = 0; i < elements->n; i++)
    json_object_set_new(key, json_string_value(json_array_get(names, i)),
                        value_to_json(python_value(elements->all[i])));
  *ret = key;
  return true;
}

/* Two keys of one table, or of two files of it, must not be the same. */
static bool key_is_new(struct reading *reading, size_t kernel, const json_t *key, const struct table *table,
                       struct error *error) {
  cleanup_free char *canonical = json_canonical(key);
  cleanup_free char *text = xasprintf("%zu %s", kernel, canonical);
  const char *before = json_string_value(json_object_get(reading->seen, text));
  if (before)
    return error_set(error, "the key %.200s is there twice%s%.250s", canonical,
                     strcmp(before, table->path) == 0 ? "" : ": also in ",
                     strcmp(before, table->path) == 0 ? "" : before);
  json_object_set_new(reading->seen, text, imported_source(table->path));
  return true;
}

static bool take_entry(struct reading *reading, struct table *table, const char *key, const json_t *text,
                       struct error *error) {
  __attribute__((cleanup(elements_release))) struct elements elements = {0};
  cleanup_json json_t *config = NULL;
  if (!python_string_tuple_parse(key, KEY_MEMBERS_MAX, &elements.all, &elements.n, error))
    return false;
  if (!json_is_string(text))
    return error_set(error, "a config must be a string");
  if (!config_text_parse(json_string_value(text), &config, error))
    return false;
  cleanup_json json_t *order = names_of(config);
  size_t index = kernel_find(reading, table, elements.n);
  struct imported_kernel *kernel = &reading->imported.kernels[index];
  struct imported_entry *entry = imported_add_entry(kernel);
  entry->config = reading->kernel ? mapped_config(config, table->parts.triton) : json_incref(config);
  if (reading->kernel || json_equal(order, table->order)) {
    entry->provenance = json_incref(table->provenance);
  } else {
    entry->provenance = json_copy(table->provenance);
    json_object_set(entry->provenance, "config", (json_t *)text);
  }
  char at[JSON_POINTER_SIZE];
  return take_key(reading, table, &elements, kernel->manifest, &entry->key, error) &&
         key_is_new(reading, index, entry->key, table, error) &&
         take_timing(table, key, json_pointer_member(at, sizeof at, "/timings", key), entry, error);
}

/* The order that most tables have throughout; which one it is must not depend on the order of entries. Texts that are no
 * configs are refused with their entries. */
static void order_find(struct table *table) {
  cleanup_free char *least = NULL;
  const char *key;
  json_t *text;
  json_object_foreach (table->cache, key, text) {
    cleanup_json json_t *config = NULL;
    struct error ignored;
    if (!json_is_string(text) || !config_text_parse(json_string_value(text), &config, &ignored))
      continue;
    cleanup_json json_t *order = names_of(config);
    cleanup_free char *names = json_canonical(order);
    if (least && strcmp(least, names) <= 0)
      continue;
    free(least);
    least = TAKE(names);
    json_decref(table->order);
    table->order = json_incref(order);
  }
}

static bool file_take(struct reading *reading, const struct cache_file *file, struct error *error) {
  __attribute__((cleanup(table_release))) struct table table = {0};
  const char *key;
  json_t *text;
  char at[JSON_POINTER_SIZE];
  if (!table_read(file, &table, error) || !environment_take(reading, &table, error))
    return false;
  order_find(&table);
  json_object_foreach (table.cache, key, text) {
    struct error why = {0};
    if (!take_entry(reading, &table, key, text, &why))
      return error_at(error, why.pointer[0] ? why.pointer : json_pointer_member(at, sizeof at, "/cache", key), "%s",
                      why.message);
  }
  json_object_foreach (table.timings, key, text) {
    if (!json_object_get(table.cache, key))
      return error_at(error, json_pointer_member(at, sizeof at, "/timings", key), "\"cache\" has no such key");
  }
  return true;
}

static bool is_cache_json(const char *path) {
  const char *slash = strrchr(path, '/');
  return strcmp(slash ? slash + 1 : path, "cache.json") == 0;
}

bool dejavu_read(const struct import_request *request, struct imported *ret, struct error *error) {
  __attribute__((cleanup(reading_release))) struct reading reading = {
      .kernel = request->kernel, .kernels = json_object(), .seen = json_object()};
  size_t n_files = 0, n_entries = 0;
  for (size_t i = 0; i < request->files->n; i++) {
    const struct cache_file *file = &request->files->files[i];
    if (!is_cache_json(file->path))
      continue;
    n_files++;
    if (!file_take(&reading, file, error))
      return cache_file_refuse(file, error);
  }
  for (size_t i = 0; i < reading.imported.n_kernels; i++)
    n_entries += reading.imported.kernels[i].n_entries;
  if (!n_entries)
    return error_set(error, n_files ? "no cache.json there holds an entry" : "there is no file cache.json");
  *ret = reading.imported;
  reading.imported = (struct imported){0};
  return true;
}
