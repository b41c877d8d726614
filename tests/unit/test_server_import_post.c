/* The body of POST /v1/imports: how it is read, and refusals with their pointers. */
#include <criterion/criterion.h>

#include "server/import/imports.h"

#define MANIFEST                                                                                   \
  "{\"name\": \"dejavu/f\", \"language\": \"external\", \"key\": [\"n\", \"dtype\"],"              \
  " \"exports\": {\"dejavu\": {}}}"
#define HEAD                                                                                       \
  "{\"format\": \"json\", \"environment\": {\"rocm\": \"6.3.1\", \"gpu\": \"MI300X\"}, "           \
  "\"kernels\": "
#define ANY_KERNEL "{\"manifest\": " MANIFEST ", \"entries\": [" ANY_ENTRY "]}"
#define ANY_ENTRY "{\"key\": " KEY ", \"config\": {\"B\": 1}}"
#define KEY "{\"dtype\": \"fp16\", \"n\": 4096}"

static bool post_read(const char *text, struct import_post *ret, json_t **ret_json,
                      struct error *error) {
  cr_assert(json_parse(text, strlen(text), ret_json, error), "%s in %s", error->message, text);
  return import_post_parse(*ret_json, ret, error) && import_post_read(ret, error);
}

static void assert_refused(const char *text, const char *pointer, const char *message) {
  cleanup_import_post struct import_post post = {0};
  cleanup_json json_t *json = NULL;
  struct error error = {0};
  cr_assert_not(post_read(text, &post, &json, &error), "taken: %s", text);
  cr_expect_str_eq(error.pointer, pointer, "%s for %s", error.pointer, text);
  cr_expect(strstr(error.message, message), "no \"%s\" in: %s", message, error.message);
}

/* One external kernel with these entries. */
static void assert_entries_refused(const char *entries, const char *pointer, const char *message) {
  cleanup_free char *text =
      xasprintf(HEAD "[{\"manifest\": " MANIFEST ", \"entries\": %s}]}", entries);
  assert_refused(text, pointer, message);
}

static void assert_entry_refused(const char *entry, const char *pointer, const char *message) {
  cleanup_free char *entries = xasprintf("[%s]", entry),
                    *at = xasprintf("/kernels/0/entries/0%s", pointer);
  assert_entries_refused(entries, at, message);
}

Test(import_post, is_read_into_rows) {
  cleanup_import_post struct import_post post = {0};
  cleanup_json json_t *json = NULL;
  struct error error;
  cr_assert(
      post_read(
          HEAD
          "[{\"manifest\": " MANIFEST ", \"entries\": [{\"key\": " KEY ","
          " \"config\": {\"num_warps\": 4, \"BLOCK\": 64, \"scale\": 0.5}, \"ms\": [0.2, 0.1, 0.3],"
          " \"provenance\": {\"source\": \"f/cache.json\"}}]}]}",
          &post, &json, &error),
      "%s: %s", error.pointer, error.message);
  cr_assert_str_eq(post.tag, "default");
  cr_assert_str_eq(post.environment.rocm, "6.3.1");
  cr_assert_eq(post.n_rows, 1u);
  cr_assert(import_kernel_at(&post, 0)->manifest);
  cr_expect(digest_equal(&post.rows[0].kernel, &import_kernel_at(&post, 0)->kernel->hash));
  cr_expect_str_eq(post.rows[0].key, "{\"n\":4096,\"dtype\":\"fp16\"}", "in the kernel's order");
  cr_expect_str_eq(post.rows[0].config, "{\"BLOCK\":64,\"num_warps\":4,\"scale\":0.5}");
  cr_expect_str_eq(post.rows[0].provenance, "{\"source\":\"f/cache.json\"}");
  cr_expect_str_eq(post.rows[0].ms, "{0.2,0.1,0.3}");
}

Test(import_post, without_milliseconds_or_provenance_is_taken) {
  cleanup_import_post struct import_post post = {0};
  cleanup_json json_t *json = NULL;
  struct error error;
  cr_assert(post_read(HEAD "[{\"manifest\": " MANIFEST ", \"entries\": [{\"key\": " KEY
                           ", \"config\": {\"B\": 1}}]}]}",
                      &post, &json, &error));
  cr_expect_str_eq(post.rows[0].ms, "{}");
  cr_expect_str_eq(post.rows[0].provenance, "{}");
}

