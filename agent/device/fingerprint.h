/* A fingerprint of memory: 128 bits that tell whether two buffers of one size hold the same, where
 * looking at one of them on the host would take a copy over the bus. Not cryptographic: a kernel
 * that wanted to could forge it.
 *
 * The memory is a list of little-endian 64-bit words, the last one filled up with zeros. Word i
 * becomes h(i) = mix(word + (i + 1) * 0x9e3779b97f4a7c15), where mix is the finalizer of splitmix64
 * (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014). `sum` is the
 * sum of all h(i) modulo 2^64, `product` that of (upper half of h(i)) * (lower half of h(i)). mix
 * is one to one, so that one changed word always shows; sums, so that words may be taken in any
 * order: a GPU's threads take them as they come (gpu_fingerprint.c).
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

/* The part of a fingerprint that the words from `first` on have, which are `size` bytes at `bytes`:
 * a multiple of 8 unless they are the last ones. Parts of disjoint words added up member by member
 * are the part of all of them. */
struct fingerprint fingerprint_part(const void *bytes, size_t size, uint64_t first);

#endif
