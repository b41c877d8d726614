/* What is signed: channel entries, kernels and builds. Memory and threads: signatures.h. */
#include <inttypes.h>

#include "common/base/time.h"
#include "common/cache/signatures.h"

#define ENTRY_PREFIX "wavetune channel entry 1\n"
#define CHOICES_PREFIX "wavetune choices 1\n"
#define KERNEL_PREFIX "wavetune kernel 1\n"
#define BUILD_PREFIX "wavetune build 1\n"

/* Fields of records */

static bool expires_read(const json_t *value, void *to, struct error *error) {
  const char *text = json_string_value(value);
  int64_t s;
  if (!text || !time_text_parse(text, &s) || s == 0)
    return error_set(error, "%s%.40s%s is not a time of expiry: write UTC as 2026-12-24T00:00:00Z",
                     text ? "\"" : "", text ? text : "this", text ? "\"" : "");
  *(int64_t *)to = s;
  return true;
}

static json_t *expires_write(const void *at) {
  return json_string(TIME_TEXT(*(const int64_t *)at));
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
    return error_set(error, "this is not a signature: it must be base64 of %d bytes",
                     SIGNATURE_SIZE);
  memcpy(to, text, SIGNATURE_TEXT_SIZE);
  return true;
}

static json_t *signature_text_write(const void *at) { return json_string(at); }

static const struct field_custom signature_text_field = {
    .schema = "{\"type\": \"string\", \"pattern\": \"^[A-Za-z0-9+/]{86}==$\"}",
    .read = signature_text_read,
    .write = signature_text_write};

static const struct field signature_fields[] = {
    RECORD_FIELD(DIGEST, struct channel_signature, key, FIELD_REQUIRED),
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
    const char *pointer = POINTER_INDEX("", i);
    if (!record_read(&channel_signature_record, json_array_get(value, i), pointer,
                     &signatures.all[i], error))
      return false;
    for (size_t j = 0; j < i; j++)
      if (digest_equal(&signatures.all[j].key, &signatures.all[i].key))
        return error_at(error, pointer, "a key signs an entry once, and this one occurs twice");
  }

  *(struct channel_signatures *)to = signatures;
  return true;
}

