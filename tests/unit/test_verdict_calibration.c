/* How often the verdict is wrong over jobs whose truth is known. bench/bench_verdict.c counts many
 * more, with intervals; here the numbers are small and the seeds fixed. */
#include <criterion/criterion.h>

#include "bench/simulated_jobs.h"

TestSuite(calibration);

static struct simulated_counts counts_of(const struct simulated *job, size_t n) {
  struct simulated_counts counts = {0};
  for (size_t i = 0; i < n; i++)
    simulated_run(job, 1000 + i, &counts);
  return counts;
}

static const double effects[] = {0, 0.005, 0.02, 0.05}, noises[] = {0.02, 0.005, 0.02, 0.05};

Test(calibration,
     one_config_under_several_names_is_faster_than_itself_in_at_most_one_job_of_a_hundred) {
  size_t jobs = 0, faster = 0, replaced = 0;
  for (size_t names = 5; names <= 16; names += 11)
    for (size_t i = 0; i < ARRAY_LENGTH(effects); i++) {
      const struct simulated job = {.n_configs = names,
                                    .effect = effects[i],
                                    .noise = noises[i],
                                    .rounds_min = 12,
                                    .rounds_max = 30,
                                    .processes_min = 3,
                                    .processes_max = 6};
      struct simulated_counts counts = counts_of(&job, names == 5 ? 30 : 5);
      jobs += counts.n;
      faster += counts.outcomes[VERDICT_FASTER];
      replaced += counts.replaced;
    }
  cr_expect_leq(faster, jobs / 100, "%zu of %zu", faster, jobs);
  cr_expect_leq(replaced, jobs / 100, "%zu of %zu", replaced, jobs);
}

Test(calibration, intervals_of_two_configs_hold_their_true_ratio) {
  for (size_t processes = 3; processes <= 5; processes += 2)
    for (size_t i = 1; i < ARRAY_LENGTH(effects); i += 2) {
      const struct simulated job = {.n_configs = 2,
                                    .effect = effects[i],
                                    .noise = noises[i],
                                    .rounds_min = 12,
                                    .rounds_max = 30,
                                    .processes_min = processes,
                                    .processes_max = processes};
      struct simulated_counts counts = counts_of(&job, 200);
      cr_expect_geq(counts.covered_pairs * 100, counts.pairs * 93,
                    "%zu of %zu with %zu processes, effect %g", counts.covered_pairs, counts.pairs,
                    processes, effects[i]);
    }
}

static void expect_gain_found(const struct simulated *job, size_t n) {
  struct simulated_counts counts = counts_of(job, n);
  cr_expect_geq(counts.outcomes[VERDICT_FASTER] * 100, n * 95, "%zu of %zu",
                counts.outcomes[VERDICT_FASTER], n);
  cr_expect_geq(counts.replaced * 100, n * 95, "%zu of %zu", counts.replaced, n);
}

Test(calibration, a_gain_of_5_percent_is_found_in_three_quiet_processes) {
  const struct simulated job = {.n_configs = 6,
                                .ratios = {1, 0.95},
                                .effect = 0.002,
                                .noise = 0.01,
                                .rounds_min = 12,
                                .rounds_max = 30,
                                .processes_min = 3,
                                .processes_max = 3};
  expect_gain_found(&job, 60);
}

Test(calibration, a_gain_that_three_processes_leave_open_is_found_in_more) {
  for (size_t names = 2; names <= 6; names += 4) {
    const struct simulated job = {.n_configs = names,
                                  .ratios = {1, 0.95},
                                  .effect = 0.005,
                                  .noise = 0.02,
                                  .rounds_min = 12,
                                  .rounds_max = 30,
                                  .processes_min = 3,
                                  .processes_max = 6};
    expect_gain_found(&job, 40);
  }
}

Test(calibration, the_regret_bound_covers_the_true_regret) {
  struct simulated job = {.n_configs = 8,
                          .effect = 0.01,
                          .noise = 0.02,
                          .rounds_min = 12,
                          .rounds_max = 30,
                          .processes_min = 3,
                          .processes_max = 3};
  for (size_t i = 1; i < job.n_configs; i++)
    job.ratios[i] = 0.9 * (1 + 0.005 * (double)(i - 1));
  struct simulated_counts counts = counts_of(&job, 100);
  cr_expect_leq(counts.below_regret, (size_t)5, "in %zu of 100 jobs the regret is above its bound",
                counts.below_regret);
  cr_expect_gt(counts.worst_regret, 0, "no job has any regret");
}

/* Of many that are as good, the one that looks best was lucky. */
Test(calibration, the_regret_bound_covers_that_the_best_looking_of_many_was_chosen) {
  const struct simulated job = {.n_configs = 16,
                                .ratios = {1, 0.9, [2 ... 15] = 0.9 * 1.021},
                                .effect = 0.02,
                                .noise = 0.01,
                                .rounds_min = 12,
                                .rounds_max = 20,
                                .processes_min = 3,
                                .processes_max = 6};
  struct simulated_counts counts = counts_of(&job, 60);
  cr_expect_leq(counts.below_regret, (size_t)3, "in %zu of 60 jobs the regret is above its bound",
                counts.below_regret);
}

Test(calibration, what_is_slower_by_more_than_the_equivalence_seldom_enters_the_set) {
  const struct simulated job = {.n_configs = 4,
                                .ratios = {1, 0.9, 0.9 * 1.021, 0.9 * 1.021},
                                .effect = 0.003,
                                .noise = 0.01,
                                .rounds_min = 12,
                                .rounds_max = 30,
                                .processes_min = 3,
                                .processes_max = 6};
  struct simulated_counts counts = counts_of(&job, 200);
  cr_expect_geq(counts.slower, counts.n, "that the best is chosen");
  cr_expect_leq(counts.slower_equivalents * 100, counts.slower * 4, "%zu of %zu",
                counts.slower_equivalents, counts.slower);
}
