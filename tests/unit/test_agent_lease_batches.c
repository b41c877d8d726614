/* Which requests workers get when leases are executed: which process, in which order, with which
 * limits. These workers are scripted: they measure nothing, answer at once, and log every request.
 */
#include <fcntl.h>
#include <sys/mman.h>

#define TRIAL_WORKER scripted_worker
static int scripted_worker(void);
#include "agent/compile/helper_kernels.h"
#include "agent/lease/lease_execution.h"
#include "lease_trial.h"

#define CLANG "/usr/bin/clang-19"
#define CONFIG_US 1000 /* time of a config */
#define DEVICE_US 400  /* time of opening the device */
#define OPEN_US 30000
#define LEFT_EARLY (SCREEN_BATCH + 5)

/* The scripted worker's process. */

static void note(const json_t *request) {
  cleanup_free char *text = json_canonical(request),
                    *line = xasprintf("%d %s\n", (int)getpid(), text);
  cleanup_fd int fd = open(getenv("WAVETUNE_TEST_FILE"), O_WRONLY | O_CREAT | O_APPEND, 0600);
  ALWAYS(fd >= 0 && write(fd, line, strlen(line)) == (ssize_t)strlen(line));
}

static void say(json_t *taken) {
  cleanup_json json_t *json = taken;
  cleanup_free char *text = json_canonical(json), *line = xasprintf("%s\n", text);
  ALWAYS(write(WORKER_SOCKET_FD, line, strlen(line)) == (ssize_t)strlen(line));
}

/* Config c takes 2 - c / 100 times as long as the baseline; LEFT_EARLY leaves the race early.
 * $WAVETUNE_TEST_KILLER kills the worker, in its own turn when that is serial; those before it have
 * left then. */
static void measure(const json_t *request) {
  struct worker_status *page =
      mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, WORKER_STATUS_FD, 0);
  const char *killer = getenv("WAVETUNE_TEST_KILLER");
  json_int_t left_us = json_integer_value(json_object_get(request, "device_us")), spent_us = 0;
  bool is_bound = left_us > 0 && !json_is_true(json_object_get(request, "whole")), is_over = false;
  json_t *item;
  size_t i;
  json_array_foreach (json_object_get(request, "configs"), i, item) {
    json_int_t config = json_integer_value(json_object_get(item, "config"));
    if (killer && config == atoi(killer)) {
      if (json_is_true(json_object_get(request, "serial")))
        atomic_store(&page->config, (uint64_t)config);
      _exit(9);
    }
    is_over = is_bound && spent_us >= left_us;
    if (is_over)
      break;
    spent_us += CONFIG_US;
    say(json_pack("{s:I, s:s, s:s, s:[f, f], s:[f, f], s:s, s:i}", "config", config, "outcome",
                  "correct", "timer", "test", "samples_us", 200.0 - (double)config,
                  200.0 - (double)config, "baseline_us", 100.0, 100.0, "end",
                  config == LEFT_EARLY ? "far" : "decided", "device_us", CONFIG_US));
  }
  say(json_pack("{s:b, s:b, s:{s:I, s:i}}", "done", 1, "over_budget", is_over, "spent", "timing_us",
                spent_us, "load_us", 0));
}

/* Takes $WAVETUNE_TEST_OPEN_US, of which DEVICE_US are the device's. The file that
 * $WAVETUNE_TEST_OPEN_KILLER names, which is removed, kills the worker. */
static void open_problem(void) {
  const char *open_us = getenv("WAVETUNE_TEST_OPEN_US"),
             *killer = getenv("WAVETUNE_TEST_OPEN_KILLER");
  usleep(open_us ? (useconds_t)atoi(open_us) : 0);
  if (killer && unlink(killer) == 0)
    _exit(9);
  say(json_pack("{s:b, s:{s:i, s:i}}", "opened", 1, "spent", "inputs_us", 30, "device_us",
                DEVICE_US));
}

