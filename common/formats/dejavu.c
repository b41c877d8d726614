/* The `dejavu` format: the tree that triton-dejavu reads under TRITON_DEJAVU_STORAGE (dejavu.h).
 *
 * A function's path has hashes of its text and of its decorator's arguments, so a kernel is written
 * when these are known: from the image's record of it, else the build's, else from the manifest of
 * a table that was imported. The Triton, ROCm and GPU that the folders name are the image's,
 * else those of the release's environment. Entries that dejavu would not restore exactly are
 * skipped with the reason: it checks nothing itself, and a key that it does not restore breaks its
 * next tuning.
 *
 * Memory and threads: format.h. */
#include <math.h>

#include "common/cache/autotuner.h"
#include "common/cache/text.h"
#include "common/formats/dejavu.h"

#define KNOWN_TEXTS 4096

/* The function of a kernel, from the record of an image or a build, or from the manifest of an
 * imported table */

/* Owns everything but the identity's record. */
struct function {
  struct dejavu_path path; /* with the storage's parts and the release's tag */
  char *signature;
  json_t *keys;      /* array, or null */
  json_t *timings;   /* "timings_data" without labels */
  int64_t evaluated; /* 0: see the provenance */
  bool ignore_dtypes;
  bool all_three; /* whether timings have three numbers, where all are known */
  const struct function_record *record; /* the identity's, or packed; NULL: an imported table */
  struct function_record packed;        /* of a build; empty where it is not used */
  const struct kernel *manifest;        /* the source's, where it was needed; or NULL */
  json_t *configs; /* of a record: the normal form of each config, with its text */
  json_t *order;   /* of an imported table: names of a config's members */
};

static void function_release(struct function *function) {
  dejavu_path_release(&function->path);
  function_record_release(&function->packed);
  free(function->signature);
  json_decref(function->keys);
  json_decref(function->timings);
  json_decref(function->configs);
  json_decref(function->order);
}

/* Sets the hashes of the path: as the record states them, else computed from the texts in the
 * record. Where the record has both, they must agree. */
static bool hashes_take(struct function *function, struct error *error) {
  const struct function_record *record = function->record;
  cleanup_free char *keys = json_texts_join(function->keys, "|");
  cleanup_text struct text configs = {0};

  text_add_string(&configs, "|");
  for (size_t i = 0; i < record->n_configs; i++) {
    text_add_string(&configs, record->configs[i]);
    text_add_string(&configs, "|");
  }

  text_add(&configs, "", 1);
  const char *const hashed[DEJAVU_PARTS] = {
      [DEJAVU_AUTOTUNE_CONFIG] = json_text(record->dejavu, "search_parameters"),
      [DEJAVU_CODE_VERSION] = record->source_sha256,
      [DEJAVU_TUNE_FEATURES] = keys,
      [DEJAVU_KERNEL_CONFIGS] = record->n_configs ? configs.bytes : NULL};

  for (enum dejavu_part i = DEJAVU_AUTOTUNE_CONFIG; i <= DEJAVU_KERNEL_CONFIGS; i++) {
    char computed[DEJAVU_HASH_SIZE];
    const char *name = dejavu_part_names[i], *stated = json_text(record->dejavu, name);
    if (!stated && !hashed[i])
      return error_set(error, "the record has no %s", name);
    if (hashed[i])
      dejavu_hash(hashed[i], computed);
    if (stated && hashed[i] && !string_equal(stated, computed))
      return error_set(
          error, "the record's %s is not the hash of the text that the record has for it", name);
    function->path.parts[i] = xstrdup(stated ? stated : computed);
  }

  return true;
}

