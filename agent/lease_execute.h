/* Executes leases on one device: compiles ahead, measures through workers, hands every measurement on.
 *
 * Screen and halving: one config at a time through a worker that is kept, also for the next lease of the same job, and
 * replaced after a crash, a hang or `configs_per_worker` configs. A config is measured once more where its worker died
 * in nobody's turn, and where the baseline died of what an earlier config may have left. Final: all configs in one
 * request to a fresh worker; when it dies, its culprit has its outcome and the rest is measured again in a new one, so
 * that what is handed on shares one process. When workers die while the baseline runs, each finalist is tried alone: who
 * kills it there is out; when none does, the lease fails.
 * Every worker begins with the device's sentinel. When that fails, and fails again after a pause, the lease fails and
 * the device is suspect.
 * Memory: an executor borrows what it is given and owns its worker until executor_drop_worker. Threads: one executor
 * belongs to one thread, which is not the main one (agent/spawner.h); `current` may be read by any. */
#ifndef WAVETUNE_AGENT_LEASE_EXECUTE_H
#define WAVETUNE_AGENT_LEASE_EXECUTE_H

#include "agent/lease.h"
#include "agent/worker_client.h"

struct executor {
  struct spawner *spawner;
  struct compile_pool *pool;
  const char *device;   /* "cpu0" */
  const char *gpu_name; /* of the device's environment: what conditions and compilers read */
  const char *arch;
  bool is_gpu;
  bool compiles_first; /* compilers and kernels share processors: nothing is timed while something compiles */
  struct worker_limits limits;
  int64_t screen_rounds, final_rounds;
  int64_t compile_window;     /* compiles submitted ahead of the measurement */
  int64_t configs_per_worker; /* screen only */
  const char *faults; /* folder for what a debug agent says of configs that kill their worker; NULL: not asked */
  /* Kept from one lease to the next: the worker, what was opened in it, the configs that it measured. */
  struct worker_client *worker;
  char *opened;
  int64_t configs_in_worker;
  _Atomic uint64_t current; /* the config being measured, WORKER_CONFIG_NONE between */
  int64_t n_reruns;         /* under a debug agent, so far */
  bool is_suspect;          /* the device has not passed its sentinel: whoever sees it pass sets this back */
};

enum lease_end {
  LEASE_DONE,    /* every config has its measurement, or the baseline has one that says why none can be had */
  LEASE_STOPPED, /* a hook said so */
  LEASE_FAILED,  /* the device or the agent cannot compile or measure: *error says why */
};

/* Whether the device works, in a fresh worker; false also when stopped. */
must_check bool executor_sentinel(struct executor *executor, bool (*stopped)(void *context), void *context,
                                  struct error *error);

enum lease_end lease_execute(struct executor *executor, const struct lease *lease, const struct lease_hooks *hooks,
                             struct error *error);

/* Ends the worker that the last lease left: there is no more work for now. */
void executor_drop_worker(struct executor *executor);

#endif
