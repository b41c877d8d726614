/* A turn: one config in one process, and the distance of two configs there. Private to verdict.c
 * and verdict_by_device.c.
 *
 * Memory: a turn owns its logs and borrows its sample. Threads: pure functions. */
#ifndef WAVETUNE_COMMON_VERDICT_VERDICT_TURN_H
#define WAVETUNE_COMMON_VERDICT_VERDICT_TURN_H

#include "common/verdict/verdict.h"
#include "common/verdict/verdict_interval.h"

struct turn {
  const struct verdict_sample *sample;
  double *logs; /* of the paired ratios, round by round */
  double median, error;
  double resolution; /* variance of the timer's rounding */
};

/* A copy of the samples by rising config and process, of several for one such pair the longest; the
 * caller's. False, with a sentence, where one has no pairs or times that cannot have been
 * measured. */
must_check bool samples_sort(const struct verdict_sample *samples, size_t n,
                             struct verdict_sample **ret_sorted, size_t *ret_n,
                             struct error *error);

/* The median over all times of n >= 1 samples, or over all their baselines' times. */
double samples_median_us(const struct verdict_sample *const *samples, size_t n, bool of_baseline);

struct turn turn_make(const struct verdict_sample *sample);
void turn_release(struct turn *turn);

/* Adds to `distance` how far a is from b in their process, over the rounds that both have. */
void turns_compare(const struct turn *a, const struct turn *b, struct distance *distance);

#endif
