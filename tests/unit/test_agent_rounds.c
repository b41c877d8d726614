/* Rounds of paired samples, and the regimes that a problem prepares. */
#include "tests/unit/agent_fixture.h"

#include <math.h>

#include "agent/measure/rounds.h"

/* WORK turns of an empty loop beside the sum: configs that differ in speed and in nothing else. */
#define WORKER                                                                                                         \
  "#include <stdint.h>\nvoid f(float *y, const float *x, int64_t n) {\nfor (int64_t i = 0; i < n; i++) y[i] = x[i] + " \
  "1;\nfor (volatile int i = 0; i < WORK; i++);\n}\n"
#define WORKS "{\"parameters\": {\"WORK\": [0, 1, 1000000]}}"

#define CONFIGS 3

struct measured {
  struct fixture fixture;
  struct device *device;
  struct problem *problem;
  struct timed baseline, configs[CONFIGS];
  uint64_t turns[1000];
  size_t n_turns;
};

static void turn_note(void *context, uint64_t config) {
  struct measured *measured = context;
  cr_assert_lt(measured->n_turns, ARRAY_LENGTH(measured->turns));
  measured->turns[measured->n_turns++] = config;
}

static void measured_open(struct measured *measured, const char *source, struct fixture_options fixture_options,
                          struct problem_options options) {
  struct error error = {0};
  *measured = (struct measured){.fixture = fixture_new(source, fixture_options)};
  const struct fixture *fixture = &measured->fixture;
  cr_assert(device_open("cpu0", &measured->device, &error));
  cr_assert(problem_new(measured->device, fixture->kernel, &fixture->key, fixture->space, NULL, &options,
                        &measured->problem, &error),
            "%s", error.message);
  for (size_t i = 0; i <= CONFIGS; i++) {
    struct timed *timed = i < CONFIGS ? &measured->configs[i] : &measured->baseline;
    uint64_t config = i < CONFIGS ? i % fixture->space->raw_count : 0;
    char *object = fixture_object(fixture, config, false);
    struct launch_spec launch = launch_spec_default();
    cr_assert_eq(candidate_load(measured->problem, config, object, &launch, &timed->candidate, &error), OUTCOME_CORRECT,
                 "%s", error.message);
    free(object);
  }
  cr_assert(timed_warm_up(measured->problem, &measured->baseline, 100, &error));
}

static void measured_run(struct measured *measured, size_t n, size_t rounds, uint64_t seed) {
  measured->n_turns = 0;
  rounds_run(measured->problem, &measured->baseline, measured->configs, n, rounds, seed,
             &(struct turn){turn_note, measured});
}

static void measured_close(struct measured *measured) {
  for (size_t i = 0; i < CONFIGS; i++) {
    candidate_free(measured->problem, measured->configs[i].candidate);
    timed_release(&measured->configs[i]);
  }
  candidate_free(measured->problem, measured->baseline.candidate);
  timed_release(&measured->baseline);
  problem_free(measured->problem);
  device_close(measured->device);
  fixture_free(&measured->fixture);
}

static const struct problem_options warm = {.seed = 1, .rotation_bytes_max = ROTATION_BYTES_MAX};

Test(rounds, every_config_gets_a_pair_a_round) {
  struct measured measured;
  measured_open(&measured, WORKER, (struct fixture_options){.space = WORKS}, warm);
  measured_run(&measured, 2, 10, 1);
  for (size_t i = 0; i < 2; i++) {
    cr_expect_eq(measured.configs[i].n, 10);
    for (size_t k = 0; k < 10; k++) {
      cr_expect(isfinite(measured.configs[i].samples_us[k]) && measured.configs[i].samples_us[k] > 0);
      cr_expect(isfinite(measured.configs[i].baseline_us[k]) && measured.configs[i].baseline_us[k] > 0);
    }
    cr_expect_gt(measured.configs[i].device_ns, 0);
  }
  measured_close(&measured);
}

Test(rounds, a_config_comes_first_in_half_of_its_pairs) {
  struct measured measured;
  measured_open(&measured, WORKER, (struct fixture_options){.space = WORKS}, warm);
  measured_run(&measured, 2, 40, 1);
  cr_expect_eq(measured.configs[0].n_first, 20);
  cr_expect_eq(measured.configs[1].n_first, 20);
  measured_close(&measured);
}

