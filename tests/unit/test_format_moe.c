/* Mixture-of-experts tables of vLLM and SGLang: names and bodies to the byte, the mapping of
 * registered kernels in both directions, and what is refused. */
#include "table_fixture.h"

static struct error error;

#define CONFIG                                                                                     \
  "\"BLOCK_SIZE_M\": 16, \"BLOCK_SIZE_N\": 64, \"BLOCK_SIZE_K\": 128, \"GROUP_SIZE_M\": 1"
#define TABLE(m) "{\"" m "\": {" CONFIG "}}"
#define MI300X "E=8,N=384,device_name=AMD_Instinct_MI300X"

static void expect_same(const char *format, const char *path, const char *text) {
  cleanup_cache_files struct cache_files files = {0}, out = {0};
  cleanup_imported struct imported imported = {0};
  cleanup_kernels struct kernels kernels = {0};
  files_add_text(&files, path, text);
  cr_assert(read_with(format, &files, NULL, &imported, &error), "%s", error.message);
  cleanup_release struct release *release = release_of(&imported, format, NULL, &kernels);
  cr_assert(render_with(format, release, &kernels, NULL, &out, &error), "%s", error.message);
  cr_assert_eq(out.n, (size_t)2); /* the other is wavetune-tables.json */
  cr_expect_eq(out.n_skipped, (size_t)0);
  cr_expect_str_eq(out.files[0].path, path);
  cr_expect_str_eq(out.files[0].bytes, text);
}

static void expect_refused(const char *format, const char *path, const char *text,
                           const char *what) {
  cleanup_cache_files struct cache_files files = {0};
  struct imported imported = {0};
  files_add_text(&files, path, text);
  error = (struct error){0};
  cr_expect_not(read_with(format, &files, NULL, &imported, &error), "%s %s was read", path, text);
  cr_expect_neq(strstr(error.message, what), NULL, "%s", error.message);
  cr_expect_null(imported.kernels);
}

Test(format_moe, a_table_comes_back_to_the_byte) {
  cleanup_cache_files struct cache_files files = {0};
  files_add_folder(&files, TEST_DATA "/vllm_moe", "");
  cr_assert_eq(files.n, (size_t)1);
  expect_same("vllm-moe", files.files[0].path, files.files[0].bytes);
}

Test(format_moe, names_hold_dtype_and_block_shape_as_each_reader_writes_them) {
  static const char body[] =
      "{\n    \"1\": {\n        \"BLOCK_SIZE_M\": 16,\n        \"BLOCK_SIZE_N\": 64,\n"
      "        \"BLOCK_SIZE_K\": 128,\n        \"GROUP_SIZE_M\": 1\n    }\n}\n";
  expect_same("vllm-moe", MI300X ".json", body);
  expect_same("vllm-moe", MI300X ",dtype=fp8_w8a8,block_shape=[128,128].json", body);
  expect_same("sglang-moe",
              "configs/triton_3_4_0/" MI300X ",dtype=fp8_w8a8,block_shape=[128, 128].json", body);
  expect_same("sglang-moe",
              "configs/triton_3_4_0/" MI300X ",dtype=int8_w8a8,per_channel_quant=True_down.json",
              body);
}

Test(format_moe, an_unusual_order_of_members_is_kept) {
  expect_same("vllm-moe", MI300X ".json",
              "{\n    \"1\": {\n        \"num_warps\": 4,\n        \"BLOCK_SIZE_M\": 16,\n        "
              "\"USE_X\": true,\n"
              "        \"BLOCK_SIZE_N\": 64,\n        \"BLOCK_SIZE_K\": 128,\n        "
              "\"GROUP_SIZE_M\": 1\n    }\n}\n");
}

