/* triton-dejavu's trees: they come back, the published example of paths and hashes is reproduced,
 * and what dejavu would not restore, or what is no tree of it, is told. */
#include "table_fixture.h"

#include "common/cache/text.h"

static struct error error;

static bool read_one(const struct cache_file *file, struct imported *ret) {
  cleanup_cache_files struct cache_files files = {0};
  cache_files_add(&files, file->path, xmemdup(file->bytes, file->size + 1), file->size);
  error = (struct error){0};
  return read_with("dejavu", &files, NULL, ret, &error);
}

static void render_imported(const struct imported *imported, struct cache_files *out) {
  cleanup_kernels struct kernels kernels = {0};
  cleanup_release struct release *release = release_of(imported, "dejavu", NULL, &kernels);
  cr_assert(render_with("dejavu", release, &kernels, NULL, out, &error), "%s", error.message);
}

/* Same path and meaning, written as json.dump(indent=4) writes it; to the byte where there is one
 * entry, whose order the release does not change. */
static void expect_back(const struct cache_file *file) {
  cleanup_imported struct imported imported = {0};
  cleanup_cache_files struct cache_files out = {0};
  cr_assert(read_one(file, &imported), "%s", error.message);
  render_imported(&imported, &out);
  cr_assert_eq(out.n, (size_t)1);
  cr_expect_eq(out.n_skipped, (size_t)0);
  cr_expect_str_eq(out.files[0].path, file->path);
  cleanup_json json_t *before = NULL, *after = NULL;
  cr_assert(json_parse(file->bytes, file->size, &before, &error) &&
            json_parse(out.files[0].bytes, out.files[0].size, &after, &error));
  cr_expect(json_equal(before, after), "%s", out.files[0].bytes);
  size_t size;
  cleanup_free char *dumped = python_json(after, 4, &size);
  cr_expect_str_eq(out.files[0].bytes, dumped);
  if (json_object_size(json_object_get(before, "cache")) == 1)
    cr_expect_str_eq(out.files[0].bytes, file->bytes);
}

Test(format_dejavu, trees_come_back) {
  cleanup_cache_files struct cache_files files = {0};
  size_t n = 0;
  files_add_folder(&files, TEST_DATA "/dejavu", "");
  for (size_t i = 0; i < files.n; i++) {
    if (!strstr(files.files[i].path, "/cache.json"))
      continue;
    expect_back(&files.files[i]);
    n++;
  }
  cr_expect_eq(n, (size_t)4);
}

#define P "215d0c7082adf7c6c8ae2a767088f42b44e6432715b0c6760f5f8e5d4e8371ff"
#define C "6910b92168ab0eb978d7ff08573e78c43278762d991bd4ba3c5f4c57d64dd86b"
#define K "1b16b1df538ba12dc3f97edbb85caa7050d46c148134290feba80f8236c83db9"
#define G "85ba4f14605a90c584d892271725e07e43ff70626ca0b6b4a000f9c2de4beba5"
#define STORAGE "dejavu_0.7/triton_3.3.1/rocm_6.4.1/gpu_AMD_Instinct_MI300X"
#define FOLDER(tag)                                                                                \
  "/add_kernel/autotune_config-" P "/code_version-" C "/tune_features-" K "/kernel_configs-" G     \
  "/" tag "/cache.json"
#define GOLDEN_PATH STORAGE FOLDER("default")

#define REST                                                                                       \
  ", num_ctas: 1, num_stages: 2, num_buffers_warp_spec: 0, num_consumer_groups: 0, "               \
  "reg_dec_producer: 0, "                                                                          \
  "reg_inc_consumer: 0, maxnreg: None"
#define CONFIG(block, waves, warps)                                                                \
  "BLOCK: " block ", waves_per_eu: " waves ", num_warps: " warps REST
#define PARAMETERS                                                                                 \
  "autotuner params: warmup 25 rep 100 cuda_graphs False quantiles None use_bo False use_random "  \
  "False max_search_n "                                                                            \
  "None max_search_t 180"

/* The example's function; its hash is what a record has of it. */
static const char example_source[] =
    "def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: \"tl.constexpr\"):\n"
    "    pid = tl.program_id(axis=0)\n"
    "    offs = pid * BLOCK + tl.arange(0, BLOCK)\n"
    "    for i in range(0, 4):\n"
    "        tl.store(out_ptr + offs, tl.load(x_ptr + offs) + tl.load(y_ptr + offs), "
    "mask=offs < n)\n";

/* A record of the example with `dejavu`'s members instead of the stated hashes. */
static json_t *example_record(const char *dejavu) {
  struct digest digest = digest_of(example_source, strlen(example_source));
  char text[DIGEST_TEXT_SIZE];
  json_t *record =
      json_pack("{s:s, s:{s:s}, s:{s:s, s:s, s:s, s:s}, s:[s], s:[s], s:[s, s, s], s:[s, s, s, s, "
                "s, s, s, s]}",
                "name", "demo/add", "triton", "version", "3.3.1", "function", "module", "mykernels",
                "name", "add_kernel", "signature", "JITFunction(mykernels:add_kernel)",
                "source_sha256", digest_format(&digest, text) + 7, "key_names", "n", "tuning_key",
                "n", "argument_dtypes", "torch.float16", "torch.float16", "torch.float16",
                "configs", CONFIG("256", "0", "4"), CONFIG("256", "0", "8"),
                CONFIG("256", "2", "4"), CONFIG("256", "2", "8"), CONFIG("1024", "0", "4"),
                CONFIG("1024", "0", "8"), CONFIG("1024", "2", "4"), CONFIG("1024", "2", "8"));
  cr_assert(record != NULL);
  if (dejavu)
    cr_assert(json_object_set_new(record, "dejavu", json_loads(dejavu, 0, NULL)) == 0);
  return record;
}

#define DEJAVU                                                                                     \
  "{\"layout\":\"dejavu_0.7\",\"autotune_config\":\"" P "\",\"code_version\":\"" C                 \
  "\",\"tune_features\":\"" K "\",\"kernel_configs\":\"" G                                         \
  "\",\"search_parameters\":\"" PARAMETERS "\",\"quantiles\":null,\"warmup\":25,\"rep\":100,"      \
  "\"use_cuda_graph\":false,\"ignore_dtypes\":false}"

static struct identity *identity_with(json_t *record, const char *layout) {
  cleanup_json json_t *json =
      json_pack("{s:i, s:n, s:n, s:n, s:n, s:{}, s:n, s:n, s:[o]}", "version", 1, "triton", "torch",
                "gpu", "devices", "variables", "tunableop", "moe_device_name", "functions", record);
  json_object_set_new(json, "dejavu",
                      layout
                          ? json_pack("{s:s, s:s, s:s, s:s}", "layout", layout, "triton", "3.3.1",
                                      "runtime", "rocm_6.4.1", "gpu", "AMD Instinct MI300X")
                          : json_null());
  struct identity *identity = NULL;
  cr_assert(identity_parse(json, &identity, &error), "%s: %s", error.pointer, error.message);
  return identity;
}

