/* Triton's own cache: the path that Triton 3.6.0 made on a GPU is reproduced, files come back as
 * they were, compiled artifacts go where the image would find them, and what cannot be said is
 * skipped with the reason. */
#include "format_fixture.h"

extern const struct cache_format format_triton;

#define DATA SOURCE_FOLDER "/tests/data/triton_autotune/"
#define FOLDER "LJRKDJI2OBMAZKYNPTGZ7GWDEXQ2H6345JVO4N5ZD6MLTWYCLTIQ"
#define REAL FOLDER "/add_kernel.autotune.json"
#define CODE_FOLDER "AAAADJI2OBMAZKYNPTGZ7GWDEXQ2H6345JVO4N5ZD6MLTWYCLTIQ"
#define FURTHER_FOLDER "BBBADJI2OBMAZKYNPTGZ7GWDEXQ2H6345JVO4N5ZD6MLTWYCLTIQ"
#define DIGEST "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

/* (4096, 'torch.float16') of the record below: with its own Triton, and with that and the variables
 * of `image`. */
#define PATH_PACKED "7EHBE7M43NEKKD7E4OWXC56PFBXA5NQUAUG6YW44WWXY3CIL6REA/add.autotune.json"
#define PATH_IMAGE "IMLAHS3P4CVZRFPAKCH52NHSAHBM7C62YZGZUNEREZZ2YQJ2DN4Q/add.autotune.json"
/* (8192, True, None, 0.5, "a'b", 'torch.float16', 'torch.float32') of the image's own record. */
#define PATH_OWN "UQJ4CV7MLEKDWKCTS7W6AXLRUNWXL2GF2SSVDVLQFLRGXYWHCL2Q/add.autotune.json"

static char *data_text(const char *name) {
  cleanup_free char *path = xasprintf(DATA "%s", name);
  char *text = NULL;
  size_t size;
  struct error error;
  cr_assert(file_read(path, 1 << 20, &text, &size, &error), "%s", error.message);
  return text;
}

#define MANIFEST(name, key, arguments)                                                             \
  "{\"name\": \"" name "\", \"language\": \"triton\", \"entry\": \"add\", \"key\": " key           \
  ", \"arguments\": [" arguments "], \"sources\": [{\"path\": \"add.py\", \"digest\": \"" DIGEST   \
  "\"}], \"launch\": {\"grid\": [\"n\"]}}"
#define X_POINTER                                                                                  \
  "{\"name\": \"x\", \"dtype\": \"float16\", \"shape\": [\"n\"], \"access\": \"readwrite\"}"

#define CONFIGS                                                                                    \
  "[\"BLOCK: 64, waves_per_eu: 0, num_warps: 4, num_ctas: 1, num_stages: 2, maxnreg: None\","      \
  " \"BLOCK: 128, waves_per_eu: 0, num_warps: 8, num_ctas: 1, num_stages: 2, maxnreg: None\"]"
#define TRITON                                                                                     \
  "\"triton\": {\"version\": \"3.6.0\", \"key\": \"3.6.0k\", \"backend_hash\": "                   \
  "\"GPUTarget(gfx942)\"}"
#define FUNCTION                                                                                   \
  "\"function\": {\"name\": \"add\", \"cache_key\": \"cc\", \"source_sha256\": \"55\"}"
#define KEY                                                                                        \
  "\"key_names\": [\"n\"], \"tuning_key\": [\"n\"], \"argument_dtypes\": [\"torch.float16\"]"
#define AUTOTUNE "\"autotune\": {\"decorator\": \"triton\"}"
#define ADD_RECORD                                                                                 \
  "{\"name\": \"add\", " TRITON ", " FUNCTION ", " KEY ", \"configs\": " CONFIGS ", " AUTOTUNE "}"

static const char usual_metadata[] =
    "{\"hash\": \"h\", \"name\": \"add\", \"target\": {\"backend\": \"hip\"}, \"extern_libs\":"
    " [[\"ocml\", \"/usr/lib/python3/triton/backends/amd/lib/ocml.bc\"]]}";
static const char code[] = "code of block 64";

/* A build of the shelf's first kernel with a record, and what Triton keeps of the config with BLOCK
 * 64; with a `second_code` also of the other one, in the same folder. */
