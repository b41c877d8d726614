/* Paths and files of Triton's cache of autotuning.
 *
 * Memory: a function owns what it made and borrows its record. Threads: any; nothing is shared. */
#include "common/cache/triton_function.h"

#include "common/cache/python_text.h"

#define FILE_NAME_CHARACTERS 150 /* what Triton keeps of a function's name */

/* In the order in which triton.Config holds them; pre_hook stands before ir_override. */
static const char *const fixed_names[] = {"num_warps", "num_ctas", "num_stages", "maxnreg", "ir_override"};

/* Options of AMD's compiler that a config may state, or leave at the back end's default, whether or not the function's own
 * configs do. */
static const char *const option_names[] = {"waves_per_eu", "matrix_instr_nonkdim", "kpack", "schedule_hint"};

static bool is_among(const char *name, const char *const *names, size_t n) {
  for (size_t i = 0; i < n; i++) {
    if (strcmp(name, names[i]) == 0)
      return true;
  }
  return false;
}

static bool is_option(const char *name) { return is_among(name, option_names, ARRAY_LENGTH(option_names)); }

bool triton_config_is_fixed(const char *name) { return is_among(name, fixed_names, ARRAY_LENGTH(fixed_names)); }

char *triton_autotune_file(const char *function) {
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
static void take_member(struct triton_function *function, const char *name, const char *value, bool is_first_config) {
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
static void take_config(struct triton_function *function, const char *config, bool is_first_config) {
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

static int compare_names(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

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
    const struct value pair[] = {value_string(names[i]),
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
static bool make_hashed(struct triton_function *function, bool is_packed, const struct identity *identity,
                        struct error *error) {
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
    return error_set(error, "its record has no %s; record it inside the image with `python3 -m wavetune identity`",
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

static bool check_record(const struct function_record *record, const char *version, const struct identity *identity,
                         struct error *error) {
  const char *decorator = json_string_value(json_object_get(record->autotune, "decorator"));
  if (!version)
    return error_set(error, "its record does not say the version of Triton");
  if (!version_has_cache(version))
    return error_set(error, "Triton %.40s keeps no results of autotuning: 3.4 is the first that does", version);
  if (identity && identity->triton_version && strcmp(identity->triton_version, version) != 0)
    return error_set(error,
                     "its record is of Triton %.40s and the image has %.40s; record the function inside the image",
                     version, identity->triton_version);
  if (decorator && strcmp(decorator, "triton") != 0)
    return error_set(error, "its function is tuned by %.40s, not by @triton.autotune", decorator);
  if (record->n_configs < 2)
    return error_set(error, "its function has %zu config%s, and Triton looks for results of two and more only",
                     record->n_configs, record->n_configs == 1 ? "" : "s");
  if (json_is_true(json_object_get(record->autotune, "pre_hooks")))
    return error_set(error, "its function has configs with a pre_hook, for which Triton keeps no results");
  if (json_is_true(json_object_get(record->autotune, "prunes")))
    return error_set(error,
                     "its function prunes its configs by the arguments, so that what Triton looks for is not known");
  return true;
}

bool triton_function_init(const struct function_record *record, bool is_packed, const struct identity *identity,
                          const struct kernel *kernel, const char *const *key_names, size_t n_key_names,
                          struct triton_function *ret, struct error *error) {
  __attribute__((cleanup(triton_function_release))) struct triton_function function = {.record = record};
  const char *version = record->triton_version ? record->triton_version : identity ? identity->triton_version : NULL;
  if (!check_record(record, version, identity, error) || !make_hashed(&function, is_packed, identity, error) ||
      !tuning_key_bind(record, kernel, key_names, n_key_names, &function.key, error))
    return false;
  if (function.key.n + function.key.n_dtypes == 0)
    return error_set(error, "its function has an empty tuning key, for which Triton keeps no results");
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
      return error_prefix(error,
                          "the value of \"%.60s\" in the function's tuning key: ", function->record->key_names[i]);
    ALWAYS(json_array_append_new(list, value_to_json(values[i])) == 0);
  }
  if (!python_tuple_repr(values, n, &tuple, error))
    return error_prefix(error, "the function's tuning key: ");
  cleanup_free char *hashed = xasprintf("%s%s%s", function->before, tuple, function->after);
  struct digest digest = digest_of(hashed, strlen(hashed));
  triton_folder_format(&digest, folder);
  return true;
}

static bool take_kwargs(const struct triton_function *function, const json_t *config, json_t *kwargs,
                        struct error *error) {
  const char *name;
  json_t *value, *count;
  json_object_foreach (function->kwargs, name, count) {
    value = json_object_get(config, name);
    if (value)
      ALWAYS(json_object_set(kwargs, name, value) == 0);
    else if ((size_t)json_integer_value(count) == function->record->n_configs && !is_option(name))
      return error_set(error,
                       "the winner has no \"%.60s\", which all of the function's configs have: it would be launched "
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
static bool take_fixed(const struct triton_function *function, const char *name, const json_t *config, json_t *entry,
                       struct error *error) {
  json_t *value = json_object_get(config, name);
  if (!value)
    value = json_object_get(function->fixed, name);
  if (json_is_object(value))
    return error_set(error, "the winner has no %s, and the function's configs do not agree on it", name);
  if (!value && strcmp(name, "ir_override") == 0)
    return true;
  ALWAYS((value ? json_object_set(entry, name, value) : json_object_set_new(entry, name, json_null())) == 0);
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

json_t *triton_timings(const double *ms, size_t n_ms) {
  double timings[3];
  for (size_t i = 0; i < ARRAY_LENGTH(timings) && n_ms; i++)
    timings[i] = ms[n_ms == 1 ? 0 : i];
  return json_numbers(timings, n_ms ? ARRAY_LENGTH(timings) : 0);
}

bool triton_function_render(const struct triton_function *function, const struct value *key, const json_t *config,
                            const double *ms, size_t n_ms, char **ret_path, char **ret_bytes, size_t *ret_size,
                            struct error *error) {
  char folder[TRITON_FOLDER_LENGTH + 1];
  cleanup_json json_t *list = json_array(), *entry = json_object();
  ALWAYS(list && entry);
  if (!make_key(function, key, list, folder, error) || !make_entry(function, config, entry, error))
    return false;
  cleanup_json json_t *file =
      json_pack("{s:O, s:[[O, o]]}", "key", list, "configs_timings", entry, triton_timings(ms, n_ms));
  ALWAYS(file != NULL);
  *ret_bytes = python_json(file, 0, ret_size);
  *ret_path = xasprintf("%s/%s", folder, function->file);
  return true;
}