#define DIGEST "sha256:ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
#define ENVIRONMENT                                                                                \
  "{\"gpu\":\"AMD Instinct MI300X\",\"rocm\":\"6.4.1\",\"torch\":\"2.9.0\",\"triton\":\"3.3.1\"}"
#define TUNED "{\"origin\":\"tuned\"}"
#define KERNEL(name, hash, key, configs, provenance, winners)                                      \
  "{\"configs\":[" configs "],\"kernel\":\"" hash "\",\"key\":[" key "],\"name\":\"" name          \
  "\",\"provenance\":[" provenance "],\"winners\":[" winners "]}"
#define RELEASE_OF(kernels)                                                                        \
  "{\"environment\":" ENVIRONMENT ",\"kernels\":[" kernels "],\"tag\":\"default\",\"version\":2}"
#define RELEASE(config, winners)                                                                   \
  RELEASE_OF(KERNEL("demo/add", DIGEST, "\"n\"", config, TUNED, winners))
#define WINNER_CONFIG                                                                              \
  "{\"values\":{\"BLOCK\":1024,\"num_stages\":2,\"num_warps\":8,\"waves_per_eu\":0}}"

static bool render_text(const char *release_text, const char *dejavu, struct cache_files *out) {
  struct kernels none = {0};
  cleanup_release struct release *release = release_of_text(release_text);
  cleanup_identity struct identity *identity = identity_with(example_record(dejavu), "dejavu_0.7");
  error = (struct error){0};
  return render_with("dejavu", release, &none, identity, out, &error);
}

static void expect_skipped(const char *release_text, const char *dejavu, const char *what) {
  cleanup_cache_files struct cache_files out = {0};
  cr_expect_not(render_text(release_text, dejavu, &out), "%s was written",
                out.n ? out.files[0].bytes : "");
  cr_assert_eq(out.n_skipped, (size_t)1);
  cr_expect_neq(strstr(out.skipped[0].reason, what), NULL, "%s", out.skipped[0].reason);
  cr_expect_neq(strstr(error.message, what), NULL, "%s", error.message);
}

Test(format_dejavu, the_published_example_is_reproduced) {
  cleanup_cache_files struct cache_files out = {0};
  cr_assert(render_text(RELEASE(WINNER_CONFIG, "[[4096],0,0,[0.0123],7]"), DEJAVU, &out), "%s",
            error.message);
  cr_assert_eq(out.n, (size_t)1);
  cr_expect_eq(out.n_skipped, (size_t)0);
  cr_expect_str_eq(out.files[0].path, GOLDEN_PATH);
  cr_expect_str_eq(
      out.files[0].bytes,
      "{\n    \"signature\": \"JITFunction(mykernels:add_kernel)\",\n    \"total_bench_time_s\": "
      "0.0,\n"
      "    \"evaluated_configs\": 8,\n    \"keys\": [\n        \"n\"\n    ],\n    \"cache\": {\n"
      "        \"('4096', 'torch.float16', 'torch.float16', 'torch.float16')\": \"" CONFIG(
          "1024", "0",
          "8") "\"\n    },\n    \"timings\": {\n        \"('4096', 'torch.float16', "
               "'torch.float16', 'torch.float16')\": [\n            0.0123\n        ]\n"
               "    },\n    \"timings_data\": {\n        \"labels\": [\n            \"ms\"\n"
               "        ],\n        \"rep_t_ms\": 100,\n        \"warmup_t_ms\": 25,\n"
               "        \"cuda_graphs\": false\n    }\n}");
  cr_expect_eq(out.file_mode, 0777u);
  cr_expect_eq(out.folder_mode, 0777u);
  cr_assert_eq(out.n_variables, (size_t)2);
  cr_expect_str_eq(out.variables[0].name, "TRITON_DEJAVU_STORAGE");
  cr_expect_str_eq(out.variables[0].path, "");
  cr_expect_str_eq(out.variables[1].name, "TRITON_DEJAVU_TAG");
  cr_expect_str_eq(out.variables[1].literal, "default");
}

Test(format_dejavu, bench_time_is_that_of_the_jobs_which_chose_what_is_written) {
#define TOOK(seconds) "{\"origin\":\"tuned\",\"spent_device_seconds\":" seconds "}"
#define TIMED(winners)                                                                             \
  RELEASE_OF(KERNEL("demo/add", DIGEST, "\"n\"", WINNER_CONFIG,                                    \
                    "{\"origin\":\"pinned\"}," TOOK("0.1") "," TOOK("0.2"), winners))
  static const char three[] = TIMED("[[1],0,1,[],7],[[2],0,1,[],8],[[3],0,2,[],9],[[4],0,0,[],0]"),
                    unwritten[] = TIMED("[[\"a, b\"],0,2,[],8],[[1],0,1,[],7],[[4],0,0,[],0]");
  cleanup_cache_files struct cache_files every = {0}, some = {0};
  cr_assert(render_text(three, DEJAVU, &every), "%s", error.message);
  cr_expect_neq(strstr(every.files[0].bytes, "\"total_bench_time_s\": 0.4,"), NULL, "%s",
                every.files[0].bytes);
  cr_assert(render_text(unwritten, DEJAVU, &some), "%s", error.message);
  cr_expect_neq(strstr(some.files[0].bytes, "\"total_bench_time_s\": 0.1,"), NULL, "%s",
                some.files[0].bytes);
}

Test(format_dejavu, hashes_are_made_of_what_the_record_has) {
  cleanup_cache_files struct cache_files out = {0};
  cr_assert(render_text(RELEASE(WINNER_CONFIG, "[[4096],0,0,[],7]"),
                        "{\"search_parameters\":\"" PARAMETERS "\"}", &out),
            "%s", error.message);
  cr_expect_str_eq(out.files[0].path, GOLDEN_PATH);
  cr_expect_neq(strstr(out.files[0].bytes, "\"timings\": {},\n"), NULL, "%s", out.files[0].bytes);
}

#define OTHER "0000000000000000000000000000000000000000000000000000000000000000"
Test(format_dejavu, a_record_whose_hashes_do_not_fit_is_refused) {
  static const char fine[] = RELEASE(WINNER_CONFIG, "[[4096],0,0,[],7]");
  expect_skipped(fine, "{\"search_parameters\":\"x\",\"autotune_config\":\"" P "\"}",
                 "the record's autotune_config");
  expect_skipped(fine, "{\"autotune_config\":\"" P "\",\"code_version\":\"" OTHER "\"}",
                 "the record's code_version");
  expect_skipped(fine, "{\"autotune_config\":\"" P "\",\"tune_features\":\"" OTHER "\"}",
                 "the record's tune_features");
  expect_skipped(fine, "{\"autotune_config\":\"" P "\",\"kernel_configs\":\"" OTHER "\"}",
                 "the record's kernel_configs");
  expect_skipped(fine, "{}", "the record has no autotune_config");
  expect_skipped(fine, NULL, "not decorated with triton_dejavu.autotune");
  expect_skipped(fine, "{\"layout\":\"dejavu_0.6\",\"autotune_config\":\"" P "\"}",
                 "the image reads dejavu_0.7");
}

