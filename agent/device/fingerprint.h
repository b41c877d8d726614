/* A fingerprint of memory: 128 bits that show whether two buffers of one size are equal, without
 * copying them to the host. It is not cryptographic: a kernel could forge it.
 *
 * The memory is a list of little-endian 64-bit words, the last one filled up with zeros. Word i
 * becomes h(i) = mix(word + (i + 1) * 0x9e3779b97f4a7c15), where mix is the finalizer of splitmix64
 * (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014). `sum` is the
 * sum of all h(i) modulo 2^64, `product` that of (upper half of h(i)) * (lower half of h(i)). mix
 * is one to one, so that one changed word always changes the sum; both are sums, so that a GPU's
 * threads can add words in any order (gpu.c).
 *
 * Memory: plain values. Threads: any. */
#ifndef WAVETUNE_AGENT_DEVICE_FINGERPRINT_H
#define WAVETUNE_AGENT_DEVICE_FINGERPRINT_H

#include "common/base/base.h"

struct fingerprint {
  uint64_t sum, product;
};

static inline bool fingerprint_equal(struct fingerprint a, struct fingerprint b) {
  return a.sum == b.sum && a.product == b.product;
}

/* The part of a fingerprint from the words from number `first` on; `bytes` holds `size` bytes of
 * them: a multiple of 8 unless they are the last. Parts of disjoint words are added
 * member by member. */
struct fingerprint fingerprint_part(const void *bytes, size_t size, uint64_t first);

#endif
