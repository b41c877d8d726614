/* What the check of a config finds, and what it accepts. */
#include "tests/unit/agent_fixture.h"

#include "agent/measure/check.h"

struct checked {
  bool inputs_are_whole; /* after the check */
  enum outcome outcome;
  struct error error;
};

/* Compiles, loads and checks config 0. */
static struct checked check(const char *source, struct fixture_options options) {
  struct fixture fixture = fixture_new(source, options);
  struct checked checked = {0};
  struct device *device;
  struct reference *reference;
  struct problem *problem;
  struct loaded_config *loaded;
  char *object = fixture_object(&fixture, 0, false),
       *reference_object = fixture_object(&fixture, 0, true);
  cr_assert(device_open("cpu0", &device, &checked.error));
  cr_assert(reference_load(reference_object, &reference, &checked.error), "%s",
            checked.error.message);
  struct problem_setup setup = {.device = device,
                                .kernel = fixture.kernel,
                                .key = &fixture.key,
                                .space = fixture.space,
                                .reference = reference,
                                .seed = 1,
                                .regime = REGIME_WARM,
                                .rotation_bytes_max = ROTATION_BYTES_MAX};
  cr_assert(problem_new(&setup, &problem, &checked.error), "%s", checked.error.message);
  struct launch_spec launch = launch_spec_default();
  cr_assert_eq(config_load(problem, 0, object, &launch, &loaded, &checked.error), OUTCOME_CORRECT,
               "%s", checked.error.message);
  checked.outcome = config_check(problem, loaded, &checked.error);
  /* After the check the next config cannot fail because of this one. */
  if (checked.outcome != OUTCOME_CORRECT) {
    struct error error;
    for (size_t i = 0; i < fixture.kernel->n_arguments; i++)
      cr_expect(!problem->operands[i].checked ||
                device->ops->buffer_intact(device, problem->operands[i].checked, &error));
  }
  checked.inputs_are_whole = true;
  for (size_t i = 0; i < fixture.kernel->n_arguments; i++) {
    const struct operand *operand = &problem->operands[i];
    if (operand->checked && fixture.kernel->arguments[i].access == ACCESS_READ)
      checked.inputs_are_whole &=
          memcmp(operand->checked->address, operand->given, operand->bytes) == 0;
  }
  config_unload(problem, loaded);
  problem_free(problem);
  device_close(device);
  free(object);
  free(reference_object);
  fixture_free(&fixture);
  return checked;
}

static void expect_wrong(struct checked checked, const char *beginning) {
  cr_expect_eq(checked.outcome, OUTCOME_CORRECTNESS);
  cr_expect(string_starts(checked.error.message, beginning), "%s", checked.error.message);
}

#define LOOP                                                                                       \
  "#include <stdint.h>\nvoid f(float *y, const float *x, int64_t n) {\nfor (int64_t i = 0; i < "   \
  "n; i++) y[i] = x[i] + "                                                                         \
  "1;\n"

Test(check, what_is_right_passes) {
  struct checked checked = check(FIXTURE_GOOD, (struct fixture_options){0});
  cr_expect_eq(checked.outcome, OUTCOME_CORRECT, "%s", checked.error.message);
}

Test(check, every_extent_passes) {
  for (int64_t n = 1; n <= 4097; n = n * 4 - 1) {
    struct checked checked = check(FIXTURE_GOOD, (struct fixture_options){.n = n});
    cr_expect_eq(checked.outcome, OUTCOME_CORRECT, "%s", checked.error.message);
    n += n == 1;
  }
}

Test(check, a_wrong_last_value_is_found) {
  expect_wrong(check(LOOP "y[n - 1] = 1000;}\n", (struct fixture_options){.n = 100000}),
               "y[99999] is 1000, the reference has ");
}

Test(check, a_value_within_the_tolerance_passes) {
  struct checked checked = check(LOOP "y[0] += 5e-7f;}\n", (struct fixture_options){0});
  cr_expect_eq(checked.outcome, OUTCOME_CORRECT, "%s", checked.error.message);
}

Test(check, an_element_that_is_not_written_is_found_wherever_it_is) {
  expect_wrong(check("#include <stdint.h>\nvoid f(float *y, const float *x, int64_t n) {\n"
                     "for (int64_t i = 0; i < n; i++) if (i != 54321) y[i] = x[i] + 1;}\n",
                     (struct fixture_options){.n = 100000}),
               "y[54321] was not written; 1 of its 100000 elements were not");
}

