/* Function records, texts of records that become parts of paths, and names of folders in Triton's
 * cache. */
#include "common/builds/function_record.h"

#define CONFIGS_MAX 65536
#define NAMES_MAX 256

static bool any_check(const char *text, struct error *error) {
  size_t length = strlen(text);
  return (length >= 1 && length <= RECORD_TEXT_MAX) ||
         error_set(error, "a text must have 1 to %d bytes", RECORD_TEXT_MAX);
}

static bool part_check(const char *text, struct error *error) {
  size_t length = strlen(text);
  if (length < 1 || length > RECORD_TEXT_PART_MAX)
    return error_set(error, "a part of a path must have 1 to %d bytes", RECORD_TEXT_PART_MAX);
  return (!strchr(text, '/') && !string_equal(text, ".") && !string_equal(text, "..")) ||
         error_set(error, "a part of a path must hold no '/' and not be \".\" or \"..\"");
}

int triton_version_number(const char *text) {
  int major = 0, minor = 0;
  if (!text || sscanf(text, "%2d.%2d", &major, &minor) != 2 || major < 0 || minor < 0)
    return 0;
  return major * 100 + minor;
}

static bool hash_check(const char *text, struct error *error) {
  return (strlen(text) == 64 && strspn(text, "0123456789abcdef") == 64) ||
         error_set(error, "a hash must be 64 lower-case hexadecimal digits");
}

bool record_take_text(const json_t *object, const char *pointer, const char *name,
                      enum json_presence presence, enum record_text_kind kind, char **ret,
                      struct error *error) {
  const char *text = NULL;

  if (!json_get_string(object, pointer, name, presence, &text, error))
    return false;
  if (!text)
    return true;
  if (!(kind == RECORD_TEXT_PART ? part_check : any_check)(text, error))
    return error_pointer_prefix(error, POINTER_MEMBER(pointer, name));
  *ret = xstrdup(text);
  return true;
}

#define AT(member) offsetof(struct function_record, member)
#define WITHIN(first, member) (AT(member) - AT(first))

static const struct field triton_fields[] = {
    {"version", FIELD_TEXT, WITHIN(triton_version, triton_version), .check = part_check},
    {"key", FIELD_TEXT, WITHIN(triton_version, triton_key), .check = any_check},
    {"backend_hash", FIELD_TEXT, WITHIN(triton_version, backend_hash), .check = any_check},
};
static const struct record triton_record = {NULL, triton_fields, ARRAY_LENGTH(triton_fields),
                                            WITHIN(triton_version, module)};

static const struct field function_fields[] = {
    {"module", FIELD_TEXT, WITHIN(module, module), .check = any_check},
    {"name", FIELD_TEXT, WITHIN(module, function), FIELD_REQUIRED, .check = part_check},
    {"qualname", FIELD_TEXT, WITHIN(module, qualname), .check = part_check},
    {"signature", FIELD_TEXT, WITHIN(module, signature), .check = any_check},
    {"cache_key", FIELD_TEXT, WITHIN(module, cache_key), .check = any_check},
    {"source_sha256", FIELD_TEXT, WITHIN(module, source_sha256), .check = any_check},
    {"closure", FIELD_DIGEST, WITHIN(module, closure)},
};
static const struct record function_only_record = {
    NULL, function_fields, ARRAY_LENGTH(function_fields), WITHIN(module, n_key_names)};

static const struct field record_fields[] = {
    RECORD_FIELD(DIGEST, struct function_record, kernel),
    RECORD_FIELD(TEXT, struct function_record, name, .check = any_check),
    {"triton", FIELD_RECORD, AT(triton_version), .of = &triton_record},
    {"function", FIELD_RECORD, AT(module), FIELD_REQUIRED, .of = &function_only_record},
    {"key_names", FIELD_TEXTS, AT(n_key_names), .most = NAMES_MAX, .check = any_check},
    {"tuning_key", FIELD_TEXTS, AT(n_tuning_key), .most = NAMES_MAX, .check = any_check},
    {"argument_dtypes", FIELD_TEXTS, AT(n_dtypes), .most = NAMES_MAX, .check = any_check},
    {"configs", FIELD_TEXTS, AT(n_configs), .most = CONFIGS_MAX, .check = any_check},
    RECORD_FIELD(JSON, struct function_record, autotune, FIELD_OBJECT),
    RECORD_FIELD(JSON, struct function_record, dejavu, FIELD_OBJECT),
};
static const struct record packed_record = RECORD(NULL, struct function_record, record_fields);

/* The members of dejavu's object that become parts of paths; renderers read the others. */
struct dejavu_parts {
  char *parts[5];
};
#define PART(i) offsetof(struct dejavu_parts, parts[i])
PRIVATE_RECORD(dejavu, struct dejavu_parts,
               {"autotune_config", FIELD_TEXT, PART(0), .check = hash_check},
               {"code_version", FIELD_TEXT, PART(1), .check = hash_check},
               {"tune_features", FIELD_TEXT, PART(2), .check = hash_check},
               {"kernel_configs", FIELD_TEXT, PART(3), .check = hash_check},
               {"layout", FIELD_TEXT, PART(4), .check = part_check});

bool function_record_parse(const json_t *json, struct function_record *ret, struct error *error) {
  cleanup_by(function_record_release) struct function_record record = {0};
  cleanup_json json_t *copy = json_deep_copy(json); /* JSON fields share its parts */

  record.has_kernel = json_is_string(json_object_get(json, "kernel"));
  if (!json_is_object(json))
    return error_set(error, "a function record must be an object");
  if (!record_read_answer(&packed_record, copy, "", &record, error))
    return false;
  if (!record.has_kernel && !record.name)
    return error_set(
        error, "a function record must name its wavetune kernel: \"kernel\", \"name\" or both");
  if (record.n_tuning_key != record.n_key_names)
    return error_at(error, "/tuning_key",
                    "\"tuning_key\" has %zu elements and \"key_names\" %zu: each name has one",
                    record.n_tuning_key, record.n_key_names);

  struct dejavu_parts parts = {{0}};
  bool is_good =
      !record.dejavu || record_read_answer(&dejavu_record, record.dejavu, "/dejavu", &parts, error);
  record_release(&dejavu_record, &parts);
  if (!is_good)
    return false;

  *ret = record;
  record = (struct function_record){0};
  return true;
}

void function_record_release(struct function_record *record) {
  record_release(&packed_record, record);
}

static const char base32_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

char *triton_folder_format(const struct digest *digest, char text[TRITON_FOLDER_LENGTH + 1]) {
  for (size_t i = 0; i < TRITON_FOLDER_LENGTH; i++) {
    size_t bit = i * 5;
    unsigned high = digest->bytes[bit / 8],
             low = bit / 8 + 1 < DIGEST_SIZE ? digest->bytes[bit / 8 + 1] : 0;
    text[i] = base32_digits[((high << 8 | low) >> (11 - bit % 8)) & 31];
  }
  text[TRITON_FOLDER_LENGTH] = '\0';
  return text;
}

bool triton_folder_is_valid(const char *text, size_t length) {
  for (size_t i = 0; i < length; i++)
    if (!text[i] || !strchr(base32_digits, text[i]))
      return false;
  return length == TRITON_FOLDER_LENGTH;
}
