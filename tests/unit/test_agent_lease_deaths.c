/* Leases with configs that kill or hang the worker: these configs get their outcome, all others
 * their measurement. */
#include "lease_trial.h"

Test(agent_lease_deaths, continues_after_a_config_that_crashes_while_it_is_checked) {
  struct trial trial = trial_new("if (MODE == 1) kill(getpid(), SIGKILL);", 3, STAGE_SCREEN);
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_DONE);
  expect_outcome(&trial, 1, OUTCOME_RUNTIME, "killed by signal 9 (Killed) while checking");
  expect_correct(&trial, 0, SCREEN_ROUNDS);
  expect_correct(&trial, 2, SCREEN_ROUNDS);
  trial_free(&trial);
}

Test(agent_lease_deaths, names_the_exit_of_a_config_that_exits) {
  struct trial trial = trial_new("if (MODE == 1) _exit(3);", 2, STAGE_SCREEN);
  trial_run(&trial);
  expect_outcome(&trial, 1, OUTCOME_RUNTIME, "exited with code 3 while checking");
  trial_free(&trial);
}

Test(agent_lease_deaths, continues_after_a_config_that_hangs) {
  struct trial trial = trial_new("if (MODE == 1) for (;;) sleep(1);", 3, STAGE_SCREEN);
  trial.executor.limits.config_ms = 4000;
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_DONE);
  expect_outcome(&trial, 1, OUTCOME_TIMEOUT, "killed after 4 s of checking");
  expect_correct(&trial, 2, SCREEN_ROUNDS);
  cr_expect(trial.seen_at_work & 2, "the config at work can be named in a renewal");
  trial_free(&trial);
}

Test(agent_lease_deaths, limits_each_turn_of_timing_and_not_their_sum) {
  struct trial trial = trial_new("usleep(500000);", 1, STAGE_SCREEN);
  trial.executor.limits.config_ms = 3500; /* SCREEN_ROUNDS pairs take 4000 */
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_DONE);
  expect_correct(&trial, 0, SCREEN_ROUNDS);
  trial_free(&trial);
}

Test(agent_lease_deaths, ends_with_the_baselines_outcome_when_it_crashes) {
  struct trial trial = trial_new("if (MODE == 0) kill(getpid(), SIGKILL);", 2, STAGE_SCREEN);
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_DONE);
  cr_expect_eq(trial.n, 1);
  expect_outcome(&trial, 0, OUTCOME_RUNTIME, "baseline: killed by signal 9");
  trial_free(&trial);
}

Test(agent_lease_deaths, ends_with_the_baselines_outcome_when_it_hangs) {
  struct trial trial = trial_new("if (MODE == 0) for (;;) sleep(1);", 2, STAGE_FINAL);
  trial.executor.limits.config_ms = 300;
  trial_run(&trial);
  cr_expect_eq(trial.n, 1);
  expect_outcome(&trial, 0, OUTCOME_TIMEOUT, "baseline: killed after 0.3 s");
  trial_free(&trial);
}

Test(agent_lease_deaths, measures_the_rest_of_a_final_again_without_the_one_that_crashed_it) {
  /* The first calls check and warm up: it dies in the middle of the timing, when others have
   * samples already. */
  struct trial trial =
      trial_new("if (MODE == 1 && calls > 50) kill(getpid(), SIGKILL);", 3, STAGE_FINAL);
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_DONE);
  cr_expect_eq(trial.n, 3);
  expect_outcome(&trial, 1, OUTCOME_RUNTIME, "killed by signal 9 (Killed) while timing");
  expect_correct(&trial, 0, FINAL_ROUNDS);
  expect_correct(&trial, 2, FINAL_ROUNDS);
  trial_free(&trial);
}

Test(agent_lease_deaths, measures_the_rest_of_a_final_again_without_the_one_that_hung) {
  struct trial trial = trial_new("if (MODE == 2 && calls > 50) for (;;) sleep(1);", 3, STAGE_FINAL);
  trial.executor.limits.config_ms = 4000;
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_DONE);
  expect_outcome(&trial, 2, OUTCOME_TIMEOUT, "s of timing");
  expect_correct(&trial, 0, FINAL_ROUNDS);
  expect_correct(&trial, 1, FINAL_ROUNDS);
  trial_free(&trial);
}

/* The baseline, which is not among the finalists 1 and 2, dies when `condition` on the modes that
 * have run in its process (bits of `ran`) holds. */
static struct trial trial_with_mortal_baseline(const char *condition) {
  cleanup_free char *body =
      xasprintf("const char *trace = getenv(\"WAVETUNE_TEST_FILE\");\n"
                "  char path[300];\n"
                "  int ran = 0;\n"
                "  snprintf(path, sizeof path, \"%%s.%%d.%%d\", trace, MODE, (int)getpid());\n"
                "  if (MODE != 0 && calls == 1) fclose(fopen(path, \"w\"));\n"
                "  for (int mode = 1; mode < 3; mode++) {\n"
                "    snprintf(path, sizeof path, \"%%s.%%d.%%d\", trace, mode, (int)getpid());\n"
                "    ran |= (access(path, F_OK) == 0) << mode;\n"
                "  }\n"
                "  if (MODE == 0 && (%s)) kill(getpid(), SIGKILL);",
                condition);
  struct trial trial = trial_new(body, 3, STAGE_FINAL);
  config_ranges_release(&trial.lease.configs);
  config_ranges_add(&trial.lease.configs, 1);
  config_ranges_add(&trial.lease.configs, 2);
  return trial;
}

