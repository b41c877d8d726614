/* triton-dejavu's caches: where they lie and what their texts are. Read by its versions 0.5.4 to
 * 0.7.
 *
 *   dejavu_0.7/triton_<triton>/<runtime>/gpu_<gpu>/<function>/autotune_config-<P>/
 *       code_version-<C>/tune_features-<K>/kernel_configs-<G>/<tag>/cache.json
 *   dejavu_0.6/<runtime>/torch_<torch>/triton_<triton>/gpu_<gpu>/<the same>
 *   dejavu_0.5/<runtime>/torch_<torch>/triton_<triton>/gpu_<gpu>/<function>/
 *       autotune_config-<P>/kernel_configs-<G>/code_version-<C>/<tag>/cache.json
 * with runtime rocm_<version> or cuda_<version>, and P, C, K, G SHA-256 in hexadecimal digits.
 *
 * A table of somebody's function is an external kernel dejavu/<function>. Its "exports":
 *   {"dejavu": {"layout": "dejavu_0.7", "function", "signature": "JITFunction(module:function)",
 *     "autotune_config", "code_version", "tune_features", "kernel_configs": P, C, K, G (no K in
 *         layout 0.5),
 *     "keys": ["n"] or null, as in the file,
 *     "timings_data": {"rep_t_ms": 100, "warmup_t_ms": 25, "cuda_graphs": false}, the defaults
 *         where the file has none,
 *     "config": ["BLOCK", "num_warps", …]}}   the members of its configs, in the order they were
 *                                             printed in
 * Its key has the names of "keys", then dtype_0, dtype_1 … for what the autotuner appends. Entries
 * with fewer or more dtypes than others are those of another external kernel of the same exports.
 * Provenance holds "source" (the path), "total_bench_time_s", "evaluated_configs", and "config",
 * the text, where its members are others or in another order.
 *
 * dejavu.c renders, dejavu_tree.c knows the tree and reads it.
 * Memory: results are the caller's. Threads: pure functions; a source is called by the thread that
 * renders. */
#ifndef WAVETUNE_COMMON_FORMATS_DEJAVU_H
#define WAVETUNE_COMMON_FORMATS_DEJAVU_H

#include "common/cache/format.h"

/* The decorator's defaults. */
#define DEJAVU_REP_MS 100
#define DEJAVU_WARMUP_MS 25

/* The hashes of a path, in the order of layout 0.7; NULL in a path: the layout has none. */
#define DEJAVU_HASHES(X)                                                                           \
  X(autotune_config)                                                                               \
  X(code_version)                                                                                  \
  X(tune_features)                                                                                 \
  X(kernel_configs)

struct dejavu_path {
  char *layout; /* "dejavu_0.7" */
  char *triton, *torch;
  char *runtime; /* "rocm_6.4.1" */
  char *gpu;     /* "AMD_Instinct_MI300X" */
  char *function;
#define X(hash) char *hash;
  DEJAVU_HASHES(X)
#undef X
  char *tag;
};
void dejavu_path_release(struct dejavu_path *path);
#define cleanup_dejavu_path __attribute__((cleanup(dejavu_path_release)))

/* The path, when every part that the layout needs is there and fit for one. */
must_check bool dejavu_path_format(const struct dejavu_path *path, char **ret_text,
                                   struct error *error);

/* Which members a layout's paths have; false for a layout that is not known. */
bool dejavu_layout_has(const char *layout, bool *ret_torch, bool *ret_tune_features);

/* The name of the function in "JITFunction(module:function)"; NULL when it is something else. */
must_check char *dejavu_signature_function(const char *signature);

/* SHA-256 of a text in hexadecimal digits: the four hashes are made of it. */
#define DEJAVU_HASH_SIZE 65
char *dejavu_hash(const char *text, size_t size, char hash[DEJAVU_HASH_SIZE]);

/* K: of the names joined by '|'. */
char *dejavu_names_hash(const json_t *names, char hash[DEJAVU_HASH_SIZE]);

/* Whether dejavu restores exactly what is written: a config whose values it does not read as
 * others, an element of a key that its reader of tuples gives back. The sentence begins with the
 * name or the element. */
must_check bool dejavu_restores_config(const json_t *config, struct error *error);
must_check bool dejavu_restores_element(const char *element, size_t size, bool ignore_dtypes,
                                        struct error *error);

/* The folders above the functions: of the image, else of the release's environment. layout and
 * torch may be NULL. */
must_check bool dejavu_storage_find(const struct render_request *request, struct dejavu_path *ret,
                                    struct error *error);

must_check bool dejavu_read(const struct import_request *request, struct imported *ret,
                            struct error *error);

#endif
