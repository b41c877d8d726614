/* Releases: canonical bytes out, nothing but canonical bytes in, and differences by kernel and key. */
#include "common/release.h"

#include <criterion/criterion.h>

static struct error error;

static struct release *release_new(void) {
  struct release *release = xcalloc(1, sizeof *release);
  release->environment.rocm = xstrdup("6.4.1");
  release->tag = xstrdup("default");
  return release;
}

static void winner_add(struct release *release, const char *name, const char *kernel, const char *key,
                       const char *config, uint64_t ordinal) {
  size_t n = release->n_winners++;
  release->winners = xreallocarray(release->winners, n + 1, sizeof *release->winners);
  release->winners[n] = (struct release_winner){.name = xstrdup(name),
                                                .kernel = digest_of(kernel, strlen(kernel)),
                                                .key = json_loads(key, 0, NULL),
                                                .config = json_loads(config, 0, NULL),
                                                .ordinal = ordinal,
                                                .space = digest_of("space", 5)};
}

static char *sealed(struct release *release) {
  char *bytes = NULL;
  size_t size = 0;
  cr_assert(release_seal(release, &bytes, &size, &error), "%s", error.message);
  cr_assert_eq(size, strlen(bytes));
  return bytes;
}

static struct release *two_kernels(void) {
  struct release *release = release_new();
  winner_add(release, "softmax/fused", "s", "{\"rows\":2,\"columns\":1}", "{\"BLOCK\":64}", 1);
  winner_add(release, "matmul/tiled", "m", "{\"M\":64}", "{\"BLOCK_M\":32}", 2);
  winner_add(release, "matmul/tiled", "m", "{\"M\":128}", "{\"BLOCK_M\":64}", 3);
  return release;
}

#define KERNEL_A "sha256:ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
#define KERNEL_B "sha256:3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d"
#define WINNER(name, kernel, key)                                                                                      \
  "{\"config\":{\"BLOCK\":64},\"kernel\":\"" kernel "\",\"key\":" key ",\"name\":\"" name "\",\"ordinal\":17,"         \
  "\"space\":\"" KERNEL_B "\"}"
#define RELEASE(winners)                                                                                               \
  "{\"environment\":{\"rocm\":\"6.4\"},\"tag\":\"default\",\"version\":1,\"winners\":[" winners "]}"

static struct release *parsed(const char *bytes) {
  struct release *release = NULL;
  cr_assert(release_parse(bytes, strlen(bytes), &release, &error), "%s: %s", error.pointer, error.message);
  return release;
}

static void expect_refused(const char *bytes, const char *pointer, const char *what) {
  struct release *release = NULL;
  error = (struct error){0};
  cr_expect_not(release_parse(bytes, strlen(bytes), &release, &error), "%s was read", bytes);
  cr_expect_null(release);
  cr_expect_str_eq(error.pointer, pointer);
  cr_expect_neq(strstr(error.message, what), NULL, "%s", error.message);
}

Test(release, its_bytes_are_canonical_json) {
  cleanup_release struct release *release = release_new();
  winner_add(release, "a", "a", "{\"M\":1,\"K\":\"x\"}", "{\"b\":true,\"a\":null}", 17);
  release->winners[0].space = digest_of("b", 1);
  cleanup_free char *bytes = sealed(release);
  cr_expect_str_eq(bytes,
                   "{\"environment\":{\"rocm\":\"6.4.1\"},\"tag\":\"default\",\"version\":1,\"winners\":["
                   "{\"config\":{\"a\":null,\"b\":true},\"kernel\":\"" KERNEL_A
                   "\",\"key\":{\"K\":\"x\",\"M\":1},\"name\":\"a\",\"ordinal\":17,\"space\":\"" KERNEL_B "\"}]}");
  cleanup_json json_t *json = json_loads(bytes, 0, NULL);
  cleanup_free char *canonical = json_canonical(json);
  cr_expect_str_eq(bytes, canonical);
}

Test(release, its_digest_is_that_of_its_bytes) {
  cleanup_release struct release *release = two_kernels();
  cleanup_free char *bytes = sealed(release);
  struct digest wanted = digest_of(bytes, strlen(bytes));
  cr_expect(digest_equal(&release->digest, &wanted));
}

