/* A small seeded generator for orders of trial, input data and bootstrap draws: the same seed, the
 * same numbers, on every machine. Never for secrets (random_hex is).
 *
 * splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
 * Memory: plain value. Threads: one for each generator. */
#ifndef WAVETUNE_COMMON_BASE_RNG_H
#define WAVETUNE_COMMON_BASE_RNG_H

#include "common/base/base.h"

struct rng {
  uint64_t state;
};

static inline struct rng rng_seeded(uint64_t seed) { return (struct rng){seed}; }

static inline uint64_t rng_next(struct rng *rng) {
  uint64_t z = (rng->state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/* Uniform in [0, bound), bound > 0. The multiply-shift bias is below bound / 2^64. */
static inline uint64_t rng_below(struct rng *rng, uint64_t bound) {
  return (uint64_t)(((unsigned __int128)rng_next(rng) * bound) >> 64);
}

/* Uniform in [0, 1). */
static inline double rng_unit(struct rng *rng) { return (double)(rng_next(rng) >> 11) * 0x1p-53; }

#endif
