/* Inductor's .best_config files: they come back byte for byte, at their places, and what is no such
 * file is refused. */
#include "format_fixture.h"

extern const struct cache_format format_inductor;

#define HASH "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define PLACE "c7/" HASH ".best_config"
#define TEXT                                                                                       \
  "{\"XBLOCK\": 64, \"RBLOCK\": 8, \"num_warps\": 4, \"num_stages\": 1, \"configs_hash\": "        \
  "\"ab12\","                                                                                      \
  " \"found_by_coordesc\": false, \"time_taken_ms\": 53, \"triton_cache_hash\": \"LJRKDJI2\"}"

static bool read_file(const char *path, const char *text, struct imported *ret,
                      struct error *error) {
  cleanup_cache_files struct cache_files files = {0};
  files_add_text(&files, path, text);
  return cache_format_read(&format_inductor, &(struct import_request){&files, NULL}, ret, error);
}

static struct imported imported_of(const char *path, const char *text) {
  struct imported imported = {0};
  struct error error;
  cr_assert(read_file(path, text, &imported, &error), "%s", error.message);
  return imported;
}

#define NESTED(value)                                                                              \
  "{\"num_warps\": 4, \"num_stages\": 1, \"configs_hash\": \"ab12\", \"extra_options\": " value "}"

static void expect_same(const char *text) {
  struct shelf shelf = {0};
  cleanup_imported struct imported imported = imported_of("torchinductor_root/" PLACE, text);
  cleanup_release struct release *release = release_of_imported(&imported, "inductor", &shelf);
  struct cache_source source = shelf_source(&shelf);
  cleanup_cache_files struct cache_files files = {0};
  struct error error;
  cr_assert(format_inductor.render(&(struct render_request){.release = release, .source = &source},
                                   &files, &error),
            "%s", error.message);
  cr_assert_eq(files.n, 1u);
  cr_assert_str_eq(files.files[0].path, PLACE);
  cr_assert_str_eq(files.files[0].bytes, text);
  cr_assert_str_eq(variable_of(&files, "TORCHINDUCTOR_CACHE_DIR"), "");
  cr_assert_eq(files.folder_mode, 0777u);
  shelf_release(&shelf);
}

Test(format_inductor, a_file_comes_back_byte_for_byte_at_its_place) { expect_same(TEXT); }

Test(format_inductor, options_of_other_back_ends_come_back_in_their_order) {
  expect_same(NESTED("{\"zeta\": {\"b\": [1, 2.5, null], \"a\": \"x\"}, \"alpha\": true}"));
}

Test(format_inductor, the_config_is_apart_from_what_inductor_says_of_it) {
  cleanup_imported struct imported imported = imported_of(PLACE, TEXT);
  const struct imported_entry *entry = &imported.kernels[0].entries[0];
  cleanup_free char *key = json_canonical(entry->key), *config = json_canonical(entry->config),
                    *provenance = json_canonical(entry->provenance);
  cr_assert_str_eq(key, "{\"configs_hash\":\"ab12\",\"file\":\"" PLACE "\"}");
  cr_assert_str_eq(config, "{\"RBLOCK\":8,\"XBLOCK\":64,\"num_stages\":1,\"num_warps\":4}");
  cr_assert_str_eq(provenance, "{\"found_by_coordesc\":false,"
                               "\"members\":\"XBLOCK,RBLOCK,num_warps,num_stages,configs_hash,"
                               "found_by_coordesc,time_taken_ms,"
                               "triton_cache_hash\",\"source\":\"" PLACE
                               "\",\"time_taken_ms\":53,\"triton_cache_hash\":\"LJRKDJI2\"}");
  cr_assert_eq(entry->n_ms, 0u, "time_taken_ms is that of the tuning");
}

Test(format_inductor, what_else_lies_in_the_cache_is_passed_over) {
  cleanup_cache_files struct cache_files files = {0};
  files_add_text(&files, "c7/" HASH ".py", "def f(): pass");
  files_add_text(&files, PLACE, TEXT);
  files_add_text(&files, "fxgraph/ab/cd", "\x80");
  cleanup_imported struct imported imported = {0};
  struct error error;
  cr_assert(cache_format_read(&format_inductor, &(struct import_request){&files, NULL}, &imported,
                              &error),
            "%s", error.message);
  cr_assert_eq(imported.kernels[0].n_entries, 1u);
}

