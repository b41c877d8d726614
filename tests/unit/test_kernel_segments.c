/* Buffers whose extents and fill depend on a member of the config. */
#include "tests/unit/kernel_fixture.h"

#include "common/kernel/segments.h"

/* A kernel with a buffer of these members, and the key {"n": …}. */
static const char manifest[] =
    "{\"name\": \"gather\", \"language\": \"triton\", \"entry\": \"gather\","
    " \"sources\": [{\"path\": \"gather.py\", \"digest\": \"" DIGEST_A "\"}], \"key\": [\"n\"],"
    " \"arguments\": [{\"name\": \"ids\", %s}], \"launch\": {\"grid\": [1]}}";

#define ROUTED(what, more)                                                                         \
  "\"fill\": {\"routed\": {\"what\": \"" what                                                      \
  "\", \"tokens\": \"n\", \"top_k\": 2, \"experts\": 4, "                                          \
  "\"block\": \"BLOCK\"" more "}}"
#define READ "\"dtype\": \"int32\", \"access\": \"read\", \"segments\": \"BLOCK\", "
#define SPACE "{\"parameters\": {\"BLOCK\": [16, 64, 5], \"OTHER\": [1, 2]}}"
#define LIST                                                                                       \
  "{\"configs\": [{\"BLOCK\": 64, \"W\": 1}, {\"BLOCK\": 16, \"W\": 1}, {\"BLOCK\": 64, \"W\": "   \
  "2}]}"

struct found {
  struct kernel *kernel;
  struct space *space;
  struct key key;
  struct segments segments;
  struct error error;
  bool is_taken; /* by kernel_accepts and kernel_takes_key; segments_find has found segments */
};

static struct found find(const char *argument, const char *space, const char *key) {
  struct found found = {0};
  cleanup_free char *text = xasprintf(manifest, argument);
  cleanup_json json_t *space_json = json_of(space), *key_json = json_of(key);
  found.kernel = kernel_of(text);
  cr_assert(space_parse(space_json, &found.space, &found.error), "%s", found.error.message);
  cr_assert(key_parse(key_json, NULL, 0, &found.key, &found.error));
  struct launch_facts facts = {{&found.key, "a GPU", "gfx942"}, 0, 0};
  const char *at;
  found.is_taken = kernel_accepts(found.kernel, &found.key, found.space, &found.error) &&
                   kernel_takes_key(found.kernel, found.space, &facts, &found.error);
  struct error ignored;
  if (found.is_taken)
    cr_assert(segments_find(&found.kernel->arguments[0], found.space, &facts.facts, &found.segments,
                            &at, &ignored));
  return found;
}

static void found_release(struct found *found) {
  segments_release(&found->segments);
  kernel_free(found->kernel);
  space_free(found->space);
  key_release(&found->key);
}

Test(segments, are_one_for_each_value_and_begin_at_multiples_of_256_bytes) {
  struct found found =
      find(READ "\"shape\": [\"n * BLOCK\", 2], \"fill\": \"index\"", SPACE, "{\"n\": 3}");
  cr_assert(found.is_taken, "%s", found.error.message);
  const struct segment *all = found.segments.all;
  cr_assert_eq(found.segments.n, 3);
  cr_expect(all[0].value.integer == 16 && all[0].offset == 0 && all[0].elements == 96);
  cr_expect(all[1].value.integer == 64 && all[1].offset == 512 && all[1].elements == 384);
  cr_expect(all[2].value.integer == 5 && all[2].offset == 2048 && all[2].elements == 30);
  cr_expect_eq(found.segments.elements, 2048 / 4 + 30);
  const struct argument *argument = &found.kernel->arguments[0];
  for (uint64_t config = 0; config < 6; config++)
    cr_expect_eq(segment_of(argument, &found.segments, found.space, config), config / 2);
  found_release(&found);
}

Test(segments, of_a_list_of_configs_are_its_distinct_values) {
  struct found found = find(READ "\"shape\": [\"BLOCK\"], \"fill\": \"zeros\"", LIST, "{\"n\": 3}");
  cr_assert(found.is_taken, "%s", found.error.message);
  cr_assert_eq(found.segments.n, 2);
  const struct argument *argument = &found.kernel->arguments[0];
  for (uint64_t config = 0; config < 3; config++)
    cr_expect_eq(segment_of(argument, &found.segments, found.space, config), config == 1);
  found_release(&found);
}

Test(segments, a_buffer_without_them_is_a_single_one) {
  struct found found =
      find("\"dtype\": \"int8\", \"access\": \"read\", \"shape\": [\"n\"], \"fill\": \"zeros\"",
           SPACE, "{\"n\": 300}");
  cr_assert(found.is_taken, "%s", found.error.message);
  cr_expect(found.segments.n == 1 && found.segments.elements == 300);
  cr_expect_eq(segment_of(&found.kernel->arguments[0], &found.segments, found.space, 5), 0);
  found_release(&found);
}

Test(segments, have_the_numbers_of_their_routing) {
  struct found found =
      find(READ "\"shape\": [\"min(2 * n * BLOCK, 2 * n + 4 * (BLOCK - 1))\"], " ROUTED(
               "tokens", ", \"by_row\": \"2 * n * 4 <= 4\", \"skew\": 1.5"),
           SPACE, "{\"n\": 100}");
  cr_assert(found.is_taken, "%s", found.error.message);
  const struct routing *routing = &found.segments.all[1].routing;
  cr_expect(routing->what == ROUTED_TOKENS && routing->tokens == 100 && routing->top_k == 2);
  cr_expect(routing->experts == 4 && routing->block == 64 && !routing->by_row);
  cr_expect_eq(routing->skew, 1.5);
  found_release(&found);
}

