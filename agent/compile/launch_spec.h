/* How a compiled object is launched, as far as this depends on the object and not on the manifest.
 * The supervisor gets it from a build or a compile and sends it to the worker.
 *
 * JSON, all members optional:
 *   {"entry": "matmul_kernel",           the symbol; absent: the manifest's entry
 *    "arguments": ["a_ptr", "b_ptr"],    manifest arguments that are passed, in order; absent: all
 *                                        (others were compiled in)
 *    "scratch": 2,                       null pointers after them (Triton's global and profile
 *                                        scratch)
 *    "threads": 256,                     of a workgroup, where the manifest states no block
 *    "shared_bytes": 8192,               dynamic, where the manifest states none
 *    "grid": [64, 1, 1],                 of a captured kernel, whose manifest states none
 *    "cooperative": false, "cluster": 1,
 *    "resources": {…}}                   code_resources_to_json
 *
 * Memory: a spec owns its strings. Threads: plain value. */
#ifndef WAVETUNE_AGENT_COMPILE_LAUNCH_SPEC_H
#define WAVETUNE_AGENT_COMPILE_LAUNCH_SPEC_H

#include "common/code/code_object.h"
#include "common/record/record.h"

#define LAUNCH_SCRATCH_MAX 4

struct launch_spec {
  char *entry;                                  /* NULL: the manifest's */
  RECORD_ARRAY(char *, n_arguments, arguments); /* NULL: all */
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
void launch_spec_release(struct launch_spec *spec);

#endif
