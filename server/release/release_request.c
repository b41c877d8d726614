/* Reading the body of POST /v1/releases. The request owns what it holds. Pure functions, any
 * thread. */
#include "common/base/time.h"
#include "server/channel/channels.h"
#include "server/release/release_make.h"

static bool kernels_read(const json_t *value, void *to, struct error *error) {
  size_t n = json_array_size(value);
  if (n == 0 || n > RELEASE_KERNELS_MAX)
    return error_set(error, "\"kernels\" is an array of 1 to %d kernels; leave it out for all",
                     RELEASE_KERNELS_MAX);

  cleanup_free struct digest *kernels = xcalloc(n, sizeof *kernels);
  for (size_t i = 0; i < n; i++) {
    const char *text = json_string_value(json_array_get(value, i));
    char at[JSON_POINTER_SIZE];
    if (!text || !digest_parse(text, &kernels[i]))
      return error_at(error, json_pointer_index(at, sizeof at, "", i),
                      "a kernel is named by \"sha256:\" and 64 lower-case hexadecimal digits");
  }
  *(struct release_kernels *)to = (struct release_kernels){n, TAKE(kernels)};
  return true;
}
static json_t *kernels_write(const void *at) {
  const struct release_kernels *kernels = at;
  json_t *array = json_array();
  for (size_t i = 0; i < kernels->n; i++)
    ALWAYS(json_array_append_new(array, json_digest_text(&kernels->all[i])) == 0);
  return array;
}
static void kernels_release(void *at) {
  struct release_kernels *kernels = at;
  free(kernels->all);
  *kernels = (struct release_kernels){0};
}
static const struct field_custom kernels_field = {
    .schema = "{\"type\": \"array\", \"minItems\": 1, \"maxItems\": 1000,"
              " \"items\": {\"$ref\": \"#/components/schemas/Digest\"}}",
    .read = kernels_read,
    .write = kernels_write,
    .release = kernels_release};

static const struct field pin_fields[] = {
    {"kernel", FIELD_DIGEST, offsetof(struct release_pin, kernel), FIELD_REQUIRED},
    {"key", FIELD_JSON, offsetof(struct release_pin, key), FIELD_REQUIRED,
     .schema = "{\"$ref\": \"#/components/schemas/Key\"}"},
    {"config", FIELD_JSON, offsetof(struct release_pin, config), FIELD_REQUIRED | FIELD_OBJECT,
     .schema = "{\"$ref\": \"#/components/schemas/Config\"}"},
    {"key_text", FIELD_TEXT, offsetof(struct release_pin, key_text), FIELD_NO_JSON},
};
static const struct record pin_record = RECORD(NULL, struct release_pin, pin_fields);

static const struct field replaces_fields[] = {
    {"channel", FIELD_TEXT, offsetof(struct release_replaces, channel), FIELD_NOT_NULL,
     .schema = "{\"type\": \"string\", \"default\": \"stable\"}"},
    {"min_gain", FIELD_NUMBER, offsetof(struct release_replaces, min_gain), FIELD_NOT_NULL,
     .schema =
         "{\"type\": \"number\", \"minimum\": 0, \"exclusiveMaximum\": 1, \"default\": 0.02}"},
};
static const struct record replaces_record = RECORD(NULL, struct release_replaces, replaces_fields);

#define AT(member) offsetof(struct release_request, member)
static const struct field request_fields[] = {
    {"environment", FIELD_CUSTOM, AT(environment), FIELD_REQUIRED, .custom = &environment_field},
    {"tag", FIELD_TEXT, AT(tag), FIELD_NOT_NULL, .least = 1, .most = RELEASE_TAG_MAX,
     .about = "default: \"default\""},
    {"regime", FIELD_ENUM, AT(regime), FIELD_NOT_NULL, .names = regime_names,
     .about = "default: cold"},
    {"kernels", FIELD_CUSTOM, AT(kernels), FIELD_NOT_NULL, .custom = &kernels_field},
    {"as_of", FIELD_TIME, AT(as_of), FIELD_NOT_NULL},
    {"pins", FIELD_RECORDS, AT(pins), FIELD_NOT_NULL, .most = RELEASE_PINS_MAX, .of = &pin_record},
    {"replaces", FIELD_RECORD, AT(replaces), .of = &replaces_record},
    {"refuse_self_timed", FIELD_BOOL, AT(refuse_self_timed), FIELD_NOT_NULL,
     .about = "leaves out winners of kernels in c, whose own code could state its time"},
};
#undef AT
const struct record release_request_record =
    RECORD("ReleaseRequest", struct release_request, request_fields);

