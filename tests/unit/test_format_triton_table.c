/* Files that Triton's autotuner wrote: what is read of them, that they come back, and what is
 * refused with file and place. */
#include "format_fixture.h"

extern const struct cache_format format_triton;

#define FOLDER "LJRKDJI2OBMAZKYNPTGZ7GWDEXQ2H6345JVO4N5ZD6MLTWYCLTIQ"
#define OTHER "AJRKDJI2OBMAZKYNPTGZ7GWDEXQ2H6345JVO4N5ZD6MLTWYCLTIQ"
#define PATH FOLDER "/add.autotune.json"
#define REAL SOURCE_FOLDER "/tests/data/triton_autotune/" FOLDER "/add_kernel.autotune.json"

/* As Triton 3.6 writes it. */
#define CONFIG(block)                                                                              \
  "{\"kwargs\": {\"GROUP\": 1, \"BLOCK\": " block                                                  \
  "}, \"num_warps\": 2, \"num_ctas\": 1, \"num_stages\": 1, "                                      \
  "\"maxnreg\": null, \"pre_hook\": null, \"ir_override\": null}"
#define TABLE(entries)                                                                             \
  "{\"key\": [4096, 0.5, true, null, \"torch.float16\"], \"configs_timings\": [" entries "]}"

static bool read_text(const char *path, const char *text, struct imported *ret,
                      struct error *error) {
  cleanup_cache_files struct cache_files files = {0};
  files_add_text(&files, path, text);
  return cache_format_read(&format_triton, &(struct import_request){&files, NULL}, ret, error);
}

static struct imported imported_of(const char *path, const char *text) {
  struct imported imported = {0};
  struct error error;
  cr_assert(read_text(path, text, &imported, &error), "%s", error.message);
  return imported;
}

static void check_winner(const char *entries, const char *block) {
  cleanup_free char *text = xasprintf(TABLE("%s"), entries);
  cleanup_imported struct imported imported = imported_of(PATH, text);
  cleanup_free char *value =
      json_canonical(json_object_get(imported.kernels[0].entries[0].config, "BLOCK"));
  cr_assert_str_eq(value, block, "%s", entries);
}

Test(format_triton_table, a_file_that_triton_wrote_on_a_gpu_is_read) {
  cleanup_free char *text = NULL;
  size_t size;
  struct error error;
  cr_assert(file_read(REAL, 1 << 20, &text, &size, &error), "%s", error.message);
  cleanup_imported struct imported imported = imported_of(FOLDER "/add_kernel.autotune.json", text);
  cr_assert_eq(imported.n_kernels, 1u);
  const struct imported_entry *entry = &imported.kernels[0].entries[0];
  cleanup_free char *key = json_canonical(entry->key), *config = json_canonical(entry->config),
                    *manifest = json_canonical(imported.kernels[0].manifest);
  cr_assert_str_eq(key, "{\"folder\":\"" FOLDER
                        "\",\"key\":\"[1048576, \\\"torch.float16\\\", \\\"torch.float16\\\", "
                        "\\\"torch.float16\\\"]\"}");
  cr_assert_str_eq(
      config,
      "{\"BLOCK\":1024,\"ir_override\":null,\"maxnreg\":null,\"num_ctas\":1,\"num_stages\":1,"
      "\"num_warps\":2}");
  cr_assert_str_eq(manifest,
                   "{\"exports\":{\"triton\":{\"function\":\"add_kernel\",\"kwargs\":[\"BLOCK\"],"
                   "\"members\":[\"kwargs\","
                   "\"num_warps\",\"num_ctas\",\"num_stages\",\"maxnreg\",\"pre_hook\",\"ir_"
                   "override\"]}},\"key\":["
                   "\"folder\",\"key\"],\"language\":\"external\",\"name\":\"triton/add_kernel\"}");
  cr_assert_eq(entry->n_ms, 3u);
  cr_assert_float_eq(entry->ms[0], 0.006016000173985958, 1e-18);
}

