/* Configs of kernels without a reference, compared with the default config. */
#include <math.h>

#include "agent/measure/agreement.h"
#include "agent/measure/element.h"
#include "tests/unit/agent_fixture.h"

struct trial {
  struct fixture fixture;
  struct device *device;
  struct problem *problem;
  struct loaded_config *configs[16];
  size_t n;
};

static void trial_open(struct trial *trial, const char *source, struct fixture_options options) {
  *trial = (struct trial){.fixture = fixture_new(source, options)};
  struct error error = {0};
  struct problem_setup setup = {.kernel = trial->fixture.kernel,
                                .key = &trial->fixture.key,
                                .space = trial->fixture.space,
                                .seed = 1,
                                .rotation_bytes_max = ROTATION_BYTES_MAX};
  cr_assert(device_open("cpu0", &trial->device, &error));
  setup.device = trial->device;
  cr_assert(problem_new(&setup, &trial->problem, &error), "%s", error.message);
  cr_assert_eq(trial->problem->n_sets, AGREEMENT_SETS);
}

/* Loads a config and checks it; borrowed. */
static const struct loaded_config *trial_check(struct trial *trial, uint64_t config) {
  struct error error = {0};
  struct launch_spec launch = launch_spec_default();
  char *object = fixture_object(&trial->fixture, config, false);
  struct loaded_config **loaded = &trial->configs[trial->n++];
  cr_assert_eq(config_load(trial->problem, config, object, &launch, loaded, &error),
               OUTCOME_CORRECT, "%s", error.message);
  free(object);
  cr_expect_eq(config_check(trial->problem, *loaded, &error), (*loaded)->outcome);
  return *loaded;
}

static void expect_class(struct trial *trial, uint64_t config, enum agreement expected) {
  const struct loaded_config *loaded = trial_check(trial, config);
  bool is_right = expected == AGREEMENT_BITWISE || expected == AGREEMENT_AGREES;
  cr_expect_eq(loaded->agreement, expected, "config %d: %s, %s", (int)config,
               agreement_name(loaded->agreement), loaded->error.message);
  cr_expect_eq(loaded->outcome, is_right ? OUTCOME_CORRECT : OUTCOME_CORRECTNESS, "%s",
               loaded->error.message);
}

static void expect_wrong(struct trial *trial, uint64_t config, const char *words) {
  const struct loaded_config *loaded = trial_check(trial, config);
  cr_expect_eq(loaded->outcome, OUTCOME_CORRECTNESS, "config %d", (int)config);
  cr_expect(strstr(loaded->error.message, words), "%s", loaded->error.message);
}

static void trial_close(struct trial *trial) {
  for (size_t i = 0; i < trial->n; i++)
    config_unload(trial->problem, trial->configs[i]);
  problem_free(trial->problem);
  device_close(trial->device);
  fixture_free(&trial->fixture);
}

#define LOOP                                                                                       \
  "#include <stdint.h>\nvoid f(float *y, const float *x, int64_t n) {\nfor (int64_t i = 0; i < "   \
  "n; i++) { y[i] = x[i] + 1;\n"
#define MODES                                                                                      \
  (struct fixture_options){                                                                        \
      .n = 600000, .space = "{\"parameters\": {\"MODE\": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]}}"}
static const char modes[] =
    LOOP "if (MODE == 2) y[i] *= 1.000001f;\n"
         "if (MODE == 3 && i == 543210) y[i] += 0.001f;\n"
         "if (MODE == 4 && x[i] > 40) y[i] = 0;\n"
         "if (MODE == 5 && i == n - 1) y[i] = __builtin_nanf(\"\");\n}\n"
         "if (MODE == 6) ((float *)x)[5] = 7;\n"
         "if (MODE == 7) y[n] = 1;\n"
         "if (MODE == 8 && x[0] + x[1] != 0) { static float first; if (first == 0) first = x[0] + "
         "1; y[0] = first; } }\n";

Test(agreement, the_default_and_what_is_equal_to_it_agree_bitwise) {
  struct trial trial;
  trial_open(&trial, modes, MODES);
  expect_class(&trial, 0, AGREEMENT_BITWISE);
  expect_class(&trial, 1, AGREEMENT_BITWISE);
  cr_expect_not(trial.problem->is_noisy);
  trial_close(&trial);
}

