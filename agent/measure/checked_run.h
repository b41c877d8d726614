/* One run of a config on the checked copies, and what it left there: the steps that the comparisons
 * with the reference (check.c) and with the default config (agreement.c) share.
 *
 * A device that refuses a call makes the outcome OUTCOME_RUNTIME; whether it still works is asked
 * once, at the end of the check.
 *
 * Memory and threads: as agent/measure/problem.h. */
#ifndef WAVETUNE_AGENT_MEASURE_CHECKED_RUN_H
#define WAVETUNE_AGENT_MEASURE_CHECKED_RUN_H

#include "agent/measure/element.h"
#include "agent/measure/problem.h"

/* Runs the config on outputs with the mark, waits for it, and checks the canaries of all buffers,
 * which restores them. What else was written outside of them is not known, so that nothing more is
 * measured in this process. */
must_check enum outcome checked_run(struct problem *problem, struct loaded_config *loaded, int mark,
                                    struct error *error);

/* Sets operand->left. The data are then in `written` where the device has no fingerprints. */
must_check bool output_fingerprint(struct problem *problem, struct operand *operand,
                                   struct error *error);
/* After that: copies the data to `written` where they are not there. */
must_check bool output_fetch(struct problem *problem, struct operand *operand, struct error *error);
must_check bool output_download(struct problem *problem, const struct operand *operand, void *bytes,
                                struct error *error);

static inline double operand_value(const struct operand *operand, const void *bytes, int64_t k) {
  return element_get(operand->argument->dtype, bytes, k);
}

#endif