static int scripted_worker(void) {
  cleanup_file FILE *in = fdopen(dup(WORKER_SOCKET_FD), "r");
  cleanup_free char *line = NULL;
  size_t capacity = 0;
  for (ssize_t size; (size = getline(&line, &capacity, in)) > 0;) {
    struct error error;
    cleanup_json json_t *request = NULL;
    ALWAYS(json_parse(line, (size_t)size, &request, &error));
    const char *what = json_string_value(json_object_get(request, "do"));
    if (string_equal(what, "reference"))
      continue; /* another process, which answers nothing */
    note(request);
    if (string_equal(what, "measure"))
      measure(request);
    else if (string_equal(what, "open"))
      open_problem();
    else
      say(json_pack("{s:b}", string_equal(what, "close") ? "closed" : "passed", 1));
  }
  return 0;
}

/* The tests' side. */

#define REQUESTS_MAX 64
struct request {
  int pid;
  json_t *json;
};

/* The requests that workers got, in order; no file: none. */
struct requests {
  size_t n;
  struct request all[REQUESTS_MAX];
};

static struct requests requests_read(const char *path) {
  struct requests requests = {0};
  cleanup_file FILE *file = fopen(path, "r");
  cleanup_free char *line = NULL;
  size_t capacity = 0;
  while (file && getline(&line, &capacity, file) > 0) {
    char *json;
    cr_assert_lt(requests.n, REQUESTS_MAX);
    struct request *request = &requests.all[requests.n++];
    request->pid = (int)strtol(line, &json, 10);
    request->json = fixture_json(json);
  }
  return requests;
}

static void requests_free(struct requests *requests) {
  for (size_t i = 0; i < requests->n; i++)
    json_decref(requests->all[i].json);
}

/* The request of a kind with this index, which must exist. */
static const struct request *request_of(const struct requests *requests, const char *what,
                                        size_t index) {
  for (size_t i = 0; i < requests->n; i++) {
    if (string_equal(json_string_value(json_object_get(requests->all[i].json, "do")), what) &&
        index-- == 0)
      return &requests->all[i];
  }
  cr_assert_fail("no such request: %s", what);
  return NULL;
}

static size_t count_of(const struct requests *requests, const char *what) {
  size_t n = 0;
  for (size_t i = 0; i < requests->n; i++)
    n += string_equal(json_string_value(json_object_get(requests->all[i].json, "do")), what);
  return n;
}

static json_t *member(const struct requests *requests, size_t measure_index, const char *name) {
  return json_object_get(request_of(requests, "measure", measure_index)->json, name);
}

static uint64_t config_at(const struct requests *requests, size_t measure_index, size_t at) {
  const json_t *item = json_array_get(member(requests, measure_index, "configs"), at);
  return (uint64_t)json_integer_value(json_object_get(item, "config"));
}

static size_t n_configs(const struct requests *requests, size_t measure_index) {
  return json_array_size(member(requests, measure_index, "configs"));
}

/* A lease of `n` configs, and the objects of a build for it, so that nothing is compiled but the
 * reference. */
struct batches {
  struct trial trial;
  char *path;
  struct build_objects objects;
  struct requests requests;
};

static struct batches batches_new(size_t n, enum stage stage) {
  struct batches batches = {.trial = trial_new("", (int)n, stage)};
  cleanup_free char *object = xasprintf("%s/nothing.co", batches.trial.fixture.folder);
  struct error error;
  cr_assert(file_write_atomically(object, "", 0, 0600, &error), "%s", error.message);
  batches.path = test_file(&batches.trial);
  batches.objects = (struct build_objects){.n = n, .all = xcalloc(n, sizeof *batches.objects.all)};
  for (size_t i = 0; i < n; i++) {
    batches.objects.all[i] = (struct config_object){
        .config = i,
        .object = {.is_ok = true,
                   .path = xstrdup(object),
                   .digest = digest_of("", 0),
                   .launch = launch_spec_default()},
    };
  }
  return batches;
}

static struct code_resources *resources_of(struct batches *batches, size_t config) {
  return &batches->objects.all[config].object.launch.resources;
}

static void batches_run(struct batches *batches) {
  batches->trial.lease.objects = &batches->objects;
  trial_run(&batches->trial);
  batches->requests = requests_read(batches->path);
}

static void batches_free(struct batches *batches) {
  requests_free(&batches->requests);
  objects_free(&batches->objects);
  free(batches->path);
  trial_free(&batches->trial);
}

