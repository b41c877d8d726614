/* Executing leases: every config gets its measurement, as the stage requires. */
#include "lease_trial.h"

Test(agent_lease_execute, measures_every_config_of_a_screen) {
  struct trial trial = trial_new("", 3, STAGE_SCREEN);
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_DONE);
  cr_expect_eq(trial.n, 3);
  for (uint64_t config = 0; config < 3; config++)
    expect_correct(&trial, config, SCREEN_ROUNDS);
  trial_free(&trial);
}

Test(agent_lease_execute, compiles_within_a_window_ahead) {
  struct trial trial = trial_new("", 5, STAGE_SCREEN);
  trial.executor.compiles_first = false;
  trial.executor.compile_window = 1;
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_DONE);
  cr_expect_eq(trial.n, 5);
  trial_free(&trial);
}

Test(agent_lease_execute, distinguishes_compile_errors_from_wrong_results) {
  struct trial trial = trial_new(
      "\n#if MODE == 1\n#error not this one\n#endif\n if (MODE == 2) { y[0] = 5; return; }", 4,
      STAGE_SCREEN);
  trial_run(&trial);
  expect_outcome(&trial, 1, OUTCOME_COMPILE, "not this one");
  cr_expect_eq(measured_of(&trial, 2)->outcome, OUTCOME_CORRECTNESS);
  expect_correct(&trial, 3, SCREEN_ROUNDS);
  trial_free(&trial);
}

Test(agent_lease_execute, ends_with_the_baselines_outcome_when_it_does_not_compile) {
  struct trial trial = trial_new("\n#if MODE == 0\n#error broken\n#endif\n", 3, STAGE_SCREEN);
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_DONE);
  cr_expect_eq(trial.n, 1);
  expect_outcome(&trial, 0, OUTCOME_COMPILE, "baseline: ");
  trial_free(&trial);
}

Test(agent_lease_execute, ends_with_the_baselines_outcome_when_it_is_wrong) {
  struct trial trial = trial_new("if (MODE == 0) { y[0] = 5; return; }", 2, STAGE_FINAL);
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_DONE);
  cr_expect_eq(trial.n, 1);
  expect_outcome(&trial, 0, OUTCOME_CORRECTNESS, "baseline: ");
  trial_free(&trial);
}

/* The element is not among the samples: it is found when the other config's output is compared with
 * it. */
Test(agent_lease_execute,
     ends_with_the_baselines_outcome_when_another_config_shows_that_it_is_wrong) {
  static const enum stage stages[] = {STAGE_SCREEN, STAGE_FINAL};
  for (size_t i = 0; i < ARRAY_LENGTH(stages); i++) {
    struct trial trial = trial_new("if (MODE == 0) { for (int64_t i = 0; i < n; i++) y[i] = i == n "
                                   "/ 2 ? 5 : x[i] + 1; return; }",
                                   2, stages[i]);
    trial_run(&trial);
    cr_expect_eq(trial.end, LEASE_DONE);
    cr_expect_eq(trial.n, 1);
    expect_outcome(&trial, 0, OUTCOME_CORRECTNESS, "baseline: y[");
    trial_free(&trial);
  }
}

Test(agent_lease_execute, names_the_option_when_a_reference_takes_too_long) {
  struct trial trial = trial_new("", 1, STAGE_SCREEN);
  fixture_free(&trial.fixture);
  trial.fixture = fixture_new(
      FIXTURE_GOOD,
      (struct fixture_options){
          .reference = "#include <stdint.h>\n#include <unistd.h>\ndouble f_at(int64_t i, "
                       "float *y, const float *x, int64_t n) { return sleep(1000); }\n"});
  trial.executor.pool = trial.fixture.pool;
  trial.lease.kernel = trial.fixture.kernel;
  trial.lease.sources = trial.fixture.folder;
  trial.lease.key = trial.fixture.key;
  trial.lease.space = trial.fixture.space;
  trial.executor.limits.open_ms = 300;
  trial_run(&trial);
  expect_outcome(&trial, 0, OUTCOME_TIMEOUT,
                 "baseline: killed after 0.3 s of opening (--open-timeout)");
  trial_free(&trial);
}

Test(agent_lease_execute, measures_all_of_a_final_in_shared_rounds) {
  struct trial trial = trial_new("", 3, STAGE_FINAL);
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_DONE);
  cr_expect_eq(trial.n, 3);
  for (uint64_t config = 0; config < 3; config++)
    expect_correct(&trial, config, FINAL_ROUNDS);
  trial_free(&trial);
}

