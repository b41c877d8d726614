/* The body of POST /v1/releases. Pure functions, any thread. */
#include "common/base/time.h"
#include "common/cache/signatures.h"
#include "server/release/release_make.h"

int release_places_compare(const void *a, const void *b) {
  const struct release_place *left = a, *right = b;
  int order = memcmp(left->kernel.bytes, right->kernel.bytes, DIGEST_SIZE);
  return order ? order : strcmp(left->key_text, right->key_text);
}

#define RECORD_OF struct release_pin
static const struct field pin_fields[] = {
    MEMBER_AS("kernel", DIGEST, place.kernel, FIELD_REQUIRED),
    MEMBER(JSON, key, FIELD_REQUIRED, .schema = SCHEMA("Key")),
    MEMBER(JSON, config, FIELD_REQUIRED | FIELD_OBJECT, .schema = SCHEMA("Config")),
    MEMBER_AS("key_text", TEXT, place.key_text, FIELD_NO_JSON),
};
#undef RECORD_OF
static const struct record pin_record = RECORD(NULL, struct release_pin, pin_fields);

#define RECORD_OF struct release_replaces
static const struct field replaces_fields[] = {
    MEMBER(TEXT, channel, FIELD_NOT_NULL,
           .schema = "{\"type\": \"string\", \"default\": \"stable\"}"),
    MEMBER(
        NUMBER, min_gain, FIELD_NOT_NULL,
        .schema =
            "{\"type\": \"number\", \"minimum\": 0, \"exclusiveMaximum\": 1, \"default\": 0.02}"),
};
#undef RECORD_OF
static const struct record replaces_record = RECORD(NULL, struct release_replaces, replaces_fields);

#define RECORD_OF struct release_requires
static const struct field requires_fields[] = {
    MEMBER(BOOL, all, FIELD_NOT_NULL, .about = "every key that a job or an import has"),
    MEMBER(TEXT, run, FIELD_NOT_NULL, .most = RELEASE_TAG_MAX,
           .about = "the keys of the jobs of this run"),
    MEMBER(TEXTS, jobs, FIELD_NOT_NULL | FIELD_OR_INTEGER, .least = 1, .most = RELEASE_PINS_MAX,
           .about = "the keys of these jobs"),
};
#undef RECORD_OF
static const struct record requires_record = RECORD(NULL, struct release_requires, requires_fields);

#define RECORD_OF struct release_request
static const struct field request_fields[] = {
    MEMBER(CUSTOM, environment, FIELD_REQUIRED, .custom = &environment_field),
    MEMBER(TEXT, tag, FIELD_NOT_NULL, .least = 1, .most = RELEASE_TAG_MAX,
           .about = "default: \"default\""),
    MEMBER(ENUM, regime, FIELD_NOT_NULL, .names = regime_names, .about = "default: cold"),
    MEMBER_AS("kernels", TEXTS, kernel_texts, FIELD_NOT_NULL, .least = 1,
              .most = RELEASE_KERNELS_MAX,
              .schema = "{\"type\": \"array\", \"minItems\": 1, \"maxItems\": 1000,"
                        " \"items\": {\"$ref\": \"#/components/schemas/Digest\"}}"),
    MEMBER(TIME, as_of, FIELD_NOT_NULL),
    MEMBER(RECORDS, pins, FIELD_NOT_NULL, .most = RELEASE_PINS_MAX, .of = &pin_record),
    MEMBER(RECORD, replaces, .of = &replaces_record),
    MEMBER_AS("requires", RECORD, required, .of = &requires_record,
              .about = "keys without which no release is made"),
    MEMBER(BOOL, refuse_self_timed, FIELD_NOT_NULL,
           .about =
               "leaves out winners of kernels in c, whose code runs in the process that times it"),
    MEMBER(ENUM, require_agreement, FIELD_NOT_NULL, .names = agreement_requirement_names,
           .about = "leaves out winners of a lower class, unless one of the equivalence set "
                    "has it; default: none"),
};
#undef RECORD_OF
const struct record release_request_record =
    RECORD("ReleaseRequest", struct release_request, request_fields);