Test(format_dejavu, what_a_winner_leaves_at_its_default_is_written) {
  cleanup_cache_files struct cache_files out = {0};
  cr_assert(
      render_text(
          RELEASE("{\"values\":{\"BLOCK\":256,\"maxnreg\":null,\"num_ctas\":1,\"num_stages\":2,"
                  "\"waves_per_eu\":2}}",
                  "[[4096],0,0,[],7]"),
          DEJAVU, &out),
      "%s", error.message);
  cr_expect_neq(strstr(out.files[0].bytes, CONFIG("256", "2", "4")), NULL, "%s",
                out.files[0].bytes);
}

Test(format_dejavu, configs_that_would_not_be_restored_are_skipped) {
#define VALUES(value) RELEASE("{\"values\":{\"BLOCK\":" value "}}", "[[4096],0,0,[],7]")
  expect_skipped(VALUES("128"), DEJAVU, "not one of those that the function is decorated with");
  expect_skipped(VALUES("1.5"), DEJAVU, "BLOCK is a float");
  expect_skipped(VALUES("null"), DEJAVU, "BLOCK is None");
  expect_skipped(VALUES("\"oN\""), DEJAVU, "reads as a number or a boolean");
  expect_skipped(VALUES("\" +1_0\""), DEJAVU, "reads as a number or a boolean");
  expect_skipped(VALUES("\"a, b\""), DEJAVU, "in its text");
  expect_skipped(VALUES("1,\"num_warps\":true"), DEJAVU, "num_warps must be an integer");
  expect_skipped(VALUES("1,\"maxnreg\":\"x\""), DEJAVU, "maxnreg must be an integer or None");
  expect_skipped(VALUES("1,\"enable_persistent\":true"), DEJAVU, "enable_persistent");
  expect_skipped(VALUES("1,\"enable_warp_specialization\":1"), DEJAVU, "must be a boolean");
  expect_skipped(VALUES("1,\"ir_override\":\"x\""), DEJAVU, "ir_override");
  expect_skipped(VALUES("1,\"pre_hook\":1"), DEJAVU, "is not a name of a parameter");
}

Test(format_dejavu, keys_that_would_not_be_restored_are_skipped) {
#define KEY_OF(key) RELEASE(WINNER_CONFIG, "[[" key "],0,0,[],7]")
  expect_skipped(KEY_OF("\"a, b\""), DEJAVU, "where dejavu splits keys");
  expect_skipped(KEY_OF("\"a\\\\b\""), DEJAVU, "that Python escapes");
  expect_skipped(KEY_OF("\"\xc3\xa4\""), DEJAVU, "that Python escapes");
  expect_skipped(KEY_OF("\"\\\"'\""), DEJAVU, "both kinds of quotes");
  expect_skipped(KEY_OF("1"), "{\"search_parameters\":\"" PARAMETERS "\",\"ignore_dtypes\":true}",
                 "keys of one element");
}

Test(format_dejavu, elements_are_quoted_as_python_quotes_them) {
  cleanup_cache_files struct cache_files out = {0};
  cr_assert(render_text(
                RELEASE(WINNER_CONFIG,
                        "[[\"\"],0,0,[],7],[[\"a\\\"b\"],0,0,[],7],[[\"it's\"],0,0,[],7],[[0.5],0,"
                        "0,[],7],[[null],0,0,[],7],[[true],0,0,[],7]"),
                DEJAVU, &out),
            "%s", error.message);
  static const char *const keys[] = {"\"('', 't",    "\"('a\\\"b', 't", "\"(\\\"it's\\\", 't",
                                     "\"('0.5', 't", "\"('None', 't",   "\"('True', 't"};
  for (size_t i = 0; i < ARRAY_LENGTH(keys); i++)
    cr_expect_neq(strstr(out.files[0].bytes, keys[i]), NULL, "%s in %s", keys[i],
                  out.files[0].bytes);
}

Test(format_dejavu, three_timings_are_written_where_the_decorator_asks_for_quantiles) {
  static const char quantiles[] = "{\"search_parameters\":\"x\",\"quantiles\":[0.5,0.2,0.8]}";
  cleanup_cache_files struct cache_files three = {0}, one = {0};
  cr_assert(
      render_text(RELEASE(WINNER_CONFIG, "[[1],0,0,[0.2,0.1,0.3],7],[[2],0,0,[2.0,1.0,3.0],7]"),
                  quantiles, &three),
      "%s", error.message);
  cr_expect_neq(strstr(three.files[0].bytes, "0.2,\n            0.1,\n            0.3\n"), NULL);
  cr_expect_neq(strstr(three.files[0].bytes, "\"max_ms\""), NULL);
  cr_assert(render_text(RELEASE(WINNER_CONFIG, "[[1],0,0,[0.2,0.1,0.3],7],[[2],0,0,[2.0],7]"),
                        quantiles, &one));
  cr_expect_null(strstr(one.files[0].bytes, "0.1"), "%s", one.files[0].bytes);
  cr_expect_null(strstr(one.files[0].bytes, "max_ms"));
}

Test(format_dejavu, without_an_identity_the_environment_names_the_folders) {
  cleanup_cache_files struct cache_files out = {0};
  struct kernels none = {0};
  cleanup_release struct release *release =
      release_of_text(RELEASE(WINNER_CONFIG, "[[4096],0,0,[],7]"));
  cleanup_identity struct identity *identity = identity_with(example_record(DEJAVU), NULL);
  cr_assert(render_with("dejavu", release, &none, identity, &out, &error), "%s", error.message);
  cr_expect_str_eq(out.files[0].path, GOLDEN_PATH);
}

Test(format_dejavu, an_environment_without_triton_is_refused) {
  cleanup_cache_files struct cache_files out = {0};
  struct kernels none = {0};
  cleanup_release struct release *release =
      release_of_text("{\"environment\":{\"gpu\":\"X\",\"rocm\":\"6.4\"},\"kernels\":[" KERNEL(
          "demo/add", DIGEST, "\"n\"", WINNER_CONFIG, TUNED,
          "[[1],0,0,[],7]") "],\"tag\":\"default\",\"version\":2}");
  cr_expect_not(render_with("dejavu", release, &none, NULL, &out, &error));
  cr_expect_neq(strstr(error.message, "states no triton"), NULL, "%s", error.message);
}

