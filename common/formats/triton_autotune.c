/* NAME.autotune.json: paths and bytes for the winners of a function; reading such files as kernels
 * that are known by name only, and writing those again. Memory and threads: triton.h. */
#include <math.h>

#include "common/builds/function_record.h"
#include "common/cache/text.h"
#include "common/formats/triton.h"

#define FILE_NAME_CHARACTERS 150 /* what Triton keeps of a function's name */
#define ENTRIES_MAX 65536

static const char suffix[] = ".autotune.json";

/* The parameters of triton.Config itself, in the order in which it holds them; pre_hook is before
 * ir_override. All others are kwargs. */
static const char *const fixed_names[] = {"num_warps", "num_ctas", "num_stages", "maxnreg",
                                          "ir_override"};

static bool is_fixed(const char *name) { return name_is_in(name, fixed_names); }

/* Options of AMD's compiler that a config may state, or leave at the back end's default, whether or
 * not the function's own configs do. */
static bool is_option(const char *name) {
  static const char *const options[] = {"waves_per_eu", "matrix_instr_nonkdim", "kpack",
                                        "schedule_hint"};
  return name_is_in(name, options);
}

/* Adds FOLDER/NAME.autotune.json with one entry, a config of Triton's form, for the values of a
 * tuning key. A median alone is written as all three timings. */
static bool table_add(struct cache_files *files, const char *folder, const char *function,
                      json_t *key, json_t *config, const struct release_winner *winner,
                      struct error *error) {
  size_t end = 0, size;
  for (size_t characters = 0; function[end]; end++) {
    characters += ((unsigned char)function[end] & 0xc0) != 0x80;
    if (characters > FILE_NAME_CHARACTERS)
      break;
  }

  cleanup_free char *path = xasprintf("%s/%.*s%s", folder, (int)end, function, suffix);

  double timings[RELEASE_MS_MAX];
  for (size_t i = 0; i < RELEASE_MS_MAX && winner->n_ms; i++)
    timings[i] = winner->ms[winner->n_ms == 1 ? 0 : i];
  cleanup_json json_t *file = json_pack("{s:O, s:[[O, o]]}", "key", key, "configs_timings", config,
                                        json_numbers(timings, winner->n_ms ? RELEASE_MS_MAX : 0));
  ALWAYS(file != NULL);
  char *bytes = python_json(file, 0, &size);
  return cache_files_add_once(files, path, bytes, size, error);
}

void triton_function_release(struct triton_function *function) {
  free(function->before);
  free(function->after);
  tuning_key_release(&function->key);
  json_decref(function->kwargs);
  json_decref(function->fixed);
}

static bool record_check(const struct function_record *record, const struct identity *identity,
                         struct error *error) {
  const char *image = identity ? identity->triton_version : NULL;
  const char *version = record->triton_version ? record->triton_version : image;
  const char *decorator = json_text(record->autotune, "decorator");

  if (!version)
    return error_set(error, "its record does not state the version of Triton");

  if (triton_version_number(version) < 304)
    return error_set(
        error, "Triton %.40s keeps no results of autotuning: 3.4 is the first that does", version);
  if (image && !string_equal(image, version))
    return error_set(error,
                     "its record is of Triton %.40s and the image has %.40s; record the function "
                     "inside the image",
                     version, image);
  if (decorator && !string_equal(decorator, "triton"))
    return error_set(error, "its function is tuned by %.40s, not by @triton.autotune", decorator);
  if (record->n_configs < 2)
    return error_set(
        error, "its function has %zu config%s, and Triton looks for results only of two or more",
        record->n_configs, record->n_configs == 1 ? "" : "s");
  if (json_flag(record->autotune, "pre_hooks"))
    return error_set(error,
                     "its function has configs with a pre_hook, for which Triton keeps no results");
  if (json_flag(record->autotune, "prunes"))
    return error_set(error, "its function prunes its configs by the arguments, so that what Triton "
                            "looks for is not known");
  return true;
}

