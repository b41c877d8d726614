/* Executing leases: every config has its outcome, whatever it does to the worker. This program is its own worker. */
#include "agent/lease_execute.h"

#include "agent/supervise.h"
#include "agent_fixture.h"
#include "common/log.h"

/* The supervisor starts /proc/self/exe with "worker". */
__attribute__((constructor)) static void be_a_worker(int argc, char **argv) {
  if (argc == 2 && string_equal(argv[1], "worker"))
    exit(worker_main());
}

#define SCREEN_ROUNDS 4
#define FINAL_ROUNDS 7
#define MEASURED_MAX 16

struct measured {
  uint64_t config;
  enum outcome outcome;
  char detail[400];
  size_t n;
  bool has_timer, has_conditions;
  struct code_resources resources;
  char object[256];
};

/* A lease and what it yielded. */
struct trial {
  struct fixture fixture;
  struct executor executor;
  struct lease lease;
  size_t stop_after; /* measurements; 0: never */
  size_t refuse_after;
  bool stop_at_work;   /* as soon as a config is at work */
  size_t stop_at_poll; /* the so manieth time that it is asked for; 0: never */
  size_t n_polls;
  int leases; /* how often it is executed */
  size_t n;
  struct measured measured[MEASURED_MAX];
  uint64_t seen_at_work; /* a bit to each config */
  enum lease_end end;
  struct error error;
};

static bool trial_measured(void *context, const struct lease *lease, const struct measurement *measurement) {
  struct trial *trial = context;
  (void)lease;
  cr_assert_lt(trial->n, MEASURED_MAX);
  struct measured *measured = &trial->measured[trial->n++];
  *measured = (struct measured){.config = measurement->config,
                                .outcome = measurement->outcome,
                                .n = measurement->n,
                                .has_timer = measurement->timer != NULL,
                                .has_conditions = measurement->conditions != NULL,
                                .resources = measurement->resources};
  snprintf(measured->object, sizeof measured->object, "%s", measurement->object ? measurement->object : "");
  snprintf(measured->detail, sizeof measured->detail, "%s", measurement->detail ? measurement->detail : "");
  for (size_t i = 0; i < measurement->n; i++)
    cr_expect(measurement->samples_us[i] > 0 && measurement->baseline_us[i] > 0);
  return trial->refuse_after == 0 || trial->n < trial->refuse_after;
}

static bool trial_stopped(void *context) {
  struct trial *trial = context;
  uint64_t current = atomic_load(&trial->executor.current);
  if (current < 64)
    trial->seen_at_work |= UINT64_C(1) << current;
  if (trial->stop_at_poll && ++trial->n_polls >= trial->stop_at_poll)
    return true;
  if (trial->stop_at_work && current != WORKER_CONFIG_NONE)
    return true;
  return trial->stop_after && trial->n >= trial->stop_after;
}

static int trial_work(struct supervisor *supervisor, void *context) {
  struct trial *trial = context;
  struct lease_hooks hooks = {.context = trial, .measured = trial_measured, .stopped = trial_stopped};
  trial->executor.spawner = supervisor->spawner;
  for (int i = 0; i < trial->leases; i++)
    trial->end = lease_execute(&trial->executor, &trial->lease, &hooks, &trial->error);
  executor_drop_worker(&trial->executor);
  return 0;
}

/* A kernel with one parameter MODE of `modes` values 0, 1, …; `body` is C with MODE, y, x and n, called before the right
 * result is written. */
