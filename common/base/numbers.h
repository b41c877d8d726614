/* Comparing, sorting and medians of numbers; random numbers from a seed.
 *
 * Memory: nothing is kept. Threads: any. */
#ifndef WAVETUNE_COMMON_BASE_NUMBERS_H
#define WAVETUNE_COMMON_BASE_NUMBERS_H

#include "common/base/base.h"

/* Ascending order, for qsort and bsearch. */
int compare_ordinals(const void *a, const void *b); /* uint64_t */
int compare_doubles(const void *a, const void *b);  /* no NaN */

/* Sorts the values, removes duplicates and returns how many are left. */
size_t sort_unique(uint64_t *values, size_t n);

/* The k-th smallest, counted from 0, of n > k values. Reorders the values. */
double kth_of(double *values, size_t n, size_t k);

/* The median of n >= 1 values, the mean of the middle two where n is even. Reorders the values. */
double median_of(double *values, size_t n);

/* A generator for orders of trials, input data and bootstrap draws: a seed gives the same numbers
 * on every machine. Not for secrets (random_hex is).
 *
 * splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
 * Memory: plain value. Threads: one for each generator. */
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
