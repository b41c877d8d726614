/* The workers of an executor: when they are kept and replaced, and whether their device is
 * trusted. */
#include "lease_trial.h"

Test(agent_lease_workers, fails_on_a_device_that_is_not_there) {
  struct trial trial = trial_new("", 1, STAGE_SCREEN);
  trial.executor.device = "gpu7";
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_FAILED);
  cr_expect_not_null(strstr(trial.error.message, "gpu7 is not trusted: "), "%s",
                     trial.error.message);
  cr_expect(trial.executor.is_suspect);
  cr_expect_eq(trial.n, 0);
  trial_free(&trial);
}

Test(agent_lease_workers, keeps_a_screens_worker_for_the_next_lease_of_the_job) {
  struct trial trial = trial_new(NOTE_PID, 3, STAGE_SCREEN);
  cleanup_free char *path = test_file(&trial);
  trial.leases = 2;
  trial_run(&trial);
  cr_expect_eq(trial.n, 6);
  cr_expect_eq(count_processes(path), 1);
  trial_free(&trial);
}

Test(agent_lease_workers, replaces_a_screens_worker_after_so_many_configs) {
  struct trial trial = trial_new(NOTE_PID, 4, STAGE_SCREEN);
  cleanup_free char *path = test_file(&trial);
  trial.executor.configs_per_worker = 2;
  trial_run(&trial);
  cr_expect_eq(trial.n, 4);
  cr_expect_eq(count_processes(path), 2);
  trial_free(&trial);
}

Test(agent_lease_workers, measures_each_final_in_a_fresh_worker) {
  struct trial trial = trial_new(NOTE_PID, 2, STAGE_FINAL);
  cleanup_free char *path = test_file(&trial);
  trial.leases = 2;
  trial_run(&trial);
  cr_expect_eq(trial.n, 4);
  cr_expect_eq(count_processes(path), 2);
  trial_free(&trial);
}

Test(agent_lease_workers, suspects_the_device_when_the_baseline_stops_working) {
  /* Config 1 breaks the device: it makes a file, and the baseline dies where that file exists. */
  struct trial trial =
      trial_new("const char *broken = getenv(\"WAVETUNE_TEST_FILE\");\n"
                "  if (MODE == 1) { fclose(fopen(broken, \"w\")); kill(getpid(), SIGKILL); }\n"
                "  if (MODE == 0 && access(broken, F_OK) == 0) kill(getpid(), SIGKILL);",
                3, STAGE_SCREEN);
  cleanup_free char *path = test_file(&trial);
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_FAILED);
  cr_expect_not_null(
      strstr(trial.error.message, "worked at the start of the lease and no longer does"), "%s",
      trial.error.message);
  cr_expect_eq(trial.n, 1);
  expect_outcome(&trial, 1, OUTCOME_RUNTIME, "killed by signal 9");
  trial_free(&trial);
}

Test(agent_lease_workers, opens_once_more_when_the_first_worker_dies_for_another_reason) {
  struct trial trial = trial_new(
      "const char *once = getenv(\"WAVETUNE_TEST_FILE\");\n"
      "  if (access(once, F_OK) != 0) { fclose(fopen(once, \"w\")); kill(getpid(), SIGKILL); }",
      2, STAGE_SCREEN);
  cleanup_free char *path = test_file(&trial);
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_DONE);
  expect_correct(&trial, 1, SCREEN_ROUNDS);
  trial_free(&trial);
}

Test(agent_lease_workers, hides_the_token_from_kernels) {
  struct trial trial =
      trial_new("if (getenv(\"WAVETUNE_TOKEN\")) kill(getpid(), SIGKILL);", 1, STAGE_SCREEN);
  setenv("WAVETUNE_TOKEN", "wt_secret", 1);
  trial_run(&trial);
  expect_correct(&trial, 0, SCREEN_ROUNDS);
  trial_free(&trial);
}

static int sentinel_work(struct supervisor *supervisor, void *context) {
  struct trial *trial = context;
  trial->executor.spawner = supervisor->spawner;
  trial->end =
      executor_sentinel(&trial->executor, NULL, NULL, &trial->error) ? LEASE_DONE : LEASE_FAILED;
  return 0;
}

static enum lease_end sentinel_on(struct trial *trial, const char *device) {
  struct supervisor supervisor = {.work = sentinel_work, .context = trial};
  trial->executor.device = device;
  cr_assert_eq(supervise(&supervisor), 0);
  return trial->end;
}

Test(agent_lease_workers, a_device_that_works_passes_its_sentinel) {
  struct trial trial = trial_new("", 1, STAGE_SCREEN);
  cr_expect_eq(sentinel_on(&trial, "cpu0"), LEASE_DONE, "%s", trial.error.message);
  trial_free(&trial);
}

Test(agent_lease_workers, a_device_that_is_not_there_does_not_pass_its_sentinel) {
  struct trial trial = trial_new("", 1, STAGE_SCREEN);
  cr_expect_eq(sentinel_on(&trial, "gpu7"), LEASE_FAILED);
  cr_expect_not_null(strstr(trial.error.message, "gpu7 does not pass its sentinel: no device gpu7"),
                     "%s", trial.error.message);
  trial_free(&trial);
}

Test(agent_lease_workers, a_sentinel_that_hangs_is_not_passed) {
  struct trial trial = trial_new("", 1, STAGE_SCREEN);
  trial.executor.limits.open_ms = 0;
  cr_expect_eq(sentinel_on(&trial, "cpu0"), LEASE_FAILED);
  cr_expect_not_null(
      strstr(trial.error.message, "cpu0 does not pass its sentinel: the worker was killed after"),
      "%s", trial.error.message);
  trial_free(&trial);
}

Test(agent_lease_workers, suspects_a_gpu_whose_workers_die_before_the_first_turn) {
  struct trial trial = trial_new("", 1, STAGE_SCREEN);
  trial.executor.is_gpu = true;
  trial.executor.limits.open_ms = 0;
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_FAILED);
  cr_expect(trial.executor.is_suspect);
  cr_expect_not_null(strstr(trial.error.message, "cpu0 is not trusted: "), "%s",
                     trial.error.message);
  cr_expect_eq(trial.n, 0, "the baseline is not to blame");
  trial_free(&trial);
}

Test(agent_lease_workers, can_be_stopped_while_a_device_does_not_pass_its_sentinel) {
  struct trial trial = trial_new("", 1, STAGE_SCREEN);
  trial.executor.device = "gpu7";
  trial.stop_at_poll = 40;
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_STOPPED);
  cr_expect_not(trial.executor.is_suspect);
  trial_free(&trial);
}