static struct trial trial_new(const char *body, int modes, enum stage stage) {
  log_set_level(LOG_LEVEL_ERROR);
  struct trial trial = {.leases = 1};
  cleanup_free char *source = xasprintf(
      "#include <stdint.h>\n#include <stdlib.h>\n#include <stdio.h>\n"
      "#include <unistd.h>\n#include <signal.h>\n#include <string.h>\n#include <sys/mman.h>\nstatic long calls;\n"
      "void f(float *y, const float *x, int64_t n) {\n  calls++;\n  %s\n"
      "  for (int64_t i = 0; i < n; i++) y[i] = x[i] + 1;\n}\n",
      body);
  cleanup_free char *values = xstrdup("0");
  for (int i = 1; i < modes; i++) {
    cleanup_free char *shorter = values;
    values = xasprintf("%s, %d", shorter, i);
  }
  cleanup_free char *space = xasprintf("{\"parameters\": {\"MODE\": [%s]}}", values);
  trial.fixture = fixture_new(source, (struct fixture_options){.space = space});
  trial.executor = (struct executor){
      .pool = trial.fixture.pool,
      .device = "cpu0",
      .gpu_name = "a CPU",
      .arch = "x86_64",
      .compiles_first = true,
      .limits = {.open_ms = 30000, .config_ms = 20000},
      .screen_rounds = SCREEN_ROUNDS,
      .final_rounds = FINAL_ROUNDS,
      .compile_window = 2,
      .configs_per_worker = 100,
      .current = WORKER_CONFIG_NONE,
  };
  static char nothing[] = "", warm[] = "warm";
  trial.lease = (struct lease){
      .id = nothing,
      .job = nothing,
      .kernel = trial.fixture.kernel,
      .sources = trial.fixture.folder,
      .key = trial.fixture.key,
      .space = trial.fixture.space,
      .stage = stage,
      .seed = 7,
      .regime = warm,
  };
  for (int i = 0; i < modes; i++)
    config_ranges_add(&trial.lease.configs, (uint64_t)i);
  return trial;
}

/* The file that $WAVETUNE_TEST_FILE names to kernels: how they leave a trace beyond their process. */
static char *test_file(const struct trial *trial) {
  char *path = xasprintf("%s/trace", trial->fixture.folder);
  setenv("WAVETUNE_TEST_FILE", path, 1);
  return path;
}

static void trial_run(struct trial *trial) {
  struct supervisor supervisor = {.work = trial_work, .context = trial};
  cr_assert_eq(supervise(&supervisor), 0);
}

static void trial_free(struct trial *trial) {
  config_ranges_release(&trial->lease.configs);
  fixture_free(&trial->fixture);
}

static const struct measured *measured_of(const struct trial *trial, uint64_t config) {
  const struct measured *found = NULL;
  for (size_t i = 0; i < trial->n; i++) {
    if (trial->measured[i].config == config) {
      cr_expect_null(found, "config %d was measured twice", (int)config);
      found = &trial->measured[i];
    }
  }
  cr_assert_not_null(found, "config %d was not measured", (int)config);
  return found;
}

static void expect_correct(const struct trial *trial, uint64_t config, size_t rounds) {
  const struct measured *measured = measured_of(trial, config);
  cr_expect_eq(measured->outcome, OUTCOME_CORRECT, "config %d: %s", (int)config, measured->detail);
  cr_expect_eq(measured->n, rounds);
  cr_expect(measured->has_timer);
}

static void expect_outcome(const struct trial *trial, uint64_t config, enum outcome outcome, const char *detail) {
  const struct measured *measured = measured_of(trial, config);
  cr_expect_eq(measured->outcome, outcome, "config %d is %s", (int)config, outcome_name(measured->outcome));
  cr_expect_not_null(strstr(measured->detail, detail), "config %d: %s", (int)config, measured->detail);
  cr_expect_eq(measured->n, 0);
}

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

Test(agent_lease_execute, goes_on_after_a_config_that_crashes_while_it_is_checked) {
  struct trial trial = trial_new("if (MODE == 1) kill(getpid(), SIGKILL);", 3, STAGE_SCREEN);
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_DONE);
  expect_outcome(&trial, 1, OUTCOME_RUNTIME, "killed by signal 9 (Killed) while checking");
  expect_correct(&trial, 0, SCREEN_ROUNDS);
  expect_correct(&trial, 2, SCREEN_ROUNDS);
  trial_free(&trial);
}

