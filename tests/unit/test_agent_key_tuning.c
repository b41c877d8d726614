/* What a campaign keeps of one key: from fed measurements to finalists and a verdict. */
#include "agent/tune/key_tuning.h"

#include <criterion/criterion.h>
#include <math.h>

#define CONFIGS 6 /* of the space; its default is config 2 */

static struct key key_of(const char *text) {
  struct error error = {0};
  cleanup_json json_t *json = NULL;
  struct key key;
  cr_assert(json_parse(text, strlen(text), &json, &error), "%s", error.message);
  cr_assert(key_parse(json, NULL, 0, &key, &error), "%s", error.message);
  return key;
}

static struct space *space_new(const char *text) {
  struct error error = {0};
  cleanup_json json_t *json = NULL;
  struct space *space = NULL;
  cr_assert(json_parse(text, strlen(text), &json, &error), "%s", error.message);
  cr_assert(space_parse(json, &space, &error), "%s", error.message);
  return space;
}

#define SPACE "{\"parameters\": {\"B\": [0, 1, 2, 3, 4, 5]}, \"default\": {\"B\": 2}}"

/* A key whose configs are listed. */
struct trial {
  struct space *space;
  struct key_tuning tuning;
};

static struct trial trial_new(int64_t only) {
  struct trial trial = {.space = space_new(SPACE), .tuning = {.key = key_of("{\"n\": 8}")}};
  struct space_facts facts = {.key = &trial.tuning.key};
  struct error error = {0};
  cr_assert(key_tuning_list(&trial.tuning, trial.space, &facts, only, &error), "%s", error.message);
  return trial;
}

static void trial_end(struct trial *trial) {
  key_tuning_release(&trial->tuning);
  space_free(trial->space);
}

/* Feeds one measurement of 12 rounds; `ratio` 0: it fails with `detail`. */
static bool feed_ended(struct trial *trial, enum stage stage, int64_t process, uint64_t config,
                       double ratio, const char *detail, const char *end) {
  double samples_us[12], baseline_us[12];
  struct lease lease = {.space = trial->space,
                        .stage = stage,
                        .process = process,
                        .baseline = trial->tuning.baseline};
  size_t n = ratio > 0 ? ARRAY_LENGTH(samples_us) : 0;
  struct measurement measurement;
  measurement_init(&measurement);
  measurement.config = (int64_t)config;
  measurement.outcome = ratio > 0 ? OUTCOME_CORRECT : OUTCOME_RUNTIME;
  measurement.detail = (char *)detail;
  measurement.end = (char *)end;
  measurement.samples_us = (struct numbers){n, samples_us};
  measurement.baseline_us = (struct numbers){n, baseline_us};
  measurement.device_us = 100;
  for (size_t i = 0; i < ARRAY_LENGTH(samples_us); i++) {
    baseline_us[i] = 100 + 0.01 * (double)i;
    samples_us[i] = ratio * baseline_us[i] * (1 + 1e-5 * (double)(i % 3));
  }
  return key_tuning_take(&trial->tuning, &lease, &measurement);
}

static bool feed(struct trial *trial, enum stage stage, int64_t process, uint64_t config,
                 double ratio, const char *detail) {
  return feed_ended(trial, stage, process, config, ratio, detail, NULL);
}

static struct campaign_step next_of(const struct trial *trial, enum stage stage, size_t finalists) {
  struct campaign_terms terms = {.processes = FINAL_PROCESSES, .finalists = finalists, .seed = 1};
  struct campaign_step step;
  key_tuning_next(&trial->tuning, &terms, stage, &step);
  return step;
}

/* Which configs go from the screen, or from the halving, to a final that takes `most`. */
static void expect_finalists(const struct trial *trial, enum stage stage, size_t most, size_t n,
                             const uint64_t *expected) {
  cleanup_campaign_step struct campaign_step step = next_of(trial, stage, most);
  cr_assert_eq(step.kind, CAMPAIGN_FINAL);
  cr_assert_eq(step.n_configs, n);
  for (size_t i = 0; i < n; i++)
    cr_expect_eq(step.configs[i], expected[i], "place %zu has config %llu", i,
                 (unsigned long long)step.configs[i]);
}

