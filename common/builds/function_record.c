/* Reading function records: what goes into paths of caches is checked here, once.
 *
 * Memory: a record owns everything; nothing is kept of what was refused. Threads: any. */
#include "common/builds/function_record.h"

#include "common/builds/record_text.h"

#define CONFIGS_MAX 65536
#define NAMES_MAX 256

static bool take_texts(const json_t *object, const char *name, size_t max, char ***ret,
                       size_t *ret_n, struct error *error) {
  json_t *array = NULL, *element;
  char list_at[JSON_POINTER_SIZE], at[JSON_POINTER_SIZE];
  size_t i;
  if (!json_get_array(object, "", name, JSON_OPTIONAL, &array, error))
    return false;
  json_pointer_member(list_at, sizeof list_at, "", name);
  if (json_array_size(array) > max)
    return error_at(error, list_at, "\"%s\" has %zu elements; at most %zu are allowed", name,
                    json_array_size(array), max);
  if (!json_array_size(array))
    return true;
  *ret = xcalloc(json_array_size(array), sizeof **ret);
  json_array_foreach (array, i, element) {
    size_t length = json_string_length(element);
    if (!json_is_string(element) || length < 1 || length > RECORD_TEXT_MAX)
      return error_at(error, json_pointer_index(at, sizeof at, list_at, i),
                      "an element of \"%s\" must be a string of 1 to %d bytes", name,
                      RECORD_TEXT_MAX);
    (*ret)[(*ret_n)++] = xstrdup(json_string_value(element));
  }
  return true;
}

static bool parse_triton(const json_t *json, struct function_record *record, struct error *error) {
  json_t *triton = NULL;
  if (!json_get_object(json, "", "triton", JSON_OPTIONAL, &triton, error))
    return false;
  return !triton || (record_take_text(triton, "/triton", "version", JSON_OPTIONAL, RECORD_TEXT_PART,
                                      &record->triton_version, error) &&
                     record_take_text(triton, "/triton", "key", JSON_OPTIONAL, RECORD_TEXT_ANY,
                                      &record->triton_key, error) &&
                     record_take_text(triton, "/triton", "backend_hash", JSON_OPTIONAL,
                                      RECORD_TEXT_ANY, &record->backend_hash, error));
}

static bool parse_function(const json_t *json, struct function_record *record,
                           struct error *error) {
  json_t *function = NULL;
  const char *at = "/function";
  return json_get_object(json, "", "function", JSON_REQUIRED, &function, error) &&
         record_take_text(function, at, "module", JSON_OPTIONAL, RECORD_TEXT_ANY, &record->module,
                          error) &&
         record_take_text(function, at, "name", JSON_REQUIRED, RECORD_TEXT_PART, &record->function,
                          error) &&
         record_take_text(function, at, "qualname", JSON_OPTIONAL, RECORD_TEXT_PART,
                          &record->qualname, error) &&
         record_take_text(function, at, "signature", JSON_OPTIONAL, RECORD_TEXT_ANY,
                          &record->signature, error) &&
         record_take_text(function, at, "cache_key", JSON_OPTIONAL, RECORD_TEXT_ANY,
                          &record->cache_key, error) &&
         record_take_text(function, at, "source_sha256", JSON_OPTIONAL, RECORD_TEXT_ANY,
                          &record->source_sha256, error);
}

static bool is_hex_hash(const char *text) {
  return strlen(text) == 64 && strspn(text, "0123456789abcdef") == 64;
}

/* The members of dejavu's object that become parts of paths; the rest is the renderer's. */
static bool check_dejavu(const json_t *dejavu, struct error *error) {
  static const char *const hashes[] = {"autotune_config", "code_version", "tune_features",
                                       "kernel_configs"};
  char at[JSON_POINTER_SIZE];
  cleanup_free char *layout = NULL;
  for (size_t i = 0; i < ARRAY_LENGTH(hashes); i++) {
    const char *text = NULL;
    if (!json_get_string(dejavu, "/dejavu", hashes[i], JSON_OPTIONAL, &text, error))
      return false;
    if (text && !is_hex_hash(text))
      return error_at(error, json_pointer_member(at, sizeof at, "/dejavu", hashes[i]),
                      "\"%s\" must be 64 lower-case hexadecimal digits", hashes[i]);
  }
  return record_take_text(dejavu, "/dejavu", "layout", JSON_OPTIONAL, RECORD_TEXT_PART, &layout,
                          error);
}

