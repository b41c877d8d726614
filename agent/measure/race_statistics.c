/* The statistics of a race. Memory: race_statistics.h. Threads: pure functions. */
#include "agent/measure/race_statistics.h"

#include <math.h>

#include "common/base/numbers.h"

#define MAD_TO_SIGMA 1.4826
#define MEDIAN_ERROR 1.2533 /* sqrt(pi / 2) */

void race_spread_release(struct race_spread *spread) {
  free(spread->residuals);
  *spread = (struct race_spread){0};
}

static void sort(double *values, size_t n) { qsort(values, n, sizeof *values, compare_doubles); }

/* Of sorted values; n >= 1. */
static double median_lower(const double *values, size_t n) { return values[(n - 1) / 2]; }
static double median(const double *values, size_t n) {
  return (median_lower(values, n) + values[n / 2]) / 2;
}

/* Turns `values` into their absolute deviations from `center`, sorted, and returns the median of
 * those. */
static double deviations_median(double *values, size_t n, double center) {
  for (size_t i = 0; i < n; i++)
    values[i] = fabs(values[i] - center);
  sort(values, n);
  return median(values, n);
}

double race_spread_sigma(const struct race_spread *spread) {
  if (!spread->n)
    return 0;
  cleanup_free double *residuals = xmemdup(spread->residuals, spread->n * sizeof *residuals);
  sort(residuals, spread->n);
  return MAD_TO_SIGMA * median(residuals, spread->n);
}

static void spread_add(struct race_spread *spread, const struct timed *const *in, size_t n) {
  size_t round = in[0]->n - 1, m = n + 1;
  cleanup_free double *scratch = xcalloc(m, sizeof *scratch),
                      *differences = xcalloc(m, sizeof *differences);
  differences[n] = log(in[0]->baseline_us[round] / in[0]->baseline_us[round - 1]);
  for (size_t i = 0; i < n; i++)
    differences[i] = log(in[i]->samples_us[round] / in[i]->samples_us[round - 1]);
  memcpy(scratch, differences, m * sizeof *scratch);
  sort(scratch, m);
  double common = median(scratch, m), scale = sqrt(2 * (1 - 1 / (double)m));
  for (size_t i = 0; i < m; i++) {
    GROW(spread->residuals, spread->n, spread->capacity);
    spread->residuals[spread->n++] = fabs(differences[i] - common) / scale;
  }
}

/* Who all are compared with. */
struct leader {
  const struct timed *timed; /* NULL: one that is not here */
  double log_ratio;          /* to the baseline */
};

static struct leader leader_find(const struct timed *const *in, size_t n, double best_ratio,
                                 double *scratch) {
  struct leader leader = {NULL, best_ratio > 0 ? log(best_ratio) : INFINITY};
  for (size_t i = 0; i < n; i++) {
    for (size_t r = 0; r < in[i]->n; r++)
      scratch[r] = log(in[i]->samples_us[r] / in[i]->baseline_us[r]);
    sort(scratch, in[i]->n);
    double ratio = median(scratch, in[i]->n);
    if (ratio < leader.log_ratio)
      leader = (struct leader){in[i], ratio};
  }
  return leader;
}

static double rounding_variance(const struct timed *timed) {
  double interval_us = timed->samples_us[timed->n - 1] * timed->calls;
  return interval_us > 0 ? pow(RACE_RESOLUTION_US / interval_us, 2) / 12 : 0;
}

struct distance {
  double lower_median, median;
  double half; /* width of its interval */
};

static struct distance distance_to(const struct leader *leader, const struct timed *timed,
                                   double sigma, double *scratch) {
  size_t n = timed->n;
  for (size_t r = 0; r < n; r++)
    scratch[r] = leader->timed
                     ? log(timed->samples_us[r] / leader->timed->samples_us[r])
                     : log(timed->samples_us[r] / timed->baseline_us[r]) - leader->log_ratio;
  sort(scratch, n);
  struct distance distance = {median_lower(scratch, n), median(scratch, n), 0};
  double freedom = (double)n - 1;
  double own =
      MAD_TO_SIGMA * deviations_median(scratch, n, distance.median) * sqrt((double)n / freedom);
  double variance =
      (RACE_PRIOR_ROUNDS * 2 * sigma * sigma + freedom * own * own) / (RACE_PRIOR_ROUNDS + freedom);
  double rounding =
      rounding_variance(timed) + (leader->timed ? rounding_variance(leader->timed) : 0);
  distance.half = RACE_Z * MEDIAN_ERROR * sqrt(fmax(variance, rounding) / (double)n);
  return distance;
}

static enum race_standing standing_of(const struct distance *distance,
                                      const struct race_limits *limits) {
  double margin = log1p(limits->margin);
  if (distance->lower_median - distance->half > margin)
    return STANDING_BEHIND;
  /* Without a margin no side of it decides. */
  bool is_within = isfinite(margin) && distance->median + distance->half <= margin;
  return limits->precision > 0 && (is_within || distance->half < limits->precision)
             ? STANDING_DECIDED
             : STANDING_OPEN;
}

static double first_us(const struct timed *timed) {
  double sample_us = timed->samples_us[0];
  return timed->estimate_us > 0 && timed->estimate_us < sample_us ? timed->estimate_us : sample_us;
}

static void far_find(const struct timed *const *in, size_t n, double best_ratio,
                     enum race_standing *standings) {
  double best_us = INFINITY;
  for (size_t i = 0; i < n; i++)
    best_us = fmin(best_us, in[i]->samples_us[0]);
  for (size_t i = 0; i < n; i++) {
    double away_us = best_ratio > 0 ? best_ratio * in[i]->baseline_us[0] : INFINITY;
    if (first_us(in[i]) > RACE_FAR * fmin(best_us, away_us))
      standings[i] = STANDING_FAR;
  }
}

void race_judge(struct race_spread *spread, const struct timed *const *in, size_t n,
                const struct race_limits *limits, enum race_standing *standings) {
  for (size_t i = 0; i < n; i++)
    standings[i] = STANDING_OPEN;
  if (!n || (!isfinite(limits->margin) && limits->precision <= 0))
    return;
  size_t round = in[0]->n;
  if (round == 1 && isfinite(limits->margin))
    far_find(in, n, limits->best_ratio, standings);
  if (round < 2)
    return;
  spread_add(spread, in, n);
  if (round < limits->rounds_min)
    return;
  cleanup_free double *scratch = xcalloc(round, sizeof *scratch);
  struct leader leader = leader_find(in, n, limits->best_ratio, scratch);
  double sigma = race_spread_sigma(spread);
  for (size_t i = 0; i < n; i++) {
    struct distance distance = distance_to(&leader, in[i], sigma, scratch);
    standings[i] = standing_of(&distance, limits);
  }
}
