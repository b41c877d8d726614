/* Reading identities of images, and finding an image's record of a kernel. Memory and threads:
 * identity.h. */
#include "common/cache/identity.h"

#include "common/builds/function_record.h"

#define FUNCTIONS_MAX 65536
#define VALIDATORS_MAX 64
#define DEVICES_MAX 1024

static const struct {
  const char *object, *name; /* object: the member that contains the text; NULL: the document */
  enum json_presence presence;
  enum record_text_kind kind;
  size_t offset; /* of a char * */
} texts[] = {
#define AT(member) offsetof(struct identity, member)
    {"triton", "version", JSON_REQUIRED, RECORD_TEXT_PART, AT(triton_version)},
    {"triton", "key", JSON_OPTIONAL, RECORD_TEXT_ANY, AT(triton_key)},
    {"triton", "backend_hash", JSON_OPTIONAL, RECORD_TEXT_ANY, AT(backend_hash)},
    {NULL, "torch", JSON_OPTIONAL, RECORD_TEXT_PART, AT(torch)},
    {NULL, "gpu", JSON_OPTIONAL, RECORD_TEXT_ANY, AT(gpu)},
    {NULL, "moe_device_name", JSON_OPTIONAL, RECORD_TEXT_PART, AT(moe_device_name)},
    {"dejavu", "layout", JSON_REQUIRED, RECORD_TEXT_PART, AT(dejavu_layout)},
    {"dejavu", "triton", JSON_REQUIRED, RECORD_TEXT_PART, AT(dejavu_triton)},
    {"dejavu", "runtime", JSON_REQUIRED, RECORD_TEXT_PART, AT(dejavu_runtime)},
    {"dejavu", "gpu", JSON_REQUIRED, RECORD_TEXT_PART, AT(dejavu_gpu)},
#undef AT
};

static char **text_at(struct identity *identity, size_t i) {
  return (char **)((char *)identity + texts[i].offset);
}

static bool texts_read(const json_t *json, struct identity *identity, struct error *error) {
  for (size_t i = 0; i < ARRAY_LENGTH(texts); i++) {
    json_t *object = (json_t *)(uintptr_t)json;
    char at[JSON_POINTER_SIZE] = "";
    if (texts[i].object) {
      object = NULL;
      json_pointer_member(at, sizeof at, "", texts[i].object);
      if (!json_get_object(json, "", texts[i].object, JSON_OPTIONAL, &object, error))
        return false;
    }
    if (object && !record_take_text(object, at, texts[i].name, texts[i].presence, texts[i].kind,
                                    text_at(identity, i), error))
      return false;
  }

  return true;
}

/* Names and values are written to lines of a CSV, between commas. */
static bool is_validator_text(const json_t *value) {
  const char *text = json_string_value(value);
  if (!text || !*text || strlen(text) > RECORD_TEXT_MAX)
    return false;
  for (; *text; text++)
    if ((unsigned char)*text < 0x20 || *text == 0x7f || *text == ',')
      return false;
  return true;
}

static bool validators_read(const json_t *json, struct identity *identity, struct error *error) {
  json_t *tunableop = NULL, *validators = NULL;
  const char *list_at = "/tunableop/validators";
  if (!json_get_object(json, "", "tunableop", JSON_OPTIONAL, &tunableop, error))
    return false;
  if (!tunableop)
    return true;
  if (!json_get_array(tunableop, "/tunableop", "validators", JSON_REQUIRED, &validators, error))
    return false;
  if (json_array_size(validators) < 1 || json_array_size(validators) > VALIDATORS_MAX)
    return error_at(error, list_at, "\"validators\" must have 1 to %d pairs", VALIDATORS_MAX);

  json_elements (validators, i, pair)
    if (json_array_size(pair) != 2 || !is_validator_text(json_array_get(pair, 0)) ||
        !is_validator_text(json_array_get(pair, 1)))
      return error_at(error, POINTER_INDEX(list_at, i),
                      "a validator must be a pair of texts "
                      "without commas and control characters");

  identity->validators = json_deep_copy(validators);
  return true;
}

/* The hash of a function's text and its name; NULL where the record has no hash. */
static char *source_of(const struct function_record *record) {
  return record->source_sha256 ? xasprintf("%s %s", record->source_sha256, record->function) : NULL;
}

static void index_add(json_t *by, const char *text, size_t index) {
  if (text && !json_object_get(by, text))
    json_put(by, text, json_integer((json_int_t)index));
}

static bool functions_read(const json_t *json, struct identity *identity, struct error *error) {
  json_t *functions = NULL;
  char at[JSON_POINTER_SIZE];

  identity->by_hash = json_object();
  identity->by_name = json_object();
  identity->by_text = json_object();
  if (!json_get_array(json, "", "functions", JSON_OPTIONAL, &functions, error))
    return false;
  if (json_array_size(functions) > FUNCTIONS_MAX)
    return error_at(error, "/functions", "an identity has at most %d functions", FUNCTIONS_MAX);

  identity->functions = xcalloc(json_array_size(functions) + 1, sizeof *identity->functions);
  json_elements (functions, i, function) {
    struct function_record *record = &identity->functions[i];
    if (!function_record_parse(function, record, error))
      return error_pointer_prefix(error, json_pointer_index(at, sizeof at, "/functions", i));
    identity->n_functions++;
    cleanup_free char *source = source_of(record);
    index_add(identity->by_hash, record->has_kernel ? DIGEST_TEXT(&record->kernel) : NULL, i);
    index_add(identity->by_name, record->name, i);
    index_add(identity->by_text, source, i);
  }

  return true;
}

bool identity_parse(const json_t *json, struct identity **ret, struct error *error) {
  cleanup_identity struct identity *identity = xcalloc(1, sizeof *identity);
  json_t *variables = NULL;
  int64_t version;

  if (!json_is_object(json))
    return error_set(error, "an identity must be an object");
  if (!json_get_integer(json, "", "version", JSON_REQUIRED, 1, 1, &version, error) ||
      !json_get_integer(json, "", "devices", JSON_OPTIONAL, 0, DEVICES_MAX, &identity->devices,
                        error) ||
      !json_get_object(json, "", "variables", JSON_OPTIONAL, &variables, error))
    return false;

  json_members (variables, name, value)
    if (!json_is_string(value))
      return error_at(error, POINTER_MEMBER("/variables", name),
                      "the value of a variable must be a string");
  identity->variables = json_deep_copy(variables);

  if (!texts_read(json, identity, error) || !validators_read(json, identity, error) ||
      !functions_read(json, identity, error))
    return false;
  identity->json = json_deep_copy(json);
  *ret = TAKE(identity);
  return true;
}

void identity_free(struct identity *identity) {
  for (size_t i = 0; i < ARRAY_LENGTH(texts); i++)
    free(*text_at(identity, i));
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

const struct function_record *identity_function(const struct identity *identity,
                                                const struct digest *kernel, const char *name,
                                                const struct function_record *packed) {
  if (!identity)
    return NULL;

  cleanup_free char *source = packed ? source_of(packed) : NULL;
  const json_t *index = json_object_get(identity->by_hash, DIGEST_TEXT(kernel));
  if (!index)
    index = json_object_get(identity->by_name, name);
  if (!index && source)
    index = json_object_get(identity->by_text, source);
  return index ? &identity->functions[json_integer_value(index)] : NULL;
}