Test(format_dejavu, a_record_of_another_triton_is_refused) {
  cleanup_cache_files struct cache_files out = {0};
  struct kernels none = {0};
  cleanup_release struct release *release =
      release_of_text(RELEASE(WINNER_CONFIG, "[[4096],0,0,[],7]"));
  json_t *record = example_record(DEJAVU);
  json_object_set_new(json_object_get(record, "triton"), "version", json_string("3.4.0"));
  cleanup_identity struct identity *identity = identity_with(record, "dejavu_0.7");
  cr_expect_not(render_with("dejavu", release, &none, identity, &out, &error));
  cr_expect_neq(strstr(error.message, "recorded with Triton 3.4.0"), NULL, "%s", error.message);
}

Test(format_dejavu, a_tuning_key_may_be_an_expression) {
  cleanup_cache_files struct cache_files out = {0}, refused = {0};
  struct kernels none = {0};
  cleanup_release struct release *release =
      release_of_text(RELEASE(WINNER_CONFIG, "[[4096],0,0,[],7]"));
  json_t *record = example_record(DEJAVU), *unknown = example_record(DEJAVU);
  json_object_set_new(record, "tuning_key", json_pack("[s]", "n // 2"));
  json_object_set_new(unknown, "tuning_key", json_pack("[s]", "m"));
  cleanup_identity struct identity *identity = identity_with(record, "dejavu_0.7"),
                                   *other = identity_with(unknown, "dejavu_0.7");
  cr_assert(render_with("dejavu", release, &none, identity, &out, &error), "%s", error.message);
  cr_expect_neq(strstr(out.files[0].bytes, "('2048', 't"), NULL, "%s", out.files[0].bytes);
  cr_expect_not(render_with("dejavu", release, &none, other, &refused, &error));
  cr_expect_neq(strstr(error.message, "the value of \"n\" in the function's tuning key"), NULL,
                "%s", error.message);
}

/* A file of the published example: entries and timings are texts of members. */
#define FILE_OF(cache, timings)                                                                    \
  "{\"signature\": \"JITFunction(mykernels:add_kernel)\", \"total_bench_time_s\": 2.25, "          \
  "\"evaluated_configs\": 8, "                                                                     \
  "\"keys\": [\"n\"], \"cache\": {" cache "}, \"timings\": {" timings                              \
  "}, \"timings_data\": {\"labels\": [\"ms\"], "                                                   \
  "\"rep_t_ms\": 100, \"warmup_t_ms\": 25, \"cuda_graphs\": false}}"
#define ENTRY(key, config) "\"" key "\": \"" config "\""
#define ONE ENTRY("('64', 'torch.float16')", CONFIG("256", "0", "4"))

static bool read_text(const char *path, const char *text, struct imported *ret) {
  cleanup_cache_files struct cache_files files = {0};
  files_add_text(&files, path, text);
  error = (struct error){0};
  return read_with("dejavu", &files, NULL, ret, &error);
}

static void expect_same_bytes(const char *path, const char *text) {
  cleanup_imported struct imported imported = {0};
  cleanup_cache_files struct cache_files out = {0};
  cleanup_json json_t *json = json_loads(text, 0, NULL);
  size_t size;
  cleanup_free char *dumped = python_json(json, 4, &size);
  cr_assert(read_text(path, dumped, &imported), "%s", error.message);
  render_imported(&imported, &out);
  cr_expect_str_eq(out.files[0].path, strstr(path, "dejavu_0."));
  cr_expect_str_eq(out.files[0].bytes, dumped);
}

#define OLD(version)                                                                               \
  "dejavu_0." version                                                                              \
  "/rocm_6.1.0/torch_2.4.0+rocm6.1/triton_3.0.0/gpu_AMD_Instinct_MI300X/add_kernel/"
#define PATH_0_5                                                                                   \
  OLD("5") "autotune_config-" P "/kernel_configs-" G "/code_version-" C "/default/cache.json"
#define PATH_0_6                                                                                   \
  OLD("6")                                                                                         \
  "autotune_config-" P "/code_version-" C "/tune_features-" K "/kernel_configs-" G                 \
  "/default/cache.json"

Test(format_dejavu, trees_of_older_versions_come_back) {
#define OLD_FINE                                                                                   \
  ENTRY("('64', 'torch.float16')",                                                                 \
        "BLOCK: 256, E: True, num_warps: 4, num_ctas: 1, num_stages: 2, maxnreg: 64")
  expect_same_bytes("backup/dejavu_0x/dejavu_data/" PATH_0_5,
                    FILE_OF(OLD_FINE, "\"('64', 'torch.float16')\": [0.25]"));
  expect_same_bytes(PATH_0_6, FILE_OF(OLD_FINE, ""));
}

Test(format_dejavu, the_environment_is_read_from_the_path) {
  cleanup_imported struct imported imported = {0};
  cr_assert(read_text(PATH_0_5, FILE_OF(ONE, ""), &imported), "%s", error.message);
  cleanup_free char *environment = json_canonical(imported.environment);
  cr_expect_str_eq(
      environment,
      "{\"gpu\":\"AMD Instinct MI300X\",\"rocm\":\"6.1.0\",\"torch\":\"2.4.0+rocm6.1\","
      "\"triton\":\"3.0.0\"}");
}

Test(format_dejavu, keys_and_configs_are_typed_by_their_texts) {
  cleanup_imported struct imported imported = {0};
  cr_assert(read_text(GOLDEN_PATH,
                      FILE_OF(ENTRY("('0.5', '-0', 'None', 'True', '1e5')",
                                    "A: 1, B: x, C: None, num_warps: 4"),
                              ""),
                      &imported),
            "%s", error.message);
  const struct imported_entry *entry = &imported.kernels[0].entries[0];
  cleanup_free char *key = json_canonical(entry->key), *config = json_canonical(entry->config),
                    *provenance = json_canonical(entry->provenance);
  cr_expect_str_eq(
      key, "{\"dtype_0\":\"-0\",\"dtype_1\":null,\"dtype_2\":true,\"dtype_3\":\"1e5\",\"n\":0.5}");
  cr_expect_str_eq(config, "{\"A\":1,\"B\":\"x\",\"C\":null,\"num_warps\":4}");
  cr_expect_str_eq(provenance, "{\"evaluated_configs\":8,\"source\":\"" GOLDEN_PATH
                               "\",\"total_bench_time_s\":2.25}");
  cr_expect_str_eq(json_string_value(json_object_get(imported.kernels[0].manifest, "name")),
                   "dejavu/add_kernel");
}

Test(format_dejavu, names_that_expressions_cannot_read_are_replaced) {
  cleanup_imported struct imported imported = {0};
  cr_assert(
      read_text(
          PATH_0_5,
          "{\"signature\": \"JITFunction(m:add_kernel)\", \"total_bench_time_s\": 1, "
          "\"evaluated_configs\": 1, "
          "\"keys\": [\"gpu_name\", \"n\", \"n\", \"a b\"], \"timings\": {}, \"cache\": {" ENTRY(
              "('1', '2', '3', '4')", "A: 1") "}}",
          &imported),
      "%s", error.message);
  cleanup_free char *names = json_canonical(json_object_get(imported.kernels[0].manifest, "key"));
  cr_expect_str_eq(names, "[\"gpu_name_\",\"n\",\"n_\",\"key_3\"]");
}

