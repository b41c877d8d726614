/* How a build launches its objects, compared with the kernel's manifest and the compiled code:
 * an object's metadata, and the arguments that its variant passes. docs/builds.md is the format.
 *
 * Memory: none of its own; what is read is borrowed from the build's JSON. Threads: pure
 * functions. */
#ifndef WAVETUNE_COMMON_BUILDS_BUILD_LAUNCH_H
#define WAVETUNE_COMMON_BUILDS_BUILD_LAUNCH_H

#include "common/code/code_object.h"
#include "common/kernel/kernel.h"

#define BUILD_SCRATCH_MAX 4

/* How an object is launched: Triton's metadata. */
struct build_launch {
  const char *name; /* the symbol */
  int64_t warps, warp_size;
  int64_t shared_bytes; /* dynamic */
  int64_t n_scratch;    /* null pointers after the arguments */
  int64_t clusters;     /* workgroups of a cluster; 1: none */
  bool is_cooperative;
};

/* Of an entry of "objects"; `warp_size` is the build's, for metadata that state none. */
must_check bool build_launch_read(const json_t *object, int64_t warp_size, struct build_launch *ret,
                                  struct error *error);

/* Triton's name of a type, without the '*' of a pointer, as a dtype; false: manifests have no such
 * type. */
must_check bool build_type_parse(const char *type, enum dtype *ret_dtype);

/* Whether the variant's signature and constexprs are the manifest's arguments, each once and with
 * its type. A scalar integer may be narrower, since Triton chooses by the value: what is passed
 * then is the low half of it. */
must_check bool build_signature_agrees(const struct kernel *kernel, const json_t *variant,
                                       struct error *error);

/* Whether the code is for the arch ("gfx942"). */
must_check bool build_code_is_for(const struct code_object *code, const char *arch,
                                  struct error *error);

/* Whether the code takes what a launch passes: the signature's arguments in the manifest's order,
 * then the scratch pointers, from wavefronts of the size that the threads are counted in. A build's
 * JSON is sorted by name, so that without the manifest (`kernel` NULL) only the number of arguments
 * is known. */
must_check bool build_code_agrees(const struct kernel *kernel, const json_t *variant,
                                  const struct build_launch *launch, const struct code_kernel *code,
                                  struct error *error);

#endif
