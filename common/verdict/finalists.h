/* Which configs go on from a race that measured each of them in one process: those with the least paired ratios.
 *
 * Memory: the caller's arrays. Threads: a pure function. */
#ifndef WAVETUNE_COMMON_VERDICT_FINALISTS_H
#define WAVETUNE_COMMON_VERDICT_FINALISTS_H

#include "common/base/base.h"

#define FINALISTS_MAX 16 /* of a final */
/* A config whose ratio was more than this factor above the best's does not go on: bench/bench_verdict.c prints how often
 * that, and FINALISTS_MAX, loses the best and all that are as good. */
#define FINALISTS_SPAN 1.07
/* What left its race early was surely slower than the best by the margin of that race or more, whatever the median of its few
 * rounds says: those may have been the baseline's slow ones. It counts as at least this factor above the best that stayed. */
#define FINALISTS_LEFT 1.04

/* Writes at most `most` configs to `ret`, in rising order of the ordinals; returns how many. First the best of the n, then
 * each of `always` that is among them, whatever its ratio (the default, the baseline: the winner must be held against
 * them), then those with the least `ratios` (verdict_paired_ratio; finite and > 0), none above FINALISTS_SPAN times the
 * least. Equal ratios: the lower ordinal first. `left_early` says of each whether it left its race, NULL: none did. `ret`
 * has room for `most`. With a large `most` the number says whether there are more than FINALISTS_MAX within the span, which
 * then race once more together. */
size_t finalists_choose(const double *ratios, const bool *left_early, const uint64_t *configs, size_t n,
                        const uint64_t *always, size_t n_always, size_t most, uint64_t *ret);

#endif