static bool function_from_record(const struct dejavu_path *storage,
                                 const struct function_record *record, struct function *function,
                                 struct error *error) {
  const char *triton = storage->parts[DEJAVU_TRITON], *layout = json_text(record->dejavu, "layout");
  char **parts = function->path.parts;

  if (!record->dejavu)
    return error_set(error, "the function %.100s is not decorated with triton_dejavu.autotune",
                     record->function);

  /* Another Triton prints configs in another way, and the hash of them is in the path. */
  if (record->triton_version && !version_minors_equal(record->triton_version, triton))
    return error_set(error,
                     "the function was recorded with Triton %.40s and the paths are those of %.40s",
                     record->triton_version, triton);

  function->record = record;
  parts[DEJAVU_LAYOUT] = xstrdup(layout ? layout : "dejavu_0.7");
  function->signature =
      record->signature ? xstrdup(record->signature)
                        : xasprintf("JITFunction(%s:%s)",
                                    record->module ? record->module : "__main__", record->function);
  parts[DEJAVU_FUNCTION] = dejavu_signature_function(function->signature);
  if (!parts[DEJAVU_FUNCTION])
    return error_set(error, "the record's signature %.100s is not JITFunction(module:function)",
                     function->signature);

  function->keys = json_array();
  for (size_t i = 0; i < record->n_key_names; i++)
    json_array_append_new(function->keys, json_string(record->key_names[i]));
  function->timings = dejavu_timings_data(record->dejavu, "rep", "warmup", "use_cuda_graph");
  function->evaluated = (int64_t)record->n_configs;
  function->ignore_dtypes = json_flag(record->dejavu, "ignore_dtypes");
  function->all_three =
      json_array_size(json_object_get(record->dejavu, "quantiles")) == RELEASE_MS_MAX;

  /* The normal form finds a winner's config whichever members it leaves at their defaults. */
  function->configs = json_object();
  for (size_t i = 0; i < record->n_configs; i++) {
    cleanup_json json_t *config = NULL;
    struct error ignored;
    if (!config_text_parse(record->configs[i], &config, &ignored))
      continue; /* no winner can have it */
    cleanup_free char *normal = config_text_normal(config, triton);
    if (json_is_null(json_object_get(config, "ir_override")))
      json_object_del(config, "ir_override"); /* dejavu would pass it to the kernel */
    cleanup_free char *text = config_text_format(config);
    if (!json_object_get(function->configs, normal))
      json_put(function->configs, normal, json_string(text));
  }

  return hashes_take(function, error);
}

static bool function_from_exports(const struct dejavu_path *storage, const json_t *exports,
                                  struct function *function, struct error *error) {
  static const char *const versioned[] = {"num_buffers_warp_spec", "num_consumer_groups",
                                          "reg_dec_producer", "reg_inc_consumer", "maxnreg"};
  const char *layout = NULL, *name = NULL, *signature = NULL, *at = "/exports/dejavu",
             *triton = storage->parts[DEJAVU_TRITON];
  json_t *order = NULL, *timings = NULL, *keys = NULL, *key;
  size_t i;

  if (!json_get_string(exports, at, "layout", JSON_REQUIRED, &layout, error) ||
      !json_get_string(exports, at, "function", JSON_REQUIRED, &name, error) ||
      !json_get_string(exports, at, "signature", JSON_REQUIRED, &signature, error) ||
      !json_get_array(exports, at, "config", JSON_REQUIRED, &order, error) ||
      !json_get_array(exports, at, "keys", JSON_OPTIONAL, &keys, error) ||
      !json_get_object(exports, at, "timings_data", JSON_OPTIONAL, &timings, error))
    return false;

  json_array_foreach (keys, i, key)
    if (!json_is_string(key))
      return error_at(error, "/exports/dejavu/keys", "the names must be strings");

  /* The configs must have the members that this Triton prints. */
  for (i = 0; i < ARRAY_LENGTH(versioned); i++) {
    struct value standard;
    bool is_there = false;
    for (size_t j = 0; j < json_array_size(order); j++)
      is_there |= string_equal(json_string_value(json_array_get(order, j)), versioned[i]);
    if (is_there != config_field(versioned[i], triton, &standard))
      return error_set(error,
                       "its configs were printed by another Triton than %.40s, and a hash of them "
                       "is in the path",
                       triton);
  }

  for (enum dejavu_part part = 0; part < DEJAVU_PARTS; part++) {
    const char *text = json_text(exports, dejavu_part_names[part]);
    if (text && (part == DEJAVU_LAYOUT || part == DEJAVU_FUNCTION || dejavu_part_is_hash(part)))
      function->path.parts[part] = xstrdup(text);
  }

  function->signature = xstrdup(signature);
  function->keys = keys ? json_incref(keys) : json_null();
  function->timings = dejavu_timings_data(timings, "rep_t_ms", "warmup_t_ms", "cuda_graphs");
  function->order = json_incref(order);
  function->all_three = true;
  return true;
}

