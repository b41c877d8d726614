/* The identity of a container image: the facts that the paths of its tools' caches contain,
 * recorded inside the image by `python3 -m wavetune identity` and stored there as identity.json
 * (and on a server by PUT /v1/images/{digest}).
 *
 * JSON: {"version": 1,
 *   "triton": {"version", "key", "backend_hash"} or null,
 *   "torch": "2.9.0" or null, "gpu": "AMD Instinct MI300X" or null, "devices": 8 or null,
 *   "variables": {"TRITON_F32_DEFAULT": "ieee", …},    those that are set and that invalidate
 *                                                      Triton's caches
 *   "dejavu": {"layout": "dejavu_0.7", "triton": "3.3.1", "runtime": "rocm_6.4.1",
 *              "gpu": "AMD_Instinct_MI300X"} or null,
 *   "tunableop": {"validators": [["PT_VERSION", "2.9.1"], …]} or null,
 *   "moe_device_name": "AMD_Instinct_MI300X" or null,
 *   "functions": [function record, …]}
 * Unknown members are ignored: an image may be older or newer than its reader. The digest of an
 * identity is that of its canonical JSON. Texts that become parts of paths have no '/' and no NUL,
 * and are not "." or "..".
 *
 * Memory: owns everything. Threads: read-only after parsing. */
#ifndef WAVETUNE_COMMON_CACHE_IDENTITY_H
#define WAVETUNE_COMMON_CACHE_IDENTITY_H

#include "common/builds/function_record.h"

#define IDENTITY_SIZE_MAX ((size_t)16 << 20)

struct identity {
  char *triton_version, *triton_key, *backend_hash, *torch, *gpu,
      *moe_device_name;                                              /* NULL where null */
  int64_t devices;                                                   /* 0: not stated */
  json_t *variables;                                                 /* object, or NULL */
  char *dejavu_layout, *dejavu_triton, *dejavu_runtime, *dejavu_gpu; /* all NULL or none */
  json_t *validators;                                                /* array of pairs, or NULL */
  size_t n_functions;
  struct function_record *functions;
  json_t *by_hash, *by_name, *by_text; /* objects: the index of the first function of each */
  json_t *json;
};

must_check bool identity_parse(const json_t *json, struct identity **ret, struct error *error);
void identity_free(struct identity *identity);
DEFINE_CLEANUP(struct identity *, cleanup_identity_free, identity_free)
#define cleanup_identity cleanup_by(cleanup_identity_free)

/* The image's record of a wavetune kernel: by kernel hash, else by name, else by the text of the
 * function that `packed` (the build's record, or NULL) has; NULL when the image has none.
 * `identity` may be NULL. */
const struct function_record *identity_function(const struct identity *identity,
                                                const struct digest *kernel, const char *name,
                                                const struct function_record *packed);

#endif
