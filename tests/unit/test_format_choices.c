/* The format `choices`: keys as an autotuner has them, configs, compiled code by its digests, and
 * the reasons why a winner is left out. */
#include "format_fixture.h"

extern const struct cache_format format_choices;

#define DIGEST "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define CLOSURE "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define FOLDER "LJRKDJI2OBMAZKYNPTGZ7GWDEXQ2H6345JVO4N5ZD6MLTWYCLTIQ"
#define MANIFEST(name, language, key, more)                                                        \
  "{\"name\": \"" name "\", \"language\": \"" language "\", \"entry\": \"add\", \"key\": " key     \
  ", \"arguments\": [{\"name\": \"x\", \"dtype\": \"float16\", \"shape\": [\"n\"], \"access\": "   \
  "\"readwrite\"}], \"sources\": [{\"path\": \"add.py\", \"digest\": \"" DIGEST                    \
  "\"}], \"launch\": {\"grid\": [\"n\"]" more "}}"
#define RECORD_OF(function, tuning_key)                                                            \
  "{\"name\": \"add\", \"function\": {\"name\": \"add\"" function                                  \
  "}, \"key_names\": [\"n\"], \"tuning_key\": [\"" tuning_key                                      \
  "\"], \"argument_dtypes\": [\"torch.float16\"]}"
#define WITH_CLOSURE ", \"closure\": \"" CLOSURE "\""

/* Adds a build of the shelf's kernel; its config of 64 has what Triton keeps. The caller frees the
 * provenance. */
static char *shelf_add_build(struct shelf *shelf, size_t kernel, const char *record) {
  char hash[DIGEST_TEXT_SIZE], digest[DIGEST_TEXT_SIZE];
  cleanup_json json_t *json =
      json_pack("{s:s, s:{s:s}, s:s, s:i, s:[{s:{s:s}, s:[{s:{s:i}, s:s, s:{s:{s:s, s:{s:s}}}}, "
                "{s:{s:i}, s:s}]}]}",
                "kernel", digest_format(&shelf->kernels[kernel]->hash, hash), "toolchain", "triton",
                "3.6.0", "arch", "gfx942", "warp_size", 64, "variants", "signature", "x", "*fp16",
                "objects", "config", "BLOCK", 64, "digest", DIGEST, "metadata", "cache", "folder",
                FOLDER, "files", "add.json", DIGEST, "config", "BLOCK", 128, "digest", DIGEST);
  struct build *build = NULL;
  struct error error;
  if (record)
    ALWAYS(json_object_set_new(json, "record", json_of(record)) == 0);
  cr_assert(build_parse(json, shelf->kernels[kernel], &build, &error), "%s: %s", error.pointer,
            error.message);
  shelf->builds[shelf->n_builds++] = build;
  return xasprintf("{\"origin\": \"tuned\", \"build\": \"%s\", \"spent_device_seconds\": 1.25}",
                   digest_format(&build->digest, digest));
}

static bool render(const struct release *release, struct shelf *shelf,
                   const struct identity *identity, struct cache_files *ret, struct error *error) {
  struct cache_source source = shelf_source(shelf);
  return format_choices.render(
      &(struct render_request){.release = release, .source = &source, .identity = identity}, ret,
      error);
}

Test(format_choices, keys_are_those_of_the_autotuner_and_code_is_named_by_digest) {
  struct shelf shelf = {.n_kernels = 1,
                        .kernels = {kernel_of(MANIFEST("add/triton", "triton", "[\"n\"]", ""))}};
  cleanup_free char *made = shelf_add_build(&shelf, 0, RECORD_OF(WITH_CLOSURE, "2 * n"));
  cleanup_release struct release *release = release_of(
      (struct winner[]){{shelf.kernels[0], "{\"n\": 1024}", "{\"BLOCK\": 128}", made, 0, {0}},
                        {shelf.kernels[0], "{\"n\": 2048}", "{\"BLOCK\": 64}", made, 0, {0}}},
      2);
  cleanup_cache_files struct cache_files files = {0};
  struct error error;
  cr_assert(render(release, &shelf, NULL, &files, &error), "%s", error.message);
  cr_assert(files.n == 1 && files.n_skipped == 0);
  cleanup_json json_t *document = json_of(file_text(&files, "choices.json"));
  char digest[DIGEST_TEXT_SIZE];
  cleanup_json json_t *expected = json_of(
      "{\"code\": {\"" FOLDER "\": {\"add.json\": \"" DIGEST "\"}}, \"environment\": {}, "
      "\"functions\": {\"" CLOSURE "\": {\"name\": \"add\", \"choices\": ["
      "{\"config\": {\"BLOCK\": 128}, \"key\": [\"2048\", \"'torch.float16'\"], "
      "\"tuning_ms\": 1250.0}, "
      "{\"code\": \"" FOLDER "\", \"config\": {\"BLOCK\": 64}, \"key\": [\"4096\", "
      "\"'torch.float16'\"], \"tuning_ms\": 1250.0}], \"launchers\": [{\"x\": \"*fp16\"}]}}, "
      "\"regime\": \"cold\", \"tag\": \"default\", \"version\": 1}");
  json_put(expected, "release", json_string(digest_format(&release->digest, digest)));
  json_t *environment = environment_to_json(&release->environment);
  json_put(expected, "environment", environment);
  cr_assert(json_equal(document, expected), "%s", file_text(&files, "choices.json"));
  cr_assert_str_eq(variable_of(&files, "WAVETUNE_CACHE"), "");
  shelf_release(&shelf);
}