/* The record of the first build that one of the kernel's winners was measured with, when it has
 * one. */
static bool packed_record(const struct render_request *request, const struct release_kernel *kernel,
                          struct function *function, bool *ret_found, struct error *error) {
  const struct cache_source *source = request->source;
  for (size_t i = 0; i < kernel->n_provenance && source->build && source->kernel; i++) {
    const char *text = json_text(kernel->provenance[i], "build");
    const struct build *build = NULL;
    struct digest digest;
    if (!text || !digest_parse(text, &digest))
      continue;
    if ((!function->manifest && !request_manifest(request, kernel, &function->manifest, error)) ||
        !source->build(source->context, function->manifest, &digest, &build, error))
      return false;
    if (build->record) {
      *ret_found = true;
      return function_record_parse(build->record, &function->packed, error);
    }
  }

  return true;
}

/* From the image's record of the kernel, else its build's, else its manifest as an
 * external kernel. */
static bool function_find(const struct render_request *request, const struct dejavu_path *storage,
                          const struct release_kernel *kernel, struct function *function,
                          struct error *error) {
  const struct function_record *record =
      identity_function(request->identity, &kernel->hash, kernel->name, NULL);
  bool is_packed = false;

  if (!record && !packed_record(request, kernel, function, &is_packed, error))
    return false;
  if (is_packed) {
    record = identity_function(request->identity, &kernel->hash, kernel->name, &function->packed);
    record = record ? record : &function->packed;
  }

  bool needs_manifest = (!record || !record->dtypes) && !function->manifest;
  if (record && !function_from_record(storage, record, function, error))
    return false;
  if (needs_manifest && !request_manifest(request, kernel, &function->manifest, error))
    return false;
  if (record && needs_manifest && !function->manifest && !function->ignore_dtypes)
    return error_set(error, "the record has no dtypes of its arguments, and the manifest is not "
                            "available here");
  if (!record) {
    const json_t *exports = external_exports(function->manifest, "dejavu");
    if (!exports)
      return error_set(error, "neither the image nor a build has a record of its function, whose "
                              "hashes are in dejavu's paths; "
                              "take one with `python3 -m wavetune identity`");
    if (!function_from_exports(storage, exports, function, error))
      return false;
  }

  char *const *stored = storage->parts, **parts = function->path.parts;
  const enum dejavu_part *layout;
  if (stored[DEJAVU_LAYOUT] && !string_equal(stored[DEJAVU_LAYOUT], parts[DEJAVU_LAYOUT]))
    return error_set(
        error, "the table is of %.40s, and the image reads %.40s, which hashes in another way",
        parts[DEJAVU_LAYOUT], stored[DEJAVU_LAYOUT]);
  if (!dejavu_layout_parts(parts[DEJAVU_LAYOUT], &layout, error))
    return false;
  if (dejavu_layout_has(layout, DEJAVU_TORCH) && !stored[DEJAVU_TORCH])
    return error_set(error, "the environment states no torch, which is in the paths of %.40s",
                     parts[DEJAVU_LAYOUT]);

  for (enum dejavu_part part = DEJAVU_TRITON; part <= DEJAVU_GPU; part++)
    if (dejavu_layout_has(layout, part))
      parts[part] = xstrdup(stored[part]);

  parts[DEJAVU_TAG] = xstrdup(request->release->tag);
  return true;
}

