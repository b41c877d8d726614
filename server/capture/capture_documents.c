/* Reads of captured documents what the server stores in columns. Memory and threads: captures.h. */
#include "common/space/key.h"
#include "server/capture/captures.h"

/* Documents are read as answers are: a later version of the program may add members. */
#define WANTED (FIELD_ANSWER | FIELD_REQUIRED)
#define RECORD_OF struct captured_function
static const struct field function_fields[] = {
    MEMBER(INTEGER, version, FIELD_REQUIRED, .least = CAPTURE_VERSION, .most = CAPTURE_VERSION),
    MEMBER(DIGEST, closure, FIELD_REQUIRED),
    MEMBER(TEXT, name, FIELD_REQUIRED | FIELD_LINE, .least = 1, .most = CAPTURE_NAME_MAX,
           .about = "MODULE:QUALNAME"),
    MEMBER(JSON, parts, FIELD_REQUIRED | FIELD_ARRAY | FIELD_NO_COLUMN),
    MEMBER(TEXT, document, FIELD_NO_JSON),
};
const struct record captured_function_record = ANSWER("CapturedFunction", function_fields);
#undef RECORD_OF

#define RECORD_OF struct captured_launch
static const struct field launch_fields[] = {
    MEMBER(INTEGER, version, FIELD_REQUIRED, .least = CAPTURE_VERSION, .most = CAPTURE_VERSION),
    MEMBER(DIGEST, closure, FIELD_REQUIRED),
    MEMBER_AS("key", JSON, texts, FIELD_REQUIRED | FIELD_ARRAY | FIELD_NO_COLUMN,
              .schema = "{\"type\": \"string\"}"),
    MEMBER(JSON, key_names, FIELD_REQUIRED | FIELD_ARRAY | FIELD_NO_COLUMN,
           .schema = "{\"type\": \"string\"}"),
    MEMBER(JSON, key_values, FIELD_REQUIRED | FIELD_ARRAY | FIELD_NO_COLUMN),
    MEMBER(CUSTOM, environment, FIELD_REQUIRED, .custom = &environment_field),
    MEMBER(TEXT, triton, FIELD_REQUIRED | FIELD_LINE, .least = 1, .most = CAPTURE_TRITON_MAX),
    MEMBER(TEXT, image, FIELD_OMITTED | FIELD_LINE, .least = 1, .most = CAPTURE_IMAGE_MAX),
    MEMBER(DIGEST, digest, FIELD_NO_JSON),
    MEMBER(DIGEST, key_digest, FIELD_NO_JSON),
    MEMBER(TEXT, key, FIELD_NO_JSON),
    MEMBER(TEXT, arch, FIELD_NO_JSON),
    MEMBER(TEXT, document, FIELD_NO_JSON),
};
const struct record captured_launch_record = ANSWER("CapturedLaunch", launch_fields);
#undef RECORD_OF

#define RECORD_OF struct capture_report
static const struct field report_fields[] = {
    MEMBER_AS("functions", RECORDS, n_functions, .most = CAPTURE_FUNCTIONS_MAX,
              .of = &captured_function_record),
    MEMBER_AS("launches", RECORDS, n_launches, .most = CAPTURE_LAUNCHES_MAX,
              .of = &captured_launch_record),
};
#undef RECORD_OF
const struct record capture_report_record =
    RECORD("CaptureReport", struct capture_report, report_fields);

/* The document's canonical text, the caller's; NULL: it is longer than `most`. */
static char *document_text(const json_t *document, const char *at, size_t most,
                           struct error *error) {
  cleanup_free char *text = json_canonical(document);
  size_t size = strlen(text);
  if (size <= most)
    return TAKE(text);
  error_at(error, at, "the document has %zu bytes, and at most %zu are taken", size, most);
  return NULL;
}

/* A value of an autotuner's key as a key of jobs can have it, a new reference: a dtype by its name,
 * what is no scalar otherwise by its text. */
static json_t *key_value(json_t *value) {
  json_t *dtype = json_object_get(value, "dtype");
  if (!json_is_object(value) && !json_is_array(value))
    return json_incref(value);
  if (json_is_string(dtype))
    return json_incref(dtype);
  cleanup_free char *text = json_canonical(value);
  return json_string(text);
}

/* The autotuner's key as jobs have it, from its names and values. */
static bool key_read(struct captured_launch *launch, const char *at, struct error *error) {
  cleanup_json json_t *object = json_object();
  cleanup_key struct key key = {0};
  char pointer[JSON_POINTER_SIZE];
  size_t i, n_names = json_array_size(launch->key_names), n = json_array_size(launch->key_values);
  json_t *value;
  json_pointer_member(pointer, sizeof pointer, at, "key_values");
  if (n != n_names)
    return error_at(error, pointer, "there are %zu values for %zu names", n, n_names);
  json_array_foreach (launch->key_values, i, value) {
    const char *name = json_string_value(json_array_get(launch->key_names, i));
    if (!name)
      return error_at(error, pointer, "name %zu of the key is no string", i + 1);
    json_put(object, name, key_value(value));
  }

  if (!key_parse(object, NULL, 0, &key, error))
    return error_pointer_prefix(error, pointer);
  launch->key = key_to_text(&key);
  launch->key_digest = key_digest(&key);
  return true;
}

/* What makes it another launch: the whole key of the autotuner, environment, image, and what Triton
 * compiles other code for, where the program states it. */
static struct digest identity_of(const json_t *document) {
  json_t *image = json_object_get(document, "image"),
         *specialisation = json_object_get(document, "specialisation");
  cleanup_json json_t *identity =
      json_pack("[O, O, O]", json_object_get(document, "key"),
                json_object_get(document, "environment"), image ? image : json_null());
  if (json_is_string(specialisation))
    json_push(identity, json_incref(specialisation));
  cleanup_free char *text = json_canonical(identity);
  return digest_of(text, strlen(text));
}

bool capture_report_parse(const json_t *json, struct capture_report *ret, struct error *error) {
  static const char *const members[] = {"functions", "launches", NULL};
  char at[JSON_POINTER_SIZE];
  const json_t *functions = json_object_get(json, "functions"),
               *launches = json_object_get(json, "launches");
  *ret = (struct capture_report){0};
  bool ok = json_only_members(json, "", members, error) &&
            record_read_answer(&capture_report_record, json, "", ret, error);
  for (size_t i = 0; ok && i < ret->n_functions; i++) {
    json_pointer_index(at, sizeof at, "/functions", i);
    ret->functions[i].document =
        document_text(json_array_get(functions, i), at, CAPTURE_FUNCTION_BYTES, error);
    ok = ret->functions[i].document != NULL;
  }
  for (size_t i = 0; ok && i < ret->n_launches; i++) {
    struct captured_launch *launch = &ret->launches[i];
    const json_t *document = json_array_get(launches, i);
    json_pointer_index(at, sizeof at, "/launches", i);
    launch->arch = xstrdup(launch->environment.arch ? launch->environment.arch : "");
    launch->digest = identity_of(document);
    ok = key_read(launch, at, error) &&
         (launch->document = document_text(document, at, CAPTURE_LAUNCH_BYTES, error));
  }

  if (!ok)
    capture_report_release(ret);
  return ok;
}

void capture_report_release(struct capture_report *report) {
  record_release(&capture_report_record, report);
}
