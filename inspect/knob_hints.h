/* Advice of AMD's guide and limits of Triton's back ends for the values in a space: values that
 * cannot run are refused, others get a hint, each with its source. Nothing is measured.
 *
 * The rules are a table (knob_hints.c). Each has an expression that decides when the rule applies,
 * over the value and what is known (kind of kernel, Triton's version, arch, the kernel's source).
 * Other findings are about objects near a boundary of occupancy (waves_per_eu), and about configs
 * whose workgroup does not fit the arch. A value counts only when some valid config has it; where
 * that is not known (no key given, or a space of more than KNOB_POINTS_MAX configs), every value
 * counts.
 *
 * Memory: everything is borrowed; findings are the caller's. Threads: pure functions. */
#ifndef WAVETUNE_INSPECT_KNOB_HINTS_H
#define WAVETUNE_INSPECT_KNOB_HINTS_H

#include "common/code/code_object.h"
#include "common/kernel/kernel_folder.h"
#include "inspect/findings.h"

#define KNOB_POINTS_MAX 200000

/* X(enumerator, name): what a kernel is, as far as the guide's advice differs. */
#define KERNEL_KINDS(X)                                                                            \
  X(KIND_GEMM, "gemm")                                                                             \
  X(KIND_FUSED, "fused")       /* two GEMMs in one loop: attention */                              \
  X(KIND_INDIRECT, "indirect") /* loads whose addresses are loaded: paged attention, gathers */    \
  X(KIND_ELEMENTWISE, "elementwise")
enum kernel_kind {
#define X(enumerator, name) enumerator,
  KERNEL_KINDS(X)
#undef X
};
const char *kernel_kind_name(enum kernel_kind kind);
must_check bool kernel_kind_parse(const char *name, enum kernel_kind *ret);
/* Guesses by words in the kernel's name; else gemm when its flops read three members of the key,
 * else elementwise. */
enum kernel_kind kernel_kind_guess(const struct kernel *kernel);

struct knob_question {
  const struct kernel_folder *folder;
  const struct key *key; /* NULL: not given */
  const char *arch;      /* "gfx942"; NULL: not known */
  const char *gpu_name;  /* NULL: not known; for conditions */
  int triton;            /* triton_version_number (common/builds/function_record.h); 0: not known */
  enum kernel_kind kind;
  const struct code_resources *resources; /* of compiled objects; NULL: none */
  size_t n_resources;
};

/* Adds to *findings. False when the space's conditions cannot be evaluated for the key. */
must_check bool knob_hints_find(const struct knob_question *question,
                                struct review_findings *findings, struct error *error);

#endif
