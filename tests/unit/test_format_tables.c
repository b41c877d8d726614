/* Tables of vLLM, SGLang and AITER: those that the projects ship come back with the same meaning,
 * tuned rows are merged with imported ones, and what was measured where is beside them. */
#include "common/formats/table_exports.h"
#include "table_fixture.h"

static struct error error;

#define CONFIG(m)                                                                                  \
  "{\"BLOCK_SIZE_K\":128,\"BLOCK_SIZE_M\":" #m                                                     \
  ",\"BLOCK_SIZE_N\":64,\"GROUP_SIZE_M\":1,\"num_warps\":4}"
#define W8A8 "N=512,K=256,device_name=AMD_Instinct_MI300X,dtype=fp8_w8a8,block_shape=[128,128].json"

static const struct cache_file *file_of(const struct cache_files *files, const char *path) {
  for (size_t i = 0; i < files->n; i++)
    if (strcmp(files->files[i].path, path) == 0)
      return &files->files[i];
  cr_assert(false, "%s was not written, but %s", path, files->n ? files->files[0].path : "nothing");
  return NULL;
}

static json_t *json_of_file(const struct cache_files *files, const char *path) {
  const struct cache_file *file = file_of(files, path);
  json_t *json = NULL;
  cr_assert(json_parse(file->bytes, file->size, &json, &error), "%s", error.message);
  return json;
}

static json_t *about_of(const struct cache_files *files) {
  return json_of_file(files, "wavetune-tables.json");
}

/* Reads the files and writes them as a release of their own environment, or of another one. */
static void write_again(const char *format, const struct cache_files *files,
                        const char *environment, struct cache_files *out) {
  cleanup_imported struct imported imported = {0};
  cleanup_kernels struct kernels kernels = {0};
  cr_assert(read_with(format, files, NULL, &imported, &error), "%s", error.message);
  cleanup_release struct release *release = release_of(&imported, format, environment, &kernels);
  cr_assert(render_with(format, release, &kernels, NULL, out, &error), "%s", error.message);
  cr_expect_eq(out->n_skipped, (size_t)0);
}

/* Whether each object's members that are numbers ascend. */
static void expect_ascending(const json_t *json, const char *path) {
  long long before = 0;
  json_members (json, name, value) {
    long long number = strtoll(strncmp(name, "M_LEQ_", 6) == 0 ? name + 6 : name, NULL, 10);
    cr_expect(!number || number > before, "%s: %s after %lld", path, name, before);
    before = number;
    if (json_is_object(value))
      expect_ascending(value, path);
  }
}

/* A table of the format at `path` below the format's folder, which has the test's data. */
static void expect_same_meaning(const char *format, const struct cache_file *file) {
  cleanup_cache_files struct cache_files in = {0}, out = {0}, again = {0};
  files_add_text(&in, file->path, file->bytes);
  write_again(format, &in, NULL, &out);
  cr_assert_eq(out.n, (size_t)2, "%s", file->path);

  cleanup_json json_t *before = json_of_file(&in, file->path), *after = NULL;
  cr_assert(json_parse(out.files[0].bytes, out.files[0].size, &after, &error));
  json_object_del(before, "triton_version");
  cr_expect(json_equal(before, after), "%s: %s", file->path, out.files[0].bytes);
  size_t size = strlen(out.files[0].path), tail = strlen(file->path);
  cr_expect(size >= tail && strcmp(out.files[0].path + size - tail, file->path) == 0, "%s: %s",
            file->path, out.files[0].path);
  expect_ascending(after, file->path);

  write_again(format, &out, NULL, &again);
  cr_expect_str_eq(again.files[0].bytes, out.files[0].bytes);
}

Test(format_tables, what_the_projects_ship_comes_back_with_the_same_meaning) {
  static const struct {
    const char *format, *folder;
    size_t n;
  } folders[] = {{"vllm-moe", "vllm-moe", 3},         {"vllm-w8a8", "vllm-w8a8", 1},
                 {"sglang-moe", "sglang-moe", 1},     {"sglang-w8a8", "sglang-w8a8", 1},
                 {"aiter-triton", "aiter-triton", 4}, {"aiter-triton", "aiter-triton-folder", 2}};
  for (size_t i = 0; i < ARRAY_LENGTH(folders); i++) {
    cleanup_cache_files struct cache_files files = {0};
    cleanup_free char *folder = xasprintf(TEST_DATA "/tables/%s", folders[i].folder);
    files_add_folder(&files, folder, "");
    cr_assert_eq(files.n, folders[i].n);
    for (size_t j = 0; j < files.n; j++)
      expect_same_meaning(folders[i].format, &files.files[j]);
  }
}

