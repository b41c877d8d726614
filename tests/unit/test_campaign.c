/* What follows after each stage of a campaign, and the choice of the configs that go on. */
#include "common/campaign/campaign.h"

#include <criterion/criterion.h>

TestSuite(finalists);
TestSuite(campaign);

/* The choice */

#define CHOSEN_MAX 8
static uint64_t chosen[CHOSEN_MAX];

static size_t choose(const struct campaign_candidate *candidates, size_t n, const uint64_t *always,
                     size_t n_always, size_t most) {
  return finalists_choose(candidates, n, always, n_always, most, chosen);
}

Test(finalists, are_those_with_the_least_ratios_in_order_of_ordinals) {
  const struct campaign_candidate all[] = {{3, 0.93}, {40, 0.9}, {7, 0.94}, {9, 0.92}};
  cr_assert_eq(choose(all, 4, NULL, 0, 2), 2);
  cr_expect_eq(chosen[0], 9);
  cr_expect_eq(chosen[1], 40);
}

Test(finalists, take_the_lower_ordinal_of_equal_ratios) {
  const struct campaign_candidate all[] = {{5, 1}, {2, 1}, {8, 1}};
  cr_assert_eq(choose(all, 3, NULL, 0, 1), 1);
  cr_expect_eq(chosen[0], 2);
}

Test(finalists, leave_out_what_is_behind_the_best_by_more_than_the_span) {
  const struct campaign_candidate all[] = {{0, 0.5}, {1, 0.534}, {2, 0.536}};
  cr_expect_eq(choose(all, 3, NULL, 0, 3), 2);
}

Test(finalists, include_configs_that_are_always_kept_however_slow) {
  const struct campaign_candidate all[] = {{4, 0.5}, {3, 0.51}, {2, 0.52}, {1, 1}, {0, 3}};
  const uint64_t always[] = {0, 1};
  cr_assert_eq(choose(all, 5, always, 2, 3), 3);
  cr_expect(chosen[0] == 0 && chosen[1] == 1 && chosen[2] == 4, "%lu %lu %lu", chosen[0], chosen[1],
            chosen[2]);
}

Test(finalists, include_a_config_that_is_always_kept_once) {
  const struct campaign_candidate all[] = {{4, 0.5}, {3, 0.51}, {2, 0.52}};
  const uint64_t always[] = {4, 3, 3};
  cr_assert_eq(choose(all, 3, always, 3, 3), 3);
  cr_expect(chosen[0] == 2 && chosen[1] == 3 && chosen[2] == 4, "%lu %lu %lu", chosen[0], chosen[1],
            chosen[2]);
}

Test(finalists, leave_out_what_is_always_kept_but_was_not_measured) {
  const struct campaign_candidate all[] = {{4, 0.5}};
  const uint64_t always[] = {9};
  cr_assert_eq(choose(all, 1, always, 1, 2), 1);
  cr_expect_eq(chosen[0], 4);
}

Test(finalists, are_the_best_alone_where_there_is_room_for_one) {
  const struct campaign_candidate all[] = {{4, 0.5}, {1, 1}};
  const uint64_t always[] = {1};
  cr_assert_eq(choose(all, 2, always, 1, 1), 1);
  cr_expect_eq(chosen[0], 4);
}

/* Config 7 left in a slow round of the baseline; so did others that would fill the final. */
Test(finalists, are_not_measured_by_what_left_its_race_early) {
  const struct campaign_candidate all[] = {{7, 0.3, true}, {8, 0.31, true}, {9, 0.32, true},
                                           {1, 0.60},      {2, 0.61},       {3, 0.629, true}};
  cr_assert_eq(choose(all, 6, NULL, 0, 2), 2);
  cr_expect(chosen[0] == 1 && chosen[1] == 2, "%lu %lu", chosen[0], chosen[1]);
  cr_expect_eq(choose(all, 6, NULL, 0, 6), 6);
}

