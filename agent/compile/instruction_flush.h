/* The kernel that empties the instruction caches of an AMD GPU, so that a cold measurement fetches its code too.
 *
 * As in ROCm/triton's do_bench: every wave executes s_icache_inv and waits 16 s_nop for it; the device launches
 * INSTRUCTION_FLUSH_GROUPS_PER_CU workgroups of one wave for each compute unit (agent/device/device.h,
 * instruction_flush_set). It is compiled on the node, like any kernel, because its code is the target's own.
 *
 * Memory: the path is the caller's. Threads: any. */
#ifndef WAVETUNE_AGENT_COMPILE_INSTRUCTION_FLUSH_H
#define WAVETUNE_AGENT_COMPILE_INSTRUCTION_FLUSH_H

#include "agent/compile/compile.h"

#define INSTRUCTION_FLUSH_ENTRY "wavetune_instruction_flush"
#define INSTRUCTION_FLUSH_GROUPS_PER_CU 60

/* The path of the object for `arch` in the pool's folder, compiled when it is not there yet: then it waits for the
 * compiler, a second at most by experience. NULL where there is nothing to flush with: the arch is none of AMD's, or it
 * does not compile here, which is logged. The pool's folder is pruned: ask again for each worker. */
must_check bool instruction_flush_object(struct compile_pool *pool, const char *arch, char **ret_path,
                                         struct error *error);

#endif