Test(segments, that_cannot_be_made_are_refused_with_what_is_at_fault) {
  const struct {
    const char *argument, *space, *pointer, *message;
  } cases[] = {
      {READ "\"shape\": [\"n\"], \"fill\": \"zeros\"", "{\"parameters\": {\"WIDTH\": [1]}}",
       "/kernel", "has a segment for each value of \"BLOCK\", which is no parameter of the space"},
      {READ "\"shape\": [\"n - BLOCK\"], \"fill\": \"zeros\"", SPACE, "/key/n",
       "BLOCK = 64: extent 0 of argument \"ids\", n - BLOCK: "},
      {READ "\"shape\": [\"n * OTHER\"], \"fill\": \"zeros\"", SPACE, "/kernel",
       "unknown name \"OTHER\""},
      {READ "\"shape\": [\"n\"], " ROUTED("tokens", ""), SPACE, "/key/n",
       "BLOCK = 16: argument \"ids\": it has 50 elements, and 50 tokens for 2 of 4 experts each in "
       "blocks of 16 may need 160"},
      {READ "\"shape\": [3], " ROUTED("experts", ""), SPACE, "/kernel", "may need 10"},
      {READ "\"shape\": [\"n * 99\"], " ROUTED("tokens", ", \"by_row\": \"n // 0\""), SPACE,
       "/key/n", "n // 0: "},
      {READ
       "\"shape\": [\"n * 99\"], \"fill\": {\"routed\": {\"what\": \"tokens\", \"tokens\": \"n\", "
       "\"top_k\": \"n\", \"experts\": 4, \"block\": 1}}",
       SPACE, "/key/n", "a token cannot go to 50 of 4 experts"},
      {"\"dtype\": \"int64\", \"access\": \"read\", \"shape\": [1], \"fill\": {\"routed\": "
       "{\"what\": "
       "\"count\", \"tokens\": \"n * 1000000\", \"top_k\": 2, \"experts\": 4, \"block\": 1}}",
       SPACE, "/key/n", "50000000 tokens for 2 experts each are more than 67108864 rows"},
      {READ
       "\"shape\": [\"n * 99\"], \"fill\": {\"routed\": {\"what\": \"tokens\", \"tokens\": \"n\", "
       "\"top_k\": 2, \"experts\": \"n - 50\", \"block\": 1}}",
       SPACE, "/key/n", "argument \"ids\": n - 50: "},
  };
  list_foreach (of, cases) {
    struct found found = find(of->argument, of->space, "{\"n\": 50}");
    cr_expect_not(found.is_taken, "%s", of->argument);
    cr_expect_str_eq(found.error.pointer, of->pointer, "%s: %s", of->argument, found.error.message);
    cr_expect_not_null(strstr(found.error.message, of->message), "%s", found.error.message);
    found_release(&found);
  }

  cleanup_free char *space = xstrdup("{\"parameters\": {\"BLOCK\": [1");
  for (int i = 2; i <= SEGMENTS_MAX + 1; i++) {
    char *longer = xasprintf("%s, %d", space, i);
    free(space);
    space = longer;
  }
  cleanup_free char *whole = xasprintf("%s]}}", space);
  struct found found = find(READ "\"shape\": [\"n\"], \"fill\": \"zeros\"", whole, "{\"n\": 50}");
  cr_expect_str_eq(found.error.message, "the kernel cannot be launched with this key: argument "
                                        "\"ids\": \"BLOCK\" has more than 64 values in the space");
  found_release(&found);
}

Test(segments, that_a_manifest_states_wrongly_are_refused) {
  const struct {
    const char *argument, *pointer, *message;
  } cases[] = {
      {"\"dtype\": \"int32\", \"value\": \"n\", \"segments\": \"BLOCK\"", "/segments",
       "a scalar has no"},
      {"\"dtype\": \"int32\", \"shape\": [1], \"access\": \"write\", \"segments\": \"BLOCK\"",
       "/segments", "a buffer that is written has no segments"},
      {"\"dtype\": \"int32\", \"shape\": [1], \"access\": \"readwrite\", \"fill\": \"zeros\", "
       "\"segments\": \"BLOCK\"",
       "/segments", "a buffer that is written has no segments"},
      {READ "\"shape\": [1], " ROUTED("ids", ""), "/fill/routed/what", ""},
      {READ "\"shape\": [1], " ROUTED("count", ", \"skew\": -1"), "/fill/routed/skew", ""},
      {READ "\"shape\": [1], " ROUTED("count", ", \"by_row\": \"1 +\""), "/fill/routed/by_row", ""},
      {READ "\"shape\": [1], " ROUTED("count", ", \"seed\": 1"), "/fill/routed/seed", ""},
      {READ "\"shape\": [1], \"fill\": {\"routed\": {\"what\": \"count\"}}", "/fill/routed/tokens",
       ""},
      {"\"dtype\": \"int16\", \"shape\": [1], \"access\": \"read\", " ROUTED("count", ""),
       "/fill/routed", "a buffer of int16 cannot hold routed tokens"},
      {"\"dtype\": \"int32\", \"shape\": [1], \"access\": \"write\", " ROUTED("count", ""), "/fill",
       "only written has no fill"},
  };
  list_foreach (of, cases) {
    cleanup_free char *text = xasprintf(manifest, of->argument);
    cleanup_free char *pointer = xasprintf("/arguments/0%s", of->pointer);
    cleanup_json json_t *json = json_of(text);
    struct kernel *kernel;
    struct error error = {0};
    cr_assert_not(kernel_parse(json, &kernel, &error), "%s", of->argument);
    cr_expect_str_eq(error.pointer, pointer, "%s: %s", of->argument, error.message);
    cr_expect_not_null(strstr(error.message, of->message), "%s", error.message);
  }
}