/* Rendering */

/* The cache.json that is being made: entries of one kernel, or of several with the same function.
 * There is one at a time, and the next one reuses its memory. */
struct table {
  const struct function *function; /* of the first kernel; NULL before it */
  size_t n_entries, n_timings;
  struct text cache, medians, timings; /* timings: all three numbers, while all winners have them */
  bool has_all_three;
  struct text_set seen; /* keys in `cache` */
  json_t *totals;       /* bench seconds of imported files by source */
  double tuned_s;       /* device seconds of the jobs that chose the entries */
  int64_t evaluated;
};

/* A kernel whose function is known, and the file for its entries. */
struct placed {
  char *path;
  const struct release_kernel *kernel;
  const struct function *function;
};

struct rendering {
  const struct render_request *request;
  struct dejavu_path storage;
  struct function *functions; /* of the release's kernels */
  size_t n_placed;
  struct placed *placed; /* sorted by file */
  struct table table;
  /* Texts of configs in the order `known_order`, for the next kernel that has them. */
  const json_t *known_order;
  struct known_text {
    const json_t *values; /* borrowed; NULL: none */
    char *text;
  } known[KNOWN_TEXTS];
  struct cache_files *files;
};

static void rendering_release(struct rendering *rendering) {
  struct table *table = &rendering->table;
  dejavu_path_release(&rendering->storage);
  for (size_t i = 0; rendering->functions && i < rendering->request->release->n_kernels; i++)
    function_release(&rendering->functions[i]);
  free(rendering->functions);

  for (size_t i = 0; i < rendering->n_placed; i++)
    free(rendering->placed[i].path);
  free(rendering->placed);

  for (size_t i = 0; i < KNOWN_TEXTS; i++)
    free(rendering->known[i].text);
  text_release(&table->cache);
  text_release(&table->medians);
  text_release(&table->timings);
  text_set_release(&table->seen);
  json_decref(table->totals);
}

/* What is computed once for a kernel. */
struct writer {
  const struct release_kernel *kernel;
  const struct function *function;
  struct table *table;
  char **configs; /* texts as JSON; NULL: config_make refuses it */
  size_t *n_used; /* winners of each provenance */
  struct tuning_key elements;
  bool has_expressions;
  struct slice *slices;
  struct text key, quoted; /* of one winner */
};

static void writer_release(struct writer *writer) {
  for (size_t i = 0; i < writer->kernel->n_configs; i++)
    free(writer->configs[i]);
  free(writer->configs);
  free(writer->n_used);
  tuning_key_release(&writer->elements);
  free(writer->slices);
  text_release(&writer->key);
  text_release(&writer->quoted);
}

static char *json_quoted(const char *text) {
  cleanup_json json_t *string = json_string(text);
  size_t size;
  return python_json(string, 0, &size);
}

/* The text of a config, as JSON; NULL with the reason. */
static char *config_make(const struct function *function, const json_t *config,
                         struct error *error) {
  if (!dejavu_restores_config(config, error))
    return NULL;
  if (function->record) {
    cleanup_free char *normal = config_text_normal(config, function->path.parts[DEJAVU_TRITON]);
    const char *text = json_text(function->configs, normal);
    if (!text)
      error_set(error, "the config is not one of those that the function is decorated with");
    return text ? json_quoted(text) : NULL;
  }

  /* All members, in the order that the table's configs have. */
  cleanup_json json_t *ordered = json_object(), *left = json_copy((json_t *)config);
  if (json_is_null(json_object_get(left, "ir_override")))
    json_object_del(left, "ir_override"); /* dejavu would pass it to the kernel */

  json_elements (function->order, i, name) {
    const char *text = json_is_string(name) ? json_string_value(name) : "";
    json_t *value = json_object_get(left, text);
    if (value) {
      json_object_set(ordered, text, value);
      json_object_del(left, text);
    }
  }

  if (json_object_size(left)) {
    error_set(error, "the order of the config's members is not known");
    return NULL;
  }

  cleanup_free char *text = config_text_format(ordered);
  return json_quoted(text);
}