Test(agreement, what_is_within_the_tolerance_of_its_type_agrees) {
  struct trial trial;
  trial_open(&trial, modes, MODES);
  expect_class(&trial, 0, AGREEMENT_BITWISE);
  expect_class(&trial, 2, AGREEMENT_AGREES);
  expect_class(&trial, 1, AGREEMENT_BITWISE);
  trial_close(&trial);
}

Test(agreement, a_single_wrong_element_disagrees) {
  struct trial trial;
  trial_open(&trial, modes, MODES);
  expect_class(&trial, 0, AGREEMENT_BITWISE);
  expect_wrong(&trial, 3, "y[543210] is ");
  expect_class(&trial, 3, AGREEMENT_DISAGREES);
  expect_class(&trial, 1, AGREEMENT_BITWISE);
  trial_close(&trial);
}

Test(agreement, what_is_wrong_for_large_numbers_only_disagrees) {
  struct trial trial;
  trial_open(&trial, modes, MODES);
  expect_class(&trial, 0, AGREEMENT_BITWISE);
  expect_wrong(&trial, 4, "with inputs of large magnitude");
  expect_class(&trial, 1, AGREEMENT_BITWISE);
  trial_close(&trial);
}

Test(agreement, what_depends_on_earlier_inputs_disagrees) {
  struct trial trial;
  trial_open(&trial, modes, MODES);
  expect_class(&trial, 0, AGREEMENT_BITWISE);
  expect_wrong(&trial, 8, "y[0] is ");
  trial_close(&trial);
}

Test(agreement, nan_where_the_default_has_a_number_disagrees) {
  struct trial trial;
  trial_open(&trial, modes, MODES);
  expect_class(&trial, 0, AGREEMENT_BITWISE);
  expect_wrong(&trial, 5, "y[599999] is nan, the default config has ");
  trial_close(&trial);
}

Test(agreement, the_nans_of_the_default_agree) {
  struct trial trial;
  trial_open(&trial, modes, MODES);
  expect_class(&trial, 5, AGREEMENT_BITWISE);
  expect_class(&trial, 5, AGREEMENT_BITWISE);
  expect_wrong(&trial, 0, "the default config has nan");
  trial_close(&trial);
}

Test(agreement, inputs_must_be_unchanged_and_nothing_else_be_written) {
  struct trial trial;
  trial_open(&trial, modes, MODES);
  expect_class(&trial, 0, AGREEMENT_BITWISE);
  expect_wrong(&trial, 6, "argument \"x\": it is only to be read");
  expect_class(&trial, 1, AGREEMENT_BITWISE);
  cr_expect_eq(memcmp(trial.problem->operands[1].checked->address, trial.problem->operands[1].given,
                      trial.problem->operands[1].bytes),
               0, "the inputs that are timed are in place");
  expect_wrong(&trial, 7, "a byte outside of the buffer");
  trial_close(&trial);
}

/* y is read, too; the default leaves its first element as it is. */
Test(agreement, elements_that_the_default_does_not_write_must_not_be_written) {
  static const char *const accesses[] = {"readwrite", "write"};
  for (size_t i = 0; i < ARRAY_LENGTH(accesses); i++) {
    cleanup_free char *arguments =
        xasprintf("[{\"name\":\"y\",\"dtype\":\"float32\",\"shape\":[\"n\"],\"access\":\"%s\"},"
                  "{\"name\":\"n\",\"dtype\":\"int64\",\"value\":\"n\"}]",
                  accesses[i]);
    struct trial trial;
    trial_open(
        &trial,
        "#include <stdint.h>\nvoid f(float *y, int64_t n) {\nfor (int64_t i = MODE; i < n; i++) "
        "y[i] = i + 0.5f; }\n",
        (struct fixture_options){
            .arguments = arguments,
            .reference = "#include <stdint.h>\ndouble f_at(int64_t i, float *y, int64_t n) { "
                         "return 0; }\n",
            .space = "{\"parameters\": {\"MODE\": [1, 0, 2]}}"});
    expect_class(&trial, 0, AGREEMENT_BITWISE);
    expect_class(&trial, 0, AGREEMENT_BITWISE);
    expect_wrong(&trial, 1, "y[0] is 0.5");
    expect_wrong(&trial, 2, "y[1] is ");
    trial_close(&trial);
  }
}