Test(format_dejavu, entries_with_fewer_dtypes_are_of_another_kernel_and_come_back_together) {
  static const char text[] =
      FILE_OF(ENTRY("('1', 'torch.float16')", CONFIG("256", "0", "4")) ", " ENTRY(
                  "('1', 'torch.float16', 'torch.int32')", CONFIG("256", "0", "8")),
              "");
  cleanup_imported struct imported imported = {0};
  cleanup_cache_files struct cache_files out = {0};
  cr_assert(read_text(GOLDEN_PATH, text, &imported), "%s", error.message);
  cr_expect_eq(imported.n_kernels, (size_t)2);
  render_imported(&imported, &out);
  cr_assert_eq(out.n, (size_t)1);
  cleanup_json json_t *before = json_loads(text, 0, NULL),
                      *after = json_loads(out.files[0].bytes, 0, NULL);
  cr_expect(json_equal(before, after), "%s", out.files[0].bytes);
}

Test(format_dejavu, a_config_in_an_order_of_its_own_is_kept_in_it) {
  static const char text[] =
      FILE_OF(ENTRY("('1', 'torch.float16')", CONFIG("256", "0", "4")) ", " ENTRY(
                  "('2', 'torch.float16')", "waves_per_eu: 0, BLOCK: 256, num_warps: 4" REST),
              "");
  cleanup_imported struct imported imported = {0};
  cleanup_cache_files struct cache_files out = {0};
  cr_assert(read_text(GOLDEN_PATH, text, &imported), "%s", error.message);
  render_imported(&imported, &out);
  cr_expect_eq(out.n_skipped, (size_t)0);
  cr_expect_neq(strstr(out.files[0].bytes, "\"waves_per_eu: 0, BLOCK: 256, num_warps: 4" REST),
                NULL, "%s", out.files[0].bytes);
}

Test(format_dejavu, two_files_make_one_import) {
  cleanup_cache_files struct cache_files files = {0}, out = {0};
  cleanup_imported struct imported imported = {0};
  files_add_text(&files, "README.md", "hello");
  files_add_text(&files, GOLDEN_PATH, FILE_OF(ONE, ""));
  files_add_text(&files,
                 STORAGE "/add_kernel/autotune_config-" OTHER "/code_version-" C "/tune_features-" K
                         "/kernel_configs-" G "/default/cache.json",
                 FILE_OF(ONE, ""));
  cr_assert(read_with("dejavu", &files, NULL, &imported, &error), "%s", error.message);
  cr_expect_eq(imported.n_kernels, (size_t)2);
  render_imported(&imported, &out);
  cr_expect_eq(out.n, (size_t)2);
}

static void expect_refused(const char *path, const char *text, const char *what) {
  struct imported imported = {0};
  cr_expect_not(read_text(path, text, &imported), "%s was read", text);
  cr_expect_neq(strstr(error.message, what), NULL, "%s", error.message);
  cr_expect_null(imported.kernels);
  cr_expect_null(imported.environment);
}

Test(format_dejavu, paths_that_say_nothing_are_refused) {
  static const char text[] = FILE_OF(ONE, "");
  expect_refused("dejavu.json", text, "none of the 1 files is a cache.json");
  expect_refused("x/cache.json", text, "x/cache.json: the path has no folder like dejavu_0.7");
  expect_refused("dejavu_0.4/cache.json", text, "layout dejavu_0.4 is not known");
  expect_refused("dejavu_0. 7/cache.json", text, "is not known");
  expect_refused("dejavu_0.5.0/cuda_12.4/torch_2.3.0/triton_3.0.0/gpu_A/add-" P
                 "/default/cache.json",
                 text, "layout dejavu_0.5.0 is not known");
  expect_refused("dejavu_0.7/cache.json", text, "one is missing");
  expect_refused("dejavu_0.7/etc/cache.json", text, "\"etc\" cannot be in a path");
  expect_refused("dejavu_0.7/triton_1/triton_2/cache.json", text,
                 "\"triton_2\" cannot be in a path");
  expect_refused("dejavu_0.7/triton_1/../cache.json", text, "\"..\" cannot be in a path");
  expect_refused("dejavu_0.7//cache.json", text, "\"\" cannot be in a path");
  expect_refused(STORAGE "/../add/cache.json", text, "\"..\" cannot be in a path");
  expect_refused(STORAGE "/f/autotune_config-12/cache.json", text, "cannot be in a path");
  expect_refused(STORAGE "/f/autotune_config-x" P "/cache.json", text, "cannot be in a path");
  expect_refused(STORAGE "/f/default/cache.json", text, "cannot be in a path");
  expect_refused(STORAGE FOLDER("default/more"), text, "\"more\" cannot be in a path");
  expect_refused("dejavu_0.7/torch_2.4.0/triton_3.3.1/rocm_6.4.1/gpu_X" FOLDER("default"), text,
                 "one too many");
}

Test(format_dejavu, broken_files_are_refused_with_their_place) {
  expect_refused(GOLDEN_PATH, "", "it is empty");
  expect_refused(GOLDEN_PATH, "{\"signature\": \"JITFunction(", "line 1, column");
  expect_refused(GOLDEN_PATH, "[]", "must be an object");
  expect_refused(GOLDEN_PATH, "{\"cache\": {}, \"cache\": {}}", "duplicate");
  expect_refused(GOLDEN_PATH, FILE_OF(ONE ", " ONE, ""), "duplicate");
  expect_refused(GOLDEN_PATH, "{}", "/signature");
  expect_refused(GOLDEN_PATH, FILE_OF("", ""), "no cache.json has an entry");
#define HEAD(signature, total, evaluated, keys)                                                    \
  "{\"signature\": " signature ", \"total_bench_time_s\": " total                                  \
  ", \"evaluated_configs\": " evaluated ", \"keys\": " keys ", \"cache\": {" ONE                   \
  "}, \"timings\": {}}"
#define NAME "\"JITFunction(m:add_kernel)\""
  expect_refused(GOLDEN_PATH, HEAD("\"JITFunction(m:other)\"", "1", "1", "[\"n\"]"),
                 "/signature: ");
  expect_refused(GOLDEN_PATH, HEAD("\"add_kernel\"", "1", "1", "[\"n\"]"),
                 "is not JITFunction(module:add_kernel)");
  expect_refused(GOLDEN_PATH, HEAD(NAME, "-1", "1", "[\"n\"]"), "must not be negative");
  expect_refused(GOLDEN_PATH, HEAD(NAME, "\"1\"", "1", "[\"n\"]"), "/total_bench_time_s");
  expect_refused(GOLDEN_PATH, HEAD(NAME, "1e999", "1", "[\"n\"]"), "line 1");
  expect_refused(GOLDEN_PATH, HEAD(NAME, "1", "99999999999", "[\"n\"]"), "/evaluated_configs");
  expect_refused(GOLDEN_PATH, HEAD(NAME, "1", "1", "[\"m\"]"), "is of other names");
  expect_refused(GOLDEN_PATH, HEAD(NAME, "1", "1", "[1]"), "/keys/0: a name must be a string");
  expect_refused(PATH_0_5, HEAD(NAME, "1", "1", "[\"a\", \"b\", \"c\"]"),
                 "has 2 elements and \"keys\" 3 names");
}