Test(agent_lease_batches, a_later_batch_races_against_the_best_before_it_that_did_not_leave_early) {
  struct batches batches = batches_new(SCREEN_BATCH + 6, STAGE_SCREEN);
  uint64_t likely[] = {SCREEN_BATCH};
  batches.trial.lease.warm_starts = likely;
  batches.trial.lease.n_warm_starts = 1;
  for (size_t i = 0; i < 6; i++) { /* they come last */
    resources_of(&batches, i)->vgpr_spills = 1;
    resources_of(&batches, i)->sgpr_spills = 0;
  }
  batches_run(&batches);
  cr_expect_eq(batches.trial.end, LEASE_DONE);
  cr_expect_eq(batches.trial.n, SCREEN_BATCH + 6);
  cr_assert_eq(count_of(&batches.requests, "measure"), 2);
  cr_expect_eq(n_configs(&batches.requests, 0), SCREEN_BATCH);
  cr_expect_eq(n_configs(&batches.requests, 1), 6);
  cr_expect(json_is_null(member(&batches.requests, 0, "best_ratio")));
  cr_expect_float_eq(json_number_value(member(&batches.requests, 1, "best_ratio")),
                     2 - (LEFT_EARLY - 1) / 100.0, 1e-9);
  cr_expect_eq(count_of(&batches.requests, "open"), 1);
  batches_free(&batches);
}

Test(agent_lease_batches, the_best_of_other_leases_is_raced_against_from_the_start) {
  struct batches batches = batches_new(3, STAGE_SCREEN);
  batches.trial.lease.best_ratio = 0.5;
  batches_run(&batches);
  cr_expect_float_eq(json_number_value(member(&batches.requests, 0, "best_ratio")), 0.5, 1e-9);
  batches_free(&batches);
}

Test(agent_lease_batches, warm_starts_come_first_and_configs_that_spill_last) {
  struct batches batches = batches_new(12, STAGE_SCREEN);
  uint64_t likely[] = {9, 77, 3, 9}; /* 77 is another lease's */
  batches.trial.lease.warm_starts = likely;
  batches.trial.lease.n_warm_starts = ARRAY_LENGTH(likely);
  resources_of(&batches, 9)->scratch_bytes = 64;
  resources_of(&batches, 5)->scratch_bytes = 64;
  batches_run(&batches);
  cr_assert_eq(n_configs(&batches.requests, 0), 12);
  cr_expect_eq(config_at(&batches.requests, 0, 0), 9);
  cr_expect_eq(config_at(&batches.requests, 0, 1), 3);
  cr_expect_eq(config_at(&batches.requests, 0, 11), 5);
  batches_free(&batches);
}

Test(agent_lease_batches, code_of_higher_occupancy_comes_first) {
  struct batches batches = batches_new(3, STAGE_SCREEN);
  static const int64_t vgprs[] = {256, 64, 128};
  batches.trial.executor.arch = "gfx942";
  for (size_t i = 0; i < 3; i++) {
    resources_of(&batches, i)->vgprs = vgprs[i];
    batches.objects.all[i].object.launch.threads = 256;
  }
  batches_run(&batches);
  cr_expect_eq(config_at(&batches.requests, 0, 0), 1);
  cr_expect_eq(config_at(&batches.requests, 0, 1), 2);
  cr_expect_eq(config_at(&batches.requests, 0, 2), 0);
  batches_free(&batches);
}

/* Four workgroups of 256 threads with 128 VGPRs fit into each of 304 compute units, 1216 at once:
 * config 0 begins a second round with one workgroup, config 1 leaves a quarter idle, config 2
 * nothing. Config 3's LDS leaves room for one. */
