/* A lease being executed: what the files of lease_execute.h share, and nobody else.
 *
 * Memory: an execution owns its configs' compiles and objects until execution_release. Threads: the executor's. */
#ifndef WAVETUNE_AGENT_LEASE_EXECUTION_H
#define WAVETUNE_AGENT_LEASE_EXECUTION_H

#include "agent/lease_execute.h"

/* What a step came to. DONE: the lease has all that can be had; FAILED: *execution->error says why. */
enum step { STEP_ON, STEP_DONE, STEP_STOPPED, STEP_FAILED };

/* One config of the lease. */
struct work {
  uint64_t config;
  uint64_t ticket;                   /* of its compile, when that was submitted and `object` is NULL */
  const struct lease_object *object; /* NULL: not taken yet */
  struct lease_object compiled;      /* what object points to, unless that is a build's */
};

struct execution {
  struct executor *executor;
  const struct lease *lease;
  const struct lease_hooks *hooks;
  struct error *error;
  struct work baseline;
  struct lease_object reference; /* path NULL: the kernel has none */
  size_t n;
  struct work *works; /* n */
  size_t n_submitted;
  bool baseline_worked;
};

bool execution_stopped(void *context); /* a struct execution */

/* lease_objects.c: objects from compiles or from a build. execution_list fills `works` from the lease's ranges. */
void execution_list(struct execution *execution);
void execution_release(struct execution *execution);
enum step object_take_baseline(struct execution *execution);
/* Waits for a config's object; compiles of those behind it are begun first. */
enum step object_take(struct execution *execution, size_t index);
enum step object_take_all(struct execution *execution);

/* lease_worker.c: what a worker is asked (agent/worker.h; new references). */
must_check json_t *open_request(const struct execution *execution);
must_check json_t *config_request(const struct work *work);
/* Makes sure that there is a worker in which the lease is open, asks it, waits. */
enum step worker_ready(struct execution *execution, bool fresh);
void measure_ask(struct execution *execution, const size_t *indices, size_t n, int64_t rounds);
/* Takes answers until the worker is done or has ended; answers[i] gets that of indices[i]. STEP_ON: *ret_event says
 * which of the two. */
enum step measure_wait(struct execution *execution, const size_t *indices, size_t n, json_t **answers,
                       enum worker_event *ret_event, struct worker_end *ret_end);

/* fault_rerun.c: a sentence on why the config killed its worker, from one more run of it alone under ROCdebug-agent; NULL
 * where that is not installed or does not apply. Owned by the caller. */
must_check char *fault_rerun(struct execution *execution, const struct work *work);

/* lease_answers.c: measurements for the hook. The baseline's failure ends the lease: nothing can be paired with it. */
enum step hand_on_failure(struct execution *execution, const struct work *work, enum outcome outcome,
                          const char *detail, int64_t device_us);
enum step hand_on_answer(struct execution *execution, const struct work *work, const json_t *answer); /* NULL: none */
enum step end_with_baseline(struct execution *execution, enum outcome outcome, const char *detail);
bool answer_is_correct(const json_t *answer);
enum outcome end_outcome(enum worker_event event);

#endif
