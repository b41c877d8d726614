/* The facts of one @triton.jit function that paths of Triton's and triton-dejavu's caches contain,
 * collected where Triton runs: by `python3 -m wavetune pack` (the member "record" of a build) or
 * `… identity` (a member of "functions").
 *
 * JSON: {"kernel": "sha256:…", "name": "matmul/triton",
 *   "triton": {"version": "3.6.0", "key": "<triton_key()>", "backend_hash": "<backend.hash()>"},
 *   "function": {"module", "name", "qualname", "signature": "JITFunction(m:f)", "cache_key",
 *                "source_sha256"},
 *   "key_names": ["n"],                      the decorator's `key`, in its order
 *   "tuning_key": ["n"],                     which members of the wavetune key give the values of
 *                                            key_names
 *   "argument_dtypes": ["torch.float16", …], dtypes that the autotuners append, in the order of
 *                                            arguments
 *   "configs": ["BLOCK: 256, num_warps: 4, …", …],   str(Config) of each, in the decorator's order
 *   "autotune": {…},
 *   "dejavu": {"layout": "dejavu_0.7", "autotune_config", "code_version", "tune_features",
 *              "kernel_configs", "search_parameters", "quantiles", "warmup", "rep",
 *              "use_cuda_graph", "ignore_dtypes"}}   or absent
 * kernel and name: at least one, of the wavetune kernel. Unknown members are ignored.
 *
 * Memory: a record owns everything. Threads: read-only after parsing. */
#ifndef WAVETUNE_COMMON_BUILDS_FUNCTION_RECORD_H
#define WAVETUNE_COMMON_BUILDS_FUNCTION_RECORD_H

#include "common/record/record.h"

struct function_record {
  bool has_kernel;
  struct digest kernel;
  char *name; /* of the wavetune kernel, or NULL */
  struct {    /* NULL where not stated */
    char *triton_version, *triton_key, *backend_hash;
  };
  struct {
    char *module, *function, *qualname, *signature, *cache_key, *source_sha256;
  };
  RECORD_ARRAY(char *, n_key_names, key_names);
  RECORD_ARRAY(char *, n_tuning_key, tuning_key); /* as many as key_names */
  RECORD_ARRAY(char *, n_dtypes, dtypes);
  RECORD_ARRAY(char *, n_configs, configs);
  json_t *autotune, *dejavu; /* objects or NULL */
};

must_check bool function_record_parse(const json_t *json, struct function_record *ret,
                                      struct error *error);
void function_record_release(struct function_record *record);

#endif