/* "tuning_key" has as many elements as "key_names", so that one count serves both, also when one of
 * them is refused. */
static bool parse_lists(const json_t *json, struct function_record *record, struct error *error) {
  size_t n_names = json_array_size(json_object_get(json, "key_names")), n = 0;
  if (json_array_size(json_object_get(json, "tuning_key")) != n_names)
    return error_at(error, "/tuning_key",
                    "\"tuning_key\" has %zu elements and \"key_names\" %zu: each name has one",
                    json_array_size(json_object_get(json, "tuning_key")), n_names);
  return take_texts(json, "key_names", NAMES_MAX, &record->key_names, &record->n_key_names,
                    error) &&
         take_texts(json, "tuning_key", NAMES_MAX, &record->tuning_key, &n, error) &&
         take_texts(json, "argument_dtypes", NAMES_MAX, &record->dtypes, &record->n_dtypes,
                    error) &&
         take_texts(json, "configs", CONFIGS_MAX, &record->configs, &record->n_configs, error);
}

static bool parse_objects(const json_t *json, struct function_record *record, struct error *error) {
  json_t *autotune = NULL, *dejavu = NULL;
  if (!json_get_object(json, "", "autotune", JSON_OPTIONAL, &autotune, error) ||
      !json_get_object(json, "", "dejavu", JSON_OPTIONAL, &dejavu, error) ||
      (dejavu && !check_dejavu(dejavu, error)))
    return false;
  record->autotune = json_deep_copy(autotune);
  record->dejavu = json_deep_copy(dejavu);
  return true;
}

static void cleanup_function_record(struct function_record *record) {
  function_record_release(record);
}

bool function_record_parse(const json_t *json, struct function_record *ret, struct error *error) {
  __attribute__((cleanup(cleanup_function_record))) struct function_record record = {0};
  if (!json_is_object(json))
    return error_set(error, "a function record must be an object");
  record.has_kernel = json_is_string(json_object_get(json, "kernel"));
  if (!json_get_digest(json, "", "kernel", JSON_OPTIONAL, &record.kernel, error) ||
      !record_take_text(json, "", "name", JSON_OPTIONAL, RECORD_TEXT_ANY, &record.name, error))
    return false;
  if (!record.has_kernel && !record.name)
    return error_set(error, "a function record states the wavetune kernel that it stands for: "
                            "\"kernel\", \"name\" or both");
  if (!parse_triton(json, &record, error) || !parse_function(json, &record, error) ||
      !parse_lists(json, &record, error) || !parse_objects(json, &record, error))
    return false;
  *ret = record;
  record = (struct function_record){0};
  return true;
}

static void texts_free(char **texts, size_t n) {
  for (size_t i = 0; texts && i < n; i++)
    free(texts[i]);
  free(texts);
}

void function_record_release(struct function_record *record) {
  char *const texts[] = {record->name,         record->triton_version, record->triton_key,
                         record->module,       record->backend_hash,   record->function,
                         record->qualname,     record->signature,      record->cache_key,
                         record->source_sha256};
  for (size_t i = 0; i < ARRAY_LENGTH(texts); i++)
    free(texts[i]);
  texts_free(record->key_names, record->n_key_names);
  texts_free(record->tuning_key, record->n_key_names);
  texts_free(record->dtypes, record->n_dtypes);
  texts_free(record->configs, record->n_configs);
  json_decref(record->autotune);
  json_decref(record->dejavu);
  *record = (struct function_record){0};
}
