/* Signing and verifying kernels and builds. Memory and threads: as the header says. */
#include "common/cache/code_signature.h"

#include "common/base/time.h"
#include "common/cache/channel_entry.h"

#define KERNEL_LINE "wavetune kernel 1\n"
#define BUILD_LINE "wavetune build 1\n"

char *code_signed_bytes(const struct signed_code *code, int64_t expires_s, size_t *ret_size) {
  char expires[TIME_TEXT_SIZE];
  cleanup_json json_t *json = json_pack("{s:o}", "kernel", json_digest_text(&code->kernel));
  ALWAYS(json != NULL);
  if (code->is_build)
    ALWAYS(json_object_set_new(json, "build", json_digest_text(&code->build)) == 0);
  if (expires_s)
    ALWAYS(json_object_set_new(json, "expires",
                               json_string(time_text_format(expires_s, expires))) == 0);

  cleanup_free char *canonical = json_canonical(json);
  char *bytes = xasprintf("%s%s", code->is_build ? BUILD_LINE : KERNEL_LINE, canonical);
  *ret_size = strlen(bytes);
  return bytes;
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
  char expires[TIME_TEXT_SIZE];
  json_t *json = json_pack("{s:o, s:s}", "key", json_digest_text(&signature->key), "signature",
                           signature->text);
  ALWAYS(json != NULL);
  if (signature->expires_s)
    ALWAYS(json_object_set_new(json, "expires",
                               json_string(time_text_format(signature->expires_s, expires))) == 0);
  return json;
}

/* Members that are not known are ignored: they are not signed. */
static bool signature_read(const json_t *json, struct code_signature *ret) {
  struct code_signature signature = {0};
  struct error ignored;
  const char *text;
  if (!json_is_object(json) ||
      !json_get_digest(json, "", "key", JSON_REQUIRED, &signature.key, &ignored) ||
      !json_get_string(json, "", "signature", JSON_REQUIRED, &text, &ignored) ||
      !channel_expires_parse(json, &signature.expires_s, &ignored) ||
      !signature_is_well_formed(text))
    return false;
  memcpy(signature.text, text, sizeof signature.text);
  *ret = signature;
  return true;
}

static bool signature_holds(const struct signed_code *code, const struct code_signature *signature,
                            const struct signing_key *key) {
  size_t size;
  cleanup_free char *bytes = code_signed_bytes(code, signature->expires_s, &size);
  return signing_key_verify(key, bytes, size, signature->text);
}

static bool lasts_longer(const struct code_signature *one, const struct code_signature *other) {
  return other->expires_s && (!one->expires_s || one->expires_s > other->expires_s);
}

bool code_signature_find(const struct signed_code *code, const json_t *signatures,
                         const struct trusted_keys *keys, int64_t now_s, struct code_signature *ret,
                         struct error *error) {
  struct code_signature stranger = {0}, wrong = {0}, expired = {0}, best = {0};
  bool has_stranger = false, has_wrong = false, has_expired = false, has_best = false;
  char what[SIGNED_CODE_TEXT_SIZE], id[DIGEST_TEXT_SIZE], time[TIME_TEXT_SIZE];
  const json_t *item;
  size_t i;

  json_array_foreach (signatures, i, item) {
    struct code_signature signature;
    if (!signature_read(item, &signature))
      continue;
    const struct signing_key *key = trusted_keys_find(keys, &signature.key);
    if (!key) {
      stranger = signature;
      has_stranger = true;
    } else if (!signature_holds(code, &signature, key)) {
      wrong = signature;
      has_wrong = true;
    } else if (signature.expires_s && signature.expires_s <= now_s) {
      expired = signature;
      has_expired = true;
    } else if (!has_best || lasts_longer(&signature, &best)) {
      best = signature;
      has_best = true;
    }
  }

  signed_code_format(code, what);
  if (has_best) {
    *ret = best;
    return true;
  }
  if (has_wrong)
    return error_set(error,
                     "the signature of %s is not what key %s signed: it was changed on its way",
                     what, digest_format(&wrong.key, id));
  if (has_expired)
    return error_set(error, "the signature of %s by %s expired at %s; sign it again", what,
                     digest_format(&expired.key, id), time_text_format(expired.expires_s, time));
  if (has_stranger)
    return error_set(error, "%s is signed by %s, which is not trusted here (%zu other key%s)", what,
                     digest_format(&stranger.key, id), keys->n, keys->n == 1 ? " is" : "s are");
  return error_set(error, "%s is not signed; `wavetune kernel sign` signs it", what);
}

char *signed_code_format(const struct signed_code *code, char text[SIGNED_CODE_TEXT_SIZE]) {
  char digest[DIGEST_TEXT_SIZE];
  snprintf(text, SIGNED_CODE_TEXT_SIZE, "%s %s", code->is_build ? "build" : "kernel",
           digest_format(code->is_build ? &code->build : &code->kernel, digest));
  return text;
}