static void shelf_add_build(struct shelf *shelf, const char *record, const char *metadata,
                            const char *second_code) {
  char kernel[DIGEST_TEXT_SIZE], metadata_digest[DIGEST_TEXT_SIZE], code_digest[DIGEST_TEXT_SIZE];
  struct digest of_metadata = digest_of(metadata, strlen(metadata)),
                of_code = digest_of(code, strlen(code));
  cleanup_json json_t *json = json_pack(
      "{s:s, s:{s:s}, s:s, s:i, s:[{s:[{s:{s:i, s:i}, s:s, s:{s:{s:s, s:{s:s, s:s}}}},"
      "{s:{s:i, s:i}, s:s}]}]}",
      "kernel", digest_format(&shelf->kernels[0]->hash, kernel), "toolchain", "triton", "3.6.0",
      "arch", "gfx942", "warp_size", 64, "variants", "objects", "config", "BLOCK", 64, "num_warps",
      4, "digest", digest_format(&of_code, code_digest), "metadata", "cache", "folder", CODE_FOLDER,
      "files", "add.json", digest_format(&of_metadata, metadata_digest), "add.hsaco", code_digest,
      "config", "BLOCK", 128, "num_warps", 8, "digest", code_digest);
  ALWAYS(json != NULL);
  if (record)
    ALWAYS(json_object_set_new(json, "record", json_of(record)) == 0);
  if (second_code) {
    struct digest of_second = digest_of(second_code, strlen(second_code));
    json_t *objects =
        json_object_get(json_array_get(json_object_get(json, "variants"), 0), "objects");
    json_object_set_new(json_array_get(objects, 1), "metadata",
                        json_pack("{s:{s:s, s:{s:s, s:s}}}", "cache", "folder", CODE_FOLDER,
                                  "files", "add.json", metadata_digest, "add.hsaco",
                                  digest_format(&of_second, code_digest)));
    shelf->blobs[shelf->n_blobs++] = second_code;
  }
  struct error error;
  cr_assert(build_parse(json, shelf->kernels[0], &shelf->builds[shelf->n_builds++], &error),
            "%s: %s", error.pointer, error.message);
  shelf->blobs[shelf->n_blobs++] = metadata;
  shelf->blobs[shelf->n_blobs++] = code;
}

static char *provenance_of(const struct shelf *shelf) {
  char text[DIGEST_TEXT_SIZE];
  return shelf->n_builds ? xasprintf("{\"origin\": \"tuned\", \"build\": \"%s\"}",
                                     digest_format(&shelf->builds[0]->digest, text))
                         : xstrdup("{\"origin\": \"tuned\"}");
}

/* What a test asks for; NULL and 0 stand for the usual. */
struct asked {
  const char *manifest, *record, *identity, *root;
  const char *key, *config;
  size_t n_ms;
  double ms[3];
  bool without_build, without_source;
  size_t n_missing;     /* blobs of the build, the last ones first */
  const char *metadata; /* of the compiled code */
};

static bool render(const struct asked *asked, struct cache_files *ret, struct error *error) {
  struct shelf shelf = {
      .n_kernels = 1,
      .kernels = {
          kernel_of(asked->manifest ? asked->manifest : MANIFEST("add", "[\"n\"]", X_POINTER))}};
  if (!asked->without_build)
    shelf_add_build(&shelf, asked->record ? asked->record : ADD_RECORD,
                    asked->metadata ? asked->metadata : usual_metadata, NULL);
  shelf.n_blobs -= asked->n_missing;
  cleanup_free char *provenance = provenance_of(&shelf);
  struct winner winner = {shelf.kernels[0],
                          asked->key ? asked->key : "{\"n\": 4096}",
                          asked->config ? asked->config : "{\"BLOCK\": 64, \"num_warps\": 4}",
                          provenance,
                          asked->n_ms,
                          {asked->ms[0], asked->ms[1], asked->ms[2]}};
  cleanup_release struct release *release = release_of(&winner, 1);
  cleanup_identity struct identity *identity =
      asked->identity ? identity_of(asked->identity) : NULL;
  struct cache_source source = shelf_source(&shelf);
  if (asked->without_source)
    source.blob = NULL;
  bool ok = format_triton.render(
      &(struct render_request){
          .release = release, .source = &source, .identity = identity, .root = asked->root},
      ret, error);
  shelf_release(&shelf);
  return ok;
}

static struct cache_files rendered(const struct asked *asked) {
  struct cache_files files = {0};
  struct error error;
  cr_assert(render(asked, &files, &error), "%s", error.message);
  return files;
}

Test(format_triton, the_path_that_triton_made_on_a_gpu_is_reproduced) {
  cleanup_free char *record = data_text("record.json");
  cleanup_cache_files struct cache_files files = rendered(
      &(struct asked){.manifest = MANIFEST("add/triton", "[\"n\"]", X_POINTER),
                      .record = record,
                      .key = "{\"n\": 1048576}",
                      .config = "{\"BLOCK\": 1024, \"num_stages\": 1, \"num_warps\": 2}",
                      .n_ms = 3,
                      .ms = {0.006016000173985958, 0.005824000108987093, 0.006207999773323536}});
  cr_assert_eq(files.n, 1u);
  cr_assert_str_eq(files.files[0].path, REAL);
  cr_assert_str_eq(
      files.files[0].bytes,
      "{\"key\": [1048576, \"torch.float16\", \"torch.float16\", \"torch.float16\"], "
      "\"configs_timings\": "
      "[[{\"kwargs\": {\"BLOCK\": 1024}, \"num_warps\": 2, \"num_ctas\": 1, \"num_stages\": 1, "
      "\"maxnreg\": null, \"pre_hook\": null}, [0.006016000173985958, 0.005824000108987093, "
      "0.006207999773323536]]]}");
}

Test(format_triton, tells_triton_to_look_there_and_leaves_the_folders_writable) {
  cleanup_cache_files struct cache_files files = rendered(&(struct asked){0});
  cr_assert_str_eq(variable_of(&files, "TRITON_CACHE_DIR"), "");
  cr_assert_str_eq(variable_of(&files, "TRITON_CACHE_AUTOTUNING"), "1");
  cr_assert_eq(files.folder_mode, 0777u);
}

