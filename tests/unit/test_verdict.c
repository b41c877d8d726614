/* The verdict over simulated processes: each has a band that all its configs share, each config in
 * it noise of its own, and each round noise on top. */
#include "common/verdict/verdict.h"

#include <criterion/criterion.h>
#include <math.h>

#include "common/verdict/verdict_interval.h"
#include "tests/unit/gauss.h"

#define BASELINE 1000u
#define CONFIGS_MAX 16
#define PROCESSES_MAX 10

struct experiment {
  size_t n_configs, n_processes, n_rounds;
  double true_us[CONFIGS_MAX];
  double process_noise; /* of a config in a process: the process as a random effect */
  double round_noise;
  size_t n;
  struct verdict_sample samples[CONFIGS_MAX * PROCESSES_MAX];
};

static struct error error;

/* Config c has the ordinal 10 + c; the baseline takes 100 us. */
static void measure(struct experiment *experiment, uint64_t seed) {
  struct rng rng = rng_seeded(seed);
  for (size_t p = 0; p < experiment->n_processes; p++) {
    double band = exp(0.05 * gauss(&rng));
    for (size_t c = 0; c < experiment->n_configs; c++) {
      double here = band * exp(experiment->process_noise * gauss(&rng));
      double *samples = xcalloc(experiment->n_rounds, sizeof *samples);
      double *baselines = xcalloc(experiment->n_rounds, sizeof *baselines);
      for (size_t i = 0; i < experiment->n_rounds; i++) {
        samples[i] = experiment->true_us[c] * here * exp(experiment->round_noise * gauss(&rng));
        baselines[i] = 100 * band * exp(experiment->round_noise * gauss(&rng));
      }
      experiment->samples[experiment->n++] = (struct verdict_sample){.config = 10 + c,
                                                                     .process = (int64_t)p,
                                                                     .n = experiment->n_rounds,
                                                                     .samples_us = samples,
                                                                     .baseline_us = baselines};
    }
  }
}

static void experiment_release(struct experiment *experiment) {
  for (size_t i = 0; i < experiment->n; i++) {
    free((double *)experiment->samples[i].samples_us);
    free((double *)experiment->samples[i].baseline_us);
  }
}
#define cleanup_experiment __attribute__((cleanup(experiment_release)))

static struct verdict decided(const struct experiment *experiment) {
  struct verdict verdict = {0};
  cr_assert(verdict_decide(experiment->samples, experiment->n, BASELINE, 7, &verdict, &error), "%s",
            error.message);
  return verdict;
}

static const struct verdict_finalist *finalist_of(const struct verdict *verdict, uint64_t config) {
  for (size_t i = 0; i < verdict->n_finalists; i++)
    if (verdict->finalists[i].config == config)
      return &verdict->finalists[i];
  die("config %llu is no finalist", (unsigned long long)config);
}

static bool is_equivalent(const struct verdict *verdict, uint64_t config) {
  for (size_t i = 0; i < verdict->n_equivalents; i++)
    if (verdict->equivalents[i] == config)
      return true;
  return false;
}

/* A sample whose every pair has the ratio `ratio`; the baseline takes 100 us. */
static struct verdict_sample steady(uint64_t config, int64_t process, double ratio) {
  static double hundreds[5] = {100, 100, 100, 100, 100}, times[64][5];
  static size_t used;
  double *samples = times[used++ % ARRAY_LENGTH(times)];
  for (size_t i = 0; i < 5; i++)
    samples[i] = 100 * ratio;
  return (struct verdict_sample){
      .config = config, .process = process, .n = 5, .samples_us = samples, .baseline_us = hundreds};
}

static struct verdict decided_of(const struct verdict_sample *samples, size_t n,
                                 uint64_t baseline) {
  struct verdict verdict = {0};
  cr_assert(verdict_decide(samples, n, baseline, 7, &verdict, &error), "%s", error.message);
  return verdict;
}

Test(verdict, a_clear_winner_wins) {
  cleanup_experiment struct experiment experiment = {.n_configs = 4,
                                                     .n_processes = 5,
                                                     .n_rounds = 20,
                                                     .true_us = {90, 80, 70, 95},
                                                     .process_noise = 0.003,
                                                     .round_noise = 0.02};
  measure(&experiment, 1);
  cleanup_verdict struct verdict verdict = decided(&experiment);
  cr_expect_eq(verdict.winner, 12u);
  cr_expect_eq(verdict.n_equivalents, (size_t)1);
  cr_expect_eq(verdict.equivalents[0], 12u);
  cr_expect_eq(verdict.regret_bound, 0);
  cr_expect_eq(verdict.outcome, VERDICT_FASTER);
  cr_expect_float_eq(verdict.baseline_ratio, 0.7, 0.01);
  cr_expect(verdict.baseline_lower <= verdict.baseline_ratio &&
            verdict.baseline_ratio <= verdict.baseline_upper);
}

