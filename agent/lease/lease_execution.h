/* A lease while it is executed. The files of this folder use those before them: lease_report.c,
 * lease_requests.c; lease_worker.c, fault.c; lease_race.c; lease_execute.c.
 *
 * Memory: an execution owns its configs' compiles and objects until lease_execute returns. Threads:
 * the executor's. */
#ifndef WAVETUNE_AGENT_LEASE_LEASE_EXECUTION_H
#define WAVETUNE_AGENT_LEASE_LEASE_EXECUTION_H

#include "agent/lease/lease_execute.h"

/* The result of a step. DONE: the lease has all measurements that are possible; FAILED:
 * *execution->error says why. */
enum step { STEP_ON, STEP_DONE, STEP_STOPPED, STEP_SPENT, STEP_FAILED };

/* One config of the lease. */
struct lease_config {
  uint64_t ordinal; /* first: arrays are searched with compare_ordinals */
  size_t place;     /* in `order` */
  bool is_warm_start;
  uint64_t ticket; /* of its compile, if that was submitted and `object` is NULL */
  const struct lease_object *object; /* NULL: not compiled, or not waited for yet */
  struct lease_object compiled;      /* what object points to, unless that is a build's */
  int64_t spills, occupancy;         /* of its object; 0: none, or not known */
  double utilization;                /* of its grid, 0 to 1; 0: not known */
  json_t *answer;  /* of a final: kept until all configs of its process have one; else NULL */
  bool is_settled; /* its measurement was reported, or it was given to another device */
};

struct execution {
  struct executor *executor;
  const struct lease *lease;
  const struct lease_hooks *hooks;
  struct error *error;
  struct lease_config baseline;
  struct lease_object reference; /* path NULL: the kernel has none */
  size_t n;
  struct lease_config *configs;                      /* n, by rising ordinal */
  struct lease_config **order;                       /* n, in the order of trial */
  size_t n_submitted;                                /* compiles, in `order` */
  const struct helper_object *helpers[HELPER_COUNT]; /* the executor's; NULL: none */
  bool baseline_worked;
  struct executor_worker *worker; /* the one in which the lease is open; NULL: none */
  double best_ratio;              /* the least ratio to the baseline so far; 0: not known */
  int64_t spent_us;               /* device time, without opening the kernel */
  uint64_t n_rescheduled;         /* scheduling_check (scheduling.h) when it began */
};

/* For qsort, of struct lease_config *: sorts by the order of trial. */
int lease_configs_compare(const void *a, const void *b);

/* Configs that race together in one worker. */
struct race_batch {
  size_t n;
  struct lease_config **configs; /* all that are not settled */
  const struct race_terms *terms;
  bool is_final;          /* all reports come from one process that had not seen the job */
  bool is_serial;         /* one at a time, so that each has its own turn */
  int unexplained_deaths; /* of workers that died in the turn of no config, or of the baseline */
};

/* lease_report.c: each calls the hook; the config is settled after it. */

/* Adds what is known of the config from its object. */
enum step report_measurement(struct execution *execution, struct lease_config *config,
                             struct measurement *measurement);
enum step report_failure(struct execution *execution, struct lease_config *config,
                         enum outcome outcome, const char *detail, int64_t device_us);
/* A failure of the baseline ends the lease: nothing can be paired with it. */
enum step end_with_baseline(struct execution *execution, enum outcome outcome, const char *detail);
/* Triton's interpreter has other values than the baseline. */
enum step end_with_misinterpreted(struct execution *execution, const char *detail);
enum outcome end_outcome(enum worker_event event);

/* lease_requests.c */

bool execution_stopped(void *context); /* a struct execution */
/* Requests to a worker (agent/worker/worker.h; new references). `device_us` 0: no bound;
 * `best_ratio` 0: none known. */
must_check json_t *open_request(const struct execution *execution);
must_check json_t *measure_request(const struct race_batch *batch, int64_t device_us,
                                   double best_ratio);
/* Starts the process of the kernel's reference; *ret_socket, the caller's, is for the worker that
 * opens the lease. -1 where the kernel has no reference: then no process is started. */
must_check bool reference_start(struct execution *execution, struct worker_client **ret_reference,
                                int *ret_socket, struct error *error);

/* lease_worker.c */

/* Opens the lease in execution->worker, unless it is open there; `fresh`: a worker that has not
 * seen the job. */
enum step worker_ready(struct execution *execution, bool fresh);
/* Waits until no worker is opening the device any more: that would disturb what is timed. */
enum step workers_settle(struct execution *execution);
void worker_drop(struct execution *execution);
/* Adds the times in an answer; those that are out of range are ignored. */
void executor_spent_add(struct executor_spent *spent, const json_t *answer);

/* lease_race.c */

/* How one race ended. */
struct race_result {
  enum worker_event event; /* WORKER_ANSWER: the worker was done */
  struct worker_end end;
  bool has_failed; /* a config has failed: the worker may have exited because of it */
  bool is_over_budget;
};
/* Takes one answer of the worker. In a final, a correct answer is kept in its config. *ret_is_over:
 * it was the last answer. */
enum step batch_answer(struct execution *execution, const struct race_batch *batch, json_t *answer,
                       struct race_result *result, bool *ret_is_over);
/* After the worker's last answer: reports the answers that were kept. Configs that the budget left
 * out are not reported. */
enum step batch_finish(struct execution *execution, const struct race_batch *batch,
                       const struct race_result *result);
/* Races the configs, in new workers when one dies, until all are settled, or STEP_SPENT. */
enum step batch_run(struct execution *execution, struct race_batch *batch);

#endif
