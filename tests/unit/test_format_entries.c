/* The rows of tables that the keys of shipped entries (kernels/tables) are exported to. */
#include <criterion/criterion.h>

#include "common/formats/table_exports.h"
#include "common/kernel/kernel_folder.h"

#define MOE(gemm) "{\"E\":8,\"N\":1792,\"K\":4096,\"top_k\":2,\"M\":16,\"gemm\":\"" gemm "\"}"
#define GEMM "{\"M\":16,\"N\":512,\"K\":7168}"
#define FP8_ROW "\"E\":8,\"N\":1792,\"dtype\":\"fp8_w8a8\",\"block_shape\":\"[128,128]\",\"M\":16"

static const struct {
  const char *version;
  const struct table_family *family;
  const char *key, *row;
} rows[] = {
    {"fused_moe:vllm_fp8", &tables_vllm_moe, MOE("up"), "{" FP8_ROW "}"},
    {"fused_moe:vllm_fp8_fnuz", &tables_vllm_moe, MOE("down"), "{" FP8_ROW "}"},
    {"fused_moe:vllm_fp8_rocm", &tables_vllm_moe, MOE("down"), "{" FP8_ROW "}"},
    {"fused_moe:vllm_fp8_tensor", &tables_vllm_moe, MOE("up"),
     "{\"E\":8,\"N\":1792,\"dtype\":\"fp8_w8a8\",\"block_shape\":null,\"M\":16}"},
    {"fused_moe:vllm_int8_w8a16", &tables_vllm_moe, MOE("up"),
     "{\"E\":8,\"N\":1792,\"dtype\":\"int8_w8a16\",\"block_shape\":null,\"M\":16}"},
    {"fused_moe:vllm_bf16", &tables_vllm_moe, MOE("up"),
     "{\"E\":8,\"N\":1792,\"dtype\":null,\"block_shape\":null,\"M\":16}"},
    {"fused_moe:vllm_bf16_rocm", &tables_vllm_moe, MOE("up"),
     "{\"E\":8,\"N\":1792,\"dtype\":null,\"block_shape\":null,\"M\":16}"},
    {"fused_moe:sglang_fp8", &tables_sglang_moe, MOE("up"),
     "{" FP8_ROW ",\"per_channel_quant\":false,\"down\":false}"},
    {"fused_moe:sglang_fp8_fnuz", &tables_sglang_moe, MOE("down"),
     "{" FP8_ROW ",\"per_channel_quant\":false,\"down\":true}"},
    {"fused_moe:sglang_bf16", &tables_sglang_moe, MOE("down"),
     "{\"E\":8,\"N\":1792,\"dtype\":null,\"block_shape\":null,\"per_channel_quant\":false,"
     "\"down\":true,\"M\":16}"},
    {"block_fp8:vllm", &tables_vllm_w8a8, GEMM,
     "{\"N\":512,\"K\":7168,\"dtype\":\"fp8_w8a8\",\"block_shape\":\"[128,128]\",\"M\":16}"},
    {"block_fp8:sglang_fnuz", &tables_sglang_w8a8, GEMM,
     "{\"N\":512,\"K\":7168,\"dtype\":\"fp8_w8a8\",\"block_shape\":\"[128,128]\",\"M\":16}"},
};

static json_t *parsed(const char *text) {
  struct error error;
  json_t *json;
  cr_assert(json_parse(text, strlen(text), &json, &error), "%s", error.message);
  return json;
}

Test(entries, export_each_key_to_the_row_that_the_program_looks_up) {
  list_foreach (of, rows) {
    cleanup_free char *place = xasprintf("%s/kernels/tables/%s", SOURCE_FOLDER, of->version);
    cleanup_kernel_folder struct kernel_folder *folder = NULL;
    cleanup_key struct key key = {0};
    cleanup_json json_t *key_json = parsed(of->key), *expected = parsed(of->row), *row = NULL;
    struct error error = {0};
    cr_assert(kernel_folder_describe(place, &folder, &error), "%s", error.message);
    cr_assert(key_parse(key_json, KEY_NAMES(folder->kernel), &key, &error), "%s", error.message);

    const struct table_kind *const *kind = of->family->kinds;
    while (*kind && !table_is_exported(*kind, folder->kernel))
      kind++;
    cr_assert_not_null(*kind, "%s exports nothing to %s", of->version, of->family->format);
    cleanup_table_mapping struct table_mapping mapping = {0};
    cr_assert(table_mapping_read(*kind, folder->kernel, &mapping, &error), "%s: %s", of->version,
              error.message);
    cr_assert(table_row_of_key(&mapping, key.values, &row, &error), "%s", error.message);
    cleanup_free char *found = json_canonical(row);
    cr_expect(json_equal(row, expected), "%s: %s", of->version, found);
  }
}
