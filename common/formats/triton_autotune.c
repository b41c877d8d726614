/* The files of Triton's cache of autotuning: their paths and bytes for the winners of a function;
 * reading such files as kernels that are known by name only, and writing those again.
 *
 * Memory: a function owns what it made and borrows its record. Threads: any; nothing is shared. */
#include <math.h>

#include "common/cache/python_text.h"
#include "common/formats/triton.h"

#define FILE_NAME_CHARACTERS 150 /* what Triton keeps of a function's name */

/* In the order in which triton.Config holds them; pre_hook stands before ir_override. */
static const char *const fixed_names[] = {"num_warps", "num_ctas", "num_stages", "maxnreg",
                                          "ir_override"};

/* Options of AMD's compiler that a config may state, or leave at the back end's default, whether or
 * not the function's own configs do. */
static const char *const option_names[] = {"waves_per_eu", "matrix_instr_nonkdim", "kpack",
                                           "schedule_hint"};

static bool is_among(const char *name, const char *const *names, size_t n) {
  for (size_t i = 0; i < n; i++) {
    if (strcmp(name, names[i]) == 0)
      return true;
  }
  return false;
}

static bool is_option(const char *name) {
  return is_among(name, option_names, ARRAY_LENGTH(option_names));
}

/* Whether `name` is one of triton.Config's own parameters rather than one of its kwargs. */
static bool triton_config_is_fixed(const char *name) {
  return is_among(name, fixed_names, ARRAY_LENGTH(fixed_names));
}

/* The name of the file of a function. */
static char *triton_autotune_file(const char *function) {
  size_t end = 0;
  for (size_t characters = 0; function[end]; end++) {
    characters += ((unsigned char)function[end] & 0xc0) != 0x80;
    if (characters > FILE_NAME_CHARACTERS)
      break;
  }
  return xasprintf("%.*s.autotune.json", (int)end, function);
}

/* Triton's first versions have no such cache. */
static bool version_has_cache(const char *version) {
  long major = 0, minor = 0;
  char *end;
  major = strtol(version, &end, 10);
  if (*end == '.')
    minor = strtol(end + 1, NULL, 10);
  return major > 3 || (major == 3 && minor >= 4);
}

/* One "name: value" of a printed config. */
static void take_member(struct triton_function *function, const char *name, const char *value,
                        bool is_first_config) {
  if (!triton_config_is_fixed(name)) {
    json_int_t before = json_integer_value(json_object_get(function->kwargs, name));
    ALWAYS(json_object_set_new(function->kwargs, name, json_integer(before + 1)) == 0);
    return;
  }
  cleanup_json json_t *found = value_to_json(python_value(value));
  const json_t *known = json_object_get(function->fixed, name);
  if (!known && !is_first_config)
    return;
  if (!known)
    ALWAYS(json_object_set(function->fixed, name, found) == 0);
  else if (!json_equal(known, found))
    ALWAYS(json_object_set_new(function->fixed, name, json_object()) == 0); /* equal to no value */
}

/* Names only are read of the kwargs, so that a value with ", " in it does no harm. */
static void take_config(struct triton_function *function, const char *config,
                        bool is_first_config) {
  cleanup_free char *text = xstrdup(config);
  for (char *member = text, *next; member; member = next) {
    next = strstr(member, ", ");
    if (next) {
      *next = '\0';
      next += 2;
    }
    char *value = strstr(member, ": ");
    if (!value || value == member)
      continue;
    *value = '\0';
    take_member(function, member, value + 2, is_first_config);
  }
}