Test(agent_lease_execute, names_the_exit_of_a_config_that_exits) {
  struct trial trial = trial_new("if (MODE == 1) _exit(3);", 2, STAGE_SCREEN);
  trial_run(&trial);
  expect_outcome(&trial, 1, OUTCOME_RUNTIME, "exited with code 3 while checking");
  trial_free(&trial);
}

Test(agent_lease_execute, goes_on_after_a_config_that_hangs) {
  struct trial trial = trial_new("if (MODE == 1) for (;;) sleep(1);", 3, STAGE_SCREEN);
  trial.executor.limits.config_ms = 1000;
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_DONE);
  expect_outcome(&trial, 1, OUTCOME_TIMEOUT, "killed after 1 s of checking");
  expect_correct(&trial, 2, SCREEN_ROUNDS);
  cr_expect(trial.seen_at_work & 2, "the config at work can be named in a renewal");
  trial_free(&trial);
}

Test(agent_lease_execute, limits_each_turn_of_timing_and_not_their_sum) {
  struct trial trial = trial_new("usleep(100000);", 1, STAGE_SCREEN);
  trial.executor.limits.config_ms = 700; /* SCREEN_ROUNDS pairs take 800 */
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_DONE);
  expect_correct(&trial, 0, SCREEN_ROUNDS);
  trial_free(&trial);
}

Test(agent_lease_execute, tells_compile_errors_and_wrong_results_apart) {
  struct trial trial =
      trial_new("\n#if MODE == 1\n#error not this one\n#endif\n if (MODE == 2) { y[0] = 5; return; }", 4, STAGE_SCREEN);
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

Test(agent_lease_execute, ends_with_the_baselines_outcome_when_it_crashes) {
  struct trial trial = trial_new("if (MODE == 0) kill(getpid(), SIGKILL);", 2, STAGE_SCREEN);
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_DONE);
  cr_expect_eq(trial.n, 1);
  expect_outcome(&trial, 0, OUTCOME_RUNTIME, "baseline: killed by signal 9");
  trial_free(&trial);
}

Test(agent_lease_execute, ends_with_the_baselines_outcome_when_it_hangs) {
  struct trial trial = trial_new("if (MODE == 0) for (;;) sleep(1);", 2, STAGE_FINAL);
  trial.executor.limits.config_ms = 300;
  trial_run(&trial);
  cr_expect_eq(trial.n, 1);
  expect_outcome(&trial, 0, OUTCOME_TIMEOUT, "baseline: killed after 0.3 s");
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

Test(agent_lease_execute, names_the_option_when_a_reference_takes_too_long) {
  struct trial trial = trial_new("", 1, STAGE_SCREEN);
  fixture_free(&trial.fixture);
  trial.fixture = fixture_new(
      FIXTURE_GOOD,
      (struct fixture_options){.reference = "#include <stdint.h>\n#include <unistd.h>\ndouble f_at(int64_t i, "
                                            "float *y, const float *x, int64_t n) { return sleep(1000); }\n"});
  trial.executor.pool = trial.fixture.pool;
  trial.lease.kernel = trial.fixture.kernel;
  trial.lease.sources = trial.fixture.folder;
  trial.lease.key = trial.fixture.key;
  trial.lease.space = trial.fixture.space;
  trial.executor.limits.open_ms = 300;
  trial_run(&trial);
  expect_outcome(&trial, 0, OUTCOME_TIMEOUT, "baseline: killed after 0.3 s of opening (--open-timeout)");
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

Test(agent_lease_execute, measures_the_rest_of_a_final_again_without_the_one_that_crashed_it) {
  /* The first calls check and warm up: it dies in the middle of the timing, when others have samples already. */
  struct trial trial = trial_new("if (MODE == 1 && calls > 200) kill(getpid(), SIGKILL);", 3, STAGE_FINAL);
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_DONE);
  cr_expect_eq(trial.n, 3);
  expect_outcome(&trial, 1, OUTCOME_RUNTIME, "killed by signal 9 (Killed) while timing");
  expect_correct(&trial, 0, FINAL_ROUNDS);
  expect_correct(&trial, 2, FINAL_ROUNDS);
  trial_free(&trial);
}

Test(agent_lease_execute, measures_the_rest_of_a_final_again_without_the_one_that_hung) {
  struct trial trial = trial_new("if (MODE == 2 && calls > 200) for (;;) sleep(1);", 3, STAGE_FINAL);
  trial.executor.limits.config_ms = 1000;
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_DONE);
  expect_outcome(&trial, 2, OUTCOME_TIMEOUT, "s of timing");
  expect_correct(&trial, 0, FINAL_ROUNDS);
  expect_correct(&trial, 1, FINAL_ROUNDS);
  trial_free(&trial);
}