/* Trees as versions before 0.5.4 wrote them: no "keys"; timings, where there are any, are objects;
 * and before 0.5.2 the function's folder has one hash of everything. */
#define SOME_KEY "('64', 'True', 'torch.float16')"
#define WITHOUT_KEYS(signature, key, timings)                                                      \
  "{\"signature\": \"" signature "\", \"total_bench_time_s\": 23.5, \"evaluated_configs\": 16, "   \
  "\"cache\": {" ENTRY(key, "BLOCK: 64, num_warps: 8, num_ctas: 1, num_stages: 1") "}" timings "}"
#define OLD_TIMINGS                                                                                \
  ", \"timings\": {\"" SOME_KEY                                                                    \
  "\": {\"values\": [0.5], \"lables\": [\"ms\"], \"rep_t_ms\": 100, \"warmup_t_ms\": "             \
  "25}}"
#define CUDA_0_5 "dejavu_0.5/cuda_12.4/torch_2.4.0+cu121/triton_3.0.0/gpu_NVIDIA_A100_80GB_PCIe/"

Test(format_dejavu, trees_before_0_5_4_are_refused_by_the_name_of_their_layout) {
  static const char what[] =
      "a cache of triton-dejavu 0.5 without \"keys\", as versions before 0.5.4 wrote it",
                    what_to_do[] = "import what a newer triton-dejavu writes";
  static const char timed[] = WITHOUT_KEYS("JITFunction(m:add_kernel)", SOME_KEY, OLD_TIMINGS),
                    untimed[] = WITHOUT_KEYS("JITFunction(m:add_kernel)", SOME_KEY, "");
  expect_refused(PATH_0_5, timed, what);
  expect_refused(PATH_0_5, timed, what_to_do);
  expect_refused(PATH_0_5, untimed, what);
  /* The form of the example in triton-dejavu's own description: numbers without quotes, no
   * module. */
  expect_refused(CUDA_0_5 "f/autotune_config-" P "/kernel_configs-" G "/code_version-" C
                          "/default/cache.json",
                 WITHOUT_KEYS("JITFunction(f)", "(2, True, 0.0, 'torch.float16')", ""), what);
  expect_refused(GOLDEN_PATH, untimed, "a cache of triton-dejavu 0.7 without \"keys\"");
}

Test(format_dejavu, a_tree_with_one_hash_of_everything_is_refused_by_the_name_of_its_layout) {
  static const char fine[] = WITHOUT_KEYS("JITFunction(m:f)", SOME_KEY, OLD_TIMINGS);
  expect_refused(
      CUDA_0_5 "f-" P "/default/cache.json", fine,
      "a cache of triton-dejavu 0.5.0 or 0.5.1, whose folder has one hash of everything");
  expect_refused("dejavu_0.5.1/cuda_12.4/torch_2/triton_3.0.0/gpu_X/f-" P "/default/cache.json",
                 fine, "the layout dejavu_0.5.1 is not known");
}

Test(format_dejavu, broken_entries_are_refused_with_their_place) {
#define BAD(key, config) FILE_OF(ENTRY(key, config), "")
  expect_refused(GOLDEN_PATH, BAD("64", "A: 1"),
                 "/cache/64: the key 64 is not a tuple of strings: column 1");
  expect_refused(GOLDEN_PATH, BAD("(64, '1')", "A: 1"), "column 2 does not begin a string");
  expect_refused(GOLDEN_PATH, BAD("('64' '1')", "A: 1"), "column 6 has no");
  expect_refused(GOLDEN_PATH, BAD("('64')", "A: 1"), "lacks the \",\"");
  expect_refused(GOLDEN_PATH, BAD("('64', '1') ", "A: 1"), "has more text after the tuple");
  expect_refused(GOLDEN_PATH, BAD("('64', '1", "A: 1"), "begins no whole string");
  expect_refused(GOLDEN_PATH, BAD("('64', \\\"1\\\")", "A: 1"), "not quoted as Python quotes it");
  expect_refused(GOLDEN_PATH, BAD("('64', '1')", "A"), "has at column 1 no \"name: value\"");
  expect_refused(GOLDEN_PATH, BAD("('64', '1')", "A: 1, B: 2: 3"), "has at column 7 no");
  expect_refused(GOLDEN_PATH, BAD("('64', '1')", "A: 1, A: 2"), "has \"A\" twice");
  expect_refused(GOLDEN_PATH, FILE_OF("\"('64', '1')\": 5", ""), "a config must be a string");
  expect_refused(GOLDEN_PATH, FILE_OF(ONE, "\"('64', 'torch.float16')\": []"), "/timings/");
  expect_refused(GOLDEN_PATH, FILE_OF(ONE, "\"('64', 'torch.float16')\": [1, 2, 3]"),
                 "one for each label");
  expect_refused(GOLDEN_PATH, FILE_OF(ONE, "\"('64', 'torch.float16')\": [0]"), "above 0");
  expect_refused(GOLDEN_PATH, FILE_OF(ONE, "\"('64', 'torch.float16')\": [\"x\"]"), "above 0");
  expect_refused(GOLDEN_PATH, FILE_OF(ONE, "\"x\": [1.0]"),
                 "/timings/x: \"cache\" has no such key");
}

Test(format_dejavu, broken_timings_data_are_refused) {
#define DATA(data)                                                                                 \
  "{\"signature\": " NAME                                                                          \
  ", \"total_bench_time_s\": 1, \"evaluated_configs\": 1, \"keys\": [\"n\"], \"cache\": {" ONE     \
  "}, \"timings\": {}, \"timings_data\": " data "}"
  expect_refused(GOLDEN_PATH, DATA("[]"), "/timings_data");
  expect_refused(
      GOLDEN_PATH,
      DATA("{\"labels\": [\"s\"], \"rep_t_ms\": 1, \"warmup_t_ms\": 1, \"cuda_graphs\": true}"),
      "/timings_data/labels");
  expect_refused(
      GOLDEN_PATH,
      DATA(
          "{\"labels\": [\"ms\"], \"rep_t_ms\": \"1\", \"warmup_t_ms\": 1, \"cuda_graphs\": true}"),
      "/timings_data/rep_t_ms");
  expect_refused(GOLDEN_PATH, DATA("{\"x\": 1}"), "/timings_data/x");
}

