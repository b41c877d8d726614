/* Spaces: reading, ordinals, identity, which points hold, and ranges of them. */
#include <criterion/criterion.h>
#include <signal.h>

#include "common/space/space.h"

static bool parse(const char *text, struct space **space, struct error *error) {
  cleanup_json json_t *json = NULL;
  cr_assert(json_parse(text, strlen(text), &json, error), "%s: %s", text, error->message);
  return space_parse(json, space, error);
}

static struct space *space_of(const char *text) {
  struct space *space = NULL;
  struct error error = {0};
  cr_assert(parse(text, &space, &error), "%s: %s %s", text, error.pointer, error.message);
  return space;
}

static void expect_refused(const char *text, const char *pointer, const char *message) {
  struct space *space = NULL;
  struct error error = {0};
  cr_assert_not(parse(text, &space, &error), "%s", text);
  cr_expect_str_eq(error.pointer, pointer, "%s: %s, not %s", text, error.pointer, pointer);
  cr_expect_not_null(strstr(error.message, message), "%s: %s", text, error.message);
}

/* The ordinals that hold as "0 3 4", then "error: …" when the enumeration ends in one. */
static char *points(const struct space *space, const struct space_facts *facts,
                    uint64_t step_limit) {
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  cleanup_space_iterator struct space_iterator *iterator = NULL;
  struct error error = {0};
  uint64_t ordinal;
  const char *gap = "";
  if (!space_iterator_new(space, facts, step_limit, &iterator, &error)) {
    fprintf(out, "error: %s %s", error.pointer, error.message);
    fclose(out);
    return text;
  }
  enum space_step step;
  while ((step = space_iterator_next(iterator, &ordinal, &error)) == SPACE_POINT) {
    fprintf(out, "%s%llu", gap, (unsigned long long)ordinal);
    gap = " ";
  }
  if (step == SPACE_ERROR)
    fprintf(out, "%serror: %s %s", gap, error.pointer, error.message);
  cr_expect_eq(space_iterator_next(iterator, &ordinal, &error), SPACE_END);
  fclose(out);
  return text;
}

static void expect_points(const char *text, const struct space_facts *facts, const char *wanted) {
  cleanup_space struct space *space = space_of(text);
  cleanup_free char *found = points(space, facts, SPACE_STEP_LIMIT_DEFAULT);
  cr_expect_str_eq(found, wanted, "%s:\n  %s, not\n  %s", text, found, wanted);
}

#define DESIGN_SPACE                                                                               \
  "{\"parameters\": {\"BLOCK_M\": [32,64,128], \"BLOCK_N\": [32,64,128], \"BLOCK_K\": [32,64], "   \
  "\"num_warps\": [4,8], "                                                                         \
  "\"waves_per_eu\": [0,2]}, \"roles\": {\"num_warps\": \"option\", \"waves_per_eu\": "            \
  "\"option\"}, "                                                                                  \
  "\"conditions\": [\"BLOCK_M >= BLOCK_N or num_warps == 4\", \"(BLOCK_M + BLOCK_N) * BLOCK_K * "  \
  "4 <= 32768\"], "                                                                                \
  "\"default\": {\"BLOCK_M\": 64, \"BLOCK_N\": 64, \"BLOCK_K\": 32, \"num_warps\": 4, "            \
  "\"waves_per_eu\": 0}}"

Test(space, reads_the_example_of_the_design) {
  cleanup_space struct space *space = space_of(DESIGN_SPACE);
  cr_expect_eq(space->n_parameters, 5);
  cr_expect_str_eq(space->parameters[0].name, "BLOCK_M");
  cr_expect_eq(space->parameters[0].role, ROLE_CONSTEXPR);
  cr_expect_eq(space->parameters[3].role, ROLE_OPTION);
  cr_expect_eq(space->raw_count, 72);
  cr_expect(space->has_default);
  cr_expect_eq(space->default_ordinal, 32); /* ((1 * 3 + 1) * 2 + 0) * 4 */
  uint64_t count;
  struct error error;
  cr_assert(space_count(space, NULL, 1000, 72, &count, &error), "%s", error.message);
  cr_expect_eq(count, 44); /* CPython over itertools.product */
}

Test(space, numbers_points_with_the_last_parameter_fastest) {
  cleanup_space struct space *space =
      space_of("{\"parameters\": {\"a\": [10, 20], \"b\": [true, null, \"x\"]}}");
  static const char *const wanted[] = {"a=10 b=True", "a=10 b=None", "a=10 b=x",
                                       "a=20 b=True", "a=20 b=None", "a=20 b=x"};
  for (uint64_t i = 0; i < 6; i++) {
    cleanup_free char *text = space_config_format(space, i);
    cr_expect_str_eq(text, wanted[i]);
  }
}