Test(verdict, finalists_are_listed_by_rising_ratio_with_their_intervals) {
  const struct verdict_sample samples[] = {steady(5, 0, 0.9), steady(5, 1, 0.9), steady(5, 2, 0.9),
                                           steady(3, 0, 0.8), steady(3, 1, 0.8), steady(3, 2, 0.8)};
  cleanup_verdict struct verdict verdict = decided_of(samples, ARRAY_LENGTH(samples), BASELINE);
  cr_assert_eq(verdict.n_finalists, (size_t)2);
  cr_expect_eq(verdict.finalists[0].config, 3u);
  cr_expect_float_eq(verdict.finalists[0].ratio, 1, 1e-12);
  cr_expect_float_eq(verdict.finalists[0].median_us, 80, 1e-9);
  cr_expect_eq(verdict.finalists[1].config, 5u);
  cr_expect_float_eq(verdict.finalists[1].ratio, 1.125, 1e-12);
  cr_expect_float_eq(verdict.finalists[1].lower, 1.125, 1e-12);
  cr_expect_float_eq(verdict.finalists[1].upper, 1.125, 1e-12);
  cr_expect_not(verdict.finalists[1].equivalent);
  cr_expect_float_eq(verdict.winner_us, 80, 1e-9);
  cr_expect_float_eq(verdict.baseline_us, 100, 1e-9);
  cr_expect_eq(verdict.n_samples, (size_t)30);
  cr_expect_eq(verdict.n_processes, (size_t)3);
}

Test(verdict, a_band_that_all_configs_of_a_process_share_does_not_matter) {
  static const double slow_baseline[3] = {300, 300, 300}, slow_a[3] = {270, 270, 270},
                      slow_b[3] = {240, 240, 240};
  const struct verdict_sample samples[] = {
      steady(1, 0, 0.9),
      steady(1, 1, 0.9),
      {.config = 1, .process = 2, .n = 3, .samples_us = slow_a, .baseline_us = slow_baseline},
      steady(2, 0, 0.8),
      steady(2, 1, 0.8),
      {.config = 2, .process = 2, .n = 3, .samples_us = slow_b, .baseline_us = slow_baseline}};
  cleanup_verdict struct verdict verdict = decided_of(samples, ARRAY_LENGTH(samples), BASELINE);
  cr_expect_eq(verdict.winner, 2u);
  cr_expect_float_eq(verdict.finalists[1].ratio, 1.125, 1e-12);
  cr_expect_float_eq(verdict.baseline_upper, 0.8, 1e-12);
}

Test(verdict, one_outlier_in_a_process_does_not_matter) {
  static const double baseline[5] = {100, 100, 100, 100, 100},
                      samples_us[5] = {90, 90, 5000, 90, 90};
  struct verdict_sample samples[3];
  for (int64_t p = 0; p < 3; p++)
    samples[p] = (struct verdict_sample){
        .config = 1, .process = p, .n = 5, .samples_us = samples_us, .baseline_us = baseline};
  cleanup_verdict struct verdict verdict = decided_of(samples, 3, BASELINE);
  cr_expect_float_eq(verdict.baseline_ratio, 0.9, 1e-12);
}

Test(verdict, a_config_5_percent_slower_never_enters_the_equivalence_set) {
  for (uint64_t seed = 0; seed < 100; seed++) {
    cleanup_experiment struct experiment experiment = {.n_configs = 3,
                                                       .n_processes = 3,
                                                       .n_rounds = 15,
                                                       .true_us = {80, 84, 80.1},
                                                       .process_noise = 0.003,
                                                       .round_noise = 0.02};
    measure(&experiment, seed);
    cleanup_verdict struct verdict verdict = decided(&experiment);
    cr_assert_not(is_equivalent(&verdict, 11), "with seed %llu", (unsigned long long)seed);
  }
}

Test(verdict, wide_noise_does_not_let_a_config_into_the_set) {
  cleanup_experiment struct experiment experiment = {.n_configs = 6,
                                                     .n_processes = 3,
                                                     .n_rounds = 5,
                                                     .true_us = {80, 80, 80, 80, 80, 80},
                                                     .process_noise = 0.1,
                                                     .round_noise = 0.3};
  measure(&experiment, 3);
  cleanup_verdict struct verdict verdict = decided(&experiment);
  cr_expect_eq(verdict.n_equivalents, (size_t)1, "nothing is known to be as good as the best");
  for (size_t i = 1; i < verdict.n_finalists; i++)
    cr_expect_gt(verdict.finalists[i].upper, VERDICT_EQUIVALENCE);
}

/* Three configs of one speed with the given weights; the winner's index. */
static uint64_t winner_of_weights(const int64_t weights[3][3], const double ratios[3]) {
  struct verdict_sample samples[9];
  for (size_t c = 0; c < 3; c++)
    for (int64_t p = 0; p < 3; p++) {
      struct verdict_sample *sample = &samples[3 * c + (size_t)p];
      *sample = steady(c, p, ratios[c]);
      sample->spills = weights[c][0];
      sample->lds_bytes = weights[c][1];
      sample->vgprs = weights[c][2];
    }
  cleanup_verdict struct verdict verdict = decided_of(samples, 9, BASELINE);
  cr_assert_eq(verdict.n_equivalents, (size_t)3);
  return verdict.winner;
}