Test(format_triton_table, a_file_with_one_config_comes_back_byte_for_byte) {
  static const char *const texts[] = {
      TABLE("[" CONFIG("64") ", [0.006016000173985958, 0.005824000108987093, 1e-05]]"),
      TABLE("[{\"kwargs\": {\"A\": true}, \"num_warps\": 4}, [1.0, 1.0, 2.0]]"),
      TABLE("[" CONFIG("\"a/b\"") ", []]")};
  for (size_t i = 0; i < ARRAY_LENGTH(texts); i++) {
    struct shelf shelf = {0};
    cleanup_imported struct imported imported = imported_of("some/where/" PATH, texts[i]);
    cleanup_release struct release *release = release_of_imported(&imported, "triton", &shelf);
    struct cache_source source = shelf_source(&shelf);
    cleanup_cache_files struct cache_files files = {0};
    struct error error;
    cr_assert(format_triton.render(&(struct render_request){.release = release, .source = &source},
                                   &files, &error),
              "%s", error.message);
    cr_assert_eq(files.n, 1u);
    cr_assert_str_eq(files.files[0].path, PATH);
    cr_assert_str_eq(files.files[0].bytes, texts[i]);
    shelf_release(&shelf);
  }
}

Test(format_triton_table, the_winner_is_the_least_list_as_python_compares_them) {
  check_winner("[" CONFIG("1") ", [2.0, 1.0, 3.0]], [" CONFIG("2") ", [1.0, 1.0, 3.0]]", "2");
  check_winner("[" CONFIG("1") ", [1.0, 0.5, 3.0]], [" CONFIG("2") ", [1.0, 0.4, 3.0]]", "2");
  check_winner("[" CONFIG("1") ", [1.0, 1.0, 3.0]], [" CONFIG("2") ", [1.0, 1.0, 3.0]]", "1");
  check_winner("[" CONFIG("1") ", 2.0], [" CONFIG("2") ", 1.5]", "2");
}

Test(format_triton_table, configs_that_did_not_run_are_no_winners) {
  check_winner(
      "[" CONFIG("1") ", [Infinity, Infinity, Infinity]], [" CONFIG("2") ", [1.0, 1.0, 3.0]]", "2");
  check_winner(
      "[" CONFIG("\"Infinity \\\"Infinity\"") ", [1.0, 1.0, 1.0]], [" CONFIG("2") ", Infinity]",
      "\"Infinity \\\"Infinity\"");
}

Test(format_triton_table, a_time_of_zero_is_not_known) {
  cleanup_imported struct imported imported =
      imported_of(PATH, TABLE("[" CONFIG("1") ", [0.0, 0.0, 0.0]]"));
  cr_assert_eq(imported.kernels[0].entries[0].n_ms, 0u);
}

Test(format_triton_table, functions_and_forms_of_configs_are_kernels_of_their_own) {
  cleanup_cache_files struct cache_files files = {0};
  files_add_text(&files, "a/" FOLDER "/add.autotune.json",
                 TABLE("[" CONFIG("1") ", [1.0, 1.0, 1.0]]"));
  files_add_text(&files, "a/" OTHER "/add.autotune.json",
                 TABLE("[" CONFIG("2") ", [1.0, 1.0, 1.0]]"));
  files_add_text(&files, "a/" FOLDER "/mul.autotune.json",
                 TABLE("[" CONFIG("1") ", [1.0, 1.0, 1.0]]"));
  files_add_text(&files, "b/" FOLDER "/add.autotune.json",
                 TABLE("[{\"kwargs\": {}, \"num_warps\": 4}, [1.0, 1.0, 1.0]]"));
  files_add_text(&files, "a/" FOLDER "/__grp__add.json", "no table of ours");
  files_add_text(&files, "a/" FOLDER "/add.hsaco",
                 "\x7f"
                 "ELF");
  cleanup_imported struct imported imported = {0};
  struct error error;
  cr_assert(
      cache_format_read(&format_triton, &(struct import_request){&files, NULL}, &imported, &error),
      "%s", error.message);
  cr_assert_eq(imported.n_kernels, 3u);
  cr_assert_eq(imported.kernels[0].n_entries, 2u);
  cr_assert(json_is_object(imported.environment)); /* although no file states one */
}

