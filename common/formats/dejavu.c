/* The `dejavu` format: the tree that triton-dejavu reads under TRITON_DEJAVU_STORAGE (dejavu.h).
 *
 * Where a function's file lies comes from hashes of its text and of its decorator's arguments, so a
 * kernel is written when these are known: from the image's record of it, else the build's, else
 * from the manifest of a table that was imported. Which Triton, ROCm and GPU the folders name comes
 * from the image, else from the release's environment. Entries that dejavu would not restore as
 * they are, are skipped with the reason: it checks nothing itself, and a key that does not come
 * back breaks its next tuning.
 *
 * Memory: what format.h says. Pure functions over what they are given; any thread. */
#include <math.h>

#include "common/cache/cache_text.h"
#include "common/cache/config_text.h"
#include "common/cache/python_text.h"
#include "common/cache/tuning_key.h"

#include "common/formats/dejavu.h"

#define KNOWN_TEXTS 4096

/* What its files need to know of a kernel's function: from records of images and builds, and from
 * manifests of imported tables */

/* Owns everything but the identity's record. */
struct dejavu_function {
  struct dejavu_path path; /* whole, with the storage's parts and the release's tag */
  char *signature;
  json_t *keys;      /* array, or null */
  json_t *timings;   /* "timings_data" without labels */
  int64_t evaluated; /* 0: see the provenance */
  bool ignore_dtypes;
  bool all_three; /* whether timings have three numbers, where all are known */
  const struct function_record *record; /* the identity's, or packed; NULL: an imported table */
  struct function_record packed;        /* of a build; empty where it is not used */
  const struct kernel *manifest;        /* the source's, where it was needed; or NULL */
  json_t *configs; /* of a record: what equal configs have in common: the config's text */
  json_t *order;   /* of an imported table: names of a config's members */
};
static void dejavu_function_release(struct dejavu_function *function) {
  dejavu_path_release(&function->path);
  function_record_release(&function->packed);
  free(function->signature);
  json_decref(function->keys);
  json_decref(function->timings);
  json_decref(function->configs);
  json_decref(function->order);
}

static char *xstrdup_or_null(const char *text) { return text ? xstrdup(text) : NULL; }

/* Sets the hash from what it is made of, or checks that it is made of that. */
static bool hash_take(char **hash, const char *stated, const char *computed, const char *name,
                      struct error *error) {
  if (stated && computed && strcmp(stated, computed) != 0)
    return error_set(error, "the record's %s is not the hash of what the record has of it", name);
  if (!stated && !computed)
    return error_set(error, "the record has no %s", name);
  *hash = xstrdup(stated ? stated : computed);
  return true;
}

static bool take_hashes(struct dejavu_function *function, struct error *error) {
  const struct function_record *record = function->record;
  const json_t *dejavu = record->dejavu;
  char p[DEJAVU_HASH_SIZE], c[DEJAVU_HASH_SIZE], k[DEJAVU_HASH_SIZE], g[DEJAVU_HASH_SIZE];
  const char *parameters = json_string_value(json_object_get(dejavu, "search_parameters"));
  struct text configs = {0};
  text_add(&configs, "|", 1);
  for (size_t i = 0; i < record->n_configs; i++) {
    text_add_string(&configs, record->configs[i]);
    text_add(&configs, "|", 1);
  }
  dejavu_hash(configs.bytes, configs.size, g);
  text_release(&configs);
#define STATED(name) json_string_value(json_object_get(dejavu, #name))
  return hash_take(&function->path.autotune_config, STATED(autotune_config),
                   parameters ? dejavu_hash(parameters, strlen(parameters), p) : NULL,
                   "autotune_config", error) &&
         hash_take(&function->path.code_version, STATED(code_version),
                   record->source_sha256
                       ? dejavu_hash(record->source_sha256, strlen(record->source_sha256), c)
                       : NULL,
                   "code_version", error) &&
         hash_take(&function->path.tune_features, STATED(tune_features),
                   dejavu_names_hash(function->keys, k), "tune_features", error) &&
         hash_take(&function->path.kernel_configs, STATED(kernel_configs),
                   record->n_configs ? g : NULL, "kernel_configs", error);
#undef STATED
}

/* Which of the decorator's configs a winner's is, whatever it leaves at its default: by what they
 * have in common. */