static const double equal[3] = {0.8, 0.8, 0.8};

Test(verdict, a_tie_goes_to_fewer_spills_first) {
  cr_expect_eq(winner_of_weights((const int64_t[3][3]){{2, 0, 0}, {1, 9, 9}, {3, 0, 0}}, equal),
               1u);
}

Test(verdict, then_to_less_local_memory) {
  cr_expect_eq(winner_of_weights((const int64_t[3][3]){{1, 9, 0}, {1, 8, 0}, {1, 7, 9}}, equal),
               2u);
}

Test(verdict, then_to_fewer_registers) {
  cr_expect_eq(winner_of_weights((const int64_t[3][3]){{0, 0, 64}, {0, 0, 32}, {0, 0, 33}}, equal),
               1u);
}

Test(verdict, then_to_the_lowest_ordinal) {
  cr_expect_eq(winner_of_weights((const int64_t[3][3]){{0, 0, 0}, {0, 0, 0}, {0, 0, 0}}, equal),
               0u);
}

Test(verdict, a_lighter_config_within_half_a_percent_wins) {
  const double ratios[3] = {0.8, 0.8 * 1.004, 0.8};
  cr_expect_eq(winner_of_weights((const int64_t[3][3]){{1, 0, 0}, {0, 0, 0}, {1, 0, 0}}, ratios),
               1u);
}

Test(verdict, a_lighter_config_beyond_half_a_percent_does_not_win) {
  const double ratios[3] = {0.8, 0.8 * 1.006, 0.8};
  cr_expect_eq(winner_of_weights((const int64_t[3][3]){{1, 0, 0}, {0, 0, 0}, {1, 0, 0}}, ratios),
               0u);
}

Test(verdict, the_regret_of_a_lighter_winner_is_counted) {
  struct verdict_sample samples[6];
  for (int64_t p = 0; p < 3; p++) {
    samples[p] = steady(1, p, 0.8);
    samples[p].spills = 1;
    samples[3 + p] = steady(2, p, 0.8 * 1.004);
  }
  cleanup_verdict struct verdict verdict = decided_of(samples, 6, BASELINE);
  cr_expect_eq(verdict.winner, 2u);
  cr_expect_float_eq(verdict.regret_bound, 0.004, 1e-9);
}

static void expect_same_verdict(const struct verdict *a, const struct verdict *b) {
  cleanup_json json_t *a_json = verdict_to_json(a), *b_json = verdict_to_json(b);
  cleanup_free char *a_text = json_canonical(a_json), *b_text = json_canonical(b_json);
  cr_expect_str_eq(a_text, b_text);
}

Test(verdict, recomputing_gives_the_same_to_the_last_digit) {
  cleanup_experiment struct experiment experiment = {.n_configs = 5,
                                                     .n_processes = 4,
                                                     .n_rounds = 10,
                                                     .true_us = {80, 81, 80, 82, 80.5},
                                                     .process_noise = 0.01,
                                                     .round_noise = 0.02};
  measure(&experiment, 11);
  cleanup_verdict struct verdict once = decided(&experiment), again = decided(&experiment);
  expect_same_verdict(&once, &again);
}

Test(verdict, of_a_config_in_the_winners_place_says_how_it_compares_with_all) {
  cleanup_experiment struct experiment experiment = {.n_configs = 3,
                                                     .n_processes = 3,
                                                     .n_rounds = 12,
                                                     .true_us = {80, 90, 95},
                                                     .process_noise = 0.002,
                                                     .round_noise = 0.01};
  measure(&experiment, 3);
  cleanup_verdict struct verdict of_best = {0}, of_other = {0}, as_decided = decided(&experiment);
  cr_assert(
      verdict_decide_for(experiment.samples, experiment.n, BASELINE, 10, 7, &of_best, &error));
  expect_same_verdict(&of_best, &as_decided);
  cr_assert(
      verdict_decide_for(experiment.samples, experiment.n, BASELINE, 12, 7, &of_other, &error));
  const struct verdict_finalist *best = finalist_of(&of_other, 10);
  cr_expect_eq(of_other.winner, 12u);
  cr_expect_eq(best->ratio, 1);
  cr_expect(best->winner_lower > 1 && best->winner_lower < best->winner_ratio);
  cr_expect_float_eq(best->winner_ratio, 95.0 / 80, 0.02);
  cr_expect_float_eq(of_other.baseline_ratio, 0.95, 0.01);
  cr_expect_gt(of_other.regret_bound, 0.15);
}

