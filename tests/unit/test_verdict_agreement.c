/* Classes of agreement, what satisfies a requirement, and when configs disagree too much. */
#include "common/verdict/agreement.h"

#include <criterion/criterion.h>

#define NOTHING AGREEMENT_NONE
static const struct {
  struct agreement_facts facts;
  const char *class;
  bool satisfies[REQUIRE_COUNT]; /* none, agrees, bitwise, interpreted */
} classes[] = {
    {{NOTHING, NOTHING}, "none", {true, true, false, false}},
    {{NOTHING, NOTHING, true}, "none", {true, true, false, true}},
    {{AGREEMENT_BITWISE, NOTHING}, "bitwise", {true, true, true, false}},
    {{AGREEMENT_BITWISE, AGREEMENT_AGREES}, "bitwise", {true, true, true, true}},
    {{AGREEMENT_AGREES, NOTHING}, "agrees", {true, true, false, false}},
    {{AGREEMENT_AGREES, NOTHING, true}, "agrees", {true, true, false, false}},
    {{AGREEMENT_AGREES, AGREEMENT_AGREES}, "interpreted", {true, true, false, true}},
    {{AGREEMENT_DISAGREES, AGREEMENT_AGREES}, "disagrees", {true, false, false, false}},
    {{AGREEMENT_BITWISE, AGREEMENT_DISAGREES}, "disagrees", {true, false, false, false}},
    {{NOTHING, AGREEMENT_DISAGREES, true}, "disagrees", {true, false, false, false}},
};

Test(agreement, two_facts_are_one_class) {
  for (size_t i = 0; i < ARRAY_LENGTH(classes); i++)
    cr_expect_str_eq(agreement_class(&classes[i].facts), classes[i].class, "%zu", i);
}

Test(agreement, a_requirement_is_satisfied_by_facts) {
  for (size_t i = 0; i < ARRAY_LENGTH(classes); i++)
    for (size_t k = 0; k < REQUIRE_COUNT; k++)
      cr_expect_eq(agreement_satisfies((enum agreement_requirement)k, &classes[i].facts),
                   classes[i].satisfies[k], "%zu: %s", i, agreement_requirement_names[k]);
}

Test(agreement, what_is_written_is_read_back) {
  for (size_t i = 1; i < 7; i++) {
    cleanup_json json_t *json = json_pack("{s:s, s:b}", "agreement", "old", "interpreted", 1);
    agreement_write(json, &classes[i].facts);
    struct agreement_facts read = agreement_read(json);
    cr_expect_eq(read.with_default, classes[i].facts.with_default, "%zu", i);
    cr_expect_eq(read.interpreted, classes[i].facts.interpreted, "%zu", i);
    cr_expect_eq(json_object_get(json, "agreement") == NULL,
                 string_equal(classes[i].class, "none"));
  }
  struct agreement_facts nothing = agreement_read(NULL);
  cr_expect_str_eq(agreement_class(&nothing), "none");
}

Test(agreement, the_worst_of_several_measurements_counts) {
  struct agreement_facts facts = {0};
  static const char *const posted[] = {"bitwise", "disagrees", "agrees", "better"};
  for (size_t i = 0; i < ARRAY_LENGTH(posted); i++) {
    cleanup_json json_t *conditions =
        json_pack("{s:s, s:s}", "agreement", posted[i], "interpreted", "agrees");
    agreement_facts_add(&facts, conditions);
  }
  agreement_facts_add(&facts, NULL);
  cr_expect_eq(facts.with_default, AGREEMENT_DISAGREES);
  cr_expect_eq(facts.interpreted, AGREEMENT_AGREES);
}

#define BITWISE {AGREEMENT_BITWISE}
static void expect_refused(struct agreement_summary summary, const char *words) {
  struct error reason;
  cr_assert_eq(agreement_refuses(&summary, &reason), words != NULL);
  if (words)
    cr_expect(strstr(reason.message, words) && string_starts(reason.message, "configs disagree: "),
              "%s", reason.message);
}

Test(agreement, a_default_in_the_minority_is_refused) {
  expect_refused((struct agreement_summary){2, 7, BITWISE, BITWISE},
                 "7 of 9 differ from the default; nothing is published");
  expect_refused((struct agreement_summary){2, 7, BITWISE, BITWISE, "y[3] is 5"},
                 "default config: y[3] is 5");
  expect_refused((struct agreement_summary){2, 2, BITWISE, BITWISE}, NULL);
  expect_refused((struct agreement_summary){0, 1}, NULL); /* it was not measured as a config */
  expect_refused((struct agreement_summary){0, 2}, "2 of 3");
  expect_refused((struct agreement_summary){0}, NULL);
}

Test(agreement, a_default_that_the_interpreter_or_the_baseline_contradicts_is_refused) {
  expect_refused(
      (struct agreement_summary){9, 0, BITWISE, {AGREEMENT_BITWISE, AGREEMENT_DISAGREES}},
      "what Triton's interpreter computes");
  expect_refused((struct agreement_summary){9, 1, BITWISE, {AGREEMENT_DISAGREES}},
                 "the config that won before");
}

Test(agreement, with_the_default_follows_from_agreement_with_another_baseline) {
  const struct agreement_facts bitwise = BITWISE, agrees = {AGREEMENT_AGREES, AGREEMENT_AGREES};
  struct agreement_summary same = {.of_default = BITWISE}, near = {.of_default = agrees},
                           unknown = {0};
  cr_expect_eq(agreement_with_default(&same, &bitwise, false).with_default, AGREEMENT_BITWISE);
  cr_expect_eq(agreement_with_default(&same, &agrees, false).with_default, AGREEMENT_AGREES);
  cr_expect_eq(agreement_with_default(&near, &bitwise, false).with_default, AGREEMENT_AGREES);
  cr_expect_eq(agreement_with_default(&unknown, &bitwise, false).with_default, AGREEMENT_AGREES);
  cr_expect_eq(agreement_with_default(&near, &agrees, true).with_default, AGREEMENT_BITWISE);
  cr_expect_eq(agreement_with_default(&near, &agrees, true).interpreted, AGREEMENT_AGREES);
}

Test(agreement, names_are_read_back) {
  for (enum agreement i = AGREEMENT_BITWISE; i < AGREEMENT_COUNT; i++)
    cr_expect_eq(agreement_parse(agreement_name(i)), i);
  cr_expect_eq(agreement_parse("better"), AGREEMENT_NONE);
  cr_expect_eq(agreement_parse("none"), AGREEMENT_NONE);
  cr_expect_eq(agreement_parse(NULL), AGREEMENT_NONE);
}
