/* Which overrides concern a kernel and key, and which of them is the most specific. */
#include <criterion/criterion.h>

#include "server/release/override_rules.h"

#define HASH "sha256:0000000000000000000000000000000000000000000000000000000000000000"
static const struct digest hash;

static struct override override_of(const char *text) {
  struct override override;
  struct error error;
  int64_t until_us, last_ms;
  cleanup_json json_t *json = NULL;
  cr_assert(json_parse(text, strlen(text), &json, &error), "%s", error.message);
  cr_assert(override_parse(json, &override, &until_us, &last_ms, &error), "%s", error.message);
  return override;
}

/* The reasons of the pins or bans that concern a place, in their order. */
static void expect(const char *const *texts, size_t n, enum override_kind kind, const char *name,
                   const char *key, const char *config, const char *reasons) {
  struct overrides overrides = {n, xcalloc(n, sizeof *overrides.all)};
  struct environment environment = {.rocm = (char *)(uintptr_t)"6.4.1",
                                    .gpu = (char *)(uintptr_t)"MI300X"};
  cleanup_json json_t *values = json_loads(config, 0, NULL);
  char found[256] = "";
  for (size_t i = 0; i < n; i++) {
    overrides.all[i] = override_of(texts[i]);
    overrides.all[i].id = (int64_t)i + 1;
  }
  overrides_select(&overrides, &environment, "default");
  for (const struct override *it = NULL;
       (it = override_next(&overrides, kind, it, &hash, name, key, values));)
    strcat(strcat(found, it->reason), " ");
  cr_assert_str_eq(found, reasons);
  overrides_release(&overrides);
}
#define EXPECT(kind, name, key, config, reasons, ...)                                              \
  expect((const char *const[]){__VA_ARGS__}, ARRAY_LENGTH(((const char *const[]){__VA_ARGS__})),   \
         kind, name, key, config, reasons)
#define PIN(more) "{\"kind\": \"pin\", \"config\": {\"B\": 1}, " more "}"
#define BAN(config, reason)                                                                        \
  "{\"kind\": \"ban\", \"kernel\": \"k\", \"config\": " config ", \"reason\": \"" reason "\"}"

Test(override_rules, the_more_specific_pin_comes_first) {
  EXPECT(OVERRIDE_PIN, "k", "{\"M\":1}", "{}", "hash key members one tag newer any ",
         PIN("\"kernel\": \"k\", \"reason\": \"any\""),
         PIN("\"kernel\": \"k\", \"reason\": \"newer\""),
         PIN("\"kernel\": \"k\", \"tag\": \"default\", \"reason\": \"tag\""),
         PIN("\"kernel\": \"k\", \"environment\": {\"gpu\": \"MI300X\"}, \"reason\": \"one\""),
         PIN("\"kernel\": \"k\", \"environment\": {\"gpu\": \"MI300X\", \"rocm\": \"6.4.1\"}, "
             "\"reason\": \"members\""),
         PIN("\"kernel\": \"k\", \"key\": {\"M\": 1}, \"reason\": \"key\""),
         PIN("\"kernel\": \"" HASH "\", \"reason\": \"hash\""));
}

Test(override_rules, what_is_for_something_else_does_not_concern) {
  EXPECT(OVERRIDE_PIN, "k", "{\"M\":1}", "{}", "", PIN("\"kernel\": \"other\", \"reason\": \"a\""),
         PIN("\"kernel\": \"k\", \"tag\": \"chat\", \"reason\": \"b\""),
         PIN("\"kernel\": \"k\", \"environment\": {\"rocm\": \"6.3\"}, \"reason\": \"c\""),
         PIN("\"kernel\": \"k\", \"key\": {\"M\": 2}, \"reason\": \"d\""),
         BAN("{\"B\": 1}", "ban"));
}

Test(override_rules, a_ban_names_configs_with_all_of_its_values) {
  EXPECT(OVERRIDE_BAN, "k", "{\"M\":1}", "{\"B\": 1, \"warps\": 4}", "both part ",
         BAN("{\"B\": 1}", "part"), BAN("{\"B\": 1, \"warps\": 4}", "both"),
         BAN("{\"B\": 1, \"warps\": 8}", "other"), BAN("{\"C\": 1}", "absent"));
}

Test(override_rules, without_overrides_none_is_found) {
  cr_assert_null(override_next(NULL, OVERRIDE_BAN, NULL, &hash, "k", "{}", NULL));
}
