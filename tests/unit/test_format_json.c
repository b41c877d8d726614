/* The json format to the byte and back, and what all formats share: their table, their files,
 * imported kernels. */
#include "table_fixture.h"

#include <signal.h>

#include "common/cache/text.h"

static struct error error;

#define KERNEL_A "sha256:3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d"
#define KERNEL_B "sha256:ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
#define KERNEL(name, hash, key, configs, winners)                                                  \
  "{\"configs\":[" configs "],\"kernel\":\"" hash "\",\"key\":[" key "],\"name\":\"" name          \
  "\",\"provenance\":[{\"origin\":\"tuned\"}],\"winners\":[" winners "]}"
#define RELEASE(kernels)                                                                           \
  "{\"environment\":{\"rocm\":\"6.4\"},\"kernels\":[" kernels "],\"tag\":\"default\",\"version\":" \
  "2}"
#define BLOCK(n) "{\"values\":{\"BLOCK\":" n "}}"

static void expect_json(const char *release_text, const char *wanted_kernels) {
  cleanup_release struct release *release = release_of_text(release_text);
  cleanup_cache_files struct cache_files out = {0};
  struct kernels none = {0};
  char digest[DIGEST_TEXT_SIZE];
  cr_assert(render_with("json", release, &none, NULL, &out, &error), "%s", error.message);
  cr_assert_eq(out.n, (size_t)1);
  cr_expect_str_eq(out.files[0].path, "cache.json");
  cleanup_free char *wanted = xasprintf(
      "{\"environment\":{\"rocm\":\"6.4\"},\"kernels\":%s,\"release\":\"%s\",\"tag\":\"default\"}",
      wanted_kernels, digest_format(&release->digest, digest));
  cr_expect_str_eq(out.files[0].bytes, wanted);
  cr_expect_eq(out.files[0].size, strlen(wanted));
  cleanup_json json_t *json = json_loads(wanted, 0, NULL);
  cleanup_free char *canonical = json_canonical(json);
  cr_expect_str_eq(canonical, wanted, "the rendered text is not canonical");
}

Test(format_json, entries_stand_by_kernel_with_their_keys_as_objects) {
  expect_json(
      RELEASE(KERNEL(
          "a\\\"/b", KERNEL_A, "\"M\",\"K\"", BLOCK("32") "," BLOCK("64"),
          "[[1,\"x,]\\\"\\\\\"],1,0,[],0],[[2,null],0,0,[0.5],1]") "," KERNEL("c", KERNEL_B, "",
                                                                              BLOCK("1"),
                                                                              "[[],0,0,[],0]")),
      "{\"a\\\"/"
      "b\":{\"entries\":[{\"config\":{\"BLOCK\":64},\"key\":{\"K\":\"x,]\\\"\\\\\",\"M\":1}},{"
      "\"config\":{\"BLOCK\":32},\"key\":{\"K\":null,\"M\":2}}],\"kernel\":\"" KERNEL_A
      "\"},\"c\":{\"entries\":[{\"config\":{\"BLOCK\":1},\"key\":{}}],\"kernel\":\"" KERNEL_B
      "\"}}");
}

Test(format_json, kernels_of_one_name_are_told_apart_by_their_hashes) {
#define ONE(name, hash, n) KERNEL(name, hash, "\"M\"", BLOCK(n), "[[1],0,0,[],0]")
#define ENTRY(name, hash, n)                                                                       \
  "\"" name "\":{\"entries\":[{\"config\":{\"BLOCK\":" n                                           \
  "},\"key\":{\"M\":1}}],\"kernel\":\"" hash "\"}"
  expect_json(
      RELEASE(ONE("a", KERNEL_A, "1") "," ONE("a", KERNEL_B, "2") "," ONE("a-b", KERNEL_B, "3")),
      "{" ENTRY("a-b", KERNEL_B, "3") "," ENTRY("a@3e23e8160039", KERNEL_A, "1") "," ENTRY(
          "a@ca978112ca1b", KERNEL_B, "2") "}");
}

