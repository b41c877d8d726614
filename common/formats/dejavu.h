/* triton-dejavu's caches: where their files are and what their texts are. Versions 0.5.4 to 0.7
 * read them.
 *
 *   dejavu_0.7/triton_<triton>/<runtime>/gpu_<gpu>/<function>/autotune_config-<P>/
 *       code_version-<C>/tune_features-<K>/kernel_configs-<G>/<tag>/cache.json
 *   dejavu_0.6/<runtime>/torch_<torch>/triton_<triton>/gpu_<gpu>/<the same>
 *   dejavu_0.5/<runtime>/torch_<torch>/triton_<triton>/gpu_<gpu>/<function>/
 *       autotune_config-<P>/kernel_configs-<G>/code_version-<C>/<tag>/cache.json
 * with runtime rocm_<version> or cuda_<version>, and P, C, K, G SHA-256 in hexadecimal digits.
 *
 * A table of a function that is not registered is an external kernel dejavu/<function>. Its
 * "exports":
 *   {"dejavu": {"layout": "dejavu_0.7", "function", "signature": "JITFunction(module:function)",
 *     "autotune_config", "code_version", "tune_features", "kernel_configs": P, C, K, G (no K in
 *         layout 0.5),
 *     "keys": ["n"] or null, as in the file,
 *     "timings_data": {"rep_t_ms": 100, "warmup_t_ms": 25, "cuda_graphs": false}, the defaults
 *         where the file has none,
 *     "config": ["BLOCK", "num_warps", …]}}   the members of its configs, in the order in
 *                                             which they were printed
 * Its key has the names of "keys", then dtype_0, dtype_1 … for what the autotuner appends. Entries
 * with fewer or more dtypes than others are those of another external kernel of the same exports.
 * Provenance has "source" (the path), "total_bench_time_s", "evaluated_configs", and "config",
 * the text, where its members are others or in another order.
 *
 * dejavu.c renders, dejavu_tree.c knows the paths and reads the tree.
 * Memory: results are the caller's. Threads: pure functions. */
#ifndef WAVETUNE_COMMON_FORMATS_DEJAVU_H
#define WAVETUNE_COMMON_FORMATS_DEJAVU_H

#include "common/cache/format.h"

enum dejavu_part {
  DEJAVU_LAYOUT, /* "dejavu_0.7" */
  DEJAVU_TRITON,
  DEJAVU_TORCH,
  DEJAVU_RUNTIME, /* "rocm_6.4.1" */
  DEJAVU_GPU,     /* "AMD_Instinct_MI300X" */
  DEJAVU_FUNCTION,
  DEJAVU_AUTOTUNE_CONFIG, /* the hashes */
  DEJAVU_CODE_VERSION,
  DEJAVU_TUNE_FEATURES,
  DEJAVU_KERNEL_CONFIGS,
  DEJAVU_TAG,
  DEJAVU_PARTS
};
extern const char *const dejavu_part_names[DEJAVU_PARTS];
static inline bool dejavu_part_is_hash(enum dejavu_part part) {
  return part >= DEJAVU_AUTOTUNE_CONFIG && part <= DEJAVU_KERNEL_CONFIGS;
}

struct dejavu_path {
  char *parts[DEJAVU_PARTS]; /* NULL: the layout has none */
};
void dejavu_path_release(struct dejavu_path *path);
#define cleanup_dejavu_path cleanup_by(dejavu_path_release)

/* The text of a path; each part that the layout has must be set and valid, and no other. */
must_check bool dejavu_path_format(const struct dejavu_path *path, char **ret_text,
                                   struct error *error);

/* The parts of a layout's paths in their order, ended by DEJAVU_PARTS; an unknown layout is
 * refused. */
must_check bool dejavu_layout_parts(const char *layout, const enum dejavu_part **ret_parts,
                                    struct error *error);
bool dejavu_layout_has(const enum dejavu_part *parts, enum dejavu_part part);

/* The name of the function in "JITFunction(module:function)"; NULL when it is something else. */
must_check char *dejavu_signature_function(const char *signature);

/* SHA-256 in hexadecimal digits: of a text, and of names joined by '|' (the hash K). */
#define DEJAVU_HASH_SIZE 65
char *dejavu_hash(const char *text, char hash[DEJAVU_HASH_SIZE]);
char *dejavu_names_hash(const json_t *names, char hash[DEJAVU_HASH_SIZE]);

/* "timings_data" without labels: members that the object lacks are the decorator's defaults. */
must_check json_t *dejavu_timings_data(const json_t *object, const char *rep, const char *warmup,
                                       const char *graphs);

/* Whether dejavu reads back exactly what is written: the values of a config, an element of a key.
 */
must_check bool dejavu_restores_config(const json_t *config, struct error *error);
must_check bool dejavu_restores_element(const char *element, size_t size, bool ignore_dtypes,
                                        struct error *error);

must_check bool dejavu_read(const struct import_request *request, const struct cache_file *file,
                            struct imported *imported, struct error *error);

#endif