static void configs_take(struct rendering *rendering, struct writer *writer) {
  const struct release_kernel *kernel = writer->kernel;
  const json_t *order = writer->function->order;

  if (order && !json_equal(order, rendering->known_order)) {
    for (size_t i = 0; i < KNOWN_TEXTS; i++)
      rendering->known[i].values = NULL;
    rendering->known_order = order;
  }

  for (size_t i = 0; i < kernel->n_configs; i++) {
    const json_t *values = kernel->configs[i].values;
    const uintptr_t address = (uintptr_t)values;
    size_t hash = text_hash((const char *)&address, sizeof address);
    struct known_text *known = &rendering->known[hash % KNOWN_TEXTS];
    struct error why;
    bool is_known = order && known->values == values;
    writer->configs[i] =
        is_known ? xstrdup(known->text) : config_make(writer->function, values, &why);
    if (order && !is_known && writer->configs[i]) {
      free(known->text);
      *known = (struct known_text){values, xstrdup(writer->configs[i])};
    }
  }
}

/* Finds the values that make a key: of a record the decorator's, of an imported table the members
 * of its key, which include dtypes. */
static bool key_bind(struct writer *writer, struct error *error) {
  const struct function *function = writer->function;
  const struct release_kernel *kernel = writer->kernel;
  struct tuning_key *elements = &writer->elements;

  if (function->record) {
    if (!tuning_key_bind(function->record, function->manifest, KEY_NAMES(kernel), elements, error))
      return false;
  } else {
    elements->parts = xcalloc(kernel->n_key_names + 1, sizeof *elements->parts);
    for (; elements->n < kernel->n_key_names; elements->n++)
      elements->parts[elements->n].member = elements->n;
  }

  for (size_t i = 0; i < elements->n; i++)
    writer->has_expressions |= elements->parts[i].expr != NULL;
  return elements->n + (function->ignore_dtypes ? 0 : elements->n_dtypes) > 1 ||
         error_set(error, "dejavu does not restore keys of one element or none");
}

/* The tuple that dejavu looks up, into writer->key. `values`: the kernel's key, where expressions
 * need it. */
static bool key_write(struct writer *writer, const struct release_winner *winner,
                      const struct value *values, struct error *error) {
  const struct tuning_key *elements = &writer->elements;
  bool ignore_dtypes = writer->function->ignore_dtypes;
  struct text *key = &writer->key;
  key->size = 0;
  text_add_string(key, "(");
  winner_key_slices(winner, writer->slices, writer->kernel->n_key_names);

  for (size_t i = 0; i < elements->n + (ignore_dtypes ? 0 : elements->n_dtypes); i++) {
    text_add_string(key, i ? ", '" : "'");
    size_t begin = key->size;
    const struct expr *expr = i < elements->n ? elements->parts[i].expr : NULL;
    if (i >= elements->n) {
      text_add_string(key, elements->dtypes[i - elements->n]);
    } else if (!expr) {
      text_add_slice_str(key, writer->slices[elements->parts[i].member]);
    } else {
      struct value value;
      if (!expr_eval(expr, values, &value, error))
        return false;
      cleanup_free char *text = value_format(value, false);
      text_add_string(key, text);
    }

    /* Quoted as repr quotes; text that it would escape is refused. */
    if (!dejavu_restores_element(key->bytes + begin, key->size - begin, ignore_dtypes, error))
      return false;
    const char *quote = memchr(key->bytes + begin, '\'', key->size - begin) ? "\"" : "'";
    key->bytes[begin - 1] = *quote;
    text_add_string(key, quote);
  }

  text_add_string(key, ")");

  struct text *quoted = &writer->quoted; /* the key has neither control characters nor '\\' */
  quoted->size = 0;
  text_add_string(quoted, "\"");

  for (size_t i = 0; i < key->size; i++) {
    if (key->bytes[i] == '"')
      text_add_string(quoted, "\\");
    text_add(quoted, key->bytes + i, 1);
  }

  text_add_string(quoted, "\"");
  return true;
}

