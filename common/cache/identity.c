/* Reading identities of images, and finding what an image knows of a kernel.
 *
 * Memory: an identity owns everything. Threads: any; read-only after parsing. */
#include "common/cache/identity.h"

#include "common/cache/record_text.h"

#define FUNCTIONS_MAX 65536
#define VALIDATORS_MAX 64
#define DEVICES_MAX 1024

static bool parse_triton(const json_t *json, struct identity *identity, struct error *error) {
  json_t *triton = NULL;
  const char *at = "/triton";
  if (!json_get_object(json, "", "triton", JSON_OPTIONAL, &triton, error))
    return false;
  return !triton ||
         (record_take_text(triton, at, "version", JSON_REQUIRED, RECORD_TEXT_PART, &identity->triton_version, error) &&
          record_take_text(triton, at, "key", JSON_OPTIONAL, RECORD_TEXT_ANY, &identity->triton_key, error) &&
          record_take_text(triton, at, "backend_hash", JSON_OPTIONAL, RECORD_TEXT_ANY, &identity->backend_hash, error));
}

static bool parse_dejavu(const json_t *json, struct identity *identity, struct error *error) {
  json_t *dejavu = NULL;
  const char *at = "/dejavu";
  if (!json_get_object(json, "", "dejavu", JSON_OPTIONAL, &dejavu, error))
    return false;
  return !dejavu ||
         (record_take_text(dejavu, at, "layout", JSON_REQUIRED, RECORD_TEXT_PART, &identity->dejavu_layout, error) &&
          record_take_text(dejavu, at, "triton", JSON_REQUIRED, RECORD_TEXT_PART, &identity->dejavu_triton, error) &&
          record_take_text(dejavu, at, "runtime", JSON_REQUIRED, RECORD_TEXT_PART, &identity->dejavu_runtime, error) &&
          record_take_text(dejavu, at, "gpu", JSON_REQUIRED, RECORD_TEXT_PART, &identity->dejavu_gpu, error));
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
      !record_take_text(json, "", "torch", JSON_OPTIONAL, RECORD_TEXT_PART, &identity->torch, error) ||
      !record_take_text(json, "", "gpu", JSON_OPTIONAL, RECORD_TEXT_ANY, &identity->gpu, error) ||
      !record_take_text(json, "", "moe_device_name", JSON_OPTIONAL, RECORD_TEXT_PART, &identity->moe_device_name,
                        error) ||
      !json_get_integer(json, "", "devices", JSON_OPTIONAL, 0, DEVICES_MAX, &identity->devices, error) ||
      !parse_variables(json, identity, error) || !parse_dejavu(json, identity, error) ||
      !parse_validators(json, identity, error) || !parse_functions(json, identity, error))
    return false;
  identity->json = json_deep_copy(json);
  ALWAYS(identity->json != NULL);
  *ret = TAKE(identity);
  return true;
}

void identity_free(struct identity *identity) {
  char *const texts[] = {identity->triton_version, identity->triton_key,    identity->backend_hash,
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
  json_decref(identity->json);
  free(identity);
}

static bool is_kernel(const struct function_record *record, const struct digest *kernel) {
  return record->has_kernel && digest_equal(&record->kernel, kernel);
}

static bool is_text(const struct function_record *record, const struct function_record *packed) {
  return packed && packed->source_sha256 && string_equal(record->source_sha256, packed->source_sha256) &&
         string_equal(record->function, packed->function);
}

const struct function_record *identity_function(const struct identity *identity, const struct digest *kernel,
                                                const char *name, const struct function_record *packed) {
  size_t n = identity ? identity->n_functions : 0;
  for (size_t i = 0; i < n; i++) {
    if (is_kernel(&identity->functions[i], kernel))
      return &identity->functions[i];
  }
  for (size_t i = 0; i < n; i++) {
    if (identity->functions[i].name && string_equal(identity->functions[i].name, name))
      return &identity->functions[i];
  }
  for (size_t i = 0; i < n; i++) {
    if (is_text(&identity->functions[i], packed))
      return &identity->functions[i];
  }
  return NULL;
}
