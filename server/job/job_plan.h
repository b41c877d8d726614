/* What comes after a stage of a job, from what its measurements say. Decides; moves nothing.
 *
 * The screen ranks configs by the median of their paired ratios in one process each; what was raced in one lease was raced
 * together. When more than a final takes are close and they come from several leases, the best HALVING_MAX of them race
 * once more, together: halving. The best go to the final (common/verdict/finalists.h), always with the baseline and the
 * default where those were correct: several fresh processes, FINAL_PROCESSES or one for each device that the job asks for.
 * A finalist that fails in one process drops out. While no config has enough processes or the verdict is not settled
 * (common/verdict/verdict.h), another process is added, up to FINAL_PROCESSES_MAX; a verdict that is not settled stays so
 * where the budget pays for no more (common/verdict/budget.h).
 *
 * Memory: a plan owns its verdict. Threads: pure functions. */
#ifndef WAVETUNE_SERVER_JOB_JOB_PLAN_H
#define WAVETUNE_SERVER_JOB_JOB_PLAN_H

#include "common/verdict/budget.h"
#include "common/verdict/finalists.h"
#include "common/verdict/verdict.h"
#include "server/job/job_state.h"

#define HALVING_MAX 64
#define FINAL_PROCESSES 3
#define FINAL_PROCESSES_MAX 6
#define FINAL_DEVICES_MAX 16
#define FINALISTS_ALWAYS 2 /* the baseline and the default */

/* Processes of a final that is spread over so many devices. */
static inline int64_t job_final_processes(int64_t devices) {
  return devices > FINAL_PROCESSES ? devices : FINAL_PROCESSES;
}

struct job_plan {
  enum { PLAN_HALVING, PLAN_FINAL, PLAN_DONE, PLAN_FAIL } step;
  /* PLAN_HALVING: these race in one process. PLAN_FINAL: processes [first_process, first_process + n_processes) measure
   * these, FINALISTS_MAX at most. */
  size_t n_configs;
  uint64_t configs[HALVING_MAX]; /* rising */
  int64_t first_process, n_processes;
  struct verdict verdict; /* PLAN_DONE */
  struct error reason;    /* PLAN_FAIL */
};
void job_plan_release(struct job_plan *plan);
#define cleanup_job_plan __attribute__((cleanup(job_plan_release)))

/* What a screen or halving learned. `ranked`: of the correct configs that stayed in their race, and of those that left it
 * early, the HALVING_MAX with the least ratios each, or all when they are fewer, and those of `always` that were correct. */
struct screen_facts {
  size_t n_ranked;
  const uint64_t *ranked;
  const double *ratios;
  const bool *left_early; /* NULL: none */
  const int64_t *leases;  /* that they were measured in */
  size_t n_always;
  uint64_t always[FINALISTS_ALWAYS];
  bool may_halve;                  /* it was not done yet, and there is budget left */
  size_t most_finalists;           /* that the budget pays for; 0: as many as a final takes */
  int64_t opening_us;              /* that opening the kernel took so far */
  int64_t measured;                /* configs with any outcome */
  int64_t outcomes[OUTCOME_COUNT]; /* of them */
  const char *example;             /* detail of a failed one, or NULL */
};
/* `devices`: how many different ones the final is spread over, 1 to FINAL_DEVICES_MAX. */
void job_after_screen(const struct screen_facts *facts, int64_t devices, struct job_plan *ret_plan);

/* What the final learned: one element for each config in each process. */
struct final_measurement {
  enum outcome outcome;
  struct verdict_sample sample; /* n = 0 unless correct */
};
/* `may_add`: the budget pays for another process. */
void job_after_final(const struct final_measurement *measurements, size_t n, uint64_t baseline, uint64_t seed,
                     bool may_add, struct job_plan *ret_plan);

#endif