Test(space, finds_the_ordinal_of_every_config) {
  static const char *const texts[] = {
      DESIGN_SPACE,
      "{\"parameters\": {\"a\": [3, 1, 2, \"3\", null, true, false, \"\"], \"b\": [-1, 0, -5]}}",
      "{\"configs\": [{\"a\": 2, \"b\": 1}, {\"b\": 2, \"a\": 1}, {\"a\": 1, \"b\": null}, {\"a\": "
      "\"1\", \"b\": 2}]}"};
  for (size_t t = 0; t < ARRAY_LENGTH(texts); t++) {
    cleanup_space struct space *space = space_of(texts[t]);
    for (uint64_t i = 0; i < space->raw_count; i++) {
      struct value values[SPACE_PARAMETERS_MAX];
      uint64_t ordinal = UINT64_MAX;
      struct error error;
      cr_assert(space_config(space, i, values));
      cr_expect(space_ordinal(space, values, &ordinal));
      cr_expect_eq(ordinal, i);
      cleanup_json json_t *json = space_config_to_json(space, i);
      cr_expect(space_config_from_json(space, json, &ordinal, &error), "%s", error.message);
      cr_expect_eq(ordinal, i);
    }
    struct value values[SPACE_PARAMETERS_MAX];
    cr_expect_not(space_config(space, space->raw_count, values));
  }
}

Test(space, finds_ordinals_in_a_product_of_almost_2_to_the_63) {
  char text[4096] = "{\"parameters\": {";
  for (int i = 0; i < 62; i++)
    sprintf(text + strlen(text), "%s\"p%d\": [0, 1]", i ? ", " : "", i);
  strcat(text, "}}");
  cleanup_space struct space *space = space_of(text);
  cr_expect_eq(space->raw_count, UINT64_C(1) << 62);
  struct value values[SPACE_PARAMETERS_MAX];
  uint64_t ordinal;
  cr_assert(space_config(space, (UINT64_C(1) << 62) - 2, values) &&
            space_ordinal(space, values, &ordinal));
  cr_expect_eq(ordinal, (UINT64_C(1) << 62) - 2);
}

Test(space, reads_an_explicit_list) {
  cleanup_space struct space *space =
      space_of("{\"configs\": [{\"B\": 64, \"w\": 4}, {\"w\": 8, \"B\": 128}], \"roles\": {\"w\": "
               "\"option\", \"B\": "
               "\"define\"}, \"default\": {\"w\": 8, \"B\": 128}}");
  cr_expect(space->is_list);
  cr_expect_eq(space->raw_count, 2);
  cr_expect_eq(space->default_ordinal, 1);
  cr_expect_eq(space->parameters[0].role, ROLE_CONSTEXPR);
  cr_expect_eq(space->parameters[1].role, ROLE_OPTION);
  cleanup_free char *text = space_config_format(space, 1), *found = points(space, NULL, 0);
  cr_expect_str_eq(text, "B=128 w=8");
  cr_expect_str_eq(found, "0 1");
  uint64_t count;
  struct error error;
  cr_expect(space_count(space, NULL, 10, 2, &count, &error) && count == 2);
  cr_expect_not(space_count(space, NULL, 10, 1, &count, &error));
  cr_expect_str_eq(error.pointer, "/configs");
}

Test(space, keeps_the_json_as_it_was_given) {
  cleanup_space struct space *space =
      space_of("{\"parameters\": {\"z\": [1], \"a\": [2]}, \"conditions\": []}");
  cleanup_free char *text = json_dumps(space->json, 0);
  cr_expect_str_eq(text, "{\"parameters\": {\"z\": [1], \"a\": [2]}, \"conditions\": []}");
}

Test(space, refuses_what_is_no_space) {
  expect_refused("[]", "", "must be an object, not an array");
  expect_refused("{}", "",
                 "a space must have either \"parameters\" or \"configs\", and it has neither");
  expect_refused("{\"parameters\": {\"a\": [1]}, \"configs\": [{\"a\": 1}]}", "",
                 "a space must have either \"parameters\" or \"configs\", not both");
  expect_refused("{\"parameter\": {\"a\": [1]}}", "/parameter", "unknown member \"parameter\"");
  expect_refused("{\"parameters\": [1]}", "/parameters",
                 "\"parameters\" must be an object, not an array");
  expect_refused("{\"parameters\": {}}", "/parameters", "\"parameters\" has 0 members");
  expect_refused("{\"configs\": [{}]}", "/configs/0", "the configs have no parameters");
  expect_refused("{\"configs\": []}", "/configs", "\"configs\" has 0 elements");
  expect_refused("{\"configs\": [{\"a\": 1}], \"conditions\": [\"a\"]}", "/conditions",
                 "a list of configs has no conditions");
}

Test(space, refuses_members_of_another_type) {
  expect_refused("{\"configs\": {}}", "/configs", "\"configs\" must be an array, not an object");
  expect_refused("{\"parameters\": {\"a\": [1]}, \"roles\": []}", "/roles",
                 "\"roles\" must be an object, not an array");
  expect_refused("{\"parameters\": {\"a\": [1]}, \"conditions\": {}}", "/conditions",
                 "\"conditions\" must be an array, not an object");
  expect_refused("{\"parameters\": {\"a\": [1]}, \"default\": 3}", "/default",
                 "\"default\" must be an object, not an integer");
}