static void take_configs(struct dejavu_function *function, const char *triton) {
  struct error why;
  function->configs = json_object();
  for (size_t i = 0; i < function->record->n_configs; i++) {
    cleanup_json json_t *config = NULL;
    if (!config_text_parse(function->record->configs[i], &config, &why))
      continue; /* it cannot be told from others, and no winner is it */
    cleanup_free char *normal = config_text_normal(config, triton);
    if (json_is_null(json_object_get(config, "ir_override")))
      json_object_del(config, "ir_override"); /* dejavu would hand it to the kernel */
    cleanup_free char *text = config_text_format(config);
    if (!json_object_get(function->configs, normal))
      json_object_set_new(function->configs, normal, json_string(text));
  }
}

static bool same_minor(const char *a, const char *b) {
  int major[2], minor[2];
  return sscanf(a, "%4d.%4d", &major[0], &minor[0]) == 2 &&
         sscanf(b, "%4d.%4d", &major[1], &minor[1]) == 2 && major[0] == major[1] &&
         minor[0] == minor[1];
}

static json_t *timings_of(const json_t *object, const char *rep, const char *warmup,
                          const char *graphs) {
  json_t *rep_ms = json_object_get(object, rep), *warmup_ms = json_object_get(object, warmup);
  return json_pack(
      "{s:o, s:o, s:b}", "rep_t_ms",
      json_is_number(rep_ms) ? json_incref(rep_ms) : json_integer(DEJAVU_REP_MS), "warmup_t_ms",
      json_is_number(warmup_ms) ? json_incref(warmup_ms) : json_integer(DEJAVU_WARMUP_MS),
      "cuda_graphs", json_is_true(json_object_get(object, graphs)));
}

/* The two versions of Triton print configs in another way, and the hash of them is in the path. */
static bool function_from_record(const struct dejavu_path *storage,
                                 const struct function_record *record,
                                 struct dejavu_function *function, struct error *error) {
  const char *triton = storage->triton,
             *layout = json_string_value(json_object_get(record->dejavu, "layout"));
  if (!record->dejavu)
    return error_set(error, "the function %.100s is not decorated with triton_dejavu.autotune",
                     record->function);
  if (record->triton_version && !same_minor(record->triton_version, triton))
    return error_set(error,
                     "the function was recorded with Triton %.40s and the paths are those of %.40s",
                     record->triton_version, triton);
  function->record = record;
  function->path.layout = xstrdup(layout ? layout : "dejavu_0.7");
  function->signature =
      record->signature ? xstrdup(record->signature)
                        : xasprintf("JITFunction(%s:%s)",
                                    record->module ? record->module : "__main__", record->function);
  function->path.function = dejavu_signature_function(function->signature);
  if (!function->path.function)
    return error_set(error, "the record's signature %.100s is not JITFunction(module:function)",
                     function->signature);
  function->keys = json_array();
  for (size_t i = 0; i < record->n_key_names; i++)
    json_array_append_new(function->keys, json_string(record->key_names[i]));
  function->timings = timings_of(record->dejavu, "rep", "warmup", "use_cuda_graph");
  function->evaluated = (int64_t)record->n_configs;
  function->ignore_dtypes = json_is_true(json_object_get(record->dejavu, "ignore_dtypes"));
  function->all_three =
      json_array_size(json_object_get(record->dejavu, "quantiles")) == RELEASE_MS_MAX;
  take_configs(function, triton);
  return take_hashes(function, error);
}

/* Whether the order of members is that of a Config which this Triton prints. */
static bool order_is_of(const json_t *order, const char *triton) {
  static const char *const fields[] = {"num_buffers_warp_spec", "num_consumer_groups",
                                       "reg_dec_producer", "reg_inc_consumer", "maxnreg"};
  for (size_t i = 0; i < ARRAY_LENGTH(fields); i++) {
    struct value standard;
    bool is_there = false;
    size_t j;
    json_t *name;
    json_array_foreach (order, j, name)
      is_there = is_there || string_equal(json_string_value(name), fields[i]);
    if (is_there != config_field(fields[i], triton, &standard))
      return false;
  }
  return true;
}

