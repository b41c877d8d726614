/* Environments: what is accepted, what is identity, and how two differ. */
#include "common/node/environment.h"

#include <criterion/criterion.h>

static struct error error;

#define MI300X                                                                                     \
  "{\"rocm\":\"6.4.1\",\"torch\":\"2.7.1\",\"triton\":\"3.3.1\",\"gpu\":\"AMD Instinct "           \
  "MI300X\",\"arch\":\"gfx942\","                                                                  \
  "\"compute_units\":304,\"partition\":\"SPX/NPS1\"}"

static struct environment parsed(const char *text) {
  struct environment environment = {0};
  cleanup_json json_t *json = NULL;
  cr_assert(json_parse(text, strlen(text), &json, &error), "%s", error.message);
  cr_assert(environment_parse(json, &environment, &error), "%s: %s", text, error.message);
  return environment;
}

static void expect_refused(const char *text, const char *pointer, const char *what) {
  struct environment environment = {.compute_units = 42};
  cleanup_json json_t *json = NULL;
  cr_assert(json_parse(text, strlen(text), &json, &error), "%s", error.message);
  cr_expect_not(environment_parse(json, &environment, &error), "%s was read", text);
  cr_expect_str_eq(error.pointer, pointer);
  cr_expect_neq(strstr(error.message, what), NULL, "%s", error.message);
  cr_expect(environment.compute_units == 42 && !environment.rocm, "a refusal wrote its result");
}

Test(environment, reads_and_writes_all_members) {
  cleanup_environment struct environment environment = parsed(MI300X);
  cleanup_json json_t *json = environment_to_json(&environment),
                      *wanted = json_loads(MI300X, 0, NULL);
  cr_expect(json_equal(json, wanted));
  cr_expect_str_eq(environment.gpu, "AMD Instinct MI300X");
  cr_expect_eq(environment.compute_units, 304);
}

Test(environment, keeps_unstated_members_unstated) {
  cleanup_environment struct environment environment = parsed("{\"arch\":\"gfx942\"}");
  cleanup_json json_t *json = environment_to_json(&environment);
  cr_expect_eq(json_object_size(json), (size_t)1);
  cr_expect_null(environment.cpu);
}

static void expect_covers(bool covers, const char *served, const char *asked) {
  cleanup_environment struct environment there = parsed(served), here = parsed(asked);
  cr_expect_eq(environment_can_use(&there, &here), covers, "%s for %s", served, asked);
}

Test(environment, a_partial_one_covers_environments_with_equal_stated_members) {
#define NAMED(more) "{\"gpu\":\"AMD Instinct MI300X\"" more "}"
  expect_covers(true, NAMED(""), MI300X);
  expect_covers(true, NAMED(",\"rocm\":\"6.4.1\",\"triton\":\"3.3.1\""), MI300X);
  expect_covers(true, MI300X, MI300X);
  expect_covers(false, NAMED(",\"rocm\":\"6.4.0\""), MI300X);
  expect_covers(false, NAMED(",\"cuda\":\"12.8\""), MI300X);
  expect_covers(false, "{\"gpu\":\"AMD Instinct MI308X\"}", MI300X);
  expect_covers(false, "{\"rocm\":\"6.4.1\"}", MI300X);
  expect_covers(false, "{\"rocm\":\"6.4.1\",\"arch\":\"gfx942\"}", MI300X);
}

Test(environment, one_without_a_partition_covers_whole_gpus_only) {
  static const char whole[] = NAMED(",\"compute_units\":304,\"partition\":\"SPX\""),
                    unsplit[] = NAMED(",\"partition\":\"\""),
                    part[] = NAMED(",\"compute_units\":38,\"partition\":\"CPX/NPS4\"");
  expect_covers(true, NAMED(""), whole);
  expect_covers(true, NAMED(""), unsplit);
  expect_covers(false, NAMED(""), part);
  expect_covers(false, NAMED(""), NAMED(""));
  expect_covers(false, NAMED(""), NAMED(",\"compute_units\":304"));
  expect_covers(false, NAMED(""), NAMED(",\"partition\":\"SPXX/NPS1\""));
  expect_covers(true, NAMED(",\"compute_units\":38"), part);
  expect_covers(true, NAMED(",\"partition\":\"CPX/NPS4\""), part);
  expect_covers(false, NAMED(",\"compute_units\":304"), part);
}

Test(environment, a_name_of_many_gpus_without_arch_covers_none) {
#define NAMELESS(more) "{\"gpu\":\"AMD Radeon Graphics\"" more "}"
  expect_covers(false, NAMELESS(""), NAMELESS(",\"arch\":\"gfx1103\",\"partition\":\"\""));
  expect_covers(true, NAMELESS(",\"arch\":\"gfx1103\""),
                NAMELESS(",\"arch\":\"gfx1103\",\"partition\":\"\""));
}

static char *missing_of(struct environment environment) {
  cleanup_json json_t *missing = environment_missing(&environment);
  return json_dumps(missing, JSON_COMPACT);
}