Test(space, refuses_values_that_no_parameter_has) {
  expect_refused("{\"parameters\": {\"a\": 1}}", "/parameters/a",
                 "\"a\" must be an array, not an integer");
  expect_refused("{\"parameters\": {\"a\": []}}", "/parameters/a", "\"a\" has 0 elements");
  expect_refused("{\"parameters\": {\"a\": [1, 0.5]}}", "/parameters/a/1",
                 "a parameter has no float values");
  expect_refused("{\"parameters\": {\"a\": [1, [2]]}}", "/parameters/a/1",
                 "a value must be null, a boolean, a number or a string, not an array");
  expect_refused("{\"parameters\": {\"b\": [1], \"a\": [3, 1, 2, 4, 1, 2]}}", "/parameters/a/4",
                 "the value occurs twice");
  expect_refused("{\"parameters\": {\"a\": [null, \"x\", null]}}", "/parameters/a/2",
                 "the value occurs twice");
}

Test(space, takes_values_that_differ_in_type_only) {
  cleanup_space struct space *space =
      space_of("{\"parameters\": {\"a\": [1, true, \"1\", 0, false, null, \"\"]}}");
  cr_expect_eq(space->raw_count, 7);
}

Test(space, refuses_names_that_no_parameter_can_have) {
  expect_refused(
      "{\"parameters\": {\"a-b\": [1]}}", "/parameters/a-b",
      "\"a-b\" cannot name a parameter: use letters, digits and _, and no keyword of expressions");
  expect_refused(
      "{\"parameters\": {\"a/b\": [1]}}", "/parameters/a~1b",
      "\"a/b\" cannot name a parameter: use letters, digits and _, and no keyword of expressions");
  expect_refused("{\"parameters\": {\"lambda\": [1]}}", "/parameters/lambda",
                 "\"lambda\" cannot name a parameter: use letters, digits and _, and no keyword of "
                 "expressions");
  expect_refused("{\"parameters\": {\"arch\": [1]}}", "/parameters/arch",
                 "a parameter cannot be named \"arch\": conditions read the GPU's by that name");
  expect_refused(
      "{\"configs\": [{\"gpu_name\": 1}]}", "/configs/0/gpu_name",
      "a parameter cannot be named \"gpu_name\": conditions read the GPU's by that name");
}

Test(space, refuses_a_raw_product_beyond_63_bits) {
  char text[4096] = "{\"parameters\": {";
  for (int i = 0; i < 63; i++)
    sprintf(text + strlen(text), "%s\"p%d\": [0, 1]", i ? ", " : "", i);
  strcat(text, "}}");
  expect_refused(text, "/parameters/p62",
                 "the raw product of the parameters exceeds 2**63 - 1 points");
}

Test(space, refuses_more_than_its_limits) {
  char text[4096] = "{\"parameters\": {";
  for (int i = 0; i < 65; i++)
    sprintf(text + strlen(text), "%s\"p%d\": [0]", i ? ", " : "", i);
  strcat(text, "}}");
  expect_refused(text, "/parameters", "\"parameters\" has 65 members");

  char list[4096] = "{\"configs\": [{";
  for (int i = 0; i < 65; i++)
    sprintf(list + strlen(list), "%s\"p%d\": 0", i ? ", " : "", i);
  strcat(list, "}]}");
  expect_refused(list, "/configs/0", "the space has more than 64 parameters");

  struct error error;
  struct space *space;
  cleanup_json json_t *json = json_pack("{s: {s: []}, s: []}", "parameters", "a", "conditions");
  json_t *values = json_object_get(json_object_get(json, "parameters"), "a");
  for (int i = 0; i < SPACE_VALUES_MAX; i++)
    json_array_append_new(values, json_integer(i));
  cr_assert(space_parse(json, &space, &error), "%s", error.message);
  space_free(space);
  json_array_append_new(values, json_integer(-1));
  cr_expect_not(space_parse(json, &space, &error));
  cr_expect_not_null(strstr(error.message, "\"a\" has 65537 elements"), "%s", error.message);
  json_array_clear(values);
  json_array_append_new(values, json_integer(1));
  for (int i = 0; i < SPACE_CONDITIONS_MAX + 1; i++)
    json_array_append_new(json_object_get(json, "conditions"), json_string("a"));
  cr_expect_not(space_parse(json, &space, &error));
  cr_expect_not_null(strstr(error.message, "\"conditions\" has 257 elements"), "%s", error.message);
}

Test(space, refuses_roles_that_are_none) {
  expect_refused("{\"parameters\": {\"warps\": [1]}, \"roles\": {\"warp\": \"option\"}}",
                 "/roles/warp", "the space has no parameter \"warp\"; did you mean \"warps\"?");
  expect_refused("{\"parameters\": {\"a\": [1]}, \"roles\": {\"a\": \"options\"}}", "/roles/a",
                 "\"a\" is \"options\"");
  expect_refused("{\"parameters\": {\"a\": [1]}, \"roles\": {\"a\": 1}}", "/roles/a",
                 "\"a\" must be a string, not an integer");
}

