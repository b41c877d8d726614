/* Executes leases on one device: compiles ahead, measures through workers, reports every
 * measurement.
 *
 * Workers are kept, up to EXECUTOR_WORKERS of them, also for leases of other jobs: a fresh GPU
 * context costs more than the measurements of a key. A worker is fresh for a job if it has not
 * measured that job: a final gets such a one and shares it with the finals of other jobs. A screen
 * continues where its job is open already, else in the worker of the screens. A worker is replaced
 * after a crash, a hang or `configs_per_worker` configs; no problem stays open in a worker while
 * another one works.
 *
 * Screen and halving: the configs are raced (agent/measure/race.h) in batches of at most
 * SCREEN_BATCH, the warm starts first and then those whose compiled code promises most; a later
 * batch races against the best of those before. A config that leaves is reported at once. When a
 * worker dies, the config whose turn it was has its outcome and those without an answer race again;
 * when it was the turn of none, they do so serially.
 *
 * Final: all configs race in one process and none leaves; when it dies, the rest is measured again
 * in a new one, so that all reports share one process. When workers die while the baseline runs,
 * each finalist is tried alone: one that kills its worker there is out; when none does, the lease
 * fails.
 *
 * A lease with a bound on its device time ends with the round that passes it: LEASE_SPENT; before
 * the first one where opening the kernel alone passes what its stage may spend. A final's bound
 * ends its rounds, and leaves out no config and none of the least number of rounds. Every worker
 * begins with the device's sentinel. When that fails, and fails again after a pause, the lease
 * fails and the device is suspect.
 *
 * Memory: an executor borrows what it is given and owns its workers until executor_drop_workers.
 * Threads: one executor belongs to one thread, which is not the main one
 * (agent/worker/supervise.h); `current` may be read by any. */
#ifndef WAVETUNE_AGENT_LEASE_LEASE_EXECUTE_H
#define WAVETUNE_AGENT_LEASE_LEASE_EXECUTE_H

#include "agent/compile/helper_kernels.h"
#include "agent/lease/lease.h"
#include "agent/worker/worker_client.h"

/* the first one screens, the others are for finals of what it has screened */
#define EXECUTOR_WORKERS 4
#define SCREEN_BATCH 64
#define EXECUTOR_SEEN_MAX 4096 /* jobs that a worker has measured */

/* How the race of a stage is limited: members of agent/measure/race.h. */
struct race_terms {
  int64_t rounds_min, rounds_max;
  double margin, precision;
};

/* A worker that is kept. */
struct executor_worker {
  struct worker_client *client;    /* NULL: none */
  struct worker_client *reference; /* of the problem that is open in it; NULL: none */
  bool is_starting;                /* it has not answered the sentinel's request yet */
  struct digest kernel;            /* that it opened last */
  char *opened;                    /* the request that opened its problem; NULL: none is open */
  int64_t configs;                 /* measured in it */
  size_t n_seen, seen_capacity;
  uint64_t *seen;  /* hashes of the jobs that it measured */
  int64_t used_ns; /* when it was used last */
};

/* The executor's time so far, by its own clock. Opening a problem is the sum of the reference, the
 * inputs (with all other memory) and the baseline. */
struct executor_spent {
  int64_t start_us, reference_us, inputs_us, baseline_us, load_us, check_us, warm_up_us, timing_us;
};

struct executor {
  struct spawner *spawner;
  struct compile_pool *pool;
  const char *device;   /* "cpu0" */
  const char *gpu_name; /* of the device's environment, for conditions and compilers */
  const char *arch;
  int64_t compute_units; /* of the device's environment */
  bool is_gpu;
  bool compiles_first; /* compilers and kernels share processors: nothing is timed while something
                          compiles */
  struct worker_limits limits;
  struct race_terms screen, halving, final;
  int64_t compile_window;     /* compiles submitted ahead of the measurement */
  int64_t configs_per_worker; /* then a worker is replaced, at the end of a batch or a final */
  const char *faults; /* folder for a debug agent's output on configs that kill their worker; NULL:
                         not run */
  struct executor_worker workers[EXECUTOR_WORKERS];
  struct helper_object helpers[HELPER_COUNT]; /* path NULL: none, or not requested yet */
  bool is_helper_missed[HELPER_COUNT];        /* it could not be had, which was logged */
  struct executor_spent spent;
  int64_t opening_us; /* device time of opening the kernel for the current or the last lease */
  _Atomic uint64_t current; /* the config being measured, WORKER_CONFIG_NONE between */
  int64_t n_reruns;         /* under a debug agent, so far */
  bool is_suspect; /* the device has not passed its sentinel; reset by the owner when it passes */
};

/* In seconds, by their names without "_us" (a new reference). */
must_check json_t *executor_spent_to_json(const struct executor_spent *spent);

enum lease_end {
  LEASE_DONE, /* every config has its measurement, or the baseline has one that says why none can be
                 had */
  LEASE_STOPPED, /* by a hook */
  LEASE_SPENT,   /* its device time is spent; what was measured was reported */
  LEASE_FAILED,  /* the device or the agent cannot compile or measure: *error says why */
};

/* Whether the device works, in a fresh worker; false also when stopped. */
must_check bool executor_sentinel(struct executor *executor, bool (*stopped)(void *context),
                                  void *context, struct error *error);

enum lease_end lease_execute(struct executor *executor, const struct lease *lease,
                             const struct lease_hooks *hooks, struct error *error);

/* Starts those of the first `n` workers that do not run, at the same time, and lets them open the
 * device. Returns before they have: the first race waits for it, since opening disturbs what is
 * timed. A failure shows when the worker is needed. */
void executor_start_workers(struct executor *executor, size_t n);

/* Ends all workers. */
void executor_drop_workers(struct executor *executor);

#endif
