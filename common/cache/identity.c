/* Reading identities of images, and finding what an image knows of a kernel.
 *
 * Memory: an identity owns everything. Threads: any; read-only after parsing. */
#include "common/cache/identity.h"

#include "common/builds/record_text.h"

#define FUNCTIONS_MAX 65536
#define VALIDATORS_MAX 64
#define DEVICES_MAX 1024

static bool parse_triton(const json_t *json, struct identity *identity, struct error *error) {
  json_t *triton = NULL;
  const char *at = "/triton";
  if (!json_get_object(json, "", "triton", JSON_OPTIONAL, &triton, error))
    return false;
  return !triton || (record_take_text(triton, at, "version", JSON_REQUIRED, RECORD_TEXT_PART,
                                      &identity->triton_version, error) &&
                     record_take_text(triton, at, "key", JSON_OPTIONAL, RECORD_TEXT_ANY,
                                      &identity->triton_key, error) &&
                     record_take_text(triton, at, "backend_hash", JSON_OPTIONAL, RECORD_TEXT_ANY,
                                      &identity->backend_hash, error));
}

static bool parse_dejavu(const json_t *json, struct identity *identity, struct error *error) {
  json_t *dejavu = NULL;
  const char *at = "/dejavu";
  if (!json_get_object(json, "", "dejavu", JSON_OPTIONAL, &dejavu, error))
    return false;
  return !dejavu || (record_take_text(dejavu, at, "layout", JSON_REQUIRED, RECORD_TEXT_PART,
                                      &identity->dejavu_layout, error) &&
                     record_take_text(dejavu, at, "triton", JSON_REQUIRED, RECORD_TEXT_PART,
                                      &identity->dejavu_triton, error) &&
                     record_take_text(dejavu, at, "runtime", JSON_REQUIRED, RECORD_TEXT_PART,
                                      &identity->dejavu_runtime, error) &&
                     record_take_text(dejavu, at, "gpu", JSON_REQUIRED, RECORD_TEXT_PART,
                                      &identity->dejavu_gpu, error));
}

static bool parse_variables(const json_t *json, struct identity *identity, struct error *error) {
  json_t *variables = NULL, *value;
  const char *name;
  char at[JSON_POINTER_SIZE];
  if (!json_get_object(json, "", "variables", JSON_OPTIONAL, &variables, error))
    return false;
  json_object_foreach (variables, name, value) {
    if (!json_is_string(value))
      return error_at(error, json_pointer_member(at, sizeof at, "/variables", name),
                      "the value of a variable must be a string");
  }
  identity->variables = json_deep_copy(variables);
  return true;
}

/* Names and values stand in lines of a CSV, between commas. */
static bool is_validator_text(const json_t *value) {
  const char *text = json_string_value(value);
  if (!text || !*text || strlen(text) > RECORD_TEXT_MAX)
    return false;
  for (; *text; text++) {
    if ((unsigned char)*text < 0x20 || *text == 0x7f || *text == ',')
      return false;
  }
  return true;
}

static bool parse_validators(const json_t *json, struct identity *identity, struct error *error) {
  json_t *tunableop = NULL, *validators = NULL, *pair;
  char at[JSON_POINTER_SIZE];
  const char *list_at = "/tunableop/validators";
  size_t i;
  if (!json_get_object(json, "", "tunableop", JSON_OPTIONAL, &tunableop, error))
    return false;
  if (!tunableop)
    return true;
  if (!json_get_array(tunableop, "/tunableop", "validators", JSON_REQUIRED, &validators, error))
    return false;
  if (json_array_size(validators) < 1 || json_array_size(validators) > VALIDATORS_MAX)
    return error_at(error, list_at, "\"validators\" must have 1 to %d pairs", VALIDATORS_MAX);
  json_array_foreach (validators, i, pair) {
    if (json_array_size(pair) != 2 || !is_validator_text(json_array_get(pair, 0)) ||
        !is_validator_text(json_array_get(pair, 1)))
      return error_at(error, json_pointer_index(at, sizeof at, list_at, i),
                      "a validator must be a pair of texts without commas and control characters");
  }
  identity->validators = json_deep_copy(validators);
  return true;
}

/* The text of a function and its name, where the record has them. */
static char *text_of(const struct function_record *record) {
  return record->source_sha256 ? xasprintf("%s %s", record->source_sha256, record->function) : NULL;
}

