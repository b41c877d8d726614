/* The `sglang-moe` format: tables of the fused mixture-of-experts kernel below SGLANG_MOE_CONFIG_DIR
 * (common/cache/moe_table.h). Pure functions, any thread. */
#include "common/cache/moe_table.h"

static const struct moe_dialect dialect = {.format = "sglang-moe",
                                           .variable = "SGLANG_MOE_CONFIG_DIR",
                                           .separator = ", ",
                                           .has_versions = true,
                                           .has_variants = true};

static bool render_release(const struct render_request *request, struct cache_files *ret, struct error *error) {
  return moe_render(&dialect, request, ret, error);
}

static bool read_files(const struct import_request *request, struct imported *ret, struct error *error) {
  return moe_read(&dialect, request, ret, error);
}

const struct cache_format format_sglang_moe = {
    .name = "sglang-moe",
    .summary = "fused mixture-of-experts tables of SGLang (SGLANG_MOE_CONFIG_DIR)",
    .render = render_release,
    .read = read_files,
};