Test(format_moe, rows_ascend_and_the_version_is_provenance_and_left_away) {
  cleanup_cache_files struct cache_files files = {0}, out = {0};
  cleanup_imported struct imported imported = {0};
  cleanup_kernels struct kernels kernels = {0};
  files_add_text(&files, "README", "not a table");
  files_add_text(&files, MI300X ".json",
                 "{\"triton_version\": \"3.4.0\", \"16\": {" CONFIG "}, \"2\": {" CONFIG "}}");
  cr_assert(read_with("vllm-moe", &files, NULL, &imported, &error), "%s", error.message);
  cr_expect_null(json_object_get(imported.environment, "triton")); /* vLLM does not compare it */
  cr_expect_str_eq(
      json_string_value(json_object_get(imported.kernels[0].entries[0].provenance, "triton")),
      "3.4.0");
  cr_expect_str_eq(json_string_value(json_object_get(imported.environment, "gpu")),
                   "AMD Instinct MI300X");
  cleanup_release struct release *release = release_of(&imported, "vllm-moe", NULL, &kernels);
  cr_assert(render_with("vllm-moe", release, &kernels, NULL, &out, &error), "%s", error.message);
  const char *two = strstr(out.files[0].bytes, "\"2\""),
             *sixteen = strstr(out.files[0].bytes, "\"16\"");
  cr_expect(two && sixteen && two < sixteen);
  cr_expect_null(strstr(out.files[0].bytes, "triton_version"));
  cr_expect_eq(out.n_variables, (size_t)1);
  cr_expect_str_eq(out.variables[0].name, "VLLM_TUNED_CONFIG_FOLDER");
  cr_expect_str_eq(out.variables[0].path, "");
}

Test(format_moe, an_import_without_a_kernel_is_known_by_name_only) {
  cleanup_cache_files struct cache_files files = {0};
  cleanup_imported struct imported imported = {0};
  files_add_text(&files, MI300X ",block_shape=[128, 64].json", TABLE("32"));
  cr_assert(read_with("vllm-moe", &files, NULL, &imported, &error), "%s", error.message);
  cr_assert_eq(imported.n_kernels, (size_t)1);
  cr_expect_str_eq(json_string_value(json_object_get(imported.kernels[0].manifest, "name")),
                   "vllm-moe/fused_moe");
  cleanup_free char *key = json_canonical(imported.kernels[0].entries[0].key);
  cr_expect_str_eq(key, "{\"E\":8,\"M\":32,\"N\":384,\"block_shape\":\"[128,64]\",\"dtype\":null}");
}

#define DIGEST "sha256:ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
#define MANIFEST(format, exports)                                                                  \
  "{\"name\":\"moe/"                                                                               \
  "t\",\"language\":\"triton\",\"entry\":\"f\",\"sources\":[{\"path\":\"f.py\",\"digest\":"        \
  "\"" DIGEST "\"}],\"key\":[\"experts\",\"n\",\"tokens\"],\"arguments\":[{\"name\":\"x\","        \
  "\"dtype\":\"float16\",\"shape\":[\"n\"]"                                                        \
  ","                                                                                              \
  "\"access\":\"readwrite\"}],\"launch\":{\"grid\":[\"1\"]},\"exports\":{\"" format "\":" exports  \
  "}}"
#define RELEASE(environment, config, key)                                                          \
  "{\"environment\":" environment ",\"kernels\":[{\"configs\":[{\"values\":" config                \
  "}],\"kernel\":\"%s\",\"key\":["                                                                 \
  "\"experts\",\"n\",\"tokens\"],\"name\":\"moe/"                                                  \
  "t\",\"provenance\":[{\"origin\":\"tuned\"}],\"winners\":[[" key                                 \
  ",0,0,[0.5],7]]}],\"tag\":\"default\",\"version\":2}"
#define ENVIRONMENT                                                                                \
  "{\"gpu\":\"AMD Instinct MI300X VF\",\"rocm\":\"6.4\",\"triton\":\"3.4.0+gitab\"}"