static void index_add(json_t *by, const char *text, size_t index) {
  if (text && !json_object_get(by, text))
    ALWAYS(json_object_set_new(by, text, json_integer((json_int_t)index)) == 0);
}

static void functions_index(struct identity *identity) {
  identity->by_hash = json_object();
  identity->by_name = json_object();
  identity->by_text = json_object();
  for (size_t i = 0; i < identity->n_functions; i++) {
    const struct function_record *record = &identity->functions[i];
    char hash[DIGEST_TEXT_SIZE];
    cleanup_free char *text = text_of(record);
    index_add(identity->by_hash, record->has_kernel ? digest_format(&record->kernel, hash) : NULL,
              i);
    index_add(identity->by_name, record->name, i);
    index_add(identity->by_text, text, i);
  }
}

static bool parse_functions(const json_t *json, struct identity *identity, struct error *error) {
  json_t *functions = NULL, *function;
  char at[JSON_POINTER_SIZE];
  size_t i;
  if (!json_get_array(json, "", "functions", JSON_OPTIONAL, &functions, error))
    return false;
  if (json_array_size(functions) > FUNCTIONS_MAX)
    return error_at(error, "/functions", "an identity has at most %d functions", FUNCTIONS_MAX);
  if (!json_array_size(functions))
    return true;
  identity->functions = xcalloc(json_array_size(functions), sizeof *identity->functions);
  json_array_foreach (functions, i, function) {
    if (!function_record_parse(function, &identity->functions[i], error))
      return error_pointer_prefix(error, json_pointer_index(at, sizeof at, "/functions", i));
    identity->n_functions++;
  }
  return true;
}

bool identity_parse(const json_t *json, struct identity **ret, struct error *error) {
  cleanup_identity struct identity *identity = xcalloc(1, sizeof *identity);
  int64_t version;
  if (!json_is_object(json))
    return error_set(error, "an identity must be an object");
  if (!json_get_integer(json, "", "version", JSON_REQUIRED, 1, 1, &version, error) ||
      !parse_triton(json, identity, error) ||
      !record_take_text(json, "", "torch", JSON_OPTIONAL, RECORD_TEXT_PART, &identity->torch,
                        error) ||
      !record_take_text(json, "", "gpu", JSON_OPTIONAL, RECORD_TEXT_ANY, &identity->gpu, error) ||
      !record_take_text(json, "", "moe_device_name", JSON_OPTIONAL, RECORD_TEXT_PART,
                        &identity->moe_device_name, error) ||
      !json_get_integer(json, "", "devices", JSON_OPTIONAL, 0, DEVICES_MAX, &identity->devices,
                        error) ||
      !parse_variables(json, identity, error) || !parse_dejavu(json, identity, error) ||
      !parse_validators(json, identity, error) || !parse_functions(json, identity, error))
    return false;
  functions_index(identity);
  identity->json = json_deep_copy(json);
  ALWAYS(identity->json != NULL);
  *ret = TAKE(identity);
  return true;
}

void identity_free(struct identity *identity) {
  char *const texts[] = {
      identity->triton_version, identity->triton_key,    identity->backend_hash,
      identity->torch,          identity->gpu,           identity->moe_device_name,
      identity->dejavu_layout,  identity->dejavu_triton, identity->dejavu_runtime,
      identity->dejavu_gpu};
  for (size_t i = 0; i < ARRAY_LENGTH(texts); i++)
    free(texts[i]);
  for (size_t i = 0; i < identity->n_functions; i++)
    function_record_release(&identity->functions[i]);
  free(identity->functions);
  json_decref(identity->variables);
  json_decref(identity->validators);
  json_decref(identity->by_hash);
  json_decref(identity->by_name);
  json_decref(identity->by_text);
  json_decref(identity->json);
  free(identity);
}

static const struct function_record *function_of(const struct identity *identity, const json_t *by,
                                                 const char *text) {
  const json_t *index = text ? json_object_get(by, text) : NULL;
  return index ? &identity->functions[json_integer_value(index)] : NULL;
}

const struct function_record *identity_function(const struct identity *identity,
                                                const struct digest *kernel, const char *name,
                                                const struct function_record *packed) {
  char hash[DIGEST_TEXT_SIZE];
  cleanup_free char *text = packed ? text_of(packed) : NULL;
  if (!identity)
    return NULL;
  const struct function_record *found =
      function_of(identity, identity->by_hash, digest_format(kernel, hash));
  found = found ? found : function_of(identity, identity->by_name, name);
  return found ? found : function_of(identity, identity->by_text, text);
}
