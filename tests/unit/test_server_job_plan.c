/* What comes after a stage of a job. */
#include <criterion/criterion.h>

#include "server/job/job_plan.h"

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

/* A screen of up to RANKED correct configs, all of one lease and within a hair of one another. */
#define RANKED 40
static uint64_t ranked[RANKED];
static double ratios[RANKED];
static int64_t leases[RANKED];

static struct screen_facts screen_of(size_t n) {
  for (size_t i = 0; i < n; i++) {
    ranked[i] = 100 - i;
    ratios[i] = 0.8 + (double)i * 1e-4;
    leases[i] = 1;
  }
  return (struct screen_facts){
      .n_ranked = n, .ranked = ranked, .ratios = ratios, .leases = leases, .may_halve = true, .measured = (int64_t)n};
}

static bool plan_has(const struct job_plan *plan, uint64_t config) {
  for (size_t i = 0; i < plan->n_configs; i++)
    if (plan->configs[i] == config)
      return true;
  return false;
}

Test(job_plan, the_screens_best_go_to_three_processes) {
  struct screen_facts facts = screen_of(3);
  cleanup_job_plan struct job_plan plan;
  job_after_screen(&facts, 1, &plan);
  cr_assert_eq(plan.step, PLAN_FINAL);
  cr_assert_eq(plan.n_configs, 3);
  cr_expect_eq(plan.configs[0], 98);
  cr_expect_eq(plan.configs[2], 100);
  cr_expect_eq(plan.first_process, 0);
  cr_expect_eq(plan.n_processes, 3);
}

Test(job_plan, what_the_screen_saw_far_behind_is_no_finalist) {
  struct screen_facts facts = screen_of(3);
  ratios[1] = ratios[2] = 2;
  cleanup_job_plan struct job_plan plan;
  job_after_screen(&facts, 1, &plan);
  cr_expect_eq(plan.n_configs, 1);
  cr_expect_eq(plan.configs[0], 100);
}

Test(job_plan, the_baseline_and_the_default_are_finalists_wherever_they_stand) {
  struct screen_facts facts = screen_of(RANKED);
  ratios[RANKED - 1] = ratios[RANKED - 2] = 3;
  facts.n_always = 2;
  facts.always[0] = ranked[RANKED - 1];
  facts.always[1] = ranked[RANKED - 2];
  cleanup_job_plan struct job_plan plan;
  job_after_screen(&facts, 1, &plan);
  cr_assert_eq(plan.step, PLAN_FINAL);
  cr_expect_eq(plan.n_configs, FINALISTS_MAX);
  cr_expect(plan_has(&plan, facts.always[0]));
  cr_expect(plan_has(&plan, facts.always[1]));
}

Test(job_plan, many_close_configs_of_several_leases_race_once_more) {
  struct screen_facts facts = screen_of(FINALISTS_MAX + 1);
  leases[3] = 2;
  cleanup_job_plan struct job_plan plan;
  job_after_screen(&facts, 4, &plan);
  cr_assert_eq(plan.step, PLAN_HALVING);
  cr_expect_eq(plan.n_configs, FINALISTS_MAX + 1);
  cr_expect_eq(plan.n_processes, 1);
}

Test(job_plan, many_close_configs_that_raced_in_one_lease_do_not_race_again) {
  struct screen_facts facts = screen_of(FINALISTS_MAX + 1);
  cleanup_job_plan struct job_plan plan;
  job_after_screen(&facts, 1, &plan);
  cr_expect_eq(plan.step, PLAN_FINAL);
  cr_expect_eq(plan.n_configs, FINALISTS_MAX);
}

Test(job_plan, no_more_close_configs_than_a_final_takes_do_not_race_again) {
  struct screen_facts facts = screen_of(FINALISTS_MAX + 1);
  leases[3] = 2;
  ratios[7] = 3;
  facts.n_always = 1;
  facts.always[0] = ranked[7];
  cleanup_job_plan struct job_plan plan;
  job_after_screen(&facts, 1, &plan);
  cr_expect_eq(plan.step, PLAN_FINAL);
  cr_expect(plan_has(&plan, ranked[7]));
}

Test(job_plan, after_a_halving_or_a_spent_budget_comes_the_final) {
  struct screen_facts facts = screen_of(FINALISTS_MAX + 1);
  leases[3] = 2;
  facts.may_halve = false;
  cleanup_job_plan struct job_plan plan;
  job_after_screen(&facts, 1, &plan);
  cr_expect_eq(plan.step, PLAN_FINAL);
}

