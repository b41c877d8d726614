/* Channel entries: from JSON, to the bytes that are signed, signing and verifying. Plain values;
 * any thread. */
#include "common/cache/channel_entry.h"

#include <inttypes.h>

#include "common/base/time.h"

#define SIGNED_PREFIX "wavetune channel entry 1\n"

bool channel_name_check(const char *name, struct error *error) {
  size_t length = strlen(name);
  if (length == 0 || length > CHANNEL_NAME_MAX ||
      strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") != length)
    return error_set(error,
                     "\"%.80s\" is no channel name: 1 to %d of a-z, 0-9, \".\", \"_\" and \"-\"",
                     name, CHANNEL_NAME_MAX);
  return true;
}

static bool expires_read(const json_t *value, void *to, struct error *error) {
  const char *text = json_string_value(value);
  int64_t s;
  if (!text || !time_text_parse(text, &s) || s == 0)
    return error_set(error, "%s%.40s%s is no time of expiry: write UTC as 2026-12-24T00:00:00Z",
                     text ? "\"" : "", text ? text : "this", text ? "\"" : "");
  *(int64_t *)to = s;
  return true;
}
static json_t *expires_write(const void *at) {
  char text[TIME_TEXT_SIZE];
  return json_string(time_text_format(*(const int64_t *)at, text));
}
static bool expires_is_absent(const void *at) { return *(const int64_t *)at == 0; }
const struct field_custom expires_field = {
    .schema = "{\"type\": \"string\","
              " \"pattern\": \"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$\"}",
    .is_absent = expires_is_absent,
    .read = expires_read,
    .write = expires_write};

bool channel_expires_parse(const json_t *json, int64_t *ret_s, struct error *error) {
  const json_t *value = json_object_get(json, "expires");
  int64_t s = 0;
  if (value && !json_is_null(value) && !expires_read(value, &s, error))
    return error_pointer_prefix(error, "/expires");
  *ret_s = s;
  return true;
}

static bool signature_text_read(const json_t *value, void *to, struct error *error) {
  const char *text = json_string_value(value);
  if (!text || !signature_is_well_formed(text))
    return error_set(error, "this is no signature: it must be base64 of %d bytes", SIGNATURE_SIZE);
  memcpy(to, text, SIGNATURE_TEXT_SIZE);
  return true;
}
static json_t *signature_text_write(const void *at) { return json_string(at); }
static const struct field_custom signature_text_field = {
    .schema = "{\"type\": \"string\", \"pattern\": \"^[A-Za-z0-9+/]{86}==$\"}",
    .read = signature_text_read,
    .write = signature_text_write};

static const struct field signature_fields[] = {
    {"key", FIELD_DIGEST, offsetof(struct channel_signature, key), FIELD_REQUIRED},
    {"signature", FIELD_CUSTOM, offsetof(struct channel_signature, text), FIELD_REQUIRED,
     .custom = &signature_text_field},
};
const struct record channel_signature_record =
    RECORD("Signature", struct channel_signature, signature_fields);

static bool signatures_read(const json_t *value, void *to, struct error *error) {
  struct channel_signatures signatures = {.n = json_array_size(value)};
  if (!json_is_array(value))
    return error_set(error, "must be an array of signatures");
  if (signatures.n > CHANNEL_SIGNATURES_MAX)
    return error_set(error, "%zu signatures: an entry has %d at most", signatures.n,
                     CHANNEL_SIGNATURES_MAX);

  for (size_t i = 0; i < signatures.n; i++) {
    char pointer[JSON_POINTER_SIZE];
    json_pointer_index(pointer, sizeof pointer, "", i);
    if (!record_read(&channel_signature_record, json_array_get(value, i), pointer,
                     &signatures.all[i], error))
      return false;
    for (size_t j = 0; j < i; j++)
      if (digest_equal(&signatures.all[j].key, &signatures.all[i].key))
        return error_at(error, pointer, "a key signs an entry once, and this one signed it before");
  }
  *(struct channel_signatures *)to = signatures;
  return true;
}

json_t *channel_signatures_to_json(const struct channel_signature *all, size_t n) {
  json_t *array = json_array();
  for (size_t i = 0; i < n; i++)
    ALWAYS(json_array_append_new(array, record_write(&channel_signature_record, &all[i])) == 0);
  return array;
}

static json_t *signatures_write(const void *at) {
  const struct channel_signatures *signatures = at;
  return channel_signatures_to_json(signatures->all, signatures->n);
}
const struct field_custom channel_signatures_field = {
    .schema = "{\"type\": \"array\", \"maxItems\": 8, \"items\": {\"$ref\": "
              "\"#/components/schemas/Signature\"}}",
    .read = signatures_read,
    .write = signatures_write};

/* The first ones are signed: adding to them, or leaving one out, makes every signature there is
 * worthless. */
enum { FIELDS_SIGNED = 7, FIELDS_WITH_SIGNATURES };
#define AT(member) offsetof(struct channel_entry, member)
static const struct field entry_fields[] = {
    {"channel", FIELD_TEXT, AT(channel), FIELD_ANSWER | FIELD_REQUIRED, .column = "name"},
    {"counter", FIELD_INTEGER, AT(counter), FIELD_ANSWER | FIELD_REQUIRED, .least = 1,
     .most = INT64_MAX},
    {"environment", FIELD_CUSTOM, AT(environment), FIELD_ANSWER | FIELD_REQUIRED,
     .custom = &environment_field},
    {"expires", FIELD_CUSTOM, AT(expires_s), FIELD_ANSWER | FIELD_OMITTED,
     .custom = &expires_field},
    {"regime", FIELD_ENUM, AT(regime), FIELD_ANSWER | FIELD_NOT_NULL | FIELD_OMITTED,
     .names = regime_names},
    {"release", FIELD_DIGEST, AT(release), FIELD_ANSWER | FIELD_REQUIRED},
    {"tag", FIELD_TEXT, AT(tag), FIELD_ANSWER | FIELD_REQUIRED, .least = 1},

    {"signatures", FIELD_CUSTOM, AT(signatures), FIELD_ANSWER | FIELD_NOT_NULL,
     .custom = &channel_signatures_field},

    {"updated_at", FIELD_TIME, AT(updated_at), FIELD_ANSWER | FIELD_NOT_NULL},
    {"moved_by", FIELD_TEXT, AT(moved_by), FIELD_ANSWER | FIELD_OMITTED,
     .schema = "{\"$ref\": \"#/components/schemas/By\"}"},
    {"moved_by_id", FIELD_ID, AT(moved_by_id), FIELD_ANSWER | FIELD_OMITTED,
     .schema = "{\"$ref\": \"#/components/schemas/ById\"}"},
    {"match", FIELD_JSON, AT(match), FIELD_ANSWER | FIELD_OMITTED | FIELD_NO_COLUMN,
     .schema = "{\"$ref\": \"#/components/schemas/CacheMatch\"}"},
};
const struct record channel_entry_record =
    RECORD("ChannelEntry", struct channel_entry, entry_fields);

bool channel_entry_parse(const json_t *json, struct channel_entry *ret, struct error *error) {
  cleanup_channel_entry struct channel_entry entry;
  record_init(&channel_entry_record, &entry);
  entry.regime = REGIME_COLD;
  if (!record_read_answer(&channel_entry_record, json, "", &entry, error))
    return false;
  if (!channel_name_check(entry.channel, error))
    return error_pointer_prefix(error, "/channel");
  *ret = entry;
  entry = (struct channel_entry){0};
  return true;
}

void channel_entry_release(struct channel_entry *entry) {
  record_release(&channel_entry_record, entry);
  *entry = (struct channel_entry){0};
}

/* Its first `n` fields. */
static json_t *entry_write(const struct channel_entry *entry, size_t n) {
  const struct record first = {NULL, entry_fields, n, sizeof *entry};
  struct channel_entry written = *entry;
  if (written.regime ==
      REGIME_COLD) /* what was signed of cold ones before there were two stays signed */
    written.regime = (enum regime) - 1;
  return record_write(&first, &written);
}

json_t *channel_entry_to_json(const struct channel_entry *entry, bool with_signatures) {
  return entry_write(entry, with_signatures ? FIELDS_WITH_SIGNATURES : FIELDS_SIGNED);
}

json_t *channel_entry_to_answer(const struct channel_entry *entry) {
  json_t *json = entry_write(entry, ARRAY_LENGTH(entry_fields));
  if (entry->moved_by && entry->moved_by_id == FIELD_NONE)
    ALWAYS(json_object_set_new(json, "moved_by_id", json_null()) == 0);
  return json;
}

char *channel_entry_signed_bytes(const struct channel_entry *entry, size_t *ret_size) {
  cleanup_json json_t *json = channel_entry_to_json(entry, false);
  cleanup_free char *canonical = json_canonical(json);
  char *bytes = xasprintf("%s%s", SIGNED_PREFIX, canonical);
  *ret_size = strlen(bytes);
  return bytes;
}

bool channel_entry_sign(struct channel_entry *entry, const struct signing_key *key,
                        struct error *error) {
  size_t at = 0, size;
  while (at < entry->signatures.n && !digest_equal(&entry->signatures.all[at].key, &key->id))
    at++;
  if (at == CHANNEL_SIGNATURES_MAX)
    return error_set(
        error,
        "the entry has %d signatures by other keys, and no more fit; move the channel, signed by "
        "those that deployments trust now",
        CHANNEL_SIGNATURES_MAX);
  cleanup_free char *bytes = channel_entry_signed_bytes(entry, &size);
  entry->signatures.all[at].key = key->id;
  signing_key_sign(key, bytes, size, entry->signatures.all[at].text);
  if (at == entry->signatures.n)
    entry->signatures.n++;
  return true;
}

bool channel_entry_verify(const struct channel_entry *entry, const struct trusted_keys *keys,
                          struct error *error) {
  size_t size;
  cleanup_free char *bytes = channel_entry_signed_bytes(entry, &size);
  const struct channel_signature *wrong = NULL;
  for (size_t i = 0; i < entry->signatures.n; i++) {
    const struct channel_signature *signature = &entry->signatures.all[i];
    const struct signing_key *key = trusted_keys_find(keys, &signature->key);
    if (key && signing_key_verify(key, bytes, size, signature->text))
      return true;
    if (key)
      wrong = signature;
  }
  char id[DIGEST_TEXT_SIZE];
  if (wrong)
    return error_set(error,
                     "the entry of channel \"%s\" at counter %" PRId64
                     " is not what key %s signed: it was "
                     "changed on its way",
                     entry->channel, entry->counter, digest_format(&wrong->key, id));
  if (!entry->signatures.n)
    return error_set(error,
                     "the entry of channel \"%s\" at counter %" PRId64
                     " is not signed; `wavetune sign %s` signs "
                     "it",
                     entry->channel, entry->counter, entry->channel);
  return error_set(
      error,
      "the entry of channel \"%s\" at counter %" PRId64 " is signed by %s%s, which is not trusted "
      "here (%zu other key%s)",
      entry->channel, entry->counter, digest_format(&entry->signatures.all[0].key, id),
      entry->signatures.n > 1 ? " and others" : "", keys->n, keys->n == 1 ? " is" : "s are");
}