static void expect_chosen(const struct trial *trial, size_t most, size_t n,
                          const uint64_t *expected) {
  expect_finalists(trial, STAGE_SCREEN, most, n, expected);
}

/* Has the campaign decide after the final. */
static void decide(struct trial *trial) {
  cleanup_campaign_step struct campaign_step step = next_of(trial, STAGE_FINAL, CONFIGS);
  key_tuning_apply(&trial->tuning, &step);
}

Test(key_tuning, the_baseline_is_the_default_and_else_the_first_valid_config) {
  struct trial trial = trial_new(-1);
  cr_expect_eq(trial.tuning.n, CONFIGS);
  cr_expect_eq(trial.tuning.baseline, 2);
  struct space *space =
      space_new("{\"parameters\": {\"B\": [0, 1, 2]}, \"conditions\": [\"B > 0\"]}");
  struct key_tuning listed = {0}, searched = {0};
  struct space_facts facts = {0};
  struct error error;
  cr_assert(key_tuning_list(&listed, space, &facts, -1, &error));
  cr_assert(key_tuning_find_baseline(&searched, space, &facts, &error));
  cr_expect_eq(listed.baseline, 1);
  cr_expect_eq(searched.baseline, 1);
  key_tuning_release(&listed);
  space_free(space);
  trial_end(&trial);
}

Test(key_tuning, opening_the_kernel_is_spent_on_the_key) {
  struct trial trial = trial_new(-1);
  key_tuning_opened(&trial.tuning, STAGE_SCREEN, 3000);
  cr_assert(feed(&trial, STAGE_SCREEN, 0, 0, 0.5, NULL));
  key_tuning_opened(&trial.tuning, STAGE_HALVING, 0); /* it was open */
  key_tuning_opened(&trial.tuning, STAGE_FINAL, 5000);
  cr_assert(feed(&trial, STAGE_FINAL, 0, 0, 0.5, NULL));
  cr_expect_eq(trial.tuning.device_us, 8200);
  cr_expect_eq(trial.tuning.opening_us, 8000);
  cr_expect_eq(trial.tuning.openings, 2);
  cr_expect_eq(trial.tuning.final_us, 5100);
  trial_end(&trial);
}

Test(key_tuning, one_config_alone_leaves_the_baseline_what_it_is) {
  struct trial trial = trial_new(5);
  cr_expect_eq(trial.tuning.n, 1);
  cr_expect_eq(trial.tuning.configs[0].config, 5);
  cr_expect_eq(trial.tuning.baseline, 2);
  trial_end(&trial);
}

Test(key_tuning, the_baseline_stays_however_slow_it_is) {
  struct trial trial = trial_new(-1);
  cr_assert(feed(&trial, STAGE_SCREEN, 0, 0, 0.5, NULL));
  cr_assert(feed(&trial, STAGE_SCREEN, 0, 2, 1.0, NULL));
  cr_assert(feed(&trial, STAGE_SCREEN, 0, 3, 0.9, NULL));
  cr_assert(feed(&trial, STAGE_SCREEN, 0, 5, 0.501, NULL));
  expect_chosen(&trial, CONFIGS, 3, (uint64_t[]){0, 2, 5});
  cr_expect_eq(key_tuning_best(&trial.tuning)->config, 0);
  cr_expect_eq(trial.tuning.device_us, 400);
  trial_end(&trial);
}