static void timing_add(struct text *text, const struct writer *writer, const struct slice *ms,
                       size_t n_ms) {
  text_add_string(text, writer->table->n_timings ? ",\n        " : "\n        ");
  text_add(text, writer->quoted.bytes, writer->quoted.size);
  text_add_string(text, ": [");
  for (size_t i = 0; i < n_ms; i++) {
    text_add_string(text, i ? ",\n            " : "\n            ");
    text_add(text, ms[i].bytes, ms[i].size);
  }
  text_add_string(text, "\n        ]");
}

static bool entry_add(struct writer *writer, const struct release_winner *winner,
                      const struct value *values, struct error *error) {
  struct table *table = writer->table;
  const struct release_kernel *kernel = writer->kernel;
  const char *config = writer->configs[winner->config],
             *text = json_text(kernel->provenance[winner->provenance], "config");
  cleanup_free char *kept = NULL;

  if (text && !writer->function->record) {
    /* An import kept the text of a config whose members are in another order than the table's. */
    cleanup_json json_t *parsed = NULL;
    if (!config_text_parse(text, &parsed, error) || !dejavu_restores_config(parsed, error))
      return false;
    if (!json_equal(parsed, kernel->configs[winner->config].values))
      return error_set(error, "the config's text in the provenance is of another config");
    config = kept = json_quoted(text);
  }

  if (!config) /* again, for the reason */
    config = kept = config_make(writer->function, kernel->configs[winner->config].values, error);
  if (!config || !key_write(writer, winner, values, error))
    return false;

  const struct text *quoted = &writer->quoted;
  const char *line = table->n_entries ? ",\n        " : "\n        ";
  if (!text_set_add(&table->seen, &table->cache, quoted->bytes, quoted->size,
                    table->cache.size + strlen(line)))
    return error_set(error, "another key of the release is the same to dejavu: %.*s",
                     writer->key.size < 300 ? (int)writer->key.size : 300, writer->key.bytes);

  table->n_entries++;
  text_add_string(&table->cache, line);
  text_add(&table->cache, quoted->bytes, quoted->size);
  text_add_string(&table->cache, ": ");
  text_add_string(&table->cache, config);

  if (winner->n_ms) {
    struct slice ms[RELEASE_MS_MAX];
    winner_ms_slices(winner, ms);
    table->has_all_three = table->has_all_three && winner->n_ms == RELEASE_MS_MAX;
    timing_add(&table->medians, writer, ms, 1);
    if (table->has_all_three)
      timing_add(&table->timings, writer, ms, winner->n_ms);
    table->n_timings++;
  }

  writer->n_used[winner->provenance]++;
  return true;
}

/* Adds bench time: the job's, for each of `n` winners that a job chose, and the largest total of
 * each imported file, once. */
static void totals_add(struct table *table, const json_t *provenance, size_t n) {
  const char *source = json_text(provenance, "source");
  json_t *total = json_object_get(provenance, "total_bench_time_s");
  int64_t evaluated = json_integer_value(json_object_get(provenance, "evaluated_configs"));

  if (evaluated > table->evaluated)
    table->evaluated = evaluated;
  table->tuned_s += (double)n * json_number(provenance, "spent_device_seconds");
  if (!source || !json_is_number(total))
    return;

  const json_t *before = json_object_get(table->totals, source);
  if (!before || json_number_value(before) < json_number_value(total))
    json_object_set(table->totals, source, total);
}