/* Of host descriptors, which have none, an autotuner appends no dtypes. */
Test(format_choices, a_key_without_dtypes_is_not_one_whose_dtypes_are_not_stated) {
  static const struct {
    const char *more, *key;
  } cases[] = {{", \"argument_dtypes\": []", "[\"7\"]"}, {"", "[\"7\",\"'torch.float16'\"]"}};
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
    struct shelf shelf = {.n_kernels = 1,
                          .kernels = {kernel_of(MANIFEST("add/triton", "triton", "[\"n\"]", ""))}};
    cleanup_free char *record =
        xasprintf("{\"name\": \"add\", \"function\": {\"name\": \"add\"" WITH_CLOSURE
                  "}, \"key_names\": [\"n\"], \"tuning_key\": [\"n\"]%s}",
                  cases[i].more);
    cleanup_free char *made = shelf_add_build(&shelf, 0, record);
    cleanup_release struct release *release = release_of(
        (struct winner[]){{shelf.kernels[0], "{\"n\": 7}", "{\"BLOCK\": 64}", made, 0, {0}}}, 1);
    cleanup_cache_files struct cache_files files = {0};
    struct error error;
    cr_assert(render(release, &shelf, NULL, &files, &error), "%s", error.message);
    cr_expect(strstr(file_text(&files, "choices.json"), cases[i].key), "%s",
              file_text(&files, "choices.json"));
    shelf_release(&shelf);
  }
}

#define FOLDER_2 "MJRKDJI2OBMAZKYNPTGZ7GWDEXQ2H6345JVO4N5ZD6MLTWYCLTIQ"
#define FOLDER_3 "NJRKDJI2OBMAZKYNPTGZ7GWDEXQ2H6345JVO4N5ZD6MLTWYCLTIQ"
#define OBJECT(block, folder, more)                                                                \
  "{\"config\": {\"BLOCK\": " block "}, \"digest\": \"" DIGEST "\"" more                           \
  ", \"metadata\": {\"cache\": {\"folder\": \"" folder "\", \"files\": {\"add.json\": \"" DIGEST   \
  "\"}}}}"

Test(format_choices, code_of_each_specialisation_of_a_captured_key_is_named) {
  struct shelf shelf = {
      .n_kernels = 1,
      .kernels = {kernel_of(
          "{\"name\": \"add/captured\", \"language\": \"triton\", \"entry\": \"add\", \"cases\": "
          "\"build\", \"sources\": [{\"path\": \"add.py\", \"digest\": \"" DIGEST
          "\"}], \"key\": [\"n\"], \"arguments\": [{\"name\": \"x\", \"dtype\": \"float16\", "
          "\"kind\": "
          "\"buffer\"}]}")}};
  char hash[DIGEST_TEXT_SIZE], digest[DIGEST_TEXT_SIZE];
  cleanup_json json_t *json =
      json_of("{\"toolchain\": {\"triton\": \"3.6.0\"}, \"arch\": \"gfx942\", \"warp_size\": 64, "
              "\"record\": " RECORD_OF(
                  WITH_CLOSURE,
                  "n") ", \"variants\": [{\"key\": {\"n\": 1}, \"case\": "
                       "{\"arguments\": {\"x\": {\"elements\": 8, \"access\": \"readwrite\", "
                       "\"fill\": \"normal\"}}}, "
                       "\"signature\": {\"x\": \"*fp16\"}, \"objects\": [" OBJECT(
                           "64", FOLDER,
                           ", \"grid\": [1, 1, 1]") "], \"also\": [{\"signature\": {\"x\": "
                                                    "\"*fp16\", \"n\": \"i32\"}, \"objects\": "
                                                    "[" OBJECT("64", FOLDER_2,
                                                               "") "]}, {\"signature\": {\"x\": "
                                                                   "\"*fp32\"}, \"objects\": "
                                                                   "[" OBJECT("128", FOLDER_3,
                                                                              "") "]}]}]}");
  json_put(json, "kernel", json_string(digest_format(&shelf.kernels[0]->hash, hash)));
  struct error error;
  cr_assert(build_parse(json, shelf.kernels[0], &shelf.builds[shelf.n_builds++], &error), "%s: %s",
            error.pointer, error.message);
  cleanup_free char *made = xasprintf("{\"origin\": \"tuned\", \"build\": \"%s\"}",
                                      digest_format(&shelf.builds[0]->digest, digest));
  cleanup_release struct release *release = release_of(
      &(struct winner){shelf.kernels[0], "{\"n\": 1}", "{\"BLOCK\": 64}", made, 0, {0}}, 1);
  cleanup_cache_files struct cache_files files = {0};
  cr_assert(render(release, &shelf, NULL, &files, &error), "%s", error.message);
  cleanup_json json_t *document = json_of(file_text(&files, "choices.json")),
                      *code = json_of("{\"" FOLDER "\": {\"add.json\": \"" DIGEST "\"}, \"" FOLDER_2
                                      "\": {\"add.json\": \"" DIGEST "\"}}"),
                      *launchers =
                          json_of("[{\"x\": \"*fp16\"}, {\"x\": \"*fp16\", \"n\": \"i32\"}]");
  const json_t *function = json_object_get(json_object_get(document, "functions"), CLOSURE);
  cr_expect(json_equal(json_object_get(document, "code"), code), "those of the winner's config: %s",
            file_text(&files, "choices.json"));
  cr_expect(json_equal(json_object_get(function, "launchers"), launchers));
  cr_expect_str_eq(json_string_value(json_object_get(
                       json_array_get(json_object_get(function, "choices"), 0), "code")),
                   FOLDER);
  shelf_release(&shelf);
}