Test(agent_lease_batches, how_full_a_grid_and_a_unit_are_follows_from_the_manifests_launch) {
  struct batches batches = batches_new(4, STAGE_SCREEN);
  struct kernel *kernel = batches.trial.fixture.kernel;
  kernel->language = LANGUAGE_HIP;
  kernel->launch.n_grid = kernel->launch.n_block = 1;
  kernel->launch.grid = xcalloc(1, sizeof(char *));
  kernel->launch.block = xcalloc(1, sizeof(char *));
  kernel->launch.grid[0] = xstrdup("1217 if MODE == 0 else 912 if MODE == 1 else 1216");
  kernel->launch.block[0] = xstrdup("256");
  kernel->launch.shared_bytes = xstrdup("65536 if MODE == 3 else 0");
  batches.trial.executor.arch = "gfx942";
  batches.trial.executor.compute_units = 304;
  for (size_t i = 0; i < 4; i++)
    resources_of(&batches, i)->vgprs = 128;
  batches_run(&batches);
  static const uint64_t expected[] = {2, 1, 0, 3};
  for (size_t i = 0; i < ARRAY_LENGTH(expected); i++)
    cr_expect_eq(config_at(&batches.requests, 0, i), expected[i]);
  batches_free(&batches);
}

Test(agent_lease_batches, of_equal_occupancy_the_grid_that_leaves_less_idle_comes_first) {
  struct lease_config all[] = {{.place = 0, .occupancy = 2, .utilization = 0.5},
                               {.place = 1, .occupancy = 1, .utilization = 1},
                               {.place = 2, .occupancy = 2, .utilization = 0.9},
                               {.place = 3, .occupancy = 2, .utilization = 0.9}};
  static const size_t expected[] = {2, 3, 0, 1};
  struct lease_config *configs[] = {&all[0], &all[1], &all[2], &all[3]};
  qsort(configs, ARRAY_LENGTH(configs), sizeof *configs, lease_configs_compare);
  for (size_t i = 0; i < ARRAY_LENGTH(configs); i++)
    cr_expect_eq(configs[i]->place, expected[i]);
}

Test(agent_lease_batches, neighbours_in_the_space_are_not_tried_in_a_row) {
  size_t n_neighbours = 0;
  struct batches batches = batches_new(64, STAGE_SCREEN);
  batches_run(&batches);
  for (size_t i = 1; i < 64; i++)
    n_neighbours +=
        config_at(&batches.requests, 0, i) == config_at(&batches.requests, 0, i - 1) + 1;
  cr_expect_lt(n_neighbours, 16, "%zu of 63", n_neighbours);
  batches_free(&batches);
}

Test(agent_lease_batches, each_stage_has_its_terms) {
  static const struct {
    enum stage stage;
    int rounds_min, rounds_max;
  } cases[] = {{STAGE_SCREEN, 2, SCREEN_ROUNDS},
               {STAGE_HALVING, 2, HALVING_ROUNDS},
               {STAGE_FINAL, 7, FINAL_ROUNDS}};
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
    struct batches batches = batches_new(2, cases[i].stage);
    batches.trial.executor.halving.margin = 0.04;
    batches.trial.executor.halving.precision = 0.01;
    batches.trial.lease.best_ratio = 0.5;
    batches_run(&batches);
    bool is_halving = cases[i].stage == STAGE_HALVING, is_final = cases[i].stage == STAGE_FINAL;
    cr_expect_eq(batches.trial.n, 2);
    cr_expect_eq(json_integer_value(member(&batches.requests, 0, "rounds_min")),
                 cases[i].rounds_min);
    cr_expect_eq(json_integer_value(member(&batches.requests, 0, "rounds_max")),
                 cases[i].rounds_max);
    cr_expect_eq(json_is_null(member(&batches.requests, 0, "margin")), !is_halving);
    cr_expect_eq(json_number_value(member(&batches.requests, 0, "precision")),
                 is_halving ? 0.01 : 0);
    cr_expect_eq(json_is_null(member(&batches.requests, 0, "best_ratio")), is_final,
                 "nobody leaves a final");
    cr_expect(json_is_null(member(&batches.requests, 0, "device_us")));
    cr_expect(json_is_false(member(&batches.requests, 0, "serial")));
    batches_free(&batches);
  }
}

Test(agent_lease_batches, reports_why_the_sampling_of_a_config_ended) {
  struct batches batches = batches_new(1, STAGE_SCREEN);
  batches_run(&batches);
  cr_expect_str_eq(measured_of(&batches.trial, 0)->end, "decided");
  batches_free(&batches);
}

