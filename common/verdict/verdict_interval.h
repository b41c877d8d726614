/* The distance of two configs over a few processes, and its interval. Private to this folder and
 * its tests.
 *
 * For configs a and b, d_p is the distance in process p: the median over its n rounds of log(a /
 * b). Of P processes:
 *
 *   mean       m   = sum d_p / P
 *   own        s^2 = sum (d_p - m)^2 / (P - 1), with d = P - 1 degrees of freedom
 *   pooled     s0^2, with d0 degrees of freedom: below
 *   moderated  v   = (d0 s0^2 + d s^2) / (d0 + d)   (Smyth, "Linear models and empirical Bayes
 *                    methods for assessing differential expression in microarray experiments",
 *                    Stat. Appl. Genet. Mol. Biol. 3(1), 2004, eq. 3)
 *   rounds     f^2 = sum e_p^2 / P^2, e_p the standard error of the median of the n rounds, from
 *                    order statistics: (x[n + 1 - k] - x[k]) / (2 z),
 *                    k = (n + 1) / 2 - z sqrt(n / 4) rounded, z = 2.5758 (McKean, Schrader, "A
 *                    comparison of methods for Studentizing the sample median", Comm. Statist. B13,
 *                    1984). It depends on the rounds about the middle, not on how far the others
 *                    are: a machine that is shared gives rounds in two clusters.
 *   timer      q^2 = sum of (step / time)^2 / 12 over what is divided, mean over processes: a
 *                    uniform error that all processes may share
 *   error      E   = sqrt(max(v / P, f^2 + q^2))
 *   interval   exp(m -+ t E), t the quantile of Student's t with d0 + d degrees of freedom.
 *
 * Pooled: s0^2 = sum s_c^2 / m over the distances of m finalists to the same config (the best, the
 * winner or the baseline). They share that config's noise, so they carry less information: where
 * all vary alike, two of them have the correlation 1/2, their squares 1/4, and m of them as many
 * degrees of freedom as m / (1 + (m - 1) / 4) independent ones. Of these one is the finalist
 * itself, so
 *   d0 = (P - 1) (m / (1 + (m - 1) / 4) - 1), rounded down, at most SPREAD_DF_MAX:
 * the finalists need not vary alike, and then more of them carry no more information about one
 * (bench/bench_verdict.c has jobs of that kind). One that is far from the best (SPREAD_NEAR) is
 * left out: what takes twice the time varies otherwise.
 *
 * Memory: plain values. Threads: pure functions. */
#ifndef WAVETUNE_COMMON_VERDICT_VERDICT_INTERVAL_H
#define WAVETUNE_COMMON_VERDICT_VERDICT_INTERVAL_H

#include "common/verdict/verdict.h"

#define SPREAD_DF_MAX 8
#define SPREAD_NEAR 1.1 /* ratio to the best */

/* A turn: one config in one process. It borrows its sample. */
struct turn {
  const struct verdict_sample *sample;
  double *logs; /* of the paired ratios, round by round; owned */
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
double samples_median_us(const struct verdict_sample *samples, size_t n, bool of_baseline);

struct turn turn_make(const struct verdict_sample *sample);
void turn_release(struct turn *turn);

/* The distance of two configs, process by process. */
struct distance {
  size_t n; /* processes */
  double mean;
  double squares;    /* sum of squared deviations from the mean */
  double rounds;     /* sum of e_p^2 */
  double resolution; /* sum of the timer's variances */
};

/* s0^2 and d0. */
struct spread {
  double variance;
  size_t df;
};

struct interval {
  double lower, upper; /* of the logarithm */
};

void distance_add(struct distance *distance, double median, double error, double resolution);

/* Adds to `distance` how far a is from b in their process, over the rounds that both have. */
void turns_compare(const struct turn *a, const struct turn *b, struct distance *distance);

/* The standard error of the mean, E, and its degrees of freedom, which are to be above 0: n >= 2,
 * or 1 with a pool. */
double distance_error(const struct distance *distance, const struct spread *pooled);
size_t distance_df(const struct distance *distance, const struct spread *pooled);

/* Covers the distance except with the probability `error`, half of it on each side. */
struct interval distance_interval(const struct distance *distance, const struct spread *pooled,
                                  double error);

/* Pools the distances of n finalists to one config. */
struct spread spread_pool(const struct distance *distances, size_t n);

/* What Student's t with `df` >= 1 degrees of freedom exceeds with the probability `tail`, 0 < tail
 * < 0.5. By the finite series for whole degrees of freedom (Abramowitz, Stegun, "Handbook of
 * mathematical functions", 26.7.3 and 26.7.4). */
double student_quantile(size_t df, double tail);

/* The standard error e of the median of n >= 1 values. Reorders them. */
double median_error(double *values, size_t n);

/* The variance of a timer's rounding in one time, relative: where a quarter of all times or more
 * are equal to their median, the next other time is one step of the timer away. 0 where no step
 * shows. Reorders the values. */
double timer_resolution(double *times, size_t n);

#endif
