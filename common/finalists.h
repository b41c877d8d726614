/* Which configs go on from a race that measured each of them in one process: those with the least paired ratios.
 *
 * Memory: the caller's arrays. Threads: a pure function. */
#ifndef WAVETUNE_COMMON_FINALISTS_H
#define WAVETUNE_COMMON_FINALISTS_H

#include "common/base.h"

#define FINALISTS_MAX 16 /* of a final */
/* A config whose ratio was more than this factor above the best's does not go on: bench/bench_verdict.c prints how often
 * that loses the best and all that are as good, where processes shift a config by 2 %: less than once in a thousand. */
#define FINALISTS_SPAN 1.07

/* Writes at most `most` configs to `ret`, in rising order of the ordinals; returns how many. First the best of the n, then
 * each of `always` that is among them, whatever its ratio (the default, the baseline: the winner must be held against
 * them), then those with the least `ratios` (verdict_paired_ratio; finite and > 0), none above FINALISTS_SPAN times the
 * least. Equal ratios: the lower ordinal first. `ret` has room for `most`. With a large `most` the number says whether
 * there are more than FINALISTS_MAX within the span, which then race once more together. */
size_t finalists_choose(const double *ratios, const uint64_t *configs, size_t n, const uint64_t *always,
                        size_t n_always, size_t most, uint64_t *ret);

#endif
