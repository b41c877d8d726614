/* The `vllm-moe` format: tables of the fused mixture-of-experts kernel in VLLM_TUNED_CONFIG_FOLDER, which vLLM searches
 * first (common/cache/moe_table.h). Pure functions, any thread. */
#include "common/cache/moe_table.h"

static const struct moe_dialect dialect = {
    .format = "vllm-moe", .variable = "VLLM_TUNED_CONFIG_FOLDER", .separator = ",", .takes_device_from_pci = true};

static bool render_release(const struct render_request *request, struct cache_files *ret, struct error *error) {
  return moe_render(&dialect, request, ret, error);
}

static bool read_files(const struct import_request *request, struct imported *ret, struct error *error) {
  return moe_read(&dialect, request, ret, error);
}

const struct cache_format format_vllm_moe = {
    .name = "vllm-moe",
    .summary = "fused mixture-of-experts tables of vLLM (VLLM_TUNED_CONFIG_FOLDER)",
    .render = render_release,
    .read = read_files,
};