Test(check, a_nan_is_found_wherever_it_is) {
  expect_wrong(
      check(LOOP "y[54321] = __builtin_nanf(\"\");}\n", (struct fixture_options){.n = 100000}),
      "y[54321] is NaN, the reference has ");
}

Test(check, a_nan_that_the_reference_has_too_passes) {
  struct checked checked = check(
      LOOP "y[54321] = y[1] = __builtin_nanf(\"\");}\n",
      (struct fixture_options){
          .n = 100000,
          .reference = "#include <stdint.h>\ndouble f_at(int64_t i, float *y, const float *x, "
                       "int64_t n) {\nreturn i == 54321 || i == 1 ? __builtin_nan(\"\") : "
                       "x[i] + 1.0; }\n"});
  cr_expect_eq(checked.outcome, OUTCOME_CORRECT, "%s", checked.error.message);
}

Test(check, an_infinity_is_not_within_any_tolerance) {
  expect_wrong(check(LOOP "y[0] = __builtin_inff();}\n", (struct fixture_options){0}),
               "y[0] is inf, the reference has ");
}

Test(check, a_write_beyond_the_end_is_found) {
  expect_wrong(check(LOOP "y[n] = 1;}\n", (struct fixture_options){0}),
               "argument \"y\": a byte outside of the buffer was written, at offset 400");
}

Test(check, a_write_before_the_beginning_is_found) {
  expect_wrong(check(LOOP "y[-1] = 1;}\n", (struct fixture_options){0}),
               "argument \"y\": a byte outside of the buffer was written, at offset -4");
}

Test(check, a_write_around_an_input_is_found) {
  expect_wrong(check(LOOP "((float *)x)[n] = 1;}\n", (struct fixture_options){.n = 1024}),
               "argument \"x\": a byte outside of the buffer was written, at offset 4096");
}

Test(check, a_change_of_an_input_is_found_and_undone) {
  struct checked checked =
      check(LOOP "if (x[n - 1] != 77) ((float *)x)[n - 1] = 77; else y[0] = 1000;}\n",
            (struct fixture_options){.n = 300000});
  expect_wrong(checked, "argument \"x\": it is only to be read");
  cr_expect(checked.inputs_are_whole);
}

#define BYTES                                                                                      \
  "[{\"name\":\"y\",\"dtype\":\"uint8\",\"shape\":[\"n\"],\"access\":\"write\"},{\"name\":\"n\","  \
  "\"dtype\":\"int64\","                                                                           \
  "\"value\":\"n\"}]"
#define BYTES_REFERENCE                                                                            \
  "#include <stdint.h>\ndouble f_at(int64_t i, uint8_t *y, int64_t n) { return (uint8_t)i; }\n"

Test(check, integers_may_have_any_value) {
  struct checked checked =
      check("#include <stdint.h>\nvoid f(uint8_t *y, int64_t n) { for (int64_t i = 0; i < n; i++) "
            "y[i] = i; }\n",
            (struct fixture_options){.arguments = BYTES, .reference = BYTES_REFERENCE});
  cr_expect_eq(checked.outcome, OUTCOME_CORRECT, "%s", checked.error.message);
}

Test(check, an_integer_that_is_not_written_is_found) {
  expect_wrong(check("#include <stdint.h>\nvoid f(uint8_t *y, int64_t n) {\nfor (int64_t i = 0; i "
                     "< n; i++) if (i != 300) "
                     "y[i] = i; }\n",
                     (struct fixture_options){.arguments = BYTES, .reference = BYTES_REFERENCE}),
               "y[300] was not written; 1 of its 1000 elements were not");
}

#define CHANGED                                                                                    \
  "[{\"name\":\"y\",\"dtype\":\"float32\",\"shape\":[\"n\"],\"access\":\"readwrite\"},{\"name\":"  \
  "\"n\",\"dtype\":"                                                                               \
  "\"int64\",\"value\":\"n\"}]"

