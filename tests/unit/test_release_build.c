/* Making releases: canonical bytes whatever the order, and what has no place in one. */
#include "common/cache/release.h"

#include <criterion/criterion.h>
#include <signal.h>

static struct error error;

static struct release_builder *builder_new(void) {
  struct environment environment = {.rocm = (char *)"6.4.1"};
  return release_builder_new(&environment, "default", REGIME_COLD);
}

/* An entry with made-up members where a test does not care. */
struct made {
  const char *name, *key, *config, *provenance;
  const char *names[3]; /* of the key; {0}: M */
  int64_t job;
  size_t n_ms;
  double ms[4];
  bool is_imported;
  uint64_t ordinal;
};

static bool add(struct release_builder *builder, struct made made) {
  cleanup_json json_t *key = json_loads(made.key ? made.key : "{\"M\":1}", 0, NULL);
  cleanup_json json_t *config =
      json_loads(made.config ? made.config : "{\"BLOCK\":64}", JSON_DECODE_ANY, NULL);
  cleanup_json json_t *provenance = json_loads(
      made.provenance ? made.provenance : "{\"origin\":\"tuned\"}", JSON_DECODE_ANY, NULL);
  const char *const m[] = {"M"};
  size_t n = 0;
  while (n < ARRAY_LENGTH(made.names) && made.names[n])
    n++;
  const struct release_entry entry = {.name = made.name ? made.name : "a",
                                      .kernel = digest_of(made.name ? made.name : "a", 1),
                                      .key_names = n ? made.names : m,
                                      .n_key_names = n ? n : 1,
                                      .key = key,
                                      .config = config,
                                      .has_ordinal = !made.is_imported,
                                      .ordinal = made.ordinal,
                                      .space = digest_of("b", 1),
                                      .provenance = provenance,
                                      .ms = made.ms,
                                      .n_ms = made.n_ms,
                                      .job = made.job};
  return release_builder_add(builder, &entry, &error);
}
#define ADD(builder, ...) cr_assert(add(builder, (struct made){__VA_ARGS__}), "%s", error.message)
#define EXPECT_REFUSED(what, ...)                                                                  \
  do {                                                                                             \
    cleanup_release_builder struct release_builder *refusing = builder_new();                      \
    cr_expect_not(add(refusing, (struct made){__VA_ARGS__}));                                      \
    cr_expect_neq(strstr(error.message, what), NULL, "%s", error.message);                         \
  } while (0)

/* Of a regime that this version does not know: it must not be written as cold. */
Test(release_build, an_unknown_regime_ends_the_program, .signal = SIGABRT) {
  struct environment environment = {.rocm = (char *)"6.4.1"};
  struct release *release;
  struct release_builder *builder = release_builder_new(&environment, "default", (enum regime)100);
  ADD(builder);
  if (release_builder_finish(builder, &release, &error))
    release_free(release);
}

static struct release *finished(const struct release_builder *builder) {
  struct release *release = NULL;
  cr_assert(release_builder_finish(builder, &release, &error), "%s: %s", error.pointer,
            error.message);
  return release;
}

static void expect_unfinished(const struct release_builder *builder, const char *what) {
  struct release *release = NULL;
  cr_expect_not(release_builder_finish(builder, &release, &error));
  cr_expect_null(release);
  cr_expect_neq(strstr(error.message, what), NULL, "%s", error.message);
}

#define HASH_A "sha256:ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
#define HASH_B "sha256:3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d"

Test(release_builder, writes_canonical_bytes) {
  cleanup_release_builder struct release_builder *builder = builder_new();
  ADD(builder, .names = {"N", "M"}, .key = "{\"M\":2,\"N\":\"x\"}",
      .config = "{\"b\":true,\"a\":null}", .ordinal = 3, .job = 12, .n_ms = 3,
      .ms = {0.2031, 0.125, 1});
  ADD(builder, .names = {"N", "M"}, .key = "{\"M\":1,\"N\":\"x\"}", .is_imported = true,
      .provenance = "{\"source\":\"f\",\"origin\":\"imported\"}");
  cleanup_release struct release *release = finished(builder);
  cr_expect_str_eq(
      release->bytes,
      "{\"environment\":{\"rocm\":\"6.4.1\"},\"kernels\":[{\"configs\":["
      "{\"ordinal\":3,\"space\":\"" HASH_B "\",\"values\":{\"a\":null,\"b\":true}},"
      "{\"values\":{\"BLOCK\":64}}],\"kernel\":\"" HASH_A "\",\"key\":[\"N\",\"M\"],\"name\":\"a\","
      "\"provenance\":[{\"origin\":\"imported\",\"source\":\"f\"},{\"origin\":\"tuned\"}],"
      "\"winners\":[[[\"x\",1],1,0,[],0],[[\"x\",2],0,1,[0.2031,0.125,1.0],12]]}],"
      "\"tag\":\"default\",\"version\":2}");
  cleanup_json json_t *json = json_loads(release->bytes, 0, NULL);
  cleanup_free char *canonical = json_canonical(json);
  cr_expect_str_eq(release->bytes, canonical);
}

