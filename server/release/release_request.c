/* Reading the body of POST /v1/releases. The request owns what it holds. Pure functions, any thread. */
#include "common/base/time.h"
#include "server/channel/channels.h"
#include "server/release/release_make.h"

static int pins_compare(const void *a, const void *b) {
  const struct release_pin *left = a, *right = b;
  int order = memcmp(left->kernel.bytes, right->kernel.bytes, DIGEST_SIZE);
  return order ? order : strcmp(left->key_text, right->key_text);
}

static void pin_release(struct release_pin *pin) {
  json_decref(pin->key);
  free(pin->key_text);
  json_decref(pin->config);
}

static bool pin_read(const json_t *json, size_t index, struct release_pin *pin, struct error *error) {
  static const char *const names[] = {"kernel", "key", "config", NULL};
  char at[JSON_POINTER_SIZE], key_at[JSON_POINTER_SIZE];
  json_t *key_json, *config;
  cleanup_key struct key key = {0};
  json_pointer_index(at, sizeof at, "/pins", index);
  if (!json_only_members(json, at, names, error) ||
      !json_get_digest(json, at, "kernel", JSON_REQUIRED, &pin->kernel, error) ||
      !json_get_object(json, at, "key", JSON_REQUIRED, &key_json, error) ||
      !json_get_object(json, at, "config", JSON_REQUIRED, &config, error))
    return false;
  if (!key_parse(key_json, NULL, 0, &key, error))
    return error_pointer_prefix(error, json_pointer_member(key_at, sizeof key_at, at, "key"));
  const char *name;
  json_t *value;
  json_object_foreach (config, name, value)
    if (json_is_object(value) || json_is_array(value)) {
      json_pointer_member(key_at, sizeof key_at, at, "config");
      return error_at(error, key_at, "\"%.64s\" must be null, a boolean, a number or a string", name);
    }
  pin->index = index;
  pin->key = key_to_json(&key);
  pin->key_text = json_canonical(pin->key);
  /* A copy: the request's body is freed by another thread, as soon as the request is answered. */
  pin->config = json_deep_copy(config);
  ALWAYS(pin->config != NULL);
  return true;
}

static bool kernel_is_named(const struct release_request *request, const struct digest *kernel) {
  for (size_t i = 0; i < request->n_kernels; i++)
    if (digest_equal(&request->kernels[i], kernel))
      return true;
  return request->n_kernels == 0;
}

static bool pins_read(const json_t *pins, struct release_request *request, struct error *error) {
  size_t n = json_array_size(pins);
  char at[JSON_POINTER_SIZE];
  if (n > RELEASE_PINS_MAX)
    return error_at(error, "/pins", "%zu pins: a release takes at most %d", n, RELEASE_PINS_MAX);
  request->pins = xcalloc(n ? n : 1, sizeof *request->pins);
  for (size_t i = 0; i < n; i++) {
    struct release_pin *pin = &request->pins[request->n_pins++];
    if (!pin_read(json_array_get(pins, i), i, pin, error))
      return false;
    if (!kernel_is_named(request, &pin->kernel))
      return error_at(error, json_pointer_index(at, sizeof at, "/pins", i),
                      "the pin's kernel is not one of \"kernels\"; name it there or drop the pin");
  }
  qsort(request->pins, n, sizeof *request->pins, pins_compare);
  for (size_t i = 1; i < n; i++)
    if (pins_compare(&request->pins[i - 1], &request->pins[i]) == 0) {
      size_t one = request->pins[i - 1].index, other = request->pins[i].index;
      return error_at(error, json_pointer_index(at, sizeof at, "/pins", one > other ? one : other),
                      "pin %zu is for the same kernel and key; keep one of the two", one < other ? one : other);
    }
  return true;
}