#define WINNER "{\"BLOCK_K\":64,\"BLOCK_M\":16,\"BLOCK_N\":32,\"GROUP_SIZE_M\":1,\"num_warps\":4}"
#define DIRECT "{\"BLOCK_SIZE_K\":1,\"BLOCK_SIZE_M\":1,\"BLOCK_SIZE_N\":1,\"GROUP_SIZE_M\":1}"
#define EXPORTS                                                                                    \
  "{\"E\":\"experts\",\"N\":\"n * "                                                                \
  "2\",\"M\":\"tokens\",\"dtype\":\"fp8_w8a8\",\"block_shape\":[128,128],\"config\":{"             \
  "\"BLOCK_SIZE_M\":\"BLOCK_M\",\"BLOCK_SIZE_N\":\"BLOCK_N\",\"BLOCK_SIZE_K\":\"BLOCK_K\","        \
  "\"SPLIT_K\":1}}"

static bool render_registered(const char *format, const char *manifest, const char *release_text,
                              struct cache_files *out) {
  cleanup_kernels struct kernels kernels = {0};
  cleanup_json json_t *json = json_loads(manifest, 0, NULL);
  char digest[DIGEST_TEXT_SIZE];
  const struct kernel *kernel = kernels_add(&kernels, json);
  const char *hole = strstr(release_text, "%s");
  cleanup_free char *text = xasprintf("%.*s%s%s", (int)(hole - release_text), release_text,
                                      digest_format(&kernel->hash, digest), hole + 2);
  cleanup_release struct release *release = release_of_text(text);
  error = (struct error){0};
  return render_with(format, release, &kernels, NULL, out, &error);
}

Test(format_moe, a_registered_kernel_is_mapped_by_its_exports) {
  cleanup_cache_files struct cache_files vllm = {0}, sglang = {0};
  cr_assert(render_registered("vllm-moe", MANIFEST("vllm-moe", EXPORTS),
                              RELEASE(ENVIRONMENT, WINNER, "[8,192,64]"), &vllm),
            "%s", error.message);
  cr_expect_str_eq(vllm.files[0].path, MI300X ",dtype=fp8_w8a8,block_shape=[128,128].json");
  cr_expect_str_eq(
      vllm.files[0].bytes,
      "{\n    \"64\": {\n        \"BLOCK_SIZE_M\": 16,\n        \"BLOCK_SIZE_N\": 32,\n"
      "        \"BLOCK_SIZE_K\": 64,\n        \"GROUP_SIZE_M\": 1,\n        \"SPLIT_K\": 1,\n"
      "        \"num_warps\": 4\n    }\n}\n");
  cr_assert(render_registered("sglang-moe", MANIFEST("sglang-moe", EXPORTS),
                              RELEASE(ENVIRONMENT, WINNER, "[8,192,64]"), &sglang),
            "%s", error.message);
  cr_expect_str_eq(
      sglang.files[0].path,
      "configs/triton_3_4_0/E=8,N=384,device_name=AMD_Instinct_MI300X_VF,dtype=fp8_w8a8,"
      "block_shape=[128, 128].json");
  cr_expect_str_eq(sglang.variables[0].name, "SGLANG_MOE_CONFIG_DIR");
}

#define IDENTITY(members)                                                                          \
  "{\"version\":1,\"triton\":{\"version\":\"3.5.0\",\"key\":\"k\",\"backend_hash\":\"b\"},"        \
  "\"variables\":{},\"functions\":[]" members "}"

