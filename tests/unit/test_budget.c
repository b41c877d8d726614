/* The rule by which a budget of device time is spent. */
#include <criterion/criterion.h>

#include "common/verdict/budget.h"

TestSuite(budget);

#define SECOND INT64_C(1000000)

Test(budget, none_bounds_nothing) {
  struct budget none = {
      .spent_us = 5 * SECOND, .measured = 100, .final_us = SECOND, .final_processes = 3};
  cr_expect_eq(budget_screen_left_us(&none, 3), BUDGET_UNBOUNDED);
  cr_expect_eq(budget_finalists(&none, 3, 16), 16);
  cr_expect_eq(budget_process_us(&none, 3), BUDGET_UNBOUNDED);
  cr_expect(budget_pays_process(&none));
}

Test(budget, the_screen_has_its_share_of_it) {
  struct budget budget = {.total_us = 10 * SECOND};
  cr_expect_eq(budget_screen_left_us(&budget, 3), 6 * SECOND, "before anything is known");
  budget.spent_us = 5 * SECOND;
  budget.measured = 5000;
  cr_expect_eq(budget_screen_left_us(&budget, 3), SECOND);
  budget.spent_us = 7 * SECOND;
  cr_expect_eq(budget_screen_left_us(&budget, 3), 0);
}

Test(budget, the_screen_leaves_what_the_least_final_needs) {
  /* 10 ms a config, so 30 ms a finalist: 2 finalists in 3 processes are 180 ms. */
  struct budget budget = {.total_us = 400000, .spent_us = 100000, .measured = 10};
  cr_expect_eq(budget_least_final_us(&budget, 3), 180000);
  cr_expect_eq(budget_screen_left_us(&budget, 3), 120000,
               "400 - 180 - 100, though its share were 240");
  cr_expect_eq(budget_least_final_us(&budget, 5), 300000, "on five devices");
  cr_expect_eq(budget_screen_left_us(&budget, 5), 0);
}

Test(budget, one_slow_config_does_not_end_the_screen) {
  struct budget budget = {.total_us = 60 * SECOND, .spent_us = 5 * SECOND, .measured = 1};
  cr_expect_eq(budget_screen_left_us(&budget, 3), 7 * SECOND);
}

Test(budget, the_rest_says_how_many_finalists_there_are) {
  struct budget budget = {.total_us = SECOND, .spent_us = 600000, .measured = 60};
  cr_expect_eq(budget_finalists(&budget, 3, 16), 4, "400 ms, 90 ms for each in three processes");
  budget.total_us = 10 * SECOND;
  cr_expect_eq(budget_finalists(&budget, 3, 16), 16);
  budget.total_us = 600001;
  cr_expect_eq(budget_finalists(&budget, 3, 16), BUDGET_FINALISTS_MIN,
               "the best and the baseline in any case");
}

/* 50 ms an opening, 10 ms a config: 30 ms a finalist. */
Test(budget, each_process_of_the_final_opens_the_kernel) {
  struct budget budget = {
      .total_us = SECOND, .spent_us = 200000, .opening_us = 100000, .openings = 2, .measured = 10};
  cr_expect_eq(budget_least_final_us(&budget, 3), 3 * (50000 + 2 * 30000));
  cr_expect_eq(budget_screen_left_us(&budget, 3), 400000,
               "the opening is of what the screen spent");
  cr_expect_eq(budget_finalists(&budget, 3, 16), 7,
               "800 ms without 150 ms, 90 ms for each in three processes");
  budget.total_us = 300000;
  cr_expect_eq(budget_finalists(&budget, 3, 16), BUDGET_FINALISTS_MIN,
               "the openings alone are more than is left");
}

Test(budget, an_opening_before_anything_was_measured_is_all_that_is_known) {
  struct budget budget = {
      .total_us = SECOND, .spent_us = 100000, .opening_us = 100000, .openings = 1};
  cr_expect_eq(budget_least_final_us(&budget, 3), 300000);
  cr_expect_eq(budget_finalists(&budget, 3, 16), 16);
  budget.spent_us = budget.opening_us = SECOND;
  cr_expect_eq(budget_screen_left_us(&budget, 3), 0);
  cr_expect_eq(budget_finalists(&budget, 3, 16), BUDGET_FINALISTS_MIN);
}

Test(budget, the_leases_of_a_stage_share_what_opening_took) {
  cr_expect_eq(budget_configs_us(100000, 1000000, 0), 100000);
  cr_expect_eq(budget_configs_us(100000, 1000000, 500000), 50000,
               "more than its share, and it goes on");
  cr_expect_eq(budget_configs_us(100000, 100000, 60000), 40000, "of its own it pays all");
  cr_expect_eq(budget_configs_us(1, 1000000, 999999), 1);
  cr_expect_eq(budget_configs_us(100000, 1000000, 1000000), 0, "nothing is left");
}

Test(budget, processes_share_what_is_left) {
  struct budget budget = {.total_us = 900000, .spent_us = 600000, .measured = 60};
  cr_expect_eq(budget_process_us(&budget, 3), 100000);
  budget.spent_us = 700000;
  cr_expect_eq(budget_process_us(&budget, 2), 100000);
  budget.spent_us = 2 * SECOND;
  cr_expect_eq(budget_process_us(&budget, 1), 1, "the least number of rounds in any case");
}

Test(budget, pays_for_another_process_like_those_before) {
  struct budget budget = {.total_us = SECOND,
                          .spent_us = 900000,
                          .measured = 60,
                          .final_us = 300000,
                          .final_processes = 3};
  cr_expect(budget_pays_process(&budget));
  budget.spent_us++;
  cr_expect_not(budget_pays_process(&budget));
}

/* Opening takes 20 ms in each process, a config 10 ms in the screen and a finalist 30 ms, as
 * predicted, whatever the budget. */
Test(budget, a_campaign_that_obeys_stays_within_it_wherever_the_least_final_fits) {
  for (int64_t total_us = 350000; total_us < 20 * SECOND; total_us += 50000) {
    struct budget budget = {
        .total_us = total_us, .spent_us = 20000, .opening_us = 20000, .openings = 1};
    for (int n = 0; n < 500 && budget_screen_left_us(&budget, 3) > 10000; n++) {
      budget.spent_us += 10000;
      budget.measured++;
    }
    size_t finalists = budget_finalists(&budget, 3, 16);
    for (int64_t process = 0; process < 3 || (process < 6 && budget_pays_process(&budget));
         process++) {
      budget.spent_us += 20000 + (int64_t)finalists * 30000;
      budget.final_us += 20000 + (int64_t)finalists * 30000;
      budget.opening_us += 20000;
      budget.openings++;
      budget.final_processes++;
    }
    cr_assert_leq(budget.spent_us, total_us, "%lld of %lld us", (long long)budget.spent_us,
                  (long long)total_us);
  }
}