Test(agent_lease_batches, a_lease_ends_when_its_device_time_is_spent) {
  for (enum stage stage = STAGE_SCREEN; stage <= STAGE_HALVING; stage++) {
    struct batches batches = batches_new(10, stage);
    batches.trial.lease.device_us = 3 * CONFIG_US;
    batches_run(&batches);
    cr_expect_eq(batches.trial.end, LEASE_SPENT);
    cr_expect_eq(batches.trial.n, 3);
    cr_expect_eq(count_of(&batches.requests, "measure"), 1);
    batches_free(&batches);
  }
}

Test(agent_lease_batches, a_final_is_measured_whole_within_the_device_time_or_not) {
  struct batches batches = batches_new(10, STAGE_FINAL);
  batches.trial.lease.device_us = 3 * CONFIG_US;
  batches_run(&batches);
  cr_expect_eq(batches.trial.end, LEASE_DONE);
  cr_expect_eq(batches.trial.n, 10);
  cr_expect_eq(json_integer_value(member(&batches.requests, 0, "device_us")), 3 * CONFIG_US);
  cr_expect(json_is_true(member(&batches.requests, 0, "whole")));
  batches_free(&batches);
}

Test(agent_lease_batches, a_later_batch_gets_the_remaining_device_time) {
  struct batches batches = batches_new(SCREEN_BATCH + 6, STAGE_SCREEN);
  batches.trial.lease.device_us = (SCREEN_BATCH + 4) * CONFIG_US;
  batches_run(&batches);
  cr_expect_eq(batches.trial.end, LEASE_SPENT);
  cr_expect_eq(batches.trial.n, SCREEN_BATCH + 4);
  cr_expect_eq(json_integer_value(member(&batches.requests, 1, "device_us")), 4 * CONFIG_US);
  batches_free(&batches);
}

/* The clock gives a lower bound of the time; there is no upper bound. */
static void expect_opened_for(const struct batches *batches, int64_t least_us) {
  cr_expect_geq(batches->trial.executor.opening_us, least_us, "%lld us",
                (long long)batches->trial.executor.opening_us);
}

Test(agent_lease_batches, opening_is_counted_from_the_request_to_the_answer_without_the_device) {
  struct batches batches = batches_new(2, STAGE_SCREEN);
  setenv("WAVETUNE_TEST_OPEN_US", "30000", 1);
  batches_run(&batches);
  cr_expect_eq(batches.trial.end, LEASE_DONE);
  expect_opened_for(&batches, OPEN_US - DEVICE_US);
  batches_free(&batches);
}

Test(agent_lease_batches, an_attempt_to_open_that_dies_is_counted_too) {
  struct batches batches = batches_new(2, STAGE_SCREEN);
  cleanup_free char *killer = xasprintf("%s/killer", batches.trial.fixture.folder);
  struct error error;
  cr_assert(file_write_atomically(killer, "", 0, 0600, &error), "%s", error.message);
  setenv("WAVETUNE_TEST_OPEN_US", "30000", 1);
  setenv("WAVETUNE_TEST_OPEN_KILLER", killer, 1);
  batches_run(&batches);
  cr_expect_eq(batches.trial.end, LEASE_DONE);
  cr_expect_eq(count_of(&batches.requests, "open"), 2);
  expect_opened_for(&batches, 2 * OPEN_US - DEVICE_US);
  batches_free(&batches);
}

Test(agent_lease_batches, an_open_kernel_takes_no_opening_time_of_the_next_lease) {
  struct batches batches = batches_new(2, STAGE_SCREEN);
  batches.trial.leases = 2;
  batches_run(&batches);
  cr_expect_eq(count_of(&batches.requests, "open"), 1);
  cr_expect_eq(batches.trial.executor.opening_us, 0);
  batches_free(&batches);
}

Test(agent_lease_batches, nothing_is_measured_when_opening_took_the_whole_budget_of_the_stage) {
  for (enum stage stage = STAGE_SCREEN; stage <= STAGE_HALVING; stage++) {
    struct batches batches = batches_new(10, stage);
    setenv("WAVETUNE_TEST_OPEN_US", "30000", 1);
    batches.trial.lease.device_us = batches.trial.lease.budget_us = OPEN_US - DEVICE_US;
    batches_run(&batches);
    cr_expect_eq(batches.trial.end, LEASE_SPENT);
    cr_expect_eq(batches.trial.n, 0);
    cr_expect_eq(count_of(&batches.requests, "measure"), 0);
    expect_opened_for(&batches, OPEN_US - DEVICE_US);
    batches_free(&batches);
  }
}