Test(space, refuses_a_default_that_is_no_point) {
#define SMALL "{\"parameters\": {\"a\": [1, 2], \"b\": [\"x\"]}, \"default\": "
  expect_refused(SMALL "{\"a\": 1}}", "/default/b", "the config has no value for parameter \"b\"");
  expect_refused(SMALL "{\"a\": 3, \"b\": \"x\"}}", "/default/a",
                 "3 is not one of the 2 values of parameter \"a\"");
  expect_refused(SMALL "{\"a\": 1, \"b\": \"y\"}}", "/default/b",
                 "'y' is not one of the 1 values of parameter \"b\"");
  expect_refused(SMALL "{\"a\": true, \"b\": \"x\"}}", "/default/a",
                 "True is not one of the 2 values of parameter \"a\"");
  expect_refused(SMALL "{\"a\": 1, \"b\": \"x\", \"c\": 1}}", "/default/c",
                 "the space has no parameter \"c\"; known: a, b");
  expect_refused(SMALL "{\"a\": 1.0, \"b\": \"x\"}}", "/default/a",
                 "a parameter has no float values");
  expect_refused("{\"configs\": [{\"a\": 1}], \"default\": {\"a\": 2}}", "/default",
                 "the config is not in the list of the space");
}

Test(space, refuses_lists_whose_configs_differ_in_names_or_repeat) {
  expect_refused("{\"configs\": [{\"a\": 1}, {\"b\": 1}]}", "/configs/1/b",
                 "the space has no parameter \"b\"; known: a");
  expect_refused("{\"configs\": [{\"a\": 1, \"b\": 1}, {\"a\": 1}]}", "/configs/1/b",
                 "the config has no value for parameter \"b\"");
  expect_refused("{\"configs\": [{\"a\": 1}, 7]}", "/configs/1",
                 "a config must be an object of parameters and values");
  expect_refused("{\"configs\": [{\"a\": 1}, {\"a\": 2}, {\"a\": 1}]}", "/configs/2",
                 "the config occurs twice in the list");
  expect_refused("{\"configs\": [{\"a\": 1.5}]}", "/configs/0/a",
                 "a parameter has no float values");
}

Test(space, an_error_names_the_condition_and_column) {
  expect_refused("{\"parameters\": {\"a\": [1]}, \"conditions\": [\"a\", \"a / 2\"]}",
                 "/conditions/1", "condition 1, column 3: '/' would make a float");
  expect_refused("{\"parameters\": {\"a\": [1]}, \"conditions\": [\"a\", 1]}", "/conditions/1",
                 "\"conditions\" must hold strings, not an integer");
  expect_points(
      "{\"parameters\": {\"a\": [1]}, \"conditions\": [\"a\", \"a + K\"]}", NULL,
      "error: /conditions/1 condition 1, column 5: unknown name \"K\"; known: gpu_name, arch, a");
}

Test(space, identity_counts_order_and_ignores_what_is_left_out) {
  static const char *const same[] = {"{\"parameters\": {\"a\": [1, 2], \"b\": [3]}}",
                                     "{\"roles\": {\"a\": \"define\", \"b\": \"constexpr\"}, "
                                     "\"parameters\": {\"a\": [1, 2], \"b\": [3]}}",
                                     "{\"parameters\": {\"a\": [1, 2], \"b\": [3]}, "
                                     "\"conditions\": [], \"default\": null, \"roles\": {}}"};
  static const char *const others[] = {
      "{\"parameters\": {\"b\": [3], \"a\": [1, 2]}}",
      "{\"parameters\": {\"a\": [2, 1], \"b\": [3]}}",
      "{\"parameters\": {\"a\": [1, 2], \"b\": [\"3\"]}}",
      "{\"parameters\": {\"a\": [1, 2], \"b\": [3]}, \"roles\": {\"a\": \"option\"}}",
      "{\"parameters\": {\"a\": [1, 2], \"b\": [3]}, \"roles\": {\"a\": \"env\"}}",
      "{\"parameters\": {\"a\": [1, 2], \"b\": [3]}, \"conditions\": [\"a\"]}",
      "{\"parameters\": {\"a\": [1, 2], \"b\": [3]}, \"default\": {\"a\": 1, \"b\": 3}}",
      "{\"configs\": [{\"a\": 1, \"b\": 3}, {\"a\": 2, \"b\": 3}]}",
      "{\"configs\": [{\"a\": 2, \"b\": 3}, {\"a\": 1, \"b\": 3}]}"};
  cleanup_space struct space *first = space_of(same[0]);
  for (size_t i = 1; i < ARRAY_LENGTH(same); i++) {
    cleanup_space struct space *space = space_of(same[i]);
    cr_expect(digest_equal(&first->digest, &space->digest), "%s", same[i]);
  }
  struct digest seen[ARRAY_LENGTH(others) + 1] = {first->digest};
  for (size_t i = 0; i < ARRAY_LENGTH(others); i++) {
    cleanup_space struct space *space = space_of(others[i]);
    seen[i + 1] = space->digest;
    for (size_t j = 0; j <= i; j++)
      cr_expect_not(digest_equal(&seen[j], &space->digest), "%s", others[i]);
  }
}

static void expect_canonical(const char *text, const char *canonical) {
  cleanup_space struct space *space = space_of(text);
  struct digest wanted = digest_of(canonical, strlen(canonical));
  cr_expect(digest_equal(&space->digest, &wanted), "%s", text);
}

