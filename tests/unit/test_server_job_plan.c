/* What comes after a stage of a job. */
#include <criterion/criterion.h>

#include "server/core/job_plan.h"

TestSuite(job_plan);

#define PAIRS 32
static double fast[PAIRS], slow[PAIRS], baseline[PAIRS];

static void times_fill(void) {
  for (size_t i = 0; i < PAIRS; i++) {
    fast[i] = 50 + (double)(i % 3) * 0.1;
    slow[i] = 90 + (double)(i % 5) * 0.1;
    baseline[i] = 100 + (double)(i % 4) * 0.1;
  }
}

static struct final_measurement measured(uint64_t config, int64_t process, const double *samples) {
  return (struct final_measurement){OUTCOME_CORRECT, {config, process, PAIRS, samples, baseline, 0, 0, 0}};
}

static struct final_measurement failed(uint64_t config, int64_t process) {
  return (struct final_measurement){OUTCOME_RUNTIME, {.config = config, .process = process}};
}

Test(job_plan, the_screens_best_go_to_three_processes) {
  uint64_t ranked[] = {7, 3, 5};
  double ratios[] = {0.8, 0.82, 0.83};
  struct screen_facts facts = {.n_ranked = 3, .ranked = ranked, .ratios = ratios, .measured = 3};
  cleanup_job_plan struct job_plan plan;
  job_after_screen(&facts, &plan);
  cr_assert_eq(plan.step, PLAN_FINAL);
  cr_expect_eq(plan.n_finalists, 3);
  cr_expect_eq(plan.finalists[0], 3);
  cr_expect_eq(plan.finalists[2], 7);
  cr_expect_eq(plan.first_process, 0);
  cr_expect_eq(plan.n_processes, 3);
}

Test(job_plan, what_the_screen_saw_far_behind_is_no_finalist) {
  uint64_t ranked[] = {7, 3};
  double ratios[] = {0.5, 2.0};
  struct screen_facts facts = {.n_ranked = 2, .ranked = ranked, .ratios = ratios, .measured = 2};
  cleanup_job_plan struct job_plan plan;
  job_after_screen(&facts, &plan);
  cr_expect_eq(plan.n_finalists, 1);
  cr_expect_eq(plan.finalists[0], 7);
}

Test(job_plan, a_screen_without_a_correct_config_fails_and_says_why) {
  struct screen_facts facts = {.measured = 4, .example = "no such header"};
  facts.outcomes[OUTCOME_COMPILE] = 3;
  facts.outcomes[OUTCOME_TIMEOUT] = 1;
  cleanup_job_plan struct job_plan plan;
  job_after_screen(&facts, &plan);
  cr_assert_eq(plan.step, PLAN_FAIL);
  cr_expect_str_eq(plan.reason, "none of 4 configs was measured correctly (compile 3, timeout 1); one of them: no such "
                                "header");
}

Test(job_plan, a_screen_that_measured_nothing_says_that_the_budget_was_spent) {
  struct screen_facts facts = {0};
  cleanup_job_plan struct job_plan plan;
  job_after_screen(&facts, &plan);
  cr_assert_eq(plan.step, PLAN_FAIL);
  cr_expect_neq(strstr(plan.reason, "budget"), NULL);
}

Test(job_plan, three_processes_decide) {
  times_fill();
  struct final_measurement all[] = {measured(1, 0, slow), measured(2, 0, fast), measured(1, 1, slow),
                                    measured(2, 1, fast), measured(1, 2, slow), measured(2, 2, fast)};
  cleanup_job_plan struct job_plan plan;
  job_after_final(all, ARRAY_LENGTH(all), 0, 7, &plan);
  cr_assert_eq(plan.step, PLAN_DONE);
  cr_expect_eq(plan.verdict.winner, 2);
}

