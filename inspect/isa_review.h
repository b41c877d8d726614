/* What the instructions of an AMD GPU kernel reveal about its speed: a review of llvm-objdump's
 * text (common/code/disassemble.h).
 *
 * Loops are natural loops; an instruction is counted in its innermost loop alone. The hot loop is
 * the one with the most matrix instructions; where none has any, the one with the most accesses to
 * memory.
 *
 * Expected in a hot loop (AMD, MI300X workload optimization guide: assembly analysis): global loads
 * of 16 bytes a lane (dwordx4), LDS accesses of 16 or 8 (b128, b64), no scratch, no wait for all
 * loads in flight (vmcnt(0)).
 *
 * Memory: a review owns everything. Threads: any; pure functions. */
#ifndef WAVETUNE_INSPECT_ISA_REVIEW_H
#define WAVETUNE_INSPECT_ISA_REVIEW_H

#include "common/code/code_object.h"
#include "common/code/disassemble.h"
#include "inspect/findings.h"

#define ISA_INSTRUCTIONS_MAX 1000000 /* of one text; more is an error */
#define ISA_MATRIX_KINDS_MAX 64      /* different matrix instructions of a function, listed */

struct isa_counts {
  int64_t instructions;
  int64_t global_loads[ISA_WIDTHS],
      global_stores[ISA_WIDTHS]; /* global_, buffer_ and flat_ instructions */
  int64_t lds_reads[ISA_WIDTHS], lds_writes[ISA_WIDTHS]; /* ds_read2_b64 counts as two of 8 bytes */
  int64_t flat;                                          /* of the global accesses: flat_ */
  int64_t to_lds;  /* of the global loads: those that write LDS directly */
  int64_t atomics; /* on global memory */
  int64_t scratch_loads, scratch_stores;
  int64_t matrix;        /* MFMA and WMMA */
  int64_t accvgpr_moves; /* v_accvgpr_read, _write, _mov */
  int64_t waits;         /* s_waitcnt, s_wait_… */
  int64_t waits_for_loads,
      waits_for_lds; /* of `waits`: for all loads, for all LDS accesses in flight */
  int64_t barriers;
};

struct isa_loop {
  uint64_t at; /* of its head, in bytes from the function's start: objdump's <name+0x…> */
  int depth;   /* 1: outermost */
  bool is_hot;
  struct isa_counts counts; /* of instructions that are in no inner loop */
};

struct isa_matrix {
  char *name; /* "v_mfma_f32_16x16x16_f16" */
  int64_t count, count_in_loops;
};

struct isa_function {
  char *name;
  struct isa_counts counts; /* of all of it */
  size_t n_matrix;
  struct isa_matrix *matrix; /* in the order of their first occurrence */
  size_t n_loops;
  struct isa_loop *loops; /* by rising address */
  struct review_findings findings;
};

struct isa_review {
  size_t n;
  struct isa_function *functions; /* every function of the text, in its order */
};

/* `object` (may be NULL) adds what its notes state about spills and scratch. A text without
 * instructions is an error. */
must_check bool isa_review_make(const char *text, const struct code_object *object,
                                struct isa_review **ret_review, struct error *error);
void isa_review_free(struct isa_review *review);
DEFINE_CLEANUP(struct isa_review *, cleanup_isa_review_free, isa_review_free)
#define cleanup_isa_review cleanup_by(cleanup_isa_review_free)

/* The function with this name; NULL: there is none. */
const struct isa_function *isa_review_function(const struct isa_review *review, const char *name);

must_check json_t *isa_function_to_json(const struct isa_function *function);
void isa_function_print(const struct isa_function *function, FILE *out);

#endif