Test(agent_lease_execute, leaves_out_of_a_final_what_does_not_compile_or_is_wrong) {
  struct trial trial =
      trial_new("\n#if MODE == 1\n#error not this one\n#endif\n if (MODE == 2) { y[0] = 5; return; }", 4, STAGE_FINAL);
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_DONE);
  cr_expect_eq(trial.n, 4);
  expect_outcome(&trial, 1, OUTCOME_COMPILE, "not this one");
  cr_expect_eq(measured_of(&trial, 2)->outcome, OUTCOME_CORRECTNESS);
  expect_correct(&trial, 3, FINAL_ROUNDS);
  trial_free(&trial);
}

/* The baseline, which is not among the finalists 1 and 2, dies when `condition` on the modes that have run in its process
 * (bits of `ran`) holds. */
static struct trial trial_with_mortal_baseline(const char *condition) {
  cleanup_free char *body = xasprintf("const char *trace = getenv(\"WAVETUNE_TEST_FILE\");\n"
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

Test(agent_lease_execute, finds_the_finalist_that_kills_the_baseline) {
  struct trial trial = trial_with_mortal_baseline("ran & 2");
  cleanup_free char *path = test_file(&trial);
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_DONE);
  cr_expect_eq(trial.n, 2);
  expect_outcome(&trial, 1, OUTCOME_RUNTIME, "the baseline died beside it alone, in 2 processes: killed by signal 9");
  expect_correct(&trial, 2, FINAL_ROUNDS);
  trial_free(&trial);
}

Test(agent_lease_execute, blames_no_finalist_when_the_baseline_dies_beside_none_of_them_alone) {
  struct trial trial = trial_with_mortal_baseline("ran == 6");
  cleanup_free char *path = test_file(&trial);
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_FAILED);
  cr_expect_eq(trial.n, 0);
  cr_expect_not_null(strstr(trial.error.message, "beside none of them alone"), "%s", trial.error.message);
  trial_free(&trial);
}

