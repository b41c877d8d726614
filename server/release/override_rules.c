/* Which overrides concern a kernel and key, and their order. */
#include "server/release/override_rules.h"

#include "common/base/time.h"
#include "common/space/key.h"

#define TEXT_MAX 200
#define REASON_MAX 1000
#define CONFIG_MAX 65536 /* bytes of its canonical text */

const char *const override_kind_names[] = {[OVERRIDE_PIN] = "pin", [OVERRIDE_BAN] = "ban", NULL};

#define RECORD_OF struct override
static const struct field request_fields[] = {
    MEMBER(ENUM, kind, FIELD_REQUIRED, .names = override_kind_names),
    MEMBER(TEXT, kernel, FIELD_REQUIRED | FIELD_LINE, .least = 1, .most = TEXT_MAX,
           .about = "its hash, or the name of all kernels that are meant"),
    MEMBER(JSON, key, FIELD_OBJECT, .schema = SCHEMA("Key"), .about = "absent: any key"),
    MEMBER(CUSTOM, environment, .custom = &environment_field,
           .about = "members that it is for; absent: any environment"),
    MEMBER(TEXT, tag, FIELD_LINE, .least = 1, .most = TEXT_MAX, .about = "absent: any tag"),
    MEMBER(JSON, config, FIELD_REQUIRED | FIELD_OBJECT, .most = CONFIG_MAX,
           .schema = SCHEMA("Config"),
           .about = "of a pin all values; of a ban the values that together are banned"),
    MEMBER(TEXT, reason, FIELD_REQUIRED | FIELD_LINE, .least = 1, .most = REASON_MAX),
    MEMBER(TEXT, until, .most = TEXT_MAX,
           .about = "when it ends: a time, or how long it lasts, like 30d; absent: when it is "
                    "removed"),
    MEMBER(BOOL, unknown, FIELD_NOT_NULL,
           .about = "also for a kernel, function or parameter that the server does not know"),
};
#undef RECORD_OF
const struct record override_request_record =
    RECORD("OverrideRequest", struct override, request_fields);

void override_release(struct override *override) {
  free(override->key_text);
  free(override->made_by);
  override->key_text = override->made_by = NULL;
  record_release(&override_request_record, override);
}

/* Both are copied: another thread frees the request's body. */
static bool values_finish(struct override *override, struct error *error) {
  const char *name;
  json_t *value;
  if (override->key) {
    cleanup_key struct key key = {0};
    if (!key_parse(override->key, NULL, 0, &key, error))
      return error_pointer_prefix(error, "/key");
    json_decref(override->key);
    override->key = key_to_json(&key);
    override->key_text = json_canonical(override->key);
  }

  if (json_object_size(override->config) == 0)
    return error_at(error, "/config", "\"config\" must state at least one value");
  json_object_foreach (override->config, name, value)
    if (json_is_object(value) || json_is_array(value))
      return error_at(error, "/config", "\"%.64s\" must be null, a boolean, a number or a string",
                      name);
  json_t *copy = json_deep_copy(override->config);
  ALWAYS(copy != NULL);
  json_decref(override->config);
  override->config = copy;
  return true;
}

bool override_parse(const json_t *json, struct override *ret, int64_t *ret_until_us,
                    int64_t *ret_last_ms, struct error *error) {
  cleanup_override struct override override = {0};
  struct digest hash;
  record_init(&override_request_record, &override);
  if (!record_read(&override_request_record, json, "", &override, error) ||
      !values_finish(&override, error))
    return false;
  if (string_starts(override.kernel, "sha256:") && !digest_parse(override.kernel, &hash))
    return error_at(error, "/kernel",
                    "a kernel's hash is \"sha256:\" and 64 lower-case hexadecimal digits");

  *ret_until_us = *ret_last_ms = 0;
  if (override.until && !(duration_parse(override.until, ret_last_ms) && *ret_last_ms) &&
      !time_parse(override.until, ret_until_us))
    return error_at(error, "/until",
                    "\"%.40s\" is not a time such as 2026-01-31T12:00:00Z, or 12h or 30d",
                    override.until);
  *ret = override;
  override = (struct override){0};
  record_init(&override_request_record, &override);
  return true;
}

void overrides_release(struct overrides *overrides) {
  for (size_t i = 0; i < overrides->n; i++)
    override_release(&overrides->all[i]);
  free(overrides->all);
  *overrides = (struct overrides){0};
}

static size_t count_members(const struct environment *environment) {
  cleanup_json json_t *json = environment_to_json(environment);
  return json_object_size(json);
}

/* The more specific one first. */
static int compare(const void *a, const void *b) {
  const struct override *left = a, *right = b;
  bool left_hash = string_starts(left->kernel, "sha256:"),
       right_hash = string_starts(right->kernel, "sha256:");
  size_t left_members = count_members(&left->environment),
         right_members = count_members(&right->environment);
  if (left_hash != right_hash)
    return left_hash ? -1 : 1;
  if (!left->key != !right->key)
    return left->key ? -1 : 1;
  if (left_members != right_members)
    return left_members > right_members ? -1 : 1;
  if (!left->tag != !right->tag)
    return left->tag ? -1 : 1;
  return left->id > right->id ? -1 : left->id < right->id;
}

void overrides_select(struct overrides *overrides, const struct environment *environment,
                      const char *tag) {
  size_t n = 0;
  for (size_t i = 0; i < overrides->n; i++) {
    struct override *it = &overrides->all[i];
    if (environment_fits(&it->environment, environment) && (!it->tag || string_equal(it->tag, tag)))
      overrides->all[n++] = *it;
    else
      override_release(it);
  }
  overrides->n = n;
  if (n)
    qsort(overrides->all, n, sizeof *overrides->all, compare);
}

/* Whether the config has all values of the ban. */
static bool is_banned(const struct override *ban, const json_t *config) {
  const char *name;
  json_t *value;
  json_object_foreach (ban->config, name, value)
    if (!json_equal(value, json_object_get(config, name)))
      return false;
  return true;
}

bool override_names(const struct override *it, const char *hash, const char *name) {
  return string_equal(it->kernel, hash) || (name && string_equal(it->kernel, name));
}

const struct override *override_next(const struct overrides *overrides, enum override_kind kind,
                                     const struct override *last, const struct digest *kernel,
                                     const char *name, const char *key_text, const json_t *config) {
  char hash[DIGEST_TEXT_SIZE];
  if (!overrides || !overrides->n)
    return NULL;

  digest_format(kernel, hash);
  for (const struct override *it = last ? last + 1 : overrides->all;
       it < overrides->all + overrides->n; it++)
    if (it->kind == kind && override_names(it, hash, name) &&
        (!it->key_text || string_equal(it->key_text, key_text)) &&
        (kind == OVERRIDE_PIN || is_banned(it, config)))
      return it;
  return NULL;
}

char *override_text(const struct override *rule) {
  return xasprintf("override %lld of %s: %s", (long long)rule->id,
                   rule->made_by ? rule->made_by : "(unknown)", rule->reason);
}
