/* The loops of a function, from its branches.
 *
 * A loop is a set of blocks with one head that dominates them all and at least one way back to it.
 * Cycles that are entered at several places are no loops here: compilers make none on purpose. The
 * work is bounded: code too tangled to be decided within the bound is an error.
 *
 * Memory: a flow owns its arrays. Threads: pure functions. */
#ifndef WAVETUNE_INSPECT_ISA_FLOW_H
#define WAVETUNE_INSPECT_ISA_FLOW_H

#include "common/base/error.h"
#include "common/code/isa_decode.h"

#define ISA_NO_LOOP (-1)

struct isa_flow_loop {
  uint64_t head; /* address of its first instruction */
  int parent;    /* the loop around it, or ISA_NO_LOOP */
  int depth;     /* 1: outermost */
};

struct isa_flow_loops {
  size_t n;
  struct isa_flow_loop *loops; /* a loop comes after those inside it */
  int *loop_of;                /* of each instruction: the innermost loop, or ISA_NO_LOOP */
};

/* `instructions` by rising address. */
must_check bool isa_flow_find(const struct isa_instruction *instructions, size_t n,
                              struct isa_flow_loops *ret, struct error *error);
void isa_flow_release(struct isa_flow_loops *loops);
#define cleanup_isa_flow __attribute__((cleanup(isa_flow_release)))

#endif