/* A default that differs from itself: its first element alternates by 0.5. */
#define NOISY                                                                                      \
  LOOP "}\nstatic int turn; y[0] += turn++ % 2 ? 0.25f : -0.25f; if (MODE == 1) y[0] += 1.5f; "    \
       "if (MODE == 2) y[0] += 8;"

Test(agreement, four_times_the_noise_of_the_default_agrees) {
  struct trial trial;
  trial_open(&trial, NOISY "}\n", MODES);
  expect_class(&trial, 0, AGREEMENT_BITWISE);
  cr_expect(trial.problem->is_noisy);
  cr_expect_float_eq(trial.problem->operands[0].agreed[0].noise, 0.5, 1e-5);
  expect_class(&trial, 1, AGREEMENT_AGREES);
  expect_wrong(&trial, 2, "y[0] is ");
  trial_close(&trial);
}

Test(agreement, a_default_whose_nans_move_cannot_be_compared_with) {
  struct trial trial;
  trial_open(&trial, LOOP "}\nstatic int turn; y[turn++ % 2] = __builtin_nanf(\"\"); }\n", MODES);
  expect_wrong(&trial, 0, "in one run of the default config and ");
  trial_close(&trial);
}

/* The default overflows where the inputs are large, and another config elsewhere. */
Test(agreement, an_output_that_overflows_with_large_inputs_is_not_compared_there) {
  struct trial trial;
  trial_open(&trial,
             LOOP "if (x[i] * x[i] > 900 && (MODE == 0 || i % 2)) y[i] = __builtin_inff();\n"
                  "if (MODE == 2 && i == 7) y[i] += 1;\n"
                  "} }\n",
             MODES);
  expect_class(&trial, 0, AGREEMENT_BITWISE);
  expect_class(&trial, 1, AGREEMENT_BITWISE);
  expect_wrong(&trial, 2, "y[7] is ");
  trial_close(&trial);
  trial_open(&trial,
             LOOP "static unsigned turn; if (x[i] > 40 && turn++ % 3) y[i] = "
                  "__builtin_nanf(\"\"); } }\n",
             MODES);
  expect_class(&trial, 0, AGREEMENT_BITWISE);
  cr_expect(trial.problem->operands[0].agreed[AGREEMENT_SETS - 1].is_overflown);
  expect_class(&trial, 1, AGREEMENT_BITWISE);
  trial_close(&trial);
}

/* z is of the type, each element one or more values off by config. */
static void expect_classes(const char *dtype, const char *c_type, const char *body,
                           const enum agreement *expected, size_t n) {
  cleanup_free char *arguments =
      xasprintf("[{\"name\":\"z\",\"dtype\":\"%s\",\"shape\":[\"n\"],\"access\":\"write\"},"
                "{\"name\":\"n\",\"dtype\":\"int64\",\"value\":\"n\"}]",
                dtype);
  cleanup_free char *reference = xasprintf(
      "#include <stdint.h>\ndouble f_at(int64_t i, %s *z, int64_t n) { return 0; }\n", c_type);
  cleanup_free char *source = xasprintf("#include <stdint.h>\nvoid f(%s *z, int64_t n) {\nfor "
                                        "(int64_t i = 0; i < n; i++) { %s }\n}\n",
                                        c_type, body);
  struct trial trial;
  trial_open(&trial, source,
             (struct fixture_options){.n = 10000,
                                      .arguments = arguments,
                                      .reference = reference,
                                      .output = "z",
                                      .space = "{\"parameters\": {\"MODE\": [0, 1, 2, 3, 4]}}"});
  for (size_t i = 0; i < n; i++)
    expect_class(&trial, i, expected[i]);
  trial_close(&trial);
}

Test(agreement, integers_must_be_equal) {
  static const enum agreement expected[] = {AGREEMENT_BITWISE, AGREEMENT_DISAGREES};
  expect_classes("int64", "int64_t", "z[i] = (INT64_C(1) << 60) + i + (MODE == 1 && i == 77);",
                 expected, ARRAY_LENGTH(expected));
  expect_classes("bool", "_Bool", "z[i] = i % 3 == 0 || (MODE == 1 && i == 77);", expected,
                 ARRAY_LENGTH(expected));
}

