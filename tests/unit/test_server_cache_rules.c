/* Which environment's cache is served when there is none for exactly the requested one. */
#include <criterion/criterion.h>

#include "server/cache/cache_rules.h"

static struct environment environment_of(const char *text) {
  struct error error;
  struct environment environment = {0};
  cleanup_json json_t *json = json_loads(text, 0, NULL);
  cr_assert(json && environment_parse(json, &environment, &error), "%s", text);
  return environment;
}

#define MI300X                                                                                     \
  "\"gpu\": \"AMD Instinct MI300X\", \"arch\": \"gfx942\", \"compute_units\": 304, "               \
  "\"partition\": \"SPX/NPS1\""
#define STACK(rocm, triton) "{\"rocm\": \"" rocm "\", \"triton\": \"" triton "\", " MI300X "}"

struct trial {
  size_t n;
  struct environment all[4];
  const struct environment *there[4];
  size_t n_declared;
  struct compatibility declared[2];
};

static void there_is(struct trial *trial, const char *text) {
  trial->all[trial->n] = environment_of(text);
  trial->there[trial->n] = &trial->all[trial->n];
  trial->n++;
}

static void declare(struct trial *trial, const char *text) {
  struct error error;
  cleanup_json json_t *json = json_loads(text, 0, NULL);
  cr_assert(compatibility_parse(json, &trial->declared[trial->n_declared], &error), "%s",
            error.message);
  trial->declared[trial->n_declared++].id = 7;
}

static enum cache_match resolve(struct trial *trial, const char *asked, enum cache_rule widest,
                                struct cache_resolved *ret) {
  cleanup_environment struct environment environment = environment_of(asked);
  const struct compatibilities declared = {trial->n_declared, trial->declared};
  return cache_resolve(&environment, trial->there, trial->n, widest, &declared, ret);
}

static void trial_release(struct trial *trial) {
  for (size_t i = 0; i < trial->n; i++)
    environment_release(&trial->all[i]);
  for (size_t i = 0; i < trial->n_declared; i++)
    compatibility_release(&trial->declared[i]);
}
#define cleanup_trial __attribute__((cleanup(trial_release)))

Test(cache_rules, the_exact_environment_comes_before_every_wider_rule) {
  cleanup_trial struct trial trial = {0};
  struct cache_resolved resolved;
  there_is(&trial, STACK("6.4.2", "3.3.1"));
  there_is(&trial, STACK("6.4.1", "3.3.1"));
  cr_assert_eq(resolve(&trial, STACK("6.4.1", "3.3.1"), CACHE_RULE_COMPATIBLE, &resolved),
               CACHE_MATCH_ONE);
  cr_assert_eq(resolved.rule, CACHE_RULE_EXACT);
  cr_assert_eq(resolved.index, 1);
}

Test(cache_rules, another_patch_level_is_served_only_on_request) {
  cleanup_trial struct trial trial = {0};
  struct cache_resolved resolved;
  there_is(&trial, STACK("6.4.0", "3.3.1"));
  there_is(&trial, STACK("6.4.10", "3.3.1"));
  there_is(&trial, STACK("6.4.2", "3.3.1"));
  there_is(&trial, STACK("6.40.1", "3.3.1"));
  cr_assert_eq(resolve(&trial, STACK("6.4.1", "3.3.1"), CACHE_RULE_EXACT, &resolved),
               CACHE_MATCH_NONE);
  cr_assert_eq(resolve(&trial, STACK("6.4.1", "3.3.1"), CACHE_RULE_MINOR, &resolved),
               CACHE_MATCH_ONE);
  cr_assert_eq(resolved.rule, CACHE_RULE_MINOR);
  cr_assert_eq(resolved.index, 1, "the newest patch level, by number");
  cr_assert_eq(resolve(&trial, STACK("6.4.1", "3.4.0"), CACHE_RULE_MINOR, &resolved),
               CACHE_MATCH_NONE, "nothing but ROCm may differ");
  cr_assert_eq(resolve(&trial, STACK("6", "3.3.1"), CACHE_RULE_MINOR, &resolved), CACHE_MATCH_NONE);
}