Test(format_tables, lora_has_a_level_for_each_number) {
#define LORA                                                                                       \
  "{\"block_m\": 16, \"block_n\": 16, \"block_k\": 32, \"num_warps\": 4, "                         \
  "\"num_stages\": 2, \"max_nreg\": null}"
  static const struct cache_file plain = {
      (char *)"NVIDIA_H200_EXPAND_TRUE.json",
      (char *)"{\"4\": {\"1\": {\"16\": {\"64\": {\"512\": " LORA
              "}}, \"8\": {\"64\": {\"1024\": " LORA ", \"512\": " LORA "}}}}}",
      0};
  static const struct cache_file experts = {
      (char *)"NVIDIA_H200_FUSED_MOE_LORA_W13_SHRINK.json",
      (char *)"{\"4\": {\"1\": {\"16\": {\"64\": {\"512\": {\"7\": " LORA "}}}}}}", 0};
  expect_same_meaning("vllm-moe", &plain);
  expect_same_meaning("vllm-moe", &experts);
}

Test(format_tables, tables_of_other_shapes_have_names_of_their_own) {
  static const struct cache_file fused = {
      (char *)"gfx950-FUSED-GEMM-A8W8_BLOCKSCALE-A16W16-N8=512-N16=256-K=7168.json",
      (char *)"{\"M_LEQ_8\": " CONFIG(16) ", \"any\": " CONFIG(32) "}", 0};
  static const struct cache_file channelwise = {
      (char *)"N=4096,K=512,device_name=NVIDIA_L40S,dtype=fp8_w8a8_channelwise.json",
      (char *)"{\"8\": {\"BLOCK_SIZE_M\": 16, \"BLOCK_SIZE_N\": 64, \"BLOCK_SIZE_K\": 128}}", 0};
  expect_same_meaning("aiter-triton", &fused);
  expect_same_meaning("sglang-w8a8", &channelwise);
}

static void expect_refused(const char *format, const char *path, const char *text,
                           const char *what) {
  cleanup_cache_files struct cache_files files = {0};
  struct imported imported = {0};
  files_add_text(&files, path, text);
  error = (struct error){0};
  cr_expect_not(read_with(format, &files, NULL, &imported, &error), "%s %s was read", path, text);
  cr_expect_neq(strstr(error.message, what), NULL, "%s", error.message);
  cr_expect_eq(strncmp(error.message, path, strlen(path)), 0, "%s", error.message);
}

Test(format_tables, a_malformed_entry_is_refused_with_file_and_place) {
  static const char aiter[] = "gfx942-GEMM-A8W8_BLOCKSCALE-N=8-K=8.json", lora[] = "X_SHRINK.json";
  expect_refused("vllm-w8a8", W8A8, "{\"triton_version\": \"3.6.0\"}",
                 ": /triton_version: a row must be a number M, 1 to");
  expect_refused("vllm-w8a8", W8A8, "{\"1\": null}", ": /1: a config must be an object");
  expect_refused("vllm-w8a8", W8A8, "{\"1\": {\"BLOCK_SIZE_M\": 8, \"BLOCK_SIZE_N\": 8}}",
                 ": /1: the config has no positive integer BLOCK_SIZE_K");
  expect_refused("vllm-w8a8", "N=8,K=8,device_name=X,dtype=fp8_w8a8.json", "{}",
                 "is not a name like N=7168");
  expect_refused("sglang-w8a8", "N=8,K=8,device_name=X,dtype=fp8_w8a8.json", "{}",
                 "is not a name like N=4096");
  expect_refused("sglang-w8a8", "N=8,K=8,device_name=X,dtype=fp8_w8a8_channelwise.json",
                 "{\"512\": null}", ": /512: a config must be an object");
  expect_refused("vllm-moe", "headdim=64,dstate=128,device_name=X.json", "{}",
                 "is not a name like headdim=");
  expect_refused("aiter-triton", aiter, "{\"16\": " CONFIG(16) "}", ": /16: a row must be M_LEQ_");
  expect_refused("aiter-triton", aiter, "{\"M_LEQ_016\": " CONFIG(16) "}", ": /M_LEQ_016: a row");
  expect_refused("aiter-triton", aiter, "{\"any\": {\"BLOCK_SIZE_M\": 16}}", ": /any: the config");
  expect_refused("aiter-triton", "gfx942-.json", "{}", "is not a name like gfx942-GEMM");
  expect_refused("vllm-moe", "headdim=64,dstate=128,device_name=X,cache_dtype=bfloat16.json",
                 "{\"1\": {\"BLOCK_SIZE_M\": 8, \"num_warps\": 4}}", "cache_dtype=float16.json");
  expect_refused("vllm-moe", lora, "{\"4\": {\"x\": {}}}", ": /4/x: a row must be a number num_sl");
  expect_refused("vllm-moe", lora, "{\"4\": {\"1\": 7}}", ": /4/1: must be an object of rows");
}

