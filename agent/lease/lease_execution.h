/* A lease being executed: what the files of lease_execute.h share, and nobody else.
 *
 * Memory: an execution owns its configs' compiles and objects until execution_release. Threads: the
 * executor's. */
#ifndef WAVETUNE_AGENT_LEASE_LEASE_EXECUTION_H
#define WAVETUNE_AGENT_LEASE_LEASE_EXECUTION_H

#include "agent/lease/lease_execute.h"

/* What a step came to. DONE: the lease has all that can be had; FAILED: *execution->error says
 * why. */
enum step { STEP_ON, STEP_DONE, STEP_STOPPED, STEP_SPENT, STEP_FAILED };

/* One config of the lease. */
struct work {
  uint64_t config;
  size_t place; /* in the order of trial */
  bool is_likely;
  uint64_t ticket; /* of its compile, when that was submitted and `object` is NULL */
  const struct lease_object *object; /* NULL: not taken yet */
  struct lease_object compiled;      /* what object points to, unless that is a build's */
  int64_t spills, occupancy;         /* of its object; 0: none, or not known */
  double utilization;                /* of its grid, 0 to 1; 0: not known */
  json_t *answer; /* of the process that races it, where all have to come from one; NULL else */
  bool is_over;   /* its measurement was handed on, or it was given to another device */
};

struct execution {
  struct executor *executor;
  const struct lease *lease;
  const struct lease_hooks *hooks;
  struct error *error;
  struct work baseline;
  struct lease_object reference; /* path NULL: the kernel has none */
  size_t n;
  struct work *works;                                /* n, by rising config */
  struct work **order;                               /* n, in which they are tried */
  size_t n_submitted;                                /* of `order` */
  const struct helper_object *helpers[HELPER_COUNT]; /* the executor's; NULL: none */
  bool baseline_worked;
  struct executor_worker *worker; /* in which the lease is open; NULL: none */
  double best_ratio;              /* to the baseline so far; 0: none known */
  int64_t spent_us;               /* of the device's time, without opening the kernel */
};

bool execution_stopped(void *context); /* a struct execution */

/* lease_objects.c: objects from compiles or from a build. execution_list fills `works` from the
 * lease's ranges, and `order`: the likely ones, then those that a build's code speaks for, then by
 * the lease's seed. */
void execution_list(struct execution *execution);
void execution_release(struct execution *execution);
enum step object_take_baseline(struct execution *execution);
/* Waits for a config's object; compiles of those behind it are begun first. */
enum step object_take(struct execution *execution, struct work *work);
enum step object_take_all(struct execution *execution);
bool object_is_there(struct execution *execution, const struct work *work); /* without waiting */
/* qsort's, over struct work *: who is tried first. */
int works_compare(const void *a, const void *b);

/* lease_worker.c. */
struct race_request {
  struct work *const *works;
  size_t n;
  const struct race_terms *terms;
  int64_t device_us; /* 0: no bound */
  double best_ratio; /* 0: none */
  bool is_serial, is_whole;
};
/* What a worker is asked (agent/worker/worker.h; new references). */
must_check json_t *open_request(const struct execution *execution);
must_check json_t *measure_request(const struct race_request *request);
/* Starts the process of the kernel's reference; *ret_socket, the caller's, is for the worker that
 * opens the lease. Without a reference there is neither: -1. */
must_check bool reference_start(struct execution *execution, struct worker_client **ret_reference,
                                int *ret_socket, struct error *error);
/* Makes sure that the lease is open in execution->worker; `fresh`: one that has not seen the
 * job. */
enum step worker_ready(struct execution *execution, bool fresh);
/* Waits until no worker makes a context any more: that would disturb what is timed. */
enum step workers_settle(struct execution *execution);
void worker_drop(struct execution *execution);

/* lease_execute_race.c. */

/* Configs that race together in one worker. */
struct heat {
  size_t n;
  struct work **works; /* those that are not over */
  const struct race_terms *terms;
  bool is_final;      /* what is handed on comes from one process that had not seen the job */
  bool is_serial;     /* one at a time, so that each has its own turn */
  int unknown_deaths; /* of workers that died of none of them */
};
/* How one race ended. */
struct heat_end {
  enum worker_event event; /* WORKER_ANSWER: the worker was done */
  struct worker_end end;
  bool has_failed; /* a config has failed; that may be why the worker left */
  bool is_over_budget;
};
/* What one answer of the worker means. Of a final the correct ones wait in their works;
 * *ret_is_over: it was the last. */
enum step heat_answer(struct execution *execution, const struct heat *heat, json_t *answer,
                      struct heat_end *ended, bool *ret_is_over);
/* The worker was done: what it kept is handed on. Those that the budget left out stay. */
enum step heat_finish(struct execution *execution, const struct heat *heat,
                      const struct heat_end *ended);
/* Races them in as many workers as it takes until all are over, or STEP_SPENT. */
enum step heat_run(struct execution *execution, struct heat *heat);

/* fault_rerun.c: a sentence on why the config killed its worker, from one more run of it alone
 * under ROCdebug-agent; NULL where that is not installed or does not apply. Owned by the caller. */
must_check char *fault_rerun(struct execution *execution, struct work *work);

/* lease_answers.c: measurements for the hook; the work is over then. The baseline's failure ends
 * the lease: nothing can be paired with it. */
enum step hand_on_failure(struct execution *execution, struct work *work, enum outcome outcome,
                          const char *detail, int64_t device_us);
enum step hand_on_answer(struct execution *execution, struct work *work,
                         const json_t *answer); /* NULL: none */
enum step end_with_baseline(struct execution *execution, enum outcome outcome, const char *detail);
bool answer_is_correct(const json_t *answer);
/* A part of an answer's {"spent": {…}}; 0 where it is none that a request can have taken. */
int64_t answer_spent_us(const json_t *answer, const char *part);
enum outcome end_outcome(enum worker_event event);

#endif