Test(cache_rules, of_patch_levels_that_differ_in_other_members_none_is_chosen) {
  cleanup_trial struct trial trial = {0};
  struct cache_resolved resolved;
  there_is(&trial, STACK("6.4.0", "3.3.1"));
  there_is(&trial, STACK("6.4.2", "3.4.0"));
  const char *asked = "{\"rocm\": \"6.4.1\", " MI300X "}";
  cr_assert_eq(resolve(&trial, asked, CACHE_RULE_MINOR, &resolved), CACHE_MATCH_NONE,
               "which Triton is meant?");
  cr_assert_eq(resolve(&trial, STACK("6.4.1", "3.3.1"), CACHE_RULE_MINOR, &resolved),
               CACHE_MATCH_ONE);
  cr_assert_eq(resolved.index, 0);
  there_is(&trial, "{\"rocm\": \"6.4.0\", " MI300X "}");
  there_is(&trial, "{\"rocm\": \"6.4.3\", " MI300X "}");
  cr_assert_eq(resolve(&trial, asked, CACHE_RULE_MINOR, &resolved), CACHE_MATCH_ONE);
  cr_assert_eq(resolved.index, 3, "the newest of those without a Triton, as it was asked");
}

Test(cache_rules, a_declared_compatibility_serves_only_on_request) {
  cleanup_trial struct trial trial = {0};
  struct cache_resolved resolved;
  there_is(&trial, STACK("6.3.1", "3.3.0"));
  declare(&trial, "{\"asked\": {\"rocm\": \"7.0.0\"}, \"served\": {\"rocm\": \"6.3.9\"}}");
  declare(&trial, "{\"asked\": {\"rocm\": \"6.4.1\", \"triton\": \"3.3.1\"}, \"served\": "
                  "{\"rocm\": \"6.3.1\", \"triton\": "
                  "\"3.3.0\"}, \"reason\": \"same compiler\"}");
  const char *asked = STACK("6.4.1", "3.3.1");
  cr_assert_eq(resolve(&trial, asked, CACHE_RULE_MINOR, &resolved), CACHE_MATCH_NONE);
  cr_assert_eq(resolve(&trial, asked, CACHE_RULE_COMPATIBLE, &resolved), CACHE_MATCH_ONE);
  cr_assert_eq(resolved.rule, CACHE_RULE_COMPATIBLE);
  cr_assert_str_eq(resolved.compatibility->reason, "same compiler");
  cleanup_environment struct environment environment = environment_of(asked);
  cleanup_free char *header = cache_match_header(&environment, trial.there[0], &resolved);
  cr_assert_str_eq(header, "compatible; rocm=6.3.1, triton=3.3.0");
  cleanup_json json_t *match = cache_match_to_json(&environment, trial.there[0], &resolved);
  cleanup_free char *text = json_canonical(match);
  cr_assert_str_eq(
      text, "{\"compatibility\":7,\"differs\":{\"rocm\":{\"asked\":\"6.4.1\",\"served\":\"6.3.1\"},"
            "\"triton\":{\"asked\":\"3.3.1\",\"served\":\"3.3.0\"}},\"reason\":\"same compiler\","
            "\"rule\":\"compatible\"}");
  cr_assert_eq(resolve(&trial, STACK("7.0.0", "3.3.1"), CACHE_RULE_COMPATIBLE, &resolved),
               CACHE_MATCH_NONE, "declared, but nothing is there");
}

Test(cache_rules, another_gpu_is_never_served) {
  cleanup_trial struct trial trial = {0};
  struct cache_resolved resolved;
  there_is(&trial, "{\"rocm\": \"6.4.0\", \"gpu\": \"AMD Instinct MI300X\", \"arch\": \"gfx942\", "
                   "\"compute_units\": 38, "
                   "\"partition\": \"CPX/NPS4\"}");
  declare(&trial, "{\"asked\": {\"rocm\": \"6.4.1\"}, \"served\": {\"rocm\": \"6.4.0\"}}");
  const char *asked = "{\"rocm\": \"6.4.1\", " MI300X "}";
  cr_assert_eq(resolve(&trial, asked, CACHE_RULE_COMPATIBLE, &resolved), CACHE_MATCH_NONE);
}

#define TABLE(more) "{\"gpu\": \"AMD Instinct MI300X\"" more "}"
#define WHOLE "{\"rocm\": \"6.4.1\", \"torch\": \"2.9.0\", \"triton\": \"3.3.1\", " MI300X "}"

Test(cache_rules, members_that_an_entry_does_not_state_are_not_compared) {
  cleanup_trial struct trial trial = {0};
  struct cache_resolved resolved;
  there_is(&trial, TABLE(""));
  cr_assert_eq(resolve(&trial, WHOLE, CACHE_RULE_EXACT, &resolved), CACHE_MATCH_NONE);
  cr_assert_eq(resolve(&trial, WHOLE, CACHE_RULE_UNSTATED, &resolved), CACHE_MATCH_ONE);
  cr_assert_eq(resolved.rule, CACHE_RULE_UNSTATED);
  cleanup_environment struct environment environment = environment_of(WHOLE);
  cleanup_free char *header = cache_match_header(&environment, trial.there[0], &resolved);
  cr_assert_str_eq(header, "unstated; rocm, torch, triton, arch, partition, compute_units");
  cleanup_json json_t *match = cache_match_to_json(&environment, trial.there[0], &resolved);
  const json_t *rocm = json_object_get(json_object_get(match, "differs"), "rocm");
  cr_assert_str_eq(json_string_value(json_object_get(rocm, "asked")), "6.4.1");
  cr_assert(json_is_null(json_object_get(rocm, "served")));
}

