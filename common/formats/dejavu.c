/* The `dejavu` format: the tree that triton-dejavu reads under TRITON_DEJAVU_STORAGE (common/cache/dejavu.h).
 *
 * Where a function's file lies comes from hashes of its text and of its decorator's arguments, so a kernel is written when
 * these are known: from the image's record of it, else the build's, else from the manifest of a table that was imported.
 * Which Triton, ROCm and GPU the folders name comes from the image, else from the release's environment.
 * Entries that dejavu would not restore as they are, are skipped with the reason: it checks nothing itself, and a key that
 * does not come back breaks its next tuning.
 *
 * Memory: what format.h says. Pure functions over what they are given; any thread. */
#include <math.h>

#include "common/cache/config_text.h"
#include "common/cache/dejavu_function.h"
#include "common/cache/python_text.h"
#include "common/cache/tuning_key.h"
#include "common/cache/winner_text.h"

#define KNOWN_TEXTS 4096

/* Keys that stand in a text, as pieces of it: open addressing, at most half full. */
struct seen {
  size_t n, capacity; /* a power of two */
  struct piece {
    uint64_t hash;
    size_t offset, size; /* size 0: free */
  } *pieces;
};

/* One cache.json as it grows: entries of one kernel, or of several that are the same function. There is one at a time, and
 * the next one uses its room. */
