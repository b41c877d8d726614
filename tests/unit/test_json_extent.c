/* The estimate of what parsing a JSON text takes, compared with what it takes. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <malloc.h>

#include "common/base/json.h"

/* "[" and n copies of `item` with commas. The caller's. */
static char *repeated(const char *item, size_t n, size_t *ret_size) {
  char *text = NULL;
  FILE *out = open_memstream(&text, ret_size);
  for (size_t i = 0; i < n; i++)
    fprintf(out, "%s%s", i ? "," : "[", item);
  putc(']', out);
  cr_assert(fclose(out) == 0);
  return text;
}

static size_t allocated(void) {
  struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

static const char *const items[] = {
    "0",
    "1234567.25",
    "[]",
    "{}",
    "[1,2,3]",
    "\"\"",
    "\"a text of some length, such as a name\"",
    "\"\\\"\\\\\\\"[{,:\"",
    "{\"a\":1}",
    "{\"M\":4096,\"N\":4096,\"K\":4096}",
    "{\"key\":{\"M\":4096,\"N\":4096,\"K\":4096},\"config\":{\"BLOCK_M\":64,\"BLOCK_N\":64,"
    "\"num_warps\":4,\"num_stages\":2},\"ms\":[0.2031,0.201,0.208],\"provenance\":{\"source\":"
    "\"x\"}}",
    "{\"seq\":41,\"config\":17,\"outcome\":\"correct\",\"samples_us\":[203.1,202.8,203.4],"
    "\"baseline_us\":[231.0,230.6,231.2],\"vgprs\":128}",
    "[[[[[[[[1]]]]]]]]",
};

Test(json_extent, is_about_the_memory_that_parsing_takes) {
#ifdef WAVETUNE_SANITIZED
  cr_skip_test("the sanitizer's allocator counts otherwise");
#endif
  for (size_t i = 0; i < ARRAY_LENGTH(items); i++) {
    struct error error;
    size_t size, before;
    cleanup_free char *text = repeated(items[i], 20000, &size);
    before = allocated();
    cleanup_json json_t *value = NULL;
    cr_assert(json_parse(text, size, &value, &error), "%s: %s", items[i], error.message);
    double took = (double)(allocated() - before),
           estimate = (double)json_measure(text, size, SIZE_MAX).memory;
    cr_expect(estimate > 0.8 * took && estimate < 1.6 * took, "%s: %.0f, and it took %.0f",
              items[i], estimate, took);
  }
}

Test(json_extent, counts_nesting_outside_of_strings_only) {
  static const struct {
    const char *text;
    int depth;
  } cases[] = {{"1", 0},
               {"[]", 1},
               {"{\"a\":[{}]}", 3},
               {"[[],[],[[]]]", 3},
               {"\"[[[[\"", 0},
               {"[\"[\"]", 1},
               {"[\"\\\"[\"]", 1},
               {"[\"\\\\\",[]]", 2},
               {"\"\\\\\\\"[", 0},
               {"]]][", 0},
               {"", 0}};
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++)
    cr_expect_eq(json_measure(cases[i].text, strlen(cases[i].text), SIZE_MAX).depth, cases[i].depth,
                 "%s", cases[i].text);
}

Test(json_extent, does_not_read_behind_an_open_string) {
  static const char *const texts[] = {"\"", "\"\\", "[\"abc\\", "{\"a\":\""};
  for (size_t i = 0; i < ARRAY_LENGTH(texts); i++) {
    cleanup_free char *text = xmemdup(texts[i], strlen(texts[i])); /* without a NUL */
    cr_expect_lt(json_measure(text, strlen(texts[i]), SIZE_MAX).memory, 1000);
  }
}

Test(json_extent, stops_where_there_is_too_much) {
  char text[4000];
  for (size_t i = 0; i < sizeof text; i++)
    text[i] = "[],"[i % 3];
  struct json_extent all = json_measure(text, sizeof text, SIZE_MAX),
                     some = json_measure(text, sizeof text, 1000);
  cr_expect_gt(some.memory, 1000);
  cr_expect_lt(some.memory, 1200);
  cr_expect_gt(all.memory, 10000);
}