Test(format_json, a_file_is_read_back_as_kernels_by_hash) {
  cleanup_release struct release *release = release_of_text(RELEASE(KERNEL(
      "a", KERNEL_A, "\"M\"", BLOCK("32") "," BLOCK("64"), "[[1],1,0,[],0],[[2],0,0,[],0]")));
  cleanup_cache_files struct cache_files out = {0};
  cleanup_imported struct imported imported = {0};
  struct kernels none = {0};
  char digest[DIGEST_TEXT_SIZE];
  cr_assert(render_with("json", release, &none, NULL, &out, &error));
  cr_assert(read_with("json", &out, NULL, &imported, &error), "%s", error.message);
  cr_assert_eq(imported.n_kernels, (size_t)1);
  cr_assert_eq(imported.kernels[0].n_entries, (size_t)2);
  cr_expect_null(imported.kernels[0].manifest);
  cr_expect_str_eq(digest_format(&imported.kernels[0].hash, digest), KERNEL_A);
  cleanup_free char *entry = json_dumps(imported.kernels[0].entries[1].config, JSON_COMPACT),
                    *key = json_dumps(imported.kernels[0].entries[1].key, JSON_COMPACT),
                    *provenance =
                        json_dumps(imported.kernels[0].entries[1].provenance, JSON_COMPACT);
  cr_expect_str_eq(entry, "{\"BLOCK\":32}");
  cr_expect_str_eq(key, "{\"M\":2}");
  cr_expect_str_eq(provenance, "{\"source\":\"cache.json\"}");
  cr_expect_str_eq(json_string_value(json_object_get(imported.environment, "rocm")), "6.4");
}

struct sunk {
  char *path;
  struct text text;
  size_t n_pieces;
};

static void sink_begin(void *context, const struct cache_files *files, const char *path) {
  struct sunk *sunk = context;
  cr_assert_null(sunk->path);
  cr_expect_eq(files->n_streamed, (size_t)1);
  sunk->path = xstrdup(path);
}

static void sink_put(void *context, const char *bytes, size_t size) {
  struct sunk *sunk = context;
  text_add(&sunk->text, bytes, size);
  sunk->n_pieces++;
}

Test(format_json, a_sink_gets_in_pieces_what_else_is_held) {
  cleanup_text struct text winners = {0};
  for (int i = 10000; i < 13000; i++) {
    cleanup_free char *winner = xasprintf("%s[[%d],0,0,[],0]", i > 10000 ? "," : "", i);
    text_add_string(&winners, winner);
  }
  size_t size;
  cleanup_free char *many = text_finish(&winners, &size);
  cleanup_free char *text =
      xasprintf(RELEASE(KERNEL("a", KERNEL_A, "\"M\"", BLOCK("1"), "%s")), many);
  cleanup_release struct release *release = release_of_text(text);
  struct sunk sunk = {0};
  const struct cache_sink sink = {.context = &sunk, .begin = sink_begin, .put = sink_put};
  cleanup_cache_files struct cache_files held = {0}, passed = {.sink = &sink};
  struct kernels none = {0};
  cr_assert(render_with("json", release, &none, NULL, &held, &error), "%s", error.message);
  cr_assert(render_with("json", release, &none, NULL, &passed, &error), "%s", error.message);
  cr_expect_eq(passed.n, (size_t)0);
  cr_expect_eq(passed.n_streamed, (size_t)1);
  cr_expect_str_eq(sunk.path, "cache.json");
  cr_expect_gt(sunk.n_pieces, (size_t)1);
  cr_assert_eq(held.files[0].size, sunk.text.size);
  cr_expect_arr_eq(held.files[0].bytes, sunk.text.bytes, sunk.text.size);
  free(sunk.path);
  text_release(&sunk.text);
}

static void expect_refused(const char *text, const char *what) {
  cleanup_cache_files struct cache_files files = {0};
  struct imported imported = {0};
  files_add_text(&files, "cache.json", text);
  error = (struct error){0};
  cr_expect_not(read_with("json", &files, NULL, &imported, &error), "%s was read", text);
  cr_expect_neq(strstr(error.message, what), NULL, "%s", error.message);
  cr_expect_null(imported.kernels);
}