Test(format_triton, a_median_alone_stands_for_three_timings_and_none_for_an_empty_list) {
  cleanup_cache_files struct cache_files median =
                                             rendered(&(struct asked){.n_ms = 1, .ms = {0.25}}),
                                         none = rendered(&(struct asked){0});
  cr_assert(strstr(file_text(&median, PATH_PACKED), "}, [0.25, 0.25, 0.25]]]}"));
  cr_assert(strstr(file_text(&none, PATH_PACKED), "}, []]]}"));
}

Test(format_triton, what_the_winner_leaves_open_is_what_all_configs_of_the_function_have) {
  cleanup_cache_files struct cache_files files = rendered(&(struct asked){0});
  cr_assert(strstr(file_text(&files, PATH_PACKED),
                   "{\"kwargs\": {\"BLOCK\": 64}, \"num_warps\": 4, \"num_ctas\": 1, "
                   "\"num_stages\": 2, \"maxnreg\": null, \"pre_hook\": null}"));
}

Test(format_triton, options_of_the_compiler_may_be_more_than_the_function_lists) {
  cleanup_cache_files struct cache_files files = rendered(&(struct asked){
      .config =
          "{\"BLOCK\": 64, \"matrix_instr_nonkdim\": 16, \"num_warps\": 4, \"waves_per_eu\": 2}"});
  cr_assert(strstr(
      file_text(&files, PATH_PACKED),
      "{\"BLOCK\": 64, \"waves_per_eu\": 2, \"matrix_instr_nonkdim\": 16}, \"num_warps\": 4"));
}

#define IR_OVERRIDE                                                                                \
  "[\"B: 1, num_warps: 4, num_ctas: 1, num_stages: 2, maxnreg: None, ir_override: None\","         \
  " \"B: 2, num_warps: 4, num_ctas: 1, num_stages: 2, maxnreg: 64, ir_override: None\"]"

Test(format_triton, ir_override_is_written_for_a_triton_that_prints_it) {
  cleanup_cache_files struct cache_files files =
      rendered(&(struct asked){.record = "{\"name\": \"add\", " TRITON ", " FUNCTION ", " KEY
                                         ", \"configs\": " IR_OVERRIDE ", " AUTOTUNE "}",
                               .config = "{\"B\": 1, \"maxnreg\": null}"});
  cr_assert(
      strstr(files.files[0].bytes, "\"maxnreg\": null, \"pre_hook\": null, \"ir_override\": null}"),
      "%s", files.files[0].bytes);
}

#define IMAGE(more)                                                                                \
  "{\"version\": 1, \"triton\": {\"version\": \"3.6.0\", \"key\": \"3.6.0image\", "                \
  "\"backend_hash\": "                                                                             \
  "\"GPUTarget(image)\"" more "}"

Test(format_triton, a_packed_record_is_used_with_the_triton_and_the_variables_of_the_image) {
  cleanup_cache_files struct cache_files files = rendered(&(struct asked){
      .identity =
          IMAGE("}, \"variables\": {\"TRITON_F32_DEFAULT\": \"ieee\", \"LLVM_X\": \"it's\"}")});
  cr_assert_not_null(file_text(&files, PATH_IMAGE), "%s", files.files[0].path);
}

Test(format_triton, the_image_s_own_record_comes_first_and_the_manifest_fills_it_up) {
  cleanup_cache_files struct cache_files files = rendered(&(struct asked){
      .manifest = MANIFEST(
          "add", "[\"n\", \"flag\", \"none\", \"real\", \"text\"]",
          X_POINTER
          ", {\"name\": \"y\", \"dtype\": \"float32\", \"shape\": [\"n\"], \"access\": \"read\"},"
          "{\"name\": \"size\", \"dtype\": \"int64\", \"value\": \"2 * n\"}"),
      .key = "{\"n\": 4096, \"flag\": true, \"none\": null, \"real\": 0.5, \"text\": \"a'b\"}",
      .identity = IMAGE("}, \"functions\": [{\"name\": \"add\", \"function\": {\"name\": \"add\", "
                        "\"cache_key\": \"image\"},"
                        "\"key_names\": [\"size\", \"flag\", \"none\", \"real\", \"text\"],"
                        "\"tuning_key\": [\"size\", \"flag\", \"none\", \"real\", \"text\"],"
                        "\"configs\": " CONFIGS ", " AUTOTUNE "}]")});
  cr_assert_not_null(file_text(&files, PATH_OWN), "%s", files.files[0].path);
}

Test(format_triton, an_image_may_know_a_kernel_that_has_no_build) {
  cleanup_cache_files struct cache_files files = rendered(&(struct asked){
      .without_build = true, .identity = "{\"version\": 1, \"functions\": [" ADD_RECORD "]}"});
  cr_assert_not_null(file_text(&files, PATH_PACKED));
}

