/* Compiled GPU code: the kernels of an AMDGPU code object (ELF, HSA metadata note) or a CUDA cubin,
 * with their resources and arguments.
 *
 * AMDGPU: the NT_AMDGPU_METADATA note (msgpack, code object v3 and later; LLVM's AMDGPU user
 * guide), read with libelf and msgpack-c. `vgprs` is .vgpr_count, which on gfx90a and later already
 * holds the AGPRs (one unified file). CUDA: the registers and the stack frame of a kernel are
 * EIATTR_REGCOUNT and EIATTR_FRAME_SIZE of .nv.info (the registers until CUDA 12 also the top byte
 * of its .text section's sh_info), its parameters EIATTR_KPARAM_INFO of .nv.info.NAME, its static
 * shared memory the size of .nv.shared.NAME, less the 1,024 bytes of the system that it begins with
 * from sm_90 on. Numbers that a format does not state are CODE_UNKNOWN.
 *
 * The bytes are untrusted: every offset is checked, and contradictory or truncated files are
 * errors. Memory: an object owns everything. Threads: any; read-only after it was parsed. */
#ifndef WAVETUNE_COMMON_CODE_CODE_OBJECT_H
#define WAVETUNE_COMMON_CODE_CODE_OBJECT_H

#include "common/base/json.h"

#define CODE_UNKNOWN (-1)
#define CODE_KERNELS_MAX 4096
#define CODE_ARGUMENTS_MAX 1024 /* of one kernel */

enum code_object_kind { CODE_OBJECT_AMDGPU, CODE_OBJECT_CUDA };

struct code_argument {
  int64_t offset, size; /* in the kernarg segment, in bytes */
  char *kind; /* AMDGPU's .value_kind: "global_buffer", "by_value", "hidden_…"; CUDA: "parameter" */
  bool is_hidden; /* filled in by the runtime */
};

/* What one kernel needs of the machine; a plain value. */
struct code_resources {
  int64_t vgprs; /* AMDGPU: per lane, AGPRs included; CUDA: registers per thread */
  int64_t agprs, sgprs;
  int64_t vgpr_spills, sgpr_spills; /* CUDA: unknown; its spills show as scratch */
  int64_t lds_bytes;                /* static, without what a launch adds */
  int64_t scratch_bytes;            /* per lane */
  int64_t kernarg_bytes;
  int64_t wavefront_size;
  int64_t workgroup_max; /* threads that the code was compiled for */
};
extern const struct code_resources code_resources_unknown; /* every field CODE_UNKNOWN */

/* The known spills or, if none are known, 1 for a kernel with scratch memory and 0 for others. */
int64_t code_resources_spills(const struct code_resources *resources);

/* To and from {"vgprs": 112, …} (a new reference), without members that are unknown. Reading
 * refuses members of other names. */
must_check json_t *code_resources_to_json(const struct code_resources *resources);
must_check bool code_resources_from_json(const json_t *json, struct code_resources *ret,
                                         struct error *error);

struct code_kernel {
  char *name; /* by which the runtime finds it: "matmul_kernel" */
  struct code_resources resources;
  size_t n_arguments;
  struct code_argument *arguments; /* in ascending order of offset */
};

struct code_object {
  enum code_object_kind kind;
  char *target;      /* "gfx942", "sm_90" */
  char *target_full; /* AMDGPU: "amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-"; CUDA: as target */
  int version;       /* AMDGPU: code object version (4, 5, 6); CUDA: 0 */
  size_t n_kernels;
  struct code_kernel *kernels;
  json_t *notes; /* AMDGPU: all of the metadata note, {"amdhsa.kernels": […], …}; CUDA: NULL */
};

/* Whether the first bytes are those of one of the two formats. */
bool code_object_is(const void *bytes, size_t size);

must_check bool code_object_parse(const void *bytes, size_t size, struct code_object **ret_object,
                                  struct error *error);
void code_object_free(struct code_object *object);
DEFINE_CLEANUP(struct code_object *, cleanup_code_object_free, code_object_free)
#define cleanup_code_object cleanup_by(cleanup_code_object_free)

/* The kernel with this name (NULL: the only one), or an error that lists the names. */
must_check bool code_object_kernel(const struct code_object *object, const char *name,
                                   const struct code_kernel **ret_kernel, struct error *error);

#endif