Test(import_post, its_rows_are_in_the_order_in_which_they_are_locked) {
  cleanup_import_post struct import_post post = {0};
  cleanup_json json_t *json = NULL;
  struct error error;
  cleanup_free char *entries = xstrdup("");
  for (int i = 0; i < 16; i++) {
    char *longer = xasprintf("%s%s{\"key\": {\"n\": %d, \"dtype\": \"x\"}, \"config\": {\"B\": 1}}",
                             entries, i ? ", " : "", i);
    free(entries);
    entries = longer;
  }
  cleanup_free char *text =
      xasprintf(HEAD "[{\"manifest\": " MANIFEST ", \"entries\": [%s]}]}", entries);
  cr_assert(post_read(text, &post, &json, &error), "%s", error.message);
  for (size_t i = 1; i < post.n_rows; i++)
    cr_expect_lt(
        memcmp(&post.rows[i - 1].key_digest, &post.rows[i].key_digest, sizeof(struct digest)), 0);
}

Test(import_post, wrong_heads_are_refused) {
  assert_refused("{}", "/format", "missing");
  assert_refused("{\"format\": \"jsn\", \"environment\": {}, \"kernels\": [" ANY_KERNEL "]}",
                 "/format", "unknown format");
  assert_refused("{\"format\": \"json\", \"environment\": {\"rocm\": 1}, \"kernels\": [" ANY_KERNEL
                 "]}",
                 "/environment/rocm", "string");
  assert_refused("{\"format\": \"json\", \"environment\": {}, \"tag\": \"\", \"kernels\": []}",
                 "/tag", "at least 1");
  assert_refused("{\"format\": \"json\", \"environment\": {}, \"kernels\": []}", "/kernels",
                 "at least 1");
  assert_refused("{\"format\": \"json\", \"environment\": {}, \"kernels\": [], \"colour\": 1}",
                 "/colour", "colour");
}

Test(import_post, wrong_kernels_are_refused) {
  assert_refused(HEAD "[{\"entries\": [" ANY_ENTRY "]}]}", "/kernels/0/kernel", "missing");
  assert_refused(HEAD "[{\"kernel\": \"softmax\", \"entries\": [" ANY_ENTRY "]}]}",
                 "/kernels/0/kernel", "sha256:");
  assert_refused(HEAD "[{\"manifest\": {\"name\": \"f\"}, \"entries\": [" ANY_ENTRY "]}]}",
                 "/kernels/0/manifest/language", "missing");
  assert_refused(
      HEAD
      "[{\"manifest\": " MANIFEST
      ", \"kernel\": \"sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\", "
      "\"entries\": [" ANY_ENTRY "]}]}",
      "/kernels/0", "twice");
  assert_refused(HEAD "[{\"manifest\": " MANIFEST "}]}", "/kernels/0/entries", "missing");
  assert_refused(HEAD "[{\"manifest\": " MANIFEST ", \"entries\": []}]}", "/kernels/0/entries",
                 "at least 1");
}

Test(import_post, a_manifest_with_code_is_refused) {
  assert_refused(HEAD
                 "[{\"manifest\": {\"name\": \"copy\", \"language\": \"hip\", \"entry\": \"copy\", "
                 "\"key\": [\"n\"],"
                 " \"sources\": [{\"path\": \"copy.hip\", \"digest\":"
                 " \"sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}],"
                 " \"arguments\": [{\"name\": \"y\", \"dtype\": \"float16\", \"shape\": [\"n\"], "
                 "\"access\": \"write\"}],"
                 " \"launch\": {\"grid\": [1], \"block\": [64]}}, \"entries\": [" ANY_ENTRY "]}]}",
                 "/kernels/0/manifest", "by its hash");
}

Test(import_post, wrong_entries_are_refused) {
  assert_entry_refused("7", "", "object");
  assert_entry_refused("{\"config\": {\"B\": 1}}", "/key", "missing");
  assert_entry_refused("{\"key\": {\"n\": 1}, \"config\": {\"B\": 1}}", "/key/dtype", "lacks");
  assert_entry_refused("{\"key\": {\"n\": 1, \"dtype\": [1]}, \"config\": {\"B\": 1}}",
                       "/key/dtype", "");
  assert_entry_refused("{\"key\": [1], \"config\": {\"B\": 1}}", "/key", "object");
  assert_entry_refused("{\"key\": " KEY "}", "/config", "missing");
  assert_entry_refused("{\"key\": " KEY ", \"config\": 7}", "/config", "object");
  assert_entry_refused("{\"key\": " KEY ", \"config\": {}}", "/config", "empty");
  assert_entry_refused("{\"key\": " KEY ", \"config\": {\"B\": [1]}}", "/config/B",
                       "must be a string, a number");
  assert_entry_refused("{\"key\": " KEY ", \"config\": {\"B\": 1}, \"ms\": [1, 2]}", "/ms",
                       "2 milliseconds");
  assert_entry_refused("{\"key\": " KEY ", \"config\": {\"B\": 1}, \"ms\": [0]}", "/ms/0",
                       "above 0");
  assert_entry_refused("{\"key\": " KEY ", \"config\": {\"B\": 1}, \"ms\": [\"1\"]}", "/ms/0",
                       "must hold numbers");
  assert_entry_refused("{\"key\": " KEY
                       ", \"config\": {\"B\": 1}, \"provenance\": {\"origin\": \"tuned\"}}",
                       "/provenance/origin", "releases add");
  assert_entry_refused("{\"key\": " KEY ", \"config\": {\"B\": 1}, \"provenance\": {\"a\": {}}}",
                       "/provenance/a", "must be a string");
  assert_entry_refused("{\"key\": " KEY ", \"config\": {\"B\": 1}, \"us\": 1}", "/us", "us");
}