Test(verdict, of_a_config_that_is_no_finalist_there_is_none) {
  const struct verdict_sample samples[] = {steady(1, 0, 1), steady(1, 1, 1), steady(1, 2, 1),
                                           steady(2, 0, 1)};
  struct verdict verdict;
  cr_assert(!verdict_decide_for(samples, 4, BASELINE, 2, 7, &verdict, &error));
  cr_expect_str_eq(
      error.message,
      "config 2 was not measured correctly in 3 processes; measure it in more processes");
}

static void shuffle(struct verdict_sample *samples, size_t n, struct rng *rng) {
  for (size_t i = n; i > 1; i--) {
    size_t j = rng_below(rng, i);
    struct verdict_sample kept = samples[i - 1];
    samples[i - 1] = samples[j];
    samples[j] = kept;
  }
}

Test(verdict, the_order_of_the_samples_does_not_matter) {
  cleanup_experiment struct experiment experiment = {.n_configs = 5,
                                                     .n_processes = 4,
                                                     .n_rounds = 10,
                                                     .true_us = {80, 81, 80, 82, 80.5},
                                                     .process_noise = 0.01,
                                                     .round_noise = 0.02};
  struct rng rng = rng_seeded(5);
  measure(&experiment, 12);
  cleanup_verdict struct verdict once = decided(&experiment);
  for (int i = 0; i < 5; i++) {
    shuffle(experiment.samples, experiment.n, &rng);
    cleanup_verdict struct verdict again = decided(&experiment);
    expect_same_verdict(&once, &again);
  }
}

Test(verdict, another_seed_gives_other_draws_and_the_same_intervals) {
  cleanup_experiment struct experiment experiment = {.n_configs = 2,
                                                     .n_processes = 4,
                                                     .n_rounds = 10,
                                                     .true_us = {80, 80.5},
                                                     .process_noise = 0.01,
                                                     .round_noise = 0.02};
  measure(&experiment, 13);
  cleanup_verdict struct verdict one = decided(&experiment), other = {0};
  cr_assert(verdict_decide(experiment.samples, experiment.n, BASELINE, 8, &other, &error));
  cr_expect_eq(one.finalists[1].upper, other.finalists[1].upper);
  cr_expect_eq(one.baseline_upper, other.baseline_upper);
  cr_expect_neq(one.regret_bound, other.regret_bound);
}

Test(verdict, of_a_config_measured_twice_in_a_process_the_longer_sample_counts) {
  static const double two_baselines[2] = {100, 100}, two_samples[2] = {50, 50};
  struct verdict_sample samples[] = {
      steady(1, 0, 0.9),
      {.config = 1, .process = 0, .n = 2, .samples_us = two_samples, .baseline_us = two_baselines},
      steady(1, 1, 0.9),
      steady(1, 2, 0.9)};
  cleanup_verdict struct verdict verdict = decided_of(samples, 4, BASELINE);
  cr_expect_float_eq(verdict.baseline_ratio, 0.9, 1e-12);
  cr_expect_eq(verdict.n_samples, (size_t)15);
}

Test(verdict, which_of_two_samples_of_one_length_counts_does_not_depend_on_their_order) {
  struct verdict_sample samples[] = {steady(1, 0, 0.9), steady(1, 0, 0.8), steady(1, 1, 0.9),
                                     steady(1, 2, 0.9)};
  cleanup_verdict struct verdict one = decided_of(samples, 4, BASELINE);
  struct verdict_sample first = samples[0];
  samples[0] = samples[1];
  samples[1] = first;
  cleanup_verdict struct verdict other = decided_of(samples, 4, BASELINE);
  expect_same_verdict(&one, &other);
}

Test(verdict, the_best_is_beaten_by_no_finalist_in_a_direct_comparison) {
  /* By itself config 2 looks faster (median 0.91 to 0.92), but config 1 is faster in three rounds
   * of five. */
  static const double baseline[5] = {100, 100, 100, 100, 100};
  static const double one[5] = {90, 91, 92, 93, 94}, two[5] = {91, 92, 82, 98, 81};
  struct verdict_sample samples[6];
  for (int64_t p = 0; p < 3; p++) {
    samples[p] = (struct verdict_sample){
        .config = 1, .process = p, .n = 5, .samples_us = one, .baseline_us = baseline};
    samples[3 + p] = (struct verdict_sample){
        .config = 2, .process = p, .n = 5, .samples_us = two, .baseline_us = baseline};
  }
  cleanup_verdict struct verdict verdict = decided_of(samples, 6, BASELINE);
  cr_expect_float_eq(finalist_of(&verdict, 1)->ratio, 1, 1e-12);
  cr_expect_gt(finalist_of(&verdict, 2)->ratio, 1);
}