Test(key_tuning, a_config_that_left_its_race_early_is_never_the_best) {
  struct trial trial = trial_new(-1);
  cr_assert(feed_ended(&trial, STAGE_SCREEN, 0, 0, 0.4, NULL, "far"));
  cr_assert(feed_ended(&trial, STAGE_SCREEN, 0, 1, 0.7, NULL, "behind"));
  cr_assert(feed_ended(&trial, STAGE_SCREEN, 0, 3, 0.6, NULL, "decided"));
  cr_assert(feed_ended(&trial, STAGE_SCREEN, 0, 4, 0.61, NULL, "rounds"));
  cr_expect_eq(key_tuning_best(&trial.tuning)->config, 3);
  expect_chosen(&trial, CONFIGS, 3, (uint64_t[]){0, 3, 4});
  expect_chosen(&trial, 2, 2, (uint64_t[]){3, 4});
  trial_end(&trial);
}

Test(key_tuning, a_config_that_left_early_is_a_finalist_when_the_best_failed) {
  struct trial trial = trial_new(-1);
  cr_assert(feed_ended(&trial, STAGE_SCREEN, 0, 0, 0.6, NULL, "behind"));
  cr_assert(feed(&trial, STAGE_SCREEN, 0, 3, 0, "killed"));
  cr_expect_null(key_tuning_best(&trial.tuning));
  expect_chosen(&trial, CONFIGS, 1, (uint64_t[]){0});
  trial_end(&trial);
}

Test(key_tuning, unmeasured_and_failed_configs_are_no_finalists) {
  struct trial trial = trial_new(-1);
  cr_expect_null(key_tuning_best(&trial.tuning));
  cr_assert(feed(&trial, STAGE_SCREEN, 0, 0, 0, "killed"));
  cr_assert(feed(&trial, STAGE_SCREEN, 0, 1, 0, "killed later"));
  cr_assert(feed(&trial, STAGE_SCREEN, 0, 4, 0.8, NULL));
  expect_chosen(&trial, CONFIGS, 1, (uint64_t[]){4});
  cr_expect_str_eq(trial.tuning.examples[OUTCOME_RUNTIME], "B=0: killed");
  trial_end(&trial);
}

/* Without a budget every config is measured. */
Test(key_tuning, a_screen_without_a_correct_config_fails_the_key) {
  struct trial trial = trial_new(-1);
  cr_assert(feed(&trial, STAGE_SCREEN, 0, 0, 0, "killed"));
  cr_assert(feed(&trial, STAGE_SCREEN, 0, 1, 0, "killed later"));
  cleanup_campaign_step struct campaign_step step = next_of(&trial, STAGE_SCREEN, CONFIGS);
  key_tuning_apply(&trial.tuning, &step);
  cr_expect(trial.tuning.is_ended);
  cr_expect_str_eq(
      trial.tuning.failure,
      "none of 2 configs was measured correctly (runtime 2); one of them: B=0: killed");
  trial_end(&trial);
}

Test(key_tuning, a_budget_that_ends_before_any_config_is_the_failure) {
  struct trial trial = trial_new(-1);
  key_tuning_opened(&trial.tuning, STAGE_SCREEN, 500000);
  trial.tuning.is_spent = true;
  cleanup_campaign_step struct campaign_step step = next_of(&trial, STAGE_SCREEN, CONFIGS);
  key_tuning_apply(&trial.tuning, &step);
  cr_expect_not_null(
      strstr(trial.tuning.failure, "took 0.5 device-seconds; give more with --budget"), "%s",
      trial.tuning.failure);
  trial_end(&trial);
}