Test(rounds, the_order_within_a_round_is_random_and_follows_the_seed) {
  struct measured measured;
  uint64_t first[1000];
  measured_open(&measured, WORKER, (struct fixture_options){.space = WORKS}, warm);
  measured_run(&measured, 2, 40, 1);
  size_t n = measured.n_turns, in_order = 0;
  memcpy(first, measured.turns, sizeof first);
  /* One turn for the baseline and one a config to warm up, then two a round. */
  cr_assert_eq(n, 3 + 80);
  for (size_t k = 3; k < n; k += 2) {
    cr_expect_eq(first[k] + first[k + 1], 1, "each config once a round");
    in_order += first[k] == 0;
  }
  cr_expect(in_order > 5 && in_order < 35, "%zu of 40", in_order);
  for (int i = 0; i < 2; i++) {
    timed_release(&measured.configs[i]);
    measured.configs[i].n = 0;
  }
  measured_run(&measured, 2, 40, 1);
  cr_expect_eq(memcmp(first, measured.turns, n * sizeof first[0]), 0);
  measured_close(&measured);
}

Test(rounds, a_much_slower_config_gets_the_first_rounds_only) {
  struct measured measured;
  measured_open(&measured, WORKER, (struct fixture_options){.space = WORKS}, warm);
  measured_run(&measured, 3, 20, 1);
  cr_expect_eq(measured.configs[0].n, 20);
  cr_expect_eq(measured.configs[2].n, 5);
  measured_close(&measured);
}

Test(rounds, a_long_check_costs_no_rounds) {
  struct measured measured;
  measured_open(&measured, WORKER, (struct fixture_options){.space = WORKS}, warm);
  measured.configs[0].device_ns = (int64_t)(2 * ROUNDS_TIME_MAX_US * 1000);
  measured_run(&measured, 1, 10, 1);
  cr_expect_eq(measured.configs[0].n, 10);
  measured_close(&measured);
}

Test(rounds, buffers_larger_than_memory_are_refused_before_they_are_made) {
  struct error error = {0};
  struct device *device;
  struct problem *problem;
  struct fixture fixture = fixture_new(FIXTURE_GOOD, (struct fixture_options){.n = (int64_t)1 << 40});
  cr_assert(device_open("cpu0", &device, &error));
  cr_expect_gt(device->memory_bytes, 0);
  cr_expect_not(problem_new(device, fixture.kernel, &fixture.key, fixture.space, NULL, &warm, &problem, &error));
  cr_expect_not_null(strstr(error.message, "its buffers need 16384.00 GiB of memory and "), "%s", error.message);
  device_close(device);
  fixture_free(&fixture);
}

/* A cold problem of 1.6 MB of buffers on a device with so much memory beside them. */
static void expect_displaced(size_t cache_bytes, size_t beside) {
  struct error error = {0};
  struct device *device;
  struct problem *problem;
  struct problem_options cold = warm;
  struct fixture fixture = fixture_new(FIXTURE_GOOD, (struct fixture_options){.n = 100000});
  cold.is_cold = true;
  cr_assert(device_open("cpu0", &device, &error));
  device->cache_bytes = cache_bytes;
  device->memory_bytes = 4 * 400000 + beside;
  cr_assert(problem_new(device, fixture.kernel, &fixture.key, fixture.space, NULL, &cold, &problem, &error), "%s",
            error.message);
  cr_expect(problem->rotation.displace);
  cr_expect_eq(problem->rotation.n_copies, 1);
  problem_free(problem);
  device_close(device);
  fixture_free(&fixture);
}

Test(regime, cold_displaces_the_caches_where_copies_have_no_room) { expect_displaced(1 << 20, 2 << 20); }

Test(regime, two_copies_of_operands_larger_than_the_cache_need_room_too) {
  expect_displaced(1 << 16, (2 << 16) + 800000);
}

Test(regime, memory_for_displacing_is_counted) {
  struct error error = {0};
  struct device *device;
  struct problem *problem;
  struct problem_options cold = warm;
  struct fixture fixture = fixture_new(FIXTURE_GOOD, (struct fixture_options){.n = 100000});
  cold.is_cold = true;
  cr_assert(device_open("cpu0", &device, &error));
  device->cache_bytes = 1 << 20;
  device->memory_bytes = 4 * 400000 + (1 << 20);
  cr_expect_not(problem_new(device, fixture.kernel, &fixture.key, fixture.space, NULL, &cold, &problem, &error));
  cr_expect_not_null(strstr(error.message, "its buffers need"), "%s", error.message);
  device_close(device);
  fixture_free(&fixture);
}

Test(rounds, a_config_that_failed_is_left_out) {
  struct measured measured;
  measured_open(&measured, WORKER, (struct fixture_options){.space = WORKS}, warm);
  measured.configs[1].failed = true;
  measured_run(&measured, 2, 4, 1);
  cr_expect_eq(measured.configs[0].n, 4);
  cr_expect_eq(measured.configs[1].n, 0);
  measured_close(&measured);
}

