/* Reads of captured documents what the server stores in columns. Memory and threads: captures.h. */
#include "common/node/environment.h"
#include "common/space/key.h"
#include "server/capture/captures.h"

static bool version_check(const json_t *document, const char *at, struct error *error) {
  int64_t version;
  return json_get_integer(document, at, "version", JSON_REQUIRED, CAPTURE_VERSION, CAPTURE_VERSION,
                          &version, error);
}

/* A member that is a line of at most `most` bytes. */
static bool line_get(const json_t *document, const char *at, const char *name, size_t most,
                     const char **ret, struct error *error) {
  char pointer[JSON_POINTER_SIZE];
  if (!json_get_string(document, at, name, JSON_REQUIRED, ret, error))
    return false;
  size_t size = strlen(*ret);
  for (const char *c = *ret; *c; c++)
    if ((unsigned char)*c < ' ' || *c == 0x7f)
      size = 0;
  return (size > 0 && size <= most) ||
         error_at(error, json_pointer_member(pointer, sizeof pointer, at, name),
                  "\"%s\" must have 1 to %zu bytes without control characters", name, most);
}

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

static bool function_parse(const json_t *document, const char *at, struct captured_function *ret,
                           struct error *error) {
  json_t *parts;
  if (!version_check(document, at, error) ||
      !json_get_digest(document, at, "closure", JSON_REQUIRED, &ret->closure, error) ||
      !line_get(document, at, "name", CAPTURE_NAME_MAX, &ret->name, error) ||
      !json_get_array(document, at, "parts", JSON_REQUIRED, &parts, error))
    return false;
  ret->document = document_text(document, at, CAPTURE_FUNCTION_BYTES, error);
  return ret->document != NULL;
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
static bool key_read(const json_t *document, const char *at, struct captured_launch *ret,
                     struct error *error) {
  cleanup_json json_t *object = json_object();
  cleanup_key struct key key = {0};
  char pointer[JSON_POINTER_SIZE];
  json_t *names, *values, *value;
  size_t i;
  if (!json_get_array(document, at, "key_names", JSON_REQUIRED, &names, error) ||
      !json_get_array(document, at, "key_values", JSON_REQUIRED, &values, error))
    return false;

  json_pointer_member(pointer, sizeof pointer, at, "key_values");
  if (json_array_size(names) != json_array_size(values))
    return error_at(error, pointer, "there are %zu values for %zu names", json_array_size(values),
                    json_array_size(names));
  json_array_foreach (values, i, value) {
    const char *name = json_string_value(json_array_get(names, i));
    if (!name)
      return error_at(error, pointer, "name %zu of the key is no string", i + 1);
    json_put(object, name, key_value(value));
  }

  if (!key_parse(object, NULL, 0, &key, error))
    return error_pointer_prefix(error, pointer);
  ret->key = key_to_text(&key);
  ret->key_digest = key_digest(&key);
  return true;
}

/* What makes it another launch: the whole key of the autotuner, environment, image. */
static struct digest identity_of(const json_t *document) {
  json_t *image = json_object_get(document, "image");
  cleanup_json json_t *identity =
      json_pack("[O, O, O]", json_object_get(document, "key"),
                json_object_get(document, "environment"), image ? image : json_null());
  cleanup_free char *text = json_canonical(identity);
  return digest_of(text, strlen(text));
}

static bool launch_parse(const json_t *document, const char *at, struct captured_launch *ret,
                         struct error *error) {
  cleanup_environment struct environment environment = {0};
  json_t *stated, *key;
  char pointer[JSON_POINTER_SIZE];
  if (!version_check(document, at, error) ||
      !json_get_digest(document, at, "closure", JSON_REQUIRED, &ret->closure, error) ||
      !json_get_array(document, at, "key", JSON_REQUIRED, &key, error) ||
      !line_get(document, at, "triton", CAPTURE_TRITON_MAX, &ret->triton, error) ||
      !json_get_object(document, at, "environment", JSON_REQUIRED, &stated, error) ||
      !key_read(document, at, ret, error))
    return false;

  json_pointer_member(pointer, sizeof pointer, at, "environment");
  if (!environment_parse(stated, &environment, error))
    return error_pointer_prefix(error, pointer);
  ret->arch = xstrdup(environment.arch ? environment.arch : "");
  ret->digest = identity_of(document);
  ret->document = document_text(document, at, CAPTURE_LAUNCH_BYTES, error);
  return ret->document != NULL;
}

/* A member that is an array of at most `most` objects; *ret is NULL where it is absent. */
static bool documents_get(const json_t *json, const char *name, size_t most, json_t **ret,
                          struct error *error) {
  char at[JSON_POINTER_SIZE];
  json_t *one;
  size_t i;
  *ret = NULL;
  if (!json_get_array(json, "", name, JSON_OPTIONAL, ret, error))
    return false;
  if (json_array_size(*ret) > most)
    return error_at(error, json_pointer_member(at, sizeof at, "", name),
                    "a report has at most %zu %s; post the others in another one", most, name);
  json_array_foreach (*ret, i, one)
    if (!json_is_object(one)) {
      char below[JSON_POINTER_SIZE];
      json_pointer_member(at, sizeof at, "", name);
      return error_at(error, json_pointer_index(below, sizeof below, at, i),
                      "a captured document must be an object");
    }
  return true;
}

bool capture_report_parse(const json_t *json, struct capture_report *ret, struct error *error) {
  static const char *const members[] = {"functions", "launches", NULL};
  json_t *functions, *launches;
  char at[JSON_POINTER_SIZE];
  bool ok = true;
  size_t i;
  *ret = (struct capture_report){0};
  if (!json_only_members(json, "", members, error) ||
      !documents_get(json, "functions", CAPTURE_FUNCTIONS_MAX, &functions, error) ||
      !documents_get(json, "launches", CAPTURE_LAUNCHES_MAX, &launches, error))
    return false;

  ret->functions = xcalloc(json_array_size(functions) + 1, sizeof *ret->functions);
  ret->launches = xcalloc(json_array_size(launches) + 1, sizeof *ret->launches);
  for (i = 0; ok && i < json_array_size(functions); i++) {
    json_pointer_index(at, sizeof at, "/functions", i);
    ok = function_parse(json_array_get(functions, i), at, &ret->functions[ret->n_functions++],
                        error);
  }
  for (i = 0; ok && i < json_array_size(launches); i++) {
    json_pointer_index(at, sizeof at, "/launches", i);
    ok = launch_parse(json_array_get(launches, i), at, &ret->launches[ret->n_launches++], error);
  }

  if (!ok)
    capture_report_release(ret);
  return ok;
}

void capture_report_release(struct capture_report *report) {
  for (size_t i = 0; i < report->n_functions; i++)
    free(report->functions[i].document);
  for (size_t i = 0; i < report->n_launches; i++) {
    free(report->launches[i].key);
    free(report->launches[i].arch);
    free(report->launches[i].document);
  }
  free(report->functions);
  free(report->launches);
  *report = (struct capture_report){0};
}