static int names_compare(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Makes the texts before and after the tuning key in what is hashed. */
static bool hashed_make(struct triton_function *function, bool is_packed,
                        const struct identity *identity, struct error *error) {
  const struct function_record *record = function->record;
  const char *key = record->triton_key, *backend = record->backend_hash;
  if (identity && identity->triton_key && (is_packed || !key))
    key = identity->triton_key;
  if (identity && identity->backend_hash && (is_packed || !backend))
    backend = identity->backend_hash;
  if (!key || !backend || !record->cache_key)
    return error_set(
        error,
        "its record has no %s; record it inside the image with `python3 -m wavetune identity`",
        !key       ? "triton_key()"
        : !backend ? "hash of Triton's back end"
                   : "cache_key of the function");

  /* str(sorted(env.items())) */
  json_t *variables = identity ? identity->variables : NULL;
  size_t n = json_object_size(variables), i = 0, size;
  cleanup_free const char **names = xcalloc(n + 1, sizeof *names);
  cleanup_text struct text before = {0}, after = {0};
  text_add_string(&before, "-[");

  json_members (variables, name, value)
    names[i++] = name;
  qsort(names, n, sizeof *names, names_compare);

  for (i = 0; i < n; i++) {
    const char *setting = json_text(variables, names[i]);
    const struct value pair[] = {value_string(names[i]), value_string(setting)};
    cleanup_free char *tuple = NULL;
    if (!python_tuple_repr(pair, 2, &tuple, error))
      return false;
    text_add_string(&before, i ? ", " : "");
    text_add_string(&before, tuple);
  }

  cleanup_free char *settings = text_finish(&before, &size);
  function->before = xasprintf("%s-%s-%s%s]-", key, backend, record->cache_key, settings);

  for (i = 0; i < record->n_configs; i++) {
    text_add_string(&after, "-");
    text_add_string(&after, record->configs[i]);
  }

  function->after = text_finish(&after, &size);
  return true;
}

/* Reads a printed config: of kwargs only the names, so that a value with ", " in it does no harm.
 */
static void config_take(struct triton_function *function, const char *config, bool is_first) {
  cleanup_free char *text = xstrdup(config);
  for (char *name = text, *next; name; name = next) {
    next = strstr(name, ", ");
    if (next) {
      *next = '\0';
      next += 2;
    }
    char *value = strstr(name, ": ");
    if (!value || value == name)
      continue;
    *value = '\0';
    if (!is_fixed(name)) {
      json_int_t before = json_integer_value(json_object_get(function->kwargs, name));
      json_put(function->kwargs, name, json_integer(before + 1));
      continue;
    }
    cleanup_json json_t *found = value_to_json(python_value(value + 2));
    const json_t *known = json_object_get(function->fixed, name);
    if (known ? !json_equal(known, found) : is_first)
      json_put(function->fixed, name, known ? json_object() : json_incref(found));
  }
}

bool triton_function_init(struct triton_function *ret, const struct function_record *record,
                          bool is_packed, const struct render_request *request,
                          const struct release_kernel *kernel, const struct kernel *manifest,
                          struct error *error) {
  const struct identity *identity = request->identity;
  *ret =
      (struct triton_function){.record = record, .kwargs = json_object(), .fixed = json_object()};
  if (!record_check(record, identity, error) || !hashed_make(ret, is_packed, identity, error) ||
      !tuning_key_bind(record, manifest, KEY_NAMES(kernel), &ret->key, error))
    return false;
  if (ret->key.n + ret->key.n_dtypes == 0)
    return error_set(error,
                     "its function has an empty tuning key, for which Triton keeps no results");

  for (size_t i = 0; i < record->n_configs; i++)
    config_take(ret, record->configs[i], i == 0);
  return true;
}

/* The values of the tuning key as a list, and the folder that they make. */
static bool folder_make(const struct triton_function *function, const struct value *key,
                        json_t *list, char folder[TRITON_FOLDER_LENGTH + 1], struct error *error) {
  const struct tuning_key *tuned = &function->key;
  size_t n = tuned->n + tuned->n_dtypes;
  cleanup_free struct value *values = xcalloc(n, sizeof *values);
  cleanup_free char *tuple = NULL;

  for (size_t i = 0; i < n; i++) {
    if (!tuning_key_value(tuned, i, key, &values[i], error))
      return false;
    json_push(list, value_to_json(values[i]));
  }

  if (!python_tuple_repr(values, n, &tuple, error))
    return error_prefix(error, "the function's tuning key: ");
  cleanup_free char *hashed = xasprintf("%s%s%s", function->before, tuple, function->after);
  struct digest digest = digest_of(hashed, strlen(hashed));
  triton_folder_format(&digest, folder);
  return true;
}

/* The winner's config in Triton's form. */
static bool entry_make(const struct triton_function *function, const json_t *config, json_t *entry,
                       struct error *error) {
  json_t *kwargs = json_object(), *value, *count;
  const char *name;

  json_put(entry, "kwargs", kwargs);
  json_object_foreach (function->kwargs, name, count) {
    value = json_object_get(config, name);
    if (value)
      json_put(kwargs, name, json_incref(value));
    else if ((size_t)json_integer_value(count) == function->record->n_configs && !is_option(name))
      return error_set(error,
                       "the winner has no \"%.60s\", which all of the function's configs have: it "
                       "would be launched "
                       "without",
                       name);
  }

  json_object_foreach ((json_t *)config, name, value) {
    if (is_fixed(name) || json_object_get(kwargs, name))
      continue;
    if (!is_option(name))
      return error_set(error, "the function's configs have no \"%.60s\"", name);
    json_put(kwargs, name, json_incref(value));
  }

  /* A fixed member that the winner does not have is as all configs of the function have it. */
  for (size_t i = 0; i < ARRAY_LENGTH(fixed_names); i++) {
    name = fixed_names[i];
    bool is_override = string_equal(name, "ir_override");
    json_t *own = json_object_get(config, name), *common = json_object_get(function->fixed, name);
    value = own ? own : common;
    if (is_override)
      json_put(entry, "pre_hook", json_null());
    if (is_override && own && !common)
      return error_set(error, "this Triton has no \"ir_override\" in a config");
    if (json_is_object(value))
      return error_set(error, "the winner has no %s, and the function's configs do not agree on it",
                       name);
    if (value || !is_override)
      json_put(entry, name, value ? json_incref(value) : json_null());
  }

  return true;
}

bool triton_tuned_add(struct cache_files *files, const struct triton_function *function,
                      const struct value *values, const json_t *config,
                      const struct release_winner *winner, struct error *error) {
  char folder[TRITON_FOLDER_LENGTH + 1];
  cleanup_json json_t *list = json_array(), *entry = json_object();
  return folder_make(function, values, list, folder, error) &&
         entry_make(function, config, entry, error) &&
         table_add(files, folder, function->record->function, list, entry, winner, error);
}

/* Imported tables */

/* Python writes and reads a bare Infinity, which JSON does not have: it becomes null, in place, and
 * is counted. */
static size_t infinities_replace(char *text, size_t size) {
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
  double ms[RELEASE_MS_MAX];
};

/* A benchmark that the user supplies may return one number; wavetune writes [] for what was not
 * measured. */
static bool timings_read(const json_t *json, const char *at, struct timings *ret,
                         size_t *n_infinities, struct error *error) {
  size_t n = json_is_array(json) ? json_array_size(json) : 1;
  if (n > RELEASE_MS_MAX || n == 2)
    return error_at(error, at,
                    "timings are the median and the 20th and 80th percentile, here are %zu numbers",
                    n);

  for (size_t i = 0; i < n; i++) {
    const json_t *element = json_is_array(json) ? json_array_get(json, i) : json;
    const char *below = POINTER_INDEX(at, i);
    *n_infinities += json_is_null(element);
    ret->ms[i] = json_is_null(element) ? INFINITY : json_number_value(element);
    if ((!json_is_null(element) && !json_is_number(element)) || ret->ms[i] < 0)
      return error_at(error, json_is_array(json) ? below : at,
                      "a timing must be a number of milliseconds, 0 or more, or Infinity");
  }

  ret->n = n;
  return true;
}

/* As Python compares lists. */
static bool timings_less(const struct timings *a, const struct timings *b) {
  for (size_t i = 0; i < a->n && i < b->n; i++)
    if (a->ms[i] != b->ms[i])
      return a->ms[i] < b->ms[i];
  return a->n < b->n;
}

static bool config_check(const json_t *json, const char *at, struct error *error) {
  static const char *const numbers[] = {"num_warps", "num_ctas", "num_stages"};
  char below[JSON_POINTER_SIZE];
  json_t *kwargs = json_object_get(json, "kwargs");
  if (!kwargs)
    return error_at(error, at, "a config must be an object with \"kwargs\"");

  json_members (json, name, value) {
    json_pointer_member(below, sizeof below, at, name);
    if (value == kwargs)
      continue;
    if (!is_fixed(name) && !string_equal(name, "pre_hook"))
      return error_at(error, below, "a config of Triton has no member \"%.60s\"", name);
    if (name_is_in(name, numbers) && !json_is_integer(value))
      return error_at(error, below, "\"%s\" must be an integer", name);
    if (string_equal(name, "pre_hook") && !json_is_null(value))
      return error_at(error, below,
                      "\"pre_hook\" must be null: Triton keeps no results for configs with hooks");
    if (!scalar_check(value, below, error))
      return false;
  }

  json_pointer_member(below, sizeof below, at, "kwargs");
  if (!json_is_object(kwargs))
    return error_at(error, below, "\"kwargs\" must be an object");

  json_members (kwargs, name, value) {
    if (!scalar_check(value, POINTER_MEMBER(below, name), error))
      return false;
    if (is_fixed(name) || json_object_get(json, name))
      return error_at(error, below, "\"%.60s\" is in kwargs and a member of the config", name);
  }

  return true;
}

static bool winner_find(const json_t *entries, const json_t **ret_config, struct timings *ret,
                        size_t *n_infinities, struct error *error) {

  *ret_config = NULL;
  if (json_array_size(entries) < 1 || json_array_size(entries) > ENTRIES_MAX)
    return error_at(error, "/configs_timings", "\"configs_timings\" must have 1 to %d configs",
                    ENTRIES_MAX);

  json_elements (entries, i, entry) {
    const json_t *config = json_array_get(entry, 0);
    struct timings timings;
    const char *at = POINTER_INDEX("/configs_timings", i);
    if (json_array_size(entry) != 2)
      return error_at(error, at, "an entry must be a pair of a config and its timings");
    if (!config_check(config, POINTER_INDEX(at, 0), error) ||
        !timings_read(json_array_get(entry, 1), POINTER_INDEX(at, 1), &timings, n_infinities,
                      error))
      return false;
    if (*ret_config && !timings_less(&timings, ret))
      continue;
    *ret_config = config;
    *ret = timings;
  }

  return !ret->n || !isinf(ret->ms[0]) ||
         error_at(error, "/configs_timings",
                  "no config ran: every timing is Infinity, so there is no winner");
}

bool triton_is_table(const char *path) {
  return string_ends(path, suffix) && strlen(path_name(path)) > strlen(suffix);
}

bool triton_read(const struct import_request *request, const struct cache_file *file,
                 struct imported *imported, struct error *error) {
  static const char *const members[] = {"key", "configs_timings", NULL};
  cleanup_json json_t *json = NULL;
  json_t *key = NULL, *entries = NULL, *value;
  const json_t *config;
  struct timings timings;
  (void)request;

  /* PREFIX/FOLDER/NAME.autotune.json */
  const char *name = path_name(file->path);
  cleanup_free char *function = xstrndup(name, strlen(name) - strlen(suffix)),
                    *folder = path_folder(file->path);
  if (!json_can_hold(file->path))
    return error_set(error, "the path is not UTF-8");
  if (!triton_folder_is_valid(folder, strlen(folder)))
    return error_set(error,
                     "its folder's name is not %d characters of base32, as Triton names folders",
                     TRITON_FOLDER_LENGTH);

  cleanup_free char *text = xmemdup(file->bytes, file->size + 1);
  size_t n_infinities = infinities_replace(text, file->size), n_found = 0;
  if (!json_parse(text, file->size, &json, error) || !json_only_members(json, "", members, error) ||
      !json_get_array(json, "", "key", JSON_REQUIRED, &key, error) ||
      !json_get_array(json, "", "configs_timings", JSON_REQUIRED, &entries, error) ||
      !winner_find(entries, &config, &timings, &n_found, error))
    return false;
  if (n_infinities != n_found)
    return error_set(error, "Infinity is only the timing of a config that did not run");

  const json_t *kwargs = json_object_get(config, "kwargs");
  cleanup_free char *kernel_name = xasprintf("triton/%s", function);
  json_t *exports = json_pack("{s:s, s:o, s:o}", "function", function, "kwargs",
                              config_names(kwargs), "members", config_names(config));
  cleanup_json json_t *manifest =
      external_manifest(kernel_name, json_pack("[s, s]", "folder", "key"), "triton", exports);
  cleanup_kernel struct kernel *parsed = NULL;
  if (!kernel_parse(manifest, &parsed, error))
    return error_prefix(error, "the function cannot be known by its name: ");

  size_t size;
  cleanup_free char *key_text = python_json(key, 0, &size);
  struct imported_entry *entry;
  if (!imported_entry_add(imported_external(imported, TAKE(manifest)),
                          json_pack("{s:s, s:s}", "folder", folder, "key", key_text), &entry,
                          error))
    return false;
  entry->provenance = json_pack("{s:s}", "source", file->path);
  entry->config = json_copy((json_t *)kwargs);

  json_object_foreach ((json_t *)config, name, value)
    if (is_fixed(name))
      json_put(entry->config, name, json_incref(value));

  /* A timing of 0 or Infinity counts as not known: a release cannot have it. */
  entry->n_ms = timings.n;

  for (size_t i = 0; i < timings.n; i++) {
    entry->ms[i] = timings.ms[i];
    if (!(timings.ms[i] > 0) || isinf(timings.ms[i]))
      entry->n_ms = 0;
  }

  return true;
}

bool triton_imported_add(struct cache_files *files, const json_t *exports,
                         const struct release_kernel *kernel, const struct release_winner *winner,
                         struct error *error) {
  const json_t *members = json_object_get(exports, "members"),
               *kwargs = json_object_get(exports, "kwargs"),
               *config = kernel->configs[winner->config].values;
  cleanup_json json_t *key = release_key_object(kernel, winner), *values = NULL,
                      *object = json_object();
  const char *function = json_text(exports, "function"), *folder = json_text(key, "folder"),
             *text = json_text(key, "key");

  if (!function || !*function || strchr(function, '/') || !json_array_size(members))
    return error_set(error, "its exports do not state the function and the members of its configs");
  if (!folder || !triton_folder_is_valid(folder, strlen(folder)) || !text ||
      !json_parse(text, strlen(text), &values, error) || !json_is_array(values))
    return error_set(error,
                     "its key is not a folder of Triton's cache and the JSON of a tuning key");

  for (size_t i = 0; i < json_array_size(members); i++) {
    const char *member = json_string_value(json_array_get(members, i));
    json_t *value = member && is_fixed(member) ? json_object_get(config, member) : NULL;
    if (string_equal(member, "pre_hook")) {
      json_put(object, member, json_null());
    } else if (string_equal(member, "kwargs")) {
      json_t *inner = json_object();
      json_put(object, member, inner);
      for (size_t j = 0; j < json_array_size(kwargs); j++) {
        const char *name = json_string_value(json_array_get(kwargs, j));
        json_t *kwarg = name ? json_object_get(config, name) : NULL;
        if (kwarg)
          json_put(inner, name, json_incref(kwarg));
      }
    } else if (value) {
      json_put(object, member, json_incref(value));
    } else {
      return error_set(error, "its config has no \"%.60s\"", member ? member : "");
    }
  }

  return table_add(files, folder, function, values, object, winner, error);
}