Test(check, a_buffer_that_is_changed_is_compared_with_what_it_was_before) {
  struct checked checked =
      check("#include <stdint.h>\nvoid f(float *y, int64_t n) { for (int64_t i = 0; i < n; i++) "
            "y[i] = 2 * y[i]; }\n",
            (struct fixture_options){
                .arguments = CHANGED,
                .reference = "#include <stdint.h>\ndouble f_at(int64_t i, float *y, int64_t n) { "
                             "return 2.0 * y[i]; }\n"});
  cr_expect_eq(checked.outcome, OUTCOME_CORRECT, "%s", checked.error.message);
}

#define HALVES                                                                                     \
  "[{\"name\":\"y\",\"dtype\":\"float16\",\"shape\":[\"n\"],\"access\":\"write\"},{\"name\":"      \
  "\"x\",\"dtype\":"                                                                               \
  "\"float16\",\"shape\":[\"n\"],\"access\":\"read\"},{\"name\":\"n\",\"dtype\":\"int32\","        \
  "\"value\":\"n\"}]"

Test(check, a_result_rounded_to_its_dtype_is_right) {
  struct checked checked =
      check("void f(_Float16 *y, const _Float16 *x, int n) { for (int i = 0; i < n; i++) y[i] = "
            "30000 * (float)x[i]; }\n",
            (struct fixture_options){
                .arguments = HALVES,
                .reference = "#include <stdint.h>\ndouble f_at(int64_t i, _Float16 *y, const "
                             "_Float16 *x, int n) { return 30000.0 * x[i]; }\n"});
  cr_expect_eq(checked.outcome, OUTCOME_CORRECT, "%s", checked.error.message);
}

Test(check, every_kind_of_scalar_reaches_the_kernel) {
  struct checked checked = check(
      "#include <stdint.h>\nvoid f(double *y, _Bool a, int8_t b, uint16_t c, uint64_t d, float e, "
      "double g) {\n"
      "y[0] = a; y[1] = b; y[2] = c; y[3] = d; y[4] = e; y[5] = g; }\n",
      (struct fixture_options){
          .arguments = "[{\"name\":\"y\",\"dtype\":\"float64\",\"shape\":[6],\"access\":\"write\"},"
                       "{\"name\":\"a\",\"dtype\":\"bool\",\"value\":\"n > "
                       "3\"},{\"name\":\"b\",\"dtype\":\"int8\",\"value\":\"-n\"},"
                       "{\"name\":\"c\",\"dtype\":\"uint16\",\"value\":65535},"
                       "{\"name\":\"d\",\"dtype\":\"uint64\",\"value\":\"2 ** 40\"},"
                       "{\"name\":\"e\",\"dtype\":\"float32\",\"value\":\"BLOCK\"},"
                       "{\"name\":\"g\",\"dtype\":\"float64\",\"value\":-7}]",
          .space = "{\"parameters\": {\"BLOCK\": [32]}}",
          .reference =
              "#include <stdint.h>\ndouble f_at(int64_t i, double *y, _Bool a, int8_t b, uint16_t "
              "c, uint64_t d, "
              "float e, double g) {\nreturn (double[]){1, -100, 65535, 0x1p40, 32, -7}[i]; }\n",
          .n = 100});
  cr_expect_eq(checked.outcome, OUTCOME_CORRECT, "%s", checked.error.message);
}

/* One problem with several configs: the source does something else for each BLOCK. */
struct several {
  struct fixture fixture;
  struct device *device;
  struct problem *problem;
  struct loaded_config *configs[2 * CHECK_INPUTS_EVERY];
  size_t n;
};

static void several_open(struct several *several, const char *source,
                         struct fixture_options options) {
  struct error error = {0};
  *several = (struct several){.fixture = fixture_new(source, options)};
  struct problem_setup setup = {.kernel = several->fixture.kernel,
                                .key = &several->fixture.key,
                                .space = several->fixture.space,
                                .seed = 1,
                                .regime = REGIME_WARM,
                                .rotation_bytes_max = ROTATION_BYTES_MAX};
  char *object = fixture_object(&several->fixture, 0, true);
  cr_assert(device_open("cpu0", &several->device, &error));
  cr_assert(reference_load(object, &setup.reference, &error), "%s", error.message);
  setup.device = several->device;
  cr_assert(problem_new(&setup, &several->problem, &error), "%s", error.message);
  free(object);
}

static void several_unload_last(struct several *several) {
  config_unload(several->problem, several->configs[--several->n]);
}