Test(release, sealing_sorts_by_name_kernel_and_canonical_key) {
  cleanup_release struct release *release = two_kernels();
  winner_add(release, "matmul/tiled", "n", "{\"M\":1}", "{}", 4);
  cleanup_free char *bytes = sealed(release);
  static const uint64_t m_before_n[] = {3, 2, 4, 1}, n_before_m[] = {4, 3, 2, 1};
  struct digest m = digest_of("m", 1), n = digest_of("n", 1);
  const uint64_t *wanted = memcmp(m.bytes, n.bytes, DIGEST_SIZE) < 0 ? m_before_n : n_before_m;
  for (size_t i = 0; i < 4; i++)
    cr_expect_eq(release->winners[i].ordinal, wanted[i], "winner %zu is %llu", i,
                 (unsigned long long)release->winners[i].ordinal);
}

Test(release, the_same_winners_in_another_order_have_the_same_bytes) {
  cleanup_release struct release *one = two_kernels(), *other = release_new();
  winner_add(other, "matmul/tiled", "m", "{\"M\":128}", "{\"BLOCK_M\":64}", 3);
  winner_add(other, "softmax/fused", "s", "{\"columns\":1,\"rows\":2}", "{\"BLOCK\":64}", 1);
  winner_add(other, "matmul/tiled", "m", "{\"M\":64}", "{\"BLOCK_M\":32}", 2);
  cleanup_free char *one_bytes = sealed(one), *other_bytes = sealed(other);
  cr_expect_str_eq(one_bytes, other_bytes);
}

Test(release, without_winners_can_be_sealed) {
  cleanup_release struct release *release = release_new();
  cleanup_free char *bytes = sealed(release);
  cleanup_release struct release *again = parsed(bytes);
  cr_expect_eq(again->n_winners, (size_t)0);
}

Test(release, two_winners_for_one_key_cannot_be_sealed) {
  cleanup_release struct release *release = two_kernels();
  char *bytes = NULL;
  size_t size;
  winner_add(release, "another name", "s", "{\"columns\":1,\"rows\":2}", "{\"BLOCK\":32}", 9);
  cr_expect_not(release_seal(release, &bytes, &size, &error));
  cr_expect_null(bytes);
  cr_expect_str_eq(error.pointer, "/winners");
  cr_expect_neq(strstr(error.message, "{\"columns\":1,\"rows\":2}"), NULL, "%s", error.message);
}

Test(release, what_was_sealed_parses_to_the_same) {
  cleanup_release struct release *release = two_kernels();
  cleanup_free char *bytes = sealed(release);
  cleanup_release struct release *again = parsed(bytes);
  cleanup_free char *again_bytes = sealed(again);
  cr_expect_str_eq(bytes, again_bytes);
  cr_expect(digest_equal(&release->digest, &again->digest));
  cr_expect_eq(again->n_winners, (size_t)3);
  cr_expect_str_eq(again->tag, "default");
  cr_expect_str_eq(again->environment.rocm, "6.4.1");
  cr_expect_eq(again->winners[0].ordinal, 3u);
}

Test(release, the_largest_ordinal_survives) {
  cleanup_release struct release *release = release_new();
  winner_add(release, "a", "a", "{}", "{}", INT64_MAX);
  cleanup_free char *bytes = sealed(release);
  cleanup_release struct release *again = parsed(bytes);
  cr_expect_eq(again->winners[0].ordinal, (uint64_t)INT64_MAX);
}

Test(release, what_is_not_json_is_refused) { expect_refused("{", "", "not a JSON document"); }

Test(release, white_space_is_refused) {
  expect_refused(RELEASE("") "\n", "", "not canonical JSON from byte");
  expect_refused("{\"environment\":{\"rocm\":\"6.4\"}, \"tag\":\"default\",\"version\":1,\"winners\":[]}", "",
                 "not canonical JSON from byte 30 on");
}

Test(release, members_in_another_order_are_refused) {
  expect_refused("{\"tag\":\"default\",\"environment\":{\"rocm\":\"6.4\"},\"version\":1,\"winners\":[]}", "",
                 "not canonical JSON");
}

Test(release, a_number_that_is_written_differently_is_refused) {
  expect_refused(RELEASE(WINNER("a", KERNEL_A, "{\"M\":1.50}")), "", "not canonical JSON");
}