Test(job_plan, a_small_budget_has_fewer_finalists_and_the_baseline_among_them) {
  struct screen_facts facts = screen_of(RANKED);
  facts.n_always = 1;
  facts.always[0] = ranked[RANKED - 1];
  facts.most_finalists = 2;
  cleanup_job_plan struct job_plan plan;
  job_after_screen(&facts, 1, &plan);
  cr_assert_eq(plan.step, PLAN_FINAL);
  cr_expect_eq(plan.n_configs, 2);
  cr_expect(plan_has(&plan, ranked[0]) && plan_has(&plan, facts.always[0]));
}

Test(job_plan, a_final_on_more_devices_has_a_process_for_each) {
  struct screen_facts facts = screen_of(2);
  cleanup_job_plan struct job_plan plan;
  job_after_screen(&facts, 5, &plan);
  cr_expect_eq(plan.n_processes, 5);
}

Test(job_plan, a_screen_without_a_correct_config_fails_and_says_why) {
  struct screen_facts facts = {.measured = 4, .example = "no such header"};
  facts.outcomes[OUTCOME_COMPILE] = 3;
  facts.outcomes[OUTCOME_TIMEOUT] = 1;
  cleanup_job_plan struct job_plan plan;
  job_after_screen(&facts, 1, &plan);
  cr_assert_eq(plan.step, PLAN_FAIL);
  cr_expect_str_eq(plan.reason.message,
                   "none of 4 configs was measured correctly (compile 3, timeout 1); one of them: no such "
                   "header");
}

/* A database takes no text that ends inside of a letter, and then the job would never end. */
Test(job_plan, the_reason_is_utf8_also_where_a_long_detail_is_cut) {
  char example[402] = "x";
  for (size_t i = 1; i < 401; i += 2)
    memcpy(&example[i], "\u00e9", 2);
  struct screen_facts facts = {.measured = 1, .example = example};
  cleanup_job_plan struct job_plan plan;
  job_after_screen(&facts, 1, &plan);
  cleanup_json json_t *text = json_string(plan.reason.message);
  cr_assert_not_null(text);
}

Test(job_plan, a_screen_that_measured_nothing_says_that_the_budget_was_spent) {
  struct screen_facts facts = {.opening_us = 1500000};
  cleanup_job_plan struct job_plan plan;
  job_after_screen(&facts, 1, &plan);
  cr_assert_eq(plan.step, PLAN_FAIL);
  cr_expect_neq(strstr(plan.reason.message, "the budget was spent before any config was measured"), NULL);
  cr_expect_neq(strstr(plan.reason.message, "opening the kernel took 1.5 device-seconds"), NULL);
}

Test(job_plan, three_processes_decide) {
  times_fill();
  struct final_measurement all[] = {measured(1, 0, slow), measured(2, 0, fast), measured(1, 1, slow),
                                    measured(2, 1, fast), measured(1, 2, slow), measured(2, 2, fast)};
  cleanup_job_plan struct job_plan plan;
  job_after_final(all, ARRAY_LENGTH(all), 0, 7, true, &plan);
  cr_assert_eq(plan.step, PLAN_DONE);
  cr_expect_eq(plan.verdict.winner, 2);
}

Test(job_plan, a_finalist_that_fails_once_drops_out) {
  times_fill();
  struct final_measurement all[] = {measured(1, 0, slow), measured(2, 0, fast), measured(1, 1, slow),
                                    failed(2, 1),         measured(1, 2, slow), measured(2, 2, fast)};
  cleanup_job_plan struct job_plan plan;
  job_after_final(all, ARRAY_LENGTH(all), 0, 7, true, &plan);
  cr_assert_eq(plan.step, PLAN_DONE);
  cr_expect_eq(plan.verdict.winner, 1);
}

Test(job_plan, a_process_is_added_when_no_finalist_has_enough) {
  times_fill();
  struct final_measurement all[] = {measured(1, 0, slow), measured(1, 2, slow)};
  cleanup_job_plan struct job_plan plan;
  job_after_final(all, ARRAY_LENGTH(all), 0, 7, true, &plan);
  cr_assert_eq(plan.step, PLAN_FINAL);
  cr_expect_eq(plan.first_process, 3);
  cr_expect_eq(plan.n_processes, 1);
  cr_expect_eq(plan.n_configs, 1);
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
  job_after_final(all, ARRAY_LENGTH(all), 0, 7, true, &plan);
  cr_assert_eq(plan.step, PLAN_FINAL);
  cr_expect_eq(plan.first_process, 3);
  cr_expect_eq(plan.n_processes, 1);
  cr_expect_eq(plan.n_configs, 1);
}