static int compare_names(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

/* str(sorted(env.items())) */
static bool write_variables(FILE *out, const json_t *variables, struct error *error) {
  size_t n = json_object_size(variables), i = 0;
  cleanup_free const char **names = xcalloc(n + 1, sizeof *names);
  const char *name;
  json_t *value;
  json_object_foreach ((json_t *)variables, name, value)
    names[i++] = name;
  qsort(names, n, sizeof *names, compare_names);
  putc('[', out);
  for (i = 0; i < n; i++) {
    const struct value pair[] = {
        value_string(names[i]),
        value_string(json_string_value(json_object_get(variables, names[i])))};
    cleanup_free char *text = NULL;
    if (!python_tuple_repr(pair, 2, &text, error))
      return false;
    fprintf(out, "%s%s", i ? ", " : "", text);
  }
  putc(']', out);
  return true;
}

/* What is hashed, but for the tuning key. */
static bool make_hashed(struct triton_function *function, bool is_packed,
                        const struct identity *identity, struct error *error) {
  const struct function_record *record = function->record;
  const char *image_key = identity ? identity->triton_key : NULL;
  const char *image_backend = identity ? identity->backend_hash : NULL;
  const char *key = is_packed && image_key ? image_key : record->triton_key;
  const char *backend = is_packed && image_backend ? image_backend : record->backend_hash;
  if (!key)
    key = image_key;
  if (!backend)
    backend = image_backend;
  if (!key || !backend || !record->cache_key)
    return error_set(
        error,
        "its record has no %s; record it inside the image with `python3 -m wavetune identity`",
        !key       ? "triton_key()"
        : !backend ? "hash of Triton's back end"
                   : "cache_key of the function");
  size_t size;
  FILE *out = open_memstream(&function->before, &size);
  ALWAYS(out != NULL);
  fprintf(out, "%s-%s-%s-", key, backend, record->cache_key);
  bool ok = write_variables(out, identity ? identity->variables : NULL, error);
  putc('-', out);
  ALWAYS(fclose(out) == 0);
  out = open_memstream(&function->after, &size);
  ALWAYS(out != NULL);
  for (size_t i = 0; i < record->n_configs; i++)
    fprintf(out, "-%s", record->configs[i]);
  ALWAYS(fclose(out) == 0);
  return ok;
}

static bool check_record(const struct function_record *record, const char *version,
                         const struct identity *identity, struct error *error) {
  const char *decorator = json_string_value(json_object_get(record->autotune, "decorator"));
  if (!version)
    return error_set(error, "its record does not say the version of Triton");
  if (!version_has_cache(version))
    return error_set(
        error, "Triton %.40s keeps no results of autotuning: 3.4 is the first that does", version);
  if (identity && identity->triton_version && strcmp(identity->triton_version, version) != 0)
    return error_set(error,
                     "its record is of Triton %.40s and the image has %.40s; record the function "
                     "inside the image",
                     version, identity->triton_version);
  if (decorator && strcmp(decorator, "triton") != 0)
    return error_set(error, "its function is tuned by %.40s, not by @triton.autotune", decorator);
  if (record->n_configs < 2)
    return error_set(
        error, "its function has %zu config%s, and Triton looks for results of two and more only",
        record->n_configs, record->n_configs == 1 ? "" : "s");
  if (json_is_true(json_object_get(record->autotune, "pre_hooks")))
    return error_set(error,
                     "its function has configs with a pre_hook, for which Triton keeps no results");
  if (json_is_true(json_object_get(record->autotune, "prunes")))
    return error_set(error, "its function prunes its configs by the arguments, so that what Triton "
                            "looks for is not known");
  return true;
}

bool triton_function_init(const struct function_record *record, bool is_packed,
                          const struct identity *identity, const struct kernel *kernel,
                          const char *const *key_names, size_t n_key_names,
                          struct triton_function *ret, struct error *error) {
  __attribute__((cleanup(triton_function_release))) struct triton_function function = {.record =
                                                                                           record};
  const char *version = record->triton_version ? record->triton_version
                        : identity             ? identity->triton_version
                                               : NULL;
  if (!check_record(record, version, identity, error) ||
      !make_hashed(&function, is_packed, identity, error) ||
      !tuning_key_bind(record, kernel, key_names, n_key_names, &function.key, error))
    return false;
  if (function.key.n + function.key.n_dtypes == 0)
    return error_set(error,
                     "its function has an empty tuning key, for which Triton keeps no results");
  function.file = triton_autotune_file(record->function);
  function.kwargs = json_object();
  function.fixed = json_object();
  ALWAYS(function.kwargs && function.fixed);
  for (size_t i = 0; i < record->n_configs; i++)
    take_config(&function, record->configs[i], i == 0);
  *ret = function;
  function = (struct triton_function){0};
  return true;
}

void triton_function_release(struct triton_function *function) {
  free(function->file);
  free(function->before);
  free(function->after);
  tuning_key_release(&function->key);
  json_decref(function->kwargs);
  json_decref(function->fixed);
  *function = (struct triton_function){0};
}

/* The values as Python holds them, as a list for the file, and the folder that they make. */
static bool make_key(const struct triton_function *function, const struct value *key, json_t *list,
                     char folder[TRITON_FOLDER_LENGTH + 1], struct error *error) {
  const struct tuning_key *tuned = &function->key;
  size_t n = tuned->n + tuned->n_dtypes;
  cleanup_free struct value *values = xcalloc(n, sizeof *values);
  cleanup_free char *tuple = NULL;
  for (size_t i = 0; i < n; i++) {
    const struct tuning_key_part *part = i < tuned->n ? &tuned->parts[i] : NULL;
    if (!part)
      values[i] = value_string(tuned->dtypes[i - tuned->n]);
    else if (!part->expr)
      values[i] = key[part->member];
    else if (!expr_eval(part->expr, key, &values[i], error))
      return error_prefix(error, "the value of \"%.60s\" in the function's tuning key: ",
                          function->record->key_names[i]);
    ALWAYS(json_array_append_new(list, value_to_json(values[i])) == 0);
  }
  if (!python_tuple_repr(values, n, &tuple, error))
    return error_prefix(error, "the function's tuning key: ");
  cleanup_free char *hashed = xasprintf("%s%s%s", function->before, tuple, function->after);
  struct digest digest = digest_of(hashed, strlen(hashed));
  triton_folder_format(&digest, folder);
  return true;
}

static bool take_kwargs(const struct triton_function *function, const json_t *config,
                        json_t *kwargs, struct error *error) {
  const char *name;
  json_t *value, *count;
  json_object_foreach (function->kwargs, name, count) {
    value = json_object_get(config, name);
    if (value)
      ALWAYS(json_object_set(kwargs, name, value) == 0);
    else if ((size_t)json_integer_value(count) == function->record->n_configs && !is_option(name))
      return error_set(error,
                       "the winner has no \"%.60s\", which all of the function's configs have: it "
                       "would be launched "
                       "without",
                       name);
  }
  json_object_foreach ((json_t *)config, name, value) {
    if (triton_config_is_fixed(name) || json_object_get(kwargs, name))
      continue;
    if (!is_option(name))
      return error_set(error, "the function's configs have no \"%.60s\"", name);
    ALWAYS(json_object_set(kwargs, name, value) == 0);
  }
  return true;
}

/* A member that the winner does not have is what all configs of the function have. */
static bool take_fixed(const struct triton_function *function, const char *name,
                       const json_t *config, json_t *entry, struct error *error) {
  json_t *value = json_object_get(config, name);
  if (!value)
    value = json_object_get(function->fixed, name);
  if (json_is_object(value))
    return error_set(error, "the winner has no %s, and the function's configs do not agree on it",
                     name);
  if (!value && strcmp(name, "ir_override") == 0)
    return true;
  ALWAYS((value ? json_object_set(entry, name, value)
                : json_object_set_new(entry, name, json_null())) == 0);
  return true;
}

static bool make_entry(const struct triton_function *function, const json_t *config, json_t *entry,
                       struct error *error) {
  json_t *kwargs = json_object();
  ALWAYS(kwargs && json_object_set_new(entry, "kwargs", kwargs) == 0);
  if (!take_kwargs(function, config, kwargs, error))
    return false;
  for (size_t i = 0; i < ARRAY_LENGTH(fixed_names); i++) {
    const char *name = fixed_names[i];
    if (strcmp(name, "ir_override") == 0) {
      ALWAYS(json_object_set_new(entry, "pre_hook", json_null()) == 0);
      if (!json_object_get(function->fixed, name) && json_object_get(config, name))
        return error_set(error, "this Triton knows no \"ir_override\" of a config");
    }
    if (!take_fixed(function, name, config, entry, error))
      return false;
  }
  return true;
}

/* The timings of an entry as Triton writes them: three numbers, or none. A new reference. */
static json_t *triton_timings(const double *ms, size_t n_ms) {
  double timings[3];
  for (size_t i = 0; i < ARRAY_LENGTH(timings) && n_ms; i++)
    timings[i] = ms[n_ms == 1 ? 0 : i];
  return json_numbers(timings, n_ms ? ARRAY_LENGTH(timings) : 0);
}

bool triton_function_render(const struct triton_function *function, const struct value *key,
                            const json_t *config, const double *ms, size_t n_ms, char **ret_path,
                            char **ret_bytes, size_t *ret_size, struct error *error) {
  char folder[TRITON_FOLDER_LENGTH + 1];
  cleanup_json json_t *list = json_array(), *entry = json_object();
  ALWAYS(list && entry);
  if (!make_key(function, key, list, folder, error) || !make_entry(function, config, entry, error))
    return false;
  cleanup_json json_t *file = json_pack("{s:O, s:[[O, o]]}", "key", list, "configs_timings", entry,
                                        triton_timings(ms, n_ms));
  ALWAYS(file != NULL);
  *ret_bytes = python_json(file, 0, ret_size);
  *ret_path = xasprintf("%s/%s", folder, function->file);
  return true;
}

/* Imported tables */

#define FILE_SIZE_MAX ((size_t)16 << 20)
#define ENTRIES_MAX 65536

static const char suffix[] = ".autotune.json";

/* Python writes and reads a bare Infinity, which JSON does not have: it becomes null, in place, and
 * is counted. */
static size_t infinities_take(char *text, size_t size) {
  static const char infinity[] = "Infinity", replacement[] = "null    ";
  size_t n = 0;
  bool in_string = false;
  for (size_t i = 0; i < size; i++) {
    if (in_string && text[i] == '\\') {
      i++;
    } else if (text[i] == '"') {
      in_string = !in_string;
    } else if (!in_string && size - i >= strlen(infinity) &&
               memcmp(text + i, infinity, strlen(infinity)) == 0) {
      memcpy(text + i, replacement, strlen(replacement));
      n++;
    }
  }
  return n;
}

struct timings {
  size_t n; /* 0, 1 or 3 */
  double ms[3];
};

static bool read_timing(const json_t *json, const char *at, double *ret, size_t *n_infinities,
                        struct error *error) {
  if (json_is_null(json)) {
    (*n_infinities)++;
    *ret = INFINITY;
    return true;
  }
  if (!json_is_number(json) || json_number_value(json) < 0)
    return error_at(error, at, "a timing must be a number of milliseconds, 0 or more, or Infinity");
  *ret = json_number_value(json);
  return true;
}

/* A benchmark of the user's own may give one number; what wavetune writes of what was not measured
 * is []. */
static bool read_timings(const json_t *json, const char *at, struct timings *ret,
                         size_t *n_infinities, struct error *error) {
  char below[JSON_POINTER_SIZE];
  const json_t *element;
  size_t i;
  *ret = (struct timings){0};
  if (!json_is_array(json)) {
    ret->n = 1;
    return read_timing(json, at, &ret->ms[0], n_infinities, error);
  }
  if (json_array_size(json) != 0 && json_array_size(json) != 1 && json_array_size(json) != 3)
    return error_at(error, at,
                    "timings are the median and the 20th and 80th percentile, here are %zu numbers",
                    json_array_size(json));
  json_array_foreach (json, i, element) {
    json_pointer_index(below, sizeof below, at, i);
    if (!read_timing(element, below, &ret->ms[i], n_infinities, error))
      return false;
    ret->n++;
  }
  return true;
}

/* As Python compares lists. */
static bool timings_less(const struct timings *a, const struct timings *b) {
  for (size_t i = 0; i < a->n && i < b->n; i++) {
    if (a->ms[i] != b->ms[i])
      return a->ms[i] < b->ms[i];
  }
  return a->n < b->n;
}

static bool check_scalar(const json_t *value, const char *at, const char *name,
                         struct error *error) {
  char below[JSON_POINTER_SIZE];
  struct value scalar;
  struct error why;
  return value_from_json(value, &scalar, &why) ||
         error_at(error, json_pointer_member(below, sizeof below, at, name), "%s", why.message);
}

static bool check_member(const json_t *json, const char *at, const char *name, const json_t *value,
                         struct error *error) {
  char below[JSON_POINTER_SIZE];
  const char *kwarg;
  json_t *inner;
  json_pointer_member(below, sizeof below, at, name);
  if (strcmp(name, "kwargs") != 0) {
    bool is_number = strcmp(name, "num_warps") == 0 || strcmp(name, "num_ctas") == 0 ||
                     strcmp(name, "num_stages") == 0;
    if (!triton_config_is_fixed(name) && strcmp(name, "pre_hook") != 0)
      return error_at(error, below, "a config of Triton has no member \"%.60s\"", name);
    if (is_number && !json_is_integer(value))
      return error_at(error, below, "\"%s\" must be an integer", name);
    if (strcmp(name, "pre_hook") == 0 && !json_is_null(value))
      return error_at(error, below,
                      "\"pre_hook\" must be null: Triton keeps no results for configs with hooks");
    return check_scalar(value, at, name, error);
  }
  if (!json_is_object(value))
    return error_at(error, below, "\"kwargs\" must be an object");
  json_object_foreach ((json_t *)value, kwarg, inner) {
    if (!check_scalar(inner, below, kwarg, error))
      return false;
    if (triton_config_is_fixed(kwarg) || json_object_get(json, kwarg))
      return error_at(error, below, "\"%.60s\" stands in kwargs and is a member of the config",
                      kwarg);
  }
  return true;
}

static bool check_config(const json_t *json, const char *at, struct error *error) {
  const char *name;
  json_t *value;
  if (!json_is_object(json) || !json_object_get(json, "kwargs"))
    return error_at(error, at, "a config must be an object with \"kwargs\"");
  json_object_foreach ((json_t *)json, name, value) {
    if (!check_member(json, at, name, value, error))
      return false;
  }
  return true;
}

static bool find_winner(const json_t *entries, const json_t **ret_config, struct timings *ret,
                        size_t *n_infinities, struct error *error) {
  char at[JSON_POINTER_SIZE], below[JSON_POINTER_SIZE];
  const json_t *entry;
  size_t i;
  *ret_config = NULL;
  if (json_array_size(entries) < 1 || json_array_size(entries) > ENTRIES_MAX)
    return error_at(error, "/configs_timings", "\"configs_timings\" must have 1 to %d configs",
                    ENTRIES_MAX);
  json_array_foreach (entries, i, entry) {
    struct timings timings;
    json_pointer_index(at, sizeof at, "/configs_timings", i);
    if (json_array_size(entry) != 2)
      return error_at(error, at, "an entry must be a pair of a config and its timings");
    if (!check_config(json_array_get(entry, 0), json_pointer_index(below, sizeof below, at, 0),
                      error) ||
        !read_timings(json_array_get(entry, 1), json_pointer_index(below, sizeof below, at, 1),
                      &timings, n_infinities, error))
      return false;
    if (*ret_config && !timings_less(&timings, ret))
      continue;
    *ret_config = json_array_get(entry, 0);
    *ret = timings;
  }
  if (ret->n && isinf(ret->ms[0]))
    return error_at(error, "/configs_timings",
                    "no config ran: every timing is Infinity, so there is no winner");
  return true;
}

/* The kernel of the function, and its config in wavetune's form. */
static json_t *make_manifest(const char *function, const json_t *config) {
  json_t *kwargs = json_array(), *members = json_array();
  const char *name;
  json_t *value;
  json_object_foreach (json_object_get(config, "kwargs"), name, value)
    ALWAYS(json_array_append_new(kwargs, json_string(name)) == 0);
  json_object_foreach ((json_t *)config, name, value)
    ALWAYS(json_array_append_new(members, json_string(name)) == 0);
  json_t *manifest =
      json_pack("{s:s+, s:s, s:[s, s], s:{s:{s:s, s:o, s:o}}}", "name", "triton/", function,
                "language", "external", "key", "folder", "key", "exports", "triton", "function",
                function, "kwargs", kwargs, "members", members);
  ALWAYS(manifest != NULL);
  return manifest;
}

static json_t *make_config(const json_t *config) {
  json_t *made = json_copy(json_object_get(config, "kwargs"));
  const char *name;
  json_t *value;
  ALWAYS(made != NULL);
  json_object_foreach ((json_t *)config, name, value) {
    if (triton_config_is_fixed(name))
      ALWAYS(json_object_set(made, name, value) == 0);
  }
  return made;
}

struct reading {
  struct imported imported;
  json_t *kernels, *seen; /* canonical manifests with the kernels' indices; "index/folder/key" */
};

static bool find_kernel(struct reading *reading, const char *function, const json_t *config,
                        size_t *ret, struct error *error) {
  cleanup_json json_t *manifest = make_manifest(function, config);
  cleanup_free char *text = json_canonical(manifest);
  const json_t *known = json_object_get(reading->kernels, text);
  if (known) {
    *ret = (size_t)json_integer_value(known);
    return true;
  }
  cleanup_kernel struct kernel *kernel = NULL;
  if (!kernel_parse(manifest, &kernel, error))
    return error_prefix(error, "the function cannot be known by its name: ");
  *ret = reading->imported.n_kernels;
  imported_add_kernel(&reading->imported)->manifest = TAKE(manifest);
  ALWAYS(json_object_set_new(reading->kernels, text, json_integer((json_int_t)*ret)) == 0);
  return true;
}

/* Timings of 0 are kept as not known: a release has none. */
static size_t usable_timings(const struct timings *timings, double ms[3]) {
  for (size_t i = 0; i < timings->n; i++) {
    if (!(timings->ms[i] > 0) || isinf(timings->ms[i]))
      return 0;
    ms[i] = timings->ms[i];
  }
  return timings->n;
}

static bool add_entry(struct reading *reading, const struct cache_file *file, const char *folder,
                      const char *function, json_t *key, const json_t *config,
                      const struct timings *timings, struct error *error) {
  size_t index;
  if (!find_kernel(reading, function, config, &index, error))
    return false;
  cleanup_free char *text = python_json(key, 0, &(size_t){0}),
                    *mark = xasprintf("%zu/%s/%s", index, folder, text);
  if (json_object_get(reading->seen, mark))
    return error_set(error, "another file of the tree is for the same folder and key");
  ALWAYS(json_object_set_new(reading->seen, mark, json_true()) == 0);
  struct imported_entry *entry = imported_add_entry(&reading->imported.kernels[index]);
  *entry = (struct imported_entry){.key = json_pack("{s:s, s:s}", "folder", folder, "key", text),
                                   .config = make_config(config),
                                   .provenance = json_pack("{s:s}", "source", file->path)};
  ALWAYS(entry->key && entry->provenance);
  entry->n_ms = usable_timings(timings, entry->ms);
  return true;
}

static bool read_table(struct reading *reading, const struct cache_file *file, const char *folder,
                       const char *function, struct error *error) {
  static const char *const members[] = {"key", "configs_timings", NULL};
  cleanup_json json_t *json = NULL;
  json_t *key = NULL, *entries = NULL;
  const json_t *config;
  struct timings timings;
  size_t n_found = 0;
  if (file->size > FILE_SIZE_MAX)
    return error_set(error, "it has %zu bytes; at most %zu are read", file->size, FILE_SIZE_MAX);
  cleanup_free char *text = xmemdup(file->bytes, file->size + 1);
  size_t n_infinities = infinities_take(text, file->size);
  if (!json_parse(text, file->size, &json, error) || !json_only_members(json, "", members, error) ||
      !json_get_array(json, "", "key", JSON_REQUIRED, &key, error) ||
      !json_get_array(json, "", "configs_timings", JSON_REQUIRED, &entries, error) ||
      !find_winner(entries, &config, &timings, &n_found, error))
    return false;
  if (n_infinities != n_found)
    return error_set(
        error, "Infinity stands for a timing of a config that did not run, and for nothing else");
  return add_entry(reading, file, folder, function, key, config, &timings, error);
}

/* Takes PREFIX/FOLDER/NAME.autotune.json apart; false for other files. */
static bool split_path(const char *path, char folder[TRITON_FOLDER_LENGTH + 1],
                       char **ret_function) {
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  size_t length = strlen(name);
  if (length <= strlen(suffix) || strcmp(name + length - strlen(suffix), suffix) != 0)
    return false;
  size_t before = slash ? (size_t)(slash - path) : 0;
  folder[0] = '\0';
  if (before >= TRITON_FOLDER_LENGTH &&
      (before == TRITON_FOLDER_LENGTH || slash[-TRITON_FOLDER_LENGTH - 1] == '/'))
    snprintf(folder, TRITON_FOLDER_LENGTH + 1, "%s", slash - TRITON_FOLDER_LENGTH);
  *ret_function = xstrndup(name, length - strlen(suffix));
  return true;
}

static void reading_release(struct reading *reading) {
  imported_release(&reading->imported);
  json_decref(reading->kernels);
  json_decref(reading->seen);
}

bool triton_table_read(const struct import_request *request, struct imported *ret,
                       struct error *error) {
  __attribute__((cleanup(reading_release))) struct reading reading = {.kernels = json_object(),
                                                                      .seen = json_object()};
  if (request->kernel)
    return error_set(
        error,
        "the folders of Triton's cache do not tell which kernel they are for; leave --kernel away");
  reading.imported.environment = json_object();
  for (size_t i = 0; i < request->files->n; i++) {
    const struct cache_file *file = &request->files->files[i];
    char folder[TRITON_FOLDER_LENGTH + 1];
    cleanup_free char *function = NULL;
    if (!json_can_hold(file->path))
      return error_set(error, "%.200s: the path is not UTF-8", file->path);
    if (!split_path(file->path, folder, &function))
      continue;
    if (!triton_folder_is_valid(folder, strlen(folder)))
      return error_set(
          error,
          "%.200s: its folder's name is not %d characters of base32, as Triton names folders",
          file->path, TRITON_FOLDER_LENGTH);
    if (!read_table(&reading, file, folder, function, error))
      return cache_file_refuse(file, error);
  }
  if (!reading.imported.n_kernels)
    return error_set(
        error, "none of the %zu files is a NAME%s; name Triton's cache folder (TRITON_CACHE_DIR)",
        request->files->n, suffix);
  *ret = reading.imported;
  reading.imported = (struct imported){0};
  return true;
}

/* One member of the config as the file has it. */
static bool put_member(const json_t *exports, const char *member, const json_t *config,
                       json_t *object, struct error *error) {
  json_t *value = json_object_get(config, member);
  const json_t *name;
  size_t i;
  if (strcmp(member, "pre_hook") == 0)
    value = json_null();
  if (strcmp(member, "kwargs") == 0) {
    value = json_object();
    json_array_foreach (json_object_get(exports, "kwargs"), i, name) {
      json_t *kwarg =
          json_is_string(name) ? json_object_get(config, json_string_value(name)) : NULL;
      if (kwarg)
        ALWAYS(json_object_set(value, json_string_value(name), kwarg) == 0);
    }
    ALWAYS(json_object_set_new(object, member, value) == 0);
    return true;
  }
  if (!value || (!triton_config_is_fixed(member) && strcmp(member, "pre_hook") != 0))
    return error_set(error, "its config has no \"%.60s\"", member);
  ALWAYS(json_object_set(object, member, value) == 0);
  return true;
}

bool triton_table_render(const json_t *exports, const json_t *key, const json_t *config,
                         const double *ms, size_t n_ms, char **ret_path, char **ret_bytes,
                         size_t *ret_size, struct error *error) {
  const char *function = json_string_value(json_object_get(exports, "function"));
  const char *folder = json_string_value(json_object_get(key, "folder"));
  const char *text = json_string_value(json_object_get(key, "key"));
  const json_t *members = json_object_get(exports, "members"), *member;
  cleanup_json json_t *values = NULL, *object = json_object();
  size_t i;
  if (!function || !*function || strchr(function, '/') || !json_array_size(members))
    return error_set(error, "its exports do not say the function and the members of its configs");
  if (!folder || !triton_folder_is_valid(folder, strlen(folder)) || !text ||
      !json_parse(text, strlen(text), &values, error) || !json_is_array(values))
    return error_set(error,
                     "its key is not a folder of Triton's cache and the JSON of a tuning key");
  json_array_foreach (members, i, member) {
    if (!put_member(exports, json_is_string(member) ? json_string_value(member) : "", config,
                    object, error))
      return false;
  }
  cleanup_json json_t *file = json_pack("{s:O, s:[[O, o]]}", "key", values, "configs_timings",
                                        object, triton_timings(ms, n_ms));
  ALWAYS(file != NULL);
  *ret_bytes = python_json(file, 0, ret_size);
  cleanup_free char *name = triton_autotune_file(function);
  *ret_path = xasprintf("%s/%s", folder, name);
  return true;
}
