/* Configs of kernels without a reference, compared with the default config. */
#include <math.h>

#include "agent/measure/check.h"
#include "agent/measure/element.h"
#include "agent/measure/nudge.h"
#include "tests/unit/agent_fixture.h"

struct trial {
  struct fixture fixture;
  struct device *device;
  struct problem *problem;
  struct loaded_config *configs[16];
  size_t n;
};

static void trial_close(struct trial **opened) {
  struct trial *trial = *opened;
  for (size_t i = 0; i < trial->n; i++)
    config_unload(trial->problem, trial->configs[i]);
  problem_free(trial->problem);
  device_close(trial->device);
  fixture_free(&trial->fixture);
  free(trial);
}
#define cleanup_trial __attribute__((cleanup(trial_close)))

static int64_t row_of_output; /* of this test's kernels, as a case states it */
static const struct expected *expected_values;

/* Loads a config and checks it; borrowed. */
static const struct loaded_config *trial_check(struct trial *trial, uint64_t config) {
  struct error error = {0};
  struct launch_spec launch = launch_spec_default();
  cleanup_free char *object = fixture_object(&trial->fixture, config, false);
  struct loaded_config **loaded = &trial->configs[trial->n++];
  cr_assert_eq(config_load(trial->problem, config, object, &launch, loaded, &error),
               OUTCOME_CORRECT, "%s", error.message);
  cr_expect_eq(config_check(trial->problem, *loaded, &error), (*loaded)->outcome);
  return *loaded;
}

/* A check and what it must find: with `words` an outcome of "correctness" whose reason has them,
 * else the class. */
struct check {
  uint64_t config;
  enum agreement class;
  const char *words;
};
#define BITWISE AGREEMENT_BITWISE
#define AGREES AGREEMENT_AGREES
#define DISAGREES AGREEMENT_DISAGREES
#define SAYS(text) .words = (text)

static void trial_expect(struct trial *trial, const struct check *checks, size_t n) {
  for (size_t i = 0; i < n; i++) {
    const struct check *check = &checks[i];
    const struct loaded_config *loaded = trial_check(trial, check->config);
    const char *message = loaded->error.message;
    bool is_right = !check->words && check->class != DISAGREES;
    cr_expect_eq(loaded->outcome, is_right ? OUTCOME_CORRECT : OUTCOME_CORRECTNESS, "check %zu: %s",
                 i, message);
    if (check->words)
      cr_expect(strstr(message, check->words), "check %zu: %s", i, message);
    else
      cr_expect_eq(loaded->agreement, check->class, "check %zu: %s, %s", i,
                   agreement_name(loaded->agreement), message);
  }
}

/* Opens a kernel and checks its configs in turn, the default first. `scale`: of its inputs. */
static struct trial *trial_scaled(const char *source, struct fixture_options options, bool is_tf32,
                                  double scale, const struct check *checks, size_t n) {
  struct trial *trial = xcalloc(1, sizeof *trial);
  struct error error = {0};
  trial->fixture = fixture_new(source, options);
  trial->fixture.kernel->is_tf32 = is_tf32;
  trial->fixture.kernel->arguments[0].row = row_of_output;
  trial->fixture.kernel->is_scaled_down = scale < 1; /* as of a case */
  for (size_t i = 0; i < trial->fixture.kernel->n_arguments && scale < 1; i++)
    trial->fixture.kernel->arguments[i].fill.scale = scale;
  struct problem_setup setup = {.kernel = trial->fixture.kernel,
                                .key = &trial->fixture.key,
                                .space = trial->fixture.space,
                                .expected = expected_values,
                                .seed = 1,
                                .regime = REGIME_WARM,
                                .rotation_bytes_max = ROTATION_BYTES_MAX};
  cr_assert(device_open("cpu0", &trial->device, &error));
  setup.device = trial->device;
  cr_assert(problem_new(&setup, &trial->problem, &error), "%s", error.message);
  cr_assert_eq(trial->problem->n_sets, AGREEMENT_SETS);
  trial_expect(trial, checks, n);
  return trial;
}

static struct trial *trial_of(const char *source, struct fixture_options options, bool is_tf32,
                              const struct check *checks, size_t n) {
  return trial_scaled(source, options, is_tf32, 1, checks, n);
}
#define CHECKS(...)                                                                                \
  (const struct check[]){__VA_ARGS__}, ARRAY_LENGTH(((const struct check[]){__VA_ARGS__}))