/* The path for a function of `n` times the character. */
static char *path_of_name(const char *character, size_t n) {
  cleanup_free char *name = xcalloc(n + 1, strlen(character));
  for (size_t i = 0; i < n; i++)
    strcat(name, character);
  cleanup_free char *record =
      xasprintf("{\"name\": \"add\", " TRITON ", \"function\": {\"name\": \"%s\", \"cache_key\": "
                "\"cc\"}, " KEY ", \"configs\": " CONFIGS ", " AUTOTUNE "}",
                name);
  cleanup_cache_files struct cache_files files = rendered(&(struct asked){.record = record});
  return xstrdup(strchr(files.files[0].path, '/') + 1);
}

Test(format_triton, names_of_functions_are_cut_to_150_characters) {
  cleanup_free char *ascii = path_of_name("a", 160), *two_bytes = path_of_name("\u00e9", 100);
  cr_assert_eq(strspn(ascii, "a"), 150u);
  cr_assert_str_eq(ascii + 150, ".autotune.json");
  cr_assert_str_eq(two_bytes + 200, ".autotune.json");
}

Test(format_triton, printed_values_with_separators_in_them_do_no_harm) {
  cleanup_cache_files struct cache_files files =
      rendered(&(struct asked){.record = "{\"name\": \"add\", " TRITON ", " FUNCTION ", " KEY
                                         ", \"configs\": [\"TEXT: a, b: c, , d, num_warps: 4\", "
                                         "\"TEXT: e, num_warps: 4, maxnreg: None\"], " AUTOTUNE "}",
                               .config = "{\"TEXT\": \"a, b: c, , d\"}"});
  cr_assert(
      strstr(files.files[0].bytes, "{\"kwargs\": {\"TEXT\": \"a, b: c, , d\"}, \"num_warps\": 4"),
      "%s", files.files[0].bytes);
}

#define WITH_RECORD(version, function, key, configs, autotune)                                     \
  "{\"name\": \"add\", \"triton\": {\"version\": \"" version                                       \
  "\", \"key\": \"k\", \"backend_hash\": \"b\"}, \"function\": "                                   \
  "{\"name\": \"add\"" function "}, " key ", \"configs\": " configs ", " autotune "}"
#define CACHE_KEY ", \"cache_key\": \"cc\""

Test(format_triton, what_triton_would_not_look_for_is_skipped_with_the_reason) {
  const struct {
    struct asked asked;
    const char *message;
  } cases[] = {
      {{.record = WITH_RECORD("3.3.1", CACHE_KEY, KEY, CONFIGS, AUTOTUNE)},
       "Triton 3.3.1 keeps no results"},
      {{.record = WITH_RECORD("3.6.0", CACHE_KEY, KEY, "[\"B: 1, num_warps: 4\"]", AUTOTUNE)},
       "has 1 config, and"},
      {{.record = WITH_RECORD("3.6.0", CACHE_KEY, KEY, "[]", AUTOTUNE)}, "has 0 configs, and"},
      {{.record = WITH_RECORD("3.6.0", CACHE_KEY, KEY, CONFIGS,
                              "\"autotune\": {\"decorator\": \"triton_dejavu\"}")},
       "tuned by triton_dejavu, not"},
      {{.record =
            WITH_RECORD("3.6.0", CACHE_KEY, KEY, CONFIGS, "\"autotune\": {\"pre_hooks\": true}")},
       "a pre_hook"},
      {{.record =
            WITH_RECORD("3.6.0", CACHE_KEY, KEY, CONFIGS, "\"autotune\": {\"prunes\": true}")},
       "prunes its configs"},
      {{.record = WITH_RECORD("3.6.0", "", KEY, CONFIGS, AUTOTUNE)},
       "no cache_key of the function"},
      {{.record = "{\"name\": \"add\", \"triton\": {\"version\": \"3.6.0\"}, " FUNCTION ", " KEY
                  ", \"configs\": " CONFIGS ", " AUTOTUNE "}"},
       "no triton_key()"},
      {{.record =
            "{\"name\": \"add\", \"triton\": {\"version\": \"3.6.0\", \"key\": \"k\"}, " FUNCTION
            ", " KEY ", \"configs\": " CONFIGS ", " AUTOTUNE "}"},
       "no hash of Triton's back end"},
      {{.record =
            "{\"name\": \"add\", " FUNCTION ", " KEY ", \"configs\": " CONFIGS ", " AUTOTUNE "}"},
       "does not state the version"},
      {{.record = WITH_RECORD("3.6.0", CACHE_KEY, "\"key_names\": [\"m\"], \"tuning_key\": [\"m\"]",
                              CONFIGS, AUTOTUNE)},
       "the value of \"m\""},
      {{.record =
            WITH_RECORD("3.6.0", CACHE_KEY, "\"key_names\": [\"n\"], \"tuning_key\": [\"n // 0\"]",
                        CONFIGS, AUTOTUNE)},
       "the value of \"n\""},
      {{.manifest =
            MANIFEST("add", "[\"n\"]", "{\"name\": \"n\", \"dtype\": \"int64\", \"value\": \"n\"}"),
        .record = WITH_RECORD("3.6.0", CACHE_KEY, "\"key_names\": []", CONFIGS, AUTOTUNE)},
       "empty tuning key"},
      {{.manifest = MANIFEST("add", "[\"n\"]", X_POINTER), .key = "{\"n\": \"\u00e9\"}"},
       "outside ASCII"},
      {{.identity = IMAGE("}, \"variables\": {\"LLVM_X\": \"\u00e9\"}")}, "outside ASCII"},
      {{.identity = "{\"version\": 1, \"triton\": {\"version\": \"3.5.1\"}}"},
       "the image has 3.5.1"},
      {{.config = "{\"BLOCK\": 64, \"GROUP\": 8, \"num_warps\": 4}"}, "configs have no \"GROUP\""},
      {{.config = "{\"BLOCK\": 64}"}, "the winner has no num_warps"},
      {{.config = "{\"num_warps\": 4}"}, "the winner has no \"BLOCK\", which all"},
      {{.config = "{\"BLOCK\": 64, \"ir_override\": \"a.ttgir\", \"num_warps\": 4}"},
       "has no \"ir_override\""},
      {{.without_build = true}, "neither the image nor a build"}};
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
    struct cache_files files = {0};
    struct error error;
    cr_assert(!render(&cases[i].asked, &files, &error), "%s: rendered", cases[i].message);
    cr_assert(strstr(error.message, cases[i].message), "no \"%s\" in: %s", cases[i].message,
              error.message);
  }
}