Test(agent_lease_execute, measures_again_the_config_whose_baseline_an_earlier_one_of_the_worker_killed) {
  /* Config 1 works and leaves something behind at which the baseline dies, when config 2 is measured. */
  struct trial trial =
      trial_new("char path[300];\n"
                "  snprintf(path, sizeof path, \"%s.%d\", getenv(\"WAVETUNE_TEST_FILE\"), (int)getpid());\n"
                "  if (MODE == 2 && calls == 1 && access(path, F_OK) == 0) rename(path, strcat(path, \"x\"));\n"
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

/* As a worker that finds its device lost: the page names nobody when it exits. */
#define DIES_FOR_NOBODY                                                                                                \
  " uint64_t *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, 4, 0); *page = UINT64_MAX; _exit(3); "

Test(agent_lease_execute, measures_again_the_config_whose_worker_died_in_nobodys_turn) {
  struct trial trial = trial_new("if (MODE == 1 && calls == 1 && access(getenv(\"WAVETUNE_TEST_FILE\"), F_OK)) {"
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

Test(agent_lease_execute, blames_the_config_whose_workers_die_in_nobodys_turn_again_and_again) {
  struct trial trial = trial_new("if (MODE == 1) {" DIES_FOR_NOBODY "}", 3, STAGE_SCREEN);
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_DONE);
  expect_outcome(&trial, 1, OUTCOME_RUNTIME, "exited with code 3");
  expect_correct(&trial, 2, SCREEN_ROUNDS);
  trial_free(&trial);
}

Test(agent_lease_execute, stops_between_configs_when_told) {
  struct trial trial = trial_new("", 3, STAGE_SCREEN);
  trial.stop_after = 1;
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_STOPPED);
  cr_expect_eq(trial.n, 1);
  trial_free(&trial);
}

Test(agent_lease_execute, stops_in_the_middle_of_a_config_that_would_run_on) {
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

Test(agent_lease_execute, stops_when_a_measurement_cannot_be_taken) {
  struct trial trial = trial_new("", 3, STAGE_FINAL);
  trial.refuse_after = 2;
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_STOPPED);
  cr_expect_eq(trial.n, 2);
  trial_free(&trial);
}

Test(agent_lease_execute, fails_and_blames_no_config_when_nothing_can_be_compiled_here) {
  struct trial trial = trial_new("", 2, STAGE_SCREEN);
  struct error error;
  cleanup_free char *cache = xasprintf("%s/cache", trial.fixture.folder);
  cr_assert(folder_remove(cache, &error), "%s", error.message);
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_FAILED);
  cr_expect_not_null(strstr(trial.error.message, "cannot compile test here"), "%s", trial.error.message);
  cr_expect_eq(trial.n, 0);
  trial_free(&trial);
}

Test(agent_lease_execute, stops_while_a_compile_would_run_on) {
  struct trial trial = trial_new("\n#if MODE == 1\n#define a(x) x x x x\n#define b(x) a(a(a(a(x))))\n"
                                 "int y = b(b(b(b(+)))) 1;\n#endif\n",
                                 2, STAGE_SCREEN);
  compile_pool_set_timeout(trial.fixture.pool, 3600 * 1000);
  trial.stop_at_poll = 20;
  trial_run(&trial); /* returns */
  cr_expect_eq(trial.end, LEASE_STOPPED);
  cr_expect_eq(trial.n, 0);
  trial_free(&trial);
}

Test(agent_lease_execute, fails_on_a_device_that_is_not_there) {
  struct trial trial = trial_new("", 1, STAGE_SCREEN);
  trial.executor.device = "gpu7";
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_FAILED);
  cr_expect_not_null(strstr(trial.error.message, "gpu7 is not trusted any more"), "%s", trial.error.message);
  cr_expect(trial.executor.is_suspect);
  cr_expect_eq(trial.n, 0);
  trial_free(&trial);
}

/* Appends the process's id to the file that $WAVETUNE_TEST_FILE names. */
#define NOTE_PID                                                                                                       \
  "if (calls == 1) { FILE *file = fopen(getenv(\"WAVETUNE_TEST_FILE\"), \"a\"); fprintf(file, \"%d\\n\", "             \
  "(int)getpid()); "                                                                                                   \
  "fclose(file); }"

static size_t count_processes(const char *path) {
  cleanup_file FILE *file = fopen(path, "r");
  cr_assert_not_null(file);
  int pid, pids[64];
  size_t n = 0;
  while (fscanf(file, "%d", &pid) == 1) {
    bool is_known = false;
    for (size_t i = 0; i < n; i++)
      is_known = is_known || pids[i] == pid;
    if (!is_known)
      pids[n++] = pid;
    cr_assert_lt(n, 64);
  }
  return n;
}

Test(agent_lease_execute, keeps_a_screens_worker_for_the_next_lease_of_the_job) {
  struct trial trial = trial_new(NOTE_PID, 3, STAGE_SCREEN);
  cleanup_free char *path = test_file(&trial);
  trial.leases = 2;
  trial_run(&trial);
  cr_expect_eq(trial.n, 6);
  cr_expect_eq(count_processes(path), 1);
  trial_free(&trial);
}

Test(agent_lease_execute, replaces_a_screens_worker_after_so_many_configs) {
  struct trial trial = trial_new(NOTE_PID, 4, STAGE_SCREEN);
  cleanup_free char *path = test_file(&trial);
  trial.executor.configs_per_worker = 2;
  trial_run(&trial);
  cr_expect_eq(trial.n, 4);
  cr_expect_eq(count_processes(path), 2);
  trial_free(&trial);
}