Test(format_triton_table, wrong_files_are_refused) {
  static const struct {
    const char *path, *text, *message;
  } cases[] = {
      {"add.autotune.json", TABLE(""), "52 characters of base32"},
      {"x/add.autotune.json", TABLE(""), "52 characters of base32"},
      {"A" FOLDER "/add.autotune.json", TABLE(""), "52 characters of base32"},
      {PATH, "{\"key\": [1]", "line 1"},
      {PATH, "[]", "must be an object"},
      {PATH, "{\"key\": [1], \"key\": [2]}", "duplicate"},
      {PATH, "{\"key\": [1]}", "\"configs_timings\" is missing"},
      {PATH, "{\"configs_timings\": []}", "\"key\" is missing"},
      {PATH, "{\"key\": 1, \"configs_timings\": []}", "an array"},
      {PATH, "{\"key\": [], \"configs_timings\": [], \"more\": 1}", "unknown member"},
      {PATH, TABLE(""), "1 to 65536 configs"},
      {PATH, TABLE("1"), "a pair"},
      {PATH, TABLE("[" CONFIG("1") "]"), "a pair"},
      {PATH, TABLE("[1, [1.0, 1.0, 1.0]]"), "an object with \"kwargs\""},
      {PATH, TABLE("[{\"num_warps\": 4}, [1.0, 1.0, 1.0]]"), "an object with \"kwargs\""},
      {PATH, TABLE("[{\"kwargs\": 1}, [1.0, 1.0, 1.0]]"), "\"kwargs\" must be an object"},
      {PATH, TABLE("[{\"kwargs\": {\"A\": [1]}}, [1.0, 1.0, 1.0]]"), "not an array"},
      {PATH, TABLE("[{\"kwargs\": {\"num_warps\": 1}}, [1.0, 1.0, 1.0]]"),
       "\"num_warps\" is in kwargs"},
      {PATH, TABLE("[{\"kwargs\": {\"pre_hook\": 1}, \"pre_hook\": null}, [1.0, 1.0, 1.0]]"),
       "is in kwargs"},
      {PATH, TABLE("[{\"kwargs\": {}, \"more\": 1}, [1.0, 1.0, 1.0]]"), "has no member \"more\""},
      {PATH, TABLE("[{\"kwargs\": {}, \"num_warps\": \"4\"}, [1.0, 1.0, 1.0]]"),
       "\"num_warps\" must be an integer"},
      {PATH, TABLE("[{\"kwargs\": {}, \"num_stages\": 99999999999999999999}, [1.0, 1.0, 1.0]]"),
       "line 1"},
      {PATH, TABLE("[{\"kwargs\": {}, \"maxnreg\": [4]}, [1.0, 1.0, 1.0]]"), "not an array"},
      {PATH, TABLE("[{\"kwargs\": {}, \"pre_hook\": 1}, [1.0, 1.0, 1.0]]"),
       "\"pre_hook\" must be null"},
      {PATH, TABLE("[" CONFIG("1") ", [1.0, 1.0]]"), "here are 2 numbers"},
      {PATH, TABLE("[" CONFIG("1") ", [1.0, -1.0, 1.0]]"), "0 or more"},
      {PATH, TABLE("[" CONFIG("1") ", \"1.0\"]"), "0 or more"},
      {PATH, TABLE("[" CONFIG("1") ", [-Infinity, 1.0, 1.0]]"), "line 1"},
      {PATH, TABLE("[" CONFIG("1") ", [NaN, 1.0, 1.0]]"), "line 1"},
      {PATH, TABLE("[" CONFIG("1") ", [1e999, 1.0, 1.0]]"), "line 1"},
      {PATH, TABLE("[" CONFIG("1") ", [Infinity, Infinity, Infinity]]"), "no config ran"},
      {PATH, TABLE("[" CONFIG("Infinity") ", [1.0, 1.0, 1.0]]"), "Infinity is only the timing"},
      {PATH, TABLE("[" CONFIG("1") ", [1.0, 1.0, 1.0]], [" CONFIG("2") ", [null, 1.0, 1.0]]"),
       "Infinity is only the timing"},
      {FOLDER "/a b.autotune.json", TABLE("[" CONFIG("1") ", [1.0, 1.0, 1.0]]"),
       "letters, digits"}};
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++)
    check_read_refused(&format_triton, cases[i].path, cases[i].text, cases[i].message);
}