Test(verdict, rounds_beyond_the_common_prefix_are_not_paired) {
  static const double baseline[4] = {100, 100, 100, 100}, longer[4] = {80, 80, 300, 300},
                      shorter[2] = {84, 84};
  struct verdict_sample samples[6];
  for (int64_t p = 0; p < 3; p++) {
    samples[p] = (struct verdict_sample){
        .config = 1, .process = p, .n = 4, .samples_us = longer, .baseline_us = baseline};
    samples[3 + p] = (struct verdict_sample){
        .config = 2, .process = p, .n = 2, .samples_us = shorter, .baseline_us = baseline};
  }
  cleanup_verdict struct verdict verdict = decided_of(samples, 6, BASELINE);
  cr_expect_float_eq(finalist_of(&verdict, 1)->ratio, 1, 1e-12);
  cr_expect_float_eq(finalist_of(&verdict, 2)->ratio, 84.0 / 80, 1e-12, "%g",
                     finalist_of(&verdict, 2)->ratio);
}

Test(verdict, all_rounds_that_both_have_are_paired) {
  static const double baseline[3] = {100, 100, 100}, a[3] = {80, 80, 90}, b[3] = {80, 90, 100};
  struct verdict_sample samples[6];
  for (int64_t p = 0; p < 3; p++) {
    samples[p] = (struct verdict_sample){
        .config = 1, .process = p, .n = 3, .samples_us = a, .baseline_us = baseline};
    samples[3 + p] = (struct verdict_sample){
        .config = 2, .process = p, .n = 3, .samples_us = b, .baseline_us = baseline};
  }
  cleanup_verdict struct verdict verdict = decided_of(samples, 6, BASELINE);
  cr_expect_float_eq(finalist_of(&verdict, 2)->ratio, 100.0 / 90, 1e-12, "%g",
                     finalist_of(&verdict, 2)->ratio);
}

Test(verdict, a_config_in_too_few_processes_is_no_finalist) {
  const struct verdict_sample samples[] = {steady(1, 0, 0.9), steady(1, 1, 0.9), steady(1, 2, 0.9),
                                           steady(2, 0, 0.5), steady(2, 1, 0.5)};
  cleanup_verdict struct verdict verdict = decided_of(samples, ARRAY_LENGTH(samples), BASELINE);
  cr_expect_eq(verdict.n_finalists, (size_t)1);
  cr_expect_eq(verdict.winner, 1u);
  cr_expect_eq(verdict.n_samples, (size_t)15);
}

Test(verdict, finalists_with_too_few_processes_in_common_are_not_equivalent) {
  const struct verdict_sample samples[] = {steady(1, 0, 0.8), steady(1, 1, 0.8), steady(1, 2, 0.8),
                                           steady(2, 1, 0.8), steady(2, 2, 0.8), steady(2, 3, 0.8)};
  cleanup_verdict struct verdict verdict = decided_of(samples, ARRAY_LENGTH(samples), BASELINE);
  cr_expect_eq(verdict.n_finalists, (size_t)2);
  cr_expect_not(finalist_of(&verdict, 2)->equivalent);
  cr_expect(isinf(finalist_of(&verdict, 2)->upper));
  cr_expect_float_eq(finalist_of(&verdict, 2)->ratio, 1, 1e-12);
  cr_expect_eq(verdict.n_processes, (size_t)4);
  cleanup_json json_t *json = verdict_to_json(&verdict);
  json_t *finalist = json_array_get(json_object_get(json, "finalists"), 1);
  cr_expect_null(json_object_get(finalist, "upper"), "an interval that is not known is left out");
}

Test(verdict, equivalents_are_rising_ordinals_that_hold_the_winner) {
  const struct verdict_sample samples[] = {steady(9, 0, 0.8), steady(9, 1, 0.8), steady(9, 2, 0.8),
                                           steady(4, 0, 0.8), steady(4, 1, 0.8), steady(4, 2, 0.8),
                                           steady(6, 0, 0.9), steady(6, 1, 0.9), steady(6, 2, 0.9)};
  cleanup_verdict struct verdict verdict = decided_of(samples, ARRAY_LENGTH(samples), BASELINE);
  cr_assert_eq(verdict.n_equivalents, (size_t)2);
  cr_expect_eq(verdict.equivalents[0], 4u);
  cr_expect_eq(verdict.equivalents[1], 9u);
  cr_expect(is_equivalent(&verdict, verdict.winner));
}

static void expect_outcome(const double ratios[3], enum verdict_outcome wanted) {
  const struct verdict_sample samples[] = {steady(1, 0, ratios[0]), steady(1, 1, ratios[1]),
                                           steady(1, 2, ratios[2])};
  cleanup_verdict struct verdict verdict = decided_of(samples, 3, BASELINE);
  cr_expect_str_eq(verdict_outcome_name(verdict.outcome), verdict_outcome_name(wanted));
}

Test(verdict, is_FASTER_when_the_whole_interval_is_below_one) {
  expect_outcome((const double[]){0.9, 0.905, 0.895}, VERDICT_FASTER);
}

Test(verdict, is_SLOWER_when_the_whole_interval_is_above_one) {
  expect_outcome((const double[]){1.1, 1.105, 1.095}, VERDICT_SLOWER);
}

Test(verdict, is_SAME_when_a_narrow_interval_holds_one) {
  expect_outcome((const double[]){0.999, 1.0, 1.001}, VERDICT_SAME);
}