json_t *channel_signatures_to_json(const struct channel_signature *all, size_t n) {
  json_t *array = json_array();
  for (size_t i = 0; i < n; i++)
    json_push(array, record_write(&channel_signature_record, &all[i]));
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

bool channel_name_check(const char *name, struct error *error) {
  size_t length = strlen(name);
  if (length == 0 || length > CHANNEL_NAME_MAX ||
      strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") != length)
    return error_set(error,
                     "\"%.80s\" is not a channel name: 1 to %d of a-z, 0-9, \".\", \"_\" and \"-\"",
                     name, CHANNEL_NAME_MAX);
  return true;
}

/* The first FIELDS_SIGNED fields are signed: adding or removing one makes all existing signatures
 * invalid. */
enum { FIELDS_SIGNED = 7, FIELDS_WITH_SIGNATURES };
#define AT(member) offsetof(struct channel_entry, member)
static const struct field entry_fields[] = {
    RECORD_FIELD(TEXT, struct channel_entry, channel, FIELD_ANSWER | FIELD_REQUIRED,
                 .column = "name"),
    RECORD_FIELD(INTEGER, struct channel_entry, counter, FIELD_ANSWER | FIELD_REQUIRED, .least = 1,
                 .most = INT64_MAX),
    RECORD_FIELD(CUSTOM, struct channel_entry, environment, FIELD_ANSWER | FIELD_REQUIRED,
                 .custom = &environment_field),
    {"expires", FIELD_CUSTOM, AT(expires_s), FIELD_ANSWER | FIELD_OMITTED,
     .custom = &expires_field},
    RECORD_FIELD(ENUM, struct channel_entry, regime, FIELD_ANSWER | FIELD_NOT_NULL | FIELD_OMITTED,
                 .names = regime_names),
    RECORD_FIELD(DIGEST, struct channel_entry, release, FIELD_ANSWER | FIELD_REQUIRED),
    RECORD_FIELD(TEXT, struct channel_entry, tag, FIELD_ANSWER | FIELD_REQUIRED, .least = 1),
    RECORD_FIELD(CUSTOM, struct channel_entry, signatures, FIELD_ANSWER | FIELD_NOT_NULL,
                 .custom = &channel_signatures_field),
    RECORD_FIELD(TIME, struct channel_entry, updated_at, FIELD_ANSWER | FIELD_NOT_NULL),
    RECORD_FIELD(TEXT, struct channel_entry, moved_by, FIELD_ANSWER | FIELD_OMITTED,
                 .schema = "{\"$ref\": \"#/components/schemas/By\"}"),
    RECORD_FIELD(ID, struct channel_entry, moved_by_id, FIELD_ANSWER | FIELD_OMITTED,
                 .schema = "{\"$ref\": \"#/components/schemas/ById\"}"),
    RECORD_FIELD(JSON, struct channel_entry, match, FIELD_ANSWER | FIELD_OMITTED | FIELD_NO_COLUMN,
                 .schema = "{\"$ref\": \"#/components/schemas/CacheMatch\"}"),
};
const struct record channel_entry_record =
    RECORD("ChannelEntry", struct channel_entry, entry_fields);

bool channel_entry_parse(const json_t *json, struct channel_entry *ret, struct error *error) {
  cleanup_channel_entry struct channel_entry entry;
  record_init(&channel_entry_record, &entry);
  entry.regime = REGIME_IMPLIED;
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

/* Writes the first `n` fields. */
static json_t *entry_write(const struct channel_entry *entry, size_t n) {
  const struct record first = {NULL, entry_fields, n, sizeof *entry};
  struct channel_entry written = *entry;
  if (!regime_member(written.regime)) /* the implied one is absent */
    written.regime = (enum regime) - 1;
  return record_write(&first, &written);
}

json_t *channel_entry_to_json(const struct channel_entry *entry, bool with_signatures) {
  return entry_write(entry, with_signatures ? FIELDS_WITH_SIGNATURES : FIELDS_SIGNED);
}

json_t *channel_entry_to_answer(const struct channel_entry *entry) {
  json_t *json = entry_write(entry, ARRAY_LENGTH(entry_fields));
  if (entry->moved_by && entry->moved_by_id == FIELD_NONE)
    json_put(json, "moved_by_id", json_null());
  return json;
}

/* The bytes that are signed: a prefix and the canonical JSON, which is taken over. */
static char *signed_bytes(const char *prefix, json_t *json, size_t *ret_size) {
  cleanup_json json_t *owned = json;
  cleanup_free char *canonical = json_canonical(owned);
  char *bytes = xasprintf("%s%s", prefix, canonical);
  *ret_size = strlen(bytes);
  return bytes;
}

char *channel_entry_signed_bytes(const struct channel_entry *entry, size_t *ret_size) {
  return signed_bytes(ENTRY_PREFIX, channel_entry_to_json(entry, false), ret_size);
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
  const struct channel_signatures *signatures = &entry->signatures;
  const struct channel_signature *wrong = NULL;
  size_t size;
  cleanup_free char *bytes = channel_entry_signed_bytes(entry, &size);

  for (size_t i = 0; i < signatures->n; i++) {
    const struct signing_key *key = trusted_keys_find(keys, &signatures->all[i].key);
    if (key && signing_key_verify(key, bytes, size, signatures->all[i].text))
      return true;
    if (key)
      wrong = &signatures->all[i];
  }

  if (wrong)
    error_set(error, "is not what key %s signed: it was changed on its way",
              DIGEST_TEXT(&wrong->key));
  else if (!signatures->n)
    error_set(error, "is not signed; `wavetune sign %s` signs it", entry->channel);
  else
    error_set(error, "is signed by %s%s, which is not trusted here (%zu other key%s)",
              DIGEST_TEXT(&signatures->all[0].key), signatures->n > 1 ? " and others" : "", keys->n,
              keys->n == 1 ? " is" : "s are");

  return error_prefix(error, "the entry of channel \"%s\" at counter %" PRId64 " ", entry->channel,
                      entry->counter);
}

/* Kernels and builds */

PRIVATE_RECORD(code_signature, struct code_signature,
               RECORD_FIELD(DIGEST, struct code_signature, key, FIELD_REQUIRED),
               {"signature", FIELD_CUSTOM, offsetof(struct code_signature, text), FIELD_REQUIRED,
                .custom = &signature_text_field},
               {"expires", FIELD_CUSTOM, offsetof(struct code_signature, expires_s), FIELD_OMITTED,
                .custom = &expires_field});

char *choices_signed_bytes(const struct digest *release, const struct digest *choices,
                           size_t *ret_size) {
  json_t *json = json_pack("{s:o, s:o}", "choices", json_digest_text(choices), "release",
                           json_digest_text(release));
  ALWAYS(json != NULL);
  return signed_bytes(CHOICES_PREFIX, json, ret_size);
}

struct channel_signature choices_sign(const struct digest *release, const struct digest *choices,
                                      const struct signing_key *key) {
  struct channel_signature signature = {.key = key->id};
  size_t size;
  cleanup_free char *bytes = choices_signed_bytes(release, choices, &size);
  signing_key_sign(key, bytes, size, signature.text);
  return signature;
}

char *code_signed_bytes(const struct signed_code *code, int64_t expires_s, size_t *ret_size) {
  json_t *json = json_pack("{s:o, s:o*, s:o*}", "kernel", json_digest_text(&code->kernel), "build",
                           code->is_build ? json_digest_text(&code->build) : NULL, "expires",
                           expires_s ? expires_write(&expires_s) : NULL);
  ALWAYS(json != NULL);
  return signed_bytes(code->is_build ? BUILD_PREFIX : KERNEL_PREFIX, json, ret_size);
}

struct code_signature code_sign(const struct signed_code *code, const struct signing_key *key,
                                int64_t expires_s) {
  struct code_signature signature = {.key = key->id, .expires_s = expires_s};
  size_t size;
  cleanup_free char *bytes = code_signed_bytes(code, expires_s, &size);
  signing_key_sign(key, bytes, size, signature.text);
  return signature;
}

json_t *code_signature_to_json(const struct code_signature *signature) {
  return record_write(&code_signature_record, signature);
}

bool code_signature_find(const struct signed_code *code, const json_t *signatures,
                         const struct trusted_keys *keys, int64_t now_s, struct code_signature *ret,
                         struct error *error) {
  enum { NONE, UNTRUSTED, EXPIRED, WRONG, VALID } found = NONE, state;
  struct code_signature best = {0}, signature;
  char what[SIGNED_CODE_TEXT_SIZE];
  struct error ignored;
  size_t size;

  json_elements (signatures, i, item) {
    record_init(&code_signature_record, &signature);
    signature.expires_s = 0;
    if (!record_read_answer(&code_signature_record, item, "", &signature, &ignored))
      continue;
    const struct signing_key *key = trusted_keys_find(keys, &signature.key);
    cleanup_free char *bytes = code_signed_bytes(code, signature.expires_s, &size);
    if (!key)
      state = UNTRUSTED;
    else if (!signing_key_verify(key, bytes, size, signature.text))
      state = WRONG;
    else if (signature.expires_s && signature.expires_s <= now_s)
      state = EXPIRED;
    else
      state = VALID;
    bool lasts_longer =
        best.expires_s && (!signature.expires_s || signature.expires_s > best.expires_s);
    if (state > found || (state == found && (state != VALID || lasts_longer))) {
      found = state;
      best = signature;
    }
  }

  signed_code_format(code, what);
  const char *id = DIGEST_TEXT(&best.key);

  switch (found) {
  case NONE:
    return error_set(error, "%s is not signed; `wavetune kernel sign` signs it", what);
  case UNTRUSTED:
    return error_set(error, "%s is signed by %s, which is not trusted here (%zu other key%s)", what,
                     id, keys->n, keys->n == 1 ? " is" : "s are");
  case EXPIRED:
    return error_set(error, "the signature of %s by %s expired at %s; sign it again", what, id,
                     TIME_TEXT(best.expires_s));
  case WRONG:
    return error_set(error,
                     "the signature of %s is not what key %s signed: it was changed on its way",
                     what, id);
  case VALID:
    *ret = best;
    return true;
  }

  die("no such state");
}

char *signed_code_format(const struct signed_code *code, char text[SIGNED_CODE_TEXT_SIZE]) {
  char digest[DIGEST_TEXT_SIZE];
  snprintf(text, SIGNED_CODE_TEXT_SIZE, "%s %s", code->is_build ? "build" : "kernel",
           digest_format(code->is_build ? &code->build : &code->kernel, digest));
  return text;
}