Test(agent_lease_deaths, finds_the_finalist_that_kills_the_baseline) {
  struct trial trial = trial_with_mortal_baseline("ran & 2");
  cleanup_free char *path = test_file(&trial);
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_DONE);
  cr_expect_eq(trial.n, 2);
  expect_outcome(&trial, 1, OUTCOME_RUNTIME,
                 "the worker died with this config alone, in 2 processes: killed by signal 9");
  expect_correct(&trial, 2, FINAL_ROUNDS);
  trial_free(&trial);
}

Test(agent_lease_deaths, reports_no_finalist_when_the_baseline_dies_with_none_of_them_alone) {
  struct trial trial = trial_with_mortal_baseline("ran == 6");
  cleanup_free char *path = test_file(&trial);
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_FAILED);
  cr_expect_eq(trial.n, 0);
  cr_expect_not_null(strstr(trial.error.message, "with none of them alone"), "%s",
                     trial.error.message);
  trial_free(&trial);
}

Test(agent_lease_deaths,
     measures_again_the_config_whose_baseline_an_earlier_one_of_the_worker_killed) {
  /* Config 1 works and leaves something behind at which the baseline dies, when config 2 is
   * measured. */
  struct trial trial = trial_new(
      "char path[300];\n"
      "  snprintf(path, sizeof path, \"%s.%d\", getenv(\"WAVETUNE_TEST_FILE\"), (int)getpid());\n"
      "  if (MODE == 2 && calls == 1 && access(path, F_OK) == 0) rename(path, strcat(path, "
      "\"x\"));\n"
      "  if (MODE == 1 && calls == 1) fclose(fopen(path, \"w\"));\n"
      "  if (MODE == 0 && access(strcat(path, \"x\"), F_OK) == 0) kill(getpid(), SIGKILL);",
      3, STAGE_SCREEN);
  cleanup_free char *path = test_file(&trial);
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_DONE);
  cr_expect_eq(trial.n, 3);
  expect_correct(&trial, 1, SCREEN_ROUNDS);
  expect_correct(&trial, 2, SCREEN_ROUNDS);
  trial_free(&trial);
}

/* Like a worker that finds its device lost: the page names no config when it exits. */
#define DIES_FOR_NOBODY                                                                            \
  " uint64_t *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, 4, 0); *page = "            \
  "UINT64_MAX; _exit(3); "

Test(agent_lease_deaths, measures_again_after_a_death_in_the_turn_of_no_config) {
  struct trial trial =
      trial_new("if (MODE == 1 && calls == 1 && access(getenv(\"WAVETUNE_TEST_FILE\"), F_OK)) {"
                "fclose(fopen(getenv(\"WAVETUNE_TEST_FILE\"), \"w\"));" DIES_FOR_NOBODY "}",
                2, STAGE_SCREEN);
  cleanup_free char *path = test_file(&trial);
  config_ranges_release(&trial.lease.configs);
  config_ranges_add(&trial.lease.configs, 1);
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_DONE);
  expect_correct(&trial, 1, SCREEN_ROUNDS);
  trial_free(&trial);
}

Test(agent_lease_deaths, reports_a_config_when_workers_keep_dying_with_it_alone) {
  struct trial trial = trial_new("if (MODE == 1) {" DIES_FOR_NOBODY "}", 3, STAGE_SCREEN);
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_DONE);
  expect_outcome(&trial, 1, OUTCOME_RUNTIME, "exited with code 3");
  expect_correct(&trial, 2, SCREEN_ROUNDS);
  trial_free(&trial);
}

/* A kernel whose config 1 kills its worker. It also replaces ROCdebug-agent: run under it, the
 * kernel writes what that would print to the file that the options name. */
#define FAULT_AND_TELL                                                                             \
  "const char *o = getenv(\"ROCM_DEBUG_AGENT_OPTIONS\");"                                          \
  "if (MODE == 1 && o) {"                                                                          \
  "  char path[4096]; const char *from = strstr(o, \"--output=\") + 9;"                            \
  "  snprintf(path, sizeof path, \"%.*s\", (int)strcspn(from, \" \"), from);"                      \
  "  FILE *f = fopen(path, \"w\"); fputs(\"wave_1: pc=0x40 (stopped, reason: "                     \
  "MEMORY_VIOLATION)\\n\", f); fclose(f);"                                                         \
  "}"                                                                                              \
  "if (MODE == 1) kill(getpid(), SIGABRT);"

