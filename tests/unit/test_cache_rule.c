/* Which caches a rule may serve: what the server chooses by and what a client holds answers
 * against. */
#include "common/cache/release.h"

#include <criterion/criterion.h>

#define MI300X                                                                                     \
  "\"gpu\": \"AMD Instinct MI300X\", \"arch\": \"gfx942\", \"compute_units\": 304, "               \
  "\"partition\": \"SPX/NPS1\""
#define STACK(rocm, triton) "{\"rocm\": \"" rocm "\", \"triton\": \"" triton "\", " MI300X "}"

static struct environment environment_of(const char *text) {
  struct error error;
  struct environment environment = {0};
  cleanup_json json_t *json = json_loads(text, 0, NULL);
  cr_assert(json && environment_parse(json, &environment, &error), "%s", text);
  return environment;
}

/* `rules`: a letter for each that serves by itself, in the order of the names. */
static void expect(const char *asked_text, const char *served_text, const char *rules) {
  cleanup_environment struct environment asked = environment_of(asked_text),
                                         served = environment_of(served_text);
  char found[5] = "";
  for (int rule = CACHE_RULE_EXACT; rule <= CACHE_RULE_COMPATIBLE; rule++)
    if (cache_rule_serves((enum cache_rule)rule, &asked, &served))
      strncat(found, cache_rule_name((enum cache_rule)rule), 1);
  cr_expect_str_eq(found, rules, "%s: %s for %s", found, served_text, asked_text);

  bool any = false;
  for (int rule = CACHE_RULE_EXACT; rule <= CACHE_RULE_COMPATIBLE; rule++) {
    any = any || strchr(rules, *cache_rule_name((enum cache_rule)rule));
    cr_expect_eq(cache_rules_serve((enum cache_rule)rule, &asked, &served), any,
                 "up to %s: %s for %s", cache_rule_name((enum cache_rule)rule), served_text,
                 asked_text);
  }
}

Test(cache_rule, each_serves_what_it_says) {
  expect(STACK("6.4.1", "3.3.1"), STACK("6.4.1", "3.3.1"), "eumc");
  expect("{\"arch\": \"gfx942\"}", STACK("6.4.1", "3.3.1"), "ec");
  expect(STACK("6.4.1", "3.3.1"), STACK("6.4.0", "3.3.1"), "mc");
  expect(STACK("6.4.1", "3.3.1"), STACK("6.4.0", "3.4.0"), "c");
  expect(STACK("6.4.1", "3.3.1"), STACK("6.3.1", "3.3.1"), "c");
  expect(STACK("6.4.1", "3.3.1"), "{\"gpu\": \"AMD Instinct MI300X\", \"rocm\": \"6.4.1\"}", "u");
  expect(STACK("6.4.1", "3.3.1"), "{\"gpu\": \"AMD Instinct MI300X\", \"rocm\": \"6.3.1\"}", "");
}

Test(cache_rule, no_rule_serves_another_gpu) {
  expect(STACK("6.4.1", "3.3.1"),
         "{\"rocm\": \"6.4.1\", \"triton\": \"3.3.1\", \"gpu\": \"AMD Instinct MI300X\", \"arch\": "
         "\"gfx942\","
         " \"compute_units\": 38, \"partition\": \"CPX/NPS1\"}",
         "");
  expect(STACK("6.4.1", "3.3.1"),
         "{\"rocm\": \"6.4.1\", \"triton\": \"3.3.1\", \"gpu\": \"AMD Instinct MI250X\", \"arch\": "
         "\"gfx90a\","
         " \"compute_units\": 304, \"partition\": \"SPX/NPS1\"}",
         "");
}

Test(cache_rule, rules_have_names) {
  enum cache_rule rule;
  for (size_t i = 0; cache_rule_names[i]; i++) {
    cr_expect(cache_rule_parse(cache_rule_names[i], &rule) && rule == (enum cache_rule)i);
    cr_expect(strstr(CACHE_RULES, cache_rule_names[i]));
  }
  cr_expect(!cache_rule_parse("any", &rule));
}