Test(verdict, is_not_FASTER_because_three_processes_agree_roughly) {
  expect_outcome((const double[]){0.9, 0.95, 0.99}, VERDICT_AMBIGUOUS);
}

Test(verdict, is_AMBIGUOUS_when_an_interval_that_holds_one_is_wide_on_one_side) {
  expect_outcome((const double[]){0.982, 0.985, 0.988}, VERDICT_AMBIGUOUS); /* 0.961 to 1.010 */
  expect_outcome((const double[]){1.012, 1.015, 1.018}, VERDICT_AMBIGUOUS); /* 0.991 to 1.040 */
}

Test(verdict, is_AMBIGUOUS_when_a_wide_interval_holds_one) {
  expect_outcome((const double[]){0.9, 1.0, 1.1}, VERDICT_AMBIGUOUS);
  expect_outcome((const double[]){0.97, 0.971, 1.0}, VERDICT_AMBIGUOUS);
  expect_outcome((const double[]){1.0, 1.03, 1.031}, VERDICT_AMBIGUOUS);
}

/* Of n configs that vary alike over three processes: the first, and the rest 20 % slower or
 * (`are_near`) 2 %. */
static struct verdict verdict_among(size_t n, bool are_near) {
  const double ratios[3] = {0.9, 0.905, 0.895};
  struct verdict_sample samples[27];
  for (uint64_t c = 0; c < n; c++)
    for (int64_t p = 0; p < 3; p++)
      samples[3 * c + (uint64_t)p] = steady(c, p,
                                            (c == 0     ? 1
                                             : are_near ? 1.02
                                                        : 1.2) *
                                                ratios[(c + (uint64_t)p) % 3]);
  return decided_of(samples, 3 * n, BASELINE);
}

Test(verdict, the_interval_against_the_baseline_widens_with_the_number_of_rivals) {
  cleanup_verdict struct verdict of_nine = verdict_among(9, false),
                                 of_six = verdict_among(6, false);
  cr_expect_eq(of_nine.winner, 0u);
  cr_expect_eq(of_nine.baseline_ratio, of_six.baseline_ratio);
  cr_expect_gt(of_nine.baseline_upper, of_six.baseline_upper);
}

Test(verdict, the_spread_of_other_finalists_narrows_an_interval_that_three_processes_leave_wide) {
  cleanup_verdict struct verdict of_two = verdict_among(2, true), of_nine = verdict_among(9, true);
  cr_expect_float_eq(finalist_of(&of_two, 1)->ratio, finalist_of(&of_nine, 1)->ratio, 1e-12);
  cr_expect_lt(finalist_of(&of_nine, 1)->upper, finalist_of(&of_two, 1)->upper);
}

Test(verdict, the_spread_of_finalists_that_are_far_from_the_best_tells_nothing_of_it) {
  cleanup_verdict struct verdict of_two = verdict_among(2, false),
                                 of_nine = verdict_among(9, false);
  cr_expect_float_eq(finalist_of(&of_two, 1)->upper, finalist_of(&of_nine, 1)->upper, 1e-12);
}

Test(verdict, a_finalist_that_is_the_baseline_is_no_rival) {
  const struct verdict_sample samples[] = {steady(1, 0, 0.9),   steady(1, 1, 0.905),
                                           steady(1, 2, 0.895), steady(2, 0, 1),
                                           steady(2, 1, 1),     steady(2, 2, 1)};
  cleanup_verdict struct verdict alone = decided_of(samples, 3, BASELINE),
                                 beside = decided_of(samples, 6, 2);
  cr_expect_eq(alone.baseline_upper, beside.baseline_upper);
}

Test(verdict, counts_the_devices_of_the_samples_that_it_used) {
  struct verdict_sample samples[] = {steady(1, 0, 0.9), steady(1, 1, 0.9), steady(1, 2, 0.9),
                                     steady(2, 3, 0.9)};
  for (size_t i = 0; i < 4; i++)
    samples[i].device = (int64_t[]){7, 9, 7, 11}[i];
  cleanup_verdict struct verdict verdict = decided_of(samples, 4, BASELINE);
  cr_expect_eq(verdict.n_devices, (size_t)2);
}

Test(verdict, rounds_that_scatter_widen_the_interval_of_processes_that_agree_by_luck) {
  static const double baseline[4] = {100, 100, 100, 100}, quiet[4] = {90, 90.1, 89.9, 90},
                      loud[4] = {90, 99, 81, 90};
  double upper[2];
  for (size_t i = 0; i < 2; i++) {
    struct verdict_sample samples[3];
    for (int64_t p = 0; p < 3; p++)
      samples[p] = (struct verdict_sample){.config = 1,
                                           .process = p,
                                           .n = 4,
                                           .samples_us = i ? loud : quiet,
                                           .baseline_us = baseline};
    cleanup_verdict struct verdict verdict = decided_of(samples, 3, BASELINE);
    cr_expect_float_eq(verdict.baseline_ratio, 0.9, 1e-12);
    upper[i] = verdict.baseline_upper;
  }
  cr_expect_gt(upper[0], 0.9);
  cr_expect_gt(upper[1], upper[0]);
}

