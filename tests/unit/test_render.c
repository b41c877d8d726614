/* Rendering a release: by name, and the json format to the byte. */
#include "common/render.h"

#include <criterion/criterion.h>

static struct error error;

#define KERNEL_A "sha256:ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
#define KERNEL_B "sha256:3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d"
#define WINNER(name, kernel, key, config)                                                                              \
  "{\"config\":" config ",\"kernel\":\"" kernel "\",\"key\":" key ",\"name\":\"" name "\",\"ordinal\":17,"             \
  "\"space\":\"" KERNEL_B "\"}"
#define RELEASE(winners)                                                                                               \
  "{\"environment\":{\"rocm\":\"6.4\"},\"tag\":\"default\",\"version\":1,\"winners\":[" winners "]}"

static struct release *parsed(const char *bytes) {
  struct release *release = NULL;
  cr_assert(release_parse(bytes, strlen(bytes), &release, &error), "%s", error.message);
  return release;
}

static void expect_json(const char *bytes, const char *kernels) {
  cleanup_release struct release *release = parsed(bytes);
  cleanup_rendered struct rendered rendered = {0};
  char digest[DIGEST_TEXT_SIZE];
  cr_assert(render("json", release, &rendered, &error), "%s", error.message);
  cr_assert_eq(rendered.n, (size_t)1);
  cr_expect_str_eq(rendered.files[0].path, "cache.json");
  cleanup_free char *wanted =
      xasprintf("{\"environment\":{\"rocm\":\"6.4\"},\"kernels\":%s,\"release\":\"%s\",\"tag\":\"default\"}", kernels,
                digest_format(&release->digest, digest));
  cr_expect_str_eq(rendered.files[0].bytes, wanted);
  cr_expect_eq(rendered.files[0].size, strlen(wanted));
  cleanup_json json_t *json = json_loads(wanted, 0, NULL);
  cleanup_free char *canonical = json_canonical(json);
  cr_expect_str_eq(canonical, wanted, "the rendered text is not canonical");
}

Test(render, json_groups_the_entries_by_kernel) {
  expect_json(RELEASE(WINNER("a\\\"/b", KERNEL_A, "{\"M\":1}", "{\"BLOCK\":64}") "," WINNER(
                  "a\\\"/b", KERNEL_A, "{\"M\":2}", "{\"BLOCK\":32}") "," WINNER("c", KERNEL_B, "{}", "{}")),
              "{\"a\\\"/b\":{\"entries\":[{\"config\":{\"BLOCK\":64},\"key\":{\"M\":1}},{\"config\":{\"BLOCK\":32},"
              "\"key\":{\"M\":2}}],\"kernel\":\"" KERNEL_A
              "\"},\"c\":{\"entries\":[{\"config\":{},\"key\":{}}],\"kernel\":\"" KERNEL_B "\"}}");
}

Test(render, json_of_a_release_without_winners_has_no_kernels) { expect_json(RELEASE(""), "{}"); }

Test(render, json_refuses_two_kernels_of_one_name) {
  cleanup_release struct release *release =
      parsed(RELEASE(WINNER("a", KERNEL_B, "{}", "{}") "," WINNER("a", KERNEL_A, "{}", "{}")));
  struct rendered rendered = {0};
  cr_expect_not(render("json", release, &rendered, &error));
  cr_expect_eq(rendered.n, (size_t)0);
  cr_expect_neq(strstr(error.message, "two kernels are called a,"), NULL, "%s", error.message);
}

Test(render, an_unknown_format_lists_those_there_are) {
  cleanup_release struct release *release = parsed(RELEASE(""));
  struct rendered rendered = {0};
  cr_expect_not(render("xml", release, &rendered, &error));
  cr_expect(string_starts(error.message, "unknown format \"xml\"; there are: json"), "%s", error.message);
}

Test(render, releasing_twice_is_harmless) {
  cleanup_release struct release *release = parsed(RELEASE(""));
  struct rendered rendered = {0};
  cr_assert(render("json", release, &rendered, &error));
  rendered_release(&rendered);
  rendered_release(&rendered);
  cr_expect_eq(rendered.n, (size_t)0);
}