Test(format_tables, a_name_that_promises_no_table_is_refused_with_the_format) {
  const struct table_kind *kind;
  cleanup_table_place struct table_place place = {0};
  cleanup_json json_t *row = NULL;
  cr_expect_not(
      table_path_parse(&tables_vllm_moe, "folder/notes.json", &kind, &row, &place, &error));
  cr_expect_str_eq(error.message, "\"notes.json\" is not the name of a table of vllm-moe");
}

/* Releases of registered kernels */

#define DIGEST "sha256:ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
#define MANIFEST(key, exports)                                                                     \
  "{\"name\":\"z/t\",\"language\":\"triton\",\"entry\":\"f\",\"sources\":[{\"path\":\"f.py\","     \
  "\"digest\":\"" DIGEST "\"}],\"key\":" key ",\"arguments\":[{\"name\":\"x\",\"dtype\":"          \
  "\"float16\",\"shape\":[\"M\"],\"access\":\"readwrite\"}],\"launch\":{\"grid\":[\"1\"]},"        \
  "\"exports\":" exports "}"
#define MI300X                                                                                     \
  "{\"arch\":\"gfx942\",\"compute_units\":304,\"gpu\":\"AMD Instinct MI300X\",\"partition\":"      \
  "\"SPX/NPS1\",\"rocm\":\"6.4.1\"}"
#define CPX                                                                                        \
  "{\"arch\":\"gfx942\",\"compute_units\":38,\"gpu\":\"AMD Instinct MI300X\",\"partition\":"       \
  "\"CPX/NPS4\",\"rocm\":\"6.4.1\"}"

struct tuned {
  const char *key, *config;
};

static void tuned_add(struct release_builder *builder, const struct kernel *kernel,
                      const struct tuned *tuned) {
  cleanup_json json_t *key = json_loads(tuned->key, 0, NULL),
                      *config = json_loads(tuned->config, 0, NULL),
                      *provenance = json_pack("{s:s}", "origin", "tuned");
  const double ms = 0.5;
  struct release_entry entry = {.name = kernel->name,
                                .kernel = kernel->hash,
                                .key_names = (const char *const *)kernel->key_names,
                                .n_key_names = kernel->n_key_names,
                                .key = key,
                                .config = config,
                                .provenance = provenance,
                                .ms = &ms,
                                .n_ms = 1,
                                .job = 7};
  cr_assert(release_builder_add(builder, &entry, &error), "%s: %s", error.pointer, error.message);
}

/* Writes what was tuned for the kernel, and what `imported` (or NULL) has, as one release. */
static bool render(const char *format, const char *environment, const char *manifest,
                   const struct tuned *tuned, size_t n, const struct imported *imported,
                   struct cache_files *out) {
  cleanup_kernels struct kernels kernels = {0};
  cleanup_json json_t *json = json_loads(manifest, 0, NULL),
                      *stated = json_loads(environment, 0, NULL);
  cleanup_environment struct environment parsed = {0};
  cr_assert(json && stated && environment_parse(stated, &parsed, &error), "%s", error.message);
  cleanup_release_builder struct release_builder *builder =
      release_builder_new(&parsed, "default", REGIME_COLD);
  const struct kernel *kernel = kernels_add(&kernels, json);
  for (size_t i = 0; i < n; i++)
    tuned_add(builder, kernel, &tuned[i]);
  for (size_t i = 0; imported && i < imported->n_kernels; i++)
    winners_add(builder, kernels_add(&kernels, imported->kernels[i].manifest),
                &imported->kernels[i], format);
  struct release *made = NULL;
  cr_assert(release_builder_finish(builder, &made, &error), "%s", error.message);
  cleanup_release struct release *release = made;
  error = (struct error){0};
  return render_with(format, release, &kernels, NULL, out, &error);
}

static const char w8a8_manifest[] =
    MANIFEST("[\"M\",\"N\",\"K\"]",
             "{\"vllm-w8a8\":{\"N\":\"N\",\"K\":\"K\",\"M\":\"M\",\"dtype\":\"fp8_w8a8\","
             "\"block_shape\":[128,128]},"
             "\"sglang-w8a8\":{\"N\":\"N\",\"K\":\"K\",\"M\":\"M\",\"dtype\":\"fp8_w8a8\","
             "\"block_shape\":[128,128],\"switches\":{\"SGLANG_USE_AITER\":\"0\"}},"
             "\"aiter-triton\":{\"name\":\"GEMM-A8W8_BLOCKSCALE\",\"N\":\"N\",\"K\":\"K\","
             "\"M\":\"M\",\"switches\":{\"SGLANG_USE_AITER\":\"1\"}}}");