/* The server reads only those with the least ratios from its database. */
Test(finalists, of_what_left_early_are_those_with_the_least_ratios_and_not_the_lowest_ordinals) {
  const struct campaign_candidate all[] = {
      {1, 0.55, true}, {9, 0.51, true}, {5, 0.52, true}, {20, 0.6}};
  cr_assert_eq(choose(all, 4, NULL, 0, 3), 3);
  cr_expect(chosen[0] == 5 && chosen[1] == 9 && chosen[2] == 20, "%lu %lu %lu", chosen[0],
            chosen[1], chosen[2]);
}

Test(finalists, are_of_what_left_early_where_nothing_stayed) {
  const struct campaign_candidate all[] = {{1, 0.5, true}, {2, 0.4, true}, {3, 0.6, true}};
  cr_expect_eq(choose(all, 3, NULL, 0, 3), 1);
  cr_expect_eq(chosen[0], 2);
}

Test(finalists, are_none_of_none) { cr_expect_eq(choose(NULL, 0, NULL, 0, 1), 0); }

/* After a screen or a halving */

/* A screen of up to RANKED correct configs, all of one lease and within a hair of one another;
 * config 100 is the best. The baseline is a config that was not measured. */
#define RANKED 80
static struct campaign_candidate ranked[RANKED];

static struct campaign_facts screen_of(size_t n) {
  for (size_t i = 0; i < n; i++)
    ranked[i] = (struct campaign_candidate){100 - i, 0.8 + (double)i * 1e-4, false, 1};
  return (struct campaign_facts){
      .baseline = 1000,
      .finalists_max = FINALISTS_MAX,
      .processes = FINAL_PROCESSES,
      .processes_max = FINAL_PROCESSES_MAX,
      .budget_larger_by = "ask for more",
      .stage = STAGE_SCREEN,
      .screen = {.n = n, .candidates = ranked, .outcomes = {(int64_t)n}},
  };
}

static struct campaign_step next(const struct campaign_facts *facts) {
  struct campaign_step step;
  campaign_next(facts, &step);
  return step;
}

static bool step_has(const struct campaign_step *step, uint64_t config) {
  for (size_t i = 0; i < step->n_configs; i++)
    if (step->configs[i] == config)
      return true;
  return false;
}

Test(campaign, the_screens_best_go_to_three_processes) {
  struct campaign_facts facts = screen_of(3);
  cleanup_campaign_step struct campaign_step step = next(&facts);
  cr_assert_eq(step.kind, CAMPAIGN_FINAL);
  cr_assert_eq(step.n_configs, 3);
  cr_expect_eq(step.configs[0], 98);
  cr_expect_eq(step.configs[2], 100);
  cr_expect_eq(step.first_process, 0);
  cr_expect_eq(step.n_processes, 3);
}

Test(campaign, what_the_screen_saw_far_behind_is_no_finalist) {
  struct campaign_facts facts = screen_of(3);
  ranked[1].ratio = ranked[2].ratio = 2;
  cleanup_campaign_step struct campaign_step step = next(&facts);
  cr_expect_eq(step.n_configs, 1);
  cr_expect_eq(step.configs[0], 100);
}

Test(campaign, the_baseline_and_the_default_are_finalists_wherever_they_rank) {
  struct campaign_facts facts = screen_of(40);
  ranked[39].ratio = ranked[38].ratio = 3;
  facts.baseline = ranked[39].config;
  facts.has_default = true;
  facts.default_config = ranked[38].config;
  cleanup_campaign_step struct campaign_step step = next(&facts);
  cr_assert_eq(step.kind, CAMPAIGN_FINAL);
  cr_expect_eq(step.n_configs, FINALISTS_MAX);
  cr_expect(step_has(&step, facts.baseline));
  cr_expect(step_has(&step, facts.default_config));
}

Test(campaign, without_a_default_config_0_is_as_any_other) {
  struct campaign_facts facts = screen_of(3);
  ranked[2] = (struct campaign_candidate){0, 3, false, 1};
  cleanup_campaign_step struct campaign_step step = next(&facts);
  cr_expect_not(step_has(&step, 0));
}