Test(agreement, one_in_a_thousand_8_bit_floats_may_be_the_next_one) {
  static const enum agreement expected[] = {AGREEMENT_BITWISE, AGREEMENT_AGREES,
                                            AGREEMENT_DISAGREES, AGREEMENT_DISAGREES,
                                            AGREEMENT_AGREES};
  expect_classes("float8_e4m3fn", "uint8_t",
                 "z[i] = 0x40; if (MODE == 1 && i % 1000 == 0) z[i]++; if (MODE == 2 && i % 900 == "
                 "0) z[i]++; if (MODE == 3 && i == 5) z[i] += 2; if (i == 7) z[i] = MODE == 4 ? "
                 "0x80 : 0;",
                 expected, ARRAY_LENGTH(expected));
}

Test(agreement, floats_of_16_bits_may_differ_by_their_tolerance) {
  static const enum agreement expected[] = {AGREEMENT_BITWISE, AGREEMENT_AGREES,
                                            AGREEMENT_DISAGREES};
  expect_classes("float16", "_Float16", "z[i] = 1 + (MODE == 1 ? 0.003f : MODE == 2 ? 0.01f : 0);",
                 expected, ARRAY_LENGTH(expected));
  expect_classes("bfloat16", "uint16_t", "z[i] = 0x3f80 + (MODE == 1 ? 2 : MODE == 2 ? 6 : 0);",
                 expected, ARRAY_LENGTH(expected));
}

/* An output of float32 is 1, off by a thousandth, a fiftieth and 1. */
static void expect_float32(const char *x_dtype, const char *x_type, bool is_tf32,
                           const enum agreement expected[4]) {
  cleanup_free char *arguments = xasprintf(
      "[{\"name\":\"y\",\"dtype\":\"float32\",\"shape\":[\"n\"],\"access\":\"write\"},"
      "{\"name\":\"x\",\"dtype\":\"%s\",\"shape\":[\"n\"],\"access\":\"read\",\"fill\":\"index\"},"
      "{\"name\":\"n\",\"dtype\":\"int64\",\"value\":\"n\"}]",
      x_dtype);
  cleanup_free char *reference =
      xasprintf("#include <stdint.h>\ndouble f_at(int64_t i, float *y, const %s *x, int64_t n) { "
                "return 0; }\n",
                x_type);
  cleanup_free char *source = xasprintf(
      "#include <stdint.h>\nvoid f(float *y, const %s *x, int64_t n) {\nfor (int64_t i = 0; i < n; "
      "i++) y[i] = 1 + (MODE == 1 ? 0.001f : MODE == 2 ? 0.02f : MODE == 3 ? 1 : 0); }\n",
      x_type);
  struct trial trial;
  trial_open(&trial, source,
             (struct fixture_options){.arguments = arguments,
                                      .reference = reference,
                                      .space = "{\"parameters\": {\"MODE\": [0, 1, 2, 3]}}"});
  trial.fixture.kernel->is_tf32 = is_tf32;
  for (size_t i = 0; i < 4; i++)
    expect_class(&trial, i, expected[i]);
  trial_close(&trial);
}

Test(agreement, float32_may_differ_by_what_it_was_computed_from) {
  static const enum agreement plain[] = {AGREEMENT_BITWISE, AGREEMENT_DISAGREES,
                                         AGREEMENT_DISAGREES, AGREEMENT_DISAGREES},
                              tf32[] = {AGREEMENT_BITWISE, AGREEMENT_AGREES, AGREEMENT_DISAGREES,
                                        AGREEMENT_DISAGREES},
                              bfloat16[] = {AGREEMENT_BITWISE, AGREEMENT_AGREES, AGREEMENT_AGREES,
                                            AGREEMENT_DISAGREES};
  expect_float32("float32", "float", false, plain);
  expect_float32("float32", "float", true, tf32);
  expect_float32("bfloat16", "uint16_t", false, bfloat16);
  expect_float32("uint16", "uint16_t", false, plain);
}

Test(agreement, names_are_read_back) {
  static const enum agreement all[] = {AGREEMENT_BITWISE, AGREEMENT_AGREES, AGREEMENT_DISAGREES};
  for (size_t i = 0; i < ARRAY_LENGTH(all); i++)
    cr_expect_eq(agreement_parse(agreement_name(all[i])), all[i]);
  cr_expect_eq(agreement_parse("better"), AGREEMENT_NONE);
  cr_expect_eq(agreement_parse(NULL), AGREEMENT_NONE);
}