/* Config 1 is the best in one process and a tenth behind config 2 in the next, both far faster than the baseline. */
Test(job_plan, a_regret_bound_that_is_too_wide_gets_one_more_process) {
  times_fill();
  static double quick[PAIRS], quicker[PAIRS];
  for (size_t i = 0; i < PAIRS; i++) {
    quick[i] = fast[i] * 0.95;
    quicker[i] = fast[i] * 0.9;
  }
  struct final_measurement all[] = {measured(1, 0, quicker), measured(2, 0, fast),  measured(1, 1, fast),
                                    measured(2, 1, quicker), measured(1, 2, quick), measured(2, 2, quick)};
  cleanup_job_plan struct job_plan plan;
  job_after_final(all, ARRAY_LENGTH(all), 0, 7, true, &plan);
  cr_assert_eq(plan.step, PLAN_FINAL);
  cr_expect_eq(plan.first_process, 3);
  cr_expect_eq(plan.n_processes, 1);
}

/* Config 2 is slower by 0.5, 1.2 and 1.9 %: by 1.2 %, give or take 1.7. Nothing else is in doubt. */
Test(job_plan, a_config_that_a_wide_interval_keeps_out_of_the_set_gets_one_more_process) {
  times_fill();
  static double near[3][PAIRS];
  for (size_t p = 0; p < 3; p++)
    for (size_t i = 0; i < PAIRS; i++)
      near[p][i] = fast[i] * (1.005 + 0.007 * (double)p);
  struct final_measurement all[] = {measured(1, 0, fast),    measured(2, 0, near[0]), measured(1, 1, fast),
                                    measured(2, 1, near[1]), measured(1, 2, fast),    measured(2, 2, near[2])};
  cleanup_job_plan struct job_plan plan;
  job_after_final(all, ARRAY_LENGTH(all), 0, 7, true, &plan);
  cr_assert_eq(plan.step, PLAN_FINAL);
  cr_expect_eq(plan.first_process, 3);
  cr_expect_eq(plan.n_processes, 1);
  cr_expect_eq(plan.n_configs, 2);
}

Test(job_plan, after_six_processes_an_ambiguous_verdict_stands) {
  bands_fill();
  struct final_measurement all[6];
  for (int64_t process = 0; process < 6; process++)
    all[process] = measured(1, process, bands[process % 3]);
  cleanup_job_plan struct job_plan plan;
  job_after_final(all, ARRAY_LENGTH(all), 0, 7, true, &plan);
  cr_assert_eq(plan.step, PLAN_DONE);
  cr_expect_eq(plan.verdict.outcome, VERDICT_AMBIGUOUS);
}

Test(job_plan, an_ambiguous_verdict_stands_where_the_budget_pays_for_no_more) {
  bands_fill();
  struct final_measurement all[] = {measured(1, 0, bands[0]), measured(1, 1, bands[1]), measured(1, 2, bands[2])};
  cleanup_job_plan struct job_plan plan;
  job_after_final(all, ARRAY_LENGTH(all), 0, 7, false, &plan);
  cr_assert_eq(plan.step, PLAN_DONE);
  cr_expect_eq(plan.verdict.outcome, VERDICT_AMBIGUOUS);
  struct final_measurement few[] = {measured(1, 0, slow), measured(1, 2, slow)};
  job_plan_release(&plan);
  job_after_final(few, ARRAY_LENGTH(few), 0, 7, false, &plan);
  cr_expect_eq(plan.step, PLAN_FINAL, "without three processes there is no verdict at all");
}

Test(job_plan, a_finalist_that_fails_in_an_added_process_drops_out) {
  bands_fill();
  struct final_measurement all[] = {
      measured(1, 0, bands[0]), measured(1, 1, bands[1]), measured(1, 2, bands[2]), failed(1, 3),
      measured(2, 0, slow),     measured(2, 1, slow),     measured(2, 2, slow),     measured(2, 3, slow)};
  cleanup_job_plan struct job_plan plan;
  job_after_final(all, ARRAY_LENGTH(all), 0, 7, true, &plan);
  cr_assert_eq(plan.step, PLAN_DONE);
  cr_expect_eq(plan.verdict.winner, 2);
  cr_expect_eq(plan.verdict.n_finalists, 1);
}

Test(job_plan, after_six_processes_it_gives_up) {
  times_fill();
  struct final_measurement all[] = {measured(1, 0, slow), measured(1, 5, slow)};
  cleanup_job_plan struct job_plan plan;
  job_after_final(all, ARRAY_LENGTH(all), 0, 7, true, &plan);
  cr_assert_eq(plan.step, PLAN_FAIL);
  cr_expect_neq(strstr(plan.reason.message, "after 6 processes"), NULL);
}

Test(job_plan, when_every_finalist_failed_the_job_fails) {
  struct final_measurement all[] = {failed(1, 0), failed(2, 1)};
  cleanup_job_plan struct job_plan plan;
  job_after_final(all, ARRAY_LENGTH(all), 0, 7, true, &plan);
  cr_assert_eq(plan.step, PLAN_FAIL);
  cr_expect_neq(strstr(plan.reason.message, "every finalist failed"), NULL);
}