Test(agent_lease_execute, measures_each_final_in_a_fresh_worker) {
  struct trial trial = trial_new(NOTE_PID, 2, STAGE_FINAL);
  cleanup_free char *path = test_file(&trial);
  trial.leases = 2;
  trial_run(&trial);
  cr_expect_eq(trial.n, 4);
  cr_expect_eq(count_processes(path), 2);
  trial_free(&trial);
}

Test(agent_lease_execute, blames_the_device_when_the_baseline_stops_working) {
  /* Config 1 breaks the device: from then on a file is there, at whose sight the baseline dies. */
  struct trial trial = trial_new("const char *broken = getenv(\"WAVETUNE_TEST_FILE\");\n"
                                 "  if (MODE == 1) { fclose(fopen(broken, \"w\")); kill(getpid(), SIGKILL); }\n"
                                 "  if (MODE == 0 && access(broken, F_OK) == 0) kill(getpid(), SIGKILL);",
                                 3, STAGE_SCREEN);
  cleanup_free char *path = test_file(&trial);
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_FAILED);
  cr_expect_not_null(strstr(trial.error.message, "does not work any more"), "%s", trial.error.message);
  cr_expect_eq(trial.n, 2);
  expect_outcome(&trial, 1, OUTCOME_RUNTIME, "killed by signal 9");
  trial_free(&trial);
}

Test(agent_lease_execute, opens_once_more_when_the_first_worker_dies_for_another_reason) {
  struct trial trial =
      trial_new("const char *once = getenv(\"WAVETUNE_TEST_FILE\");\n"
                "  if (access(once, F_OK) != 0) { fclose(fopen(once, \"w\")); kill(getpid(), SIGKILL); }",
                2, STAGE_SCREEN);
  cleanup_free char *path = test_file(&trial);
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_DONE);
  expect_correct(&trial, 1, SCREEN_ROUNDS);
  trial_free(&trial);
}

Test(agent_lease_execute, hides_the_token_from_kernels) {
  struct trial trial = trial_new("if (getenv(\"WAVETUNE_TOKEN\")) kill(getpid(), SIGKILL);", 1, STAGE_SCREEN);
  setenv("WAVETUNE_TOKEN", "wt_secret", 1);
  trial_run(&trial);
  expect_correct(&trial, 0, SCREEN_ROUNDS);
  trial_free(&trial);
}

/* A kernel whose config 1 kills its worker, and which stands in for ROCdebug-agent when it runs under it: it writes what
 * that would print to the file that the options name. */
#define FAULT_AND_TELL                                                                                                 \
  "const char *o = getenv(\"ROCM_DEBUG_AGENT_OPTIONS\");"                                                              \
  "if (MODE == 1 && o) {"                                                                                              \
  "  char path[4096]; const char *from = strstr(o, \"--output=\") + 9;"                                                \
  "  snprintf(path, sizeof path, \"%.*s\", (int)strcspn(from, \" \"), from);"                                          \
  "  FILE *f = fopen(path, \"w\"); fputs(\"wave_1: pc=0x40 (stopped, reason: MEMORY_VIOLATION)\\n\", f); fclose(f);"   \
  "}"                                                                                                                  \
  "if (MODE == 1) kill(getpid(), SIGABRT);"

Test(agent_lease_execute, runs_what_killed_its_worker_again_under_a_debug_agent) {
  struct trial trial = trial_new(FAULT_AND_TELL, 3, STAGE_SCREEN);
  cleanup_free char *faults = xasprintf("%s/faults", trial.fixture.folder);
  setenv("WAVETUNE_DEBUG_AGENT", "/proc/self/exe", 1); /* any file that is there */
  trial.executor.faults = faults;
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_DONE);
  expect_outcome(
      &trial, 1, OUTCOME_RUNTIME,
      "killed by signal 6 (Aborted) while checking; run again alone: 1 wave stopped by MEMORY_VIOLATION, the "
      "first at pc 0x40 (");
  expect_correct(&trial, 2, SCREEN_ROUNDS);
  trial_free(&trial);
}