Test(agent_lease_batches, an_opening_longer_than_the_leases_share_leaves_time_to_measure) {
  struct batches batches = batches_new(10, STAGE_SCREEN);
  setenv("WAVETUNE_TEST_OPEN_US", "30000", 1);
  batches.trial.lease.device_us = 5 * CONFIG_US;
  batches.trial.lease.budget_us = 1000 * OPEN_US; /* of a thousand leases or so */
  batches_run(&batches);
  cr_expect_eq(batches.trial.end, LEASE_SPENT);
  cr_expect_eq(batches.trial.n, 5);
  json_int_t device_us = json_integer_value(member(&batches.requests, 0, "device_us"));
  cr_expect(device_us > 4 * CONFIG_US && device_us < 5 * CONFIG_US, "%d us", (int)device_us);
  batches_free(&batches);
}

Test(agent_lease_batches, a_final_is_charged_for_its_opening_and_is_measured_whole) {
  struct batches batches = batches_new(10, STAGE_FINAL);
  setenv("WAVETUNE_TEST_OPEN_US", "30000", 1);
  batches.trial.lease.device_us = batches.trial.lease.budget_us = OPEN_US - DEVICE_US;
  batches_run(&batches);
  cr_expect_eq(batches.trial.end, LEASE_DONE);
  cr_expect_eq(batches.trial.n, 10);
  cr_expect_eq(json_integer_value(member(&batches.requests, 0, "device_us")), 1);
  batches_free(&batches);
}

Test(agent_lease_batches, no_batch_begins_without_device_time) {
  struct batches batches = batches_new(SCREEN_BATCH + 6, STAGE_SCREEN);
  batches.trial.lease.device_us = SCREEN_BATCH * CONFIG_US;
  batches_run(&batches);
  cr_expect_eq(batches.trial.end, LEASE_SPENT);
  cr_expect_eq(batches.trial.n, SCREEN_BATCH);
  cr_expect_eq(count_of(&batches.requests, "measure"), 1);
  batches_free(&batches);
}

static bool is_even(void *context, uint64_t config) {
  (void)context;
  return config % 2 == 0;
}

Test(agent_lease_batches, configs_given_to_another_device_are_left_out_of_a_screen) {
  struct batches batches = batches_new(6, STAGE_SCREEN);
  batches.trial.is_ours = is_even;
  resources_of(&batches, 3)->scratch_bytes = 64; /* also among those that come last */
  batches_run(&batches);
  cr_expect_eq(batches.trial.end, LEASE_DONE);
  cr_expect_eq(batches.trial.n, 3);
  cr_expect_eq(n_configs(&batches.requests, 0), 3);
  batches_free(&batches);
}

Test(agent_lease_batches, a_screen_without_remaining_configs_is_done) {
  struct batches batches = batches_new(2, STAGE_SCREEN);
  config_ranges_release(&batches.trial.lease.configs);
  config_ranges_add(&batches.trial.lease.configs, 1);
  batches.trial.is_ours = is_even;
  batches_run(&batches);
  cr_expect_eq(batches.trial.end, LEASE_DONE);
  cr_expect_eq(batches.trial.n, 0);
  cr_expect_eq(batches.requests.n, 0);
  batches_free(&batches);
}

Test(agent_lease_batches, after_a_death_in_the_turn_of_no_config_the_others_race_serially) {
  struct batches batches = batches_new(8, STAGE_SCREEN);
  setenv("WAVETUNE_TEST_KILLER", "5", 1);
  batches_run(&batches);
  cr_expect_eq(batches.trial.end, LEASE_DONE);
  cr_expect_eq(batches.trial.n, 8);
  expect_outcome(&batches.trial, 5, OUTCOME_RUNTIME, "exited with code 9");
  expect_correct(&batches.trial, 4, 2);
  cr_expect(json_is_false(member(&batches.requests, 0, "serial")));
  cr_expect(json_is_true(member(&batches.requests, 1, "serial")));
  cr_expect_leq(n_configs(&batches.requests, 1), 8);
  size_t n_before = 0; /* the killer */
  while (config_at(&batches.requests, 0, n_before) != 5)
    n_before++;
  cr_expect_eq(n_configs(&batches.requests, 1), 8 - n_before, "those that left keep their answers");
  batches_free(&batches);
}