static const struct tuned w8a8_tuned[] = {{"{\"M\":16,\"N\":512,\"K\":256}", CONFIG(16)},
                                          {"{\"M\":4096,\"N\":512,\"K\":256}", CONFIG(64)}};

Test(format_tables, tuned_and_imported_rows_of_a_table_are_one_file_in_order) {
  cleanup_cache_files struct cache_files files = {0}, out = {0};
  cleanup_imported struct imported imported = {0};
  files_add_text(&files, W8A8,
                 "{\"64\": " CONFIG(128) ", \"16\": " CONFIG(256) ", \"1\": " CONFIG(32) "}");
  cr_assert(read_with("vllm-w8a8", &files, NULL, &imported, &error), "%s", error.message);
  cr_assert(render("vllm-w8a8", MI300X, w8a8_manifest, w8a8_tuned, 2, &imported, &out), "%s",
            error.message);
  cr_expect_eq(out.n_skipped, (size_t)0, "%s", out.n_skipped ? out.skipped[0].reason : "");

  cleanup_json json_t *table = json_of_file(&out, W8A8), *about = about_of(&out);
  cleanup_json json_t *wanted = json_loads(
      "{\"1\":" CONFIG(32) ",\"16\":" CONFIG(16) ",\"64\":" CONFIG(128) ",\"4096\":" CONFIG(64) "}",
      0, NULL);
  cr_expect(json_equal(table, wanted), "%s", file_of(&out, W8A8)->bytes);
  expect_ascending(table, W8A8);
  cleanup_free char *text = json_canonical(json_object_get(about, "files"));
  cr_expect_str_eq(text, "{\"" W8A8 "\":{\"imported\":2,\"rows\":4,\"takes\":{\"1\":[1,8],\"16\":"
                         "[9,40],\"4096\":[2081,null],\"64\":[41,2080]}}}");
}

Test(format_tables, each_reader_finds_block_scaled_tables_under_its_own_name) {
  cleanup_cache_files struct cache_files vllm = {0}, sglang = {0};
  cr_assert(render("vllm-w8a8", MI300X, w8a8_manifest, w8a8_tuned, 2, NULL, &vllm));
  cr_assert(render("sglang-w8a8", MI300X, w8a8_manifest, w8a8_tuned, 2, NULL, &sglang));
  cr_expect_str_eq(vllm.files[0].path, W8A8);
  cr_expect_str_eq(sglang.files[0].path,
                   "N=512,K=256,device_name=AMD_Instinct_MI300X,dtype=fp8_w8a8,"
                   "block_shape=[128, 128].json");
  cr_expect_str_eq(vllm.variables[0].name, "WAVETUNE_TABLES");

  cleanup_json json_t *about = about_of(&vllm), *of_sglang = about_of(&sglang);
  cleanup_free char *switches = json_canonical(json_object_get(about, "switches")),
                    *stated = json_canonical(json_object_get(of_sglang, "switches"));
  cr_expect_str_eq(switches, "{\"VLLM_ROCM_USE_AITER\":null}");
  cr_expect_str_eq(stated, "{\"SGLANG_USE_AITER\":\"0\"}");
}