Test(key_tuning, close_configs_of_several_leases_race_again_in_a_halving) {
  struct trial trial = trial_new(-1);
  for (uint64_t config = 0; config < 4; config++) {
    trial.tuning.n_leases = config < 2 ? 1 : 2;
    cr_assert(feed(&trial, STAGE_SCREEN, 0, config, 0.5 + 0.01 * (double)config, NULL));
  }
  cleanup_campaign_step struct campaign_step step = next_of(&trial, STAGE_SCREEN, 2);
  cr_assert_eq(step.kind, CAMPAIGN_HALVING);
  cr_expect_eq(step.n_configs, 4);
  expect_finalists(&trial, STAGE_HALVING, 2, 2,
                   (uint64_t[]){0, 2}); /* it measured nothing: as the screen has them */
  cr_assert(feed(&trial, STAGE_HALVING, 0, 0, 0.9, NULL));
  cr_assert(feed(&trial, STAGE_HALVING, 0, 1, 0.6, NULL));
  cr_assert(feed(&trial, STAGE_HALVING, 0, 3, 0.61, NULL));
  expect_finalists(&trial, STAGE_HALVING, CONFIGS, 2, (uint64_t[]){1, 3});
  cr_expect_eq(key_tuning_best(&trial.tuning)->config, 0);
  trial_end(&trial);
}

Test(key_tuning, configs_of_one_lease_are_not_halved) {
  struct trial trial = trial_new(-1);
  for (uint64_t config = 0; config < 4; config++)
    cr_assert(feed(&trial, STAGE_SCREEN, 0, config, 0.5 + 0.01 * (double)config, NULL));
  expect_chosen(&trial, 2, 2, (uint64_t[]){0, 2});
  trial_end(&trial);
}

Test(key_tuning, a_config_that_failed_only_in_the_halving_may_still_win) {
  struct trial trial = trial_new(-1);
  cr_assert(feed(&trial, STAGE_SCREEN, 0, 3, 0.5, NULL));
  cr_assert(feed(&trial, STAGE_HALVING, 0, 3, 0, "killed"));
  expect_finalists(&trial, STAGE_HALVING, CONFIGS, 1, (uint64_t[]){3});
  cr_expect_not(key_tuning_dropped_out(&trial.tuning, 3));
  cr_assert(feed(&trial, STAGE_FINAL, 0, 3, 0.5, NULL));
  cr_expect_eq(key_tuning_find(&trial.tuning, 3)->outcome, OUTCOME_CORRECT);
  trial_end(&trial);
}

Test(key_tuning, a_config_that_failed_in_a_final_is_no_winner) {
  struct trial trial = trial_new(-1);
  for (int64_t process = 0; process < 4; process++) {
    cr_assert(feed(&trial, STAGE_FINAL, process, 2, 1, NULL));
    cr_assert(feed(&trial, STAGE_FINAL, process, 3, process < 3 ? 0.5 : 0, "killed"));
    if (process < VERDICT_PROCESSES_MIN - 1)
      continue;
    trial.tuning.is_ended = false;
    decide(&trial);
    cr_expect_eq(trial.tuning.verdict.winner, process < 3 ? 3 : 2);
    cr_expect(verdict_is_settled(&trial.tuning.verdict));
  }
  cr_expect_str_eq(trial.tuning.finalist_failure, "killed");
  trial_end(&trial);
}

Test(key_tuning, without_a_finalist_that_works_nothing_is_decided) {
  struct trial trial = trial_new(-1);
  cr_assert(feed(&trial, STAGE_FINAL, 0, 3, 0, "killed by signal 6"));
  decide(&trial);
  cr_expect_not(trial.tuning.is_decided);
  cr_expect_not_null(strstr(trial.tuning.failure, "every finalist failed"), "%s",
                     trial.tuning.failure);
  cr_expect_not_null(strstr(trial.tuning.failure, "killed by signal 6"), "%s",
                     trial.tuning.failure);
  trial_end(&trial);
}

/* Decides for config 3 in three processes; a fourth fails as a whole after config 3, or not, has
 * failed in it. */
static struct trial decided_trial_failed(bool winner_fails) {
  struct trial trial = trial_new(-1);
  struct error error;
  for (int64_t process = 0; process < 3; process++) {
    cr_assert(feed(&trial, STAGE_FINAL, process, 2, 1, NULL));
    cr_assert(feed(&trial, STAGE_FINAL, process, 3, 0.5, NULL));
  }
  decide(&trial);
  cr_assert(trial.tuning.is_decided);
  if (winner_fails)
    cr_assert(feed(&trial, STAGE_FINAL, 3, 3, 0, "killed"));
  error_set(&error, "the fourth process failed");
  key_tuning_fail(&trial.tuning, &error);
  cr_expect(trial.tuning.is_ended);
  return trial;
}

