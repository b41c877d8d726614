/* Outputs compared with the values of Triton's interpreter: each type's tolerance, and in the check
 * of configs. */
#include <math.h>

#include "agent/measure/check.h"
#include "agent/measure/element.h"
#include "agent/measure/expected.h"
#include "tests/unit/agent_fixture.h"

#define N 1000

/* A kernel whose first buffer is compared. */
static struct kernel *kernel_of(struct argument arguments[2], enum dtype dtype, enum dtype other,
                                struct kernel *kernel) {
  static char name[] = "y";
  arguments[0] = (struct argument){.name = name, .dtype = dtype, .is_buffer = true};
  arguments[1] = (struct argument){.dtype = other, .is_buffer = true};
  *kernel = (struct kernel){.n_arguments = 2, .arguments = arguments};
  return kernel;
}

/* Whether N elements of `expected` agree with what is `found` from element `at` to `end`, and with
 * `expected` elsewhere. */
struct compared {
  enum dtype dtype, other;
  bool is_tf32;
  double expected, found;
  int64_t at, end;
  double more; /* tolerance */
};
static bool agrees(struct compared of, struct error *error) {
  static struct argument arguments[2];
  struct kernel kernel;
  static char values[8 * N], bytes[8 * N];
  kernel_of(arguments, of.dtype, of.other, &kernel)->is_tf32 = of.is_tf32;
  struct expected_run runs[2] = {{0, N / 2}, {N / 2, N - N / 2}};
  struct expected_buffer buffer = {.n_runs = 2, .n_values = N, .runs = runs, .values = values};
  for (int64_t i = 0; i < N; i++) {
    element_set(of.dtype, values, i, of.expected);
    element_set(of.dtype, bytes, i, i >= of.at && i < of.end ? of.found : of.expected);
  }
  return expected_agrees(&kernel, &buffer, bytes, of.more, error);
}

static void expect_tolerance(enum dtype dtype, enum dtype other, bool is_tf32, double within) {
  struct error error = {0};
  struct compared of = {dtype, other, is_tf32, 1, 1 + within, 700, 701};
  cr_expect(agrees(of, &error), "%s: %s", dtype_name(dtype), error.message);
  of.found = 1 + 3 * within;
  cr_expect_not(agrees(of, &error), "%s", dtype_name(dtype));
  cr_expect(strstr(error.message, "y[700] is 1"), "%s", error.message);
  cr_expect(strstr(error.message, "Triton's interpreter has 1 (allowed difference "), "%s",
            error.message);
}

Test(expected, each_type_has_its_tolerance) {
  expect_tolerance(DTYPE_BFLOAT16, DTYPE_INT32, false, 0.05);
  expect_tolerance(DTYPE_FLOAT16, DTYPE_INT32, false, 0.012);
  expect_tolerance(DTYPE_FLOAT32, DTYPE_INT32, false, 1.5e-4);
  expect_tolerance(DTYPE_FLOAT32, DTYPE_FLOAT32, true, 0.015);
  expect_tolerance(DTYPE_FLOAT64, DTYPE_INT32, false, 1.5e-9);
}

Test(expected, what_is_computed_from_narrow_floats_is_compared_as_these) {
  expect_tolerance(DTYPE_FLOAT32, DTYPE_BFLOAT16, false, 0.05);
  expect_tolerance(DTYPE_FLOAT32, DTYPE_FLOAT16, false, 0.012);
  expect_tolerance(DTYPE_FLOAT32, DTYPE_FLOAT8_E4M3FN, false, 0.05);
}

Test(expected, what_rounding_may_change_is_added_to_the_tolerance) {
  struct error error = {0};
  struct compared of = {DTYPE_FLOAT32, DTYPE_INT32, false, 1, 1.25, 700, 701, .more = 0.24};
  cr_expect_not(agrees(of, &error));
  of.more = 0.26;
  cr_expect(agrees(of, &error), "%s", error.message);
}

Test(expected, nan_and_infinity_are_where_the_interpreter_has_them) {
  struct error error;
  struct compared of = {DTYPE_FLOAT32, DTYPE_INT32, false, 1, NAN, 5, 6};
  cr_expect_not(agrees(of, &error));
  of.found = INFINITY;
  cr_expect_not(agrees(of, &error));
  of.expected = INFINITY;
  cr_expect(agrees(of, &error));
  of.found = -INFINITY;
  cr_expect_not(agrees(of, &error));
  of.expected = of.found = NAN;
  cr_expect(agrees(of, &error));
}

Test(expected, few_8_bit_floats_may_be_the_next_value) {
  struct error error;
  struct compared of = {DTYPE_FLOAT8_E4M3FN, DTYPE_INT32, false, 1, 1.125, 0, N / 20};
  cr_expect(agrees(of, &error));
  of.end++;
  cr_expect_not(agrees(of, &error));
  cr_expect(strstr(error.message, "elements that differ: 51"), "%s", error.message);
  of = (struct compared){DTYPE_FLOAT8_E4M3FN, DTYPE_INT32, false, 1, 1.25, 0, 1};
  cr_expect_not(agrees(of, &error));
}