#define TRIAL(source, options, ...) trial_of(source, options, false, CHECKS(__VA_ARGS__))

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
  cleanup_trial struct trial *trial = TRIAL(modes, MODES, {0, BITWISE}, {1, BITWISE});
  cr_expect_not(trial->problem->is_noisy);
}

Test(agreement, what_is_within_the_tolerance_of_its_type_agrees) {
  cleanup_trial struct trial *trial = TRIAL(modes, MODES, {0, BITWISE}, {2, AGREES}, {1, BITWISE});
}

Test(agreement, a_single_wrong_element_disagrees) {
  cleanup_trial struct trial *trial =
      TRIAL(modes, MODES, {0, BITWISE}, {3, SAYS("y[543210] is ")}, {3, DISAGREES}, {1, BITWISE});
}

Test(agreement, what_is_wrong_for_large_numbers_only_disagrees) {
  cleanup_trial struct trial *trial =
      TRIAL(modes, MODES, {0, BITWISE}, {4, SAYS("with inputs of large magnitude")}, {1, BITWISE});
}

Test(agreement, inputs_that_are_scaled_down_are_so_in_all_sets) {
  cleanup_trial struct trial *trial = trial_scaled(
      modes, MODES, false, 1.0 / 16,
      CHECKS({0, BITWISE}, {4, BITWISE}, {3, SAYS("with a third set of inputs")}, {1, BITWISE}));
  const struct operand *x = &trial->problem->operands[1];
  for (size_t set = 0; set < AGREEMENT_SETS; set++) {
    const float *values = x->sets[set]->address;
    double sum = 0;
    for (int64_t i = 0; i < x->elements; i++)
      sum += (double)values[i] * (double)values[i];
    cr_expect_float_eq(16 * sqrt(sum / (double)x->elements), 1, 0.05, "set %zu", set);
    for (size_t other = 0; other < set; other++)
      cr_expect_neq(memcmp(values, x->sets[other]->address, x->bytes), 0);
  }
}

Test(agreement, what_depends_on_earlier_inputs_disagrees) {
  cleanup_trial struct trial *trial = TRIAL(modes, MODES, {0, BITWISE}, {8, SAYS("y[0] is ")});
}

Test(agreement, nan_where_the_default_has_a_number_disagrees) {
  cleanup_trial struct trial *trial =
      TRIAL(modes, MODES, {0, BITWISE}, {5, SAYS("y[599999] is nan, the default config has ")});
}

Test(agreement, the_nans_of_the_default_agree) {
  cleanup_trial struct trial *trial =
      TRIAL(modes, MODES, {5, BITWISE}, {5, BITWISE}, {0, SAYS("the default config has nan")},
            {0, SAYS("; 1 of its elements are not finite, so perhaps it overflows")});
}

Test(agreement, inputs_must_be_unchanged_and_nothing_else_be_written) {
  cleanup_trial struct trial *trial = TRIAL(
      modes, MODES, {0, BITWISE}, {6, SAYS("argument \"x\": it is only to be read")}, {1, BITWISE});
  cr_expect_eq(memcmp(trial->problem->operands[1].checked->address,
                      trial->problem->operands[1].given, trial->problem->operands[1].bytes),
               0, "the inputs that are timed are in place");
  trial_expect(trial, CHECKS({7, SAYS("a byte outside of the buffer")}));
}

/* y is read, too; the default leaves its first element as it is. */
Test(agreement, elements_that_the_default_does_not_write_must_not_be_written) {
  static const char *const accesses[] = {"readwrite", "write"};
  for (size_t i = 0; i < ARRAY_LENGTH(accesses); i++) {
    cleanup_free char *arguments =
        xasprintf("[{\"name\":\"y\",\"dtype\":\"float32\",\"shape\":[\"n\"],\"access\":\"%s\"},"
                  "{\"name\":\"n\",\"dtype\":\"int64\",\"value\":\"n\"}]",
                  accesses[i]);
    struct fixture_options options = {
        .arguments = arguments,
        .reference = "#include <stdint.h>\ndouble f_at(int64_t i, float *y, int64_t n) { "
                     "return 0; }\n",
        .space = "{\"parameters\": {\"MODE\": [1, 0, 2]}}"};
    cleanup_trial struct trial *trial = TRIAL(
        "#include <stdint.h>\nvoid f(float *y, int64_t n) {\nfor (int64_t i = MODE; i < n; i++) "
        "y[i] = i + 0.5f; }\n",
        options, {0, BITWISE}, {0, BITWISE}, {1, SAYS("y[0] is 0.5")}, {2, SAYS("y[1] is ")});
  }
}