Test(campaign, many_close_configs_of_several_leases_race_once_more) {
  struct campaign_facts facts = screen_of(FINALISTS_MAX + 1);
  ranked[3].lease = 2;
  facts.processes = 4;
  cleanup_campaign_step struct campaign_step step = next(&facts);
  cr_assert_eq(step.kind, CAMPAIGN_HALVING);
  cr_expect_eq(step.n_configs, FINALISTS_MAX + 1);
  cr_expect_eq(step.n_processes, 1);
}

Test(campaign, many_close_configs_that_raced_in_one_lease_do_not_race_again) {
  struct campaign_facts facts = screen_of(FINALISTS_MAX + 1);
  cleanup_campaign_step struct campaign_step step = next(&facts);
  cr_expect_eq(step.kind, CAMPAIGN_FINAL);
  cr_expect_eq(step.n_configs, FINALISTS_MAX);
}

Test(campaign, a_lease_of_configs_that_are_far_behind_is_no_reason_to_race_again) {
  struct campaign_facts facts = screen_of(FINALISTS_MAX + 2);
  ranked[FINALISTS_MAX + 1].lease = 2;
  ranked[FINALISTS_MAX + 1].ratio = 3;
  cleanup_campaign_step struct campaign_step step = next(&facts);
  cr_expect_eq(step.kind, CAMPAIGN_FINAL);
}

Test(campaign, a_halving_takes_64_with_the_baseline_among_them) {
  struct campaign_facts facts = screen_of(RANKED);
  ranked[3].lease = 2;
  ranked[RANKED - 1].ratio = 3;
  facts.baseline = ranked[RANKED - 1].config;
  cleanup_campaign_step struct campaign_step step = next(&facts);
  cr_assert_eq(step.kind, CAMPAIGN_HALVING);
  cr_expect_eq(step.n_configs, HALVING_MAX);
  cr_expect(step_has(&step, facts.baseline));
  for (size_t i = 1; i < step.n_configs; i++)
    cr_expect_lt(step.configs[i - 1], step.configs[i]);
}

Test(campaign, a_final_that_takes_as_many_as_a_halving_has_none_before_it) {
  struct campaign_facts facts = screen_of(RANKED);
  ranked[3].lease = 2;
  facts.finalists_max = HALVING_MAX + 6;
  cleanup_campaign_step struct campaign_step step = next(&facts);
  cr_assert_eq(step.kind, CAMPAIGN_FINAL);
  cr_expect_eq(step.n_configs, HALVING_MAX + 6);
}

Test(campaign, no_more_close_configs_than_a_final_takes_do_not_race_again) {
  struct campaign_facts facts = screen_of(FINALISTS_MAX + 1);
  ranked[3].lease = 2;
  ranked[7].ratio = 3;
  facts.baseline = ranked[7].config;
  cleanup_campaign_step struct campaign_step step = next(&facts);
  cr_expect_eq(step.kind, CAMPAIGN_FINAL);
  cr_expect(step_has(&step, ranked[7].config));
}

Test(campaign, after_a_halving_comes_the_final_with_its_ratios_alone) {
  struct campaign_facts facts = screen_of(FINALISTS_MAX + 1);
  ranked[3].lease = 2;
  const struct campaign_candidate halved[] = {{90, 0.7}, {91, 0.72}, {92, 0.9}};
  facts.stage = STAGE_HALVING;
  facts.halving = (struct campaign_race){.n = 3, .candidates = halved};
  cleanup_campaign_step struct campaign_step step = next(&facts);
  cr_assert_eq(step.kind, CAMPAIGN_FINAL);
  cr_assert_eq(step.n_configs, 2);
  cr_expect(step_has(&step, 90) && step_has(&step, 91));
}