/* Compiled artifacts. */

#define ROOT "/var/cache/wavetune/aa.triton"
#define GROUP CODE_FOLDER "/__grp__add.json"

Test(format_triton, compiled_artifacts_stand_where_triton_looks_for_them) {
  cleanup_cache_files struct cache_files files = rendered(&(struct asked){.root = ROOT});
  cr_assert_eq(files.n, 4u);
  cr_assert_str_eq(file_text(&files, CODE_FOLDER "/add.hsaco"), code);
  cr_assert_str_eq(file_text(&files, CODE_FOLDER "/add.json"), usual_metadata);
  cleanup_json json_t *group = json_of(file_text(&files, GROUP));
  const json_t *children = json_object_get(group, "child_paths");
  cr_assert_eq(json_object_size(children), 2u);
  cr_assert_str_eq(json_string_value(json_object_get(children, "add.json")),
                   ROOT "/" CODE_FOLDER "/add.json");
  cr_assert_eq(files.n_skipped, 0u);
}

Test(format_triton, artifacts_below_a_path_that_is_no_text_are_left_out) {
  cleanup_cache_files struct cache_files files = rendered(&(struct asked){.root = "/var/\xff"});
  cr_assert_eq(files.n, 1u);
  cr_assert(says_skipped(&files, "is not UTF-8"));
}

Test(format_triton, a_config_without_artifacts_has_its_result_alone) {
  cleanup_cache_files struct cache_files files =
      rendered(&(struct asked){.root = ROOT, .config = "{\"BLOCK\": 128, \"num_warps\": 8}"});
  cr_assert_eq(files.n, 1u);
  cr_assert_eq(files.n_skipped, 0u);
}

Test(format_triton, artifacts_are_exported_without_results_too) {
  cleanup_cache_files struct cache_files files = rendered(&(struct asked){
      .root = ROOT, .record = WITH_RECORD("3.6.0", CACHE_KEY, KEY, "[]", "\"autotune\": null")});
  cr_assert_eq(files.n, 3u);
  cr_assert(says_skipped(&files, "has 0 configs"));
}

#define SEVEN_LETTERS "\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9"
#define LONG_NAME                                                                                  \
  "X" SEVEN_LETTERS SEVEN_LETTERS SEVEN_LETTERS SEVEN_LETTERS                                      \
      SEVEN_LETTERS /* cut inside of a letter */

#define OF_TRITON(version, key, more)                                                              \
  "{\"version\": 1, \"triton\": {\"version\": \"" version "\", \"key\": \"" key                    \
  "\", \"backend_hash\": \"b\"" more "}}"
#define OF_IMAGE(key, more) OF_TRITON("3.6.0", key, more)

Test(format_triton, an_image_with_the_same_triton_gets_artifacts) {
  cleanup_cache_files struct cache_files files = rendered(&(struct asked){
      .root = ROOT, .identity = OF_IMAGE("3.6.0k", ", \"folder\": \"/usr/lib/python3/triton\"")});
  cr_assert_not_null(file_text(&files, GROUP));
}

Test(format_triton, since_3_9_the_place_of_triton_does_not_matter) {
  cleanup_cache_files struct cache_files files = rendered(&(struct asked){
      .root = ROOT,
      .identity = OF_TRITON("3.9.0", "3.6.0k", ", \"folder\": \"/opt/venv/triton\"")});
  cr_assert_not_null(file_text(&files, GROUP));
}