Test(verdict, a_coarse_timer_widens_the_interval_of_processes_that_agree) {
  static const double baseline[5] = {100, 100, 100, 100, 110}, samples_us[5] = {90, 90, 90, 90, 90};
  struct verdict_sample samples[3];
  for (int64_t p = 0; p < 3; p++)
    samples[p] = (struct verdict_sample){
        .config = 1, .process = p, .n = 5, .samples_us = samples_us, .baseline_us = baseline};
  cleanup_verdict struct verdict verdict = decided_of(samples, 3, BASELINE);
  cr_expect_gt(verdict.baseline_upper, 0.9 * (1 + 0.1 / sqrt(12)));
}

Test(verdict, a_winner_that_is_the_baseline_is_the_same) {
  const struct verdict_sample samples[] = {steady(1, 0, 1.001), steady(1, 1, 0.999),
                                           steady(1, 2, 1.2)};
  cleanup_verdict struct verdict verdict = decided_of(samples, 3, 1);
  cr_expect_eq(verdict.outcome, VERDICT_SAME);
  cr_expect_eq(verdict.baseline_ratio, 1);
  cr_expect_eq(verdict.baseline_lower, 1);
  cr_expect_eq(verdict.baseline_upper, 1);
}

static void expect_refused(const struct verdict_sample *samples, size_t n, const char *what) {
  struct verdict verdict = {.winner = 42};
  cr_expect_not(verdict_decide(samples, n, BASELINE, 7, &verdict, &error));
  cr_expect_neq(strstr(error.message, what), NULL, "%s", error.message);
  cr_expect(verdict.winner == 42 && !verdict.finalists, "a refusal wrote its result");
}

Test(verdict, without_enough_processes_there_is_none) {
  const struct verdict_sample samples[] = {steady(1, 0, 1), steady(1, 1, 1), steady(2, 2, 1)};
  expect_refused(samples, 3, "measure in more processes");
  expect_refused(NULL, 0, "no config was measured correctly in 3 processes");
}

Test(verdict, a_sample_without_pairs_is_refused) {
  struct verdict_sample sample = steady(17, 3, 1);
  sample.n = 0;
  expect_refused(&sample, 1, "config 17 has no pair in process 3");
}

Test(verdict, times_that_nobody_measured_are_refused) {
  static const double wrong[] = {0, -1, NAN, INFINITY, 1e-7, 1e13};
  for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++) {
    const double good = 100;
    const struct verdict_sample as_sample = {
        .config = 1, .n = 1, .samples_us = &wrong[i], .baseline_us = &good};
    const struct verdict_sample as_baseline = {
        .config = 1, .n = 1, .samples_us = &good, .baseline_us = &wrong[i]};
    expect_refused(&as_sample, 1, "pair 0 of config 1 in process 0");
    expect_refused(&as_baseline, 1, "pair 0 of config 1 in process 0");
  }
}

Test(verdict, as_json_says_what_was_decided) {
  const struct verdict_sample samples[] = {steady(17, 0, 0.8), steady(17, 1, 0.8),
                                           steady(17, 2, 0.8)};
  cleanup_verdict struct verdict verdict = decided_of(samples, 3, BASELINE);
  cleanup_json json_t *json = verdict_to_json(&verdict);
  cr_expect_eq(json_integer_value(json_object_get(json, "winner")), 17);
  cr_expect_eq(json_integer_value(json_array_get(json_object_get(json, "equivalence_set"), 0)), 17);
  cr_expect_str_eq(json_string_value(json_object_get(json, "verdict")), "FASTER");
  cr_expect_float_eq(json_real_value(json_object_get(json, "speedup")), 1.25, 1e-12);
  cr_expect_eq(json_real_value(json_object_get(json, "regret_bound")), 0);
  cr_expect_eq(json_integer_value(json_object_get(json, "samples")), 15);
  cr_expect_eq(json_integer_value(json_object_get(json, "processes")), 3);
  cr_expect_eq(json_integer_value(json_object_get(json, "devices")), 1);
  json_t *finalist = json_array_get(json_object_get(json, "finalists"), 0);
  cr_expect_eq(json_integer_value(json_object_get(finalist, "config")), 17);
  cr_expect(json_is_true(json_object_get(finalist, "equivalent")));
}

Test(verdict, as_json_has_numbers_of_nine_digits) {
  const struct verdict_sample samples[] = {steady(17, 0, 0.7), steady(17, 1, 0.7),
                                           steady(17, 2, 0.7)};
  cleanup_verdict struct verdict verdict = decided_of(samples, 3, BASELINE);
  cleanup_json json_t *json = verdict_to_json(&verdict);
  cr_expect_eq(json_real_value(json_object_get(json, "speedup")), 1.42857143);
}

