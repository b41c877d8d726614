/* The order of a round, and the statistics that decide which configs leave. */
#include "agent/measure/race_rules.h"

#include <math.h>

#include "common/base/numbers.h"

#define MAD_TO_SIGMA 1.4826
#define MEDIAN_ERROR 1.2533 /* sqrt(pi / 2) */

/* An odd number: the median of the baselines is one of the samples, and no mean with a slow one. */
size_t race_order_blocks(size_t n) {
  size_t needed = (n + RACE_BLOCK - 1) / RACE_BLOCK;
  return needed < RACE_BASELINES ? RACE_BASELINES : needed | 1;
}

struct race_order race_order_new(size_t n) {
  return (struct race_order){.ends = xcalloc(race_order_blocks(n), sizeof(size_t)),
                             .places = xcalloc(n + race_order_blocks(n), sizeof(size_t))};
}

void race_order_release(struct race_order *order) {
  free(order->ends);
  free(order->places);
}

void race_order_draw(struct race_order *order, struct rng *rng, const bool *is_in, size_t n) {
  cleanup_free size_t *drawn = xcalloc(n, sizeof *drawn);
  size_t n_in = 0, taken = 0, end = 0;

  for (size_t i = 0; i < n; i++)
    if (is_in[i])
      drawn[n_in++] = i;

  for (size_t i = n_in; i > 1; i--) {
    size_t k = rng_below(rng, i), kept = drawn[i - 1];
    drawn[i - 1] = drawn[k];
    drawn[k] = kept;
  }

  order->n_blocks = race_order_blocks(n_in);
  for (size_t block = 0; block < order->n_blocks; block++) {
    size_t size = n_in * (block + 1) / order->n_blocks - taken, place = rng_below(rng, size + 1);
    for (size_t k = 0; k <= size; k++)
      order->places[end++] = k == place ? ORDER_BASELINE : drawn[taken++];
    order->ends[block] = end;
  }
}

void race_order_reverse(struct race_order *order, const bool *is_in) {
  size_t n_blocks = order->n_blocks, n_places = n_blocks ? order->ends[n_blocks - 1] : 0, end = 0,
         n_used = 0;
  cleanup_free size_t *places = xmemdup(order->places, n_places * sizeof *places);
  cleanup_free size_t *ends = xmemdup(order->ends, n_blocks * sizeof *ends);
  cleanup_free bool *is_used = xcalloc(n_blocks + 1, sizeof *is_used); /* has a config still in */
  for (size_t block = 0, k = 0; block < n_blocks; n_used += is_used[block++])
    for (; k < ends[block]; k++)
      is_used[block] |= places[k] != ORDER_BASELINE && is_in[places[k]];

  size_t n_spare = n_used < RACE_BASELINES ? RACE_BASELINES - n_used : 0; /* baseline alone */
  order->n_blocks = 0;

  for (size_t block = n_blocks; block-- > 0;) {
    if (!is_used[block] && !n_spare)
      continue;
    n_spare -= !is_used[block];
    for (size_t k = ends[block]; k-- > (block ? ends[block - 1] : 0);)
      if (places[k] == ORDER_BASELINE || is_in[places[k]])
        order->places[end++] = places[k];
    order->ends[order->n_blocks++] = end;
  }
}

void race_spread_release(struct race_spread *spread) {
  free(spread->residuals);
  *spread = (struct race_spread){0};
}

double race_spread_sigma(const struct race_spread *spread) {
  if (!spread->n)
    return 0;
  cleanup_free double *residuals = xmemdup(spread->residuals, spread->n * sizeof *residuals);
  return MAD_TO_SIGMA * median_of(residuals, spread->n);
}

static void spread_add(struct race_spread *spread, const struct timed_config *const *in, size_t n) {
  size_t round = in[0]->n - 1, m = n + 1;
  cleanup_free double *differences = xcalloc(m, sizeof *differences);
  differences[n] = log(in[0]->baseline_us[round] / in[0]->baseline_us[round - 1]);
  for (size_t i = 0; i < n; i++)
    differences[i] = log(in[i]->samples_us[round] / in[i]->samples_us[round - 1]);

  double common = median_of(differences, m), scale = sqrt(2 * (1 - 1 / (double)m));
  array_foreach (difference, differences, m) {
    *APPEND(spread->residuals, spread->n) = fabs(*difference - common) / scale;
  }
}