static bool kernel_add(struct rendering *rendering, const struct placed *placed,
                       struct error *error) {
  const struct release_kernel *kernel = placed->kernel;
  struct table *table = &rendering->table;
  cleanup_by(writer_release) struct writer writer = {
      .kernel = kernel,
      .function = placed->function,
      .table = table,
      .configs = xcalloc(kernel->n_configs + 1, sizeof *writer.configs),
      .n_used = xcalloc(kernel->n_provenance + 1, sizeof *writer.n_used),
      .slices = xcalloc(kernel->n_key_names + 1, sizeof *writer.slices)};
  if (!key_bind(&writer, error))
    return false;
  configs_take(rendering, &writer);
  if (!table->function) {
    table->function = placed->function;
    table->has_all_three = placed->function->all_three;
  }

  if (placed->function->evaluated > table->evaluated)
    table->evaluated = placed->function->evaluated;

  for (size_t i = 0; i < kernel->n_winners; i++) {
    const struct release_winner *winner = &kernel->winners[i];
    struct value values[KEY_MEMBERS_MAX];
    struct error why;
    if (writer.has_expressions)
      release_key_values(kernel, winner, values);
    if (!entry_add(&writer, winner, values, &why))
      cache_files_skip(rendering->files, kernel, winner, why.message);
    if (writer.has_expressions)
      release_key_values_release(kernel, values);
  }

  for (size_t i = 0; i < kernel->n_provenance; i++)
    if (writer.n_used[i])
      totals_add(table, kernel->provenance[i], writer.n_used[i]);

  return true;
}

static json_t *table_total(const struct table *table) {
  double sum = 0;
  if (!table->tuned_s && json_object_size(table->totals) == 1) /* as it was, int or float */
    return json_incref(json_object_iter_value(json_object_iter(table->totals)));
  json_members (table->totals, source, total)
    sum += json_number_value(total);
  /* A sum of decimal fractions, without the digits that binary ones add. */
  return json_real(table->tuned_s ? round((sum + table->tuned_s) * 1e6) / 1e6 : sum);
}

/* The long members are texts already; the short ones are written as JSON before and after them. */
static void table_write(const struct table *table, const char *path, struct cache_files *files) {
  static const char between[] = "\n    },\n    \"timings\": {";
  const struct function *function = table->function;
  const struct text *timings = table->has_all_three ? &table->timings : &table->medians;
  json_t *labels = table->has_all_three && table->n_timings
                       ? json_pack("[s, s, s]", "ms", "min_ms", "max_ms")
                       : json_pack("[s]", "ms");
  json_t *timings_data = json_pack("{s:o}", "labels", labels);

  json_object_update(timings_data, function->timings);
  cleanup_json json_t *begin =
      json_pack("{s:s, s:o, s:I, s:O, s:{}}", "signature", function->signature,
                "total_bench_time_s", table_total(table), "evaluated_configs",
                (json_int_t)table->evaluated, "keys", function->keys, "cache");
  cleanup_json json_t *end = json_pack("{s:o}", "timings_data", timings_data);
  ALWAYS(begin && end);

  size_t begin_size, end_size;
  cleanup_free char *begin_text = python_json(begin, 4, &begin_size),
                    *end_text = python_json(end, 4, &end_size);

  cache_files_begin(files, path);
  cache_files_put(files, begin_text, begin_size - strlen("}\n}"));
  cache_files_put(files, table->cache.bytes, table->cache.size);
  cache_files_put(files, between, strlen(between));
  if (table->n_timings)
    cache_files_put(files, timings->bytes, timings->size);
  const char *close = table->n_timings ? "\n    }," : "},";
  cache_files_put(files, close, strlen(close));
  cache_files_put(files, end_text + strlen("{"), end_size - strlen("{"));
}

/* Within a file what was tuned is before what was imported, so that of two entries for one key the
 * measured one is kept. */
static int placed_compare(const void *a, const void *b) {
  const struct placed *left = a, *right = b;
  int order = strcmp(left->path, right->path);
  if (!order)
    order = !left->function->record - !right->function->record;
  return order ? order : (left->kernel > right->kernel) - (left->kernel < right->kernel);
}

/* The parts of paths above the function: the image's, else those of the release's environment,
 * which states no layout. */
