/* Noise for tests of the verdict: a draw with mean 0 and standard deviation 1, the sum of twelve
 * even ones. One thread to a generator. */
#ifndef WAVETUNE_TESTS_GAUSS_H
#define WAVETUNE_TESTS_GAUSS_H

#include "common/base/numbers.h"

static inline double gauss(struct rng *rng) {
  double sum = 0;
  for (int i = 0; i < 12; i++)
    sum += rng_unit(rng);
  return sum - 6;
}

#endif
