/* Executes leases on one device: compiles ahead, measures in workers, reports every measurement.
 *
 * Up to EXECUTOR_WORKERS workers are kept, also for leases of other jobs: a new GPU context costs
 * more than the measurements of a key. A worker is fresh for a job if it has not measured that job:
 * a final gets a fresh worker, which finals of other jobs use too. A screen uses the worker in
 * which its job is open, else the worker of the screens. A worker is replaced after a crash, a hang
 * or `configs_per_worker` configs. Only one worker has an open problem at a time.
 *
 * Screen and halving: the configs are raced (agent/measure/race.h) in batches of at most
 * SCREEN_BATCH: the warm starts first, then the configs whose compiled code promises most. A later
 * batch races against the best ratio of the earlier ones. A config that leaves is reported at once.
 * When a worker dies in the turn of a config, that config failed, and those without an answer race
 * again. When it dies in the turn of no config, all without an answer race again, one at a time.
 *
 * Final: all configs race in one process and none leaves. When that process dies, the other configs
 * are measured again in a new one, so that all reports come from one process. When workers die
 * while the baseline runs, each finalist is tried alone: one that kills its worker then has failed;
 * if none does, the lease fails.
 *
 * A lease with a bound on its device time ends, LEASE_SPENT, with the round that exceeds it, or
 * before the first round where opening the kernel alone exceeds what its stage may spend. The bound
 * of a final ends it after its least number of rounds, and leaves out no config. Every worker
 * begins with the device's sentinel. When that fails repeatedly, with pauses, the lease fails and
 * the device is suspect.
 *
 * Memory: an executor borrows what it is given and owns its workers until executor_drop_workers.
 * Threads: one executor belongs to one thread, which is not the main one
 * (agent/worker/supervise.h); `current` may be read by any. */
#ifndef WAVETUNE_AGENT_LEASE_LEASE_EXECUTE_H
#define WAVETUNE_AGENT_LEASE_LEASE_EXECUTE_H

#include "agent/compile/helper_kernels.h"
#include "agent/lease/lease.h"
#include "agent/worker/worker_client.h"

/* the first worker screens, the others run finals of the jobs that it has screened */
#define EXECUTOR_WORKERS 4
#define SCREEN_BATCH 64
#define EXECUTOR_SEEN_MAX 4096 /* jobs that a worker has measured */

/* The limits of a stage's race: members of struct race_limits (agent/measure/race.h). */
struct race_terms {
  int64_t rounds_min, rounds_max;
  double margin, precision;
};

/* A worker that is kept between leases. */
struct executor_worker {
  struct worker_client *client;    /* NULL: none */
  struct worker_client *reference; /* of the problem that is open in it; NULL: none */
  bool is_starting;                /* it has not answered its first request, the sentinel, yet */
  struct digest kernel;            /* the one that it opened last */
  char *opened;    /* the request that opened its problem; NULL: no problem is open */
  int64_t configs; /* measured in it */
  size_t n_seen;
  uint64_t *seen;  /* hashes of the jobs that it measured */
  int64_t used_ns; /* when it was used last */
};

/* What time is spent on: X(the name in reports, the member of "spent" in workers' answers). Opening
 * the device counts as the start of a process. */
#define EXECUTOR_TIMES(X)                                                                          \
  X(start, "device_us")                                                                            \
  X(reference, "reference_us")                                                                     \
  X(inputs, "inputs_us")                                                                           \
  X(baseline, "baseline_us")                                                                       \
  X(load, "load_us")                                                                               \
  X(check, "check_us")                                                                             \
  X(warm_up, "warm_up_us")                                                                         \
  X(timing, "timing_us")

/* The executor's time so far, by the clock of this process. Opening a problem takes the sum of the
 * reference, the inputs (with all other memory) and the baseline. */
struct executor_spent {
#define X(name, answered) int64_t name##_us;
  EXECUTOR_TIMES(X)
#undef X
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
  int64_t configs_per_worker; /* then it is replaced, at the end of a batch or a final */
  const char *faults; /* folder for a debug agent's output on configs that kill their worker; NULL:
                         it is not run */
  struct executor_worker workers[EXECUTOR_WORKERS];
  struct helper_object helpers[HELPER_COUNT]; /* path NULL: none, or not requested yet */
  bool is_helper_missed[HELPER_COUNT];        /* it could not be compiled, which was logged */
  struct executor_spent spent;
  int64_t opening_us; /* device time of opening the kernel for the current or the last lease */
  _Atomic uint64_t current; /* the config being measured, WORKER_CONFIG_NONE between */
  int64_t n_reruns;         /* of configs under a debug agent, so far */
  bool is_suspect; /* the device failed its sentinel; the owner resets it once the device passes */
};

/* The times in seconds, named as the members without "_us" (a new reference). */
must_check json_t *executor_spent_to_json(const struct executor_spent *spent);

enum lease_end {
  LEASE_DONE, /* every config has a measurement, or the baseline has one that states why they have
                 none */
  LEASE_STOPPED, /* by a hook */
  LEASE_SPENT,   /* its device time is spent; all measurements were reported */
  LEASE_FAILED,  /* the device or the agent cannot compile or measure: *error says why */
};

/* Whether the device passes its sentinel in a new worker; false also when stopped. */
must_check bool executor_sentinel(struct executor *executor, bool (*stopped)(void *context),
                                  void *context, struct error *error);

enum lease_end lease_execute(struct executor *executor, const struct lease *lease,
                             const struct lease_hooks *hooks, struct error *error);

/* Starts those of the first `n` workers that do not run, and lets them open the device at the same
 * time. Returns before they have opened it: the first race waits for them, since opening disturbs
 * what is timed. A failure is reported when the worker is needed. */
void executor_start_workers(struct executor *executor, size_t n);

/* Ends all workers. */
void executor_drop_workers(struct executor *executor);
/* Ends all workers at once, without letting them release the device in order. */
void executor_kill_workers(struct executor *executor);

#endif