/* What the table of a GPU is called for an image, or for none. */
static void expect_device(const char *format, const char *gpu, const char *image,
                          const char *device) {
  cleanup_cache_files struct cache_files files = {0}, out = {0};
  cleanup_imported struct imported imported = {0};
  cleanup_kernels struct kernels kernels = {0};
  cleanup_json json_t *json = image ? json_loads(image, 0, NULL) : NULL;
  cleanup_identity struct identity *identity = NULL;
  cleanup_free char *path = xasprintf("configs/triton_3_5_0/E=8,N=384,device_name=%s.json", gpu);
  cr_assert(!image || identity_parse(json, &identity, &error), "%s", error.message);
  files_add_text(&files, path, TABLE("1"));
  cr_assert(read_with(format, &files, NULL, &imported, &error), "%s", error.message);
  cleanup_release struct release *release = release_of(&imported, format, NULL, &kernels);
  cr_assert(render_with(format, release, &kernels, identity, &out, &error), "%s", error.message);
  cleanup_free char *expected =
      xasprintf("%sE=8,N=384,device_name=%s.json",
                strcmp(format, "sglang-moe") == 0 ? "configs/triton_3_5_0/" : "", device);
  cr_expect_str_eq(out.files[0].path, expected);
}

Test(format_moe, the_image_says_what_its_reader_calls_the_device) {
  static const char image[] = IDENTITY(
      ",\"gpu\":\"AMD Instinct MI300X VF\",\"moe_device_name\":\"AMD_Instinct_MI300X_PCI\"");
  static const char without_gpu[] = IDENTITY(",\"moe_device_name\":\"AMD_Instinct_MI300X_OAM\"");
  expect_device("vllm-moe", "AMD_Instinct_MI300X", image, "AMD_Instinct_MI300X_PCI");
  expect_device("sglang-moe", "AMD_Instinct_MI300X", image, "AMD_Instinct_MI300X_VF");
  expect_device("sglang-moe", "AMD_Instinct_MI300X", without_gpu, "AMD_Instinct_MI300X_OAM");
  expect_device("vllm-moe", "AMD_Instinct_MI300X_VF", NULL, "AMD_Instinct_MI300X");
  expect_device("sglang-moe", "AMD_Instinct_MI300X_VF", NULL, "AMD_Instinct_MI300X_VF");
}

Test(format_moe, vllm_has_one_name_for_the_family_of_the_h200) {
  static const char image[] = IDENTITY(",\"moe_device_name\":\"NVIDIA_H200_NVL\"");
  expect_device("vllm-moe", "NVIDIA_H200_141GB_HBM3e", NULL, "NVIDIA_H200");
  expect_device("vllm-moe", "NVIDIA_H200_NVL", image, "NVIDIA_H200");
  expect_device("vllm-moe", "NVIDIA_GH200_480GB", NULL, "NVIDIA_GH200_480GB");
  expect_device("sglang-moe", "NVIDIA_H200_NVL", NULL, "NVIDIA_H200_NVL");
}

static void expect_not_rendered(const char *format, const char *manifest, const char *release_text,
                                const char *what) {
  cleanup_cache_files struct cache_files out = {0};
  cr_expect_not(render_registered(format, manifest, release_text, &out), "%s was written",
                out.files[0].path);
  cr_expect_neq(strstr(error.message, what), NULL, "%s", error.message);
}