Test(agent_lease_execute, says_when_the_debug_agent_saw_nothing) {
  struct trial trial = trial_new("if (MODE == 1) kill(getpid(), SIGABRT);", 2, STAGE_SCREEN);
  cleanup_free char *faults = xasprintf("%s/faults", trial.fixture.folder);
  setenv("WAVETUNE_DEBUG_AGENT", "/proc/self/exe", 1);
  trial.executor.faults = faults;
  trial_run(&trial);
  expect_outcome(&trial, 1, OUTCOME_RUNTIME, "run again alone: the debug agent says nothing of a fault");
  trial_free(&trial);
}

Test(agent_lease_execute, says_when_nothing_of_a_fault_can_be_kept) {
  struct trial trial = trial_new("if (MODE == 1) kill(getpid(), SIGABRT);", 2, STAGE_SCREEN);
  setenv("WAVETUNE_DEBUG_AGENT", "/proc/self/exe", 1);
  trial.executor.faults = "/dev/null/faults";
  trial_run(&trial);
  expect_outcome(&trial, 1, OUTCOME_RUNTIME, "run again alone: nothing can be kept: ");
  trial_free(&trial);
}

Test(agent_lease_execute, runs_only_so_many_again) {
  struct trial trial = trial_new("if (MODE == 1) kill(getpid(), SIGABRT);", 2, STAGE_SCREEN);
  cleanup_free char *faults = xasprintf("%s/faults", trial.fixture.folder);
  setenv("WAVETUNE_DEBUG_AGENT", "/proc/self/exe", 1);
  trial.executor.faults = faults;
  trial.executor.n_reruns = 8;
  trial_run(&trial);
  cr_expect_null(strstr(measured_of(&trial, 1)->detail, "run again"));
  trial_free(&trial);
}

/* Gives the trial's lease objects as a build's: those of the compile pool, each with so many spills, or with none of
 * them where spills[i] is -1. */
static struct build_objects objects_of(struct trial *trial, const int64_t *spills, size_t n) {
  struct build_objects objects = {.n = n, .all = xcalloc(n, sizeof *objects.all)};
  for (size_t i = 0; i < n; i++) {
    struct lease_object *object = &objects.all[i].object;
    objects.all[i].config = i;
    object->is_ok = spills[i] >= 0;
    object->launch = launch_spec_default();
    object->launch.resources.vgprs = 100 + (int64_t)i;
    object->launch.resources.vgpr_spills = spills[i];
    object->launch.resources.sgpr_spills = 0;
    if (object->is_ok)
      object->path = fixture_object(&trial->fixture, i, false);
    else
      object->detail = xstrdup("was not packed");
    object->outcome = OUTCOME_COMPILE;
  }
  return objects;
}

static void objects_free(struct build_objects *objects) {
  for (size_t i = 0; i < objects->n; i++)
    lease_object_release(&objects->all[i].object);
  free(objects->all);
}

Test(agent_lease_execute, measures_the_objects_of_a_build_those_that_spill_last) {
  struct trial trial = trial_new("", 4, STAGE_SCREEN);
  struct build_objects objects = objects_of(&trial, (int64_t[]){0, 7, -1, 0}, 4);
  trial.lease.objects = &objects;
  trial.executor.compiles_first = false;
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_DONE);
  cr_assert_eq(trial.n, 4);
  expect_outcome(&trial, 2, OUTCOME_COMPILE, "was not packed");
  expect_correct(&trial, 3, SCREEN_ROUNDS);
  cr_expect_eq(trial.measured[3].config, 1);
  cr_expect_eq(trial.measured[3].resources.vgprs, 101);
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

Test(agent_lease_execute, names_the_code_of_what_a_gpu_ran) {
  struct trial trial = trial_new("", 1, STAGE_FINAL);
  trial.executor.is_gpu = true;
  trial_run(&trial);
  cr_expect_neq(trial.measured[0].object[0], 0);
  cr_expect(access(trial.measured[0].object, R_OK) == 0, "%s", trial.measured[0].object);
  trial_free(&trial);
}

