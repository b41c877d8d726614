/* What the text of a TTGIR module (Triton's GPU dialect, asm["ttgir"]), or of a part of one,
 * reveals about a kernel's speed: trips through LDS, conversions of layouts, transposes, moves
 * through LDS in loops, how dots are computed.
 *
 * Operations are read line by line as Triton prints them, or wrapped as guides do
 * (inspect/ttgir_lines.h); any other line is refused. Loops are scf.for and scf.while by their
 * braces. Both names of the dialect are known: ttg (since Triton 3.2) and triton_gpu. `ttg.shared`
 * is stated by Tritons that print the module after LDS was allocated; 3.6 does not, and a build's
 * metadata has it.
 *
 * Memory: a review owns everything. Threads: any; pure functions. */
#ifndef WAVETUNE_INSPECT_TTGIR_REVIEW_H
#define WAVETUNE_INSPECT_TTGIR_REVIEW_H

#include "inspect/findings.h"
#include "inspect/ttgir_layout.h"

#define TTGIR_UNKNOWN (-1)
#define TTGIR_SIZE_MAX ((size_t)16 << 20)
#define TTGIR_CONVERSIONS_MAX 256 /* that are listed; all are counted */
#define TTGIR_DOTS_MAX 32         /* kinds of dots that are listed */

/* Operations that are counted: X(member, operation without its dialect, heading) */
#define TTGIR_COUNTS(X)                                                                            \
  X(transposes, "trans", "transposes")                                                             \
  X(view_transposes, "memdesc_trans", "transposed views of LDS")                                   \
  X(thread_transposes, "in_thread_transpose", "transposes inside threads")                         \
  X(local_allocs, "local_alloc", "LDS allocations")                                                \
  X(local_loads, "local_load", "loads from LDS")                                                   \
  X(local_stores, "local_store", "stores to LDS")                                                  \
  X(loads, "load", "global loads")                                                                 \
  X(buffer_loads, "buffer_load", "buffer loads")                                                   \
  X(stores, "store", "global stores")                                                              \
  X(buffer_stores, "buffer_store", "buffer stores")                                                \
  X(async_copies, "async_copy_global_to_local", "copies to LDS")                                   \
  X(buffer_copies, "buffer_load_to_local", "buffer copies to LDS")                                 \
  X(dots, "dot", "dots")                                                                           \
  X(scaled_dots, "dot_scaled", "scaled dots")                                                      \
  X(group_dots, "warp_group_dot", "warp group dots")                                               \
  X(reductions, "reduce", "reductions")

struct ttgir_counts {
#define X(member, operation, heading) int64_t member;
  TTGIR_COUNTS(X)
#undef X
  int64_t conversions[TTGIR_CONVERSIONS];
  int64_t lds_trips; /* tensors that are written to LDS and read again, by conversions or by name */
};

struct ttgir_convert {
  size_t line; /* 1-based */
  int loop_depth;
  enum ttgir_conversion conversion;
  char *from, *to; /* encodings as written: "#mma" */
  const char *why;
};

struct ttgir_dot {
  char *kind; /* "amd_mfma version 3, 16x16x16"; "blocked": plain multiply-adds */
  int64_t count, count_in_loops;
};

struct ttgir_layout {
  char *name, *text; /* "#mma", "amd_mfma<{version = 3, …}>" */
};

struct ttgir_review {
  char *target;                                          /* "hip:gfx942"; NULL: not stated */
  int64_t num_warps, num_ctas, threads_per_warp, shared; /* TTGIR_UNKNOWN: not stated */
  size_t n_layouts;
  struct ttgir_layout layouts[TTGIR_LAYOUTS_MAX];
  struct ttgir_counts all, in_loops;
  size_t n_converts;
  struct ttgir_convert converts[TTGIR_CONVERSIONS_MAX];
  size_t n_dots;
  struct ttgir_dot dots[TTGIR_DOTS_MAX];
  struct review_findings findings;
};

/* Whether it is a module, or lines of one as guides print them: operations of the dialect over
 * tensors with layouts. */
bool ttgir_is(const char *text, size_t size);
/* Any other text is an error. In a part of a module braces may be missing. */
must_check bool ttgir_review_make(const char *text, size_t size, struct ttgir_review **ret_review,
                                  struct error *error);
void ttgir_review_free(struct ttgir_review *review);
DEFINE_CLEANUP(struct ttgir_review *, cleanup_ttgir_review_free, ttgir_review_free)
#define cleanup_ttgir_review cleanup_by(cleanup_ttgir_review_free)

must_check json_t *ttgir_review_to_json(const struct ttgir_review *review);
void ttgir_review_print(const struct ttgir_review *review, FILE *out);

#endif