Test(campaign, a_halving_that_measured_nothing_correctly_leaves_what_the_screen_said) {
  struct campaign_facts facts = screen_of(FINALISTS_MAX + 1);
  ranked[3].lease = 2;
  facts.stage = STAGE_HALVING;
  facts.halving.outcomes[OUTCOME_TIMEOUT] = 17;
  cleanup_campaign_step struct campaign_step step = next(&facts);
  cr_assert_eq(step.kind, CAMPAIGN_FINAL);
  cr_expect_eq(step.n_configs, FINALISTS_MAX);
}

Test(campaign, without_budget_for_it_nothing_races_once_more) {
  struct campaign_facts facts = screen_of(FINALISTS_MAX + 1);
  ranked[3].lease = 2;
  facts.is_cut = true;
  cr_expect(campaign_screen_is_spent(&facts));
  cleanup_campaign_step struct campaign_step cut = next(&facts);
  cr_expect_eq(cut.kind, CAMPAIGN_FINAL);

  facts.is_cut = false;
  cr_expect_not(campaign_screen_is_spent(&facts));
  facts.budget = (struct budget){.total_us = 1000000, .spent_us = 700000, .measured = 700};
  cr_expect(campaign_screen_is_spent(&facts));
  cleanup_campaign_step struct campaign_step spent = next(&facts);
  cr_expect_eq(spent.kind, CAMPAIGN_FINAL);
}

Test(campaign, a_small_budget_has_fewer_finalists_and_the_baseline_among_them) {
  struct campaign_facts facts = screen_of(40);
  facts.baseline = ranked[39].config;
  facts.budget = (struct budget){.total_us = 100000, .spent_us = 90000, .measured = 90};
  cleanup_campaign_step struct campaign_step step = next(&facts);
  cr_assert_eq(step.kind, CAMPAIGN_FINAL);
  cr_expect_eq(step.n_configs, 2);
  cr_expect(step_has(&step, ranked[0].config) && step_has(&step, facts.baseline));
}

Test(campaign, a_final_of_one_config_has_the_baseline_beside_it) {
  struct campaign_facts facts = screen_of(3);
  facts.baseline = ranked[2].config;
  facts.finalists_max = 1;
  cleanup_campaign_step struct campaign_step step = next(&facts);
  cr_expect_eq(step.n_configs, 2);
}

Test(campaign, a_final_on_more_devices_has_a_process_for_each) {
  cr_expect_eq(final_processes(1), 3);
  cr_expect_eq(final_processes(5), 5);
  struct campaign_facts facts = screen_of(2);
  facts.processes = final_processes(5);
  cleanup_campaign_step struct campaign_step step = next(&facts);
  cr_expect_eq(step.n_processes, 5);
}

Test(campaign, a_screen_without_a_correct_config_fails_and_says_why) {
  struct campaign_facts facts = screen_of(0);
  facts.screen.example = "no such header";
  facts.screen.outcomes[OUTCOME_COMPILE] = 3;
  facts.screen.outcomes[OUTCOME_TIMEOUT] = 1;
  cleanup_campaign_step struct campaign_step step = next(&facts);
  cr_assert_eq(step.kind, CAMPAIGN_FAILED);
  cr_expect_str_eq(
      step.reason.message,
      "none of 4 configs was measured correctly (compile 3, timeout 1); one of them: no such "
      "header");
}

/* A database takes no text that ends inside of a letter, and then the job would never end. */
Test(campaign, the_reason_is_utf8_also_where_a_long_detail_is_cut) {
  char example[402] = "x";
  for (size_t i = 1; i < 401; i += 2)
    memcpy(&example[i], "\u00e9", 2);
  struct campaign_facts facts = screen_of(0);
  facts.screen.outcomes[OUTCOME_RUNTIME] = 1;
  facts.screen.example = example;
  cleanup_campaign_step struct campaign_step step = next(&facts);
  cleanup_json json_t *text = json_string(step.reason.message);
  cr_assert_not_null(text);
}