bool release_names_kernel(const struct release_request *request, const struct digest *kernel) {
  for (size_t i = 0; i < request->kernel_texts.n; i++)
    if (digest_equal(&request->kernels[i], kernel))
      return true;
  return false;
}

/* Checks the pins and sorts them. Their keys and configs are copied, because another thread frees
 * the request's body as soon as the request is answered. */
static bool pins_finish(struct release_request *request, struct error *error) {
  struct release_pin *pins = request->pins.all;
  size_t n = request->pins.n;
  char at[JSON_POINTER_SIZE], member_at[JSON_POINTER_SIZE];
  for (size_t i = 0; i < n; i++) {
    struct release_pin *pin = &pins[i];
    cleanup_key struct key key = {0};
    json_pointer_index(at, sizeof at, "/pins", i);
    json_pointer_member(member_at, sizeof member_at, at, "key");
    if (!key_parse(pin->key, NULL, 0, &key, error))
      return error_pointer_prefix(error, member_at);
    json_decref(pin->key);
    pin->key = key_to_json(&key);
    pin->place.key_text = json_canonical(pin->key);
    pin->index = i;

    const char *name;
    json_t *value;
    json_pointer_member(member_at, sizeof member_at, at, "config");
    json_object_foreach (pin->config, name, value)
      if (json_is_object(value) || json_is_array(value))
        return error_at(error, member_at, "\"%.64s\" must be null, a boolean, a number or a string",
                        name);
    json_t *copy = json_deep_copy(pin->config);
    ALWAYS(copy != NULL);
    json_decref(pin->config);
    pin->config = copy;

    if (request->kernel_texts.n && !release_names_kernel(request, &pin->place.kernel))
      return error_at(error, at,
                      "the pin's kernel is not one of \"kernels\"; name it there or drop the pin");
  }

  if (n)
    qsort(pins, n, sizeof *pins, release_places_compare);
  for (size_t i = 1; i < n; i++)
    if (release_places_compare(&pins[i - 1], &pins[i]) == 0) {
      size_t one = pins[i - 1].index, other = pins[i].index;
      return error_at(error, json_pointer_index(at, sizeof at, "/pins", one > other ? one : other),
                      "pin %zu is for the same kernel and key; keep one of the two",
                      one < other ? one : other);
    }
  return true;
}

bool release_request_parse(const json_t *json, struct release_request *ret, struct error *error) {
  cleanup_release_request struct release_request request = {
      .tag = xstrdup("default"),
      .regime = REGIME_IMPLIED,
      .replaces = {.min_gain = VERDICT_MIN_GAIN}};
  if (!record_read(&release_request_record, json, "", &request, error))
    return false;
  if (request.as_of && !time_parse(request.as_of, &request.as_of_us))
    return error_at(error, "/as_of", "\"%.64s\" is not a time; write it as 2026-01-31T12:00:00Z",
                    request.as_of);

  request.kernels = xcalloc(request.kernel_texts.n + 1, sizeof *request.kernels);
  for (size_t i = 0; i < request.kernel_texts.n; i++) {
    char at[JSON_POINTER_SIZE];
    if (!digest_parse(request.kernel_texts.all[i], &request.kernels[i]))
      return error_at(error, json_pointer_index(at, sizeof at, "/kernels", i),
                      "a kernel is named by \"sha256:\" and 64 lower-case hexadecimal digits");
  }

  if (!pins_finish(&request, error))
    return false;

  struct release_replaces *replaces = &request.replaces;
  if (json_is_object(json_object_get(json, "replaces"))) {
    if (!replaces->channel)
      replaces->channel = xstrdup("stable");
    if (!channel_name_check(replaces->channel, error))
      return error_pointer_prefix(error, "/replaces/channel");
    if (!(replaces->min_gain >= 0 && replaces->min_gain < 1))
      return error_at(error, "/replaces/min_gain",
                      "\"min_gain\" is %g; it is the share of the served config's time that a "
                      "winner must save, 0 to below 1",
                      replaces->min_gain);
  }

  *ret = request;
  request = (struct release_request){0};
  return true;
}

void release_request_release(struct release_request *request) {
  free(request->kernels);
  record_release(&release_request_record, request);
  *request = (struct release_request){0};
}