Test(format_moe, what_cannot_be_written_says_why) {
  static const char fine[] = RELEASE(ENVIRONMENT, WINNER, "[8,192,64]");
  static const char manifest[] = MANIFEST("vllm-moe", EXPORTS);
  expect_not_rendered("sglang-moe", manifest, fine, "no \"exports\" for sglang-moe");
  expect_not_rendered("vllm-moe", MANIFEST("vllm-moe", "{\"E\":1,\"N\":2}"), fine, "lack \"M\"");
  expect_not_rendered("vllm-moe", MANIFEST("vllm-moe", "{\"E\":1,\"N\":2,\"M\":\"x\"}"), fine,
                      "\"M\"");
  expect_not_rendered("vllm-moe", MANIFEST("vllm-moe", "{\"E\":1,\"N\":2,\"M\":-1}"), fine,
                      "positive integer");
  expect_not_rendered("vllm-moe", MANIFEST("vllm-moe", "{\"E\":1,\"N\":2,\"M\":3,\"down\":true}"),
                      fine, "not known");
  expect_not_rendered("sglang-moe", MANIFEST("sglang-moe", "{\"E\":1,\"N\":2,\"M\":3,\"down\":1}"),
                      fine, "true or false");
  expect_not_rendered("vllm-moe", MANIFEST("vllm-moe", "{\"E\":1,\"N\":2,\"M\":3,\"dtype\":\"\"}"),
                      fine, "dtype");
  expect_not_rendered("vllm-moe",
                      MANIFEST("vllm-moe", "{\"E\":1,\"N\":2,\"M\":3,\"block_shape\":[1]}"), fine,
                      "two positive integers");
  expect_not_rendered("vllm-moe",
                      MANIFEST("vllm-moe", "{\"E\":1,\"N\":2,\"M\":3,\"config\":{\"A\":null}}"),
                      fine, "\"A\"");
  expect_not_rendered("vllm-moe", MANIFEST("vllm-moe", "{\"E\":1,\"N\":2,\"M\":3}"), fine,
                      "no positive integer BLOCK_SIZE_M");
  expect_not_rendered("vllm-moe", manifest, RELEASE(ENVIRONMENT, "{\"BLOCK_K\":64}", "[8,192,64]"),
                      "BLOCK_M is not what the exports");
  expect_not_rendered("vllm-moe", manifest, RELEASE(ENVIRONMENT, WINNER, "[8,192,0]"),
                      "M is not an integer of 1");
  expect_not_rendered("vllm-moe", manifest, RELEASE(ENVIRONMENT, WINNER, "[8,\"x\",64]"), "N: ");
  expect_not_rendered("vllm-moe", manifest, RELEASE("{\"rocm\":\"6.4\"}", WINNER, "[8,192,64]"),
                      "states no gpu");
  expect_not_rendered("sglang-moe", MANIFEST("sglang-moe", EXPORTS),
                      RELEASE("{\"gpu\":\"X\"}", WINNER, "[8,192,64]"), "Triton's version");
  static const char direct[] = RELEASE(ENVIRONMENT, DIRECT, "[8,192,64]");
  expect_not_rendered("vllm-moe",
                      MANIFEST("vllm-moe", "{\"E\":1,\"N\":2,\"M\":3,\"dtype\":\"tokens\"}"),
                      direct, "dtype is not a text");
  expect_not_rendered("vllm-moe",
                      MANIFEST("vllm-moe", "{\"E\":1,\"N\":2,\"M\":3,\"block_shape\":\"tokens\"}"),
                      direct, "block shape is not a text");
  expect_not_rendered("sglang-moe",
                      MANIFEST("sglang-moe", "{\"E\":1,\"N\":2,\"M\":3,\"down\":\"tokens\"}"),
                      direct, "down is not true or false");
  expect_not_rendered("vllm-moe",
                      MANIFEST("vllm-moe", "{\"E\":1,\"N\":2,\"M\":3,\"config\":{\"BLOCK_SIZE_M\":"
                                           "\"GROUP_SIZE_M\"}}"),
                      direct, "BLOCK_SIZE_M would occur twice");
}

#define SSM_RELEASE(config, winners)                                                               \
  "{\"environment\":" ENVIRONMENT ",\"kernels\":[{\"configs\":[{\"values\":" config                \
  "}],\"kernel\":\"%s\",\"key\":[\"dtype\",\"heads\",\"batch\"],\"name\":\"moe/t\","               \
  "\"provenance\":[{\"origin\":\"tuned\"}],\"winners\":[" winners "]}],"                           \
  "\"tag\":\"default\",\"version\":2}"
#define SSM_WINNER(dtype, heads, batch) "[[" dtype "," #heads "," #batch "],0,0,[0.5],7]"
#define SSM_KEY "\"dtype\",\"heads\",\"batch\""
#define SSM_EXPORTS                                                                                \
  "{\"headdim\":64,\"dstate\":128,\"cache_dtype\":\"dtype\",\"batch\":\"batch * heads\"}"