Test(space, identity_is_the_digest_of_the_canonical_form) {
  expect_canonical(
      "{\"parameters\": {\"b\": [1, true], \"a\": [null, \"x\"]}, \"roles\": {\"a\": \"env\", "
      "\"b\": \"define\"}, "
      "\"conditions\": [\"b > 0\"], \"default\": {\"b\": 1, \"a\": \"x\"}}",
      "{\"conditions\":[\"b > 0\"],\"default\":{\"a\":\"x\",\"b\":1},"
      "\"parameters\":[[\"b\",[1,true]],[\"a\",[null,\"x\"]]],\"roles\":{\"a\":\"env\"}}");
  expect_canonical("{\"configs\": [{\"b\": 1, \"a\": 2}, {\"a\": 3, \"b\": 1}]}",
                   "{\"configs\":[[1,2],[1,3]],\"names\":[\"b\",\"a\"]}");
}

Test(enumeration, gives_the_points_that_hold_in_ordinal_order) {
  expect_points("{\"parameters\": {\"a\": [1, 2, 3], \"b\": [1, 2]}}", NULL, "0 1 2 3 4 5");
  expect_points("{\"parameters\": {\"a\": [1, 2, 3], \"b\": [1, 2]}, \"conditions\": [\"a > b\"]}",
                NULL, "2 4 5");
  expect_points("{\"parameters\": {\"a\": [1, 2, 3], \"b\": [1, 2]}, \"conditions\": [\"b == 2\", "
                "\"a != 2\"]}",
                NULL, "1 5");
  expect_points("{\"parameters\": {\"a\": [1, 2]}, \"conditions\": [\"lambda c: c['a'] % 2\"]}",
                NULL, "0");
  expect_points("{\"parameters\": {\"a\": [1, 2]}, \"conditions\": [\"a > 2\"]}", NULL, "");
}

Test(enumeration, decides_conditions_that_read_no_parameter) {
  expect_points("{\"parameters\": {\"a\": [1, 2], \"b\": [1, 2]}, \"conditions\": [\"1 > 2\"]}",
                NULL, "");
  expect_points("{\"parameters\": {\"a\": [1, 2], \"b\": [1, 2]}, \"conditions\": [\"2 > 1\"]}",
                NULL, "0 1 2 3");
}

Test(enumeration, lets_conditions_read_the_key_and_the_gpu) {
  cleanup_key struct key key = {0};
  struct error error;
  cr_assert(key_parse_text("M=100,dtype=fp16,scale=0.5", NULL, 0, &key, &error));
  struct space_facts facts = {&key, "AMD Instinct MI300X", "gfx942"};
#define BLOCKS "{\"parameters\": {\"B\": [64, 128, 256]}, \"conditions\": "
  expect_points(BLOCKS "[\"B <= next_pow2(M)\"]}", &facts, "0 1");
  expect_points(BLOCKS "[\"B == 64 or dtype == 'fp16' and arch == 'gfx942'\"]}", &facts, "0 1 2");
  expect_points(BLOCKS "[\"B == 64 or 'MI300' in gpu_name\"]}", &facts, "0 1 2");
  expect_points(BLOCKS "[\"arch == '' and gpu_name == ''\"]}", NULL, "0 1 2");
  expect_points(BLOCKS "[\"arch == '' and gpu_name == ''\"]}",
                &(struct space_facts){&key, NULL, NULL}, "0 1 2");
  expect_points(BLOCKS "[\"B > scale\"]}", &facts,
                "error: /conditions/0 condition 0, column 5: \"scale\" is a float, which "
                "expressions cannot read, for the "
                "config B=64");
}

Test(enumeration, refuses_a_key_member_that_hides_another_name) {
  cleanup_key struct key arch = {0}, parameter = {0};
  struct error error;
  cr_assert(key_parse_text("arch=1", NULL, 0, &arch, &error) &&
            key_parse_text("a=1", NULL, 0, &parameter, &error));
  expect_points(
      "{\"parameters\": {\"a\": [1]}}", &(struct space_facts){&arch, NULL, NULL},
      "error:  conditions cannot distinguish the key's member \"arch\" from the GPU's fact of "
      "that name; rename one of "
      "them");
  expect_points(
      "{\"parameters\": {\"a\": [1]}}", &(struct space_facts){&parameter, NULL, NULL},
      "error:  conditions cannot distinguish the key's member \"a\" from the parameter of that "
      "name; rename one of them");
}

Test(enumeration, lets_one_condition_guard_another_in_any_order) {
  expect_points("{\"parameters\": {\"a\": [0, 1], \"b\": [0, 2]}, \"conditions\": [\"a != 0\", \"4 "
                "// a > b\"]}",
                NULL, "2 3");
  expect_points("{\"parameters\": {\"a\": [0, 1], \"b\": [0, 2]}, \"conditions\": [\"4 // a > 0\", "
                "\"a + b > 0\", \"a\"]}",
                NULL, "2 3");
  expect_points("{\"parameters\": {\"a\": [0, 1], \"b\": [1, 2]}, \"conditions\": [\"4 // a > 0\", "
                "\"a * b > 1\"]}",
                NULL, "3");
}