Test(import_post, configs_have_limits) {
  cleanup_json json_t *entry =
      json_pack("{s:{s:i, s:s}, s:{}}", "key", "n", 1, "dtype", "x", "config");
  json_t *config = json_object_get(entry, "config");
  for (int i = 0; i <= IMPORT_MEMBERS_MAX; i++) {
    char name[16];
    snprintf(name, sizeof name, "P%d", i);
    json_object_set_new(config, name, json_integer(i));
  }
  cleanup_free char *many = json_dumps(entry, 0);
  assert_entry_refused(many, "/config", "more than 256 members");
  cleanup_free char *long_text = xmalloc(IMPORT_TEXT_MAX + 1);
  memset(long_text, 'x', IMPORT_TEXT_MAX);
  long_text[IMPORT_TEXT_MAX] = '\0';
  json_object_clear(config);
  json_object_set_new(config, "P", json_string(long_text));
  cleanup_free char *large = json_dumps(entry, 0);
  assert_entry_refused(large, "/config", "at most 65536");
}

Test(import_post, a_repeated_key_is_refused_at_its_second_place) {
  assert_entries_refused("[{\"key\": " KEY ", \"config\": {\"B\": 1}},"
                         " {\"key\": {\"n\": 8, \"dtype\": \"fp16\"}, \"config\": {\"B\": 1}},"
                         " {\"key\": {\"n\": 4096, \"dtype\": \"fp16\"}, \"config\": {\"B\": 2}}]",
                         "/kernels/0/entries/2", "entry 0 of kernel 0");
  assert_refused(HEAD "[{\"manifest\": " MANIFEST ", \"entries\": [{\"key\": " KEY
                      ", \"config\": {\"B\": 1}}]},"
                      " {\"manifest\": " MANIFEST ", \"entries\": [{\"key\": " KEY
                      ", \"config\": {\"B\": 1}}]}]}",
                 "/kernels/1/entries/0", "entry 0 of kernel 0");
}

Test(import_post, too_many_entries_are_refused_before_they_are_read) {
  cleanup_json json_t *entries = json_array();
  for (size_t i = 0; i <= IMPORT_ENTRIES_MAX; i++)
    json_array_append_new(entries, json_integer(7));
  cleanup_json json_t *manifest = json_loads(MANIFEST, 0, NULL);
  cleanup_json json_t *json =
      json_pack("{s:s, s:{}, s:[{s:O, s:O}]}", "format", "json", "environment", "kernels",
                "manifest", manifest, "entries", entries);
  cleanup_import_post struct import_post post = {0};
  struct error error;
  cr_assert_not(import_post_parse(json, &post, &error));
  cr_expect_str_eq(error.pointer, "/kernels/0/entries");
  cr_expect(strstr(error.message, "at most 200000"));
}

Test(import_post, the_limit_of_entries_is_that_of_all_kernels_together) {
  cleanup_json json_t *entry = json_loads(ANY_ENTRY, 0, NULL), *entries = json_array();
  for (size_t i = 0; i <= IMPORT_ENTRIES_MAX / 2; i++)
    json_array_append(entries, entry);
  cleanup_json json_t *manifest = json_loads(MANIFEST, 0, NULL);
  cleanup_json json_t *json = json_pack("{s:s, s:{}, s:[{s:O, s:O}, {s:O, s:O}]}", "format", "json",
                                        "environment", "kernels", "manifest", manifest, "entries",
                                        entries, "manifest", manifest, "entries", entries);
  cleanup_import_post struct import_post post = {0};
  struct error error;
  cr_assert_not(import_post_parse(json, &post, &error));
  cr_expect_str_eq(error.pointer, "/kernels/1/entries");
  cr_expect(strstr(error.message, "in parts"));
}
