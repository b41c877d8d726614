/* What follows from the samples of a race, and the order of its rounds, without a device. */
#include <criterion/criterion.h>

#include <math.h>

#include "agent/measure/race_rules.h"

#define ROUNDS_MAX 16
#define CONFIGS_MAX 108

static const struct race_limits screen = {
    .rounds_min = 2, .rounds_max = ROUNDS_MAX, .margin = 0.05, .precision = 0.02};

/* A field of configs whose true times are known. */
struct racers {
  size_t n;
  double us[CONFIGS_MAX];
  struct timed_config timed[CONFIGS_MAX];
  bool is_in[CONFIGS_MAX];
  enum race_standing standings[CONFIGS_MAX]; /* of the last round, by config */
  double samples[CONFIGS_MAX][ROUNDS_MAX], baselines[CONFIGS_MAX][ROUNDS_MAX];
  struct race_spread spread;
  size_t n_samples;
};

static struct racers *field_new(size_t n, const double *us) {
  struct racers *field = xcalloc(1, sizeof *field);
  field->n = n;
  for (size_t i = 0; i < n; i++) {
    field->us[i] = us[i];
    field->is_in[i] = true;
    field->timed[i] = (struct timed_config){
        .calls = 1, .samples_us = field->samples[i], .baseline_us = field->baselines[i]};
  }
  return field;
}

static void field_free(struct racers *field) {
  race_spread_release(&field->spread);
  free(field);
}

static void field_judge(struct racers *field, const struct race_limits *limits) {
  const struct timed_config *in[CONFIGS_MAX];
  enum race_standing standings[CONFIGS_MAX];
  size_t n_in = 0;
  for (size_t i = 0; i < field->n; i++)
    if (field->is_in[i])
      in[n_in++] = &field->timed[i];
  race_judge(&field->spread, in, n_in, limits, standings);
  for (size_t k = 0; k < n_in; k++)
    field->standings[in[k] - field->timed] = standings[k];
}

/* A round of samples that are slower than the true times by these factors; the baseline takes
 * 1,000. */
static void field_round(struct racers *field, const double *factors,
                        const struct race_limits *limits) {
  for (size_t i = 0; i < field->n; i++) {
    struct timed_config *timed = &field->timed[i];
    if (!field->is_in[i])
      continue;
    timed->samples_us[timed->n] = field->us[i] * factors[i];
    timed->baseline_us[timed->n++] = 1000;
    field->n_samples++;
  }
  field_judge(field, limits);
}

static const double even[CONFIGS_MAX] = {[0 ... CONFIGS_MAX - 1] = 1};

Test(race_statistics, twice_the_best_of_the_first_round_is_far) {
  struct racers *field = field_new(3, (double[]){1000, 1990, 2010});
  field_round(field, even, &screen);
  cr_expect_eq(field->standings[0], STANDING_OPEN);
  cr_expect_eq(field->standings[1], STANDING_OPEN);
  cr_expect_eq(field->standings[2], STANDING_FAR);
  field_free(field);
}

Test(race_statistics, a_slow_sample_after_a_fast_warm_up_is_not_far) {
  struct racers *field = field_new(2, (double[]){1000, 1000});
  field->timed[1].estimate_us = 1001;
  field_round(field, (double[]){1, 10}, &screen);
  cr_expect_eq(field->standings[1], STANDING_OPEN);
  field_free(field);
}

Test(race_statistics, a_config_far_from_the_best_ratio_of_another_lease_leaves) {
  struct racers *field = field_new(1, (double[]){1000});
  struct race_limits limits = screen;
  limits.best_ratio = 0.4;
  field_round(field, even, &limits);
  cr_expect_eq(field->standings[0], STANDING_FAR);
  field_free(field);
}

Test(race_statistics, no_config_leaves_without_a_margin) {
  struct racers *field = field_new(3, (double[]){1000, 1500, 3000});
  struct race_limits limits = screen;
  limits.margin = INFINITY;
  for (size_t round = 0; round < 8; round++) {
    field_round(field, even, &limits);
    for (size_t i = 0; i < 3; i++)
      cr_expect(field->standings[i] == STANDING_OPEN || field->standings[i] == STANDING_DECIDED);
  }
  field_free(field);
}