Test(format_choices, the_images_function_names_the_choice) {
  struct shelf shelf = {.n_kernels = 1,
                        .kernels = {kernel_of(MANIFEST("add/triton", "triton", "[\"n\"]", ""))}};
  cleanup_free char *made = shelf_add_build(&shelf, 0, NULL);
  cleanup_release struct release *release = release_of(
      &(struct winner){shelf.kernels[0], "{\"n\": 1}", "{\"BLOCK\": 64}", made, 0, {0}}, 1);
  cleanup_identity struct identity *identity =
      identity_of("{\"version\": 1, \"functions\": [{\"name\": \"add/triton\", \"function\": "
                  "{\"name\": \"own\"" WITH_CLOSURE "}, \"key_names\": [], \"tuning_key\": []}]}");
  cleanup_cache_files struct cache_files files = {0}, none = {0};
  struct error error = {0};
  cr_assert(render(release, &shelf, identity, &files, &error), "%s", error.message);
  cr_assert(strstr(file_text(&files, "choices.json"), "\"name\":\"own\""));
  cr_assert(!render(release, &shelf, NULL, &none, &error));
  cr_assert(strstr(error.message, "neither the image nor a build"), "%s", error.message);
  shelf_release(&shelf);
}

Test(format_choices, what_has_no_choice_is_left_out_with_the_reason) {
  struct shelf shelf = {
      .n_kernels = 3,
      .kernels = {kernel_of(MANIFEST("add/hip", "hip", "[\"n\"]", ", \"block\": [64]")),
                  kernel_of(MANIFEST("add/old", "triton", "[\"n\"]", "")),
                  kernel_of(MANIFEST("add/two", "triton", "[\"n\", \"m\"]", ""))}};
  cleanup_free char *old = shelf_add_build(&shelf, 1, RECORD_OF("", "n")),
                    *two = shelf_add_build(&shelf, 2, RECORD_OF(WITH_CLOSURE, "n"));
  const char *tuned = "{\"origin\": \"tuned\"}";
  cleanup_release struct release *release = release_of(
      (struct winner[]){
          {shelf.kernels[0], "{\"n\": 1}", "{\"BLOCK\": 64}", tuned, 0, {0}},
          {shelf.kernels[1], "{\"n\": 1}", "{\"BLOCK\": 64}", old, 0, {0}},
          {shelf.kernels[2], "{\"n\": 1, \"m\": 1}", "{\"BLOCK\": 64}", two, 0, {0}},
          {shelf.kernels[2], "{\"n\": 1, \"m\": 2}", "{\"BLOCK\": 64}", two, 0, {0}},
          {shelf.kernels[2], "{\"n\": \"\\u00e9\", \"m\": 2}", "{\"BLOCK\": 64}", two, 0, {0}}},
      5);
  cleanup_cache_files struct cache_files files = {0};
  struct error error;
  cr_assert(render(release, &shelf, NULL, &files, &error), "%s", error.message);
  cr_assert_eq(files.n_skipped, 4);
  cr_assert(says_skipped(&files, "not a Triton kernel") && says_skipped(&files, "no closure") &&
            says_skipped(&files, "same key of the autotuner") && says_skipped(&files, "ASCII"));
  shelf_release(&shelf);
}

Test(format_choices, a_document_cannot_be_imported) {
  cleanup_cache_files struct cache_files files = {0};
  struct imported imported;
  struct error error = {0};
  files_add_text(&files, "choices.json", "{}");
  cr_assert(!cache_format_read(&format_choices, &(struct import_request){&files, NULL}, &imported,
                               &error));
  cr_assert(strstr(error.message, "cannot be imported"), "%s", error.message);
}