Test(release, unknown_members_are_refused) {
  expect_refused("{\"environment\":{},\"made\":1,\"tag\":\"t\",\"version\":1,\"winners\":[]}", "/made",
                 "unknown member");
  expect_refused(RELEASE("{\"made\":1}"), "/winners/0/made", "unknown member");
  expect_refused("{\"environment\":{\"driver\":\"6\"},\"tag\":\"t\",\"version\":1,\"winners\":[]}",
                 "/environment/driver", "unknown member");
}

Test(release, a_null_in_the_environment_is_refused) {
  expect_refused("{\"environment\":{\"rocm\":null},\"tag\":\"t\",\"version\":1,\"winners\":[]}", "/environment",
                 "null");
}

Test(release, another_version_is_refused) {
  expect_refused("{\"environment\":{},\"tag\":\"t\",\"version\":2,\"winners\":[]}", "/version", "\"version\" is 2");
  expect_refused("{\"environment\":{},\"tag\":\"t\",\"winners\":[]}", "/version", "missing");
}

Test(release, missing_and_mistyped_members_are_refused) {
  expect_refused("[]", "", "must be an object");
  expect_refused("{\"tag\":\"t\",\"version\":1,\"winners\":[]}", "/environment", "missing");
  expect_refused("{\"environment\":{},\"tag\":7,\"version\":1,\"winners\":[]}", "/tag", "a string");
  expect_refused("{\"environment\":{},\"tag\":\"\",\"version\":1,\"winners\":[]}", "/tag", "is empty");
  expect_refused("{\"environment\":{},\"tag\":\"t\",\"version\":1,\"winners\":{}}", "/winners", "an array");
  expect_refused(RELEASE("7"), "/winners/0", "must be an object");
}

Test(release, a_winner_that_is_wrong_is_refused_with_its_place) {
  expect_refused(RELEASE(WINNER("", KERNEL_A, "{}")), "/winners/0/name", "is empty");
  expect_refused(RELEASE(WINNER("a", "sha256:00", "{}")), "/winners/0/kernel", "64 lower-case");
  expect_refused(RELEASE(WINNER("a", KERNEL_A, "[]")), "/winners/0/key", "an object");
  expect_refused(RELEASE(WINNER("a", KERNEL_A, "{\"M\":[1]}")), "/winners/0/key/M", "a number or a string");
  expect_refused(RELEASE(WINNER("a", KERNEL_A, "{\"M\":1}") "," WINNER("b", KERNEL_A, "{\"M\":{}}")),
                 "/winners/1/key/M", "a number or a string");
}

static void expect_member_refused(const char *member, const char *value, const char *pointer) {
  cleanup_json json_t *json = json_loads(RELEASE(WINNER("a", KERNEL_A, "{}")), 0, NULL);
  json_t *winner = json_array_get(json_object_get(json, "winners"), 0);
  if (value)
    json_object_set_new(winner, member, json_loads(value, JSON_DECODE_ANY, NULL));
  else
    json_object_del(winner, member);
  cleanup_free char *bytes = json_canonical(json);
  expect_refused(bytes, pointer, member);
}

Test(release, every_member_of_a_winner_is_required) {
  static const char *const members[] = {"config", "kernel", "key", "name", "ordinal", "space"};
  for (size_t i = 0; i < ARRAY_LENGTH(members); i++) {
    char pointer[64];
    snprintf(pointer, sizeof pointer, "/winners/0/%s", members[i]);
    expect_member_refused(members[i], NULL, pointer);
    expect_member_refused(members[i], "null", pointer);
    expect_member_refused(members[i], "true", pointer);
  }
  expect_member_refused("ordinal", "-1", "/winners/0/ordinal");
  expect_member_refused("config", "[]", "/winners/0/config");
}

Test(release, a_config_is_flat) {
  cleanup_json json_t *json = json_loads(RELEASE(WINNER("a", KERNEL_A, "{}")), 0, NULL);
  json_t *winner = json_array_get(json_object_get(json, "winners"), 0);
  json_object_set_new(json_object_get(winner, "config"), "a/b", json_array());
  cleanup_free char *bytes = json_canonical(json);
  expect_refused(bytes, "/winners/0/config/a~1b", "must be null, a boolean, a number or a string");
}

