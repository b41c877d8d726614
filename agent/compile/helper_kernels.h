/* The agent's own kernels, which it runs beside those that it tunes. They are compiled on the node
 * like any kernel, because their code depends on the target; where one does not compile, the device
 * works without it.
 *
 * Instruction flush (AMD): empties the instruction caches, so that a cold measurement fetches its
 * code too. As in ROCm/triton's do_bench every wave executes s_icache_inv and waits 16 s_nop for
 * it; the device launches INSTRUCTION_FLUSH_GROUPS_PER_CU workgroups of one wave for each compute
 * unit (agent/device/gpu_timing.c).
 *
 * Fingerprint: agent/device/fingerprint.h of `bytes`, which is 8-byte aligned, in workgroups of
 * FINGERPRINT_THREADS threads:
 *   FINGERPRINT_ENTRY(const unsigned char *bytes, uint64_t size, uint64_t *parts)
 * Workgroup k leaves the sum of its words in parts[2 k] and their product in parts[2 k + 1]
 * (agent/device/gpu.c).
 *
 * Memory: a helper_object's path is its owner's. Threads: any. */
#ifndef WAVETUNE_AGENT_COMPILE_HELPER_KERNELS_H
#define WAVETUNE_AGENT_COMPILE_HELPER_KERNELS_H

#include "agent/compile/compile.h"

#define INSTRUCTION_FLUSH_ENTRY "wavetune_instruction_flush"
#define INSTRUCTION_FLUSH_GROUPS_PER_CU 60
#define FINGERPRINT_ENTRY "wavetune_fingerprint"
#define FINGERPRINT_THREADS 256

extern const char fingerprint_kernel[]; /* its source */

struct helper_object {
  char *path;           /* NULL: none */
  struct digest digest; /* of its bytes */
};

enum helper_kernel { HELPER_INSTRUCTION_FLUSH, HELPER_FINGERPRINT, HELPER_COUNT };

/* The helper's object for `arch` in the pool's folder. Waits for the compiler if it is not there
 * yet, usually less than a second. The path is NULL if the target has no use for it. False: it did
 * not compile; the error states why, and the consequence. The pool's folder is pruned: get the
 * object again for each lease. */
must_check bool helper_kernel_object(struct compile_pool *pool, enum helper_kernel helper,
                                     const char *arch, struct helper_object *ret_object,
                                     struct error *error);

#endif