Test(format_tables, rows_of_aiter_are_bounds_and_its_tables_say_that_an_arch_shares_them) {
  static const struct tuned tuned[] = {{"{\"M\":1,\"N\":512,\"K\":256}", CONFIG(32)},
                                       {"{\"M\":2,\"N\":512,\"K\":256}", CONFIG(16)},
                                       {"{\"M\":4096,\"N\":512,\"K\":256}", CONFIG(64)}};
  cleanup_cache_files struct cache_files out = {0}, none = {0};
  cr_assert(render("aiter-triton", MI300X, w8a8_manifest, tuned, 3, NULL, &out), "%s",
            error.message);
  cr_expect_eq(out.n_skipped, (size_t)1);
  cr_expect_neq(strstr(out.skipped[0].reason, "M is not one of 1, 4, 8"), NULL);
  static const char path[] = "gemm/gfx942-GEMM-A8W8_BLOCKSCALE-N=512-K=256.json";
  cleanup_json json_t *table = json_of_file(&out, path), *about = about_of(&out);
  cleanup_json json_t *wanted = json_loads(
      "{\"M_LEQ_1\":" CONFIG(32) ",\"M_LEQ_4096\":" CONFIG(64) ",\"any\":" CONFIG(64) "}", 0, NULL);
  cr_expect(json_equal(table, wanted), "%s", out.files[0].bytes);
  cleanup_free char *text = json_canonical(json_object_get(about, "files")),
                    *notes = json_canonical(json_object_get(about, "notes"));
  cr_expect_neq(strstr(text, "{\"M_LEQ_1\":[1,1],\"M_LEQ_4096\":[2,4096],\"any\":[4097,null]}"),
                NULL, "%s", text);
  cr_expect_neq(strstr(notes, "every GPU of gfx942 reads them"), NULL, "%s", notes);
  cr_expect_neq(strstr(notes, "measured on AMD Instinct MI300X."), NULL, "%s", notes);
  cr_expect_neq(strstr(notes, "is \\\"any\\\", too"), NULL, "%s", notes);
  cr_expect_not(render("aiter-triton",
                       "{\"cuda\":\"12.8\",\"gpu\":\"NVIDIA H200\",\"arch\":\"sm_90\"}",
                       w8a8_manifest, tuned, 1, NULL, &none));
  cr_expect_neq(strstr(error.message, "arch of an AMD GPU"), NULL, "%s", error.message);
}

Test(format_tables, an_arch_is_no_path_to_another_folder) {
  static const char *const archs[] = {"gfx942/../../gfx942", "gfx942/..:/gfx942", "gfx", "gfx 942"};
  list_foreach (arch, archs) {
    cleanup_cache_files struct cache_files out = {0};
    cleanup_free char *environment =
        xasprintf("{\"rocm\":\"6.4.1\",\"gpu\":\"AMD Instinct MI300X\",\"arch\":\"%s\"}", *arch);
    cr_expect_not(render("aiter-triton", environment, w8a8_manifest, w8a8_tuned, 1, NULL, &out));
    cr_expect_neq(strstr(error.message, *arch), NULL, "%s", error.message);
  }
}

Test(format_tables, what_no_reader_of_aiter_finds_is_skipped_and_shipped_rows_stay_as_they_are) {
  static const char exports[] = "{\"aiter-triton\":{\"name\":\"name\",\"N\":\"N\",\"K\":\"K\","
                                "\"M\":\"M\"}}";
  static const struct tuned tuned[] = {
      {"{\"K\":null,\"M\":1,\"N\":8,\"name\":\"GEMM-A\"}", CONFIG(16)},
      {"{\"K\":null,\"M\":1,\"N\":null,\"name\":\"MOE-A\"}", CONFIG(16)},
      {"{\"K\":null,\"M\":1,\"N\":null,\"name\":\"GEMM-A\"}", CONFIG(16)}};
  cleanup_cache_files struct cache_files out = {0}, files = {0}, shipped = {0};
  cleanup_free char *manifest = xasprintf(MANIFEST("[\"name\",\"M\",\"N\",\"K\"]", "%s"), exports);
  cr_assert(render("aiter-triton", MI300X, manifest, tuned, 3, NULL, &out), "%s", error.message);
  cr_expect_str_eq(out.files[0].path, "gemm/gfx942-GEMM-A.json");
  cr_assert_eq(out.n_skipped, (size_t)2);
  cr_expect_neq(strstr(out.skipped[0].reason, "K is None for this key, and"), NULL);
  cr_expect_neq(strstr(out.skipped[1].reason, "no program reads a table named gemm/gfx942-MOE-A"),
                NULL);

  files_add_text(&files, "gemm/gfx942-GEMM-A.json",
                 "{\"M_GEQ_64\": " CONFIG(64) ", \"M_LEQ_16\": " CONFIG(16) "}");
  write_again("aiter-triton", &files, MI300X, &shipped);
  cleanup_json json_t *before = json_of_file(&files, "gemm/gfx942-GEMM-A.json"),
                      *after = json_of_file(&shipped, "gemm/gfx942-GEMM-A.json"),
                      *about = about_of(&shipped);
  cr_expect(json_equal(before, after), "%s", shipped.files[0].bytes);
  cleanup_free char *text = json_canonical(json_object_get(about, "files"));
  cr_expect_str_eq(text, "{\"gemm/gfx942-GEMM-A.json\":{\"imported\":2,\"rows\":2}}");
}

#define MOE_MANIFEST                                                                               \
  MANIFEST("[\"M\",\"gemm\"]",                                                                     \
           "{\"vllm-moe\":{\"E\":8,\"N\":64,\"M\":\"M\",\"prefer\":\"gemm == 'up'\"},"             \
           "\"sglang-moe\":{\"E\":8,\"N\":64,\"M\":\"M\",\"down\":\"gemm == 'down'\"}}")