Test(job_plan, a_finalist_that_fails_once_drops_out) {
  times_fill();
  struct final_measurement all[] = {measured(1, 0, slow), measured(2, 0, fast), measured(1, 1, slow),
                                    failed(2, 1),         measured(1, 2, slow), measured(2, 2, fast)};
  cleanup_job_plan struct job_plan plan;
  job_after_final(all, ARRAY_LENGTH(all), 0, 7, &plan);
  cr_assert_eq(plan.step, PLAN_DONE);
  cr_expect_eq(plan.verdict.winner, 1);
}

Test(job_plan, a_process_is_added_when_no_finalist_has_enough) {
  times_fill();
  struct final_measurement all[] = {measured(1, 0, slow), measured(1, 2, slow)};
  cleanup_job_plan struct job_plan plan;
  job_after_final(all, ARRAY_LENGTH(all), 0, 7, &plan);
  cr_assert_eq(plan.step, PLAN_FINAL);
  cr_expect_eq(plan.first_process, 3);
  cr_expect_eq(plan.n_processes, 1);
  cr_expect_eq(plan.n_finalists, 1);
}

/* One process each in which the winner is a tenth faster, as fast and a tenth slower than the baseline. */
static double bands[3][PAIRS];

static void bands_fill(void) {
  times_fill();
  for (size_t band = 0; band < 3; band++)
    for (size_t i = 0; i < PAIRS; i++)
      bands[band][i] = baseline[i] * (0.9 + 0.1 * (double)band);
}

Test(job_plan, an_ambiguous_verdict_gets_one_more_process) {
  bands_fill();
  struct final_measurement all[] = {measured(1, 0, bands[0]), measured(1, 1, bands[1]), measured(1, 2, bands[2])};
  cleanup_job_plan struct job_plan plan;
  job_after_final(all, ARRAY_LENGTH(all), 0, 7, &plan);
  cr_assert_eq(plan.step, PLAN_FINAL);
  cr_expect_eq(plan.first_process, 3);
  cr_expect_eq(plan.n_processes, 1);
  cr_expect_eq(plan.n_finalists, 1);
}

Test(job_plan, after_six_processes_an_ambiguous_verdict_stands) {
  bands_fill();
  struct final_measurement all[6];
  for (int64_t process = 0; process < 6; process++)
    all[process] = measured(1, process, bands[process % 3]);
  cleanup_job_plan struct job_plan plan;
  job_after_final(all, ARRAY_LENGTH(all), 0, 7, &plan);
  cr_assert_eq(plan.step, PLAN_DONE);
  cr_expect_eq(plan.verdict.outcome, VERDICT_AMBIGUOUS);
}

Test(job_plan, a_finalist_that_fails_in_an_added_process_drops_out) {
  bands_fill();
  struct final_measurement all[] = {
      measured(1, 0, bands[0]), measured(1, 1, bands[1]), measured(1, 2, bands[2]), failed(1, 3),
      measured(2, 0, slow),     measured(2, 1, slow),     measured(2, 2, slow),     measured(2, 3, slow)};
  cleanup_job_plan struct job_plan plan;
  job_after_final(all, ARRAY_LENGTH(all), 0, 7, &plan);
  cr_assert_eq(plan.step, PLAN_DONE);
  cr_expect_eq(plan.verdict.winner, 2);
  cr_expect_eq(plan.verdict.n_finalists, 1);
}

Test(job_plan, after_six_processes_it_gives_up) {
  times_fill();
  struct final_measurement all[] = {measured(1, 0, slow), measured(1, 5, slow)};
  cleanup_job_plan struct job_plan plan;
  job_after_final(all, ARRAY_LENGTH(all), 0, 7, &plan);
  cr_assert_eq(plan.step, PLAN_FAIL);
  cr_expect_neq(strstr(plan.reason, "after 6 processes"), NULL);
}

Test(job_plan, when_every_finalist_failed_the_job_fails) {
  struct final_measurement all[] = {failed(1, 0), failed(2, 1)};
  cleanup_job_plan struct job_plan plan;
  job_after_final(all, ARRAY_LENGTH(all), 0, 7, &plan);
  cr_assert_eq(plan.step, PLAN_FAIL);
  cr_expect_neq(strstr(plan.reason, "every finalist failed"), NULL);
}
