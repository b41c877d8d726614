/* A verdict as text: the table of finalists, the winner, the equivalence set, the gain over the
 * baseline. `wavetune show`, `submit --wait` and `wavetune-agent tune` print it.
 *
 * Memory: everything is borrowed. Threads: one. */
#ifndef WAVETUNE_COMMON_VERDICT_REPORT_H
#define WAVETUNE_COMMON_VERDICT_REPORT_H

#include "common/kernel/kernel.h"

/* The outcomes of a job's configs, and its budget. */
struct report_counts {
  uint64_t configs; /* valid ones, or the trials of a search */
  bool is_search;
  const json_t *outcomes; /* of those that were measured: {"correct": 90, "compile": 2, …}; may be
                             NULL */
  bool budget_ended;      /* the budget is why some were never tried */
  double budget_seconds, spent_seconds; /* of device time; budget_seconds 0: there is none */
  double opening_seconds; /* the part of spent_seconds that opening the kernel took; 0: not known */
};
/* "138 valid configs: 64 measured (62 correct, 2 runtime), 74 never tried: the budget of 1
 * device-seconds ended the screen", a line more where it is known what opening the kernel took, and
 * one where the budget was exceeded. */
void report_counts_print(const struct report_counts *counts, FILE *out);

struct report {
  const struct kernel *kernel;
  const struct key *key;
  const struct space *space;
  const char *gpu_name, *arch; /* for flops and bytes expressions; may be NULL */
  uint64_t baseline;
  const char *baseline_from; /* "incumbent", "imported", "default" or "first": why that one; NULL or
                                empty: the default */
  struct report_counts counts;
  const json_t *verdict; /* as verdict_to_json writes it */
  const char *agreement; /* the winner's class (common/verdict/agreement.h); NULL, empty, "none":
                            not stated */
  /* The resources of the finalists: an array of {"config", "vgprs", "spills", "lds_bytes",
   * "occupancy", "conditions"} with any of them null or absent; may be NULL. */
  const json_t *resources;
};

/* Rates come from the kernel's flops and bytes expressions; a column whose expression is absent is
 * left out, a cell for which it has no value (it divides by zero) is "-". Resources have a
 * column where one finalist's is known; of the conditions, numbers, truths and texts are summed up
 * in a line. */
void report_print(const struct report *report, FILE *out);

#endif