Test(format_tables, of_two_winners_for_a_row_the_preferred_is_written_and_the_other_reported) {
  static const struct tuned tuned[] = {{"{\"M\":1,\"gemm\":\"down\"}", CONFIG(16)},
                                       {"{\"M\":1,\"gemm\":\"up\"}", CONFIG(32)},
                                       {"{\"M\":2,\"gemm\":\"down\"}", CONFIG(64)},
                                       {"{\"M\":2,\"gemm\":\"up\"}", CONFIG(64)}};
  static const char path[] = "E=8,N=64,device_name=AMD_Instinct_MI300X.json";
  cleanup_cache_files struct cache_files out = {0}, sglang = {0};
  cr_assert(render("vllm-moe", MI300X, MOE_MANIFEST, tuned, 4, NULL, &out), "%s", error.message);
  cleanup_json json_t *table = json_of_file(&out, path);
  cleanup_json json_t *wanted = json_loads("{\"1\":" CONFIG(32) ",\"2\":" CONFIG(64) "}", 0, NULL);
  cr_expect(json_equal(table, wanted), "%s", out.files[0].bytes);
  cr_expect_eq(out.n_skipped, (size_t)1);
  cr_expect_str_eq(out.skipped[0].key, "[1,\"down\"]");

  cleanup_cache_files struct cache_files files = {0}, merged = {0};
  cleanup_imported struct imported imported = {0};
  files_add_text(&files, path, "{\"1\": " CONFIG(128) ", \"2\": " CONFIG(128) "}");
  cr_assert(read_with("vllm-moe", &files, NULL, &imported, &error), "%s", error.message);
  cr_assert(render("vllm-moe", MI300X, MOE_MANIFEST, tuned, 3, &imported, &merged), "%s",
            error.message);
  cleanup_json json_t *with_imported = json_of_file(&merged, path);
  cleanup_json json_t *wanted_merged =
      json_loads("{\"1\":" CONFIG(32) ",\"2\":" CONFIG(128) "}", 0, NULL);
  cr_expect(json_equal(with_imported, wanted_merged), "%s", merged.files[0].bytes);
  cr_expect_eq(merged.n_skipped, (size_t)2); /* "down" of both */

  static const char triton[] =
      "{\"gpu\":\"AMD Instinct MI300X\",\"rocm\":\"6.4.1\",\"triton\":\"3.4.0\"}";
  cr_assert(render("sglang-moe", triton, MOE_MANIFEST, tuned, 4, NULL, &sglang), "%s",
            error.message);
  cleanup_json json_t *down = json_of_file(
      &sglang, "configs/triton_3_4_0/E=8,N=64,device_name=AMD_Instinct_MI300X_down.json");
  cleanup_json json_t *wanted_down =
      json_loads("{\"1\":" CONFIG(16) ",\"2\":" CONFIG(64) "}", 0, NULL);
  cr_expect(json_equal(down, wanted_down));
}

Test(format_tables, exports_with_conditions_that_are_none_are_refused) {
  static const char *const wrong[][2] = {
      {"\"prefer\":true", "\"prefer\": must be an expression"},
      {"\"prefer\":\"x\"", "\"prefer\": "},
      {"\"prefer\":\"M + 'a'\"", ""},
      {"\"switches\":[]", "must be an object of environment variables"},
      {"\"switches\":{\"A\":1}", "A must be a text or null"}};
  for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++) {
    cleanup_cache_files struct cache_files out = {0};
    cleanup_free char *exports = xasprintf("{\"vllm-w8a8\":{\"N\":1,\"K\":1,\"M\":\"M\",\"dtype\":"
                                           "\"a\",\"block_shape\":[1,1],%s}}",
                                           wrong[i][0]);
    cleanup_free char *manifest = xasprintf(MANIFEST("[\"M\"]", "%s"), exports);
    static const struct tuned tuned = {"{\"M\":1}", CONFIG(16)};
    cr_expect_not(render("vllm-w8a8", MI300X, manifest, &tuned, 1, NULL, &out), "%s", wrong[i][0]);
    cr_expect_neq(strstr(error.message, wrong[i][1]), NULL, "%s", error.message);
  }
}

/* GPUs and partitions */