struct table {
  const struct dejavu_function *function; /* of the first kernel; NULL before it */
  size_t n_entries, n_timings;
  struct text cache, timing_texts[2]; /* the timings with their medians alone, and with all three numbers */
  bool has_all_three;
  struct seen seen; /* keys in `cache` */
  json_t *totals;   /* bench seconds of imported files by source */
  double tuned_s;   /* device seconds of the jobs that chose the entries */
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

static struct piece *piece_find(const struct seen *seen, const char *text, uint64_t hash, const char *bytes,
                                size_t size) {
  for (size_t i = hash;; i++) {
    struct piece *piece = &seen->pieces[i & (seen->capacity - 1)];
    if (!piece->size || (piece->hash == hash && piece->size == size && memcmp(text + piece->offset, bytes, size) == 0))
      return piece;
  }
}

static void seen_grow(struct seen *seen) {
  struct seen larger = {.n = seen->n, .capacity = seen->capacity ? 2 * seen->capacity : 64};
  larger.pieces = xcalloc(larger.capacity, sizeof *larger.pieces);
  for (size_t i = 0; i < seen->capacity; i++) {
    if (seen->pieces[i].size) /* none is equal to another: the free place is found without looking at texts */
      *piece_find(&larger, NULL, seen->pieces[i].hash, NULL, 0) = seen->pieces[i];
  }
  free(seen->pieces);
  *seen = larger;
}

/* Whether the bytes, which will stand at `offset` of the text, are new; notes them. */
static bool seen_add(struct seen *seen, const struct text *text, const char *bytes, size_t size, size_t offset) {
  if (2 * seen->n >= seen->capacity)
    seen_grow(seen);
  uint64_t hash = text_hash(bytes, size);
  struct piece *piece = piece_find(seen, text->bytes, hash, bytes, size);
  if (piece->size)
    return false;
  *piece = (struct piece){hash, offset, size};
  seen->n++;
  return true;
}

static void table_begin(struct table *table) {
  struct table used = *table;
  used.cache.size = used.timing_texts[0].size = used.timing_texts[1].size = used.seen.n = 0;
  if (used.seen.capacity)
    memset(used.seen.pieces, 0, used.seen.capacity * sizeof *used.seen.pieces);
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
  free(table->seen.pieces);
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

static char *config_from_record(const struct dejavu_function *function, const json_t *config, const char *triton,
                                struct error *error) {
  cleanup_free char *normal = config_text_normal(config, triton);
  const char *text = json_string_value(json_object_get(function->configs, normal));
  if (text)
    return xstrdup(text);
  error_set(error, "the config is none of those that the function is decorated with");
  return NULL;
}

/* All members, in the order that the table's configs have; dejavu would hand ir_override to the kernel. */
static char *config_in_order(const struct dejavu_function *function, const json_t *config, struct error *error) {
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

static char *config_make(const struct entry_writer *writer, const json_t *config, struct error *error) {
  const struct dejavu_function *function = writer->function;
  if (!dejavu_restores_config(config, error)) {
    error_prefix(error, "dejavu would not restore the config: ");
    return NULL;
  }
  cleanup_free char *text = function->record ? config_from_record(function, config, function->path.triton, error)
                                             : config_in_order(function, config, error);
  return text ? quoted(text) : NULL;
}

/* Tables of one decorator have the same configs, whose members stand in the same order. */
static char *config_text(const struct entry_writer *writer, const json_t *config, struct error *error) {
  if (!writer->function->order)
    return config_make(writer, config, error);
  const uintptr_t address = (uintptr_t)config;
  struct known_text *known = &writer->rendering->known[text_hash((const char *)&address, sizeof address) % KNOWN_TEXTS];
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

/* Of a record: as the decorator has it; of an imported table: the key's members, dtypes among them. */
static bool writer_take_key(struct entry_writer *writer, struct error *error) {
  const struct dejavu_function *function = writer->function;
  const struct release_kernel *kernel = writer->kernel;
  struct tuning_key *elements = &writer->elements;
  writer->slices = xcalloc(kernel->n_key_names + 1, sizeof *writer->slices);
  if (function->record) {
    if (!tuning_key_bind(function->record, function->manifest, (const char *const *)kernel->key_names,
                         kernel->n_key_names, elements, error))
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
  if (!dejavu_restores_element(key->bytes + begin, key->size - begin, writer->function->ignore_dtypes, error))
    return error_prefix(error, "dejavu would not restore the key: ");
  char quote[] = "'";
  if (memchr(key->bytes + begin, '\'', key->size - begin))
    quote[0] = '"';
  key->bytes[begin - 1] = quote[0];
  text_add(key, quote, 1);
  return true;
}

static void element_begin(struct text *key) {
  text_add_string(key, key->size > 1 ? ", '" : "'"); /* the quote is set when the element is known */
}

static bool key_add_expression(struct entry_writer *writer, const struct expr *expr, const struct value *values,
                               struct error *error) {
  struct value value;
  if (!expr_eval(expr, values, &value, error))
    return false;
  cleanup_free char *text = python_str(value);
  text_add_string(&writer->key, text);
  return true;
}

/* The tuple that dejavu looks up, into writer->key. */
static bool key_write(struct entry_writer *writer, const struct release_winner *winner, const struct value *values,
                      struct error *error) {
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

/* Bench time once for each of `n` winners that a job chose, each by a job of its own, and once for each file that was
 * imported, as it was last. */
static void totals_add(struct table *table, const json_t *provenance, size_t n) {
  const char *source = json_string_value(json_object_get(provenance, "source"));
  json_t *total = json_object_get(provenance, "total_bench_time_s");
  int64_t evaluated = json_integer_value(json_object_get(provenance, "evaluated_configs"));
  table->evaluated = evaluated > table->evaluated ? evaluated : table->evaluated;
  table->tuned_s += (double)n * json_number_value(json_object_get(provenance, "spent_device_seconds"));
  if (!source || !json_is_number(total))
    return;
  const json_t *before = json_object_get(table->totals, source);
  if (!before || json_number_value(before) < json_number_value(total))
    json_object_set(table->totals, source, total);
}

/* Whether an import kept the text of a config whose members stand in an order of their own; *ret_text is as JSON. */
static bool config_kept(const struct entry_writer *writer, const struct release_winner *winner, char **ret_text,
                        struct error *error) {
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

static bool entry_add(struct entry_writer *writer, const struct release_winner *winner, const struct value *values,
                      struct error *error) {
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
  if (!seen_add(&table->seen, &table->cache, writer->quoted.bytes, writer->quoted.size,
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

static void winner_add(struct entry_writer *writer, const struct release_winner *winner, bool needs_values) {
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

static bool kernel_add(struct rendering *rendering, const struct placed *placed, struct error *error) {
  __attribute__((cleanup(writer_release))) struct entry_writer writer = {
      .rendering = rendering, .kernel = placed->kernel, .function = placed->function, .table = &rendering->table};
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

/* What was tuned stands before what was imported, so that of two entries for one key the measured one is kept. */
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
    if (dejavu_function_find(rendering->request, &rendering->storage, placed.kernel, &rendering->functions[i], &why) &&
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
    return json_incref(json_object_iter_value(json_object_iter(table->totals))); /* as it was, int or float */
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
  text_add_string(&text, table->n_timings ? "\n    },\n    \"timings_data\": " : "},\n    \"timings_data\": ");
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

static bool render_release(const struct render_request *request, struct cache_files *ret, struct error *error) {
  __attribute__((cleanup(rendering_release))) struct rendering rendering = {.request = request, .files = ret};
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
