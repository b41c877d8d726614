/* Which configs go from the screen to the final: those with the least paired ratios.
 *
 * Memory: the caller's arrays. Threads: a pure function. */
#ifndef WAVETUNE_COMMON_FINALISTS_H
#define WAVETUNE_COMMON_FINALISTS_H

#include "common/base.h"

/* A config whose screen was slower than the best by more than this factor cannot win by luck of the final. */
#define FINALISTS_SPAN 1.5

/* Writes the at most `most` configs with the least `ratios` (verdict_paired_ratio; finite and > 0), none above
 * FINALISTS_SPAN times the least, to `ret`, in rising order of the ordinals; returns how many. Equal ratios: the lower
 * ordinal first. `ret` has room for `most`. */
size_t finalists_choose(const double *ratios, const uint64_t *configs, size_t n, size_t most, uint64_t *ret);

#endif