Test(format_triton, artifacts_that_the_image_would_not_find_are_left_out_with_the_reason) {
  const struct {
    struct asked asked;
    const char *message;
  } cases[] = {
      {{.root = NULL}, "their folder is not known"},
      {{.root = ROOT, .without_source = true}, "not available here"},
      {{.root = ROOT, .identity = OF_IMAGE("3.6.0k", ""), .metadata = "{\"LLVM_X\": \"1\"}"},
       "compiled with LLVM_X set"},
      {{.root = ROOT, .identity = OF_IMAGE("3.6.0other", "")}, "another build of Triton"},
      {{.root = ROOT, .identity = OF_IMAGE("3.6.0k", ", \"folder\": \"/opt/venv/triton\"")},
       "in another folder"},
      {{.root = ROOT, .identity = OF_IMAGE("3.6.0k", ", \"folder\": \"/" LONG_NAME LONG_NAME "\"")},
       "in another folder"},
      {{.root = ROOT, .identity = OF_IMAGE("3.6.0k", ""), .metadata = "{\"" LONG_NAME "\": \"1\"}"},
       "compiled with X"},
      {{.root = ROOT, .identity = OF_IMAGE("3.6.0k", "}, \"variables\": {\"LLVM_X\": \"1\"")},
       "the image sets LLVM_X"}};
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
    cleanup_cache_files struct cache_files files = rendered(&cases[i].asked);
    cr_assert_eq(files.n, 1u, "%s", cases[i].message);
    cr_assert(says_skipped(&files, cases[i].message), "%s", cases[i].message);
  }
}

Test(format_triton, code_compiled_with_the_variables_of_the_image_is_found) {
  cleanup_cache_files struct cache_files files = rendered(
      &(struct asked){.root = ROOT,
                      .identity = OF_IMAGE("3.6.0k", "}, \"variables\": {\"LLVM_X\": \"1\""),
                      .metadata = "{\"LLVM_X\": \"1\", \"num_warps\": 4}"});
  cr_assert_not_null(file_text(&files, GROUP));
}

Test(format_triton, metadata_that_is_no_json_is_an_error) {
  struct cache_files files = {0};
  struct error error;
  cr_assert(
      !render(&(struct asked){.root = ROOT, .identity = OF_IMAGE("3.6.0k", ""), .metadata = "{"},
              &files, &error));
  cr_assert(strstr(error.message, "add.json, compiled metadata of a build: "), "%s", error.message);
}

Test(format_triton, code_of_each_specialisation_of_a_captured_key_stands_there) {
  struct shelf shelf = {
      .n_kernels = 1,
      .kernels = {kernel_of(
          "{\"name\": \"add/captured\", \"language\": \"triton\", \"entry\": \"add\", \"cases\": "
          "\"build\", \"sources\": [{\"path\": \"add.py\", \"digest\": \"" DIGEST
          "\"}], \"key\": [\"n\"], \"arguments\": [{\"name\": \"x\", \"dtype\": \"float16\", "
          "\"kind\": "
          "\"buffer\"}]}")}};
  char kernel[DIGEST_TEXT_SIZE], of_metadata[DIGEST_TEXT_SIZE], of_code[DIGEST_TEXT_SIZE];
  struct digest metadata_digest = digest_of(usual_metadata, strlen(usual_metadata)),
                code_digest = digest_of(code, strlen(code));
  json_t *config = json_of("{\"BLOCK\": 64, \"num_warps\": 4}"),
         *cache = json_pack("{s:{s:s, s:{s:s, s:s}}}", "cache", "folder", CODE_FOLDER, "files",
                            "add.json", digest_format(&metadata_digest, of_metadata), "add.hsaco",
                            digest_format(&code_digest, of_code)),
         *further = json_deep_copy(cache);
  json_put(json_object_get(further, "cache"), "folder", json_string(FURTHER_FOLDER));
  cleanup_json json_t *json = json_pack(
      "{s:s, s:{s:s}, s:s, s:i, s:o, s:[{s:{s:i}, s:o, s:[{s:O, s:s, s:o, s:[iii]}], "
      "s:[{s:{s:s}, s:[{s:o, s:s, s:o}]}]}]}",
      "kernel", digest_format(&shelf.kernels[0]->hash, kernel), "toolchain", "triton", "3.6.0",
      "arch", "gfx942", "warp_size", 64, "record", json_of(ADD_RECORD), "variants", "key", "n", 1,
      "case",
      json_of("{\"arguments\": {\"x\": {\"elements\": 8, \"access\": \"readwrite\", \"fill\": "
              "\"normal\"}}}"),
      "objects", "config", config, "digest", of_code, "metadata", cache, "grid", 1, 1, 1, "also",
      "signature", "x", "*fp16", "objects", "config", config, "digest", of_code, "metadata",
      further);
  ALWAYS(json != NULL);
  struct error error;
  cr_assert(build_parse(json, shelf.kernels[0], &shelf.builds[shelf.n_builds++], &error), "%s: %s",
            error.pointer, error.message);
  shelf.blobs[shelf.n_blobs++] = usual_metadata;
  shelf.blobs[shelf.n_blobs++] = code;
  cleanup_free char *provenance = provenance_of(&shelf);
  cleanup_release struct release *release = release_of(
      &(struct winner){
          shelf.kernels[0], "{\"n\": 1}", "{\"BLOCK\": 64, \"num_warps\": 4}", provenance, 0, {0}},
      1);
  struct cache_source source = shelf_source(&shelf);
  cleanup_cache_files struct cache_files files = {0};
  cr_assert(format_triton.render(
                &(struct render_request){.release = release, .source = &source, .root = ROOT},
                &files, &error),
            "%s", error.message);
  cr_expect_str_eq(file_text(&files, CODE_FOLDER "/add.hsaco"), code);
  cr_expect_str_eq(file_text(&files, FURTHER_FOLDER "/add.hsaco"), code);
  cr_expect(strstr(file_text(&files, FURTHER_FOLDER "/__grp__add.json"), ROOT "/" FURTHER_FOLDER));
  cr_expect_eq(files.n_skipped, 0u);
  shelf_release(&shelf);
}