Test(race_statistics, quiet_samples_decide_as_soon_as_they_may) {
  struct racers *field = field_new(4, (double[]){1000, 1010, 1049, 1100});
  field_round(field, even, &screen);
  for (size_t i = 0; i < 4; i++)
    cr_expect_eq(field->standings[i], STANDING_OPEN, "one round tells nothing of its error");
  field_round(field, even, &screen);
  cr_expect_eq(field->standings[0], STANDING_DECIDED);
  cr_expect_eq(field->standings[1], STANDING_DECIDED);
  cr_expect_eq(field->standings[2], STANDING_DECIDED, "narrow, though on both sides of the margin");
  cr_expect_eq(field->standings[3], STANDING_BEHIND);
  field_free(field);
}

Test(race_statistics, no_config_is_behind_before_the_least_rounds) {
  struct racers *field = field_new(2, (double[]){1000, 1500});
  struct race_limits limits = screen;
  limits.rounds_min = 4;
  for (size_t round = 0; round < 3; round++) {
    field_round(field, even, &limits);
    cr_expect_eq(field->standings[1], STANDING_OPEN);
  }
  field_round(field, even, &limits);
  cr_expect_eq(field->standings[1], STANDING_BEHIND);
  field_free(field);
}

Test(race_statistics, nothing_is_decided_without_a_precision) {
  struct racers *field = field_new(3, (double[]){1000, 1010, 1500});
  struct race_limits limits = screen;
  limits.precision = 0;
  for (size_t round = 0; round < 6; round++)
    field_round(field, even, &limits);
  cr_expect_eq(field->standings[0], STANDING_OPEN);
  cr_expect_eq(field->standings[1], STANDING_OPEN);
  cr_expect_eq(field->standings[2], STANDING_BEHIND);
  field_free(field);
}

Test(race_statistics, one_slow_sample_of_two_removes_no_config) {
  struct racers *field = field_new(4, (double[]){1000, 1200, 1200, 1200});
  field_round(field, even, &screen);
  field_round(field, (double[]){10, 1, 1, 1}, &screen);
  cr_expect_neq(field->standings[0], STANDING_BEHIND);
  cr_expect_neq(field->standings[0], STANDING_DECIDED);
  field_free(field);
}

Test(race_statistics, a_slow_round_changes_no_ratio) {
  struct racers *field = field_new(3, (double[]){1000, 1010, 1200});
  static const double slow[] = {1.7, 1.7, 1.7};
  field_round(field, even, &screen);
  field_round(field, slow, &screen);
  cr_expect_eq(field->standings[1], STANDING_DECIDED);
  cr_expect_eq(field->standings[2], STANDING_BEHIND);
  field_free(field);
}

Test(race_statistics, differences_below_the_timers_resolution_are_not_decided) {
  struct racers *field = field_new(2, (double[]){20, 20.2});
  struct race_limits limits = screen;
  limits.precision = 0.003;
  limits.margin = INFINITY;
  for (size_t round = 0; round < ROUNDS_MAX; round++)
    field_round(field, even, &limits);
  cr_expect_eq(field->standings[0], STANDING_OPEN, "samples of 20 us by a timer of 0.5 us");
  field_free(field);
}

Test(race_statistics, configs_are_compared_with_the_best_ratio_of_another_lease) {
  struct racers *field = field_new(2, (double[]){1000, 1040});
  struct race_limits limits = screen;
  limits.best_ratio = 0.9;
  field_round(field, even, &limits);
  field_round(field, even, &limits);
  cr_expect_eq(field->standings[0], STANDING_BEHIND);
  cr_expect_eq(field->standings[1], STANDING_BEHIND);
  field_free(field);
}

/* Normal deviates by Box and Muller. */
static double normal(struct rng *rng) {
  return sqrt(-2 * log(1 - rng_unit(rng))) * cos(2 * 3.14159265358979 * rng_unit(rng));
}

struct noise {
  double sigma, spikes, spike_max;
};

static double noisy(struct rng *rng, const struct noise *noise) {
  double factor = exp(noise->sigma * normal(rng));
  return rng_unit(rng) < noise->spikes ? factor * (1 + (noise->spike_max - 1) * rng_unit(rng))
                                       : factor;
}

/* As race.c does it: warm-ups, rounds with the median of three samples of the baseline, until all
 * are decided. */