Test(format_tables, a_table_of_a_partition_stays_one_when_it_is_imported_again) {
  cleanup_cache_files struct cache_files whole = {0}, part = {0};
  cr_assert(render("vllm-w8a8", MI300X, w8a8_manifest, w8a8_tuned, 2, NULL, &whole));
  cr_assert(render("vllm-w8a8", CPX, w8a8_manifest, w8a8_tuned, 1, NULL, &part));
  cr_expect_str_eq(whole.files[0].path, part.files[0].path); /* names lack the partition */

  cleanup_imported struct imported of_whole = {0}, of_part = {0};
  cr_assert(read_with("vllm-w8a8", &whole, NULL, &of_whole, &error), "%s", error.message);
  cr_assert(read_with("vllm-w8a8", &part, NULL, &of_part, &error), "%s", error.message);
  cleanup_free char *first = json_canonical(of_whole.environment),
                    *second = json_canonical(of_part.environment);
  cr_expect_str_eq(first, MI300X);
  cr_expect_str_eq(second, CPX);
}

Test(format_tables, tables_of_two_partitions_are_two_imports) {
  cleanup_cache_files struct cache_files whole = {0}, part = {0}, both = {0};
  struct imported imported = {0};
  cr_assert(render("vllm-w8a8", MI300X, w8a8_manifest, w8a8_tuned, 1, NULL, &whole));
  cr_assert(render("vllm-w8a8", CPX, w8a8_manifest, w8a8_tuned + 1, 1, NULL, &part));
  for (size_t i = 0; i < 2; i++) {
    cleanup_free char *a = xasprintf("a/%s", whole.files[i].path),
                      *b = xasprintf("b/%s", part.files[i].path);
    files_add_text(&both, a, whole.files[i].bytes);
    files_add_text(&both, b, part.files[i].bytes);
  }
  cr_expect_not(read_with("vllm-w8a8", &both, NULL, &imported, &error));
  cr_expect_neq(strstr(error.message, "import them separately"), NULL, "%s", error.message);
}

Test(format_tables, a_table_that_the_file_beside_it_does_not_name_has_its_own_environment) {
  cleanup_cache_files struct cache_files files = {0};
  cleanup_imported struct imported imported = {0};
  files_add_text(&files, "a/" W8A8, "{\"1\": " CONFIG(16) "}");
  files_add_text(&files, "a/wavetune-tables.json",
                 "{\"environment\": {\"gpu\": \"NVIDIA H200\"}, \"files\": {\"other.json\": {}}}");
  cr_assert(read_with("vllm-w8a8", &files, NULL, &imported, &error), "%s", error.message);
  cleanup_free char *environment = json_canonical(imported.environment);
  cr_expect_str_eq(environment, "{\"gpu\":\"AMD Instinct MI300X\"}");
}

Test(format_tables, a_damaged_file_beside_a_table_is_refused) {
  cleanup_cache_files struct cache_files files = {0};
  struct imported imported = {0};
  files_add_text(&files, "a/" W8A8, "{\"1\": " CONFIG(16) "}");
  files_add_text(&files, "a/wavetune-tables.json", "{");
  cr_expect_not(read_with("vllm-w8a8", &files, NULL, &imported, &error));
  cr_expect_neq(strstr(error.message, "wavetune-tables.json above it is not a JSON document"), NULL,
                "%s", error.message);
}

Test(format_tables, an_image_of_another_gpu_does_not_name_the_table) {
  static const struct {
    const char *gpu, *image, *device;
  } cases[] = {{"AMD_Instinct_MI300X", "AMD_Instinct_MI308X", "AMD_Instinct_MI300X"},
               {"AMD_Instinct_MI300X", "AMD_Instinct_MI300X_HF", "AMD_Instinct_MI300X_HF"},
               {"AMD_Instinct_MI325X", "AMD_Instinct_MI325_OAM", "AMD_Instinct_MI325_OAM"},
               {"NVIDIA_H200", "NVIDIA_H100_80GB_HBM3", "NVIDIA_H200"},
               {"AMD_Radeon_Graphics", "AMD_Instinct_MI300X", "AMD_Instinct_MI300X"}};
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
    cleanup_cache_files struct cache_files files = {0}, out = {0};
    cleanup_imported struct imported imported = {0};
    cleanup_kernels struct kernels kernels = {0};
    cleanup_json json_t *json =
        json_pack("{s:i, s:n, s:{}, s:[], s:s}", "version", 1, "triton", "variables", "functions",
                  "moe_device_name", cases[i].image);
    cleanup_identity struct identity *identity = NULL;
    cr_assert(identity_parse(json, &identity, &error), "%s", error.message);
    cleanup_free char *path =
        xasprintf("N=8,K=8,device_name=%s,dtype=fp8_w8a8,block_shape=[128,128].json", cases[i].gpu);
    files_add_text(&files, path, "{\"1\": " CONFIG(16) "}");
    cr_assert(read_with("vllm-w8a8", &files, NULL, &imported, &error), "%s", error.message);
    cleanup_release struct release *release = release_of(&imported, "vllm-w8a8", NULL, &kernels);
    cr_assert(render_with("vllm-w8a8", release, &kernels, identity, &out, &error), "%s",
              error.message);
    cleanup_free char *expected = xasprintf(
        "N=8,K=8,device_name=%s,dtype=fp8_w8a8,block_shape=[128,128].json", cases[i].device);
    cr_expect_str_eq(out.files[0].path, expected);
    bool is_other = strcmp(cases[i].image, cases[i].device) != 0;
    cr_expect_eq(out.n_notes, (size_t)is_other);
  }
}