/* The default writes a hundredth of y, values of 1e-3, and leaves deviates of 1 elsewhere. */
Test(agreement, elements_that_are_not_written_tell_nothing_of_the_size_of_others) {
  struct fixture_options options = {
      .n = 6400,
      .arguments =
          "[{\"name\":\"y\",\"dtype\":\"float32\",\"shape\":[\"n\"],\"access\":\"readwrite\"},"
          "{\"name\":\"n\",\"dtype\":\"int64\",\"value\":\"n\"}]",
      .reference =
          "#include <stdint.h>\ndouble f_at(int64_t i, float *y, int64_t n) { return 0; }\n",
      .space = "{\"parameters\": {\"MODE\": [0, 1, 2]}}"};
  cleanup_trial struct trial *trial =
      TRIAL("#include <stdint.h>\nvoid f(float *y, int64_t n) {\nfor (int64_t i = 0; i < n / 100; "
            "i++) y[i] = 1e-3f + (MODE == 1 ? 1e-9f : MODE == 2 ? 5e-6f : 0); }\n",
            options, {0, BITWISE}, {1, AGREES}, {2, SAYS("y[0] is ")});
  cr_expect(fabs(trial->problem->operands[0].agreed[0].rms - 1e-3) < 1e-6);
}

/* Each block of BLOCK rows writes a row of sums, as the program adds them up afterwards. */
#define PARTIAL                                                                                    \
  "#include <stdint.h>\nvoid f(float *y, const float *x, int64_t n) {\nfor (int64_t b = 0; b < "   \
  "n / 8; b += BLOCK) for (int j = 0; j < 8; j++) { float sum = 0; for (int64_t r = b; r < b + "   \
  "BLOCK && r < n / 8; r++) sum += x[8 * r + j]; y[8 * (b / BLOCK) + j] = sum"

Test(agreement, partial_sums_of_other_blocks_agree_by_their_sums) {
  struct fixture_options options = {
      .n = 6400,
      .arguments =
          "[{\"name\":\"y\",\"dtype\":\"float32\",\"shape\":[\"n\"],\"access\":\"readwrite\"},"
          "{\"name\":\"x\",\"dtype\":\"float32\",\"shape\":[\"n\"],\"access\":\"read\"},"
          "{\"name\":\"n\",\"dtype\":\"int64\",\"value\":\"n\"}]",
      .reference = "#include <stdint.h>\ndouble f_at(int64_t i, float *y, const float *x, int64_t "
                   "n) { return 0; }\n",
      .space = "{\"parameters\": {\"BLOCK\": [16, 32, 50, 7]}}"};
  row_of_output = 8;
  cleanup_trial struct trial *trial =
      TRIAL(PARTIAL " + (BLOCK == 7 && b == 14 && j == 3); } }\n", options, {0, BITWISE},
            {1, AGREES}, {2, AGREES}, {0, BITWISE}, {3, SAYS("the default config has")});
  cr_expect(trial->configs[1]->is_summed && !trial->configs[3]->is_summed);
  cleanup_trial struct trial *across = TRIAL(
      "#include <stdint.h>\nvoid f(float *y, const float *x, int64_t n) {\nfor (int64_t b = 0; b < "
      "n; b += 400) for (int64_t k = b; k < b + 400 - (BLOCK == 7); k++) y[8 * (b / 400) + (k - b) "
      "/ "
      "(800 / BLOCK)] = ((k - b) % (800 / BLOCK) ? y[8 * (b / 400) + (k - b) / (800 / BLOCK)] : 0) "
      "+ "
      "x[k]; }\n",
      ((struct fixture_options){.n = 6400,
                                .arguments = options.arguments,
                                .reference = options.reference,
                                .space = "{\"parameters\": {\"BLOCK\": [16, 8, 4, 7]}}"}),
      {0, BITWISE}, {1, AGREES}, {2, AGREES}, {3, SAYS("the default config has")});
  cr_expect(across->configs[1]->is_summed);
  row_of_output = 0;
  cleanup_trial struct trial *without =
      TRIAL(PARTIAL "; } }\n", options, {0, BITWISE}, {1, SAYS("the default config has")});
  cr_expect_not(without->configs[1]->is_summed);
}