static bool kernels_read(const json_t *kernels, struct release_request *request, struct error *error) {
  size_t n = json_array_size(kernels);
  char at[JSON_POINTER_SIZE];
  if (n == 0 || n > RELEASE_KERNELS_MAX)
    return error_at(error, "/kernels", "\"kernels\" names 1 to %d kernels; leave it out for all", RELEASE_KERNELS_MAX);
  request->kernels = xcalloc(n, sizeof *request->kernels);
  for (size_t i = 0; i < n; i++) {
    const char *text = json_string_value(json_array_get(kernels, i));
    if (!text || !digest_parse(text, &request->kernels[i]))
      return error_at(error, json_pointer_index(at, sizeof at, "/kernels", i),
                      "a kernel is named by \"sha256:\" and 64 lower-case hexadecimal digits");
  }
  request->n_kernels = n;
  return true;
}

static bool replaces_read(const json_t *replaces, struct release_request *request, struct error *error) {
  static const char *const names[] = {"channel", "min_gain", NULL};
  const char *channel = "stable";
  request->min_gain = VERDICT_MIN_GAIN;
  if (!json_only_members(replaces, "/replaces", names, error) ||
      !json_get_string(replaces, "/replaces", "channel", JSON_NOT_NULL, &channel, error) ||
      !json_get_number(replaces, "/replaces", "min_gain", JSON_NOT_NULL, &request->min_gain, error))
    return false;
  if (!channel_name_check(channel, error))
    return error_pointer_prefix(error, "/replaces/channel");
  if (!(request->min_gain >= 0 && request->min_gain < 1))
    return error_at(
        error, "/replaces/min_gain",
        "\"min_gain\" is %g; it is the share of the served config's time that a winner must save, 0 to below 1",
        request->min_gain);
  request->channel = xstrdup(channel);
  return true;
}

static bool request_read(const json_t *json, struct release_request *request, struct error *error) {
  static const char *const names[] = {"environment",       "tag", "regime", "kernels", "as_of", "pins", "replaces",
                                      "refuse_self_timed", NULL};
  const char *tag = "default", *as_of = NULL;
  json_t *environment, *kernels = NULL, *pins = NULL, *replaces = NULL;
  if (!json_only_members(json, "", names, error) ||
      !json_get_object(json, "", "environment", JSON_REQUIRED, &environment, error) ||
      !json_get_string(json, "", "tag", JSON_NOT_NULL, &tag, error) || !regime_get(json, "", &request->regime, error) ||
      !json_get_array(json, "", "kernels", JSON_NOT_NULL, &kernels, error) ||
      !json_get_string(json, "", "as_of", JSON_NOT_NULL, &as_of, error) ||
      !json_get_array(json, "", "pins", JSON_NOT_NULL, &pins, error) ||
      !json_get_object(json, "", "replaces", JSON_OPTIONAL, &replaces, error) ||
      !json_get_bool(json, "", "refuse_self_timed", JSON_NOT_NULL, &request->refuse_self_timed, error))
    return false;
  if (!environment_parse(environment, &request->environment, error))
    return error_pointer_prefix(error, "/environment");
  if (!*tag || strlen(tag) > RELEASE_TAG_MAX)
    return error_at(error, "/tag", "a tag has 1 to %d bytes", RELEASE_TAG_MAX);
  request->tag = xstrdup(tag);
  request->has_as_of = as_of != NULL;
  if (as_of && !time_parse(as_of, &request->as_of_us))
    return error_at(error, "/as_of", "\"%.64s\" is not a time; write it as 2026-01-31T12:00:00Z", as_of);
  return (!kernels || kernels_read(kernels, request, error)) && (!pins || pins_read(pins, request, error)) &&
         (!replaces || replaces_read(replaces, request, error));
}

bool release_request_parse(const json_t *json, struct release_request *ret, struct error *error) {
  struct release_request request = {0};
  if (!request_read(json, &request, error)) {
    release_request_release(&request);
    return false;
  }
  *ret = request;
  return true;
}

void release_request_release(struct release_request *request) {
  environment_release(&request->environment);
  free(request->tag);
  free(request->kernels);
  for (size_t i = 0; i < request->n_pins; i++)
    pin_release(&request->pins[i]);
  free(request->pins);
  free(request->channel);
  *request = (struct release_request){0};
}
