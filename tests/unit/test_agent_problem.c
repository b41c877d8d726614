/* Buffers of a problem: how a regime is reached, and which memory must suffice. */
#include "tests/unit/agent_fixture.h"

#include "agent/measure/problem.h"

enum { N = 100000, BYTES = 4 * N };

static const struct problem_setup warm = {
    .seed = 1, .rotation_bytes_max = ROTATION_BYTES_MAX, .regime = REGIME_WARM};
static const struct problem_setup cold = {
    .seed = 1, .rotation_bytes_max = ROTATION_BYTES_MAX, .regime = REGIME_COLD};

struct opened {
  struct fixture fixture;
  struct device *device;
  struct problem *problem; /* NULL: refused, see error */
  struct error error;
};

/* y = x + 1 with N floats each and no reference, on a device whose caches `displacement` bytes
 * displace, and which has `beside` bytes of memory in addition to the buffers (0: not known). */
static void problem_open(struct opened *opened, const struct problem_setup *regime,
                         size_t displacement, size_t beside) {
  struct problem_setup setup = *regime;
  *opened = (struct opened){.fixture = fixture_new(FIXTURE_GOOD, (struct fixture_options){.n = N})};
  cr_assert(device_open("cpu0", &opened->device, &opened->error), "%s", opened->error.message);
  opened->device->displacement_bytes = displacement;
  opened->device->memory_bytes = beside ? 6 * BYTES + beside : 0;
  setup.device = opened->device;
  setup.kernel = opened->fixture.kernel;
  setup.key = &opened->fixture.key;
  setup.space = opened->fixture.space;
  if (!problem_new(&setup, &opened->problem, &opened->error))
    opened->problem = NULL;
}

static void problem_close(struct opened *opened) {
  if (opened->problem)
    problem_free(opened->problem);
  device_close(opened->device);
  fixture_free(&opened->fixture);
}

Test(problem, a_key_that_does_not_fit_into_memory_is_refused_before_anything_is_allocated) {
  struct error error = {0};
  struct device *device;
  struct problem *problem;
  struct fixture fixture =
      fixture_new(FIXTURE_GOOD, (struct fixture_options){.n = (int64_t)1 << 40});
  cr_assert(device_open("cpu0", &device, &error));
  cr_expect_gt(device->memory_bytes, 0);
  struct problem_setup setup = {.device = device,
                                .kernel = fixture.kernel,
                                .key = &fixture.key,
                                .space = fixture.space,
                                .regime = REGIME_WARM,
                                .rotation_bytes_max = ROTATION_BYTES_MAX};
  cr_expect_not(problem_new(&setup, &problem, &error));
  cr_expect_not_null(strstr(error.message, "its buffers need 24576.00 GiB of memory and "), "%s",
                     error.message);
  device_close(device);
  fixture_free(&fixture);
}

Test(regime, warm_uses_one_copy) {
  struct opened opened;
  problem_open(&opened, &warm, 1 << 20, 0);
  cr_assert_not_null(opened.problem, "%s", opened.error.message);
  cr_expect_eq(opened.problem->rotation.n_copies, 1);
  cr_expect_not(rotation_prepares(&opened.problem->rotation));
  problem_close(&opened);
}

Test(regime, cold_rotates_over_copies_that_displace_the_caches) {
  struct opened opened;
  problem_open(&opened, &cold, (6 << 20) + 1, 0);
  cr_assert_not_null(opened.problem, "%s", opened.error.message);
  const struct device_rotation *rotation = &opened.problem->rotation;
  cr_assert_eq(rotation->n_operands, 2);
  cr_expect_eq(opened.problem->n_sets, AGREEMENT_SETS);
  cr_expect_not(rotation_prepares(rotation));
  cr_expect_geq(rotation->n_copies * 2 * rotation->operands[0].stride,
                opened.device->displacement_bytes);
  const struct device_operand *input = &rotation->operands[1];
  cr_expect_geq(input->stride, BYTES);
  cr_expect_neq(((const float *)input->base)[1], 0);
  for (size_t k = 1; k < rotation->n_copies; k++)
    cr_expect_eq(memcmp(input->base, input->base + k * input->stride, BYTES), 0, "copy %zu", k);
  problem_close(&opened);
}

static void expect_displaced(const struct problem_setup *regime, size_t displacement,
                             size_t beside) {
  struct opened opened;
  problem_open(&opened, regime, displacement, beside);
  cr_assert_not_null(opened.problem, "%s", opened.error.message);
  cr_expect(opened.problem->rotation.displace);
  cr_expect_eq(opened.problem->n_sets, beside ? 1 : AGREEMENT_SETS,
               "more sets of inputs only where memory suffices");
  cr_expect(rotation_prepares(&opened.problem->rotation));
  cr_expect_eq(opened.problem->rotation.n_copies, 1);
  problem_close(&opened);
}

Test(regime, cold_displaces_the_caches_where_memory_does_not_suffice_for_copies) {
  expect_displaced(&cold, 2 << 20, 2 << 20);
}

Test(regime, memory_for_two_copies_of_operands_larger_than_the_caches_is_counted) {
  expect_displaced(&cold, 2 << 16, (2 << 16) + 2 * BYTES);
}

Test(regime, cold_displaces_the_caches_when_copies_take_too_much) {
  struct problem_setup setup = cold;
  setup.rotation_bytes_max = 3 * BYTES;
  expect_displaced(&setup, 2 << 20, 0);
}

Test(regime, memory_for_displacing_is_counted) {
  struct opened opened;
  problem_open(&opened, &cold, 2 << 20, 1 << 20);
  cr_assert_null(opened.problem);
  cr_expect_not_null(strstr(opened.error.message, "its buffers need"), "%s", opened.error.message);
  problem_close(&opened);
}

Test(regime, calls_that_a_device_cannot_launch_so_are_an_error) {
  struct error error;
  struct device *device;
  struct problem *problem;
  struct fixture fixture = fixture_new(FIXTURE_GOOD, (struct fixture_options){.n = N});
  cr_assert(device_open("cpu0", &device, &error));
  const struct device_ops *ops = device->ops;
  struct device_ops without = *ops;
  without.launch = NULL;
  device->ops = &without;
  struct problem_setup setup = {.device = device,
                                .kernel = fixture.kernel,
                                .key = &fixture.key,
                                .space = fixture.space,
                                .rotation_bytes_max = ROTATION_BYTES_MAX};
  cr_expect_not(problem_new(&setup, &problem, &error));
  cr_expect_str_eq(error.message, "the back end cpu cannot launch calls as the regime cold does");
  device->ops = ops;
  device_close(device);
  fixture_free(&fixture);
}

Test(regime, instruction_caches_that_a_device_cannot_flush_are_an_error_of_a_cold_problem_only) {
  struct problem_setup setup = cold;
  setup.instruction_flush = "/nowhere/flush.co";
  struct opened opened;
  problem_open(&opened, &setup, 1 << 20, 0);
  cr_assert_null(opened.problem);
  cr_expect_not_null(strstr(opened.error.message, "cpu cannot flush instruction caches"), "%s",
                     opened.error.message);
  problem_close(&opened);
  setup.regime = REGIME_WARM;
  problem_open(&opened, &setup, 1 << 20, 0);
  cr_assert_not_null(opened.problem, "%s", opened.error.message);
  cr_expect_not(opened.problem->rotation.flush_instructions);
  problem_close(&opened);
}