/* A kernel with exports for Mamba's tables and, where `more` has them, for others. */
static bool render_ssm(const char *more, const char *release, struct cache_files *out) {
  cleanup_free char *manifest =
      xasprintf("{\"name\":\"moe/t\",\"language\":\"external\",\"key\":[" SSM_KEY "],"
                "\"exports\":{\"vllm-ssm\":" SSM_EXPORTS "%s}}",
                more);
  return render_registered("vllm-moe", manifest, release, out);
}

Test(format_moe, vllms_folder_has_the_tables_of_mambas_state_update_too) {
  static const char release[] =
      SSM_RELEASE("{\"BLOCK_SIZE_M\":8,\"num_warps\":2}",
                  SSM_WINNER("\"bfloat16\"", 8, 1) "," SSM_WINNER(
                      "\"float32\"", 24, 1) "," SSM_WINNER("\"float32\"", 24, 64));
  cleanup_cache_files struct cache_files out = {0};
  cr_assert(render_ssm("", release, &out), "%s", error.message);
  cr_assert_eq(out.n, (size_t)3);
  cr_expect_str_eq(
      out.files[0].path,
      "headdim=64,dstate=128,device_name=AMD_Instinct_MI300X,cache_dtype=float16.json");
  cr_expect_str_eq(
      out.files[1].path,
      "headdim=64,dstate=128,device_name=AMD_Instinct_MI300X,cache_dtype=float32.json");
  cr_expect_str_eq(
      out.files[1].bytes,
      "{\n    \"24\": {\n        \"BLOCK_SIZE_M\": 8,\n        \"num_warps\": 2\n    },\n"
      "    \"1536\": {\n        \"BLOCK_SIZE_M\": 8,\n        \"num_warps\": 2\n    }\n}\n");
}

Test(format_moe, what_mambas_tables_cannot_have_is_skipped) {
  static const char release[] = SSM_RELEASE("{\"BLOCK_SIZE_M\":8,\"num_warps\":2}",
                                            SSM_WINNER("\"bfloat16\"", 8, 1) "," SSM_WINNER(
                                                "\"float16\"", 8, 1) "," SSM_WINNER("null", 8, 2));
  cleanup_cache_files struct cache_files out = {0}, none = {0};
  cr_assert(render_ssm("", release, &out), "%s", error.message);
  cr_expect_eq(out.n_skipped, (size_t)1); /* no dtype; float16 is the row of bfloat16 */
  cr_expect_not(
      render_ssm("", SSM_RELEASE("{\"BLOCK_SIZE_M\":8}", SSM_WINNER("\"float16\"", 8, 1)), &none));
  cr_expect_neq(strstr(error.message, "no positive integer num_warps"), NULL, "%s", error.message);
}

Test(format_moe, a_kernel_may_be_in_tables_of_both_kinds) {
  static const char release[] =
      SSM_RELEASE("{\"BLOCK_SIZE_K\":8,\"BLOCK_SIZE_M\":8,\"BLOCK_SIZE_N\":8,\"GROUP_SIZE_M\":1,"
                  "\"num_warps\":2}",
                  SSM_WINNER("\"float16\"", 8, 1));
  cleanup_cache_files struct cache_files out = {0}, none = {0};
  cr_assert(render_ssm(",\"vllm-moe\":{\"E\":1,\"N\":2,\"M\":\"batch\"}", release, &out), "%s",
            error.message);
  cr_expect_eq(out.n, (size_t)3);
  cr_assert(render_ssm(",\"vllm-moe\":{\"E\":1}", release, &none), "%s", error.message);
  cr_expect_eq(none.n, (size_t)2);
  cr_expect_eq(none.n_skipped, (size_t)1);
}

