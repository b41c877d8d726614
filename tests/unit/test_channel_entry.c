/* Channel entries: what is read, what is signed byte by byte, what a signature proves. */
#include "common/cache/signatures.h"

#include <criterion/criterion.h>
#include <openssl/evp.h>

static struct error error;

#define RELEASE "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define WITHOUT_END                                                                                \
  "{\"tag\":\"default\",\"channel\":\"stable\",\"environment\":{\"rocm\":\"6.4.1\",\"compute_"     \
  "units\":304},"                                                                                  \
  "\"release\":\"" RELEASE "\",\"counter\":4"
#define ENTRY                                                                                      \
  WITHOUT_END ",\"expires\":\"2026-12-24T00:00:00Z\",\"updated_at\":\"2026-01-01T00:00:00Z\"}"

static bool entry_read(const char *text, struct channel_entry *entry) {
  cleanup_json json_t *json = NULL;
  cr_assert(json_parse(text, strlen(text), &json, &error), "%s: %s", text, error.message);
  return channel_entry_parse(json, entry, &error);
}

static struct channel_entry parsed(const char *text) {
  struct channel_entry entry = {0};
  cr_assert(entry_read(text, &entry), "%s: %s", text, error.message);
  return entry;
}

static void expect_refused(const char *text, const char *pointer, const char *what) {
  struct channel_entry entry = {.counter = 42};
  cr_expect_not(entry_read(text, &entry), "%s was read", text);
  cr_expect_str_eq(error.pointer, pointer, "%s: %s", text, error.pointer);
  cr_expect_neq(strstr(error.message, what), NULL, "%s", error.message);
  cr_expect_eq(entry.counter, 42, "a refusal wrote its result");
}

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

Test(channel_entry, reads_its_members_and_leaves_out_what_is_not_signed) {
  cleanup_channel_entry struct channel_entry entry = parsed(ENTRY);
  cr_expect_str_eq(entry.channel, "stable");
  cr_expect_str_eq(entry.tag, "default");
  cr_expect_str_eq(entry.environment.rocm, "6.4.1");
  cr_expect_eq(entry.counter, 4);
  cr_expect_eq(entry.expires_s, 1798070400);
  cr_expect_eq(entry.signatures.n, (size_t)0);
}

Test(channel_entry, signed_bytes_are_a_line_and_the_canonical_members) {
  size_t size;
  cleanup_channel_entry struct channel_entry entry = parsed(ENTRY);
  cleanup_free char *bytes = channel_entry_signed_bytes(&entry, &size);
  cr_expect_str_eq(bytes, "wavetune channel entry 1\n"
                          "{\"channel\":\"stable\",\"counter\":4,\"environment\":{\"compute_"
                          "units\":304,\"rocm\":\"6.4.1\"},"
                          "\"expires\":\"2026-12-24T00:00:00Z\",\"release\":\"" RELEASE
                          "\",\"tag\":\"default\"}");
  cr_expect_eq(size, strlen(bytes));
}

Test(channel_entry, without_an_expiry_its_bytes_do_not_name_one) {
  size_t size;
  cleanup_channel_entry struct channel_entry entry = parsed(WITHOUT_END "}");
  cleanup_free char *bytes = channel_entry_signed_bytes(&entry, &size);
  cr_expect_eq(strstr(bytes, "expires"), NULL);
}

Test(channel_entry, names_its_regime_only_when_it_is_warm) {
  size_t size;
  cleanup_channel_entry struct channel_entry cold = parsed(WITHOUT_END ",\"regime\":\"cold\"}"),
                                             warm = parsed(WITHOUT_END ",\"regime\":\"warm\"}");
  cleanup_free char *cold_bytes = channel_entry_signed_bytes(&cold, &size),
                    *warm_bytes = channel_entry_signed_bytes(&warm, &size);
  cr_expect_null(strstr(cold_bytes, "regime"), "%s", cold_bytes);
  cr_expect_not_null(strstr(warm_bytes, ",\"regime\":\"warm\",\"release\":"), "%s", warm_bytes);
  cr_expect_eq(warm.regime, REGIME_WARM);
}