Test(key_tuning, a_verdict_outlives_a_later_process_that_fails) {
  struct trial trial = decided_trial_failed(false);
  cr_expect(trial.tuning.is_decided);
  cr_expect_null(trial.tuning.failure);
  trial_end(&trial);
}

Test(key_tuning,
     a_winner_that_fails_in_a_later_process_is_none_even_where_nothing_is_decided_again) {
  struct trial trial = decided_trial_failed(true);
  cr_expect_not(trial.tuning.is_decided);
  cr_expect_str_eq(trial.tuning.failure, "the fourth process failed");
  trial_end(&trial);
}

Test(key_tuning, processes_that_do_not_agree_get_one_more) {
  struct trial trial = trial_new(-1);
  for (int64_t process = 0; process < 3; process++) {
    cr_assert(feed(&trial, STAGE_FINAL, process, 2, 1, NULL));
    cr_assert(feed(&trial, STAGE_FINAL, process, 3, process % 2 ? 2 : 0.5, NULL));
  }
  decide(&trial);
  cr_expect(trial.tuning.is_decided && !trial.tuning.is_ended);
  cr_expect_not(verdict_is_settled(&trial.tuning.verdict));
  cr_expect_eq(trial.tuning.n_racing, 2);
  trial_end(&trial);
}

/* Where nothing was correct in three processes there is no verdict yet: as the server's jobs, a key
 * has one more. */
Test(key_tuning, a_finalist_without_enough_processes_gets_one_more) {
  struct trial trial = trial_new(-1);
  for (int64_t process = 0; process < 2; process++)
    cr_assert(feed(&trial, STAGE_FINAL, process, 3, 0.5, NULL));
  trial.tuning.n_processes = 3;
  cleanup_campaign_step struct campaign_step step = next_of(&trial, STAGE_FINAL, CONFIGS);
  cr_assert_eq(step.kind, CAMPAIGN_FINAL);
  cr_expect(step.first_process == 3 && step.n_processes == 1 && !step.has_verdict);
  key_tuning_apply(&trial.tuning, &step);
  cr_expect(!trial.tuning.is_ended && trial.tuning.n_racing == 1);
  trial_end(&trial);
}

Test(key_tuning, the_best_of_the_keys_before_are_warm_starts) {
  struct trial trial = trial_new(-1), before[3] = {trial_new(-1), trial_new(-1), trial_new(-1)};
  struct key_tuning keys[3];
  cr_assert(feed(&before[0], STAGE_SCREEN, 0, 5, 0.5, NULL));
  cr_assert(feed(&before[0], STAGE_SCREEN, 0, 4, 0.6, NULL));
  cr_assert(feed(&before[2], STAGE_SCREEN, 0, 1, 0.5, NULL));
  for (size_t i = 0; i < 3; i++)
    keys[i] = before[i].tuning;
  uint64_t found[WARM_STARTS_MAX];
  cr_assert_eq(key_tuning_warm_starts(&trial.tuning, keys, 3, found), 2);
  cr_expect_eq(found[0], 1, "of equally near keys the newest is first");
  cr_expect_eq(found[1], 5);
  for (size_t i = 0; i < 3; i++)
    trial_end(&before[i]);
  trial_end(&trial);
}