static bool read_registered(const char *exports, const char *path, const char *table,
                            struct imported *ret) {
  cleanup_kernels struct kernels kernels = {0};
  cleanup_cache_files struct cache_files files = {0};
  cleanup_json json_t *json = json_loads(exports, 0, NULL);
  files_add_text(&files, path, table);
  error = (struct error){0};
  return read_with("vllm-moe", &files, kernels_add(&kernels, json), ret, &error);
}

#define INVERTIBLE                                                                                 \
  "{\"E\":\"experts\",\"N\":\"n\",\"M\":\"tokens\",\"dtype\":\"fp8_w8a8\",\"config\":{\"BLOCK_"    \
  "SIZE_M\":\"BLOCK_M\"}}"

Test(format_moe, an_import_for_a_kernel_is_mapped_back) {
  cleanup_imported struct imported imported = {0};
  cr_assert(read_registered(MANIFEST("vllm-moe", INVERTIBLE), MI300X ",dtype=fp8_w8a8.json",
                            TABLE("16"), &imported),
            "%s", error.message);
  cr_expect_null(imported.kernels[0].manifest);
  cleanup_free char *key = json_canonical(imported.kernels[0].entries[0].key),
                    *config = json_canonical(imported.kernels[0].entries[0].config);
  cr_expect_str_eq(key, "{\"experts\":8,\"n\":384,\"tokens\":16}");
  cr_expect_str_eq(config,
                   "{\"BLOCK_M\":16,\"BLOCK_SIZE_K\":128,\"BLOCK_SIZE_N\":64,\"GROUP_SIZE_M\":1}");
}

Test(format_moe, an_import_for_a_kernel_must_be_its_table) {
  struct imported imported = {0};
  cr_expect_not(
      read_registered(MANIFEST("vllm-moe", INVERTIBLE), MI300X ".json", TABLE("16"), &imported));
  cr_expect_neq(strstr(error.message, "the table's dtype is null"), NULL, "%s", error.message);
  cr_expect_not(read_registered(MANIFEST("vllm-moe", EXPORTS),
                                MI300X ",dtype=fp8_w8a8,block_shape=[128,128].json", TABLE("16"),
                                &imported));
  cr_expect_neq(strstr(error.message, "cannot be inverted"), NULL, "%s", error.message);
  cr_expect_not(read_registered(MANIFEST("vllm-moe", "{\"E\":\"n\",\"N\":\"n\",\"M\":\"tokens\"}"),
                                MI300X ".json", TABLE("16"), &imported));
  cr_expect_neq(strstr(error.message, "the key's n would have two values"), NULL, "%s",
                error.message);
  cr_expect_not(read_registered(
      MANIFEST("vllm-moe", "{\"E\":\"experts\",\"N\":\"n\",\"M\":\"tokens\",\"config\":{"
                           "\"BLOCK_SIZE_M\":\"B\",\"BLOCK_SIZE_N\":\"B\"}}"),
      MI300X ".json", TABLE("16"), &imported));
  cr_expect_neq(strstr(error.message, "the config's B would have two values"), NULL, "%s",
                error.message);
  cr_expect_not(read_registered(MANIFEST("vllm-moe", "{\"E\":8,\"N\":\"n\",\"M\":\"tokens\"}"),
                                MI300X ".json", TABLE("16"), &imported));
  cr_expect_neq(strstr(error.message, "do not give the key's experts"), NULL, "%s", error.message);
  cr_expect_not(read_registered(
      MANIFEST("vllm-moe", "{\"E\":\"experts\",\"N\":\"n\",\"M\":\"tokens\",\"config\":{"
                           "\"GROUP_SIZE_M\":2}}"),
      MI300X ".json", TABLE("16"), &imported));
  cr_expect_neq(strstr(error.message, "GROUP_SIZE_M is not what"), NULL, "%s", error.message);
}