Test(enumeration,
     ends_in_an_error_at_a_point_that_nothing_excludes_and_one_condition_cannot_decide) {
  expect_points(
      "{\"parameters\": {\"a\": [1, 0], \"b\": [1, 2]}, \"conditions\": [\"b > 0\", \"4 // a > "
      "b\"]}",
      NULL,
      "0 1 error: /conditions/1 condition 1, column 3: division by zero, for the config a=0 b=1");
  expect_points(
      "{\"parameters\": {\"a\": [0], \"b\": [1]}, \"conditions\": [\"b // a\", \"1 % a\"]}", NULL,
      "error: /conditions/0 condition 0, column 3: division by zero, for the config a=0 b=1");
}

Test(enumeration, an_error_cuts_the_config_between_characters) {
  cleanup_free char *text = xasprintf(
      "{\"parameters\": {\"a\": [\"x%0*d\"], \"b\": [0]}, \"conditions\": [\"1 // b\"]}", 300, 0);
  for (char *c = strchr(text, '0'); c[1] == '0'; c += 2)
    memcpy(c, "é", 2);
  cleanup_space struct space *space = space_of(text);
  cleanup_free char *found = points(space, NULL, 10);
  cr_expect_eq(strlen(found) > 100 && strcmp(found + strlen(found) - 5, "é...") == 0, true, "%s",
               found);
  cleanup_json json_t *utf8 = json_string(found);
  cr_expect(utf8);
}

Test(enumeration, cuts_a_trillion_raw_points_early) {
  char text[4096] = "{\"parameters\": {";
  for (int i = 0; i < 12; i++)
    sprintf(text + strlen(text), "%s\"p%d\": [0,1,2,3,4,5,6,7,8,9]", i ? ", " : "", i);
  strcat(text, "}, \"conditions\": [\"p0 == 9\"");
  for (int i = 1; i < 12; i++)
    sprintf(text + strlen(text), ", \"p%d == p%d - 1 or p%d == p%d == 0\"", i, i - 1, i, i - 1);
  strcat(text, "]}");
  cleanup_space struct space *space = space_of(text);
  cr_expect_eq(space->raw_count, UINT64_C(1000000000000));
  cleanup_free char *found = points(space, NULL, 1000);
  cr_expect_str_eq(found, "987654321000");
}

Test(enumeration, decides_conditions_that_read_many_parameters) {
  cleanup_free char *found = NULL;
  char text[1024] = "{\"parameters\": {";
  for (int i = 0; i < 10; i++)
    sprintf(text + strlen(text), "%s\"p%d\": [0, 1]", i ? ", " : "", i);
  strcat(text, "}, \"conditions\": [\"p0 + p1 + p2 + p3 + p4 + p5 + p6 + p7 + p8 == 9\"]}");
  cleanup_space struct space *space = space_of(text);
  found = points(space, NULL, 10000);
  cr_expect_str_eq(found, "1022 1023");
}

Test(enumeration, decides_conditions_that_read_many_values) {
  cleanup_json json_t *json =
      json_pack("{s: {s: [], s: []}, s: [s]}", "parameters", "a", "b", "conditions", "a == b");
  json_t *parameters = json_object_get(json, "parameters");
  for (int i = 0; i < 300; i++) {
    json_array_append_new(json_object_get(parameters, "a"), json_integer(i));
    json_array_append_new(json_object_get(parameters, "b"), json_integer(i));
  }
  struct space *parsed;
  struct error error;
  uint64_t count = 0;
  cr_assert(space_parse(json, &parsed, &error), "%s", error.message);
  cleanup_space struct space *space = parsed;
  cr_expect(space_count(space, NULL, 100000, 300, &count, &error), "%s", error.message);
  cr_expect_eq(count, 300);
}

Test(enumeration, is_an_error_when_it_cuts_too_late_for_the_step_limit) {
  cleanup_space struct space *space = space_of("{\"parameters\": {\"a\": [0,1,2,3,4,5,6,7,8,9], "
                                               "\"b\": [0,1,2,3,4,5,6,7,8,9], \"c\": [0, 1]}, "
                                               "\"conditions\": [\"a + b + c == 20\"]}");
  cleanup_free char *found = points(space, NULL, 309), *all = points(space, NULL, 310);
  cr_expect_str_eq(
      found,
      "error: /conditions the space was not enumerated: 309 steps reached the limit with 0 configs "
      "found; put parameters whose conditions exclude most first, or take values out");
  cr_expect_str_eq(all, "", "10 + 100 + 200 partial points");
}

Test(count, multiplies_parameters_that_no_condition_reads) {
  cleanup_space struct space *space =
      space_of("{\"parameters\": {\"a\": [0,1,2], \"b\": [0,1,2,3,4,5,6,7,8,9], \"c\": "
               "[0,1,2,3,4,5,6,7,8,9]}, "
               "\"conditions\": [\"a != 1\"]}");
  uint64_t count;
  struct error error;
  cr_assert(space_count(space, NULL, 3, 200, &count, &error), "%s", error.message);
  cr_expect_eq(count, 200);
  cr_expect_not(space_count(space, NULL, 3, 199, &count, &error));
  cr_expect_str_eq(error.message,
                   "the space has more than 199 valid configs; add conditions or take values out");
  cr_expect_not(space_count(space, NULL, 2, 200, &count, &error));
}

