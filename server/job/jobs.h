/* The life of a job: changes of its state, what happens when a stage has nothing left to measure,
 * and the flags that a job's final puts on earlier winners.
 *
 * Every step is one transaction with a compare-and-set on (state, stage, round), so that any number
 * of servers may try it.
 *
 * Flags: a winner that a later job measures slower than the default is flagged, and no later
 * release includes it. A later job of the same kernel, key, environment and tag has the newest
 * earlier winner as its baseline, and measures earlier winners that are still near the best, and
 * always the default, as finalists: all in several fresh processes, in pairs. A winner is flagged
 * when the interval of the default's time divided by its own is below 1. Like the interval of the
 * job's winner, it is simultaneous over all finalists.
 *
 * States and ends of jobs are in job_state.c, advancing in jobs.c, other baselines in
 * job_baseline.c, poison in job_poison.c and flags in job_flags.c.
 *
 * Memory: nothing is kept. Threads: flags_judge is pure; the rest is a worker's own. */
#ifndef WAVETUNE_SERVER_JOB_JOBS_H
#define WAVETUNE_SERVER_JOB_JOBS_H

#include "common/campaign/campaign.h"
#include "common/verdict/budget.h"
#include "common/verdict/verdict.h"
#include "server/audit/audit.h"
#include "server/job/job_request.h"
#include "server/measurement/summaries.h"
#include "server/server.h"

/* The states of a job. The functions below are pure. */
#define JOB_STATES(X)                                                                              \
  X(QUEUED, "queued")                                                                              \
  X(RUNNING, "running") X(DONE, "done") X(FAILED, "failed") X(CANCELLED, "cancelled")

#define X(id, name) JOB_##id,
enum job_state { JOB_STATES(X) JOB_STATE_COUNT };
#undef X

extern const char *const job_state_names[]; /* by value, ended by NULL */
must_check bool job_state_parse(const char *name, enum job_state *ret);

bool job_state_may_change(enum job_state from, enum job_state to);
bool job_state_is_final(enum job_state state); /* done, failed, cancelled */

/* What decisions about a job need. */
struct job_brief {
  int64_t id;
  enum job_state state;
  enum stage stage;
  int64_t round;
  uint64_t baseline, seed;
  bool has_default;
  uint64_t default_config;
  struct job_search search;
  int64_t final_devices, config_us;
  int64_t devices; /* live devices that can run it; set only for a search */
  struct budget budget;
  bool is_cut;   /* some of its leases were cancelled because of the budget */
  bool is_spent; /* the screen's part of its budget is spent */
  /* The kernel; without one configs are compared with the default. That of a captured kernel does
   * not count: it may be newer than the job, and agents with trusted keys do not use it. */
  bool has_reference;
  struct digest hardware_digest; /* devices that wait for it are woken when it gets leases */
};

struct job_change {
  const int64_t *jobs;
  size_t n;
  enum job_state from, to;     /* from running to running: to another stage or round */
  const char *reason;          /* of a failure */
  const json_t *detail;        /* of the event; NULL: {} */
  const struct author *author; /* of a cancellation that was requested, or NULL */
  const struct job_brief *at;  /* apply it only in this stage and round; NULL: in any */
  enum stage to_stage;         /* of a change to another stage */
  int64_t to_round;
};
/* The only function that changes a job's state or stage: compare and set, and the event, in one
 * statement. *ret_changed: how many jobs matched `from` and `at`. Aborts on a transition that
 * the table of transitions does not have. */
must_check bool job_change_state(struct db *db, const struct job_change *change,
                                 size_t *ret_changed, struct error *error);

/* Sets the error; returns false. */
bool job_absent(struct error *error, int64_t job);

/* Advances those of `jobs` (NULL: of all jobs) that have no open or held lease. Failures are
 * logged; the housekeeper tries again. */
void jobs_advance(struct worker *worker, const int64_t *jobs, size_t n);