Test(campaign, a_screen_that_measured_nothing_says_that_the_budget_was_spent) {
  struct campaign_facts facts = screen_of(0);
  facts.budget.opening_us = 1500000;
  cleanup_campaign_step struct campaign_step step = next(&facts);
  cr_assert_eq(step.kind, CAMPAIGN_FAILED);
  cr_expect_not_null(strstr(step.reason.message,
                            "the budget was spent before any config was measured, and "
                            "opening the kernel took 1.5 device-seconds"),
                     "%s", step.reason.message);
}

/* After a final */

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
  return (struct final_measurement){OUTCOME_CORRECT,
                                    {config, process, PAIRS, samples, baseline, 0, 0, 0}};
}

static struct final_measurement failed(uint64_t config, int64_t process) {
  return (struct final_measurement){OUTCOME_RUNTIME, {.config = config, .process = process}};
}

static struct campaign_facts final_of(const struct final_measurement *measurements, size_t n) {
  return (struct campaign_facts){
      .seed = 7,
      .processes = FINAL_PROCESSES,
      .processes_max = FINAL_PROCESSES_MAX,
      .stage = STAGE_FINAL,
      .n_measurements = n,
      .measurements = measurements,
  };
}

/* What the budget of a final that spent as much pays for: no other process. */
static const struct budget empty = {
    .total_us = 100, .spent_us = 100, .final_us = 90, .final_processes = 3};

Test(campaign, three_processes_decide) {
  times_fill();
  struct final_measurement all[] = {measured(1, 0, slow), measured(2, 0, fast),
                                    measured(1, 1, slow), measured(2, 1, fast),
                                    measured(1, 2, slow), measured(2, 2, fast)};
  struct campaign_facts facts = final_of(all, ARRAY_LENGTH(all));
  cleanup_campaign_step struct campaign_step step = next(&facts);
  cr_assert_eq(step.kind, CAMPAIGN_DONE);
  cr_expect_eq(step.verdict.winner, 2);
}

Test(campaign, a_finalist_that_fails_once_drops_out) {
  times_fill();
  struct final_measurement all[] = {measured(1, 0, slow), measured(2, 0, fast),
                                    measured(1, 1, slow), failed(2, 1),
                                    measured(1, 2, slow), measured(2, 2, fast)};
  struct campaign_facts facts = final_of(all, ARRAY_LENGTH(all));
  cleanup_campaign_step struct campaign_step step = next(&facts);
  cr_assert_eq(step.kind, CAMPAIGN_DONE);
  cr_expect_eq(step.verdict.winner, 1);
}

Test(campaign, a_process_is_added_when_no_finalist_has_enough) {
  times_fill();
  struct final_measurement all[] = {measured(1, 0, slow), measured(1, 2, slow)};
  struct campaign_facts facts = final_of(all, ARRAY_LENGTH(all));
  cleanup_campaign_step struct campaign_step step = next(&facts);
  cr_assert_eq(step.kind, CAMPAIGN_FINAL);
  cr_expect_eq(step.first_process, 3);
  cr_expect_eq(step.n_processes, 1);
  cr_expect_eq(step.n_configs, 1);
}

/* One process each in which the winner is a tenth faster, as fast and a tenth slower than the
 * baseline. */
static double bands[3][PAIRS];

static void bands_fill(void) {
  times_fill();
  for (size_t band = 0; band < 3; band++)
    for (size_t i = 0; i < PAIRS; i++)
      bands[band][i] = baseline[i] * (0.9 + 0.1 * (double)band);
}

Test(campaign, an_ambiguous_verdict_gets_one_more_process) {
  bands_fill();
  struct final_measurement all[] = {measured(1, 0, bands[0]), measured(1, 1, bands[1]),
                                    measured(1, 2, bands[2])};
  struct campaign_facts facts = final_of(all, ARRAY_LENGTH(all));
  cleanup_campaign_step struct campaign_step step = next(&facts);
  cr_assert_eq(step.kind, CAMPAIGN_FINAL);
  cr_expect_eq(step.first_process, 3);
  cr_expect_eq(step.n_processes, 1);
  cr_expect_eq(step.n_configs, 1);
}

