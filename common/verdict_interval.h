/* The interval of the distance of two configs, of which a few processes tell: private to verdict.c and its tests.
 *
 * For configs a and b, d_p is the distance in process p: the median over its n rounds of log(a / b). Of P processes:
 *
 *   mean       m   = sum d_p / P
 *   own        s^2 = sum (d_p - m)^2 / (P - 1), with d = P - 1 degrees of freedom
 *   pooled     s0^2, with d0 degrees of freedom: below
 *   moderated  v   = (d0 s0^2 + d s^2) / (d0 + d)   (Smyth, "Linear models and empirical Bayes methods for assessing
 *                    differential expression in microarray experiments", Stat. Appl. Genet. Mol. Biol. 3(1), 2004, eq. 3)
 *   rounds     f^2 = sum e_p^2 / P^2, e_p = 1.2533 * 1.4826 * MAD_p / sqrt(n): the standard error of a median of normal
 *                    values, sqrt(pi / 2) sigma / sqrt(n) (Kendall, Stuart, "The advanced theory of statistics", vol. 1, 10.10),
 *                    with sigma from the median absolute deviation (Hampel, "The influence curve and its role in robust
 *                    estimation", JASA 69, 1974)
 *   timer      q^2 = sum of (quantum / time)^2 / 12 over what is divided, mean over processes: a uniform error that all
 *                    processes may share
 *   error      E   = sqrt(max(v / P, f^2 + q^2))
 *   interval   exp(m -+ t E), t the quantile of Student's t with d0 + d degrees of freedom.
 *
 * Pooled: x_cp is the distance of finalist c to the baseline in process p, and 0 of the baseline itself. What a process
 * does to all of them, and what it does to the baseline, is no noise of theirs, so the residuals of the two-way layout count
 * (Fisher's randomised blocks): of m finalists that were measured in all P processes,
 *   r_cp = x_cp - mean_p x_cp - mean_c x_cp + mean x,   s0^2 = 2 sum r_cp^2 / (m (P - 1)),
 * over m + 1 rows; twice, because a distance has the noise of two configs. That is the mean of the own variances of all
 * pairs. Of its m (P - 1) degrees of freedom the own variance has P - 1, so d0 = (m - 1)(P - 1), but at most
 * SPREAD_DF_MAX: the finalists need not vary alike, and then more of them do not tell more of one (bench/bench_verdict.c
 * has jobs of that kind).
 *
 * Memory: plain values. Threads: pure functions. */
#ifndef WAVETUNE_COMMON_VERDICT_INTERVAL_H
#define WAVETUNE_COMMON_VERDICT_INTERVAL_H

#include "common/base.h"

#define SPREAD_DF_MAX 8

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

/* The standard error of the mean, E, and its degrees of freedom. n >= 2. */
double distance_error(const struct distance *distance, const struct spread *pooled);
size_t distance_df(const struct distance *distance, const struct spread *pooled);

/* Covers the distance but in `error` of all cases, half of them on each side. */
struct interval distance_interval(const struct distance *distance, const struct spread *pooled, double error);

/* `medians` has n_configs rows of n_processes: x_cp, without the baseline's. */
struct spread spread_pool(const double *medians, size_t n_configs, size_t n_processes);

/* What Student's t with `df` >= 1 degrees of freedom exceeds with the probability `tail`, 0 < tail < 0.5. By the finite
 * series for whole degrees of freedom (Abramowitz, Stegun, "Handbook of mathematical functions", 26.7.3 and 26.7.4). */
double student_quantile(size_t df, double tail);

/* The middle one of n >= 1 values, or the mean of the middle two. Reorders the values. */
double median_of(double *values, size_t n);

/* The standard error e of the median of n values. Overwrites them. */
double median_error(double *values, size_t n, double median);

/* The variance of a timer's rounding in one time, relative: where a quarter of all times or more are equal to their median,
 * the next other time is one step of the timer away. 0 where no step shows. Reorders the values. */
double timer_resolution(double *times, size_t n);

#endif