Test(format_dejavu, files_of_two_environments_or_tags_are_refused) {
  struct imported imported = {0};
  cleanup_cache_files struct cache_files environments = {0}, tags = {0};
  files_add_text(&environments, GOLDEN_PATH, FILE_OF(ONE, ""));
  files_add_text(&environments, PATH_0_6, FILE_OF(ONE, ""));
  cr_expect_not(read_with("dejavu", &environments, NULL, &imported, &error));
  cr_expect_neq(strstr(error.message, "import them separately"), NULL, "%s", error.message);
  files_add_text(&tags, GOLDEN_PATH, FILE_OF(ONE, ""));
  files_add_text(&tags, STORAGE FOLDER("other"), FILE_OF(ONE, ""));
  cr_expect_not(read_with("dejavu", &tags, NULL, &imported, &error));
  cr_expect_neq(strstr(error.message, "occurs twice: also in " STORAGE), NULL, "%s", error.message);
}

#define REGISTERED(key)                                                                            \
  "{\"name\":\"demo/"                                                                              \
  "add\",\"language\":\"triton\",\"entry\":\"f\",\"sources\":[{\"path\":\"f.py\",\"digest\":"      \
  "\"" DIGEST "\"}],\"key\":[" key                                                                 \
  "],\"arguments\":[{\"name\":\"x\",\"dtype\":\"float16\",\"shape\":[\"1\"],\"access\":"           \
  "\"readwrite\"}],\"launch\":{\"grid\":[\"1\"]}}"

static bool read_for_kernel(const char *manifest, struct kernels *kernels, struct imported *ret) {
  cleanup_cache_files struct cache_files files = {0};
  cleanup_json json_t *json = json_loads(manifest, 0, NULL);
  files_add_text(&files, GOLDEN_PATH,
                 FILE_OF(ENTRY("('4096', 'torch.float16', 'torch.float16', 'torch.float16')",
                               CONFIG("1024", "0", "8")),
                         ""));
  error = (struct error){0};
  return read_with("dejavu", &files, kernels_add(kernels, json), ret, &error);
}

Test(format_dejavu, an_import_for_a_kernel_has_its_key_and_a_point_of_its_space) {
  cleanup_imported struct imported imported = {0};
  cleanup_kernels struct kernels kernels = {0};
  cleanup_cache_files struct cache_files out = {0};
  cr_assert(read_for_kernel(REGISTERED("\"n\""), &kernels, &imported), "%s", error.message);
  cleanup_free char *key = json_canonical(imported.kernels[0].entries[0].key),
                    *config = json_canonical(imported.kernels[0].entries[0].config);
  cr_expect_str_eq(key, "{\"n\":4096}");
  cr_expect_str_eq(config, "{\"BLOCK\":1024,\"num_stages\":2,\"num_warps\":8,\"waves_per_eu\":0}");
  cleanup_release struct release *release = release_of(&imported, "dejavu", NULL, &kernels);
  cleanup_identity struct identity *identity = identity_with(example_record(DEJAVU), "dejavu_0.7");
  cr_assert(render_with("dejavu", release, &kernels, identity, &out, &error), "%s", error.message);
  cr_expect_str_eq(out.files[0].path, GOLDEN_PATH);
  cr_expect_neq(strstr(out.files[0].bytes, CONFIG("1024", "0", "8")), NULL);
  cr_expect_neq(strstr(out.files[0].bytes, "\"total_bench_time_s\": 2.25,"), NULL);
}

Test(format_dejavu, an_import_for_a_kernel_of_another_key_is_refused) {
  struct imported imported = {0};
  cleanup_kernels struct kernels kernels = {0};
  cr_expect_not(read_for_kernel(REGISTERED("\"m\""), &kernels, &imported));
  cr_expect_neq(strstr(error.message, "are not the key of kernel demo/add"), NULL, "%s",
                error.message);
}

Test(format_dejavu, of_a_tuned_and_an_imported_winner_for_one_key_the_tuned_one_is_written) {
  cleanup_imported struct imported imported = {0};
  cleanup_kernels struct kernels kernels = {0};
  cleanup_cache_files struct cache_files out = {0};
  cr_assert(read_text(GOLDEN_PATH,
                      FILE_OF(ENTRY("('4096', 'torch.float16', 'torch.float16', 'torch.float16')",
                                    CONFIG("256", "0", "4")),
                              ""),
                      &imported));
  const struct kernel *kernel = kernels_add(&kernels, imported.kernels[0].manifest);
  char digest[DIGEST_TEXT_SIZE];
  cleanup_free char *text = xasprintf(
      RELEASE_OF(KERNEL(
          "dejavu/add_kernel", "%s", "\"n\",\"dtype_0\",\"dtype_1\",\"dtype_2\"",
          "{\"values\":{\"BLOCK\":256,\"maxnreg\":null,"
          "\"num_buffers_warp_spec\":0,\"num_consumer_groups\":0,\"num_ctas\":1,\"num_stages\":2,"
          "\"num_warps\":4,\"reg_dec_producer\":0,\"reg_inc_consumer\":0,\"waves_per_eu\":0}}",
          "{\"origin\":\"imported\"}",
          "[[4096,\"torch.float16\",\"torch.float16\",\"torch.float16\"],0,0,[],0]") ",%s"),
      digest_format(&kernel->hash, digest),
      KERNEL("demo/add", DIGEST, "\"n\"", WINNER_CONFIG, TUNED, "[[4096],0,0,[],7]"));
  cleanup_release struct release *release = release_of_text(text);
  cleanup_identity struct identity *identity = identity_with(example_record(DEJAVU), "dejavu_0.7");
  cr_assert(render_with("dejavu", release, &kernels, identity, &out, &error), "%s", error.message);
  cr_assert_eq(out.n, (size_t)1);
  cr_expect_neq(strstr(out.files[0].bytes, CONFIG("1024", "0", "8")), NULL);
  cr_assert_eq(out.n_skipped, (size_t)1);
  cr_expect_neq(strstr(out.skipped[0].reason, "is the same to dejavu"), NULL, "%s",
                out.skipped[0].reason);
}

/* An external kernel with members of its exports replaced. */
static void expect_exports_refused(const char *member, const char *value, const char *environment,
                                   const char *what) {
  cleanup_imported struct imported imported = {0};
  cleanup_kernels struct kernels kernels = {0};
  cleanup_cache_files struct cache_files out = {0};
  cr_assert(read_text(GOLDEN_PATH, FILE_OF(ONE, ""), &imported));
  json_t *exports =
      json_object_get(json_object_get(imported.kernels[0].manifest, "exports"), "dejavu");
  if (member)
    json_object_set_new(exports, member, json_loads(value, JSON_DECODE_ANY, NULL));
  cleanup_release struct release *release = release_of(&imported, "dejavu", environment, &kernels);
  cr_expect_not(render_with("dejavu", release, &kernels, NULL, &out, &error));
  cr_expect_neq(strstr(error.message, what), NULL, "%s", error.message);
}