/* Config 1 is the best in one process and a tenth behind config 2 in the next, both far faster than
 * the baseline. */
Test(campaign, a_regret_bound_that_is_too_wide_gets_one_more_process) {
  times_fill();
  static double quick[PAIRS], quicker[PAIRS];
  for (size_t i = 0; i < PAIRS; i++) {
    quick[i] = fast[i] * 0.95;
    quicker[i] = fast[i] * 0.9;
  }
  struct final_measurement all[] = {measured(1, 0, quicker), measured(2, 0, fast),
                                    measured(1, 1, fast),    measured(2, 1, quicker),
                                    measured(1, 2, quick),   measured(2, 2, quick)};
  struct campaign_facts facts = final_of(all, ARRAY_LENGTH(all));
  cleanup_campaign_step struct campaign_step step = next(&facts);
  cr_assert_eq(step.kind, CAMPAIGN_FINAL);
  cr_expect_eq(step.first_process, 3);
  cr_expect_eq(step.n_processes, 1);
}

/* Config 2 is slower by 0.5, 1.2 and 1.9 %: by 1.2 %, give or take 1.7. Nothing else is in
 * doubt. */
Test(campaign, a_config_that_a_wide_interval_keeps_out_of_the_set_gets_one_more_process) {
  times_fill();
  static double near[3][PAIRS];
  for (size_t p = 0; p < 3; p++)
    for (size_t i = 0; i < PAIRS; i++)
      near[p][i] = fast[i] * (1.005 + 0.007 * (double)p);
  struct final_measurement all[] = {measured(1, 0, fast), measured(2, 0, near[0]),
                                    measured(1, 1, fast), measured(2, 1, near[1]),
                                    measured(1, 2, fast), measured(2, 2, near[2])};
  struct campaign_facts facts = final_of(all, ARRAY_LENGTH(all));
  cleanup_campaign_step struct campaign_step step = next(&facts);
  cr_assert_eq(step.kind, CAMPAIGN_FINAL);
  cr_expect_eq(step.first_process, 3);
  cr_expect_eq(step.n_processes, 1);
  cr_expect_eq(step.n_configs, 2);
}

Test(campaign, after_six_processes_an_ambiguous_verdict_stands) {
  bands_fill();
  struct final_measurement all[6];
  for (int64_t process = 0; process < 6; process++)
    all[process] = measured(1, process, bands[process % 3]);
  struct campaign_facts facts = final_of(all, ARRAY_LENGTH(all));
  cleanup_campaign_step struct campaign_step step = next(&facts);
  cr_assert_eq(step.kind, CAMPAIGN_DONE);
  cr_expect_eq(step.verdict.outcome, VERDICT_AMBIGUOUS);
}

Test(campaign, an_ambiguous_verdict_stands_where_the_budget_pays_for_no_more) {
  bands_fill();
  struct final_measurement all[] = {measured(1, 0, bands[0]), measured(1, 1, bands[1]),
                                    measured(1, 2, bands[2])};
  struct campaign_facts facts = final_of(all, ARRAY_LENGTH(all));
  facts.budget = empty;
  cleanup_campaign_step struct campaign_step step = next(&facts);
  cr_assert_eq(step.kind, CAMPAIGN_DONE);
  cr_expect_eq(step.verdict.outcome, VERDICT_AMBIGUOUS);
  struct final_measurement few[] = {measured(1, 0, slow), measured(1, 2, slow)};
  facts = final_of(few, ARRAY_LENGTH(few));
  facts.budget = empty;
  cleanup_campaign_step struct campaign_step undecided = next(&facts);
  cr_expect_eq(undecided.kind, CAMPAIGN_FINAL,
               "without three processes there is no verdict at all");
}