static void check_files_refused(const struct cache_files *files, const struct kernel *kernel,
                                const char *message) {
  struct imported imported;
  struct error error;
  cr_assert(!cache_format_read(&format_triton, &(struct import_request){files, kernel}, &imported,
                               &error));
  cr_assert(strstr(error.message, message), "%s", error.message);
}

#define MANIFEST(exports)                                                                          \
  "{\"name\": \"triton/add\", \"language\": \"external\", \"key\": [\"folder\", \"key\"], "        \
  "\"exports\": {" exports "}}"

Test(format_triton_table, trees_that_hold_none_or_one_twice_are_refused) {
  cleanup_cache_files struct cache_files none = {0}, twice = {0}, named = {0};
  files_add_text(&none, "a/add.json", "{}");
  check_files_refused(&none, NULL, "none of the 1 files");
  files_add_text(&twice, "a/" PATH, TABLE("[" CONFIG("1") ", [1.0, 1.0, 1.0]]"));
  files_add_text(&twice, "b/" PATH, TABLE("[" CONFIG("2") ", [1.0, 1.0, 1.0]]"));
  check_files_refused(&twice, NULL, "b/" PATH ": the key");
  files_add_text(&named, FOLDER "/\xff.autotune.json", TABLE("[" CONFIG("1") ", [1.0, 1.0, 1.0]]"));
  check_files_refused(&named, NULL, "not UTF-8");
  cleanup_kernel struct kernel *kernel = kernel_of(MANIFEST("\"triton\": {}"));
  check_files_refused(&twice, kernel, "omit --kernel");
}

static bool render_manifests(const char *const *manifests, size_t n, const char *const *keys,
                             const char *config, struct cache_files *ret, struct error *error) {
  struct shelf shelf = {0};
  struct winner winners[2];
  for (size_t i = 0; i < n; i++) {
    shelf.kernels[shelf.n_kernels++] = kernel_of(manifests[i]);
    winners[i] = (struct winner){shelf.kernels[i], keys[i], config, "{\"origin\": \"imported\"}",
                                 i ? 1 : 0,        {0.5}};
  }
  cleanup_release struct release *release = release_of(winners, n);
  struct cache_source source = shelf_source(&shelf);
  bool ok = format_triton.render(&(struct render_request){.release = release, .source = &source},
                                 ret, error);
  shelf_release(&shelf);
  return ok;
}

#define EXPORTS(function, kwargs)                                                                  \
  "\"triton\": {\"function\": " function ", \"kwargs\": " kwargs                                   \
  ", \"members\": [\"kwargs\", \"num_warps\"]}"
#define KEY(folder, text) "{\"folder\": \"" folder "\", \"key\": \"" text "\"}"