/* Ends a job that is queued or running. With an author it becomes cancelled, which the audit log
 * notes; with a NULL author it becomes failed for `reason`. *ret_ended: whether this call ended it.
 */
must_check bool job_end(struct worker *worker, int64_t job, const char *reason,
                        const struct author *author, bool *ret_ended, struct error *error);

/* Cancels those of the jobs that are queued or running, in at most two transactions, and cancels
 * their leases. The first transaction that cancels one adds `note` (NULL: none) to the audit table.
 * *ret_cancelled: how many; it is set after a failure, too. */
must_check bool jobs_cancel(struct worker *worker, const int64_t *jobs, size_t n,
                            const struct author *author, const struct audit_row *note,
                            size_t *ret_cancelled, struct error *error);

/* Gives a job whose baseline does not compile, fit or run the next one, unless something was
 * measured already: the default after an earlier winner, then the valid configs in their order.
 * *ret_moved: whether the job has another baseline now. */
must_check bool job_move_baseline(struct worker *worker, int64_t job, uint64_t failed,
                                  const char *reason, bool *ret_moved, struct error *error);

/* Ends a running job without a winner: as failed, or as done because its configs disagree
 * (common/verdict/agreement.h); then stores which do. With `at`, only in this stage and round. */
must_check bool job_end_without_winner(struct worker *worker, int64_t job, enum job_state to,
                                       const struct job_brief *at, const char *reason,
                                       struct error *error);

/* Applies new entries of the ledger of poison (poison/poison.h) to jobs that have not ended: gives
 * up configs, and ends jobs that may not run any more. For the housekeeper. */
must_check bool jobs_poison(struct worker *worker, struct error *error);
/* Gives up what the ledger has in the leases that were inserted for a job's round. In the caller's
 * transaction. */
must_check bool job_poison_skip(struct db *db, int64_t job, enum stage stage, int64_t round,
                                struct error *error);

/* Removes from `configs` what the ledger has for the job. */
must_check bool job_poison_filter(struct db *db, int64_t job, uint64_t *configs, size_t *n,
                                  struct error *error);

#define FLAGS_MAX (FINALISTS_MAX + 1)
struct flag {
  uint64_t config;
  double ratio, lower,
      upper; /* its time divided by the default's, with the interval, which is above 1 */
};
/* The baseline, if it is slower than the default, and then the finalists that are, by rising
 * ordinal. None if the default was measured correctly in fewer than VERDICT_PROCESSES_MIN
 * processes, or failed in one. */
size_t flags_judge(const struct final_measurement *measurements, size_t n, uint64_t baseline,
                   uint64_t default_config, uint64_t seed, struct flag ret_flags[FLAGS_MAX]);

/* A job as a campaign (common/campaign/): the facts of its row and its measurements' rows.
 *
 * Memory: facts borrow the rows. Threads: pure functions. */
/* The facts of a job whose stage has nothing left to measure. `screen` is read after a screen and a
 * halving, `halving` after a halving, `final` after a final. */
void job_facts(const struct job_brief *job, const struct screen_summary *screen,
               const struct screen_summary *halving, const struct final_summary *final,
               struct campaign_facts *ret_facts);

/* The input of a search. */
struct job_search_input {
  const struct space *space;
  struct space_facts facts;
  size_t n_warm_starts, n_results;
  const uint64_t *warm_starts;
  const struct search_result *results; /* by rising ordinal */
};
/* Gives a search that is queued other warm-start configs than it was submitted with, in the
 * caller's transaction. *ret_n: the size of its first batch with them, or 0: it has them already,
 * or has begun. */
must_check bool job_search_warm(struct db *db, int64_t job, const uint64_t *warm_starts, size_t n,
                                uint64_t ret_batch[SEARCH_BATCH_MAX], size_t *ret_n,
                                struct error *error);
/* The batch of the round after this one of a job that searches. */
must_check bool job_search_round(const struct job_brief *job, const struct job_search_input *input,
                                 uint64_t ret_batch[SEARCH_BATCH_MAX], size_t *ret_n,
                                 struct error *error);

#endif