static int pins_compare(const void *a, const void *b) {
  const struct release_pin *left = a, *right = b;
  int order = memcmp(left->kernel.bytes, right->kernel.bytes, DIGEST_SIZE);
  return order ? order : strcmp(left->key_text, right->key_text);
}

/* Makes key and config the pin's own: the request's body is freed by another thread, as soon as the
 * request is answered. */
static bool pin_finish(struct release_pin *pin, const char *at, struct error *error) {
  char member_at[JSON_POINTER_SIZE];
  cleanup_key struct key key = {0};
  if (!key_parse(pin->key, NULL, 0, &key, error))
    return error_pointer_prefix(error, json_pointer_member(member_at, sizeof member_at, at, "key"));
  json_decref(pin->key);
  pin->key = key_to_json(&key);
  pin->key_text = json_canonical(pin->key);

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
  return true;
}

static bool kernel_may_be_pinned(const struct release_request *request,
                                 const struct digest *kernel) {
  for (size_t i = 0; i < request->kernels.n; i++)
    if (digest_equal(&request->kernels.all[i], kernel))
      return true;
  return request->kernels.n == 0;
}

static bool pins_finish(struct release_request *request, struct error *error) {
  struct release_pin *pins = request->pins.all;
  size_t n = request->pins.n;
  char at[JSON_POINTER_SIZE];
  for (size_t i = 0; i < n; i++) {
    pins[i].index = i;
    json_pointer_index(at, sizeof at, "/pins", i);
    if (!pin_finish(&pins[i], at, error))
      return false;
    if (!kernel_may_be_pinned(request, &pins[i].kernel))
      return error_at(error, at,
                      "the pin's kernel is not one of \"kernels\"; name it there or drop the pin");
  }

  if (n)
    qsort(pins, n, sizeof *pins, pins_compare);
  for (size_t i = 1; i < n; i++)
    if (pins_compare(&pins[i - 1], &pins[i]) == 0) {
      size_t one = pins[i - 1].index, other = pins[i].index;
      return error_at(error, json_pointer_index(at, sizeof at, "/pins", one > other ? one : other),
                      "pin %zu is for the same kernel and key; keep one of the two",
                      one < other ? one : other);
    }
  return true;
}

static bool replaces_finish(struct release_replaces *replaces, struct error *error) {
  if (!replaces->channel)
    replaces->channel = xstrdup("stable");
  if (!channel_name_check(replaces->channel, error))
    return error_pointer_prefix(error, "/replaces/channel");
  if (!(replaces->min_gain >= 0 && replaces->min_gain < 1))
    return error_at(error, "/replaces/min_gain",
                    "\"min_gain\" is %g; it is the share of the served config's time that a winner "
                    "must save, 0 to below 1",
                    replaces->min_gain);
  return true;
}

bool release_request_parse(const json_t *json, struct release_request *ret, struct error *error) {
  cleanup_release_request struct release_request request = {
      .tag = xstrdup("default"), .regime = REGIME_COLD, .replaces = {.min_gain = VERDICT_MIN_GAIN}};
  if (!record_read(&release_request_record, json, "", &request, error))
    return false;
  if (request.as_of && !time_parse(request.as_of, &request.as_of_us))
    return error_at(error, "/as_of", "\"%.64s\" is not a time; write it as 2026-01-31T12:00:00Z",
                    request.as_of);
  if (!pins_finish(&request, error))
    return false;
  if (json_is_object(json_object_get(json, "replaces")) &&
      !replaces_finish(&request.replaces, error))
    return false;

  *ret = request;
  request = (struct release_request){0};
  return true;
}

void release_request_release(struct release_request *request) {
  record_release(&release_request_record, request);
  *request = (struct release_request){0};
}