Test(key_tuning, a_baseline_that_does_not_work_ends_the_key) {
  struct trial trial = trial_new(-1);
  struct lease lease = {.space = trial.space, .baseline = trial.tuning.baseline};
  struct measurement failure = {
      .config = 2, .outcome = OUTCOME_RUNTIME, .detail = (char *)"killed"};
  cr_expect(feed(&trial, STAGE_SCREEN, 0, 2, 0, "baseline: killed"),
            "the config of the same number may, whatever it says");
  failure.baseline_failed = true;
  cr_expect_not(key_tuning_take(&trial.tuning, &lease, &failure));
  cr_expect_str_eq(trial.tuning.baseline_failure, "killed");
  trial_end(&trial);
}

/* The baseline fails with the outcome; whether another config takes its place. */
static bool moves(struct trial *trial, enum outcome outcome) {
  struct space_facts facts = {.key = &trial->tuning.key};
  struct lease lease = {.space = trial->space, .baseline = trial->tuning.baseline};
  struct measurement failure = {.config = (int64_t)trial->tuning.baseline,
                                .outcome = outcome,
                                .detail = (char *)"it does not fit",
                                .baseline_failed = true};
  cr_expect_not(key_tuning_take(&trial->tuning, &lease, &failure));
  return key_tuning_move_baseline(&trial->tuning, trial->space, &facts);
}

Test(key_tuning, the_next_valid_config_replaces_a_baseline_that_does_not_run) {
  static const enum outcome outcomes[] = {OUTCOME_CONSTRAINTS, OUTCOME_COMPILE, OUTCOME_RUNTIME};
  static const uint64_t next[] = {0, 1, 3, 4, 5}; /* after the default, 2 */
  struct trial trial = trial_new(-1);
  for (size_t i = 0; i < ARRAY_LENGTH(next); i++) {
    cr_expect(moves(&trial, outcomes[i % ARRAY_LENGTH(outcomes)]));
    cr_expect_eq(trial.tuning.baseline, next[i]);
    cr_expect_null(trial.tuning.baseline_failure);
  }
  cr_expect_not(moves(&trial, OUTCOME_COMPILE), "it was the last one");
  cr_expect_str_eq(trial.tuning.baseline_failure, "it does not fit");
  trial_end(&trial);
}

Test(key_tuning, a_baseline_that_is_wrong_or_hangs_or_that_configs_were_compared_with_stays) {
  struct trial trial = trial_new(-1);
  cr_expect_not(moves(&trial, OUTCOME_CORRECTNESS));
  cr_expect_not(moves(&trial, OUTCOME_TIMEOUT));
  cr_assert(feed(&trial, STAGE_SCREEN, 0, 4, 0.5, NULL));
  cr_expect_not(moves(&trial, OUTCOME_CONSTRAINTS));
  cr_expect_eq(trial.tuning.baseline, 2);
  trial_end(&trial);
}

Test(key_tuning, a_search_finds_configs_of_its_batch_and_in_the_end_all) {
  struct trial trial = {.space = space_new(SPACE)};
  struct key_tuning *tuning = &trial.tuning;
  key_tuning_add(tuning, (uint64_t[]){4, 1}, 2);
  cr_assert(feed(&trial, STAGE_SCREEN, 0, 4, 0.5, NULL));
  key_tuning_add(tuning, (uint64_t[]){5, 0}, 2);
  cr_assert(feed(&trial, STAGE_SCREEN, 0, 0, 0.7, NULL));
  cr_expect_null(key_tuning_find(tuning, 4));
  key_tuning_all_added(tuning);
  for (size_t i = 0; i < 4; i++)
    cr_expect_eq(tuning->configs[i].config, ((uint64_t[]){0, 1, 4, 5})[i]);
  cr_expect(key_tuning_find(tuning, 4)->is_measured);
  cr_expect_not(key_tuning_find(tuning, 1)->is_measured);
  cr_expect_null(key_tuning_find(tuning, 3));
  trial_end(&trial);
}

