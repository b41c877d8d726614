/* A problem on a CUDA GPU whose kernel loads through a tensor map, which its launch spec states. */
#ifndef WAVETUNE_TESTS_GPU_TILE_H
#define WAVETUNE_TESTS_GPU_TILE_H

#include "agent/measure/check.h"
#include "tests/unit/agent_fixture.h"

/* tile(map, out, x, y): adds to the 512 words at `out` the box of 8 × 64 words that a tensor map
 * has at column x and row y; one block of 512. What is outside of the tensor is 0. */
static const char gpu_tile_ptx[] =
    ".version 8.0\n"
    ".target sm_90\n"
    ".address_size 64\n"
    ".visible .entry tile(.param .align 64 .b8 map[128], .param .u64 out, .param .u32 x, "
    ".param .u32 y)\n"
    "{\n"
    "  .shared .align 128 .b8 box[2048]; .shared .align 8 .b64 done;\n"
    "  .reg .pred %p; .reg .b32 %i, %box, %done, %x, %y, %at, %word; .reg .b64 %map, %out, "
    "%offset, %state;\n"
    "  mov.b64 %map, map; cvta.param.u64 %map, %map;\n"
    "  ld.param.u64 %out, [out]; cvta.to.global.u64 %out, %out;\n"
    "  ld.param.u32 %x, [x]; ld.param.u32 %y, [y];\n"
    "  mov.u32 %i, %tid.x; mov.u32 %box, box; mov.u32 %done, done;\n"
    "  setp.ne.u32 %p, %i, 0; @%p bra loaded;\n"
    "  mbarrier.init.shared::cta.b64 [%done], 1;\n"
    "  fence.proxy.async.shared::cta;\n"
    "  mbarrier.arrive.expect_tx.shared::cta.b64 %state, [%done], 2048;\n"
    "  cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%box], "
    "[%map, {%x, %y}], [%done];\n"
    "loaded: bar.sync 0;\n"
    "again: mbarrier.try_wait.parity.shared::cta.b64 %p, [%done], 0; @!%p bra again;\n"
    "  shl.b32 %at, %i, 2; add.u32 %at, %box, %at; mul.wide.u32 %offset, %i, 4; add.u64 "
    "%out, %out, %offset;\n"
    "  ld.shared.u32 %word, [%at]; ld.global.u32 %i, [%out]; add.u32 %word, %word, %i; "
    "st.global.u32 [%out], %word;\n"
    "  ret;\n"
    "}\n";

/* The kernel `tile` and what an object of it states: the map of a square of n × n words, of whose
 * box at column x and row 40 it adds to 512 words, which are filled with 7 before. */
#define TILE_N 256
#define TILE_SPEC                                                                                  \
  "{\"entry\": \"tile\", \"arguments\": [{\"tensormap\": {\"base\": \"in\", \"type\": 2, "         \
  "\"shape\": [256, 256], \"strides\": [1024], \"box\": [8, 64], \"swizzle\": 0, \"fill\": 0}}, "  \
  "\"out\", {\"i32\": %d}, {\"i32\": 40}], \"fills\": [[\"out\", 2048, 7]]}"

struct tile {
  struct kernel *kernel;
  struct key key;
  struct space *space;
  struct problem *problem;
  char *object;
};

static inline struct tile *tile_open(struct device *gpu) {
  struct tile *tile = xcalloc(1, sizeof *tile);
  struct error error = {0};
  cleanup_json json_t *manifest = fixture_json(
      "{\"name\": \"tile\", \"language\": \"hip\", \"entry\": \"tile\", \"sources\": [{\"path\": "
      "\"tile.hip\", \"digest\": "
      "\"sha256:0000000000000000000000000000000000000000000000000000000000000000\"}], \"key\": "
      "[\"n\"], \"arguments\": [{\"name\": \"in\", \"dtype\": \"uint32\", \"shape\": [\"n\", "
      "\"n\"], "
      "\"access\": \"read\", \"fill\": \"index\"}, {\"name\": \"out\", \"dtype\": \"uint32\", "
      "\"shape\": [512], \"access\": \"readwrite\", \"fill\": \"zeros\"}], \"launch\": {\"grid\": "
      "[1], \"block\": [512]}}");
  cleanup_json json_t *key = json_pack("{s:i}", "n", TILE_N),
                      *space = fixture_json("{\"parameters\": {\"BLOCK\": [512]}}");
  cr_assert(kernel_parse(manifest, &tile->kernel, &error), "%s", error.message);
  cr_assert(key_parse(key, NULL, 0, &tile->key, &error), "%s", error.message);
  cr_assert(space_parse(space, &tile->space, &error), "%s", error.message);
  struct problem_setup setup = {.device = gpu,
                                .kernel = tile->kernel,
                                .key = &tile->key,
                                .space = tile->space,
                                .seed = 1,
                                .regime = REGIME_COLD,
                                .rotation_bytes_max = ROTATION_BYTES_MAX};
  cr_assert(problem_new(&setup, &tile->problem, &error), "%s", error.message);
  tile->object = xasprintf("/tmp/wavetune-gpu-tile-%d", (int)getpid());
  cr_assert(file_write_atomically(tile->object, gpu_tile_ptx, strlen(gpu_tile_ptx), 0600, &error),
            "%s", error.message);
  return tile;
}

static inline void tile_close(struct tile *tile) {
  problem_free(tile->problem);
  kernel_free(tile->kernel);
  key_release(&tile->key);
  space_free(tile->space);
  unlink(tile->object);
  free(tile->object);
  free(tile);
}

static inline enum outcome tile_load(struct tile *tile, int x, struct loaded_config **ret_loaded,
                                     struct error *error) {
  cleanup_free char *text = xasprintf(TILE_SPEC, x);
  cleanup_json json_t *json = fixture_json(text);
  struct launch_spec spec;
  cr_assert(launch_spec_from_json(json, &spec, error), "%s", error->message);
  enum outcome outcome = config_load(tile->problem, 0, tile->object, &spec, ret_loaded, error);
  launch_spec_release(&spec);
  return outcome;
}

#endif