/* Two keys of one function whose records make one path of them, and two that share an object. */
static bool render_two(const char *tuning_key, const char *second_config, const char *second_code,
                       size_t n_missing, struct cache_files *ret, struct error *error) {
  struct shelf shelf = {.n_kernels = 1,
                        .kernels = {kernel_of(MANIFEST("add", "[\"n\"]", X_POINTER))}};
  cleanup_free char *record =
      xasprintf("{\"name\": \"add\", " TRITON ", " FUNCTION ", \"key_names\": [\"n\"], "
                "\"tuning_key\": [\"%s\"], \"configs\": " CONFIGS ", " AUTOTUNE "}",
                tuning_key);
  shelf_add_build(&shelf, record, usual_metadata, second_code);
  shelf.n_blobs -= n_missing;
  cleanup_free char *provenance = provenance_of(&shelf);
  const struct winner winners[] = {
      {shelf.kernels[0], "{\"n\": 1}", "{\"BLOCK\": 64, \"num_warps\": 4}", provenance, 0, {0}},
      {shelf.kernels[0], "{\"n\": 2}", second_config, provenance, 0, {0}}};
  cleanup_release struct release *release = release_of(winners, 2);
  struct cache_source source = shelf_source(&shelf);
  bool ok = format_triton.render(
      &(struct render_request){.release = release, .source = &source, .root = ROOT}, ret, error);
  shelf_release(&shelf);
  return ok;
}

Test(format_triton, an_object_that_serves_two_keys_is_there_once) {
  cleanup_cache_files struct cache_files files = {0};
  struct error error;
  cr_assert(render_two("n", "{\"BLOCK\": 64, \"num_warps\": 4}", NULL, 0, &files, &error), "%s",
            error.message);
  cr_assert_eq(files.n, 5u);
}

Test(format_triton, of_two_winners_for_one_path_the_first_is_written) {
  cleanup_cache_files struct cache_files same = {0}, other = {0};
  struct error error;
  cr_assert(render_two("n * 0", "{\"BLOCK\": 64, \"num_warps\": 4}", NULL, 0, &same, &error), "%s",
            error.message);
  cr_assert_eq(same.n, 4u);
  cr_assert_eq(same.n_skipped, 0u);
  cr_assert(render_two("n * 0", "{\"BLOCK\": 128, \"num_warps\": 8}", NULL, 0, &other, &error),
            "%s", error.message);
  cr_assert_eq(other.n, 4u);
  cr_assert(strstr(other.files[0].bytes, "{\"BLOCK\": 64}"), "%s", other.files[0].bytes);
  cr_assert_eq(other.n_skipped, 1u);
  cr_assert_str_eq(other.skipped[0].key, "[2]");
  cr_assert(strstr(other.skipped[0].reason, "another winner of the release makes"), "%s",
            other.skipped[0].reason);
}

Test(format_triton, of_two_objects_for_one_path_the_first_is_written) {
  cleanup_cache_files struct cache_files files = {0};
  struct error error;
  cr_assert(
      render_two("n", "{\"BLOCK\": 128, \"num_warps\": 8}", "code of block 128", 0, &files, &error),
      "%s", error.message);
  cr_assert_eq(files.n, 5u);
  cr_assert_str_eq(file_text(&files, CODE_FOLDER "/add.hsaco"), code);
  cr_assert(says_skipped(&files, "another winner of the release makes " CODE_FOLDER "/add.hsaco"));
}

Test(format_triton, a_tuned_winner_goes_before_an_imported_one_for_the_same_path) {
  struct shelf shelf = {
      .n_kernels = 2,
      .kernels = {kernel_of(MANIFEST("add", "[\"n\"]", X_POINTER)),
                  kernel_of("{\"name\": \"a\", \"language\": \"external\", \"key\": [\"folder\", "
                            "\"key\"], \"exports\": {\"triton\": {\"function\": \"add\", "
                            "\"kwargs\": [\"BLOCK\"], \"members\": [\"kwargs\"]}}}")}};
  shelf_add_build(&shelf, ADD_RECORD, usual_metadata, NULL);
  cleanup_free char *provenance = provenance_of(&shelf),
                    *key = xasprintf("{\"folder\": \"%.52s\", \"key\": \"[4096]\"}", PATH_PACKED);
  const struct winner winners[] = {
      {shelf.kernels[0], "{\"n\": 4096}", "{\"BLOCK\": 64, \"num_warps\": 4}", provenance, 0, {0}},
      {shelf.kernels[1], key, "{\"BLOCK\": 1}", "{\"origin\": \"imported\"}", 0, {0}}};
  cleanup_release struct release *release = release_of(winners, 2);
  struct cache_source source = shelf_source(&shelf);
  cleanup_cache_files struct cache_files files = {0};
  struct error error;
  cr_assert(format_triton.render(&(struct render_request){.release = release, .source = &source},
                                 &files, &error),
            "%s", error.message);
  cr_assert_str_eq(release->kernels[0].name, "a");
  cr_assert_eq(files.n, 1u);
  cr_assert(strstr(file_text(&files, PATH_PACKED), "{\"BLOCK\": 64}"), "%s", files.files[0].bytes);
  shelf_release(&shelf);
}