Test(expected, integers_are_equal_but_for_few_that_come_from_floats) {
  struct error error;
  struct compared of = {DTYPE_INT64, DTYPE_INT32, false, 7, 8, 3, 4};
  cr_expect_not(agrees(of, &error));
  cr_expect(strstr(error.message, "y[3] is 8, Triton's interpreter has 7"), "%s", error.message);
  of.other = DTYPE_FLOAT16;
  cr_expect(agrees(of, &error));
  of.end = 3 + N / 100 + 1;
  cr_expect_not(agrees(of, &error));
}

/* y[i] = x[i] + 1 with x[i] = i, but for the modes' errors. */
static const char source[] =
    "#include <stdint.h>\nvoid f(float *y, const float *x, int64_t n) {\n"
    "for (int64_t i = 0; i < n; i++) y[i] = x[i] + (MODE == 1 ? 1.00000001f : 1);\n"
    "if (MODE == 2) y[20] = 0;\nif (MODE == 3) y[500] = 0;\nif (MODE == 4) y[20] = 21.001f; }\n";

struct trial {
  struct fixture fixture;
  struct device *device;
  struct problem *problem;
  struct expected expected;
  struct expected_values values_of_all;
  struct expected_buffer buffer;
  struct expected_run run;
  float values[16];
};

/* The interpreter has elements 16 to 31, of which 20 is as stated. */
static void trial_open(struct trial *trial, float twentieth) {
  *trial = (struct trial){
      .fixture = fixture_new(
          source,
          (struct fixture_options){.space = "{\"parameters\": {\"MODE\": [0, 1, 2, 3, 4]}}"})};
  struct error error = {0};
  cr_assert(device_open("cpu0", &trial->device, &error));
  trial->run = (struct expected_run){16, 16};
  trial->buffer = (struct expected_buffer){
      .n_runs = 1, .n_values = 16, .runs = &trial->run, .values = trial->values};
  trial->values_of_all = (struct expected_values){.n = 1, .buffers = &trial->buffer};
  trial->expected = (struct expected){.seed = 99, .n = 1, .all = &trial->values_of_all};
  struct problem_setup setup = {.device = trial->device,
                                .kernel = trial->fixture.kernel,
                                .key = &trial->fixture.key,
                                .space = trial->fixture.space,
                                .expected = &trial->expected,
                                .seed = 1,
                                .regime = REGIME_WARM,
                                .rotation_bytes_max = ROTATION_BYTES_MAX};
  cr_assert(problem_new(&setup, &trial->problem, &error), "%s", error.message);
  const float *x = trial->problem->operands[1].given;
  for (int i = 0; i < 16; i++)
    trial->values[i] = x[16 + i] + 1;
  trial->values[4] += twentieth;
}

static void expect(struct trial *trial, uint64_t config, enum outcome outcome,
                   enum agreement interpreted, const char *words) {
  struct error error = {0};
  struct launch_spec launch = launch_spec_default();
  cleanup_free char *object = fixture_object(&trial->fixture, config, false);
  struct loaded_config *loaded;
  cr_assert_eq(config_load(trial->problem, config, object, &launch, &loaded, &error),
               OUTCOME_CORRECT, "%s", error.message);
  cr_expect_eq(config_check(trial->problem, loaded, &error), outcome, "%d: %s", (int)config,
               error.message);
  cr_expect_eq(loaded->interpreted, interpreted, "%d", (int)config);
  cr_expect(strstr(error.message, words), "%s", error.message);
  config_unload(trial->problem, loaded);
}

static void trial_close(struct trial *trial) {
  problem_free(trial->problem);
  device_close(trial->device);
  fixture_free(&trial->fixture);
}

Test(expected, configs_are_compared_where_programs_were_interpreted) {
  struct trial trial;
  trial_open(&trial, 0);
  expect(&trial, 0, OUTCOME_CORRECT, AGREEMENT_AGREES, "");
  expect(&trial, 1, OUTCOME_CORRECT, AGREEMENT_AGREES, "");
  expect(&trial, 0, OUTCOME_CORRECT, AGREEMENT_AGREES, "");
  trial_close(&trial);
}

Test(expected, the_inputs_are_those_of_the_interpreter) {
  struct trial trial;
  trial_open(&trial, 0);
  const struct argument *x = &trial.fixture.kernel->arguments[1];
  size_t bytes = trial.problem->operands[1].bytes;
  cleanup_free void *filled = xmalloc(bytes);
  inputs_fill(x, 1, trial.problem->operands[1].elements, 99, filled);
  cr_expect_eq(memcmp(filled, trial.problem->operands[1].given, bytes), 0);
  trial_close(&trial);
}

Test(expected, a_default_that_is_wrong_is_found) {
  struct trial trial;
  trial_open(&trial, 5);
  expect(&trial, 0, OUTCOME_CORRECTNESS, AGREEMENT_DISAGREES, "y[20] is ");
  expect(&trial, 0, OUTCOME_CORRECTNESS, AGREEMENT_DISAGREES, "Triton's interpreter has ");
  trial_close(&trial);
}

Test(expected, a_config_that_is_wrong_disagrees_with_both) {
  struct trial trial;
  trial_open(&trial, 0);
  expect(&trial, 0, OUTCOME_CORRECT, AGREEMENT_AGREES, "");
  trial.problem->n_sets = 1; /* else another set of inputs tells before */
  expect(&trial, 2, OUTCOME_CORRECTNESS, AGREEMENT_DISAGREES, "y[20] is ");
  expect(&trial, 3, OUTCOME_CORRECTNESS, AGREEMENT_AGREES, "the default config has ");
  trial_close(&trial);
}
