/* Channel entries: from JSON, to the bytes that are signed, signing and verifying. Plain values; any thread. */
#include "common/cache/channel_entry.h"

#include <inttypes.h>

#include "common/base/time.h"

#define SIGNED_PREFIX "wavetune channel entry 1\n"

bool channel_name_check(const char *name, struct error *error) {
  size_t length = strlen(name);
  if (length == 0 || length > CHANNEL_NAME_MAX || strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") != length)
    return error_set(error, "\"%.80s\" is no channel name: 1 to %d of a-z, 0-9, \".\", \"_\" and \"-\"", name,
                     CHANNEL_NAME_MAX);
  return true;
}

bool channel_expires_parse(const json_t *json, int64_t *ret_s, struct error *error) {
  const char *text = NULL;
  int64_t s = 0;
  if (!json_get_string(json, "", "expires", JSON_OPTIONAL, &text, error))
    return false;
  if (text && (!time_text_parse(text, &s) || s == 0))
    return error_at(error, "/expires", "\"%.40s\" is no time of expiry: write UTC as 2026-12-24T00:00:00Z", text);
  *ret_s = s;
  return true;
}

bool channel_signature_parse(const json_t *json, const char *pointer, struct channel_signature *ret,
                             struct error *error) {
  static const char *const members[] = {"key", "signature", NULL};
  struct channel_signature signature;
  const char *text;
  if (!json_only_members(json, pointer, members, error) ||
      !json_get_digest(json, pointer, "key", JSON_REQUIRED, &signature.key, error) ||
      !json_get_string(json, pointer, "signature", JSON_REQUIRED, &text, error))
    return false;
  if (!signature_is_well_formed(text)) {
    char at[JSON_POINTER_SIZE];
    return error_at(error, json_pointer_member(at, sizeof at, pointer, "signature"),
                    "this is no signature: it must be base64 of %d bytes", SIGNATURE_SIZE);
  }
  memcpy(signature.text, text, sizeof signature.text);
  *ret = signature;
  return true;
}

bool channel_signatures_parse(const json_t *json, struct channel_signature all[CHANNEL_SIGNATURES_MAX], size_t *ret_n,
                              struct error *error) {
  json_t *array = NULL;
  if (!json_get_array(json, "", "signatures", JSON_OPTIONAL, &array, error))
    return false;
  size_t n = json_array_size(array);
  if (n > CHANNEL_SIGNATURES_MAX)
    return error_at(error, "/signatures", "%zu signatures: an entry has %d at most", n, CHANNEL_SIGNATURES_MAX);
  for (size_t i = 0; i < n; i++) {
    char pointer[JSON_POINTER_SIZE];
    json_pointer_index(pointer, sizeof pointer, "/signatures", i);
    if (!channel_signature_parse(json_array_get(array, i), pointer, &all[i], error))
      return false;
    for (size_t j = 0; j < i; j++)
      if (digest_equal(&all[j].key, &all[i].key))
        return error_at(error, pointer, "a key signs an entry once, and this one signed it before");
  }
  *ret_n = n;
  return true;
}

bool channel_entry_parse(const json_t *json, struct channel_entry *ret, struct error *error) {
  __attribute__((cleanup(channel_entry_release))) struct channel_entry entry = {0};
  const char *channel, *tag;
  json_t *environment;
  if (!json_is_object(json))
    return error_set(error, "a channel entry is a JSON object");
  if (!json_get_string(json, "", "channel", JSON_REQUIRED, &channel, error) ||
      !json_get_integer(json, "", "counter", JSON_REQUIRED, 1, INT64_MAX, &entry.counter, error) ||
      !json_get_object(json, "", "environment", JSON_REQUIRED, &environment, error) ||
      !json_get_digest(json, "", "release", JSON_REQUIRED, &entry.release, error) ||
      !json_get_string(json, "", "tag", JSON_REQUIRED, &tag, error) || !regime_get(json, "", &entry.regime, error) ||
      !channel_expires_parse(json, &entry.expires_s, error) ||
      !channel_signatures_parse(json, entry.signatures, &entry.n_signatures, error))
    return false;
  if (!channel_name_check(channel, error))
    return error_pointer_prefix(error, "/channel");
  if (!*tag)
    return error_at(error, "/tag", "a tag is not empty");
  if (!environment_parse(environment, &entry.environment, error))
    return error_pointer_prefix(error, "/environment");
  entry.channel = xstrdup(channel);
  entry.tag = xstrdup(tag);
  *ret = entry;
  entry = (struct channel_entry){0};
  return true;
}

void channel_entry_release(struct channel_entry *entry) {
  free(entry->channel);
  free(entry->tag);
  environment_release(&entry->environment);
  *entry = (struct channel_entry){0};
}

json_t *channel_signatures_to_json(const struct channel_signature *all, size_t n) {
  json_t *array = json_array();
  for (size_t i = 0; i < n; i++)
    ALWAYS(json_array_append_new(
               array, json_pack("{s:o, s:s}", "key", json_digest_text(&all[i].key), "signature", all[i].text)) == 0);
  return array;
}

json_t *channel_entry_to_json(const struct channel_entry *entry, bool with_signatures) {
  char expires[TIME_TEXT_SIZE];
  json_t *json = json_pack("{s:s, s:I, s:o, s:o, s:s}", "channel", entry->channel, "counter",
                           (json_int_t)entry->counter, "environment", environment_to_json(&entry->environment),
                           "release", json_digest_text(&entry->release), "tag", entry->tag);
  ALWAYS(json != NULL);
  if (entry->regime == REGIME_WARM) /* what was signed of cold ones before there were two stays signed */
    ALWAYS(json_object_set_new(json, "regime", json_string(regime_name(entry->regime))) == 0);
  if (entry->expires_s)
    ALWAYS(json_object_set_new(json, "expires", json_string(time_text_format(entry->expires_s, expires))) == 0);
  if (with_signatures)
    ALWAYS(json_object_set_new(json, "signatures",
                               channel_signatures_to_json(entry->signatures, entry->n_signatures)) == 0);
  return json;
}

char *channel_entry_signed_bytes(const struct channel_entry *entry, size_t *ret_size) {
  cleanup_json json_t *json = channel_entry_to_json(entry, false);
  cleanup_free char *canonical = json_canonical(json);
  char *bytes = xasprintf("%s%s", SIGNED_PREFIX, canonical);
  *ret_size = strlen(bytes);
  return bytes;
}

bool channel_entry_sign(struct channel_entry *entry, const struct signing_key *key, struct error *error) {
  size_t at = 0, size;
  while (at < entry->n_signatures && !digest_equal(&entry->signatures[at].key, &key->id))
    at++;
  if (at == CHANNEL_SIGNATURES_MAX)
    return error_set(error,
                     "the entry has %d signatures by other keys, and no more fit; move the channel, signed by "
                     "those that deployments trust now",
                     CHANNEL_SIGNATURES_MAX);
  cleanup_free char *bytes = channel_entry_signed_bytes(entry, &size);
  entry->signatures[at].key = key->id;
  signing_key_sign(key, bytes, size, entry->signatures[at].text);
  if (at == entry->n_signatures)
    entry->n_signatures++;
  return true;
}

bool channel_entry_verify(const struct channel_entry *entry, const struct trusted_keys *keys, struct error *error) {
  size_t size;
  cleanup_free char *bytes = channel_entry_signed_bytes(entry, &size);
  const struct channel_signature *wrong = NULL;
  for (size_t i = 0; i < entry->n_signatures; i++) {
    const struct channel_signature *signature = &entry->signatures[i];
    const struct signing_key *key = trusted_keys_find(keys, &signature->key);
    if (key && signing_key_verify(key, bytes, size, signature->text))
      return true;
    if (key)
      wrong = signature;
  }
  char id[DIGEST_TEXT_SIZE];
  if (wrong)
    return error_set(error,
                     "the entry of channel \"%s\" at counter %" PRId64 " is not what key %s signed: it was "
                     "changed on its way",
                     entry->channel, entry->counter, digest_format(&wrong->key, id));
  if (!entry->n_signatures)
    return error_set(error,
                     "the entry of channel \"%s\" at counter %" PRId64 " is not signed; `wavetune sign %s` signs "
                     "it",
                     entry->channel, entry->counter, entry->channel);
  return error_set(error,
                   "the entry of channel \"%s\" at counter %" PRId64 " is signed by %s%s, which is not trusted "
                   "here (%zu other key%s)",
                   entry->channel, entry->counter, digest_format(&entry->signatures[0].key, id),
                   entry->n_signatures > 1 ? " and others" : "", keys->n, keys->n == 1 ? " is" : "s are");
}
