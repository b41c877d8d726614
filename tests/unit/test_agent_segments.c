/* Configs that are passed segments of a buffer (tests/data/kernels/routed). */
#include "tests/unit/agent_fixture.h"

#include "agent/measure/check.h"
#include "common/kernel/kernel_folder.h"

enum { TOKENS = 301, CONFIGS = 6 };
#define SOURCES SOURCE_FOLDER "/tests/data/kernels/routed"

/* The kernel on the CPU with all configs loaded: BLOCK 4, 8, 16, each right and then WRONG. */
struct trial {
  struct fixture fixture;
  struct kernel_folder *folder;
  struct device *device;
  struct problem *problem;
  char *objects[CONFIGS];
  struct loaded_config *loaded[CONFIGS];
};

static void trial_open(struct trial *trial, enum regime regime, bool has_reference) {
  struct error error = {0};
  *trial = (struct trial){.fixture = fixture_new(FIXTURE_GOOD, (struct fixture_options){0})};
  struct fixture *fixture = &trial->fixture;
  cr_assert(kernel_folder_load(SOURCES, &trial->folder, &error), "%s", error.message);
  cr_assert(device_open("cpu0", &trial->device, &error), "%s", error.message);
  fixture->key.values[0] = value_int(TOKENS);
  struct compile_request request = {.kernel = trial->folder->kernel,
                                    .key = &fixture->key,
                                    .space = trial->folder->space,
                                    .sources = SOURCES,
                                    .gpu_name = "",
                                    .arch = "x86_64"};
  struct reference *reference = NULL;
  for (size_t i = 0; i <= CONFIGS; i++) {
    request.is_reference = i == CONFIGS;
    request.config = i == CONFIGS ? 0 : i;
    struct compile_result result =
        compile_pool_wait(fixture->pool, compile_pool_submit(fixture->pool, &request));
    cr_assert(result.ok, "%s", result.error.message);
    if (i < CONFIGS)
      trial->objects[i] = result.object;
    else if (has_reference)
      cr_assert(reference_load(result.object, &reference, &error), "%s", error.message);
    if (i == CONFIGS)
      free(result.object);
  }

  struct problem_setup setup = {.device = trial->device,
                                .kernel = request.kernel,
                                .key = request.key,
                                .space = request.space,
                                .reference = reference,
                                .seed = 3,
                                .regime = regime,
                                .rotation_bytes_max = ROTATION_BYTES_MAX};
  trial->device->displacement_bytes = 1 << 20;
  cr_assert(problem_new(&setup, &trial->problem, &error), "%s", error.message);
  struct launch_spec launch = launch_spec_default();
  for (size_t i = 0; i < CONFIGS; i++)
    cr_assert_eq(
        config_load(trial->problem, i, trial->objects[i], &launch, &trial->loaded[i], &error),
        OUTCOME_CORRECT, "%s", error.message);
}

static void trial_close(struct trial *trial) {
  for (size_t i = 0; i < CONFIGS; i++) {
    config_unload(trial->problem, trial->loaded[i]);
    free(trial->objects[i]);
  }
  problem_free(trial->problem);
  device_close(trial->device);
  kernel_folder_free(trial->folder);
  fixture_free(&trial->fixture);
}

static void expect_right_ones(struct trial *trial, const char *what) {
  for (size_t i = 0; i < CONFIGS; i++) {
    struct error error = {0};
    enum outcome outcome = config_check(trial->problem, trial->loaded[i], &error);
    cr_expect_eq(outcome, i % 2 ? OUTCOME_CORRECTNESS : OUTCOME_CORRECT, "%s, config %zu: %s", what,
                 i, error.message);
  }
}

Test(segments, each_config_is_checked_with_its_own_and_one_that_reads_another_is_wrong) {
  struct trial trial;
  trial_open(&trial, REGIME_WARM, true);
  expect_right_ones(&trial, "with a reference");
  trial_close(&trial);
}

Test(segments, sets_of_inputs_are_routed_consistently) {
  struct trial trial;
  trial_open(&trial, REGIME_WARM, false);
  cr_assert_eq(trial.problem->n_sets, AGREEMENT_SETS);
  const struct operand *ids = &trial.problem->operands[2];
  cr_expect_neq(memcmp(ids->sets[0]->address, ids->sets[1]->address, ids->bytes), 0);
  expect_right_ones(&trial, "with the default");
  trial_close(&trial);
}

/* The address that a call of the config gets for an argument. */
static const char *passed(const struct trial *trial, size_t config, size_t argument) {
  return *(char *const *)config_launch(trial->loaded[config]).arguments[argument];
}

Test(segments, calls_that_rotate_are_passed_the_segment_of_each_copy) {
  struct trial trial;
  trial_open(&trial, REGIME_COLD, true);
  struct device_rotation *rotation = &trial.problem->rotation;
  const struct operand *ids = &trial.problem->operands[2];
  cr_assert_gt(rotation->n_copies, 2);
  cr_assert_eq(ids->segments.n, 3);
  size_t touched = 0; /* by a config with the smallest segments */
  operands_foreach (trial.problem, operand) {
    size_t least = operand->bytes;
    array_foreach (segment, operand->segments.all, operand->segments.n)
      if ((size_t)segment->elements * 4 < least) /* all have elements of 4 bytes */
        least = (size_t)segment->elements * 4;
    touched += (least + 63) / 64 * 64;
  }
  cr_expect_geq(rotation->n_copies * touched, trial.device->displacement_bytes);
  for (size_t copy = 0; copy < 3; copy++) {
    rotation_step(rotation);
    for (size_t i = 0; i < CONFIGS; i++) {
      const struct segment *segment = &ids->segments.all[i / 2];
      const char *address = passed(&trial, i, 2);
      cr_expect_eq((uintptr_t)address % SEGMENT_ALIGNMENT, 0);
      cr_expect_eq(memcmp(address, (const char *)ids->given + segment->offset,
                          (size_t)segment->elements * sizeof(int32_t)),
                   0, "config %zu, copy %zu", i, copy);
    }
    cr_expect_eq(passed(&trial, 0, 1), passed(&trial, 5, 1), "x has one segment");
  }

  struct device_timing timings[CONFIGS];
  struct error error;
  for (size_t i = 0; i < CONFIGS; i++)
    timings[i] = (struct device_timing){config_launch(trial.loaded[i]), rotation, 2, 0};
  cr_expect(trial.device->ops->time(trial.device, timings, CONFIGS, &error));
  expect_right_ones(&trial, "after calls that rotated");
  trial_close(&trial);
}

Test(segments, a_change_in_any_segment_is_found_and_restored) {
  struct trial trial;
  struct error error = {0};
  trial_open(&trial, REGIME_WARM, true);
  const struct operand *ids = &trial.problem->operands[2];
  cr_assert_eq(config_check(trial.problem, trial.loaded[2], &error), OUTCOME_CORRECT);
  ((char *)ids->checked->address)[ids->bytes - 1] ^= 1; /* of BLOCK 16's, which no config read */
  cr_assert_eq(config_check(trial.problem, trial.loaded[0], &error), OUTCOME_CORRECT);
  cr_assert(problem_inputs_check(trial.problem, &error), "%s", error.message);
  cr_expect_eq(trial.loaded[0]->outcome, OUTCOME_CORRECTNESS);
  cr_expect_str_eq(trial.loaded[0]->error.message,
                   "argument \"ids\": it is only to be read, and its data were changed");
  cr_expect_eq(memcmp(ids->checked->address, ids->given, ids->bytes), 0);
  trial_close(&trial);
}