/* Two kernels with a build each would be; the second one's manifest, or its build, is not on the
 * shelf. */
static struct cache_files rendered_with_another(bool without_manifest, const char *identity_text) {
  struct shelf shelf = {.n_kernels = 2,
                        .kernels = {kernel_of(MANIFEST("add", "[\"n\"]", X_POINTER)),
                                    kernel_of(MANIFEST("mul", "[\"n\"]", X_POINTER))}};
  shelf_add_build(&shelf, ADD_RECORD, usual_metadata, NULL);
  cleanup_free char *provenance = provenance_of(&shelf);
  const struct winner winners[] = {
      {shelf.kernels[0], "{\"n\": 1}", "{\"BLOCK\": 64, \"num_warps\": 4}", provenance, 0, {0}},
      {shelf.kernels[1],
       "{\"n\": 1}",
       "{\"BLOCK\": 64, \"num_warps\": 4}",
       "{\"origin\": \"tuned\", \"build\": \"" DIGEST "\"}",
       0,
       {0}}};
  cleanup_release struct release *release = release_of(winners, 2);
  cleanup_identity struct identity *identity = identity_text ? identity_of(identity_text) : NULL;
  struct cache_source source = shelf_source(&shelf);
  struct cache_files files = {0};
  struct error error;
  shelf.n_kernels -= without_manifest;
  cr_assert(format_triton.render(
                &(struct render_request){
                    .release = release, .source = &source, .identity = identity, .root = ROOT},
                &files, &error),
            "%s", error.message);
  shelf.n_kernels = 2;
  shelf_release(&shelf);
  return files;
}

Test(format_triton, what_is_missing_of_one_kernel_leaves_it_out_alone) {
  for (int without_manifest = 0; without_manifest < 2; without_manifest++) {
    cleanup_cache_files struct cache_files files = rendered_with_another(without_manifest, NULL);
    cr_assert_eq(files.n, 4u);
    cr_assert_eq(files.n_skipped, 1u);
    cr_assert_str_eq(files.skipped[0].name, "mul");
    cr_assert(
        strstr(files.skipped[0].reason, without_manifest ? "no such kernel" : "no such build"),
        "%s", files.skipped[0].reason);
  }
}

Test(format_triton, an_image_s_record_gives_the_result_of_a_winner_whose_build_is_missing) {
  cleanup_cache_files struct cache_files files = rendered_with_another(
      false,
      "{\"version\": 1, \"triton\": {\"version\": \"3.6.0\", \"key\": \"3.6.0k\", "
      "\"backend_hash\": \"b\"}, "
      "\"functions\": [{\"name\": \"mul\", \"function\": {\"name\": \"mul\", \"cache_key\": "
      "\"c2\"}, "
      "\"key_names\": [\"n\"], \"tuning_key\": [\"n\"], \"configs\": " CONFIGS ", " AUTOTUNE "}]}");
  cr_assert_eq(files.n, 5u);
  cr_assert_eq(files.n_skipped, 1u);
  cr_assert_str_eq(files.skipped[0].name, "mul");
  cr_assert_str_eq(files.skipped[0].key, "[1]");
  cr_assert(strstr(files.skipped[0].reason, "the container compiles it itself: no such build"),
            "%s", files.skipped[0].reason);
}

Test(format_triton, a_missing_file_of_compiled_code_leaves_the_result_and_no_part_of_the_code) {
  for (size_t n_missing = 1; n_missing <= 2; n_missing++) {
    cleanup_cache_files struct cache_files files =
        rendered(&(struct asked){.root = ROOT,
                                 .n_missing = n_missing,
                                 .identity = n_missing == 2 ? OF_IMAGE("3.6.0k", "") : NULL});
    cr_assert_eq(files.n, 1u);
    cr_assert(strstr(files.files[0].path, "/add.autotune.json"));
    cr_assert_eq(files.n_skipped, 1u);
    cr_assert_str_eq(files.skipped[0].key, "[4096]");
    cr_assert(strstr(files.skipped[0].reason, "the container compiles it itself: no such blob"),
              "%s", files.skipped[0].reason);
  }
}

Test(format_triton, each_winner_whose_compiled_code_is_missing_is_named) {
  cleanup_cache_files struct cache_files files = {0};
  struct error error;
  cr_assert(render_two("n", "{\"BLOCK\": 64, \"num_warps\": 4}", NULL, 2, &files, &error), "%s",
            error.message);
  cr_assert_eq(files.n, 2u);
  cr_assert_eq(files.n_skipped, 2u);
  cr_assert_str_eq(files.skipped[0].key, "[1]");
  cr_assert_str_eq(files.skipped[1].key, "[2]");
}
