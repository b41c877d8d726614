/* Digests against published vectors, their text, and random identifiers. */
#include "common/base/digest.h"

#include <criterion/criterion.h>
#include <ctype.h>
#include <signal.h>

/* FIPS 180-2, appendix B, and the digest of nothing. */
#define EMPTY "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define ABC "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

static void expect_digest(struct digest digest, const char *wanted) {
  char text[DIGEST_TEXT_SIZE];
  cr_expect_str_eq(digest_format(&digest, text), wanted);
}

Test(digest, of_bytes_is_their_sha256) {
  expect_digest(digest_of("", 0), EMPTY);
  expect_digest(digest_of("abc", 3), ABC);
}

Test(digest, a_stream_gives_the_digest_of_its_pieces) {
  struct digest_stream *stream = digest_stream_new();
  digest_stream_add(stream, "a", 1);
  digest_stream_add(stream, "", 0);
  digest_stream_add(stream, "bc", 2);
  expect_digest(digest_stream_finish(stream), ABC);
}

Test(digest, a_stream_without_bytes_gives_the_digest_of_nothing) {
  expect_digest(digest_stream_finish(digest_stream_new()), EMPTY);
}

Test(digest, its_text_is_parsed_again) {
  struct digest digest = digest_of("abc", 3), again;
  cr_assert(digest_parse(ABC, &again));
  cr_expect(digest_equal(&digest, &again));
}

Test(digest, differs_in_any_byte) {
  struct digest digest = digest_of("abc", 3);
  for (size_t i = 0; i < DIGEST_SIZE; i++) {
    struct digest other = digest;
    other.bytes[i] ^= 1;
    cr_assert_not(digest_equal(&digest, &other));
  }
}

Test(digest, only_the_exact_text_is_read) {
  static const char *const wrong[] = {
      "",
      "sha256:",
      "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
      "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b85",
      "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b8555",
      "sha256:E3B0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
      "sha256:g3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
      "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b85 ",
      "SHA256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
  };
  struct digest before = digest_of("untouched", 9), digest = before;
  for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++)
    cr_expect_not(digest_parse(wrong[i], &digest), "\"%s\" was read", wrong[i]);
  cr_expect(digest_equal(&before, &digest), "a refusal wrote its result");
}

Test(digest, random_identifiers_are_hex_and_differ) {
  char first[33], second[33];
  random_hex(first, 16);
  random_hex(second, 16);
  cr_expect_eq(strlen(first), (size_t)32);
  for (const char *c = first; *c; c++)
    cr_expect(isdigit((unsigned char)*c) || (*c >= 'a' && *c <= 'f'));
  cr_expect_str_neq(first, second);
}

Test(digest, an_identifier_that_is_too_long_aborts, .signal = SIGABRT) {
  char text[131];
  random_hex(text, 65);
}

/* RFC 4231, test cases 2 and 6. */
Test(digest, a_keyed_digest_is_the_hmac_of_rfc_4231) {
  char text[DIGEST_TEXT_SIZE];
  const char *message = "what do ya want for nothing?";
  struct digest mac = digest_keyed((const uint8_t *)"Jefe", 4, message, strlen(message));
  cr_expect_str_eq(digest_format(&mac, text),
                   "sha256:5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");

  uint8_t key[131];
  memset(key, 0xaa, sizeof key);
  message = "Test Using Larger Than Block-Size Key - Hash Key First";
  mac = digest_keyed(key, sizeof key, message, strlen(message));
  cr_expect_str_eq(digest_format(&mac, text),
                   "sha256:60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}