Test(agent_lease_execute, leaves_configs_that_fail_out_of_a_final) {
  struct trial trial = trial_new(
      "\n#if MODE == 1\n#error not this one\n#endif\n if (MODE == 2) { y[0] = 5; return; }", 4,
      STAGE_FINAL);
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_DONE);
  cr_expect_eq(trial.n, 4);
  expect_outcome(&trial, 1, OUTCOME_COMPILE, "not this one");
  cr_expect_eq(measured_of(&trial, 2)->outcome, OUTCOME_CORRECTNESS);
  expect_correct(&trial, 3, FINAL_ROUNDS);
  trial_free(&trial);
}

Test(agent_lease_execute, stops_between_batches) {
  struct trial trial = trial_new("", 3, STAGE_SCREEN);
  trial.executor.configs_per_worker = 1;
  trial.stop_after = 1;
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_STOPPED);
  cr_expect_eq(trial.n, 1);
  trial_free(&trial);
}

Test(agent_lease_execute, stops_while_a_config_is_running) {
  struct trial trial = trial_new("if (MODE == 1) for (;;) sleep(1);", 2, STAGE_SCREEN);
  trial.executor.limits.config_ms = 3600 * 1000;
  config_ranges_release(&trial.lease.configs);
  config_ranges_add(&trial.lease.configs, 1);
  trial.stop_at_work = true;
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_STOPPED);
  cr_expect_eq(trial.n, 0);
  trial_free(&trial);
}

Test(agent_lease_execute, stops_when_the_hook_refuses_a_measurement) {
  struct trial trial = trial_new("", 3, STAGE_FINAL);
  trial.refuse_after = 2;
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_STOPPED);
  cr_expect_eq(trial.n, 2);
  trial_free(&trial);
}

Test(agent_lease_execute, fails_and_reports_no_config_when_nothing_can_be_compiled) {
  struct trial trial = trial_new("", 2, STAGE_SCREEN);
  struct error error;
  cleanup_free char *cache = xasprintf("%s/cache", trial.fixture.folder);
  cr_assert(folder_remove(cache, &error), "%s", error.message);
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_FAILED);
  cr_expect_not_null(strstr(trial.error.message, "cannot compile test here"), "%s",
                     trial.error.message);
  cr_expect_eq(trial.n, 0);
  trial_free(&trial);
}

Test(agent_lease_execute, stops_while_a_compile_would_run_on) {
  struct trial trial =
      trial_new("\n#if MODE == 1\n#define a(x) x x x x\n#define b(x) a(a(a(a(x))))\n"
                "int y = b(b(b(b(+)))) 1;\n#endif\n",
                2, STAGE_SCREEN);
  compile_pool_set_timeout(trial.fixture.pool, 3600 * 1000);
  trial.stop_at_poll = 20;
  trial_run(&trial); /* returns */
  cr_expect_eq(trial.end, LEASE_STOPPED);
  cr_expect_eq(trial.n, 0);
  trial_free(&trial);
}

Test(agent_lease_execute, measures_the_objects_of_a_build) {
  struct trial trial = trial_new("", 4, STAGE_SCREEN);
  struct build_objects objects = objects_of(&trial, (int64_t[]){0, 7, -1, 0}, 4);
  trial.lease.objects = &objects;
  trial.executor.compiles_first = false;
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_DONE);
  cr_assert_eq(trial.n, 4);
  expect_outcome(&trial, 2, OUTCOME_COMPILE, "was not packed");
  expect_correct(&trial, 3, SCREEN_ROUNDS);
  expect_correct(&trial, 1, SCREEN_ROUNDS);
  cr_expect_eq(measured_of(&trial, 1)->vgprs, 101);
  objects_free(&objects);
  trial_free(&trial);
}

Test(agent_lease_execute, a_baseline_without_an_object_in_the_build_ends_the_lease) {
  struct trial trial = trial_new("", 2, STAGE_FINAL);
  struct build_objects objects = objects_of(&trial, (int64_t[]){-1, 0}, 2);
  trial.lease.objects = &objects;
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_DONE);
  cr_expect_eq(trial.n, 1);
  expect_outcome(&trial, 0, OUTCOME_COMPILE, "baseline: was not packed");
  objects_free(&objects);
  trial_free(&trial);
}

Test(agent_lease_execute, names_the_code_of_a_config_on_a_gpu) {
  struct trial trial = trial_new("", 1, STAGE_FINAL);
  trial.executor.is_gpu = true;
  trial_run(&trial);
  cr_expect_neq(trial.measured[0].object[0], 0);
  cr_expect(access(trial.measured[0].object, R_OK) == 0, "%s", trial.measured[0].object);
  trial_free(&trial);
}

Test(agent_lease_execute, names_no_code_of_a_config_on_a_cpu) {
  struct trial trial = trial_new("", 1, STAGE_FINAL);
  trial_run(&trial);
  cr_expect_eq(trial.measured[0].object[0], 0);
  trial_free(&trial);
}