static bool function_from_exports(const struct dejavu_path *storage, const json_t *exports,
                                  struct dejavu_function *function, struct error *error) {
  const char *layout = NULL, *name = NULL, *signature = NULL, *at = "/exports/dejavu";
  json_t *order = NULL, *timings = NULL, *keys = NULL;
  if (!json_get_string(exports, at, "layout", JSON_REQUIRED, &layout, error) ||
      !json_get_string(exports, at, "function", JSON_REQUIRED, &name, error) ||
      !json_get_string(exports, at, "signature", JSON_REQUIRED, &signature, error) ||
      !json_get_array(exports, at, "config", JSON_REQUIRED, &order, error) ||
      !json_get_array(exports, at, "keys", JSON_OPTIONAL, &keys, error) ||
      !json_get_object(exports, at, "timings_data", JSON_OPTIONAL, &timings, error))
    return false;
  size_t i;
  json_t *key;
  json_array_foreach (keys, i, key) {
    if (!json_is_string(key))
      return error_at(error, "/exports/dejavu/keys", "the names must be strings");
  }
  if (!order_is_of(order, storage->triton))
    return error_set(
        error,
        "its configs were printed by another Triton than %.40s, and a hash of them is in the path",
        storage->triton);
  function->path.layout = xstrdup(layout);
  function->path.function = xstrdup(name);
  function->signature = xstrdup(signature);
#define X(hash)                                                                                    \
  function->path.hash = xstrdup_or_null(json_string_value(json_object_get(exports, #hash)));
  DEJAVU_HASHES(X)
#undef X
  function->keys = keys ? json_incref(keys) : json_null();
  function->timings = timings_of(timings, "rep_t_ms", "warmup_t_ms", "cuda_graphs");
  function->order = json_incref(order);
  function->all_three = true;
  return true;
}

/* A kernel's manifest, where the source has any. */
static bool manifest_take(const struct cache_source *source, const struct release_kernel *kernel,
                          struct dejavu_function *function, struct error *error) {
  return function->manifest || !source->kernel ||
         source->kernel(source->context, &kernel->hash, &function->manifest, error);
}

/* The record of the first build that one of the kernel's winners was measured with, when it has
 * one. */
static bool packed_record(const struct cache_source *source, const struct release_kernel *kernel,
                          struct dejavu_function *function, bool *ret_found, struct error *error) {
  for (size_t i = 0; i < kernel->n_provenance && source->build && source->kernel; i++) {
    const char *text = json_string_value(json_object_get(kernel->provenance[i], "build"));
    const struct build *build = NULL;
    struct digest digest;
    if (!text || !digest_parse(text, &digest))
      continue;
    if (!manifest_take(source, kernel, function, error) ||
        !source->build(source->context, function->manifest, &digest, &build, error))
      return false;
    if (build->record) {
      *ret_found = true;
      return function_record_parse(build->record, &function->packed, error);
    }
  }
  return true;
}

static bool function_take(const struct render_request *request, const struct dejavu_path *storage,
                          const struct release_kernel *kernel, struct dejavu_function *function,
                          struct error *error) {
  const struct cache_source *source = request->source;
  const struct function_record *record =
      identity_function(request->identity, &kernel->hash, kernel->name, NULL);
  bool is_packed = false;
  if (!record) {
    if (!packed_record(source, kernel, function, &is_packed, error))
      return false;
    if (is_packed)
      record = identity_function(request->identity, &kernel->hash, kernel->name, &function->packed);
    record = !record && is_packed ? &function->packed : record;
  }
  if (record)
    return function_from_record(storage, record, function, error) &&
           (record->n_dtypes || manifest_take(source, kernel, function, error)) &&
           (record->n_dtypes || function->manifest || function->ignore_dtypes ||
            error_set(error, "the record has no dtypes of its arguments, and the manifest is not "
                             "to be had here"));
  if (!manifest_take(source, kernel, function, error))
    return false;
  const struct kernel *manifest = function->manifest;
  const json_t *exports =
      manifest ? json_object_get(json_object_get(manifest->json, "exports"), "dejavu") : NULL;
  if (manifest && manifest->language == LANGUAGE_EXTERNAL && exports)
    return function_from_exports(storage, exports, function, error);
  return error_set(error, "neither the image nor a build has a record of its function, whose "
                          "hashes are in dejavu's paths; "
                          "take one with `python3 -m wavetune identity`");
}

static bool function_fits_storage(const struct dejavu_path *storage, const char *tag,
                                  struct dejavu_function *function, struct error *error) {
  struct dejavu_path *path = &function->path;
  bool has_torch, has_features;
  if (storage->layout && strcmp(storage->layout, path->layout) != 0)
    return error_set(
        error, "the table is of %.40s, and the image reads %.40s, which hashes in another way",
        path->layout, storage->layout);
  if (!dejavu_layout_has(path->layout, &has_torch, &has_features))
    return error_set(error, "the layout %.40s is not known", path->layout);
  if (has_torch && !storage->torch)
    return error_set(error, "the environment states no torch, which is in the paths of %.40s",
                     path->layout);
  path->torch = has_torch ? xstrdup(storage->torch) : NULL;
  path->triton = xstrdup(storage->triton);
  path->runtime = xstrdup(storage->runtime);
  path->gpu = xstrdup(storage->gpu);
  path->tag = xstrdup(tag);
  return true;
}

/* The image's record of the kernel, else its build's, else what its manifest says as an external
 * kernel. *ret is zeroed, and is released by the caller whatever is returned. */
static bool dejavu_function_find(const struct render_request *request,
                                 const struct dejavu_path *storage,
                                 const struct release_kernel *kernel, struct dejavu_function *ret,
                                 struct error *error) {
  return function_take(request, storage, kernel, ret, error) &&
         function_fits_storage(storage, request->release->tag, ret, error);
}

/* Rendering */

/* One cache.json as it grows: entries of one kernel, or of several that are the same function.
 * There is one at a time, and the next one uses its room. */
struct table {
  const struct dejavu_function *function; /* of the first kernel; NULL before it */
  size_t n_entries, n_timings;
  struct text cache,
      timing_texts[2]; /* the timings with their medians alone, and with all three numbers */
  bool has_all_three;
  struct text_set seen; /* keys in `cache` */
  json_t *totals;       /* bench seconds of imported files by source */
  double tuned_s;       /* device seconds of the jobs that chose the entries */
  int64_t evaluated;
};

/* A kernel whose function is known, and the file that its entries go to. */
struct placed {
  char *path;
  const struct release_kernel *kernel;
  const struct dejavu_function *function;
};

/* The text of a config as JSON, for the next kernel that has it. */
struct known_text {
  const json_t *values; /* borrowed; NULL: none */
  char *text;
};

struct rendering {
  const struct render_request *request;
  struct dejavu_path storage;
  struct dejavu_function *functions; /* of the release's kernels */
  size_t n_placed;
  struct placed *placed; /* in the order of the files, and in each file in that of its entries */
  struct table table;
  const json_t *known_order; /* of members, in the known texts */
  struct known_text known[KNOWN_TEXTS];
  struct cache_files *files;
};

static void table_begin(struct table *table) {
  struct table used = *table;
  used.cache.size = used.timing_texts[0].size = used.timing_texts[1].size = 0;
  text_set_clear(&used.seen);
  json_decref(used.totals);
  *table = (struct table){.cache = used.cache,
                          .timing_texts = {used.timing_texts[0], used.timing_texts[1]},
                          .seen = used.seen,
                          .totals = json_object()};
}

static void table_release(struct table *table) {
  text_release(&table->cache);
  text_release(&table->timing_texts[0]);
  text_release(&table->timing_texts[1]);
  text_set_release(&table->seen);
  json_decref(table->totals);
}

static void rendering_release(struct rendering *rendering) {
  dejavu_path_release(&rendering->storage);
  for (size_t i = 0; rendering->functions && i < rendering->request->release->n_kernels; i++)
    dejavu_function_release(&rendering->functions[i]);
  free(rendering->functions);
  for (size_t i = 0; i < rendering->n_placed; i++)
    free(rendering->placed[i].path);
  free(rendering->placed);
  table_release(&rendering->table);
  for (size_t i = 0; i < KNOWN_TEXTS; i++)
    free(rendering->known[i].text);
}

/* What is found out once for a kernel's configs and key. */
struct entry_writer {
  struct rendering *rendering;
  const struct release_kernel *kernel;
  const struct dejavu_function *function;
  struct table *table;
  char **configs;       /* texts as JSON, NULL where skipped: */
  char **config_errors; /* why */
  struct origin {
    const char *config; /* the text that an import kept, or NULL */
    size_t n_used;
  } *origins; /* of the kernel's provenance */
  struct tuning_key elements;
  struct slice *slices;
  struct text key, quoted; /* of one winner */
};

static void writer_release(struct entry_writer *writer) {
  for (size_t i = 0; writer->configs && i < writer->kernel->n_configs; i++) {
    free(writer->configs[i]);
    free(writer->config_errors[i]);
  }
  free(writer->configs);
  free(writer->config_errors);
  free(writer->origins);
  tuning_key_release(&writer->elements);
  free(writer->slices);
  text_release(&writer->key);
  text_release(&writer->quoted);
}

static char *config_from_record(const struct dejavu_function *function, const json_t *config,
                                const char *triton, struct error *error) {
  cleanup_free char *normal = config_text_normal(config, triton);
  const char *text = json_string_value(json_object_get(function->configs, normal));
  if (text)
    return xstrdup(text);
  error_set(error, "the config is none of those that the function is decorated with");
  return NULL;
}

/* All members, in the order that the table's configs have; dejavu would hand ir_override to the
 * kernel. */
static char *config_in_order(const struct dejavu_function *function, const json_t *config,
                             struct error *error) {
  cleanup_json json_t *ordered = json_object(), *left = json_copy((json_t *)config);
  size_t i;
  json_t *name;
  if (json_is_null(json_object_get(left, "ir_override")))
    json_object_del(left, "ir_override");
  json_array_foreach (function->order, i, name) {
    const char *text = json_is_string(name) ? json_string_value(name) : "";
    json_t *value = json_object_get(left, text);
    if (value) {
      json_object_set(ordered, text, value);
      json_object_del(left, text);
    }
  }
  if (!json_object_size(left))
    return config_text_format(ordered);
  error_set(error, "the order of the config's members is not known");
  return NULL;
}

static char *quoted(const char *text) {
  cleanup_json json_t *string = json_string(text);
  size_t size;
  return python_json(string, 0, &size);
}

static char *config_make(const struct entry_writer *writer, const json_t *config,
                         struct error *error) {
  const struct dejavu_function *function = writer->function;
  if (!dejavu_restores_config(config, error)) {
    error_prefix(error, "dejavu would not restore the config: ");
    return NULL;
  }
  cleanup_free char *text = function->record
                                ? config_from_record(function, config, function->path.triton, error)
                                : config_in_order(function, config, error);
  return text ? quoted(text) : NULL;
}

/* Tables of one decorator have the same configs, whose members stand in the same order. */
static char *config_text(const struct entry_writer *writer, const json_t *config,
                         struct error *error) {
  if (!writer->function->order)
    return config_make(writer, config, error);
  const uintptr_t address = (uintptr_t)config;
  struct known_text *known =
      &writer->rendering->known[text_hash((const char *)&address, sizeof address) % KNOWN_TEXTS];
  if (known->values != config) {
    free(known->text);
    known->text = config_make(writer, config, error);
    known->values = known->text ? config : NULL;
  }
  return known->text ? xstrdup(known->text) : NULL;
}

static void writer_take_origins(struct entry_writer *writer) {
  const struct release_kernel *kernel = writer->kernel;
  writer->origins = xcalloc(kernel->n_provenance + 1, sizeof *writer->origins);
  for (size_t i = 0; i < kernel->n_provenance; i++)
    writer->origins[i].config = json_string_value(json_object_get(kernel->provenance[i], "config"));
}

static void writer_take_configs(struct entry_writer *writer) {
  const struct release_kernel *kernel = writer->kernel;
  struct rendering *rendering = writer->rendering;
  const json_t *order = writer->function->order;
  if (order && (!rendering->known_order || !json_equal(order, rendering->known_order))) {
    for (size_t i = 0; i < KNOWN_TEXTS; i++)
      rendering->known[i].values = NULL;
    rendering->known_order = order;
  }
  writer->configs = xcalloc(kernel->n_configs + 1, sizeof *writer->configs);
  writer->config_errors = xcalloc(kernel->n_configs + 1, sizeof *writer->config_errors);
  for (size_t i = 0; i < kernel->n_configs; i++) {
    struct error why;
    writer->configs[i] = config_text(writer, kernel->configs[i].values, &why);
    if (!writer->configs[i])
      writer->config_errors[i] = xstrdup(why.message);
  }
}

/* Of a record: as the decorator has it; of an imported table: the key's members, dtypes among
 * them. */
static bool writer_take_key(struct entry_writer *writer, struct error *error) {
  const struct dejavu_function *function = writer->function;
  const struct release_kernel *kernel = writer->kernel;
  struct tuning_key *elements = &writer->elements;
  writer->slices = xcalloc(kernel->n_key_names + 1, sizeof *writer->slices);
  if (function->record) {
    if (!tuning_key_bind(function->record, function->manifest,
                         (const char *const *)kernel->key_names, kernel->n_key_names, elements,
                         error))
      return false;
  } else {
    elements->parts = xcalloc(kernel->n_key_names + 1, sizeof *elements->parts);
    for (; elements->n < kernel->n_key_names; elements->n++)
      elements->parts[elements->n].member = elements->n;
  }
  size_t n = elements->n + (function->ignore_dtypes ? 0 : elements->n_dtypes);
  return n > 1 || error_set(error, "dejavu does not restore keys of one element or none");
}

/* One element as repr quotes it; what it would escape is refused. */
static bool key_add(struct entry_writer *writer, size_t begin, struct error *error) {
  struct text *key = &writer->key;
  if (!dejavu_restores_element(key->bytes + begin, key->size - begin,
                               writer->function->ignore_dtypes, error))
    return error_prefix(error, "dejavu would not restore the key: ");
  char quote[] = "'";
  if (memchr(key->bytes + begin, '\'', key->size - begin))
    quote[0] = '"';
  key->bytes[begin - 1] = quote[0];
  text_add(key, quote, 1);
  return true;
}

static void element_begin(struct text *key) {
  text_add_string(key,
                  key->size > 1 ? ", '" : "'"); /* the quote is set when the element is known */
}

static bool key_add_expression(struct entry_writer *writer, const struct expr *expr,
                               const struct value *values, struct error *error) {
  struct value value;
  if (!expr_eval(expr, values, &value, error))
    return false;
  cleanup_free char *text = python_str(value);
  text_add_string(&writer->key, text);
  return true;
}

/* The tuple that dejavu looks up, into writer->key. */
static bool key_write(struct entry_writer *writer, const struct release_winner *winner,
                      const struct value *values, struct error *error) {
  const struct tuning_key *elements = &writer->elements;
  size_t n_dtypes = writer->function->ignore_dtypes ? 0 : elements->n_dtypes;
  struct text *key = &writer->key;
  key->size = 0;
  text_add(key, "(", 1);
  winner_key_slices(winner, writer->slices, writer->kernel->n_key_names);
  for (size_t i = 0; i < elements->n + n_dtypes; i++) {
    element_begin(key);
    size_t begin = key->size;
    const struct expr *expr = i < elements->n ? elements->parts[i].expr : NULL;
    if (i >= elements->n)
      text_add_string(key, elements->dtypes[i - elements->n]);
    else if (!expr)
      slice_add_str(key, writer->slices[elements->parts[i].member]);
    else if (!key_add_expression(writer, expr, values, error))
      return false;
    if (!key_add(writer, begin, error))
      return false;
  }
  text_add(key, ")", 1);
  return true;
}

/* A text without control characters and outside-ASCII, as json.dump quotes it. */
static void text_add_quoted(struct text *text, const char *bytes, size_t size) {
  text_add(text, "\"", 1);
  for (size_t i = 0; i < size;) {
    size_t plain = i;
    while (plain < size && bytes[plain] != '"' && bytes[plain] != '\\')
      plain++;
    text_add(text, bytes + i, plain - i);
    if (plain < size) {
      text_add(text, "\\", 1);
      text_add(text, bytes + plain++, 1);
    }
    i = plain;
  }
  text_add(text, "\"", 1);
}

static void text_add_json(struct text *text, const json_t *value, unsigned depth) {
  size_t size;
  cleanup_free char *json = python_json(value, 4, &size);
  for (const char *at = json; *at;) {
    size_t line = strcspn(at, "\n") + (strchr(at, '\n') ? 1 : 0);
    text_add(text, at, line);
    at += line;
    for (unsigned i = 0; i < 4 * depth && *at; i++)
      text_add(text, " ", 1);
  }
}

static void timings_add(struct entry_writer *writer, const struct release_winner *winner) {
  struct table *table = writer->table;
  struct slice ms[RELEASE_MS_MAX];
  if (!winner->n_ms)
    return;
  winner_ms_slices(winner, ms);
  table->has_all_three = table->has_all_three && winner->n_ms == RELEASE_MS_MAX;
  for (size_t which = 0; which < (table->has_all_three ? 2 : 1); which++) {
    struct text *text = &table->timing_texts[which];
    text_add_string(text, table->n_timings ? ",\n        " : "\n        ");
    text_add(text, writer->quoted.bytes, writer->quoted.size);
    text_add_string(text, ": [");
    for (size_t i = 0; i < (which ? winner->n_ms : 1); i++) {
      text_add_string(text, i ? ",\n            " : "\n            ");
      text_add(text, ms[i].bytes, ms[i].size);
    }
    text_add_string(text, "\n        ]");
  }
  table->n_timings++;
}

/* Bench time once for each of `n` winners that a job chose, each by a job of its own, and once for
 * each file that was imported, as it was last. */
static void totals_add(struct table *table, const json_t *provenance, size_t n) {
  const char *source = json_string_value(json_object_get(provenance, "source"));
  json_t *total = json_object_get(provenance, "total_bench_time_s");
  int64_t evaluated = json_integer_value(json_object_get(provenance, "evaluated_configs"));
  table->evaluated = evaluated > table->evaluated ? evaluated : table->evaluated;
  table->tuned_s +=
      (double)n * json_number_value(json_object_get(provenance, "spent_device_seconds"));
  if (!source || !json_is_number(total))
    return;
  const json_t *before = json_object_get(table->totals, source);
  if (!before || json_number_value(before) < json_number_value(total))
    json_object_set(table->totals, source, total);
}

/* Whether an import kept the text of a config whose members stand in an order of their own;
 * *ret_text is as JSON. */
static bool config_kept(const struct entry_writer *writer, const struct release_winner *winner,
                        char **ret_text, struct error *error) {
  const char *text = writer->origins[winner->provenance].config;
  cleanup_json json_t *config = NULL;
  if (writer->function->record || !text)
    return true;
  if (!config_text_parse(text, &config, error) || !dejavu_restores_config(config, error))
    return false;
  if (!json_equal(config, writer->kernel->configs[winner->config].values))
    return error_set(error, "the config's text in the provenance is of another config");
  *ret_text = quoted(text);
  return true;
}

static bool entry_add(struct entry_writer *writer, const struct release_winner *winner,
                      const struct value *values, struct error *error) {
  struct table *table = writer->table;
  cleanup_free char *kept = NULL;
  if (!config_kept(writer, winner, &kept, error))
    return false;
  const char *config = kept ? kept : writer->configs[winner->config];
  if (!config)
    return error_set(error, "%s", writer->config_errors[winner->config]);
  if (!key_write(writer, winner, values, error))
    return false;
  writer->quoted.size = 0;
  text_add_quoted(&writer->quoted, writer->key.bytes, writer->key.size);
  const char *line = table->n_entries ? ",\n        " : "\n        ";
  if (!text_set_add(&table->seen, &table->cache, writer->quoted.bytes, writer->quoted.size,
                    table->cache.size + strlen(line)))
    return error_set(error, "another key of the release is the same to dejavu: %.*s",
                     writer->key.size < 300 ? (int)writer->key.size : 300, writer->key.bytes);
  table->n_entries++;
  text_add_string(&table->cache, line);
  text_add(&table->cache, writer->quoted.bytes, writer->quoted.size);
  text_add_string(&table->cache, ": ");
  text_add_string(&table->cache, config);
  timings_add(writer, winner);
  return true;
}

static void winner_add(struct entry_writer *writer, const struct release_winner *winner,
                       bool needs_values) {
  const struct release_kernel *kernel = writer->kernel;
  struct value values[KEY_MEMBERS_MAX];
  struct error why;
  if (needs_values)
    release_key_values(kernel, winner, values);
  if (entry_add(writer, winner, values, &why)) {
    writer->origins[winner->provenance].n_used++;
  } else {
    cleanup_free char *key = xstrndup(winner->key, winner->key_size);
    cache_files_skip(writer->rendering->files, kernel->name, key, "%s", why.message);
  }
  if (needs_values)
    release_key_values_release(kernel, values);
}

static bool kernel_add(struct rendering *rendering, const struct placed *placed,
                       struct error *error) {
  __attribute__((cleanup(writer_release))) struct entry_writer writer = {
      .rendering = rendering,
      .kernel = placed->kernel,
      .function = placed->function,
      .table = &rendering->table};
  if (!writer_take_key(&writer, error))
    return false;
  writer_take_configs(&writer);
  writer_take_origins(&writer);
  if (!writer.table->function) {
    writer.table->function = placed->function;
    writer.table->has_all_three = placed->function->all_three;
  }
  if (placed->function->evaluated > writer.table->evaluated)
    writer.table->evaluated = placed->function->evaluated;
  bool needs_values = false;
  for (size_t i = 0; i < writer.elements.n; i++)
    needs_values = needs_values || writer.elements.parts[i].expr;
  for (size_t i = 0; i < placed->kernel->n_winners; i++)
    winner_add(&writer, &placed->kernel->winners[i], needs_values);
  for (size_t i = 0; i < placed->kernel->n_provenance; i++)
    if (writer.origins[i].n_used)
      totals_add(writer.table, placed->kernel->provenance[i], writer.origins[i].n_used);
  return true;
}

/* What was tuned stands before what was imported, so that of two entries for one key the measured
 * one is kept. */
static int placed_compare(const void *a, const void *b) {
  const struct placed *left = a, *right = b;
  int order = strcmp(left->path, right->path);
  if (!order)
    order = !left->function->record - !right->function->record;
  return order ? order : (left->kernel > right->kernel) - (left->kernel < right->kernel);
}

static void kernels_place(struct rendering *rendering) {
  const struct release *release = rendering->request->release;
  struct error why;
  rendering->functions = xcalloc(release->n_kernels + 1, sizeof *rendering->functions);
  rendering->placed = xcalloc(release->n_kernels + 1, sizeof *rendering->placed);
  for (size_t i = 0; i < release->n_kernels; i++) {
    struct placed placed = {.kernel = &release->kernels[i], .function = &rendering->functions[i]};
    if (dejavu_function_find(rendering->request, &rendering->storage, placed.kernel,
                             &rendering->functions[i], &why) &&
        dejavu_path_format(&placed.function->path, &placed.path, &why))
      rendering->placed[rendering->n_placed++] = placed;
    else
      cache_files_skip(rendering->files, placed.kernel->name, NULL, "%s", why.message);
  }
  qsort(rendering->placed, rendering->n_placed, sizeof *rendering->placed, placed_compare);
}

static json_t *table_total(const struct table *table) {
  const char *source;
  json_t *total;
  double sum = 0;

  if (!table->tuned_s && json_object_size(table->totals) == 1)
    return json_incref(
        json_object_iter_value(json_object_iter(table->totals))); /* as it was, int or float */
  json_object_foreach (table->totals, source, total)
    sum += json_number_value(total);
  /* A sum of decimal fractions, without the digits that binary ones add. */
  return json_real(table->tuned_s ? round((sum + table->tuned_s) * 1e6) / 1e6 : sum);
}

/* The texts of a table go behind each other into the file. */
static void table_write(struct table *table, const char *path, struct cache_files *files) {
  cleanup_text struct text text = {0};
  const struct dejavu_function *function = table->function;
  cleanup_json json_t *signature = json_string(function->signature), *total = table_total(table);
  cleanup_json json_t *labels = table->has_all_three && table->n_timings
                                    ? json_pack("[s, s, s]", "ms", "min_ms", "max_ms")
                                    : json_pack("[s]", "ms");
  cleanup_json json_t *timings_data = json_pack("{s:O}", "labels", labels);
  json_object_update(timings_data, function->timings);
  const struct text *timings = &table->timing_texts[table->has_all_three];
  char evaluated[32];
  snprintf(evaluated, sizeof evaluated, "%lld", (long long)table->evaluated);
  text_add_string(&text, "{\n    \"signature\": ");
  text_add_json(&text, signature, 1);
  text_add_string(&text, ",\n    \"total_bench_time_s\": ");
  text_add_json(&text, total, 1);
  text_add_string(&text, ",\n    \"evaluated_configs\": ");
  text_add_string(&text, evaluated);
  text_add_string(&text, ",\n    \"keys\": ");
  text_add_json(&text, function->keys, 1);
  text_add_string(&text, ",\n    \"cache\": {");
  cache_files_begin(files, path);
  cache_files_put(files, text.bytes, text.size);
  cache_files_put(files, table->cache.bytes, table->cache.size);
  text.size = 0;
  text_add_string(&text, "\n    },\n    \"timings\": {");
  cache_files_put(files, text.bytes, text.size);
  if (table->n_timings)
    cache_files_put(files, timings->bytes, timings->size);
  text.size = 0;
  text_add_string(&text, table->n_timings ? "\n    },\n    \"timings_data\": "
                                          : "},\n    \"timings_data\": ");
  text_add_json(&text, timings_data, 1);
  text_add(&text, "\n}", 2);
  cache_files_put(files, text.bytes, text.size);
}

static void tables_write(struct rendering *rendering) {
  const struct placed *placed = rendering->placed, *end = placed + rendering->n_placed;
  struct error why;
  while (placed < end) {
    const char *path = placed->path;
    table_begin(&rendering->table);
    for (; placed < end && strcmp(placed->path, path) == 0; placed++)
      if (!kernel_add(rendering, placed, &why))
        cache_files_skip(rendering->files, placed->kernel->name, NULL, "%s", why.message);
    if (rendering->table.n_entries)
      table_write(&rendering->table, path, rendering->files);
  }
}

static bool render_release(const struct render_request *request, struct cache_files *ret,
                           struct error *error) {
  __attribute__((cleanup(rendering_release))) struct rendering rendering = {.request = request,
                                                                            .files = ret};
  if (!dejavu_storage_find(request, &rendering.storage, error))
    return false;
  ret->file_mode = ret->folder_mode = 0777;
  kernels_place(&rendering);
  tables_write(&rendering);
  if (!ret->n && !ret->n_sunk)
    return error_set(error, "no winner can be written for dejavu; the first: %.300s",
                     ret->n_skipped ? ret->skipped[0].reason : "there is none");
  cache_files_variable(ret, "TRITON_DEJAVU_STORAGE", "", NULL);
  cache_files_variable(ret, "TRITON_DEJAVU_TAG", NULL, request->release->tag);
  return true;
}

const struct cache_format format_dejavu = {
    .name = "dejavu",
    .summary = "the tree of triton-dejavu 0.7 (TRITON_DEJAVU_STORAGE)",
    .render = render_release,
    .read = dejavu_read,
};