/* Importing for a registered kernel */

Test(format_tables, a_bound_of_aiter_is_a_number_of_a_kernels_key_but_any_is_none) {
  cleanup_kernels struct kernels kernels = {0};
  cleanup_cache_files struct cache_files files = {0}, with_any = {0};
  cleanup_imported struct imported imported = {0};
  struct imported none = {0};
  static const char path[] = "gfx942-GEMM-A8W8_BLOCKSCALE-N=512-K=256.json";
  cleanup_json json_t *json = json_loads(w8a8_manifest, 0, NULL);
  const struct kernel *kernel = kernels_add(&kernels, json);
  files_add_text(&files, path, "{\"M_LEQ_16\": " CONFIG(16) "}");
  files_add_text(&with_any, path, "{\"any\": " CONFIG(16) "}");
  cr_assert(read_with("aiter-triton", &files, kernel, &imported, &error), "%s", error.message);
  cleanup_free char *key = json_canonical(imported.kernels[0].entries[0].key);
  cr_expect_str_eq(key, "{\"K\":256,\"M\":16,\"N\":512}");
  cr_expect_not(read_with("aiter-triton", &with_any, kernel, &none, &error));
  cr_expect_neq(strstr(error.message, "import it without --kernel"), NULL, "%s", error.message);
}

/* The entries of kernels/tables */

/* What the version of an entry, or all of them, says of its tables. */
static void expect_exports(const char *place, json_t *key, json_t *exports, const json_t *space) {
  cleanup_json json_t *json = json_pack("{s:s, s:s, s:O, s:O}", "name", "a/b", "language",
                                        "external", "key", key, "exports", exports);
  cleanup_kernels struct kernels kernels = {0};
  const struct kernel *kernel = kernels_add(&kernels, json);
  json_members (exports, name, members) {
    const struct table_kind *kind = NULL;
    cr_assert(table_family_find(name, &kind), "%s: there is no kind of table %s", place, name);
    cleanup_table_mapping struct table_mapping mapping = {0};
    cr_assert(table_mapping_read(kind, kernel, &mapping, &error), "%s: %s", place, error.message);
    cleanup_json json_t *table = NULL, *config = json_object_get(space, "default");
    json_incref(config);
    cr_assert(table_config_map(&mapping, config, true, &table, &error) &&
                  table_config_check(kind, table, &error),
              "%s %s: %s", place, name, error.message);
  }
}

Test(format_tables, the_entries_of_this_tree_state_what_their_tables_need) {
  static const char *const folders[] = {"aiter_gemm", "block_fp8", "fused_moe",
                                        "selective_state_update"};
  size_t n = 0;
  for (size_t i = 0; i < ARRAY_LENGTH(folders); i++) {
    cleanup_free char *path = xasprintf(SOURCE_FOLDER "/kernels/tables/%s/kernel.json", folders[i]);
    json_t *parsed = NULL;
    cr_assert(json_parse_file(path, 1 << 20, &parsed, &error), "%s", error.message);
    cleanup_json json_t *entry = parsed;
    json_members (json_object_get(entry, "versions"), name, version) {
      json_t *exports = json_object_get(version, "exports");
      const char *space = json_text(version, "space");
      cleanup_free char *file = xasprintf(SOURCE_FOLDER "/kernels/tables/%s/%s", folders[i],
                                          space ? space : "space.json");
      json_t *parameters = NULL;
      cr_assert(json_parse_file(file, 1 << 20, &parameters, &error), "%s", error.message);
      cleanup_json json_t *owned = parameters;
      exports = exports ? exports : json_object_get(entry, "exports");
      cr_assert(exports, "%s:%s has no exports", folders[i], name);
      expect_exports(path, json_object_get(entry, "key"), exports, owned);
      n++;
    }
  }
  cr_expect_geq(n, (size_t)8);
}