/* Feeds what an agent reports of a config without a reference, in the screen. */
static void feed_agreement(struct trial *trial, uint64_t config, const char *agreement) {
  bool disagrees = string_equal(agreement, "disagrees");
  double times_us[] = {100, 100};
  struct lease lease = {.space = trial->space, .baseline = trial->tuning.baseline};
  struct measurement measurement;
  measurement_init(&measurement);
  cleanup_json json_t *conditions = measurement.conditions =
      json_pack("{s:s}", "agreement", agreement);
  measurement.config = (int64_t)config;
  measurement.outcome = disagrees ? OUTCOME_CORRECTNESS : OUTCOME_CORRECT;
  measurement.detail = disagrees ? (char *)"y[3] is 5" : NULL;
  measurement.samples_us = measurement.baseline_us = (struct numbers){disagrees ? 0 : 2, times_us};
  cr_assert(key_tuning_take(&trial->tuning, &lease, &measurement));
}

Test(key_tuning, without_a_majority_that_agrees_with_the_default_nothing_wins) {
  struct trial trial = trial_new(-1);
  feed_agreement(&trial, 2, "bitwise");
  feed_agreement(&trial, 0, "disagrees");
  feed_agreement(&trial, 1, "disagrees");
  cleanup_campaign_step struct campaign_step step = next_of(&trial, STAGE_SCREEN, CONFIGS);
  cr_expect_eq(step.kind, CAMPAIGN_DISAGREED);
  key_tuning_apply(&trial.tuning, &step);
  cr_expect(trial.tuning.is_ended && !trial.tuning.is_decided);
  cr_expect_str_eq(trial.tuning.failure,
                   "configs disagree: 2 of 3 differ from the default; nothing is published; look "
                   "at the kernel with its default config: y[3] is 5");
  trial_end(&trial);
}

Test(key_tuning, a_default_that_the_interpreter_confirms_may_be_in_the_minority) {
  struct agreement_summary summary = {.agree = 1, .disagree = 2};
  struct error reason;
  summary.of_default.with_default = AGREEMENT_BITWISE;
  summary.baseline = summary.of_default;
  cr_expect(agreement_refuses(&summary, &reason));
  summary.of_default.interpreted = AGREEMENT_AGREES;
  cr_expect_not(agreement_refuses(&summary, &reason));
}

Test(key_tuning, a_default_that_the_interpreter_contradicts_is_the_reason) {
  struct trial trial = trial_new(-1);
  struct lease lease = {.space = trial.space, .baseline = trial.tuning.baseline};
  cleanup_json json_t *conditions = json_pack("{s:s}", "interpreted", "disagrees");
  struct measurement failure = {.config = 2,
                                .outcome = OUTCOME_CORRECTNESS,
                                .detail = (char *)"y[3] is 5",
                                .baseline_failed = true,
                                .conditions = conditions};
  struct error reason;
  cr_expect_not(key_tuning_take(&trial.tuning, &lease, &failure));
  struct agreement_summary summary = key_tuning_agreement(&trial.tuning);
  cr_assert(agreement_refuses(&summary, &reason));
  cr_expect(strstr(reason.message, "Triton's interpreter computes; nothing is published") &&
                strstr(reason.message, ": y[3] is 5"),
            "%s", reason.message);
  trial_end(&trial);
}

Test(key_tuning, a_verdict_does_not_outlive_configs_that_disagree_later) {
  struct trial trial = trial_new(-1);
  for (int64_t process = 0; process < 3; process++) {
    cr_assert(feed(&trial, STAGE_FINAL, process, 2, 1, NULL));
    cr_assert(feed(&trial, STAGE_FINAL, process, 3, process % 2 ? 2 : 0.5, NULL));
  }
  decide(&trial);
  cr_assert(trial.tuning.is_decided && !trial.tuning.is_ended);
  feed_agreement(&trial, 0, "disagrees");
  feed_agreement(&trial, 1, "disagrees");
  decide(&trial);
  cr_expect(trial.tuning.is_ended && !trial.tuning.is_decided);
  cr_expect(string_starts(trial.tuning.failure, "configs disagree: "), "%s", trial.tuning.failure);
  trial_end(&trial);
}