Test(format_json, what_is_no_cache_json_is_refused_with_its_place) {
#define DOCUMENT(kernels)                                                                          \
  "{\"environment\":{},\"release\":\"" KERNEL_A "\",\"tag\":\"t\",\"kernels\":{" kernels "}}"
#define ENTRIES(entries) "\"a\":{\"kernel\":\"" KERNEL_A "\",\"entries\":[" entries "]}"
  expect_refused("{\"environment\":", "cache.json: not a JSON document: line 1");
  expect_refused("[]", "must be");
  expect_refused("{\"x\":1}", "/x");
  expect_refused("{\"environment\":{\"x\":1},\"release\":\"" KERNEL_A
                 "\",\"tag\":\"t\",\"kernels\":{}}",
                 "/environment/x");
  expect_refused(DOCUMENT("\"a\":{\"kernel\":\"x\",\"entries\":[]}"), "/kernels/a/kernel");
  expect_refused(DOCUMENT("\"a\":{\"kernel\":\"" KERNEL_A "\"}"), "/kernels/a/entries");
  expect_refused(DOCUMENT(ENTRIES("1")), "/kernels/a/entries/0");
  expect_refused(DOCUMENT(ENTRIES("{\"key\":{},\"config\":{\"a\":[]}}")),
                 "/kernels/a/entries/0/config/a");
  expect_refused(DOCUMENT(ENTRIES("{\"key\":{\"a\":{}},\"config\":{}}")),
                 "/kernels/a/entries/0/key/a");
  expect_refused(
      DOCUMENT(ENTRIES("{\"key\":{\"a\":1},\"config\":{}},{\"key\":{\"a\":1},\"config\":{}}")),
      "/kernels/a/entries/1: the key {\"a\":1} occurs twice");
  expect_refused(
      DOCUMENT(ENTRIES("{\"key\":{\"a\":1},\"config\":{}},{\"key\":{\"b\":1},\"config\":{}}")),
      "/kernels/a/entries/1: the key has other members");
  expect_refused(DOCUMENT(ENTRIES("") ",\"b\":{\"kernel\":\"" KERNEL_A "\",\"entries\":[]}"),
                 "/kernels/b");
}

Test(format_json, one_file_and_no_kernel_is_wanted) {
  cleanup_cache_files struct cache_files files = {0};
  struct imported imported = {0};
  struct kernel kernel = {0};
  files_add_text(&files, "cache.json", "{}");
  files_add_text(&files, "other.json", "{}");
  cr_expect_not(read_with("json", &files, NULL, &imported, &error));
  cr_expect_neq(strstr(error.message, "is one file"), NULL, "%s", error.message);
  cr_expect_not(read_with("json", &files, &kernel, &imported, &error));
  cr_expect_neq(strstr(error.message, "omit --kernel"), NULL, "%s", error.message);
}

Test(format_json, an_unknown_format_lists_those_there_are_and_the_nearest) {
  const struct cache_format *format = NULL;
  cr_expect_not(cache_format_find("vllm_moe", &format, &error));
  cr_expect_null(format);
  cr_expect(string_starts(error.message, "unknown format \"vllm_moe\"; did you mean \"vllm-moe\"? "
                                         "there are: aiter-triton, choices, "),
            "%s", error.message);
  cr_expect_not(cache_format_find("", &format, &error));
}

Test(format_json, formats_are_sorted_by_name_and_complete) {
  for (size_t i = 0; cache_formats[i]; i++) {
    const struct cache_format *format = NULL;
    cr_expect(i == 0 || strcmp(cache_formats[i - 1]->name, cache_formats[i]->name) < 0);
    cr_expect(cache_formats[i]->summary && cache_formats[i]->render && cache_formats[i]->table);
    cr_expect(cache_format_find(cache_formats[i]->name, &format, &error) &&
              format == cache_formats[i]);
  }
}

Test(format_json, releasing_twice_is_harmless) {
  struct cache_files files = {0};
  struct imported imported = {0};
  files_add_text(&files, "a", "b");
  struct release_kernel kernel = {.name = (char *)"kernel"};
  struct release_winner winner = {.key = "[1]", .key_size = 3};
  bool is_new;
  cache_files_skip(&files, &kernel, NULL, "because 1");
  cache_files_skip(&files, &kernel, &winner, "because");
  cache_files_variable(&files, "A", "", NULL);
  cache_files_variable(&files, "B", NULL, "literal");
  imported_entry_for(imported_kernel_for(&imported, "kernel"), "entry", &is_new);
  cr_expect_str_eq(files.skipped[0].reason, "because 1");
  cache_files_release(&files);
  cache_files_release(&files);
  imported_release(&imported);
  imported_release(&imported);
  cr_expect_eq(files.n, (size_t)0);
}

/* It must not be written as cold. */
Test(format_json, an_unknown_regime_ends_the_program, .signal = SIGABRT) {
  cleanup_release struct release *release =
      release_of_text(RELEASE(KERNEL("a", KERNEL_A, "", BLOCK("1"), "[[],0,0,[],0]")));
  cleanup_cache_files struct cache_files out = {0};
  struct kernels none = {0};
  release->regime = (enum regime)100;
  cr_expect(render_with("json", release, &none, NULL, &out, &error));
}

Test(format_json, a_renderer_cannot_leave_the_folder, .signal = SIGABRT) {
  struct cache_files files = {0};
  cache_files_add(&files, "a/../b", NULL, 0);
}

Test(format_json, a_file_that_is_begun_cannot_leave_the_folder_either, .signal = SIGABRT) {
  struct cache_files files = {0};
  cache_files_begin(&files, "/a");
}
