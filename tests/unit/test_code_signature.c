/* Signatures of kernels and builds: what is signed byte by byte, which signature counts, and what
 * passes for none. */
#include "common/cache/signatures.h"

#include <criterion/criterion.h>
#include <openssl/evp.h>

static struct error error;

#define KERNEL "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define BUILD "sha256:6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"
#define NOW_S INT64_C(1798070400) /* 2026-12-24T00:00:00Z */

/* A private key whose secret is this byte 32 times. */
static struct signing_key key_of(uint8_t byte) {
  uint8_t raw[32];
  size_t size = sizeof raw;
  memset(raw, byte, sizeof raw);
  struct signing_key key = {
      .pkey = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, raw, sizeof raw),
      .is_private = true};
  cr_assert(key.pkey && EVP_PKEY_get_raw_public_key(key.pkey, raw, &size) == 1);
  key.id = digest_of(raw, size);
  return key;
}

static struct signed_code kernel_code(void) {
  struct signed_code code = {.is_build = false};
  cr_assert(digest_parse(KERNEL, &code.kernel));
  return code;
}

static struct signed_code build_code(void) {
  struct signed_code code = kernel_code();
  code.is_build = true;
  cr_assert(digest_parse(BUILD, &code.build));
  return code;
}

static json_t *signature_of(const struct signed_code *code, const struct signing_key *key,
                            int64_t expires_s) {
  struct code_signature signature = code_sign(code, key, expires_s);
  return code_signature_to_json(&signature);
}

static bool find(const struct signed_code *code, const json_t *signatures,
                 struct signing_key *trusted, struct code_signature *ret) {
  struct trusted_keys keys = {1, trusted};
  return code_signature_find(code, signatures, &keys, NOW_S, ret, &error);
}

static void expect_refused(const struct signed_code *code, json_t *taken_signatures,
                           struct signing_key *trusted, const char *what) {
  struct code_signature found;
  cr_expect_not(find(code, taken_signatures, trusted, &found), "found one that is none: %s", what);
  cr_expect_neq(strstr(error.message, what), NULL, "%s: %s", what, error.message);
  json_decref(taken_signatures);
}

static json_t *array_of(json_t *taken) { return json_pack("[o]", taken); }

static void expect_signed(const struct signed_code *code, int64_t expires_s, const char *text) {
  size_t size;
  cleanup_free char *bytes = code_signed_bytes(code, expires_s, &size);
  cr_expect_str_eq(bytes, text);
  cr_expect_eq(size, strlen(text));
}

Test(code_signature, signed_bytes_are_a_line_of_the_kind_and_the_canonical_members) {
  struct signed_code kernel = kernel_code(), build = build_code();
  expect_signed(&kernel, 0, "wavetune kernel 1\n{\"kernel\":\"" KERNEL "\"}");
  expect_signed(&kernel, NOW_S,
                "wavetune kernel 1\n{\"expires\":\"2026-12-24T00:00:00Z\",\"kernel\":\"" KERNEL
                "\"}");
  expect_signed(&build, 0, "wavetune build 1\n{\"build\":\"" BUILD "\",\"kernel\":\"" KERNEL "\"}");
  expect_signed(&build, NOW_S,
                "wavetune build 1\n{\"build\":\"" BUILD
                "\",\"expires\":\"2026-12-24T00:00:00Z\",\"kernel\":\"" KERNEL "\"}");
}

Test(code_signature, of_several_the_trusted_one_that_lasts_longest_counts) {
  struct signing_key key = key_of(1), other = key_of(2);
  struct signed_code code = kernel_code();
  struct code_signature found;
  cleanup_json json_t *signatures = json_pack(
      "[o, o, o, o, s, {}]", signature_of(&code, &other, 0), signature_of(&code, &key, NOW_S + 1),
      signature_of(&code, &key, NOW_S + 9), signature_of(&code, &key, NOW_S + 5), "none");
  cr_assert(find(&code, signatures, &key, &found), "%s", error.message);
  cr_expect(digest_equal(&found.key, &key.id));
  cr_expect_eq(found.expires_s, NOW_S + 9);
  json_array_append_new(signatures, signature_of(&code, &key, 0));
  cr_assert(find(&code, signatures, &key, &found));
  cr_expect_eq(found.expires_s, 0, "one that never expires lasts longest");
  signing_key_release(&key);
  signing_key_release(&other);
}