Test(rounds, a_short_kernel_is_called_until_a_sample_is_long_enough) {
  struct measured measured;
  measured_open(&measured, WORKER, (struct fixture_options){.space = WORKS, .n = 1}, warm);
  cr_expect_gt(measured.baseline.calls, 1);
  cr_expect_lt(measured.baseline.estimate_us, SAMPLE_US);
  measured_close(&measured);
}

Test(regime, warm_uses_one_copy) {
  struct measured measured;
  measured_open(&measured, FIXTURE_GOOD, (struct fixture_options){0}, warm);
  cr_expect_eq(measured.problem->rotation.n_copies, 1);
  cr_expect_not(measured.problem->rotation.displace);
  measured_close(&measured);
}

Test(regime, cold_rotates_over_twice_the_last_level_cache) {
  struct measured measured;
  struct problem_options cold = warm;
  cold.is_cold = true;
  measured_open(&measured, FIXTURE_GOOD, (struct fixture_options){.n = 100000}, cold);
  const struct device_rotation *rotation = &measured.problem->rotation;
  size_t total = 0;
  cr_expect_eq(rotation->n_operands, 2);
  for (size_t i = 0; i < rotation->n_operands; i++) {
    total += rotation->operands[i].stride * rotation->n_copies;
    cr_expect_geq(rotation->operands[i].stride, 400000);
  }
  cr_expect_geq(total, 2 * measured.device->cache_bytes);
  /* Each copy of an input is filled. */
  const float *first = (const float *)rotation->operands[1].base;
  const float *last =
      (const float *)(rotation->operands[1].base + (rotation->n_copies - 1) * rotation->operands[1].stride);
  cr_expect_eq(memcmp(first, last, 400000), 0);
  cr_expect_neq(first[1], 0);
  measured_close(&measured);
}

Test(regime, cold_displaces_the_caches_when_copies_take_too_much) {
  struct measured measured;
  struct problem_options cold = {.seed = 1, .is_cold = true, .rotation_bytes_max = 1 << 20};
  measured_open(&measured, FIXTURE_GOOD, (struct fixture_options){0}, cold);
  cr_expect(measured.problem->rotation.displace);
  cr_expect_eq(measured.problem->rotation.n_copies, 1);
  cr_expect_eq(measured.baseline.calls, 1, "only the first call after a displacement is cold");
  measured_close(&measured);
}

static void expect_refused(const char *arguments, const char *space, const char *expected) {
  struct error error = {0};
  struct problem_options options = warm;
  struct fixture fixture = fixture_new(FIXTURE_GOOD, (struct fixture_options){.arguments = arguments, .space = space});
  struct device *device;
  struct problem *problem;
  cr_assert(device_open("cpu0", &device, &error));
  cr_expect_not(problem_new(device, fixture.kernel, &fixture.key, fixture.space, NULL, &options, &problem, &error));
  cr_expect_not_null(strstr(error.message, expected), "%s", error.message);
  device_close(device);
  fixture_free(&fixture);
}

#define Y "{\"name\":\"y\",\"dtype\":\"float32\",\"shape\":[\"n\"],\"access\":\"write\"}"

Test(problem, a_scalar_that_its_type_cannot_hold_is_refused) {
  expect_refused("[" Y ",{\"name\":\"s\",\"dtype\":\"int8\",\"value\":\"n\"}]", NULL,
                 "argument \"s\": n does not give a value of int8");
  expect_refused("[" Y ",{\"name\":\"s\",\"dtype\":\"uint32\",\"value\":\"-n\"}]", NULL, "a value of uint32");
  expect_refused("[" Y ",{\"name\":\"s\",\"dtype\":\"float32\",\"value\":\"2 ** 60\"}]", NULL, "a value of float32");
  expect_refused("[" Y ",{\"name\":\"s\",\"dtype\":\"int32\",\"value\":\"None\"}]", NULL, "a value of int32");
}

Test(problem, a_scalar_that_cannot_be_computed_is_refused) {
  expect_refused("[" Y ",{\"name\":\"s\",\"dtype\":\"int64\",\"value\":\"n // (n - 1000)\"}]", NULL,
                 "argument \"s\": ");
}

Test(problem, an_empty_buffer_is_refused) {
  expect_refused("[{\"name\":\"y\",\"dtype\":\"float32\",\"shape\":[\"n - 1000\"],\"access\":\"write\"}]", NULL,
                 "\"y\"");
}

Test(problem, a_buffer_whose_extent_depends_on_the_config_is_refused) {
  expect_refused("[" Y ",{\"name\":\"s\",\"dtype\":\"float32\",\"shape\":[\"BLOCK\"],\"access\":\"read\"}]",
                 "{\"parameters\": {\"BLOCK\": [1, 2]}}", "BLOCK");
}