/* Numbers that depend on MODE and nothing else. */
static float drawn_of(uint64_t mode, uint64_t i) {
  return (float)(((i + 1000003 * mode) * 0x9e3779b97f4a7c15u) >> 40) * 0x1p-24f;
}

Test(agreement, random_numbers_are_compared_with_the_interpreters_of_the_config) {
  enum { CONFIGS = 5, N = 6400, KNOWN = 64 };
  static float values[CONFIGS][KNOWN];
  static struct expected_run run = {0, KNOWN};
  struct expected_buffer buffers[CONFIGS];
  struct expected_values all[CONFIGS];
  for (uint64_t mode = 0; mode < CONFIGS; mode++) {
    for (uint64_t i = 0; i < KNOWN; i++)
      values[mode][i] = drawn_of(mode, i) + (float)(mode == 2 && i == 7);
    buffers[mode] = (struct expected_buffer){0, 1, KNOWN, &run, values[mode]};
    all[mode] =
        (struct expected_values){json_pack("{s:I}", "MODE", (json_int_t)mode), 1, &buffers[mode]};
  }
  struct expected expected = {1, CONFIGS, all};
  expected_values = &expected;
  struct fixture_options options = {.n = N,
                                    .space = "{\"parameters\": {\"MODE\": [0, 1, 2, 3, 4, 5]}}"};
  cleanup_trial struct trial *trial = TRIAL(
      "#include <stdint.h>\nvoid f(float *y, const float *x, int64_t n) {\nfor (uint64_t i = "
      "0; i < (uint64_t)n; i++) { y[i] = (float)(((i + 1000003 * (uint64_t)MODE) * "
      "0x9e3779b97f4a7c15u) >> 40) * 0x1p-24f; if (MODE == 3 && i >= 64) y[i] = 0; if (MODE "
      "== 4 && i == 6399) y[i] = 1.0f / 0; } }\n",
      options, {0, BITWISE}, {1, AGREES}, {2, SAYS("y[7] is ")}, /* as the interpreter has it */
      {3, SAYS("what is drawn in y has another distribution")}, {4, AGREES},
      {5, SAYS("the default config has")}); /* without values of its own */
  cr_expect(trial->configs[1]->is_drawn && !trial->configs[5]->is_drawn);
  cr_expect_eq(trial->configs[1]->interpreted, AGREEMENT_AGREES);
  expected_values = NULL;
  for (size_t i = 0; i < CONFIGS; i++)
    json_decref(all[i].config);
}

/* A default that differs from itself: its first element alternates by 0.5. */
#define NOISY                                                                                      \
  LOOP "}\nstatic int turn; y[0] += turn++ % 2 ? 0.25f : -0.25f; if (MODE == 1) y[0] += 1.5f; "    \
       "if (MODE == 2) y[0] += 8;"

Test(agreement, four_times_the_noise_of_the_default_agrees) {
  cleanup_trial struct trial *trial = TRIAL(NOISY "}\n", MODES, {0, BITWISE});
  cr_expect(trial->problem->is_noisy);
  cr_expect_float_eq(trial->problem->operands[0].agreed[0].noise, 0.5, 1e-5);
  trial_expect(trial, CHECKS({1, AGREES}, {2, SAYS("y[0] is ")}));
}

Test(agreement, a_default_whose_nans_move_cannot_be_compared_with) {
  cleanup_trial struct trial *trial =
      TRIAL(LOOP "}\nstatic int turn; y[turn++ % 2] = __builtin_nanf(\"\"); }\n", MODES,
            {0, SAYS("in one run of the default config and ")});
}

/* STEPS steps of the logistic map, each of which doubles a difference on average; modes compute
 * 4 s (1 - s) in two ways, and 2 is wrong. */
#define AMPLIFIES(steps)                                                                           \
  "#include <math.h>\n" LOOP "float s = 0.5f + 0.4f * x[i] / (1 + fabsf(x[i]));\n"                 \
  "for (int k = 0; k < " steps "; k++) {\n"                                                        \
  "if (MODE == 0) s = 3.9f * s * (1 - s); else s = 3.9f * s - 3.9f * s * s; }\n"                   \
  "y[i] = MODE == 2 && i == 777 ? s + 0.3f : s; } }\n"

