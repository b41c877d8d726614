/* What comes after a stage of a job, from what its measurements say. Decides; moves nothing.
 *
 * The screen ranks configs by the median of their paired ratios in one process each. The best 8 are measured again,
 * interleaved, in 3 fresh processes: the final (common/finalists.h: none that the screen saw far behind). A finalist that
 * fails in one process drops out. When no config has enough processes, or the verdict is ambiguous, another process is
 * added, up to 6.
 *
 * Memory: a plan owns its verdict. Threads: pure functions. */
#ifndef WAVETUNE_SERVER_CORE_JOB_PLAN_H
#define WAVETUNE_SERVER_CORE_JOB_PLAN_H

#include "common/finalists.h"
#include "common/verdict.h"
#include "server/core/job_state.h"

#define FINAL_PROCESSES 3
#define FINAL_PROCESSES_MAX 6

struct job_plan {
  enum { PLAN_FINAL, PLAN_DONE, PLAN_FAIL } step;
  /* PLAN_FINAL: processes [first_process, first_process + n_processes) measure these */
  size_t n_finalists;
  uint64_t finalists[FINALISTS_MAX]; /* rising */
  int64_t first_process, n_processes;
  struct verdict verdict; /* PLAN_DONE */
  char reason[640];       /* PLAN_FAIL: one sentence */
};
void job_plan_release(struct job_plan *plan);
#define cleanup_job_plan __attribute__((cleanup(job_plan_release)))

/* What the screen learned. `ranked`: the FINALISTS_MAX correct configs with the least ratios, or all when they are fewer. */
struct screen_facts {
  size_t n_ranked;
  const uint64_t *ranked;
  const double *ratios;
  int64_t measured;                /* configs with any outcome */
  int64_t outcomes[OUTCOME_COUNT]; /* of them */
  const char *example;             /* detail of a failed one, or NULL */
};
void job_after_screen(const struct screen_facts *facts, struct job_plan *ret_plan);

/* What the final learned: one element for each config in each process. */
struct final_measurement {
  enum outcome outcome;
  struct verdict_sample sample; /* n = 0 unless correct */
};
void job_after_final(const struct final_measurement *measurements, size_t n, uint64_t baseline, uint64_t seed,
                     struct job_plan *ret_plan);

#endif