/* Of two finalists, the second of which is told from the first by `lower` to `upper`. */
static bool is_settled(enum verdict_outcome outcome, double regret_bound, double lower,
                       double upper) {
  struct verdict_finalist finalists[] = {
      {.config = 1, .ratio = 1, .lower = 1, .upper = 1, .equivalent = true},
      {.config = 2, .lower = lower, .upper = upper, .equivalent = upper <= VERDICT_EQUIVALENCE}};
  const struct verdict verdict = {
      .n_finalists = 2, .finalists = finalists, .regret_bound = regret_bound, .outcome = outcome};
  return verdict_is_settled(&verdict);
}

Test(verdict, is_settled_when_another_process_can_be_spared) {
  cr_expect(is_settled(VERDICT_FASTER, 0.01, 0.99, 1.019), "as good, and in the set");
  cr_expect(is_settled(VERDICT_SLOWER, 0.02, 1.001, 1.03), "slower for sure");
  cr_expect_not(is_settled(VERDICT_SLOWER, 0.02, 1, 1.03), "it may be as fast");
  cr_expect_not(is_settled(VERDICT_AMBIGUOUS, 0.01, 0.99, 1.019));
  cr_expect_not(is_settled(VERDICT_SAME, 0.021, 0.99, 1.019));
  cr_expect_not(is_settled(VERDICT_FASTER, 0.01, 0.99, 1.021), "a wide interval keeps it out");
  cr_expect_not(is_settled(VERDICT_FASTER, 0.01, 0, INFINITY), "it cannot be told");
}

/* Of config 1, of 2, which is as good, of the slower 3 and 5, and of 4, which was measured in other
 * processes. */
static json_t *stored_verdict(void) {
  const double ratios[] = {0.8, 0.8, 0.83, 0.9, 0.81};
  struct verdict_sample samples[15];
  for (size_t c = 0; c < 5; c++)
    for (int64_t p = 0; p < 3; p++) {
      samples[3 * c + (size_t)p] = steady(1 + c, c == 3 ? 10 + p : p, ratios[c]);
      samples[3 * c + (size_t)p].spills = c == 0 ? 0 : 1;
    }
  cleanup_verdict struct verdict verdict = decided_of(samples, 15, BASELINE);
  cr_assert_eq(verdict.winner, 1u);
  cleanup_json json_t *json = verdict_to_json(&verdict);
  cleanup_free char *text = json_canonical(json);
  json_t *stored;
  cr_assert(json_parse(text, strlen(text), &stored, &error), "%s", error.message);
  return stored;
}

static void expect_kept(uint64_t served, double min_gain, const char *why) {
  cleanup_json json_t *stored = stored_verdict();
  cr_expect_not(verdict_json_replaces(stored, BASELINE, served, min_gain, &error), "%llu",
                (unsigned long long)served);
  cr_expect_neq(strstr(error.message, why), NULL, "%s", error.message);
}

Test(stored_verdict, replaces_a_baseline_or_a_finalist_that_its_winner_beats) {
  cleanup_json json_t *stored = stored_verdict();
  cr_expect(verdict_json_replaces(stored, BASELINE, BASELINE, VERDICT_MIN_GAIN, &error), "%s",
            error.message);
  cr_expect(verdict_json_replaces(stored, BASELINE, 3, VERDICT_MIN_GAIN, &error), "%s",
            error.message);
  cr_expect(verdict_json_replaces(stored, 3, 3, VERDICT_MIN_GAIN, &error), "%s", error.message);
}

Test(stored_verdict, keeps_what_is_as_good) {
  expect_kept(2, 0, "is in the job's equivalence set");
}

Test(stored_verdict, keeps_what_is_beaten_by_less_than_the_minimum_gain) {
  expect_kept(3, 0.05, "gains 3.61 % over the served config 3, less than the 5.00 % required");
}

Test(stored_verdict, keeps_what_its_job_did_not_measure) {
  expect_kept(6, 0.02, "neither as its baseline nor as a finalist");
}

Test(stored_verdict, keeps_what_was_not_measured_beside_the_winner) {
  expect_kept(4, 0.02, "has no interval of its winner against the served config 4");
}

Test(stored_verdict, keeps_what_may_be_as_fast_as_the_winner) {
  cleanup_json json_t *stored = stored_verdict();
  json_object_set_new(stored, "baseline_upper", json_real(1.01));
  cr_expect_not(verdict_json_replaces(stored, BASELINE, BASELINE, 0.02, &error));
  cr_expect_neq(strstr(error.message, "not known to be faster"), NULL, "%s", error.message);
}

Test(verdict, the_screens_rank_is_the_median_of_paired_ratios) {
  const double samples[] = {90, 300, 80, 70}, baselines[] = {100, 100, 100, 100};
  cr_expect_float_eq(verdict_paired_ratio(samples, baselines, 3), 0.9, 1e-12);
  cr_expect_float_eq(verdict_paired_ratio(samples, baselines, 4), 0.85, 1e-12);
  cr_expect_float_eq(verdict_paired_ratio(samples, baselines, 1), 0.9, 1e-12);
}