Test(agreement, what_rounding_changes_is_no_disagreement) {
  cleanup_trial struct trial *trial =
      TRIAL(AMPLIFIES("8"), MODES, {0, BITWISE}, {1, AGREES}, {2, SAYS("y[777] is ")}, {1, AGREES});
  const struct operand *y = &trial->problem->operands[0], *x = &trial->problem->operands[1];
  for (size_t set = 0; set < AGREEMENT_SETS; set++) {
    cr_expect_eq(y->agreed[set].noise, 0);
    cr_expect(y->agreed[set].sensitivity > 1e-5 && y->agreed[set].sensitivity < 1e-2, "%g",
              y->agreed[set].sensitivity);
  }
  cr_expect_eq(memcmp(x->checked->address, x->given, x->bytes), 0, "the inputs are in place");
  cr_expect_eq(memcmp(x->sets[0]->address, x->given, x->bytes), 0, "and the sets as they were");
}

Test(agreement, outputs_that_rounding_decides_cannot_be_compared) {
  cleanup_trial struct trial *trial =
      TRIAL(AMPLIFIES("60"), MODES, {0, BITWISE}, {1, SAYS("the default config has ")});
  const struct agreed *agreed = &trial->problem->operands[0].agreed[AGREEMENT_SETS - 1];
  cr_expect_float_eq(agreed->sensitivity, 0.05 * agreed->rms, 1e-12);
}

Test(agreement, nudged_inputs_are_a_unit_in_the_last_place_away) {
  static const struct {
    enum dtype dtype;
    double unit; /* of 1 */
    bool is_tf32;
  } cases[] = {{DTYPE_BFLOAT16, 0x1p-7},       {DTYPE_FLOAT16, 0x1p-10},
               {DTYPE_FLOAT32, 0x1p-23},       {DTYPE_FLOAT32, 0x1p-10, true},
               {DTYPE_FLOAT64, 0x1p-52, true}, {DTYPE_FLOAT8_E4M3FN, 0x1p-3}};
  enum { N = 1000 };
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
    char bytes[8 * N];
    int n_changed = 0;
    for (int64_t k = 0; k < N; k++)
      element_set(cases[i].dtype, bytes, k, 1);
    elements_nudge(cases[i].dtype, cases[i].is_tf32, bytes, N);
    for (int64_t k = 0; k < N; k++) {
      double value = element_get(cases[i].dtype, bytes, k);
      n_changed += value != 1;
      cr_expect(value == 1 || value == 1 + cases[i].unit, "%s: %.17g", dtype_name(cases[i].dtype),
                value);
    }
    cr_expect(n_changed > N / 3 && n_changed < 2 * N / 3, "%s: %d", dtype_name(cases[i].dtype),
              n_changed);
  }

  float special[128];
  for (int k = 0; k < 128; k++)
    special[k] = k % 2 ? INFINITY : NAN;
  elements_nudge(DTYPE_FLOAT32, false, special, 128);
  for (int k = 0; k < 128; k++)
    cr_expect(k % 2 ? special[k] == INFINITY : isnan(special[k]));
}

/* The default overflows where the inputs are large, and another config elsewhere. */
Test(agreement, an_output_that_overflows_with_large_inputs_is_not_compared_there) {
  cleanup_trial struct trial *overflows =
      TRIAL(LOOP "if (x[i] * x[i] > 900 && (MODE == 0 || i % 2)) y[i] = __builtin_inff();\n"
                 "if (MODE == 2 && i == 7) y[i] += 1;\n"
                 "} }\n",
            MODES, {0, BITWISE}, {1, BITWISE}, {2, SAYS("y[7] is ")});
  cleanup_trial struct trial *moves =
      TRIAL(LOOP "static unsigned turn; if (x[i] > 40 && turn++ % 3) y[i] = "
                 "__builtin_nanf(\"\"); } }\n",
            MODES, {0, BITWISE}, {1, BITWISE});
  cr_expect(moves->problem->operands[0].agreed[AGREEMENT_SETS - 1].is_overflown);
}

/* As the sum of atomic additions of 16 bits may, in the second run with the second set. */
Test(agreement, an_output_that_overflows_in_one_run_is_not_compared_with_these_inputs) {
  cleanup_trial struct trial *once =
      TRIAL("static int runs;\n" LOOP "runs += i == 0;\n"
            "if (MODE == 0 && runs == 4 && i == 5) y[i] = __builtin_inff();\n"
            "if (MODE == 2 && i == 7) y[i] += 1;\n"
            "} }\n",
            MODES, {0, BITWISE}, {1, BITWISE}, {2, SAYS("y[7] is ")});
  cr_expect(once->problem->operands[0].agreed[1].is_overflown);
}