#define HISTORY                                                                                    \
  WITHOUT_END                                                                                      \
  ",\"updated_at\":\"2026-01-01T00:00:00.000Z\",\"moved_by\":\"ci\",\"moved_by_id\":\"7\","        \
  "\"match\":{\"rule\":\"exact\",\"differs\":{}},\"signatures\":[],\"later\":1}"

Test(channel_entry, does_not_sign_what_answers_add) {
  size_t size;
  cleanup_channel_entry struct channel_entry entry = parsed(HISTORY),
                                             alone = parsed(WITHOUT_END "}");
  cleanup_free char *bytes = channel_entry_signed_bytes(&entry, &size),
                    *alone_bytes = channel_entry_signed_bytes(&alone, &size);
  cr_expect_str_eq(bytes, alone_bytes);
  cr_expect_eq(entry.moved_by_id, 7);
}

Test(channel_entry, is_answered_with_all_that_is_known) {
  cleanup_channel_entry struct channel_entry entry = parsed(HISTORY);
  cleanup_json json_t *known = channel_entry_to_answer(&entry),
                      *wanted = json_loads(HISTORY, 0, NULL);
  json_object_del(wanted, "later");
  cleanup_free char *text = json_canonical(known);
  cr_expect(json_equal(known, wanted), "%s", text);
  entry.moved_by_id = FIELD_NONE;
  cleanup_json json_t *unknown = channel_entry_to_answer(&entry);
  cr_expect(json_is_null(json_object_get(unknown, "moved_by_id")));
}

Test(channel_entry, whose_time_or_author_is_none_is_refused) {
  expect_refused(WITHOUT_END ",\"updated_at\":7}", "/updated_at", "");
  expect_refused(WITHOUT_END ",\"moved_by_id\":\"ci\"}", "/moved_by_id", "");
}

Test(channel_entry, members_that_are_missing_or_wrong_are_refused_by_name) {
  expect_refused("[]", "", "must be an object");
  expect_refused("{}", "/channel", "");
  expect_refused("{\"channel\":\"Stable\",\"counter\":1,\"environment\":{},\"release\":\"" RELEASE
                 "\",\"tag\":\"t\"}",
                 "/channel", "not a channel name");
  expect_refused("{\"channel\":\"a\",\"counter\":0,\"environment\":{},\"release\":\"" RELEASE
                 "\",\"tag\":\"t\"}",
                 "/counter", "");
  expect_refused("{\"channel\":\"a\",\"counter\":1,\"environment\":{\"x\":1},\"release\":\"" RELEASE
                 "\",\"tag\":\"t\"}",
                 "/environment/x", "");
  expect_refused(
      "{\"channel\":\"a\",\"counter\":1,\"environment\":{},\"release\":\"sha256:0\",\"tag\":\"t\"}",
      "/release", "");
  expect_refused("{\"channel\":\"a\",\"counter\":1,\"environment\":{},\"release\":\"" RELEASE
                 "\",\"tag\":\"\"}",
                 "/tag", "at least 1");
  expect_refused(WITHOUT_END ",\"expires\":\"tomorrow\"}", "/expires", "not a time of expiry");
  expect_refused(WITHOUT_END ",\"expires\":\"1970-01-01T00:00:00Z\"}", "/expires",
                 "not a time of expiry");
}

Test(channel_entry, signatures_that_are_none_are_refused) {
  expect_refused(WITHOUT_END ",\"signatures\":{}}", "/signatures", "");
  expect_refused(WITHOUT_END ",\"signatures\":[{\"key\":\"" RELEASE "\"}]}",
                 "/signatures/0/signature", "");
  expect_refused(WITHOUT_END ",\"signatures\":[{\"key\":\"" RELEASE "\",\"signature\":\"AAAA\"}]}",
                 "/signatures/0/signature", "base64 of 64 bytes");
  expect_refused(WITHOUT_END ",\"signatures\":[1]}", "/signatures/0", "");
}

