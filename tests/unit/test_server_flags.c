/* Which earlier winners turn out slower than the default. */
#include "server/job/jobs.h"

#include <criterion/criterion.h>

#define ROUNDS 12
#define PROCESSES 3
#define DEFAULT 7

/* Finals of the default and two other configs against a baseline of 100 us; `ratios`: their times
 * to the baseline's, with a jitter of 0.1 % between rounds and processes. */
struct final {
  double samples[3][PROCESSES][ROUNDS], baselines[ROUNDS];
  struct final_measurement measurements[3 * PROCESSES];
};

static size_t judge(struct final *final, const double ratios[3], struct flag ret_flags[FLAGS_MAX]) {
  static const uint64_t configs[] = {DEFAULT, 8, 9};
  for (size_t r = 0; r < ROUNDS; r++)
    final->baselines[r] = 100;
  for (size_t c = 0; c < 3; c++)
    for (size_t p = 0; p < PROCESSES; p++) {
      for (size_t r = 0; r < ROUNDS; r++)
        final->samples[c][p][r] =
            100 * ratios[c] * (1 + 0.001 * (double)((r * 7 + p * 3 + c) % 5) - 0.002);
      struct final_measurement *measurement = &final->measurements[c * PROCESSES + p];
      if (measurement->sample.n || measurement->outcome != OUTCOME_CORRECT)
        continue; /* as the test set it */
      measurement->sample = (struct verdict_sample){.config = configs[c],
                                                    .process = (int64_t)p,
                                                    .n = ROUNDS,
                                                    .samples_us = final->samples[c][p],
                                                    .baseline_us = final->baselines};
    }
  return flags_judge(final->measurements, ARRAY_LENGTH(final->measurements), 3, DEFAULT, 1,
                     ret_flags);
}

Test(flags, are_for_a_baseline_and_finalists_that_are_slower_than_the_default) {
  struct final final = {0};
  struct flag flags[FLAGS_MAX];
  cr_assert_eq(judge(&final, (const double[]){0.9, 0.95, 0.8}, flags), 2);
  cr_expect_eq(flags[0].config, 3);
  cr_expect_float_eq(flags[0].ratio, 1 / 0.9, 0.01);
  cr_expect(flags[0].lower > 1 && flags[0].lower < flags[0].ratio &&
            flags[0].upper > flags[0].ratio);
  cr_expect_eq(flags[1].config, 8);
  cr_expect_float_eq(flags[1].ratio, 0.95 / 0.9, 0.01);
}

Test(flags, do_not_depend_on_whether_the_default_won) {
  struct final final = {0};
  struct flag flags[FLAGS_MAX];
  cr_assert_eq(judge(&final, (const double[]){0.9, 0.5, 0.8}, flags), 1);
  cr_expect_eq(flags[0].config, 3);
}

Test(flags, are_for_none_that_is_as_fast_or_faster) {
  struct final as_fast = {0}, faster = {0};
  struct flag flags[FLAGS_MAX];
  cr_expect_eq(judge(&as_fast, (const double[]){1.0, 1.0, 0.8}, flags), 0);
  cr_expect_eq(judge(&faster, (const double[]){1.2, 1.1, 1.15}, flags), 0);
}

/* Three processes shift eight finalists against each other by a few per mille. 7 % is far more than
 * that, which all finalists together show; three processes of one config alone would not. */
Test(flags, estimate_the_effect_of_processes_from_all_finalists) {
  enum { CONFIGS = 8 };
  static const double shifts[PROCESSES] = {-0.009, 0.002, 0.007};
  static double samples[CONFIGS][PROCESSES][ROUNDS], baselines[ROUNDS];
  struct final_measurement measurements[CONFIGS * PROCESSES];
  struct verdict_sample all[CONFIGS * PROCESSES];
  for (size_t r = 0; r < ROUNDS; r++)
    baselines[r] = 100;
  for (size_t c = 0; c < CONFIGS; c++)
    for (size_t p = 0; p < PROCESSES; p++) {
      double ratio = (c == 0 ? 0.93 : 1) * (1 + shifts[(p + c) % PROCESSES]);
      for (size_t r = 0; r < ROUNDS; r++)
        samples[c][p][r] = 100 * ratio * (1 + 0.001 * (double)((r * 7 + p * 3 + c) % 5) - 0.002);
      all[c * PROCESSES + p] = (struct verdict_sample){.config = DEFAULT + c,
                                                       .process = (int64_t)p,
                                                       .n = ROUNDS,
                                                       .samples_us = samples[c][p],
                                                       .baseline_us = baselines};
      measurements[c * PROCESSES + p] =
          (struct final_measurement){OUTCOME_CORRECT, all[c * PROCESSES + p]};
    }
  cleanup_verdict struct verdict verdict;
  struct error error;
  struct flag flags[FLAGS_MAX];
  cr_assert(verdict_decide(all, ARRAY_LENGTH(all), 3, 1, &verdict, &error));
  cr_assert(verdict.winner == DEFAULT && verdict.outcome == VERDICT_FASTER);
  cr_assert_eq(flags_judge(measurements, ARRAY_LENGTH(all), 3, DEFAULT, 1, flags), CONFIGS);
  cr_expect_float_eq(flags[0].lower, 1 / verdict.baseline_upper, 1e-9);
  for (size_t i = 1; i < CONFIGS; i++)
    cr_expect_eq(flags[i].config, DEFAULT + i);
}

Test(flags, need_a_default_that_was_correct_in_every_process) {
  struct final final = {0};
  struct flag flags[FLAGS_MAX];
  final.measurements[1] = (struct final_measurement){.outcome = OUTCOME_RUNTIME,
                                                     .sample = {.config = DEFAULT, .process = 1}};
  cr_assert_eq(judge(&final, (const double[]){0.9, 0.95, 1.2}, flags), 0);
}

Test(flags, need_a_default_that_was_measured) {
  struct final final = {0};
  struct flag flags[FLAGS_MAX];
  cr_expect_eq(flags_judge(NULL, 0, 3, DEFAULT, 1, flags), 0);
  judge(&final, (const double[]){0.9, 0.95, 1.2}, flags);
  cr_expect_eq(flags_judge(final.measurements + PROCESSES, 2 * PROCESSES, 3, DEFAULT, 1, flags), 0);
}
