/* The pure rules of a race, without device or clock: the order of a round, and which configs leave
 * after it.
 *
 * Order. Round 2k is drawn: the configs in random order, cut into blocks of similar size, and the
 * baseline at a random place of each. Round 2k + 1 is round 2k in reverse, so that each config
 * comes as often before its baseline as after it, and a steady change affects all equally. Configs
 * that have left since are omitted, and so are blocks that would have no config. A round has at
 * least RACE_BASELINES blocks, if need be of the baseline alone.
 *
 * Statistics. x[i][r] is the logarithm of config i's sample in round r, b[r] that of the
 * baseline's.
 * - The best is the config with the least median over r of x - b, or `best_ratio` where that is
 *   less.
 * - The distance of i to the best j is the median over r of d[r] = x[i][r] - x[j][r] (against
 *   `best_ratio`: of x[i][r] - b[r] - log best_ratio): paired in a round, so that what slows a
 *   whole round down cancels.
 * - Few rounds say little of one config's own spread, so most of it is pooled. Between
 *   neighbouring rounds each config and the baseline differ by u = x[i][r] - x[i][r - 1]; what is
 *   left of u after its median over all m of them is their noise alone, of variance 2 (1 - 1/m)
 *   s^2. So s = 1.4826 * median |u - median u| / sqrt(2 (1 - 1/m)), over all rounds and configs.
 *   The median absolute deviation over 0.6745 is the standard deviation of a normal distribution,
 *   and spikes in less than half of the samples do not move it far (Rousseeuw and Croux,
 *   "Alternatives to the median absolute deviation", 1993). Differences need no estimate of each
 *   config's centre, which two or three rounds do not give.
 * - A config noisier than the others shows in t = 1.4826 * median |d - median d| * sqrt(n / (n -
 *   1)), its own spread in n rounds. The variance of its d is moderated as in Smyth, "Linear models
 *   and empirical Bayes methods for assessing differential expression", 2004, with
 *   RACE_PRIOR_ROUNDS degrees of freedom for what is pooled: v = (RACE_PRIOR_ROUNDS * 2 s^2 + (n -
 *   1) t^2) / (RACE_PRIOR_ROUNDS + n - 1), but not less than what the timer's resolution leaves in
 *   both samples: (RACE_RESOLUTION_US / interval)^2 / 12 each, the variance of rounding.
 * - The standard error of a median of n normal values is sqrt(pi / 2) * sqrt(v / n), 1.2533 times
 *   that of the mean; the interval is the distance -+ RACE_Z of it.
 * - Spikes only make samples slower. To be behind, a config must be so by the lower median of d,
 *   the lesser of the middle two: one slow sample of two does not send the best away.
 *
 * Memory: an order and a spread own their arrays. Threads: pure functions. */
#ifndef WAVETUNE_AGENT_MEASURE_RACE_RULES_H
#define WAVETUNE_AGENT_MEASURE_RACE_RULES_H

#include "agent/measure/race.h"
#include "common/base/numbers.h"

#define ORDER_BASELINE SIZE_MAX

struct race_order {
  size_t n_blocks;
  size_t *ends;   /* of each block among the places; the next begins there */
  size_t *places; /* indices of configs, or ORDER_BASELINE */
};

/* How many blocks a drawn round of n configs has; a later one never has more. */
size_t race_order_blocks(size_t n);

/* Room for n configs; n >= 1. */
struct race_order race_order_new(size_t n);
void race_order_release(struct race_order *order);

/* Draws a round of the configs that are in: at least one of n. */
void race_order_draw(struct race_order *order, struct rng *rng, const bool *is_in, size_t n);
void race_order_reverse(struct race_order *order, const bool *is_in);

/* half width of an interval in standard errors: many configs are judged many times */
#define RACE_Z 3.0
#define RACE_PRIOR_ROUNDS 10
/* of events, as CUDA's runtime documents it for cudaEventElapsedTime */
#define RACE_RESOLUTION_US 0.5

enum race_standing { STANDING_OPEN, STANDING_DECIDED, STANDING_FAR, STANDING_BEHIND };

/* What is left of the differences between neighbouring rounds, scaled to the noise of one
 * sample. */
struct race_spread {
  size_t n;
  double *residuals; /* absolute */
};
void race_spread_release(struct race_spread *spread);

/* Adds a round that ended to the spread, where it is not the first, and sets the standing of each
 * of the `n` configs still in. All have the same number of samples, at least one. */
void race_judge(struct race_spread *spread, const struct timed_config *const *in, size_t n,
                const struct race_limits *limits, enum race_standing *standings);

/* s of the formula above; 0 before the second round. */
double race_spread_sigma(const struct race_spread *spread);

#endif