Test(count, a_condition_that_fails_names_a_whole_config) {
  cleanup_space struct space *space =
      space_of("{\"parameters\": {\"a\": [1, 0], \"b\": [5, 6]}, \"conditions\": [\"1 // a\"]}");
  uint64_t count;
  struct error error;
  cr_expect_not(space_count(space, NULL, 100, 100, &count, &error));
  cr_expect_not_null(
      strstr(error.message, "condition 0, column 3: division by zero, for the config a=0 b=5"),
      "%s", error.message);
  cr_expect_not(
      space_count(space,
                  &(struct space_facts){&(struct key){.n = 1,
                                                      .names = (char *[]){(char[]){"a"}},
                                                      .values = (struct value[]){value_int(1)}},
                                        NULL, NULL},
                  100, 100, &count, &error));
}

Test(holds, decides_one_point) {
  cleanup_space struct space *space = space_of(
      "{\"parameters\": {\"a\": [0, 1, 2]}, \"conditions\": [\"4 // a\", \"a != 1\", \"K == 3\"]}");
  cleanup_key struct key key = {0};
  struct error error;
  bool holds = false;
  cr_assert(key_parse_text("K=3", NULL, 0, &key, &error));
  struct space_facts facts = {&key, NULL, NULL};
  cr_expect(space_is_valid(space, &facts, 2, &holds, &error) && holds);
  cr_expect(space_is_valid(space, &facts, 1, &holds, &error) && !holds);
  cr_expect(space_is_valid(space, &facts, 3, &holds, &error) && !holds, "outside");
  cr_expect_not(space_is_valid(space, &facts, 0, &holds, &error));
  cr_expect_str_eq(error.pointer, "/conditions/0");
  cr_expect_not_null(
      strstr(error.message, "condition 0, column 3: division by zero, for the config a=0"), "%s",
      error.message);
  cr_expect_not(space_is_valid(space, NULL, 2, &holds, &error));
  cr_expect_str_eq(error.pointer, "/conditions/2");
}

Test(holds, keeps_the_first_failure_when_two_conditions_fail) {
  cleanup_space struct space *space =
      space_of("{\"parameters\": {\"a\": [0]}, \"conditions\": [\"4 // a\", \"log2(a)\"]}");
  struct error error;
  bool holds;
  cr_expect_not(space_is_valid(space, NULL, 0, &holds, &error));
  cr_expect_not_null(
      strstr(error.message, "condition 0, column 3: division by zero, for the config a=0"), "%s",
      error.message);
}

/* A small random space with conditions that often fail or divide by zero. */
static struct space *random_space(unsigned *seed) {
  static const char *const conditions[] = {
      "%s <= %s",      "%s * %s != 2",  "%s + %s < 4",     "%s // %s > 0",    "%s %% %s == 1",
      "%s or %s",      "%s and %s",     "%s if %s else 1", "2 ** %s > %s",    "%s not in (2, %s)",
      "%s == %s == 1", "log2(%s) < %s", "max(%s, %s) > 1", "not (%s and %s)", "%s != %s"};
  char text[1024] = "{\"parameters\": {";
  unsigned n = 1 + (unsigned)rand_r(seed) % 4;
  for (unsigned i = 0; i < n; i++) {
    sprintf(text + strlen(text), "%s\"p%u\": [0", i ? ", " : "", i);
    for (int v = 1; v <= rand_r(seed) % 4; v++)
      sprintf(text + strlen(text), ", %d", v);
    strcat(text, "]");
  }
  strcat(text, "}, \"conditions\": [\"0 <= p0\"");
  for (int c = rand_r(seed) % 4; c > 0; c--) {
    char a[8], b[8];
    snprintf(a, sizeof a, "p%u", (unsigned)rand_r(seed) % n);
    snprintf(b, sizeof b, "p%u", (unsigned)rand_r(seed) % n);
    strcat(text, ", \"");
    snprintf(text + strlen(text), 64, conditions[(unsigned)rand_r(seed) % ARRAY_LENGTH(conditions)],
             a, b);
    strcat(text, "\"");
  }
  strcat(text, "]}");
  return space_of(text);
}

Test(enumeration, agrees_with_deciding_every_point_alone) {
  unsigned seed = 7, errors = 0, excluded = 0;
  for (int round = 0; round < 2000; round++) {
    cleanup_space struct space *space = random_space(&seed);
    cleanup_space_iterator struct space_iterator *iterator = NULL;
    struct error error, alone;
    uint64_t next = 0, ordinal, count = 0, n = 0;
    enum space_step step = SPACE_POINT;
    cr_assert(space_iterator_new(space, NULL, 1 << 20, &iterator, &error), "%s", error.message);
    while (step == SPACE_POINT) {
      step = space_iterator_next(iterator, &ordinal, &error);
      for (bool reached = false; !reached && next < space->raw_count; next++) {
        bool holds = false;
        if (!space_is_valid(space, NULL, next, &holds, &alone)) {
          cr_assert_eq(step, SPACE_ERROR);
          cr_expect_str_eq(error.message, alone.message);
          cr_expect_str_eq(error.pointer, alone.pointer);
          errors++;
          reached = true;
        } else if (holds) {
          cr_assert(step == SPACE_POINT && ordinal == next);
          n++;
          reached = true;
        } else {
          excluded++;
        }
      }
    }
    cr_assert(step == SPACE_ERROR || next == space->raw_count);
    cr_assert_eq(space_count(space, NULL, 1 << 20, 1 << 20, &count, &error), step == SPACE_END);
    cr_assert(step == SPACE_ERROR || count == n);
  }
  cr_expect(errors > 100 && excluded > 1000, "%u errors, %u excluded", errors, excluded);
}

