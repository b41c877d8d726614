/* How a compiled object is launched, as far as this depends on the object and not on the manifest.
 * The supervisor gets it from a build or a compile and sends it to the worker.
 *
 * JSON, all members optional:
 *   {"entry": "matmul_kernel",           the symbol; absent: the manifest's entry
 *    "arguments": ["a_ptr", "b_ptr"],    what is passed, in order (common/builds/
 *                                        launch_arguments.h); absent: all of the manifest's
 *    "fills": [["c_ptr", 4096, 0]],      what is filled before each launch (ibid.)
 *    "scratch": 2,                       null pointers after them (Triton's global and profile
 *                                        scratch)
 *    "threads": 256,                     of a workgroup, where the manifest states no block
 *    "shared_bytes": 8192,               dynamic, where the manifest states none
 *    "grid": [64, 1, 1],                 of a captured kernel, whose manifest states none
 *    "cooperative": false, "cluster": 1,
 *    "resources": {…}}                   code_resources_to_json
 *
 * Memory: a spec owns everything. Threads: plain value. */
#ifndef WAVETUNE_AGENT_COMPILE_LAUNCH_SPEC_H
#define WAVETUNE_AGENT_COMPILE_LAUNCH_SPEC_H

#include "common/builds/launch_arguments.h"
#include "common/code/code_object.h"

#define LAUNCH_SCRATCH_MAX 4

struct launch_spec {
  char *entry;                       /* NULL: the manifest's */
  struct launch_arguments arguments; /* not stated: all of the manifest's */
  struct launch_fills fills;
  int64_t n_scratch;
  int64_t threads, shared_bytes; /* 0: the manifest's */
  struct numbers grid;           /* integers; n 0: the manifest's */
  bool cooperative;
  int64_t cluster; /* workgroups; 1: none */
  struct code_resources resources;
};

extern const struct field_custom launch_spec_custom; /* a member of another record */

struct launch_spec launch_spec_default(void);
must_check json_t *launch_spec_to_json(const struct launch_spec *spec);
must_check bool launch_spec_from_json(const json_t *json, struct launch_spec *ret,
                                      struct error *error);
must_check struct launch_spec launch_spec_copy(const struct launch_spec *spec);
void launch_spec_release(struct launch_spec *spec);

#endif