Test(release_builder, the_same_winners_in_another_order_make_the_same_release) {
  cleanup_release_builder struct release_builder *one = builder_new(), *other = builder_new();
  ADD(one, .name = "b", .config = "{\"BLOCK\":32}");
  ADD(one, .name = "a", .key = "{\"M\":2}", .job = 1);
  ADD(one, .name = "a", .key = "{\"M\":128}", .ordinal = 5,
      .provenance = "{\"origin\":\"pinned\"}");
  ADD(other, .name = "a", .key = "{\"M\":128}", .ordinal = 5,
      .provenance = "{\"origin\":\"pinned\"}");
  ADD(other, .name = "a", .key = "{\"M\":2}", .job = 1);
  ADD(other, .name = "b", .config = "{\"BLOCK\":32}");
  cleanup_release struct release *first = finished(one), *second = finished(other);
  cr_expect_str_eq(first->bytes, second->bytes);
  cr_expect(digest_equal(&first->digest, &second->digest));
  cr_expect_eq(first->n_kernels, 2);
  cr_expect_eq(first->kernels[0].n_winners, 2);
}

Test(release_builder, configs_and_provenance_that_winners_share_stand_there_once) {
  cleanup_release_builder struct release_builder *builder = builder_new();
  for (int i = 0; i < 5; i++) {
    cleanup_free char *key = xasprintf("{\"M\":%d}", i);
    ADD(builder, .key = key);
  }
  cleanup_release struct release *release = finished(builder);
  cr_expect_eq(release->n_winners, 5);
  cr_expect_eq(release->kernels[0].n_configs, 1);
  cr_expect_eq(release->kernels[0].n_provenance, 1);
}

Test(release_builder, two_winners_for_one_key_are_an_error) {
  cleanup_release_builder struct release_builder *builder = builder_new();
  ADD(builder, .config = "{\"BLOCK\":32}");
  ADD(builder, .config = "{\"BLOCK\":64}");
  expect_unfinished(builder, "two winners for kernel a and key [1]");
}

Test(release_builder, a_release_without_winners_or_with_an_empty_tag_is_an_error) {
  struct environment environment = {0};
  cleanup_release_builder struct release_builder *empty = builder_new();
  cleanup_release_builder struct release_builder *untagged =
      release_builder_new(&environment, "", REGIME_COLD);
  expect_unfinished(empty, "at least one winner");
  ADD(untagged, .name = "a");
  expect_unfinished(untagged, "must not be empty");
}

Test(release_builder, the_names_of_a_kernels_key_are_the_same_for_all_its_winners) {
  cleanup_release_builder struct release_builder *builder = builder_new();
  ADD(builder, .names = {"M", "N"}, .key = "{\"M\":1,\"N\":2}");
  ADD(builder, .names = {"N", "M"}, .key = "{\"M\":1,\"N\":3}");
  expect_unfinished(builder, "have keys [\"M\",\"N\"] and [\"N\",\"M\"]");
}

Test(release_builder, what_a_release_cannot_hold_is_refused) {
  EXPECT_REFUSED("without a name", .name = "");
  EXPECT_REFUSED("lacks its member \"M\"", .key = "{\"N\":1}");
  EXPECT_REFUSED("has 2 members; the kernel's has 1", .key = "{\"M\":1,\"N\":1}");
  EXPECT_REFUSED("in the key of a winner of a must be", .key = "{\"M\":[1]}");
  EXPECT_REFUSED("the key of a winner of a is not an object", .key = "[1]");
  EXPECT_REFUSED("the config of a winner of a is not an object", .config = "7");
  EXPECT_REFUSED("in the config of a winner of a must be", .config = "{\"BLOCK\":{}}");
  EXPECT_REFUSED("the provenance of a winner of a is not an object", .provenance = "null");
  EXPECT_REFUSED("in the provenance of a winner of a must be",
                 .provenance = "{\"origin\":\"tuned\",\"x\":[]}");
  EXPECT_REFUSED("lacks its \"origin\"", .provenance = "{\"build\":\"x\"}");
  EXPECT_REFUSED("has 2 times", .n_ms = 2, .ms = {1, 1});
  EXPECT_REFUSED("has 4 times", .n_ms = 4, .ms = {1, 1, 1, 1});
  EXPECT_REFUSED("takes 0 ms", .n_ms = 1, .ms = {0});
  EXPECT_REFUSED("takes inf ms", .n_ms = 1, .ms = {1e308 * 10});
  EXPECT_REFUSED("is of job -1", .job = -1);
  EXPECT_REFUSED("has an ordinal above", .ordinal = (uint64_t)1 << 63);
}

Test(release_builder, an_origin_that_no_reader_knows_is_an_error) {
  cleanup_release_builder struct release_builder *builder = builder_new();
  ADD(builder, .provenance = "{\"origin\":\"guessed\"}");
  expect_unfinished(builder, "\"origin\" must be");
}