Test(space, lends_a_config_to_a_scope) {
  cleanup_space struct space *space = space_of(DESIGN_SPACE);
  struct scope scope = {0};
  struct error error;
  int64_t integer;
  cr_assert(space_scope_add(space, 32, &scope, &error));
  cr_assert(expr_int_in_scope("BLOCK_M * BLOCK_N * num_warps + waves_per_eu", &scope, 0, 1 << 20,
                              &integer, &error));
  cr_expect_eq(integer, 64 * 64 * 4);
}

Test(space, is_refused_by_a_full_scope) {
  cleanup_space struct space *space = space_of(DESIGN_SPACE);
  static struct scope scope;
  static char texts[256][8];
  struct error error;
  for (size_t i = 0; i < 256; i++) {
    snprintf(texts[i], sizeof texts[i], "n%zu", i);
    cr_assert(scope_add(&scope, texts[i], value_int(1), &error));
  }
  cr_expect_not(space_scope_add(space, 0, &scope, &error));
}

static void expect_ranges_refused(const char *text, const char *pointer, const char *message) {
  cleanup_config_ranges struct config_ranges ranges = {0};
  cleanup_json json_t *json = NULL;
  struct error error = {0};
  cr_assert(json_parse(text, strlen(text), &json, &error));
  cr_assert_not(config_ranges_from_json(json, &ranges, &error), "%s", text);
  cr_expect_str_eq(error.pointer, pointer);
  cr_expect_not_null(strstr(error.message, message), "%s", error.message);
}

Test(config_ranges, join_neighbours_and_survive_json) {
  cleanup_config_ranges struct config_ranges ranges = {0}, back = {0};
  struct error error;
  for (uint64_t i = 0; i < 100; i++)
    if (i % 10 < 7)
      config_ranges_add(&ranges, i);
  cr_expect_eq(ranges.n, 10);
  cr_expect_eq(config_ranges_count(&ranges), 70);
  cleanup_json json_t *json = config_ranges_to_json(&ranges);
  cr_assert(config_ranges_from_json(json, &back, &error), "%s", error.message);
  cr_expect_eq(config_ranges_count(&back), 70);
  cleanup_json json_t *again = config_ranges_to_json(&back);
  cr_expect(json_equal(json, again));
  config_ranges_add(&back, 98);
  cr_expect_eq(back.n, 11);
}

Test(config_ranges, may_be_empty) {
  cleanup_config_ranges struct config_ranges ranges = {0}, back = {0};
  struct error error;
  cleanup_json json_t *json = config_ranges_to_json(&ranges);
  cr_expect_eq(json_array_size(json), 0);
  cr_expect(config_ranges_from_json(json, &back, &error) && config_ranges_count(&back) == 0);
}

Test(config_ranges, refuse_what_is_no_set_of_ranges) {
  static const char *const pair = "a range of configs must be [first, count], two integers";
  static const char *const bounds =
      "a range of configs must have at least one ordinal, all below 2**63 - 1";
  expect_ranges_refused("{}", "", "configs must be an array of ranges [first, count]");
  expect_ranges_refused("[1]", "/0", pair);
  expect_ranges_refused("[[1, 2], [4]]", "/1", pair);
  expect_ranges_refused("[[1, 2, 3]]", "/0", pair);
  expect_ranges_refused("[[1, 2.0]]", "/0", pair);
  expect_ranges_refused("[[\"1\", 2]]", "/0", pair);
  expect_ranges_refused("[[-1, 2]]", "/0", bounds);
  expect_ranges_refused("[[1, 0]]", "/0", bounds);
  expect_ranges_refused("[[9223372036854775807, 1]]", "/0", bounds);
  expect_ranges_refused("[[0, 2], [2, 1]]", "/1",
                        "ranges of configs must be in ascending order with gaps");
  expect_ranges_refused("[[5, 2], [0, 1]]", "/1",
                        "ranges of configs must be in ascending order with gaps");
}

Test(config_ranges, abort_on_an_ordinal_that_does_not_rise, .signal = SIGABRT) {
  struct config_ranges ranges = {0};
  config_ranges_add(&ranges, 5);
  config_ranges_add(&ranges, 5);
}

Test(space, what_is_no_object_is_refused) {
  cleanup_json json_t *list = json_array();
  struct space *space;
  struct error error;
  cr_expect_not(space_parse(NULL, &space, &error));
  cr_expect_not(space_parse(list, &space, &error));
  cr_expect_eq(error.kind, ERROR_INVALID);
}