Test(release, unsorted_winners_are_refused_with_the_first_wrong_one) {
  expect_refused(RELEASE(WINNER("a", KERNEL_A, "{}") "," WINNER("c", KERNEL_A, "{\"M\":1}") "," WINNER("b", KERNEL_A,
                                                                                                       "{\"M\":2}")),
                 "/winners/2", "not sorted by name, kernel and key");
  expect_refused(RELEASE(WINNER("a", KERNEL_A, "{}") "," WINNER("a", KERNEL_B, "{}")), "/winners/1", "not sorted");
  expect_refused(RELEASE(WINNER("a", KERNEL_A, "{\"M\":2}") "," WINNER("a", KERNEL_A, "{\"M\":128}")), "/winners/1",
                 "not sorted");
}

Test(release, two_winners_for_one_key_are_refused) {
  expect_refused(RELEASE(WINNER("a", KERNEL_A, "{}") "," WINNER("a", KERNEL_A, "{}")), "/winners", "two winners");
  expect_refused(RELEASE(WINNER("a", KERNEL_A, "{}") "," WINNER("b", KERNEL_A, "{}")), "/winners", "two winners");
}

static void expect_diff(struct release *from, struct release *to, const char *wanted) {
  cleanup_free char *from_bytes = sealed(from), *to_bytes = sealed(to);
  cleanup_json json_t *diff = release_diff(from, to);
  cleanup_free char *text = json_canonical(diff);
  cr_expect_str_eq(text, wanted);
}

Test(release, a_release_does_not_differ_from_itself) {
  cleanup_release struct release *one = two_kernels(), *other = two_kernels();
  expect_diff(one, other, "{\"added\":[],\"changed\":[],\"removed\":[],\"same\":3}");
}

Test(release, a_config_that_changed_is_shown_from_and_to) {
  cleanup_release struct release *one = release_new(), *other = release_new();
  winner_add(one, "a", "a", "{\"M\":1}", "{\"BLOCK\":32}", 1);
  winner_add(other, "a", "a", "{\"M\":1}", "{\"BLOCK\":64}", 2);
  expect_diff(one, other,
              "{\"added\":[],\"changed\":[{\"from\":{\"BLOCK\":32},\"kernel\":\"" KERNEL_A
              "\",\"key\":{\"M\":1},\"name\":\"a\",\"to\":{\"BLOCK\":64}}],\"removed\":[],\"same\":0}");
}

Test(release, the_same_config_with_another_ordinal_is_the_same) {
  cleanup_release struct release *one = release_new(), *other = release_new();
  winner_add(one, "a", "a", "{\"M\":1}", "{\"BLOCK\":32}", 1);
  winner_add(other, "a", "a", "{\"M\":1}", "{\"BLOCK\":32}", 2);
  expect_diff(one, other, "{\"added\":[],\"changed\":[],\"removed\":[],\"same\":1}");
}

Test(release, a_kernel_whose_hash_changed_is_removed_and_added) {
  cleanup_release struct release *one = release_new(), *other = release_new();
  winner_add(one, "a", "a", "{\"M\":1}", "{\"BLOCK\":32}", 1);
  winner_add(other, "a", "b", "{\"M\":1}", "{\"BLOCK\":32}", 1);
  expect_diff(one, other,
              "{\"added\":[{\"config\":{\"BLOCK\":32},\"kernel\":\"" KERNEL_B
              "\",\"key\":{\"M\":1},\"name\":\"a\"}],\"changed\":[],\"removed\":[{\"config\":{\"BLOCK\":32},"
              "\"kernel\":\"" KERNEL_A "\",\"key\":{\"M\":1},\"name\":\"a\"}],\"same\":0}");
}

Test(release, new_keys_are_added_and_gone_ones_removed) {
  cleanup_release struct release *none = release_new(), *one = release_new();
  winner_add(one, "a", "a", "{}", "{}", 1);
  expect_diff(none, one,
              "{\"added\":[{\"config\":{},\"kernel\":\"" KERNEL_A
              "\",\"key\":{},\"name\":\"a\"}],\"changed\":[],\"removed\":[],\"same\":0}");
  expect_diff(one, none,
              "{\"added\":[],\"changed\":[],\"removed\":[{\"config\":{},\"kernel\":\"" KERNEL_A
              "\",\"key\":{},\"name\":\"a\"}],\"same\":0}");
}