/* Loads one more config and checks it. */
static enum outcome several_check(struct several *several, uint64_t config) {
  struct error error = {0};
  struct launch_spec launch = launch_spec_default();
  char *object = fixture_object(&several->fixture, config, false);
  struct loaded_config **loaded = &several->configs[several->n++];
  cr_assert_eq(config_load(several->problem, config, object, &launch, loaded, &error),
               OUTCOME_CORRECT, "%s", error.message);
  free(object);
  enum outcome outcome = config_check(several->problem, *loaded, &error);
  cr_expect_eq(outcome, (*loaded)->outcome);
  cr_expect_str_eq(outcome == OUTCOME_CORRECT ? "" : (*loaded)->error.message, error.message);
  return outcome;
}

static void several_settle(struct several *several) {
  struct error error = {0};
  cr_assert(problem_inputs_check(several->problem, &error), "%s", error.message);
  cr_expect_eq(several->problem->n_unsettled, 0);
}

static void several_close(struct several *several) {
  for (size_t i = 0; i < several->n; i++)
    config_unload(several->problem, several->configs[i]);
  problem_free(several->problem);
  device_close(several->device);
  fixture_free(&several->fixture);
}

/* After they have computed a right output, BLOCK 1 changes the last input, which is always a
 * sample, and BLOCK 2 the last bits of another input. The output of BLOCK 3 differs in the last bit
 * but one. In that of BLOCK 4 an element that is no sample is wrong, in that of BLOCK 5 one is off
 * by 3e-6, where CHECK_FAR tolerances are at least 4e-6. */
#define CHANGERS                                                                                   \
  LOOP "if (BLOCK == 1) ((float *)x)[n - 1] = 77;\nif (BLOCK == 2) ((float *)x)[54321] *= "        \
       "1.0000002f;\n"                                                                             \
       "if (BLOCK == 3) for (int64_t i = 0; i < n; i++) y[i] += 1e-7f;\nif (BLOCK == 4) y[54321] " \
       "+= 1;\n"                                                                                   \
       "if (BLOCK == 5) y[54321] += 3e-6f;}\n"
#define CHANGERS_SPACE                                                                             \
  (struct fixture_options){.n = 100000,                                                            \
                           .space = "{\"parameters\": {\"BLOCK\": [0, 1, 2, 3, 4, 5]}}"}

static void expect_blamed(const struct several *several, size_t culprit) {
  for (size_t i = 0; i < several->n; i++) {
    const struct loaded_config *loaded = several->configs[i];
    cr_expect_eq(loaded->outcome, i == culprit ? OUTCOME_CORRECTNESS : OUTCOME_CORRECT, "%zu: %s",
                 i, loaded->error.message);
  }
  const char *message = several->configs[culprit]->error.message;
  cr_expect(string_starts(message, "argument \"x\": it is only to be read"), "%s", message);
}

Test(check_several, a_config_that_changes_inputs_is_found_after_another_used_them) {
  struct several several;
  several_open(&several, CHANGERS, CHANGERS_SPACE);
  static const uint64_t configs[] = {0, 0, 1, 0};
  for (size_t i = 0; i < ARRAY_LENGTH(configs); i++)
    cr_expect_eq(several_check(&several, configs[i]), OUTCOME_CORRECT);
  expect_blamed(&several, 2);
  several_close(&several);
}

Test(check_several, a_config_that_changes_inputs_is_found_before_timing) {
  struct several several;
  several_open(&several, CHANGERS, CHANGERS_SPACE);
  static const uint64_t configs[] = {0, 2, 0};
  for (size_t i = 0; i < ARRAY_LENGTH(configs); i++)
    cr_expect_eq(several_check(&several, configs[i]), OUTCOME_CORRECT);
  several_settle(&several);
  expect_blamed(&several, 1);
  cr_expect_eq(several.problem->operands[0].n_verified, 1,
               "what was made of the changed input is no right output");
  several_close(&several);
}

Test(check_several, inputs_are_checked_after_every_sixteen_configs) {
  struct several several;
  several_open(&several, CHANGERS, CHANGERS_SPACE);
  for (size_t i = 0; i < CHECK_INPUTS_EVERY; i++)
    cr_expect_eq(several_check(&several, i == 5 ? 2 : 0), OUTCOME_CORRECT);
  cr_expect_eq(several.configs[5]->outcome, OUTCOME_CORRECT,
               "the inputs were not checked since the first config");
  cr_expect_eq(several_check(&several, 0), OUTCOME_CORRECT);
  expect_blamed(&several, 5);
  several_close(&several);
}