Test(format_inductor, wrong_files_are_refused) {
  static const struct {
    const char *path, *text, *message;
  } cases[] = {
      {"c7/0123.best_config", TEXT, "not named FOLDER/<64 hex"},
      {HASH ".best_config", TEXT, "not named FOLDER/<64 hex"},
      {"c.7/" HASH ".best_config", TEXT, "not named FOLDER/<64 hex"},
      {PLACE, "{\"num_warps\": 4", "line 1"},
      {PLACE, "[]", "must be an object"},
      {PLACE, "{\"XBLOCK\": 1, \"XBLOCK\": 2}", "duplicate"},
      {PLACE, "{\"XBLOCK\": 1, \"num_warps\": 4, \"num_stages\": 1}",
       "\"configs_hash\" is missing"},
      {PLACE, "{\"XBLOCK\": 1, \"num_stages\": 1, \"configs_hash\": \"a\"}",
       "\"num_warps\" is missing"},
      {PLACE, "{\"XBLOCK\": 1, \"num_warps\": 4, \"configs_hash\": \"a\"}",
       "\"num_stages\" is missing"},
      {PLACE, "{\"num_warps\": 99999, \"num_stages\": 1, \"configs_hash\": \"a\"}", "num_warps"},
      {PLACE,
       "{\"num_warps\": 4, \"num_stages\": 1, \"configs_hash\": \"a\", \"found_by_coordesc\": 1}",
       "boolean"},
      {PLACE, "{\"X\": [1], \"num_warps\": 4, \"num_stages\": 1, \"configs_hash\": \"a\"}",
       "not an array"},
      {PLACE, "{\"a,b\": 1, \"num_warps\": 4, \"num_stages\": 1, \"configs_hash\": \"a\"}",
       "letters, digits and _"}};
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++)
    check_read_refused(&format_inductor, cases[i].path, cases[i].text, cases[i].message);
}

static void check_files_refused(const struct cache_files *files, const struct kernel *kernel,
                                const char *message) {
  struct imported imported;
  struct error error;
  cr_assert(!cache_format_read(&format_inductor, &(struct import_request){files, kernel}, &imported,
                               &error));
  cr_assert(strstr(error.message, message), "%s", error.message);
}

#define MANIFEST(key, exports)                                                                     \
  "{\"name\": \"inductor\", \"language\": \"external\", \"key\": " key ", \"exports\": {" exports  \
  "}}"

Test(format_inductor, trees_that_hold_none_or_one_twice_are_refused) {
  cleanup_cache_files struct cache_files none = {0}, twice = {0}, named = {0};
  files_add_text(&none, "a.py", "");
  check_files_refused(&none, NULL, "cache folder (TORCHINDUCTOR_CACHE_DIR)");
  files_add_text(&twice, "a/" PLACE, TEXT);
  files_add_text(&twice, "b/" PLACE, TEXT);
  check_files_refused(&twice, NULL, "b/c7/");
  files_add_text(&named, "\xff/" PLACE, TEXT);
  check_files_refused(&named, NULL, "not UTF-8");
  cleanup_kernel struct kernel *kernel = kernel_of(MANIFEST("[\"file\"]", "\"inductor\": {}"));
  check_files_refused(&none, kernel, "omit --kernel");
}

Test(format_inductor, files_of_too_many_members_are_refused) {
  cleanup_json json_t *json = json_of(TEXT);
  for (int i = 0; i < 64; i++) {
    cleanup_free char *name = xasprintf("X%d", i);
    json_object_set_new(json, name, json_integer(i));
  }
  cleanup_free char *text = json_canonical(json);
  check_read_refused(&format_inductor, PLACE, text, "has 72 members; at most 64");
}

static bool render_winners(const char *manifest, const struct winner *winners, size_t n,
                           struct cache_files *ret, struct error *error) {
  struct shelf shelf = {.n_kernels = 1, .kernels = {kernel_of(manifest)}};
  struct winner own[2];
  for (size_t i = 0; i < n; i++) {
    own[i] = winners[i];
    own[i].kernel = shelf.kernels[0];
  }
  cleanup_release struct release *release = release_of(own, n);
  struct cache_source source = shelf_source(&shelf);
  bool ok = format_inductor.render(&(struct render_request){.release = release, .source = &source},
                                   ret, error);
  shelf_release(&shelf);
  return ok;
}

#define OF_INDUCTOR MANIFEST("[\"file\", \"configs_hash\"]", "\"inductor\": {}")
#define MEMBERS(names) "{\"origin\": \"imported\", \"members\": \"" names "\"}"