Test(environment, members_that_only_full_ones_state_are_missing) {
  char text[] = "x";
  cleanup_free char *all = missing_of((struct environment){.torch = text, .triton = text});
  cr_expect_str_eq(all, "[\"rocm or cuda\",\"gpu\",\"arch\",\"compute_units\",\"partition\"]");
  cleanup_free char *some =
      missing_of((struct environment){.cuda = text, .gpu = text, .compute_units = 132});
  cr_expect_str_eq(some, "[\"arch\",\"partition\"]");
  cleanup_free char *none = missing_of((struct environment){
      .cpu = text, .gpu = text, .arch = text, .compute_units = 4, .partition = text});
  cr_expect_str_eq(none, "[]");
}

Test(environment, an_empty_partition_is_stated) {
  cleanup_environment struct environment environment = parsed("{\"partition\":\"\"}");
  cr_expect_str_eq(environment.partition, "");
}

Test(environment, null_is_refused) {
  expect_refused("{\"arch\":\"gfx942\",\"cpu\":null}", "/cpu",
                 "\"cpu\" must be a string, not null");
  expect_refused("{\"compute_units\":null}", "/compute_units", "must be an integer, not null");
}

Test(environment, other_empty_texts_are_refused) {
  expect_refused("{\"gpu\":\"\"}", "/gpu", "at least 1");
}

Test(environment, texts_are_at_most_200_bytes) {
  char text[300];
  snprintf(text, sizeof text, "{\"gpu\":\"%0200d\"}", 0);
  cleanup_environment struct environment environment = parsed(text);
  cr_expect_eq(strlen(environment.gpu), (size_t)200);
  snprintf(text, sizeof text, "{\"gpu\":\"%0201d\"}", 0);
  expect_refused(text, "/gpu", "has 201 bytes; at most 200");
}

Test(environment, control_characters_are_refused) {
  expect_refused("{\"torch\":\"2.7\\n\"}", "/torch", "control character");
  expect_refused("{\"torch\":\"\\u007f\"}", "/torch", "control character");
}

Test(environment, compute_units_have_a_range) {
  expect_refused("{\"compute_units\":0}", "/compute_units", "1 to 1000000");
  expect_refused("{\"compute_units\":1000001}", "/compute_units", "1 to 1000000");
  expect_refused("{\"compute_units\":\"304\"}", "/compute_units", "an integer");
}

Test(environment, a_text_of_another_type_is_refused) {
  expect_refused("{\"rocm\":6.4}", "/rocm", "must be a string, not a number");
}

Test(environment, unknown_members_are_refused) {
  expect_refused("{\"driver\":\"6.12\"}", "/driver", "unknown member");
}

Test(environment, other_values_than_objects_are_refused) {
  expect_refused("[]", "", "must be an object");
}

Test(environment, two_platforms_are_refused) {
  expect_refused("{\"rocm\":\"6.4\",\"cuda\":\"12\"}", "", "one of rocm, cuda and cpu");
}

Test(environment, a_copy_owns_its_texts) {
  cleanup_environment struct environment environment = parsed(MI300X),
                                         copy = environment_copy(&environment);
  environment.gpu[0] = 'X';
  cr_expect_str_eq(copy.gpu, "AMD Instinct MI300X");
  cr_expect_null(copy.cuda);
  cr_expect_eq(copy.compute_units, 304);
}

Test(environment, a_full_one_needs_no_torch_and_no_triton) {
  cleanup_environment struct environment environment =
      parsed("{\"cpu\":\"gcc "
             "12.2\",\"gpu\":\"EPYC\",\"arch\":\"x86_64\",\"compute_units\":2,\"partition\":\"\"}");
  cr_expect(environment_is_full(&environment, &error));
}

Test(environment, each_missing_hardware_member_makes_it_partial) {
  static const struct {
    const char *text, *pointer, *what;
  } cases[] = {{"{\"gpu\":\"g\",\"arch\":\"a\",\"compute_units\":1,\"partition\":\"\"}", "",
                "exactly one of rocm, cuda and cpu"},
               {"{\"cpu\":\"c\",\"arch\":\"a\",\"compute_units\":1,\"partition\":\"\"}", "/gpu",
                "states \"gpu\""},
               {"{\"cpu\":\"c\",\"gpu\":\"g\",\"compute_units\":1,\"partition\":\"\"}", "/arch",
                "states \"arch\""},
               {"{\"cpu\":\"c\",\"gpu\":\"g\",\"arch\":\"a\",\"partition\":\"\"}", "/compute_units",
                "states \"compute_units\""},
               {"{\"cpu\":\"c\",\"gpu\":\"g\",\"arch\":\"a\",\"compute_units\":1}", "/partition",
                "states \"partition\""}};
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
    cleanup_environment struct environment environment = parsed(cases[i].text);
    cr_expect_not(environment_is_full(&environment, &error));
    cr_expect_str_eq(error.pointer, cases[i].pointer);
    cr_expect_neq(strstr(error.message, cases[i].what), NULL, "%s", error.message);
  }
}