Test(channel_entry, signatures_are_eight_at_most_and_each_key_signs_once) {
  cleanup_json json_t *json = json_loads(WITHOUT_END "}", 0, NULL);
  json_t *array = json_array();
  char text[SIGNATURE_TEXT_SIZE];
  cleanup_signing_key struct signing_key key = key_of(1);
  cleanup_channel_entry struct channel_entry entry = {0};
  signing_key_sign(&key, "", 0, text);
  json_object_set_new(json, "signatures", array);
  for (int i = 0; i < 2; i++)
    json_array_append_new(
        array, json_pack("{s:o, s:s}", "key", json_digest_text(&key.id), "signature", text));
  cr_expect_not(channel_entry_parse(json, &entry, &error));
  cr_expect_str_eq(error.pointer, "/signatures/1");
  while (json_array_size(array) < 9)
    json_array_append_new(array, json_integer(1));
  cr_expect_not(channel_entry_parse(json, &entry, &error));
  cr_expect_neq(strstr(error.message, "9 signatures: an entry has 8 at most"), NULL, "%s",
                error.message);
}

Test(channel_entry, what_was_written_reads_back_with_its_signatures) {
  cleanup_signing_key struct signing_key one = key_of(1), two = key_of(2);
  cleanup_channel_entry struct channel_entry entry = parsed(ENTRY), again = {0};
  struct trusted_keys trusted = {1, &two};
  cr_assert(channel_entry_sign(&entry, &one, &error) && channel_entry_sign(&entry, &two, &error));
  cleanup_json json_t *json = channel_entry_to_json(&entry, true);
  cr_assert(channel_entry_parse(json, &again, &error), "%s", error.message);
  cr_expect_eq(again.signatures.n, (size_t)2);
  cr_expect(channel_entry_verify(&again, &trusted, &error), "%s", error.message);
}

Test(channel_entry, a_key_that_signs_again_replaces_its_signature) {
  cleanup_signing_key struct signing_key key = key_of(1);
  cleanup_channel_entry struct channel_entry entry = parsed(ENTRY);
  struct trusted_keys trusted = {1, &key};
  cr_assert(channel_entry_sign(&entry, &key, &error));
  entry.counter++;
  cr_expect_not(channel_entry_verify(&entry, &trusted, &error));
  cr_assert(channel_entry_sign(&entry, &key, &error));
  cr_expect_eq(entry.signatures.n, (size_t)1);
  cr_expect(channel_entry_verify(&entry, &trusted, &error), "%s", error.message);
}

Test(channel_entry, a_ninth_key_finds_no_room) {
  cleanup_channel_entry struct channel_entry entry = parsed(ENTRY);
  for (uint8_t i = 0; i < 9; i++) {
    cleanup_signing_key struct signing_key key = key_of(i);
    cr_expect_eq(channel_entry_sign(&entry, &key, &error), i < 8);
  }
  cr_expect_neq(strstr(error.message, "8 signatures by other keys"), NULL, "%s", error.message);
}