Test(agent_lease_batches, a_final_measures_all_again_when_its_worker_dies) {
  struct batches batches = batches_new(8, STAGE_FINAL);
  setenv("WAVETUNE_TEST_KILLER", "5", 1);
  batches_run(&batches);
  cr_expect_eq(batches.trial.end, LEASE_DONE);
  expect_outcome(&batches.trial, 5, OUTCOME_RUNTIME, "exited with code 9");
  expect_correct(&batches.trial, 4, 2);
  cr_assert_eq(count_of(&batches.requests, "measure"), 3);
  cr_expect_eq(n_configs(&batches.requests, 1), 8);
  cr_expect_eq(n_configs(&batches.requests, 2), 7);
  cr_expect_neq(request_of(&batches.requests, "measure", 1)->pid,
                request_of(&batches.requests, "measure", 2)->pid);
  batches_free(&batches);
}

Test(agent_lease_batches, finals_of_several_jobs_share_a_process_that_has_one_problem_open) {
  static const char *const jobs[] = {"1", "2", "1"};
  struct batches batches = batches_new(2, STAGE_FINAL);
  batches.trial.jobs = jobs;
  batches.trial.leases = 3;
  batches_run(&batches);
  cr_assert_eq(count_of(&batches.requests, "measure"), 3);
  int first = request_of(&batches.requests, "measure", 0)->pid,
      third = request_of(&batches.requests, "measure", 2)->pid;
  cr_expect_eq(request_of(&batches.requests, "measure", 1)->pid, first,
               "a job that it has not seen");
  cr_expect_neq(third, first);
  cr_expect_eq(count_of(&batches.requests, "close"), 1, "before another worker opens one");
  cr_expect_eq(request_of(&batches.requests, "close", 0)->pid, first);
  batches_free(&batches);
}

Test(agent_lease_batches, a_final_replaces_the_least_recently_used_worker) {
  static const char *const jobs[] = {"1", "1", "1", "1", "1"};
  struct batches batches = batches_new(1, STAGE_FINAL);
  batches.trial.jobs = jobs;
  batches.trial.leases = 5;
  batches_run(&batches);
  for (size_t i = 0; i < 5; i++) {
    for (size_t k = 0; k < i; k++)
      cr_expect_neq(request_of(&batches.requests, "measure", i)->pid,
                    request_of(&batches.requests, "measure", k)->pid);
  }
  batches_free(&batches);
}

Test(agent_lease_batches, screens_of_several_jobs_share_a_worker) {
  static const char *const jobs[] = {"1", "2"};
  struct batches batches = batches_new(1, STAGE_SCREEN);
  batches.trial.jobs = jobs;
  batches.trial.leases = 2;
  batches_run(&batches);
  cr_expect_eq(request_of(&batches.requests, "measure", 0)->pid,
               request_of(&batches.requests, "measure", 1)->pid);
  batches_free(&batches);
}

Test(agent_lease_batches, workers_that_are_started_ahead_open_the_device_and_then_answer) {
  static const char *const jobs[] = {"1", "1", "1"};
  struct batches batches = batches_new(1, STAGE_FINAL);
  batches.trial.n_started = EXECUTOR_WORKERS;
  batches.trial.jobs = jobs;
  batches.trial.leases = 3;
  batches_run(&batches);
  cr_expect_eq(count_of(&batches.requests, "sentinel"), EXECUTOR_WORKERS);
  cr_expect_eq(count_processes(batches.path), EXECUTOR_WORKERS);
  batches_free(&batches);
}