Test(format_moe, files_that_are_no_tables_are_refused_with_their_place) {
  static const char *const names[] = {"E=8,N=384.json",
                                      "E=08,N=384,device_name=X.json",
                                      "E=8,N=0,device_name=X.json",
                                      "E=8,N=384,device_name=.json",
                                      "E=8,N=99999999999,device_name=X.json",
                                      "E=8,N=384,device_name=X,block_shape=[128].json",
                                      "E=8,N=384,device_name=X,block_shape=[1,1],dtype=a.json",
                                      "E=8,N=384,device_name=X,per_channel_quant=True.json",
                                      "E=8,N=384,device_name=X"};
  for (size_t i = 0; i < ARRAY_LENGTH(names); i++)
    expect_refused("vllm-moe", names[i], TABLE("1"), "is not a name like");
  expect_refused("vllm-moe", "README", TABLE("1"), "none of the 1 files is a table");
  expect_refused("vllm-moe", MI300X ".json", "{}", "has an entry");
  expect_refused("vllm-moe", MI300X ".json",
                 "{\"1\":", MI300X ".json: not a JSON document: line 1");
  expect_refused("vllm-moe", MI300X ".json", "[]", "must be an object");
  expect_refused("vllm-moe", MI300X ".json", "{\"1\": {" CONFIG "}, \"1\": {" CONFIG "}}",
                 "duplicate");
  expect_refused("vllm-moe", MI300X ".json", "{\"01\": {" CONFIG "}}",
                 "/01: a row must be a number M");
  expect_refused("vllm-moe", MI300X ".json", "{\"1\": 5}", "/1: a config must be an object");
  expect_refused("vllm-moe", MI300X ".json", "{\"1\": {\"A\": 1.5}}", "/1/A: a value must be");
  cr_expect_str_eq(error.pointer, ""); /* else the command line would say it twice */
  expect_refused("vllm-moe", MI300X ".json", "{\"1\": {\"A\": 99999999999999999999}}", "too big");
  expect_refused("vllm-moe", MI300X ".json", "{\"triton_version\": 3, \"1\": {" CONFIG "}}",
                 "/triton_version");
  expect_refused("sglang-moe", "configs/triton_3_4_0/" MI300X ".json",
                 "{\"triton_version\": \"3\"}", "a row must be a number M");
  expect_refused("sglang-moe", MI300X ".json", TABLE("1"), "is not a name like triton_3_4_0/E=128");
}

Test(format_moe, tables_of_two_devices_are_two_imports) {
  cleanup_cache_files struct cache_files files = {0};
  struct imported imported = {0};
  files_add_text(&files, "E=8,N=384,device_name=A.json", TABLE("1"));
  files_add_text(&files, "E=8,N=384,device_name=B.json", TABLE("1"));
  cr_expect_not(read_with("vllm-moe", &files, NULL, &imported, &error));
  cr_expect_neq(strstr(error.message, "import them separately"), NULL, "%s", error.message);
}

Test(format_moe, tables_of_vllm_that_were_made_with_several_tritons_are_one_import) {
  cleanup_cache_files struct cache_files files = {0};
  cleanup_imported struct imported imported = {0};
  files_add_text(&files, MI300X ".json", "{\"triton_version\": \"3.4.0\", \"1\": {" CONFIG "}}");
  files_add_text(&files, "E=9,N=384,device_name=AMD_Instinct_MI300X.json", TABLE("1"));
  cr_assert(read_with("vllm-moe", &files, NULL, &imported, &error), "%s", error.message);
  cr_expect_eq(imported.kernels[0].n_entries, (size_t)2);
}

Test(format_moe, the_same_row_in_two_folders_is_refused) {
  cleanup_cache_files struct cache_files files = {0};
  struct imported imported = {0};
  files_add_text(&files, "a/" MI300X ".json", TABLE("1"));
  files_add_text(&files, "b/" MI300X ".json", TABLE("1"));
  cr_expect_not(read_with("vllm-moe", &files, NULL, &imported, &error));
  cr_expect_neq(strstr(error.message, "occurs twice: also in a/"), NULL, "%s", error.message);
}