Test(check_several, an_unloaded_config_is_not_checked_again) {
  struct several several;
  several_open(&several, CHANGERS, CHANGERS_SPACE);
  cr_expect_eq(several_check(&several, 0), OUTCOME_CORRECT);
  cr_expect_eq(several_check(&several, 0), OUTCOME_CORRECT);
  cr_expect_eq(several.problem->n_unsettled, 1);
  several_unload_last(&several);
  cr_expect_eq(several.problem->n_unsettled, 0);
  several_settle(&several);
  several_close(&several);
}

Test(check_several, changes_of_an_unloaded_config_are_undone_and_no_config_fails) {
  struct several several;
  several_open(&several, CHANGERS, CHANGERS_SPACE);
  cr_expect_eq(several_check(&several, 0), OUTCOME_CORRECT);
  cr_expect_eq(several_check(&several, 1), OUTCOME_CORRECT);
  several_unload_last(&several);
  cr_expect_eq(several_check(&several, 0), OUTCOME_CORRECT,
               "it computes with the changed input first");
  cr_expect_eq(several_check(&several, 1), OUTCOME_CORRECT);
  several_unload_last(&several);
  several_settle(&several);
  cr_expect_eq(several_check(&several, 0), OUTCOME_CORRECT);
  cr_expect_eq(several.problem->operands[0].n_verified, 1);
  several_close(&several);
}

Test(check_several, outputs_that_are_right_and_differ_are_each_kept_once) {
  struct several several;
  several_open(&several, CHANGERS, CHANGERS_SPACE);
  static const uint64_t configs[] = {0, 3, 0, 3};
  for (size_t i = 0; i < ARRAY_LENGTH(configs); i++)
    cr_expect_eq(several_check(&several, configs[i]), OUTCOME_CORRECT);
  cr_expect_eq(several.problem->operands[0].n_verified, 2);
  several_close(&several);
}

Test(check_several, an_output_without_an_element_does_not_count_as_one_that_passed) {
  struct several several;
  several_open(&several,
               "#include <stdint.h>\nvoid f(float *y, const float *x, int64_t n) {\n"
               "for (int64_t i = 0; i < n; i++) if (!BLOCK || i != 54321) y[i] = x[i] + 1;}\n",
               CHANGERS_SPACE);
  cr_expect_eq(several_check(&several, 0), OUTCOME_CORRECT);
  cr_expect_eq(several_check(&several, 1), OUTCOME_CORRECTNESS);
  cr_expect(string_starts(several.configs[1]->error.message, "y[54321] was not written; 1 of "),
            "%s", several.configs[1]->error.message);
  several_close(&several);
}

Test(check_several, an_output_with_a_mark_is_not_kept) {
  struct several several;
  several_open(&several,
               "#include <stdint.h>\nvoid f(uint8_t *y, int64_t n) {\nfor (int64_t i = 0; i < "
               "n; i++) if (!BLOCK || i != 0x5a) y[i] "
               "= i; }\n",
               (struct fixture_options){.arguments = BYTES,
                                        .reference = BYTES_REFERENCE,
                                        .space = "{\"parameters\": {\"BLOCK\": [0, 1]}}"});
  cr_expect_eq(several_check(&several, 0), OUTCOME_CORRECT);
  cr_expect_eq(several.problem->operands[0].n_verified, 0);
  cr_expect_eq(several_check(&several, 1), OUTCOME_CORRECTNESS);
  cr_expect(string_starts(several.configs[1]->error.message, "y[90] was not written; 1 of "), "%s",
            several.configs[1]->error.message);
  several_close(&several);
}