static bool storage_find(const struct render_request *request, struct dejavu_path *storage,
                         struct error *error) {
  const struct identity *identity = request->identity;
  const struct environment *environment = &request->release->environment;
  const char *torch = identity && identity->torch ? identity->torch : environment->torch;
  char **parts = storage->parts;

  if (torch)
    parts[DEJAVU_TORCH] = xstrdup(torch);
  if (identity && identity->dejavu_layout) {
    parts[DEJAVU_LAYOUT] = xstrdup(identity->dejavu_layout);
    parts[DEJAVU_TRITON] = xstrdup(identity->dejavu_triton);
    parts[DEJAVU_RUNTIME] = xstrdup(identity->dejavu_runtime);
    parts[DEJAVU_GPU] = xstrdup(identity->dejavu_gpu);
  } else {
    const char *version = environment->rocm ? environment->rocm : environment->cuda;
    if (!environment->triton || !environment->gpu || !version)
      return error_set(
          error,
          "the environment of the release states no %s, which is in dejavu's paths; give the "
          "image's identity",
          !environment->triton ? "triton"
          : !version           ? "rocm or cuda"
                               : "gpu");
    parts[DEJAVU_TRITON] = xstrdup(environment->triton);
    parts[DEJAVU_RUNTIME] = xasprintf("%s_%s", environment->rocm ? "rocm" : "cuda", version);
    parts[DEJAVU_GPU] = xstrdup(environment->gpu);
  }

  text_replace(parts[DEJAVU_GPU], " /", '_');
  return true;
}

static bool dejavu_render(const struct render_request *request, struct cache_files *ret,
                          struct error *error) {
  const struct release *release = request->release;
  cleanup_by(rendering_release) struct rendering rendering = {.request = request, .files = ret};
  struct table *table = &rendering.table;
  struct error why;

  if (!storage_find(request, &rendering.storage, error))
    return false;

  rendering.functions = xcalloc(release->n_kernels + 1, sizeof *rendering.functions);
  rendering.placed = xcalloc(release->n_kernels + 1, sizeof *rendering.placed);

  for (size_t i = 0; i < release->n_kernels; i++) {
    struct function *function = &rendering.functions[i];
    struct placed placed = {.kernel = &release->kernels[i], .function = function};
    if (function_find(request, &rendering.storage, placed.kernel, function, &why) &&
        dejavu_path_format(&function->path, &placed.path, &why))
      rendering.placed[rendering.n_placed++] = placed;
    else
      cache_files_skip(ret, placed.kernel, NULL, why.message);
  }

  qsort(rendering.placed, rendering.n_placed, sizeof *rendering.placed, placed_compare);

  ret->file_mode = ret->folder_mode = 0777;
  const struct placed *placed = rendering.placed, *end = placed + rendering.n_placed;
  while (placed < end) {
    const char *path = placed->path;
    table->function = NULL;
    table->n_entries = table->n_timings = 0;
    table->cache.size = table->medians.size = table->timings.size = 0;
    table->tuned_s = 0;
    table->evaluated = 0;
    text_set_clear(&table->seen);
    json_decref(table->totals);
    table->totals = json_object();
    for (; placed < end && string_equal(placed->path, path); placed++)
      if (!kernel_add(&rendering, placed, &why))
        cache_files_skip(ret, placed->kernel, NULL, why.message);
    if (table->n_entries)
      table_write(table, path, ret);
  }

  cache_files_variable(ret, "TRITON_DEJAVU_STORAGE", "", NULL);
  cache_files_variable(ret, "TRITON_DEJAVU_TAG", NULL, release->tag);
  return cache_files_any(ret, "dejavu", error);
}

static bool is_table(const char *path) { return string_equal(path_name(path), "cache.json"); }

const struct cache_format format_dejavu = {
    .name = "dejavu",
    .summary = "the tree of triton-dejavu 0.7 (TRITON_DEJAVU_STORAGE)",
    .render = dejavu_render,
    .table = "cache.json",
    .is_table = is_table,
    .read = dejavu_read,
};