Test(campaign, a_finalist_that_fails_in_an_added_process_drops_out) {
  bands_fill();
  struct final_measurement all[] = {measured(1, 0, bands[0]), measured(1, 1, bands[1]),
                                    measured(1, 2, bands[2]), failed(1, 3),
                                    measured(2, 0, slow),     measured(2, 1, slow),
                                    measured(2, 2, slow),     measured(2, 3, slow)};
  struct campaign_facts facts = final_of(all, ARRAY_LENGTH(all));
  cleanup_campaign_step struct campaign_step step = next(&facts);
  cr_assert_eq(step.kind, CAMPAIGN_DONE);
  cr_expect_eq(step.verdict.winner, 2);
  cr_expect_eq(step.verdict.n_finalists, 1);
}

Test(campaign, after_six_processes_it_gives_up) {
  times_fill();
  struct final_measurement all[] = {measured(1, 0, slow), measured(1, 5, slow)};
  struct campaign_facts facts = final_of(all, ARRAY_LENGTH(all));
  cleanup_campaign_step struct campaign_step step = next(&facts);
  cr_assert_eq(step.kind, CAMPAIGN_FAILED);
  cr_expect_neq(strstr(step.reason.message, "after 6 processes"), NULL);
}

Test(campaign, when_every_finalist_failed_the_job_fails) {
  struct final_measurement all[] = {failed(1, 0), failed(2, 1)};
  struct campaign_facts facts = final_of(all, ARRAY_LENGTH(all));
  cleanup_campaign_step struct campaign_step step = next(&facts);
  cr_assert_eq(step.kind, CAMPAIGN_FAILED);
  cr_expect_neq(strstr(step.reason.message, "every finalist failed"), NULL);
}

Test(campaign, every_finalist_that_failed_may_have_an_example) {
  struct final_measurement all[] = {failed(1, 0), failed(2, 1)};
  struct campaign_facts facts = final_of(all, ARRAY_LENGTH(all));
  facts.final_example = "killed by signal 6";
  cleanup_campaign_step struct campaign_step step = next(&facts);
  cr_expect_neq(strstr(step.reason.message, "; one of them: killed by signal 6"), NULL, "%s",
                step.reason.message);
}

Test(campaign, a_final_without_a_measurement_fails) {
  struct campaign_facts facts = final_of(NULL, 0);
  facts.processes_begun = 3;
  cleanup_campaign_step struct campaign_step step = next(&facts);
  cr_assert_eq(step.kind, CAMPAIGN_FAILED);
  cr_expect_not_null(strstr(step.reason.message, "no finalist was measured in 3 processes"), "%s",
                     step.reason.message);
}

Test(campaign, a_process_that_measured_nothing_is_one_of_the_six) {
  bands_fill();
  struct final_measurement all[] = {measured(1, 0, bands[0]), measured(1, 1, bands[1]),
                                    measured(1, 2, bands[2])};
  struct campaign_facts facts = final_of(all, ARRAY_LENGTH(all));
  facts.processes_begun = 5;
  cleanup_campaign_step struct campaign_step fifth = next(&facts);
  cr_expect(fifth.kind == CAMPAIGN_FINAL && fifth.first_process == 5 && fifth.has_verdict);
  facts.processes_begun = 6;
  cleanup_campaign_step struct campaign_step sixth = next(&facts);
  cr_expect_eq(sixth.kind, CAMPAIGN_DONE);
}

Test(campaign, a_final_that_may_have_no_more_processes_ends_with_those_that_it_had) {
  bands_fill();
  struct final_measurement all[] = {measured(1, 0, bands[0]), measured(1, 1, bands[1]),
                                    measured(1, 2, bands[2])};
  struct campaign_facts facts = final_of(all, ARRAY_LENGTH(all));
  facts.processes_max = 3;
  cleanup_campaign_step struct campaign_step step = next(&facts);
  cr_expect_eq(step.kind, CAMPAIGN_DONE);
  facts.n_measurements = 2;
  facts.processes_begun = 3;
  cleanup_campaign_step struct campaign_step few = next(&facts);
  cr_expect_eq(few.kind, CAMPAIGN_FAILED);
  cr_expect_neq(strstr(few.reason.message, "after 3 processes"), NULL);
}