static void field_race(struct racers *field, struct rng *rng, const struct noise *noise,
                       const struct race_limits *limits) {
  for (size_t i = 0; i < field->n; i++)
    field->timed[i].estimate_us = field->us[i] * fmin(noisy(rng, noise), noisy(rng, noise));
  bool is_decided = false;
  for (size_t round = 0; round < limits->rounds_max && !is_decided; round++) {
    double baselines[] = {noisy(rng, noise), noisy(rng, noise), noisy(rng, noise)};
    double least = fmin(baselines[0], fmin(baselines[1], baselines[2]));
    double most = fmax(baselines[0], fmax(baselines[1], baselines[2]));
    double baseline_us = 1300 * (baselines[0] + baselines[1] + baselines[2] - least - most);
    for (size_t i = 0; i < field->n; i++) {
      struct timed_config *timed = &field->timed[i];
      if (!field->is_in[i])
        continue;
      timed->samples_us[round] = field->us[i] * noisy(rng, noise);
      timed->baseline_us[round] = baseline_us;
      timed->n = round + 1;
      field->n_samples++;
    }
    field_judge(field, limits);
    is_decided = true;
    for (size_t i = 0; i < field->n; i++) {
      is_decided &= !field->is_in[i] || field->standings[i] != STANDING_OPEN;
      field->is_in[i] &=
          field->standings[i] != STANDING_FAR && field->standings[i] != STANDING_BEHIND;
    }
  }
}

/* From 1 to 5 times the best, with every tenth within 5 %. */
static struct racers *field_like_a_space(struct rng *rng) {
  double us[CONFIGS_MAX] = {1000};
  for (size_t i = 1; i < CONFIGS_MAX; i++)
    us[i] = 1000 * (i % 10 == 0 ? 1 + 0.05 * rng_unit(rng) : exp(log(5) * rng_unit(rng)));
  return field_new(CONFIGS_MAX, us);
}

static size_t races_lost(const struct noise *noise, size_t races, size_t *ret_samples) {
  struct rng rng = rng_seeded(5);
  size_t n_lost = 0, n_samples = 0;
  for (size_t i = 0; i < races; i++) {
    struct racers *field = field_like_a_space(&rng);
    field_race(field, &rng, noise, &screen);
    n_lost += !field->is_in[0];
    n_samples += field->n_samples;
    field_free(field);
  }
  *ret_samples = n_samples / races;
  return n_lost;
}

Test(race_statistics, a_race_on_a_noisy_machine_keeps_the_best_config_and_ends) {
  size_t n_samples;
  size_t n_lost = races_lost(&(struct noise){0.02, 0.02, 5}, 1000, &n_samples);
  cr_expect_lt(n_lost, 5, "%zu of 1000", n_lost);
  cr_expect_lt(n_samples, 7 * CONFIGS_MAX, "%zu samples a race", n_samples);
}

Test(race_statistics, a_quiet_machine_needs_few_samples) {
  size_t n_samples;
  size_t n_lost = races_lost(&(struct noise){0.003, 0.001, 2}, 100, &n_samples);
  cr_expect_eq(n_lost, 0);
  cr_expect_lt(n_samples, 5 * CONFIGS_MAX / 2, "%zu samples a race", n_samples);
}

Test(race_statistics, the_spread_is_that_of_the_noise) {
  struct rng rng = rng_seeded(3);
  const struct noise noise = {0.02, 0.02, 5};
  const struct race_limits open = {
      .rounds_min = 2, .rounds_max = 8, .margin = INFINITY, .precision = 1e-9};
  double sum = 0;
  for (size_t i = 0; i < 50; i++) {
    struct racers *field = field_like_a_space(&rng);
    field_race(field, &rng, &noise, &open);
    sum += race_spread_sigma(&field->spread);
    field_free(field);
  }
  cr_expect(fabs(sum / 50 / noise.sigma - 1) < 0.1, "%g", sum / 50);
}

Test(race_order, every_config_has_one_place_and_every_block_a_baseline) {
  struct rng rng = rng_seeded(1);
  struct race_order order = race_order_new(20);
  bool is_in[20], is_there[20] = {false};
  for (size_t i = 0; i < 20; i++)
    is_in[i] = i != 3;
  race_order_draw(&order, &rng, is_in, 20);
  cr_expect_eq(order.n_blocks, 3);
  for (size_t b = 0, k = 0; b < order.n_blocks; b++) {
    size_t n_baselines = 0, begin = k;
    for (; k < order.ends[b]; k++) {
      n_baselines += order.places[k] == ORDER_BASELINE;
      if (order.places[k] == ORDER_BASELINE)
        continue;
      cr_expect_not(is_there[order.places[k]]);
      is_there[order.places[k]] = true;
    }
    cr_expect_eq(n_baselines, 1);
    cr_expect(k - begin == 7 || k - begin == 8, "blocks of like size");
  }
  cr_expect_eq(memcmp(is_in, is_there, sizeof is_in), 0);
  race_order_release(&order);
}