/* The config that all are compared with. */
struct leader {
  const struct timed_config *timed; /* NULL: best_ratio, of another lease or batch */
  double log_ratio;                 /* to the baseline */
};

static double rounding_variance(const struct timed_config *timed) {
  double interval_us = timed->samples_us[timed->n - 1] * timed->calls;
  return interval_us > 0 ? pow(RACE_RESOLUTION_US / interval_us, 2) / 12 : 0;
}

/* `scratch` has room for a number a round. */
static enum race_standing standing_of(const struct leader *leader, const struct timed_config *timed,
                                      double sigma, const struct race_limits *limits,
                                      double *scratch) {
  const struct timed_config *best = leader->timed;
  size_t n = timed->n;
  double freedom = (double)n - 1, margin = log1p(limits->margin);
  for (size_t r = 0; r < n; r++)
    scratch[r] = best ? log(timed->samples_us[r] / best->samples_us[r])
                      : log(timed->samples_us[r] / timed->baseline_us[r]) - leader->log_ratio;
  double lower_median = kth_of(scratch, n, (n - 1) / 2), median = median_of(scratch, n);

  for (size_t r = 0; r < n; r++)
    scratch[r] = fabs(scratch[r] - median);
  double own = MAD_TO_SIGMA * median_of(scratch, n) * sqrt((double)n / freedom);
  double variance =
      (RACE_PRIOR_ROUNDS * 2 * sigma * sigma + freedom * own * own) / (RACE_PRIOR_ROUNDS + freedom);
  double rounding = rounding_variance(timed) + (best ? rounding_variance(best) : 0);
  double half = RACE_Z * MEDIAN_ERROR * sqrt(fmax(variance, rounding) / (double)n);

  if (lower_median - half > margin)
    return STANDING_BEHIND;

  /* Without a margin no config is decided by it. */
  bool is_within = isfinite(margin) && median + half <= margin;
  return limits->precision > 0 && (is_within || half < limits->precision) ? STANDING_DECIDED
                                                                          : STANDING_OPEN;
}

static void far_find(const struct timed_config *const *in, size_t n, double best_ratio,
                     enum race_standing *standings) {
  double best_us = INFINITY;
  array_foreach (timed, in, n)
    best_us = fmin(best_us, (*timed)->samples_us[0]);
  for (size_t i = 0; i < n; i++) {
    double elsewhere_us = best_ratio > 0 ? best_ratio * in[i]->baseline_us[0] : INFINITY;
    double own_us = in[i]->estimate_us > 0 ? fmin(in[i]->estimate_us, in[i]->samples_us[0])
                                           : in[i]->samples_us[0];
    if (own_us > RACE_FAR * fmin(best_us, elsewhere_us))
      standings[i] = STANDING_FAR;
  }
}

void race_judge(struct race_spread *spread, const struct timed_config *const *in, size_t n,
                const struct race_limits *limits, enum race_standing *standings) {
  array_foreach (standing, standings, n)
    *standing = STANDING_OPEN;
  if (!n || (!isfinite(limits->margin) && limits->precision <= 0))
    return;

  size_t rounds = in[0]->n;
  if (rounds == 1 && isfinite(limits->margin))
    far_find(in, n, limits->best_ratio, standings);
  if (rounds < 2)
    return;

  spread_add(spread, in, n);
  if (rounds < limits->rounds_min)
    return;

  cleanup_free double *scratch = xcalloc(rounds, sizeof *scratch);
  struct leader leader = {NULL, limits->best_ratio > 0 ? log(limits->best_ratio) : INFINITY};
  array_foreach (timed, in, n) {
    for (size_t r = 0; r < rounds; r++)
      scratch[r] = log((*timed)->samples_us[r] / (*timed)->baseline_us[r]);
    double ratio = median_of(scratch, rounds);
    if (ratio < leader.log_ratio)
      leader = (struct leader){*timed, ratio};
  }

  double sigma = race_spread_sigma(spread);
  for (size_t i = 0; i < n; i++)
    standings[i] = standing_of(&leader, in[i], sigma, limits, scratch);
}