Test(check_several, an_element_that_is_no_sample_is_compared_with_the_first_output) {
  struct several several;
  several_open(&several, CHANGERS, CHANGERS_SPACE);
  cr_expect_eq(several_check(&several, 0), OUTCOME_CORRECT);
  cr_expect_eq(several_check(&several, 4), OUTCOME_CORRECTNESS);
  cr_expect(string_starts(several.configs[1]->error.message, "y[54321] is "), "%s",
            several.configs[1]->error.message);
  cr_expect_eq(several_check(&several, 5), OUTCOME_CORRECT,
               "as much as CHECK_FAR samples may be off");
  cr_expect_eq(several_check(&several, 3), OUTCOME_CORRECT);
  cr_expect_str_empty(several.problem->baseline_wrong.message);
  several_close(&several);
}

/* 2,000 elements from 600000 on are 3 tolerances too large or too small: right, and far from one
 * another. What one sample may be off, many may not, so none of these is a sample. The whole has
 * four pieces of up to 2^19 elements. */
#define ROUNDED_FIRST 600000
#define ROUNDED                                                                                    \
  LOOP "for (int64_t i = 600000; i < 602000; i++) y[i] += BLOCK == 0 ? 3e-6f : -3e-6f;\n"          \
       "if (BLOCK == 2) y[1700000] += 1;\nif (BLOCK == 3) y[601999] += 1;\nif (BLOCK == 4) "       \
       "y[600200] += 1;}\n"
#define ROUNDED_SPACE                                                                              \
  (struct fixture_options){.n = 2000000, .space = "{\"parameters\": {\"BLOCK\": [0, 1, 2, 3, 4]}}"}

Test(check_several,
     elements_of_all_pieces_are_asked_of_the_reference_in_turn_and_no_more_than_so_many) {
  struct several several;
  several_open(&several, ROUNDED, ROUNDED_SPACE);
  const struct expectation *expected = &several.problem->operands[0].expected;
  for (size_t i = 0; i < expected->n; i++)
    cr_assert(expected->indices[i] < ROUNDED_FIRST || expected->indices[i] >= ROUNDED_FIRST + 2000,
              "%lld is a sample", (long long)expected->indices[i]);
  cr_expect_eq(several_check(&several, 0), OUTCOME_CORRECT);
  cr_expect_eq(several_check(&several, 1), OUTCOME_CORRECT);
  cr_expect_eq(several_check(&several, 2), OUTCOME_CORRECTNESS, "all pieces have their turn");
  cr_expect(string_starts(several.configs[2]->error.message, "y[1700000] is "), "%s",
            several.configs[2]->error.message);
  cr_expect_eq(several_check(&several, 3), OUTCOME_CORRECT, "asking has an end");
  cr_expect_eq(several_check(&several, 4), OUTCOME_CORRECTNESS,
               "what other pieces do not need is asked of this one");
  several_close(&several);
}

Test(check_several, the_reference_decides_when_the_first_output_is_wrong) {
  struct several several;
  several_open(&several, CHANGERS, CHANGERS_SPACE);
  cr_expect_eq(several_check(&several, 4), OUTCOME_CORRECT);
  cr_expect_eq(several_check(&several, 0), OUTCOME_CORRECT);
  cr_expect(string_starts(several.problem->baseline_wrong.message, "y[54321] is "), "%s",
            several.problem->baseline_wrong.message);
  several_close(&several);
}

Test(check_several, others_are_not_compared_with_an_output_of_changed_inputs) {
  struct several several;
  several_open(&several, CHANGERS, CHANGERS_SPACE);
  cr_expect_eq(several_check(&several, 2), OUTCOME_CORRECTNESS,
               "the inputs are looked at after the first config");
  cr_expect_null(several.problem->operands[0].first);
  cr_expect_eq(several_check(&several, 0), OUTCOME_CORRECT);
  cr_expect_not_null(several.problem->operands[0].first);
  several_settle(&several);
  cr_expect_eq(several_check(&several, 2), OUTCOME_CORRECT);
  several_settle(&several);
  cr_expect_eq(several.configs[2]->outcome, OUTCOME_CORRECTNESS);
  cr_expect_not_null(several.problem->operands[0].first, "it is of inputs that were looked at");
  several_close(&several);
}

Test(check_several, no_output_is_kept_where_all_elements_are_samples) {
  struct several several;
  several_open(&several, CHANGERS,
               (struct fixture_options){.n = 100, .space = "{\"parameters\": {\"BLOCK\": [0]}}"});
  cr_expect_eq(several_check(&several, 0), OUTCOME_CORRECT);
  cr_expect_null(several.problem->operands[0].first);
  several_close(&several);
}
