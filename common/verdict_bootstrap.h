/* The two-level bootstrap under the verdict: private to verdict.c and its tests.
 *
 * A series is one ratio seen in several processes and, within each, in several rounds. Its estimate is the geometric
 * mean over processes of the median over rounds. A draw repeats that on processes drawn with replacement and, within
 * each drawn one, on rounds drawn with replacement.
 *
 * Memory: a series owns its processes. Threads: plain values. */
#ifndef WAVETUNE_COMMON_VERDICT_BOOTSTRAP_H
#define WAVETUNE_COMMON_VERDICT_BOOTSTRAP_H

#include "common/base.h"

struct round_ratio {
  double value;
  size_t round;
};

struct process_ratios {
  size_t n; /* rounds, >= 1 */
  struct round_ratio *sorted;
};

struct series {
  size_t n, capacity;
  struct process_ratios *processes;
};

/* Appends a process with the ratios of its rounds; copies. n >= 1, all finite and > 0. */
void series_add(struct series *series, const double *ratios, size_t n);
void series_release(struct series *series);
#define cleanup_series __attribute__((cleanup(series_release)))

double series_estimate(const struct series *series);

/* Fills draws[n]. Series with the same numbers of processes and rounds get the same processes and rounds from one seed,
 * so that draw i of one and draw i of another are a joint draw. */
void series_draw(const struct series *series, uint64_t seed, double *draws, size_t n);

/* The middle one of n >= 1 values, or the mean of the middle two. Reorders the values. */
double median_of(double *values, size_t n);

/* The 2.5th and the 97.5th percentile of n >= 40 draws: as many draws lie below the one as above the other. Reorders. */
void percentiles_of(double *draws, size_t n, double *ret_lower, double *ret_upper);

#endif