Test(environment, is_formatted_without_empty_members) {
  cleanup_environment struct environment full = parsed(MI300X), none = {0},
                                         cpu = parsed("{\"cpu\":\"gcc 12.2\",\"partition\":\"\"}");
  cleanup_free char *full_text = environment_format(&full), *none_text = environment_format(&none),
                    *cpu_text = environment_format(&cpu);
  cr_expect_str_eq(full_text,
                   "rocm 6.4.1, torch 2.7.1, triton 3.3.1, gpu AMD Instinct MI300X, arch gfx942, "
                   "partition SPX/NPS1, 304 compute units");
  cr_expect_str_eq(none_text, "any environment");
  cr_expect_str_eq(cpu_text, "cpu gcc 12.2");
}

Test(environment, its_digest_is_that_of_its_canonical_json) {
  cleanup_environment struct environment environment = parsed("{\"gpu\":\"g\",\"cpu\":\"c\"}");
  struct digest digest = environment_digest(&environment),
                wanted = digest_of("{\"cpu\":\"c\",\"gpu\":\"g\"}", 21);
  cr_expect(digest_equal(&digest, &wanted));
}

Test(environment, an_empty_partition_differs_from_none) {
  cleanup_environment struct environment stated = parsed("{\"gpu\":\"g\",\"partition\":\"\"}"),
                                         absent = parsed("{\"gpu\":\"g\"}");
  struct digest a = environment_digest(&stated), b = environment_digest(&absent);
  cr_expect_not(digest_equal(&a, &b));
}

Test(environment, the_hardware_digest_leaves_out_torch_and_triton_only) {
  cleanup_environment struct environment with = parsed(MI300X), without = environment_copy(&with),
                                         smaller = environment_copy(&with);
  free(TAKE(without.torch));
  free(TAKE(without.triton));
  smaller.compute_units = 38;
  struct digest a = environment_hardware_digest(&with), b = environment_hardware_digest(&without),
                c = environment_hardware_digest(&smaller), d = environment_digest(&without);
  cr_expect(digest_equal(&a, &b));
  cr_expect_not(digest_equal(&a, &c));
  cr_expect(digest_equal(&b, &d));
}

Test(environment, fits_where_every_stated_member_is_equal) {
  cleanup_environment struct environment full = parsed(MI300X);
  static const char *const fitting[] = {"{}", MI300X, "{\"gpu\":\"AMD Instinct MI300X\"}",
                                        "{\"compute_units\":304}"};
  static const char *const others[] = {"{\"compute_units\":38}", "{\"cpu\":\"gcc\"}",
                                       "{\"torch\":\"2.7.0\"}", "{\"partition\":\"\"}"};
  for (size_t i = 0; i < ARRAY_LENGTH(fitting); i++) {
    cleanup_environment struct environment partial = parsed(fitting[i]);
    cr_expect(environment_fits(&partial, &full), "%s", fitting[i]);
  }
  for (size_t i = 0; i < ARRAY_LENGTH(others); i++) {
    cleanup_environment struct environment partial = parsed(others[i]);
    cr_expect_not(environment_fits(&partial, &full), "%s", others[i]);
  }
}

static void expect_differences(const char *job, const char *agent, bool hardware_only,
                               const char *wanted) {
  cleanup_environment struct environment partial = parsed(job), full = parsed(agent);
  cleanup_json json_t *differences = environment_differences(&partial, &full, hardware_only);
  cleanup_free char *text = json_canonical(differences);
  cr_expect_str_eq(text, wanted);
}

Test(environment, differences_name_both_sides) {
  expect_differences("{\"gpu\":\"MI300X\",\"compute_units\":304,\"arch\":\"gfx942\"}",
                     "{\"gpu\":\"MI250X\",\"compute_units\":110,\"arch\":\"gfx942\"}", false,
                     "{\"compute_units\":{\"agent\":110,\"job\":304},\"gpu\":{\"agent\":\"MI250X\","
                     "\"job\":\"MI300X\"}}");
}

Test(environment, differences_show_null_for_what_the_agent_does_not_state) {
  expect_differences(
      "{\"rocm\":\"6.4\",\"compute_units\":304}", "{\"cpu\":\"gcc\"}", false,
      "{\"compute_units\":{\"agent\":null,\"job\":304},\"rocm\":{\"agent\":null,\"job\":\"6.4\"}}");
}

Test(environment, differences_of_the_build_can_be_left_out) {
  expect_differences("{\"torch\":\"2.7\",\"gpu\":\"a\"}", "{\"gpu\":\"a\"}", true, "{}");
  expect_differences("{\"torch\":\"2.7\",\"gpu\":\"a\"}", "{\"gpu\":\"a\"}", false,
                     "{\"torch\":{\"agent\":null,\"job\":\"2.7\"}}");
}

Test(environment, versions_are_compared_by_major_and_minor) {
  cr_expect(version_minors_equal("6.4.1", "6.4.0-7"));
  cr_expect(version_minors_equal("6.4", "6.4.43484-123eb5128"));
  cr_expect_not(version_minors_equal("6.4.1", "6.40.1"));
  cr_expect_not(version_minors_equal("6.4.1", "6.3.1"));
  cr_expect_not(version_minors_equal("6", "6"));
  cr_expect_not(version_minors_equal("torch_6.2", "torch_6.2"));
}