Test(format_triton_table, what_cannot_be_written_again_is_skipped_with_the_reason) {
  static const struct {
    const char *manifest, *key, *config, *message;
  } cases[] = {
      {MANIFEST("\"dejavu\": {}"), KEY(FOLDER, "[1]"), "{\"num_warps\": 4}",
       "table of another format"},
      {MANIFEST("\"triton\": {}"), KEY(FOLDER, "[1]"), "{\"num_warps\": 4}",
       "exports do not state"},
      {MANIFEST(EXPORTS("\"../x\"", "[]")), KEY(FOLDER, "[1]"), "{\"num_warps\": 4}",
       "exports do not state"},
      {MANIFEST(EXPORTS("\"\"", "[]")), KEY(FOLDER, "[1]"), "{\"num_warps\": 4}",
       "exports do not state"},
      {MANIFEST(EXPORTS("\"add\"", "[]")), KEY("../..", "[1]"), "{\"num_warps\": 4}",
       "not a folder"},
      {MANIFEST(EXPORTS("\"add\"", "[]")), KEY(FOLDER, "1"), "{\"num_warps\": 4}", "not a folder"},
      {MANIFEST(EXPORTS("\"add\"", "[]")), KEY(FOLDER, "[1"), "{\"num_warps\": 4}", "not a folder"},
      {MANIFEST(EXPORTS("\"add\"", "[]")), KEY(FOLDER, "[1]"), "{\"num_stages\": 4}",
       "no \"num_warps\""},
      {MANIFEST("\"triton\": {\"function\": \"add\", \"members\": [\"more\"]}"), KEY(FOLDER, "[1]"),
       "{\"more\": 4}", "no \"more\""},
      {MANIFEST("\"triton\": {\"function\": \"add\", \"members\": [1]}"), KEY(FOLDER, "[1]"),
       "{\"more\": 4}", "no \"\""}};
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
    struct cache_files files = {0};
    struct error error;
    cr_assert(
        !render_manifests(&cases[i].manifest, 1, &cases[i].key, cases[i].config, &files, &error),
        "%zu", i);
    cr_assert(strstr(error.message, cases[i].message), "%s", error.message);
  }
}

Test(format_triton_table, of_two_kernels_for_one_file_the_first_is_written) {
  static const char *const manifests[] = {MANIFEST(EXPORTS("\"add\"", "[]")),
                                          MANIFEST(EXPORTS("\"add\"", "[\"A\"]"))};
  static const char *const keys[] = {KEY(FOLDER, "[1]"), KEY(FOLDER, "[2]")};
  cleanup_cache_files struct cache_files files = {0};
  struct error error;
  cr_assert(render_manifests(manifests, 2, keys, "{\"num_warps\": 4}", &files, &error), "%s",
            error.message);
  cr_assert_eq(files.n, 1u);
  cr_assert_eq(files.n_skipped, 1u);
  cr_assert(strstr(files.skipped[0].reason, "another winner of the release makes " PATH), "%s",
            files.skipped[0].reason);
}

Test(format_triton_table, a_kernel_that_the_source_does_not_have_is_left_out) {
  struct shelf shelf = {0}, empty = {0};
  cleanup_imported struct imported imported =
      imported_of(PATH, TABLE("[" CONFIG("1") ", [1.0, 1.0, 1.0]]"));
  cleanup_release struct release *release = release_of_imported(&imported, "triton", &shelf);
  struct cache_source source = shelf_source(&empty), none = {0};
  cleanup_cache_files struct cache_files files = {0}, others = {0};
  struct error error;
  cr_assert(!format_triton.render(&(struct render_request){.release = release, .source = &source},
                                  &files, &error));
  cr_assert(strstr(error.message, "\"triton/add\": the image has no record of it, and the other "
                                  "source of one is missing: no such kernel"),
            "%s", error.message);
  cr_assert(!format_triton.render(&(struct render_request){.release = release, .source = &none},
                                  &others, &error));
  cr_assert(strstr(error.message, "neither the image nor a build"), "%s", error.message);
  shelf_release(&shelf);
}

Test(format_triton_table, a_file_that_is_too_large_is_refused) {
  check_size_refused(&format_triton, PATH);
}