Test(agent_lease_deaths, runs_a_config_that_killed_its_worker_under_a_debug_agent) {
  struct trial trial = trial_new(FAULT_AND_TELL, 3, STAGE_SCREEN);
  cleanup_free char *faults = xasprintf("%s/faults", trial.fixture.folder);
  setenv("WAVETUNE_DEBUG_AGENT", "/proc/self/exe", 1); /* any file that exists */
  trial.executor.faults = faults;
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_DONE);
  expect_outcome(&trial, 1, OUTCOME_RUNTIME,
                 "killed by signal 6 (Aborted) while checking; run again alone: 1 wave stopped by "
                 "MEMORY_VIOLATION, the "
                 "first at pc 0x40; not disassembled: the debug agent does not say which code "
                 "object pc 0x40 is in (");
  expect_correct(&trial, 2, SCREEN_ROUNDS);
  trial_free(&trial);
}

/* That user can neither write to the agent's folder nor enter it. */
Test(agent_lease_deaths, keeps_a_debug_agents_files_of_another_user) {
  if (geteuid() != 0)
    cr_skip("only root can let workers be another user");
  struct trial trial = trial_new(FAULT_AND_TELL, 3, STAGE_SCREEN);
  cleanup_free char *faults = xasprintf("%s/faults", trial.fixture.folder);
  struct error error;
  cr_assert(custody_set_user(&trial.custody, "nobody", &error), "%s", error.message);
  setenv("WAVETUNE_DEBUG_AGENT", "/proc/self/exe", 1);
  trial.executor.faults = faults;
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_DONE);
  expect_outcome(&trial, 1, OUTCOME_RUNTIME,
                 "killed by signal 6 (Aborted) while checking; run again alone: 1 wave stopped by "
                 "MEMORY_VIOLATION");
  trial_free(&trial);
}

Test(agent_lease_deaths, reports_that_the_debug_agent_found_no_fault) {
  struct trial trial = trial_new("if (MODE == 1) kill(getpid(), SIGABRT);", 2, STAGE_SCREEN);
  cleanup_free char *faults = xasprintf("%s/faults", trial.fixture.folder);
  setenv("WAVETUNE_DEBUG_AGENT", "/proc/self/exe", 1);
  trial.executor.faults = faults;
  trial_run(&trial);
  expect_outcome(&trial, 1, OUTCOME_RUNTIME, "run again alone: the debug agent reported no fault");
  trial_free(&trial);
}

Test(agent_lease_deaths, reports_that_the_debug_agent_has_no_folder) {
  struct trial trial = trial_new("if (MODE == 1) kill(getpid(), SIGABRT);", 2, STAGE_SCREEN);
  setenv("WAVETUNE_DEBUG_AGENT", "/proc/self/exe", 1);
  trial.executor.faults = "/dev/null/faults";
  trial_run(&trial);
  expect_outcome(&trial, 1, OUTCOME_RUNTIME, "run again alone: no folder for the debug agent: ");
  trial_free(&trial);
}

Test(agent_lease_deaths, limits_how_many_configs_it_runs_again) {
  struct trial trial = trial_new("if (MODE == 1) kill(getpid(), SIGABRT);", 2, STAGE_SCREEN);
  cleanup_free char *faults = xasprintf("%s/faults", trial.fixture.folder);
  setenv("WAVETUNE_DEBUG_AGENT", "/proc/self/exe", 1);
  trial.executor.faults = faults;
  trial.executor.n_reruns = 8;
  trial_run(&trial);
  cr_expect_null(strstr(measured_of(&trial, 1)->detail, "run again"));
  trial_free(&trial);
}

#define WRITES_BEHIND_ITS_BUFFER "if (MODE == 1) y[n] = 7;"

Test(agent_lease_deaths, a_screen_continues_in_a_fresh_worker_after_a_write_out_of_bounds) {
  struct trial trial = trial_new(WRITES_BEHIND_ITS_BUFFER NOTE_PID, 3, STAGE_SCREEN);
  cleanup_free char *path = test_file(&trial);
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_DONE);
  expect_outcome(&trial, 1, OUTCOME_CORRECTNESS, "a byte outside of the buffer was written");
  expect_correct(&trial, 2, SCREEN_ROUNDS);
  cr_expect_eq(count_processes(path), 2);
  trial_free(&trial);
}

Test(agent_lease_deaths, a_final_is_measured_again_without_a_config_that_wrote_out_of_bounds) {
  struct trial trial = trial_new(WRITES_BEHIND_ITS_BUFFER NOTE_PID, 3, STAGE_FINAL);
  cleanup_free char *path = test_file(&trial);
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_DONE);
  cr_expect_eq(trial.n, 3);
  expect_outcome(&trial, 1, OUTCOME_CORRECTNESS, "a byte outside of the buffer was written");
  expect_correct(&trial, 0, FINAL_ROUNDS);
  expect_correct(&trial, 2, FINAL_ROUNDS);
  cr_expect_eq(count_processes(path), 2);
  trial_free(&trial);
}