Test(agent_lease_batches, a_running_worker_measures_a_final_of_a_job_that_it_has_not_seen) {
  static const char *const jobs[] = {"1", "2", "1"};
  struct batches batches = batches_new(1, STAGE_FINAL);
  batches.trial.n_started = 1; /* the one that screens */
  batches.trial.jobs = jobs;
  batches.trial.leases = 3;
  batches_run(&batches);
  int screens = request_of(&batches.requests, "sentinel", 0)->pid;
  cr_expect_eq(request_of(&batches.requests, "measure", 0)->pid, screens);
  cr_expect_eq(request_of(&batches.requests, "measure", 1)->pid, screens);
  cr_expect_neq(request_of(&batches.requests, "measure", 2)->pid, screens, "it has seen job 1");
  cr_expect_eq(count_processes(batches.path), 2);
  batches_free(&batches);
}

Test(agent_lease_batches, adds_the_times_in_answers) {
  struct batches batches = batches_new(3, STAGE_SCREEN);
  batches_run(&batches);
  cr_expect_eq(batches.trial.executor.spent.timing_us, 3 * CONFIG_US);
  const struct executor_spent *spent = &batches.trial.executor.spent;
  cr_expect_eq(spent->reference_us + spent->inputs_us + spent->baseline_us, 30);
  cr_expect_geq(batches.trial.executor.spent.start_us, 400);
  batches_free(&batches);
}

static size_t count_in(FILE *file, const char *part) {
  cleanup_free char *line = NULL;
  size_t capacity = 0, n = 0;
  cr_assert_eq(fseek(file, 0, SEEK_SET), 0);
  while (getline(&line, &capacity, file) > 0)
    n += strstr(line, part) != NULL;
  return n;
}

Test(agent_lease_batches, a_missing_helper_kernel_is_logged_once) {
  setenv("WAVETUNE_LOG", "warning", 1);
  struct batches batches = batches_new(1, STAGE_SCREEN);
  setenv("WAVETUNE_HIP_COMPILER", "/nowhere/clang", 1);
  batches.trial.executor.is_gpu = true;
  batches.trial.executor.arch = "gfx942";
  batches.trial.lease.regime = REGIME_COLD;
  batches.trial.leases = 3;
  cleanup_file FILE *log = tmpfile();
  cr_assert_not_null(log);
  int saved = dup(STDERR_FILENO);
  dup2(fileno(log), STDERR_FILENO);
  batches_run(&batches);
  dup2(saved, STDERR_FILENO);
  close(saved);
  cr_expect_eq(batches.trial.end, LEASE_DONE);
  cr_expect_eq(count_in(log, "on gfx942 outputs are copied to the host to be compared: "), 1);
  cr_expect_eq(count_in(log, "on gfx942 cold measurements leave the instruction caches warm"), 1);
  batches_free(&batches);
}

Test(agent_lease_batches, a_gpu_gets_the_fingerprint_and_amds_cold_measurements_the_flush) {
  if (access(CLANG, X_OK) != 0)
    cr_skip("there is no " CLANG);
  setenv("WAVETUNE_HIP_COMPILER", CLANG, 1);
  for (size_t i = 0; i < 2; i++) {
    struct batches batches = batches_new(1, STAGE_SCREEN);
    struct helper_object objects[HELPER_COUNT];
    struct error error;
    batches.trial.executor.is_gpu = true;
    batches.trial.executor.arch = "gfx942";
    batches.trial.lease.regime = i ? REGIME_WARM : REGIME_COLD;
    for (enum helper_kernel helper = 0; helper < HELPER_COUNT; helper++)
      cr_assert(helper_kernel_object(batches.trial.fixture.pool, helper, "gfx942", &objects[helper],
                                     &error),
                "%s", error.message);
    batches_run(&batches);
    const json_t *open = request_of(&batches.requests, "open", 0)->json;
    const json_t *flush = json_object_get(open, "instruction_flush");
    if (i == 0)
      cr_expect_str_eq(json_string_value(flush), objects[HELPER_INSTRUCTION_FLUSH].path);
    else
      cr_expect(json_is_null(flush));
    cr_expect_str_eq(json_string_value(json_object_get(open, "fingerprint")),
                     objects[HELPER_FINGERPRINT].path);
    for (size_t helper = 0; helper < HELPER_COUNT; helper++)
      free(objects[helper].path);
    batches_free(&batches);
  }
}