/* z is of the type, each element one or more values off by config. */
static void expect_classes(const char *dtype, const char *c_type, const char *body,
                           const struct check *checks, size_t n) {
  cleanup_free char *arguments =
      xasprintf("[{\"name\":\"z\",\"dtype\":\"%s\",\"shape\":[\"n\"],\"access\":\"write\"},"
                "{\"name\":\"n\",\"dtype\":\"int64\",\"value\":\"n\"}]",
                dtype);
  cleanup_free char *reference = xasprintf(
      "#include <stdint.h>\ndouble f_at(int64_t i, %s *z, int64_t n) { return 0; }\n", c_type);
  cleanup_free char *source = xasprintf("#include <stdint.h>\nvoid f(%s *z, int64_t n) {\nfor "
                                        "(int64_t i = 0; i < n; i++) { %s }\n}\n",
                                        c_type, body);
  struct fixture_options options = {.n = 10000,
                                    .arguments = arguments,
                                    .reference = reference,
                                    .output = "z",
                                    .space = "{\"parameters\": {\"MODE\": [0, 1, 2, 3, 4]}}"};
  cleanup_trial struct trial *trial = trial_of(source, options, false, checks, n);
}

Test(agreement, integers_must_be_equal) {
  expect_classes("int64", "int64_t", "z[i] = (INT64_C(1) << 60) + i + (MODE == 1 && i == 77);",
                 CHECKS({0, BITWISE}, {1, DISAGREES}));
  expect_classes("bool", "_Bool", "z[i] = i % 3 == 0 || (MODE == 1 && i == 77);",
                 CHECKS({0, BITWISE}, {1, DISAGREES}));
}

Test(agreement, one_in_a_thousand_8_bit_floats_may_be_the_next_one) {
  expect_classes("float8_e4m3fn", "uint8_t",
                 "z[i] = 0x40; if (MODE == 1 && i % 1000 == 0) z[i]++; if (MODE == 2 && i % 900 == "
                 "0) z[i]++; if (MODE == 3 && i == 5) z[i] += 2; if (i == 7) z[i] = MODE == 4 ? "
                 "0x80 : 0;",
                 CHECKS({0, BITWISE}, {1, AGREES}, {2, DISAGREES}, {3, DISAGREES}, {4, AGREES}));
}

Test(agreement, floats_of_16_bits_may_differ_by_their_tolerance) {
  expect_classes("float16", "_Float16", "z[i] = 1 + (MODE == 1 ? 0.003f : MODE == 2 ? 0.01f : 0);",
                 CHECKS({0, BITWISE}, {1, AGREES}, {2, DISAGREES}));
  expect_classes("bfloat16", "uint16_t", "z[i] = 0x3f80 + (MODE == 1 ? 2 : MODE == 2 ? 6 : 0);",
                 CHECKS({0, BITWISE}, {1, AGREES}, {2, DISAGREES}));
}

/* An output of float32 is 1, off by a thousandth, a fiftieth and 1. */
static void expect_float32(const char *x_dtype, const char *x_type, bool is_tf32,
                           const struct check *checks, size_t n) {
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
  struct fixture_options options = {.arguments = arguments,
                                    .reference = reference,
                                    .space = "{\"parameters\": {\"MODE\": [0, 1, 2, 3]}}"};
  cleanup_trial struct trial *trial = trial_of(source, options, is_tf32, checks, n);
}

Test(agreement, float32_may_differ_by_what_it_was_computed_from) {
  expect_float32("float32", "float", false,
                 CHECKS({0, BITWISE}, {1, DISAGREES}, {2, DISAGREES}, {3, DISAGREES}));
  expect_float32("float32", "float", true,
                 CHECKS({0, BITWISE}, {1, AGREES}, {2, DISAGREES}, {3, DISAGREES}));
  expect_float32("bfloat16", "uint16_t", false,
                 CHECKS({0, BITWISE}, {1, AGREES}, {2, AGREES}, {3, DISAGREES}));
  expect_float32("uint16", "uint16_t", false,
                 CHECKS({0, BITWISE}, {1, DISAGREES}, {2, DISAGREES}, {3, DISAGREES}));
}