Test(agent_lease_execute, names_no_code_of_what_a_cpu_ran) {
  struct trial trial = trial_new("", 1, STAGE_FINAL);
  trial_run(&trial);
  cr_expect_eq(trial.measured[0].object[0], 0);
  trial_free(&trial);
}

#define WRITES_BEHIND_ITS_BUFFER "if (MODE == 1) y[n] = 7;"

Test(agent_lease_execute, a_screen_goes_on_in_a_fresh_worker_after_a_write_out_of_bounds) {
  struct trial trial = trial_new(WRITES_BEHIND_ITS_BUFFER NOTE_PID, 3, STAGE_SCREEN);
  cleanup_free char *path = test_file(&trial);
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_DONE);
  expect_outcome(&trial, 1, OUTCOME_CORRECTNESS, "a byte outside of the buffer was written");
  expect_correct(&trial, 2, SCREEN_ROUNDS);
  cr_expect_eq(count_processes(path), 2);
  trial_free(&trial);
}

Test(agent_lease_execute, a_final_is_measured_again_without_who_wrote_out_of_bounds) {
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

static int sentinel_work(struct supervisor *supervisor, void *context) {
  struct trial *trial = context;
  trial->executor.spawner = supervisor->spawner;
  trial->end = executor_sentinel(&trial->executor, NULL, NULL, &trial->error) ? LEASE_DONE : LEASE_FAILED;
  return 0;
}

static enum lease_end sentinel_on(struct trial *trial, const char *device) {
  struct supervisor supervisor = {.work = sentinel_work, .context = trial};
  trial->executor.device = device;
  cr_assert_eq(supervise(&supervisor), 0);
  return trial->end;
}

Test(agent_lease_execute, a_device_that_works_passes_its_sentinel) {
  struct trial trial = trial_new("", 1, STAGE_SCREEN);
  cr_expect_eq(sentinel_on(&trial, "cpu0"), LEASE_DONE, "%s", trial.error.message);
  trial_free(&trial);
}

Test(agent_lease_execute, a_device_that_is_not_there_does_not_pass_its_sentinel) {
  struct trial trial = trial_new("", 1, STAGE_SCREEN);
  cr_expect_eq(sentinel_on(&trial, "gpu7"), LEASE_FAILED);
  cr_expect_not_null(strstr(trial.error.message, "gpu7 does not pass its sentinel: no device gpu7"), "%s",
                     trial.error.message);
  trial_free(&trial);
}

Test(agent_lease_execute, a_sentinel_that_hangs_is_not_passed) {
  struct trial trial = trial_new("", 1, STAGE_SCREEN);
  trial.executor.limits.open_ms = 0;
  cr_expect_eq(sentinel_on(&trial, "cpu0"), LEASE_FAILED);
  cr_expect_not_null(strstr(trial.error.message, "cpu0 does not pass its sentinel: the worker was killed after"), "%s",
                     trial.error.message);
  trial_free(&trial);
}

Test(agent_lease_execute, blames_a_gpu_whose_workers_die_before_it_is_a_configs_turn) {
  struct trial trial = trial_new("", 1, STAGE_SCREEN);
  trial.executor.is_gpu = true;
  trial.executor.limits.open_ms = 0;
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_FAILED);
  cr_expect(trial.executor.is_suspect);
  cr_expect_not_null(strstr(trial.error.message, "cpu0 is not trusted any more"), "%s", trial.error.message);
  cr_expect_eq(trial.n, 0, "the baseline is not to blame");
  trial_free(&trial);
}

Test(agent_lease_execute, can_be_stopped_while_a_device_does_not_pass_its_sentinel) {
  struct trial trial = trial_new("", 1, STAGE_SCREEN);
  trial.executor.device = "gpu7";
  trial.stop_at_poll = 40;
  trial_run(&trial);
  cr_expect_eq(trial.end, LEASE_STOPPED);
  cr_expect_not(trial.executor.is_suspect);
  trial_free(&trial);
}