Test(format_inductor, what_did_not_come_from_inductor_is_skipped_with_the_reason) {
  static const struct {
    const char *manifest;
    struct winner winner;
    const char *message;
  } cases[] = {{MANIFEST("[\"n\"]", "\"dejavu\": {}"),
                {NULL, "{\"n\": 1}", "{\"X\": 1}", "{\"origin\": \"imported\"}", 0, {0}},
                "did not come from Inductor"},
               {OF_INDUCTOR,
                {NULL,
                 "{\"file\": \"../../x\", \"configs_hash\": \"a\"}",
                 "{\"X\": 1}",
                 MEMBERS("X"),
                 0,
                 {0}},
                "does not name a file of Inductor"},
               {OF_INDUCTOR,
                {NULL,
                 "{\"file\": \"" PLACE "\", \"configs_hash\": \"a\"}",
                 "{\"X\": 1}",
                 "{\"origin\": \"imported\"}",
                 0,
                 {0}},
                "does not have the members"},
               {OF_INDUCTOR,
                {NULL,
                 "{\"file\": \"" PLACE "\", \"configs_hash\": \"a\"}",
                 "{\"X\": 1}",
                 MEMBERS("X,Y"),
                 0,
                 {0}},
                "has \"Y\""},
               {OF_INDUCTOR,
                {NULL,
                 "{\"file\": \"" PLACE "\", \"configs_hash\": \"a\"}",
                 "{\"X\": 1}",
                 "{\"origin\": \"imported\", \"members\": \"extra_options\", \"extra_options\": "
                 "\"{\"}",
                 0,
                 {0}},
                "not the text of a JSON value"}};
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
    struct cache_files files = {0};
    struct error error;
    cr_assert(!render_winners(cases[i].manifest, &cases[i].winner, 1, &files, &error), "%zu", i);
    cr_assert(strstr(error.message, cases[i].message), "%s", error.message);
  }
}

Test(format_inductor, one_that_cannot_be_said_does_not_hold_up_the_others) {
  const struct winner winners[] = {{NULL,
                                    "{\"file\": \"../../x\", \"configs_hash\": \"a\"}",
                                    "{\"X\": 1}",
                                    MEMBERS("X"),
                                    0,
                                    {0}},
                                   {NULL,
                                    "{\"file\": \"" PLACE "\", \"configs_hash\": \"a\"}",
                                    "{\"X\": 1}",
                                    MEMBERS("X,configs_hash"),
                                    0,
                                    {0}}};
  cleanup_cache_files struct cache_files files = {0};
  struct error error;
  cr_assert(render_winners(OF_INDUCTOR, winners, 2, &files, &error), "%s", error.message);
  cr_assert_eq(files.n, 1u);
  cr_assert_str_eq(files.files[0].bytes, "{\"X\": 1, \"configs_hash\": \"a\"}");
  cr_assert(says_skipped(&files, "does not name a file of Inductor"));
}

Test(format_inductor, of_two_winners_for_one_file_the_first_is_written) {
  const struct winner winners[] = {{NULL,
                                    "{\"file\": \"" PLACE "\", \"configs_hash\": \"a\"}",
                                    "{\"X\": 1}",
                                    MEMBERS("X"),
                                    0,
                                    {0}},
                                   {NULL,
                                    "{\"file\": \"" PLACE "\", \"configs_hash\": \"b\"}",
                                    "{\"X\": 2}",
                                    MEMBERS("X"),
                                    0,
                                    {0}}};
  cleanup_cache_files struct cache_files files = {0};
  struct error error;
  cr_assert(render_winners(OF_INDUCTOR, winners, 2, &files, &error), "%s", error.message);
  cr_assert_eq(files.n, 1u);
  cr_assert_str_eq(files.files[0].bytes, "{\"X\": 1}");
  cr_assert(says_skipped(&files, "another winner of the release makes " PLACE));
}

Test(format_inductor, a_kernel_that_the_source_does_not_have_is_left_out) {
  struct shelf shelf = {.n_kernels = 2,
                        .kernels = {kernel_of(OF_INDUCTOR),
                                    kernel_of(MANIFEST("[\"file\"]", "\"inductor\": {}"))}},
               half = shelf;
  const struct winner winners[] = {
      {shelf.kernels[0],
       "{\"file\": \"" PLACE "\", \"configs_hash\": \"a\"}",
       "{\"X\": 1}",
       MEMBERS("X"),
       0,
       {0}},
      {shelf.kernels[1], "{\"file\": \"" PLACE "\"}", "{\"X\": 2}", MEMBERS("X"), 0, {0}}};
  cleanup_release struct release *release = release_of(winners, 2);
  struct cache_source source = shelf_source(&half);
  cleanup_cache_files struct cache_files files = {0}, nothing = {0};
  struct error error;
  const struct render_request request = {.release = release, .source = &source};
  half.n_kernels = 1;
  cr_assert(format_inductor.render(&request, &files, &error), "%s", error.message);
  cr_assert_eq(files.n, 1u);
  cr_assert_str_eq(files.files[0].bytes, "{\"X\": 1}");
  cr_assert_eq(files.n_skipped, 1u);
  cr_assert(says_skipped(&files, "no such kernel"));
  half.n_kernels = 0;
  cr_assert(!format_inductor.render(&request, &nothing, &error));
  cr_assert(strstr(error.message, "no such kernel"), "%s", error.message);
  shelf_release(&shelf);
}

Test(format_inductor, a_file_that_is_too_large_is_refused) {
  check_size_refused(&format_inductor, PLACE);
}