/* An order of n configs after its first round, in which all are in. */
static struct race_order order_drawn(struct rng *rng, bool *is_in, size_t n) {
  struct race_order order = race_order_new(n);
  memset(is_in, true, n * sizeof *is_in);
  race_order_draw(&order, rng, is_in, n);
  return order;
}

/* Copies the places of the last round; returns how many. */
static size_t places_copy(const struct race_order *order, size_t *places) {
  size_t n = order->n_blocks ? order->ends[order->n_blocks - 1] : 0;
  memcpy(places, order->places, n * sizeof *places);
  return n;
}

Test(race_order, the_second_round_is_the_first_in_reverse) {
  struct rng rng = rng_seeded(2);
  bool is_in[20];
  struct race_order order = order_drawn(&rng, is_in, 20);
  size_t first[30], second[30];
  size_t n = places_copy(&order, first);
  race_order_reverse(&order, is_in);
  cr_assert_eq(places_copy(&order, second), n);
  for (size_t k = 0; k < n; k++)
    cr_expect_eq(first[k], second[n - 1 - k]);
  race_order_release(&order);
}

Test(race_order, configs_that_left_and_empty_blocks_have_no_place) {
  struct rng rng = rng_seeded(2);
  bool is_in[40];
  struct race_order order = order_drawn(&rng, is_in, 40);
  cr_expect_eq(order.n_blocks, 5);
  /* All of the first block but one leave, then that one. */
  size_t last = order.places[0] == ORDER_BASELINE ? order.places[1] : order.places[0];
  for (size_t k = 0; k < order.ends[0]; k++)
    if (order.places[k] != ORDER_BASELINE)
      is_in[order.places[k]] = order.places[k] == last;
  race_order_reverse(&order, is_in);
  cr_expect_eq(order.n_blocks, 5);
  cr_expect_eq(order.ends[4], 4 * 9 + 2);
  is_in[last] = false;
  race_order_reverse(&order, is_in);
  cr_expect_eq(order.n_blocks, 4);
  cr_expect_eq(order.ends[3], 4 * 9);
  race_order_release(&order);
}

Test(race_order, the_baseline_is_sampled_three_times_also_for_a_single_config) {
  struct rng rng = rng_seeded(2);
  bool is_in[9];
  struct race_order order = order_drawn(&rng, is_in, 9);
  cr_expect_eq(order.n_blocks, 3);
  memset(is_in, false, sizeof is_in);
  is_in[4] = true;
  for (size_t i = 0; i < 2; i++) {
    cr_expect_eq(order.n_blocks, 3);
    race_order_reverse(&order, is_in);
    cr_expect_eq(order.ends[2], 4);
  }
  race_order_draw(&order, &rng, is_in, 9);
  cr_expect_eq(order.n_blocks, 3);
  cr_expect_eq(order.ends[2], 4);
  race_order_release(&order);
}

Test(race_order, orders_are_random_and_follow_the_seed) {
  struct rng rng = rng_seeded(4), again = rng_seeded(4);
  struct race_order order = race_order_new(24);
  bool is_in[24];
  size_t first[27], n_low_first = 0, n_baseline_first = 0;
  memset(is_in, true, sizeof is_in);
  for (size_t i = 0; i < 400; i++) {
    race_order_draw(&order, &rng, is_in, 24);
    cr_assert_eq(places_copy(&order, first), 27);
    n_baseline_first += first[0] == ORDER_BASELINE;
    n_low_first += (first[0] == ORDER_BASELINE ? first[1] : first[0]) < 12;
    race_order_draw(&order, &again, is_in, 24);
    cr_expect_eq(memcmp(order.places, first, sizeof first), 0);
  }
  cr_expect(n_low_first > 140 && n_low_first < 260, "%zu of 400", n_low_first);
  cr_expect(n_baseline_first > 15 && n_baseline_first < 90, "%zu of 400, a ninth of them",
            n_baseline_first);
  race_order_release(&order);
}