Test(channel_entry, a_signature_covers_every_member) {
  cleanup_signing_key struct signing_key key = key_of(1);
  struct trusted_keys trusted = {1, &key};
  static const char *const others[] = {
      "{\"channel\":\"stable2\",\"counter\":4,\"environment\":{\"rocm\":\"6\"},\"release\":"
      "\"" RELEASE "\",\"tag\":\"t\"}",
      "{\"channel\":\"stable\",\"counter\":5,\"environment\":{\"rocm\":\"6\"},\"release\":"
      "\"" RELEASE "\",\"tag\":\"t\"}",
      "{\"channel\":\"stable\",\"counter\":4,\"environment\":{\"rocm\":\"7\"},\"release\":"
      "\"" RELEASE "\",\"tag\":\"t\"}",
      "{\"channel\":\"stable\",\"counter\":4,\"environment\":{\"rocm\":\"6\"},\"release\":"
      "\"" RELEASE "\",\"tag\":\"u\"}",
      "{\"channel\":\"stable\",\"counter\":4,\"environment\":{\"rocm\":\"6\"},\"release\":"
      "\"" RELEASE "\",\"tag\":\"t\",\"expires\":\"2030-01-01T00:00:00Z\"}",
  };
  cleanup_channel_entry struct channel_entry entry =
      parsed("{\"channel\":\"stable\",\"counter\":4,\"environment\":{\"rocm\":\"6\"},\"release\":"
             "\"" RELEASE "\",\"tag\":\"t\"}");
  cr_assert(channel_entry_sign(&entry, &key, &error));
  cr_expect(channel_entry_verify(&entry, &trusted, &error));
  for (size_t i = 0; i < ARRAY_LENGTH(others); i++) {
    cleanup_channel_entry struct channel_entry other = parsed(others[i]);
    other.signatures.n = 1;
    other.signatures.all[0] = entry.signatures.all[0];
    cr_expect_not(channel_entry_verify(&other, &trusted, &error), "%s", others[i]);
  }
  entry.release.bytes[0] ^= 1;
  cr_expect_not(channel_entry_verify(&entry, &trusted, &error));
}

Test(channel_entry, refusals_tell_unsigned_signed_by_others_and_changed) {
  cleanup_signing_key struct signing_key key = key_of(1), other = key_of(2);
  cleanup_channel_entry struct channel_entry entry = parsed(ENTRY);
  struct trusted_keys trusted = {1, &key}, others = {1, &other};
  cr_expect_not(channel_entry_verify(&entry, &trusted, &error));
  cr_expect_neq(strstr(error.message, "\"stable\" at counter 4 is not signed"), NULL, "%s",
                error.message);
  cr_assert(channel_entry_sign(&entry, &key, &error));
  cr_expect_not(channel_entry_verify(&entry, &others, &error));
  cr_expect_neq(strstr(error.message, "which is not trusted here"), NULL, "%s", error.message);
  entry.counter = 3;
  cr_expect_not(channel_entry_verify(&entry, &trusted, &error));
  cr_expect_neq(strstr(error.message, "at counter 3 is not what key"), NULL, "%s", error.message);
}

Test(channel_entry, one_good_signature_among_wrong_ones_is_enough) {
  cleanup_signing_key struct signing_key key = key_of(1), other = key_of(2);
  cleanup_channel_entry struct channel_entry entry = parsed(ENTRY);
  struct signing_key both[] = {other, key};
  struct trusted_keys trusted = {2, both};
  cr_assert(channel_entry_sign(&entry, &other, &error));
  entry.counter++;
  cr_assert(channel_entry_sign(&entry, &key, &error));
  cr_expect(channel_entry_verify(&entry, &trusted, &error), "%s", error.message);
}

Test(channel_name, takes_names_of_lower_case_letters_digits_dots_underscores_and_dashes) {
  cr_assert(channel_name_check("stable-2.x_rc", &error));
}

Test(channel_name, refuses_an_empty_a_long_and_an_upper_case_name) {
  char longest[CHANNEL_NAME_MAX + 2];
  memset(longest, 'a', sizeof longest - 1);
  longest[sizeof longest - 1] = 0;
  cr_assert_not(channel_name_check("", &error));
  cr_assert_not(channel_name_check(longest, &error));
  cr_assert_not(channel_name_check("Stable", &error));
  cr_assert_str_eq(error.message,
                   "\"Stable\" is not a channel name: 1 to 64 of a-z, 0-9, \".\", \"_\" and \"-\"");
  longest[CHANNEL_NAME_MAX] = 0;
  cr_assert(channel_name_check(longest, &error));
}