Test(format_dejavu, hostile_exports_are_refused) {
  expect_exports_refused("function", "\"../../etc\"", NULL, "cannot be a part of a path");
  expect_exports_refused("code_version", "\"../x\"", NULL, "cannot be a part of a path");
  expect_exports_refused("kernel_configs", "5", NULL, "one is missing");
  expect_exports_refused("layout", "\"dejavu_0.3\"", NULL, "is not known");
  expect_exports_refused("layout", "\"dejavu_0.6\"", NULL, "states no torch");
  expect_exports_refused("keys", "[1]", NULL, "names must be strings");
  expect_exports_refused(
      "config",
      "[1, \"num_buffers_warp_spec\", \"num_consumer_groups\", \"reg_dec_producer\", "
      "\"reg_inc_consumer\", \"maxnreg\"]",
      NULL, "order of the config's members is not known");
  expect_exports_refused(NULL, NULL, "{\"gpu\":\"X\",\"rocm\":\"6.4\",\"triton\":\"3.4.0\"}",
                         "printed by another Triton than 3.4.0");
}

Test(format_dejavu, a_kernel_without_a_record_says_how_to_take_one) {
  cleanup_cache_files struct cache_files out = {0};
  cleanup_kernels struct kernels kernels = {0};
  cleanup_json json_t *manifest = json_loads(REGISTERED("\"n\""), 0, NULL);
  const struct kernel *kernel = kernels_add(&kernels, manifest);
  char digest[DIGEST_TEXT_SIZE];
  cleanup_free char *text = xasprintf(
      RELEASE_OF(KERNEL("demo/add", "%s", "\"n\"", WINNER_CONFIG, TUNED, "[[1],0,0,[],7]")),
      digest_format(&kernel->hash, digest));
  cleanup_release struct release *release = release_of_text(text);
  cr_expect_not(render_with("dejavu", release, &kernels, NULL, &out, &error));
  cr_expect_neq(strstr(error.message, "python3 -m wavetune identity"), NULL, "%s", error.message);
}

/* A source whose one kernel was measured with a build that has a record. */
struct measured {
  struct kernel *kernel;
  struct build build;
  bool is_lost;
};

static bool measured_kernel(void *context, const struct digest *hash, const struct kernel **ret,
                            struct error *why) {
  struct measured *measured = context;
  (void)hash;
  (void)why;
  *ret = measured->kernel;
  return true;
}

static bool measured_build(void *context, const struct kernel *kernel, const struct digest *digest,
                           const struct build **ret, struct error *why) {
  struct measured *measured = context;
  char text[DIGEST_TEXT_SIZE];
  cr_expect_eq(kernel, measured->kernel);
  cr_expect_str_eq(digest_format(digest, text), DIGEST);
  if (measured->is_lost)
    return error_set(why, "the build is gone");
  *ret = &measured->build;
  return true;
}

#define PACKED(digest) "{\"build\":\"" digest "\",\"origin\":\"tuned\"}"

static bool render_packed(struct measured *measured, const struct identity *identity,
                          struct cache_files *out) {
  cleanup_json json_t *manifest = json_loads(REGISTERED("\"n\""), 0, NULL);
  cr_assert(kernel_parse(manifest, &measured->kernel, &error), "%s", error.message);
  cleanup_release struct release *release = release_of_text(RELEASE_OF(
      KERNEL("demo/add", DIGEST, "\"n\"", WINNER_CONFIG, PACKED(DIGEST), "[[4096],0,0,[],7]")));
  struct cache_source source = {
      .context = measured, .kernel = measured_kernel, .build = measured_build};
  struct render_request request = {.release = release, .source = &source, .identity = identity};
  error = (struct error){0};
  bool ok = format_named("dejavu")->render(&request, out, &error);
  kernel_free(measured->kernel);
  return ok;
}

Test(format_dejavu, the_record_of_the_build_serves_where_the_image_has_none) {
  cleanup_cache_files struct cache_files out = {0};
  cleanup_json json_t *record = example_record(DEJAVU);
  struct measured measured = {.build = {.record = record}};
  cr_assert(render_packed(&measured, NULL, &out), "%s", error.message);
  cr_expect_str_eq(out.files[0].path, GOLDEN_PATH);
}

Test(format_dejavu, the_image_record_of_the_same_text_goes_before_the_build_record) {
  cleanup_cache_files struct cache_files out = {0};
  cleanup_json json_t *record = example_record(DEJAVU);
  json_t *other = example_record(DEJAVU);
  json_object_set_new(other, "name", json_string("another/name"));
  json_object_set_new(json_object_get(other, "function"), "signature",
                      json_string("JITFunction(moved:add_kernel)"));
  struct measured measured = {.build = {.record = record}};
  cleanup_identity struct identity *identity = identity_with(other, "dejavu_0.7");
  cr_assert(render_packed(&measured, identity, &out), "%s", error.message);
  cr_expect_neq(strstr(out.files[0].bytes, "JITFunction(moved:add_kernel)"), NULL, "%s",
                out.files[0].bytes);
}

Test(format_dejavu,
     an_image_that_knows_a_kernel_by_its_name_has_dtypes_and_values_of_the_manifest) {
  cleanup_cache_files struct cache_files out = {0}, refused = {0};
  cleanup_kernels struct kernels kernels = {0};
  cleanup_json json_t *manifest = json_loads(REGISTERED("\"m\""), 0, NULL);
  json_array_append_new(
      json_object_get(manifest, "arguments"),
      json_pack("{s:s, s:s, s:s}", "name", "n", "dtype", "int32", "value", "2 * m"));
  char digest[DIGEST_TEXT_SIZE];
  cleanup_free char *text = xasprintf(
      RELEASE_OF(KERNEL("demo/add", "%s", "\"m\"", WINNER_CONFIG, TUNED, "[[2048],0,0,[],7]")),
      digest_format(&kernels_add(&kernels, manifest)->hash, digest));
  cleanup_release struct release *release = release_of_text(text);
  json_t *record = example_record(DEJAVU);
  json_object_del(record, "argument_dtypes");
  cleanup_identity struct identity *identity = identity_with(record, "dejavu_0.7");
  cr_assert(render_with("dejavu", release, &kernels, identity, &out, &error), "%s", error.message);
  cr_expect_neq(strstr(out.files[0].bytes, "\"('4096', 'torch.float16')\""), NULL, "%s",
                out.files[0].bytes);
  struct cache_source nothing = {0};
  cr_expect_not(format_named("dejavu")->render(
      &(struct render_request){.release = release, .source = &nothing, .identity = identity},
      &refused, &error));
  cr_expect_neq(strstr(error.message, "has no dtypes of its arguments"), NULL, "%s", error.message);
}

Test(format_dejavu, a_build_that_is_not_to_be_had_says_so) {
  cleanup_cache_files struct cache_files out = {0};
  struct measured measured = {.is_lost = true};
  cr_expect_not(render_packed(&measured, NULL, &out));
  cr_expect_neq(strstr(error.message, "the build is gone"), NULL, "%s", error.message);
}
