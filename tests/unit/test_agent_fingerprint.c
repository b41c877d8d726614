/* Fingerprints of memory: what changes them, and that their parts add up. */
#include <criterion/criterion.h>

#include "agent/device/fingerprint.h"
#include "common/base/numbers.h"

enum { BYTES = 4099 };

static void filled(unsigned char bytes[BYTES]) {
  struct rng rng = rng_seeded(1);
  for (size_t i = 0; i < BYTES; i++)
    bytes[i] = (unsigned char)rng_next(&rng);
}

/* splitmix64's first outputs from the seeds 0 and 1 are those that its authors' code prints. */
Test(fingerprint, of_one_word_is_splitmix64_of_it) {
  static const struct {
    uint64_t word, h;
  } known[] = {{0, 0xe220a8397b1dcdaf}, {1, 0x910a2dec89025cc1}};
  for (size_t i = 0; i < ARRAY_LENGTH(known); i++) {
    struct fingerprint found = fingerprint_part(&known[i].word, sizeof known[i].word, 0);
    cr_expect_eq(found.sum, known[i].h);
    cr_expect_eq(found.product, (known[i].h >> 32) * (known[i].h & UINT32_MAX));
  }
}

Test(fingerprint, any_changed_bit_shows) {
  unsigned char bytes[BYTES];
  filled(bytes);
  struct fingerprint before = fingerprint_part(bytes, BYTES, 0);
  for (size_t bit = 0; bit < 8 * BYTES; bit++) {
    bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    cr_assert_not(fingerprint_equal(before, fingerprint_part(bytes, BYTES, 0)), "bit %zu", bit);
    bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
  }
}

Test(fingerprint, words_that_change_places_show) {
  unsigned char bytes[BYTES], word[8];
  filled(bytes);
  struct fingerprint before = fingerprint_part(bytes, BYTES, 0);
  for (size_t at = 8; at + 8 <= BYTES; at += 8) {
    memcpy(word, bytes + at, 8);
    memcpy(bytes + at, bytes, 8);
    memcpy(bytes, word, 8);
    cr_assert_not(fingerprint_equal(before, fingerprint_part(bytes, BYTES, 0)), "words 0 and %zu",
                  at / 8);
    memcpy(bytes, bytes + at, 8);
    memcpy(bytes + at, word, 8);
  }
  cr_expect(fingerprint_equal(before, fingerprint_part(bytes, BYTES, 0)));
}

Test(fingerprint, parts_add_up) {
  unsigned char bytes[BYTES];
  filled(bytes);
  struct fingerprint whole = fingerprint_part(bytes, BYTES, 0);
  for (size_t words = 0; words <= BYTES / 8; words++) {
    struct fingerprint first = fingerprint_part(bytes, 8 * words, 0),
                       rest = fingerprint_part(bytes + 8 * words, BYTES - 8 * words, words);
    cr_assert(fingerprint_equal(
        whole, (struct fingerprint){first.sum + rest.sum, first.product + rest.product}));
  }
}
