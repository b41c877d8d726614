/* Fingerprints on the host. */
#include "agent/device/fingerprint.h"

static void word_add(struct fingerprint *part, uint64_t word, uint64_t index) {
  uint64_t z = word + (index + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  part->sum += z;
  part->product += (z >> 32) * (z & UINT32_MAX);
}

struct fingerprint fingerprint_part(const void *bytes, size_t size, uint64_t first) {
  struct fingerprint part = {0};
  uint64_t word, n = size / sizeof word;

  for (uint64_t i = 0; i < n; i++) {
    memcpy(&word, (const char *)bytes + i * sizeof word, sizeof word);
    word_add(&part, word, first + i);
  }

  word = 0;
  memcpy(&word, (const char *)bytes + n * sizeof word, size % sizeof word);
  if (size % sizeof word)
    word_add(&part, word, first + n);
  return part;
}