Test(code_signature, what_does_not_count_is_told_apart) {
  struct signing_key key = key_of(1), other = key_of(2);
  struct signed_code code = kernel_code(), build = build_code(), changed = kernel_code();
  changed.kernel.bytes[0] ^= 1;
  expect_refused(&code, NULL, &key, "kernel " KERNEL " is not signed");
  expect_refused(&code, json_array(), &key, "is not signed");
  expect_refused(&code, json_pack("{s:s}", "key", KERNEL), &key, "is not signed");
  expect_refused(&build, json_array(), &key, "build " BUILD " is not signed");
  expect_refused(&code, array_of(signature_of(&code, &other, 0)), &key,
                 "which is not trusted here (1 other key is)");
  expect_refused(&code, array_of(signature_of(&code, &key, NOW_S)), &key,
                 "expired at 2026-12-24T00:00:00Z");
  expect_refused(&changed, array_of(signature_of(&code, &key, 0)), &key, "is not what key");
  signing_key_release(&key);
  signing_key_release(&other);
}

Test(code_signature, an_expiry_is_signed_too) {
  struct signing_key key = key_of(1);
  struct signed_code code = kernel_code();
  json_t *longer = signature_of(&code, &key, NOW_S - 5),
         *endless = signature_of(&code, &key, NOW_S - 5);
  json_object_set_new(longer, "expires", json_string("2030-01-01T00:00:00Z"));
  json_object_del(endless, "expires");
  expect_refused(&code, array_of(longer), &key, "is not what key");
  expect_refused(&code, array_of(endless), &key, "is not what key");
  signing_key_release(&key);
}

Test(code_signature, a_signature_of_one_kind_is_none_of_another) {
  struct signing_key key = key_of(1);
  struct signed_code code = kernel_code(), build = build_code(), twin = build_code();
  twin.build = twin.kernel;
  expect_refused(&build, array_of(signature_of(&code, &key, 0)), &key, "is not what key");
  expect_refused(&code, array_of(signature_of(&build, &key, 0)), &key, "is not what key");
  expect_refused(&twin, array_of(signature_of(&code, &key, 0)), &key, "is not what key");

  /* What a publisher signs for deployments, whatever its release is, begins with another line. */
  struct channel_entry entry = {
      .channel = (char *)"stable", .tag = (char *)"default", .counter = 1, .release = code.kernel};
  cr_assert(channel_entry_sign(&entry, &key, &error));
  json_t *signatures = channel_signatures_to_json(entry.signatures.all, 1);
  expect_refused(&code, json_incref(signatures), &key, "is not what key");
  expect_refused(&build, signatures, &key, "is not what key");
  struct code_signature kernels = code_sign(&code, &key, 0);
  memcpy(entry.signatures.all[0].text, kernels.text, sizeof kernels.text);
  struct trusted_keys keys = {1, &key};
  cr_expect_not(channel_entry_verify(&entry, &keys, &error));
  signing_key_release(&key);
}

Test(code_signature, a_public_key_is_one_text) {
  struct signing_key key = key_of(1), again;
  struct signed_code code = kernel_code();
  struct code_signature signature = code_sign(&code, &key, 0);
  char text[PUBLIC_KEY_TEXT_SIZE];
  size_t size;
  signing_key_public_text(&key, text);
  cr_assert(signing_key_of_public_text(text, &again, &error));
  cr_expect(digest_equal(&again.id, &key.id) && !again.is_private);
  cleanup_free char *bytes = code_signed_bytes(&code, 0, &size);
  cr_expect(signing_key_verify(&again, bytes, size, signature.text));
  signing_key_release(&again);

  text[42]++; /* loose padding bits */
  static const char *const wrong[] = {"", "AAAA",
                                      "not base64 but as long as a key's text is ....=="};
  cr_expect_not(signing_key_of_public_text(text, &again, &error), "%s", text);
  for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++)
    cr_expect_not(signing_key_of_public_text(wrong[i], &again, &error), "%s", wrong[i]);
  cr_expect_neq(strstr(error.message, "base64 of 32 bytes"), NULL);
  signing_key_release(&key);
}