Test(cache_rules, of_entries_with_unstated_members_the_one_that_states_most_is_served) {
  cleanup_trial struct trial trial = {0};
  struct cache_resolved resolved;
  there_is(&trial, TABLE(""));
  there_is(&trial, TABLE(", \"rocm\": \"6.4.1\", \"arch\": \"gfx942\""));
  there_is(&trial, TABLE(", \"rocm\": \"6.4.1\""));
  cr_assert_eq(resolve(&trial, WHOLE, CACHE_RULE_UNSTATED, &resolved), CACHE_MATCH_ONE);
  cr_assert_eq(resolved.index, 1);
  there_is(&trial, TABLE(", \"rocm\": \"6.4.1\", \"triton\": \"3.3.1\""));
  cr_assert_eq(resolve(&trial, WHOLE, CACHE_RULE_UNSTATED, &resolved), CACHE_MATCH_NONE,
               "which of two is meant?");
}

Test(cache_rules, entries_with_unstated_members_are_tried_after_all_other_rules) {
  cleanup_trial struct trial trial = {0};
  struct cache_resolved resolved;
  there_is(&trial, TABLE(""));
  there_is(&trial, STACK("6.4.0", "3.3.1"));
  there_is(&trial, STACK("6.3.1", "3.3.0"));
  declare(&trial, "{\"asked\": {\"triton\": \"3.4.0\", \"rocm\": \"6.4.1\"}, "
                  "\"served\": {\"triton\": \"3.3.0\", \"rocm\": \"6.3.1\"}}");
  cr_assert_eq(resolve(&trial, STACK("6.4.1", "3.3.1"), CACHE_RULE_MINOR, &resolved),
               CACHE_MATCH_ONE);
  cr_assert_eq(resolved.rule, CACHE_RULE_MINOR);
  cr_assert_eq(resolve(&trial, STACK("6.4.1", "3.4.0"), CACHE_RULE_COMPATIBLE, &resolved),
               CACHE_MATCH_ONE);
  cr_assert_eq(resolved.rule, CACHE_RULE_COMPATIBLE);
  cr_assert_eq(resolve(&trial, STACK("6.4.1", "3.4.0"), CACHE_RULE_MINOR, &resolved),
               CACHE_MATCH_ONE);
  cr_assert_eq(resolved.rule, CACHE_RULE_UNSTATED);
  cr_assert_null(resolved.compatibility);
}

static void refused(const char *text, const char *pointer, const char *part) {
  struct error error;
  struct compatibility declared;
  cleanup_json json_t *json = json_loads(text, 0, NULL);
  cr_assert(json && !compatibility_parse(json, &declared, &error), "%s", text);
  cr_expect_str_eq(error.pointer, pointer, "%s: %s", text, error.pointer);
  cr_expect(strstr(error.message, part), "%s: %s", text, error.message);
}

Test(cache_rules, a_compatibility_without_a_difference_or_of_another_gpu_is_refused) {
  refused("{\"asked\": {\"rocm\": \"6\"}}", "/served", "served");
  refused("{\"asked\": {}, \"served\": {}}", "/asked", "state the members");
  refused("{\"asked\": {\"rocm\": \"6\"}, \"served\": {\"torch\": \"2\"}}", "/served", "both");
  refused("{\"asked\": {\"rocm\": \"6\"}, \"served\": {\"rocm\": \"6\"}}", "/served", "equals");
  refused("{\"asked\": {\"rocm\": \"6\", \"arch\": \"gfx90a\"}, \"served\": {\"rocm\": \"6\", "
          "\"arch\": \"gfx942\"}}",
          "/asked", "never served");
  refused("{\"asked\": {\"rocm\": 6}, \"served\": {\"rocm\": \"6\"}}", "/asked/rocm", "string");
  refused("{\"asked\": {\"rocm\": \"6\"}, \"served\": {\"rocm\": \"7\"}, \"why\": \"\"}", "/why",
          "why");
  char text[800];
  snprintf(text, sizeof text,
           "{\"asked\": {\"rocm\": \"6\"}, \"served\": {\"rocm\": \"7\"}, \"reason\": \"%0600d\"}",
           0);
  refused(text, "/reason", "at most 500");
}
