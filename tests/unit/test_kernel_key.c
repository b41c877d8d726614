/* Which keys a kernel can be launched with. */
#include "tests/unit/kernel_fixture.h"

/* A kernel whose key has the members n and m, with these expressions. */
static const char manifest[] =
    "{\"name\": \"copy\", \"language\": \"hip\", \"entry\": \"copy\","
    " \"sources\": [{\"path\": \"copy.hip\", \"digest\": \"" DIGEST_A "\"}],"
    " \"key\": [\"n\", \"m\"], \"defines\": {\"TILES\": \"%s\"},"
    " \"arguments\": [{\"name\": \"y\", \"dtype\": \"float16\", \"shape\": [\"%s\", \"m\"],"
    "                  \"access\": \"write\"},"
    "                 {\"name\": \"s\", \"dtype\": \"int8\", \"value\": \"%s\"}],"
    " \"launch\": {\"grid\": [\"%s\"], \"block\": [\"%s\"], \"shared_bytes\": \"%s\"}}";

struct expressions {
  const char *define, *extent, *scalar, *grid, *block, *shared_bytes;
};
static const struct expressions plain = {"1", "1", "1", "1", "1", "1"};

/* NULL where the key {"n": …, "m": 4} is taken with the config BLOCK = 64, else where it is at
 * fault. */
static const char *fault(const struct expressions *with, const char *n, bool is_known,
                         struct error *error) {
  cleanup_free char *text = xasprintf(manifest, with->define, with->extent, with->scalar,
                                      with->grid, with->block, with->shared_bytes);
  cleanup_free char *key_text = xasprintf("{\"n\": %s, \"m\": 4}", n);
  cleanup_json json_t *key_json = json_of(key_text),
                      *space_json = json_of("{\"parameters\": {\"BLOCK\": [64]}}");
  cleanup_kernel struct kernel *kernel = kernel_of(text);
  cleanup_space struct space *space = NULL;
  cleanup_key struct key key = {0};
  cr_assert(key_parse(key_json, NULL, 0, &key, error), "%s", error->message);
  cr_assert(space_parse(space_json, &space, error), "%s", error->message);
  const struct launch_facts facts = {
      {&key, "AMD Instinct MI300X", "gfx942"}, is_known ? 304 : 0, is_known ? 64 : 0};
  bool takes = kernel_takes_key(kernel, space, &facts, error) &&
               kernel_takes_config(kernel, space, 0, &facts, error);
  return takes ? NULL : error->pointer;
}

Test(kernel_key, a_member_that_an_expression_cannot_use_is_at_fault) {
  const struct {
    struct expressions with;
    const char *n, *pointer, *message;
  } cases[] = {
      {{"ceil_div(n, BLOCK)", "1", "1", "1", "1", "1"}, "\"abc\"", "/key/n", "the define TILES, "},
      {{"1", "n", "1", "1", "1", "1"}, "1.5", "/key/n", "extent 0 of argument \"y\", n: "},
      {{"1", "n * m", "1", "1", "1", "1"}, "-1", "/key", "it must give 1 to"},
      {{"1", "BLOCK", "1", "1", "1", "1"}, "1", "/kernel", "unknown name \"BLOCK\""},
      {{"1", "1099511627776", "1", "1", "1", "1"}, "1", "/kernel", "more than 2^40 elements"},
      {{"1", "1", "n", "1", "1", "1"}, "128", "/key/n", "does not give a value of int8"},
      {{"1", "1", "n", "1", "1", "1"}, "null", "/key/n", "does not give a value of int8"},
      {{"1", "1", "1", "n // BLOCK - 9", "1", "1"}, "64", "/key/n", "the grid, n // BLOCK - 9: "},
      {{"1", "1", "1", "n * occupancy", "1", "1"}, "-3", "/key/n", "gives -3; it must give 0 to"},
      {{"1", "1", "1", "n", "1", "1"}, "2147483648", "/key/n", "it must give 0 to 2147483647"},
      {{"1", "1", "1", "1", "n", "1"}, "0", "/key/n", "the block, n: "},
      {{"1", "1", "1", "1", "1", "n // (m - 4)"}, "8", "/key", "\"shared_bytes\", n // (m - 4): "},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
    struct error error = {0};
    const char *at = fault(&cases[i].with, cases[i].n, true, &error);
    cr_assert_not_null(at, "case %zu was taken", i);
    cr_expect_str_eq(at, cases[i].pointer, "case %zu: %s: %s", i, at, error.message);
    cr_expect_not_null(strstr(error.message, cases[i].message), "%s", error.message);
  }
}

Test(kernel_key, a_key_that_may_be_launched_is_taken) {
  const struct {
    struct expressions with;
    const char *n;
    bool is_known;
  } cases[] = {
      {plain, "\"any text\"", true}, /* no expression reads it */
      {{"n", "1", "1", "1", "1", "1"}, "\"float16\"", true},
      {{"1", "n", "n", "min(cus * occupancy, n)", "warp_size", "BLOCK * 2"}, "127", true},
      {{"1", "1", "1", "n if arch == 'gfx942' else -1", "1", "1"}, "8", true},
      /* The occupancy of an object is known when it is launched. */
      {{"1", "1", "1", "n // (occupancy - 1)", "1", "1"}, "8", true},
      {{"1", "1", "1", "min(occupancy, 3) - 2", "1", "1"}, "8", true},
      /* So are the facts of a device that the server does not know. */
      {{"1", "1", "1", "n - 1000", "n - 1000", "1"}, "8", false},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
    struct error error = {0};
    cr_expect_null(fault(&cases[i].with, cases[i].n, cases[i].is_known, &error), "case %zu: %s", i,
                   error.message);
  }
}
