/* Submitting jobs: makes rows from requests, with what earlier jobs found, and stores them.
 * Enumerates spaces outside of any transaction.
 *
 * Memory: a submission owns what it made; its catalog must outlive it. Threads: a worker's own. */
#ifndef WAVETUNE_SERVER_JOB_SUBMIT_H
#define WAVETUNE_SERVER_JOB_SUBMIT_H

#include "server/audit/audit.h"
#include "server/job/catalog.h"
#include "server/job/job_request.h"
#include "server/job/jobs.h"
#include "server/measurement/lease_plan.h"
#include "server/poison/poison.h"

/* A config that was the best one known before a job. */
struct job_incumbent {
  json_t *config; /* its values; owned */
  enum baseline_from from;
};
#define JOB_INCUMBENTS_MAX 2 /* one from a job, and one that was imported */

/* A submitted job, and its row. */
struct submission {
  struct job_request request;
  int64_t retry_of; /* the failed or cancelled job whose identity it takes over; 0: none */
  const struct kernel *kernel; /* the catalog's */
  struct key key;
  struct space *space;
  struct environment environment;
  json_t *agents;            /* match_agents */
  struct submission *stored; /* in a post: itself, or an equal one that represents it */

  char *key_text, *space_text; /* JSON */
  struct digest key_digest, space_digest, environment_digest;
  struct digest identity; /* of the three, with kernel, tag, run and regime */
  struct digest build;    /* all zeros: none */
  struct digest device_class;
  bool is_plain; /* kernel_space_is_plain */
  uint64_t seed;
  uint64_t default_config; /* FIELD_NONE without one */
  struct lease_sizing sizing;
  size_t n_warm_starts; /* the warm-start configs of a search, whose batches depend on them; when it
                           begins it gets new ones, as other jobs get theirs */
  uint64_t warm_starts[WARM_STARTS_MAX];

  /* Of a job that is new. */
  int64_t quickest_us; /* device time of the quickest correct config of the newest done job that
                          differs at most in its run; 0: not known */
  size_t n_incumbents; /* the newest first */
  struct job_incumbent incumbents[JOB_INCUMBENTS_MAX];
  struct poison_hits poison; /* what the ledger has of it */
  struct lease_plan plan;

  /* The job as it is stored, or will be. */
  struct job_known {
    int64_t id; /* 0: it is not stored */
    int64_t priority, configs;
    enum job_state state;
    enum baseline_from baseline_from;
    bool created; /* by submissions_store */
  } known;
};
void submission_release(struct submission *submission);

/* Checks a parsed request against kernel, builds and environments. ERROR_INVALID: the request is
 * wrong, with a pointer relative to the job and perhaps *ret_extra (else NULL; the caller's) for
 * the problem. Other kinds: the database. */
must_check bool submission_check(struct worker *worker, struct catalog *catalog,
                                 struct submission *submission, json_t **ret_extra,
                                 struct error *error);

/* Fills `known` of the jobs that are stored and, of the others, the incumbents, `poison` and, if
 * they have a budget, quickest_us. */
must_check bool jobs_find(struct db *db, struct submission *const *jobs, size_t n,
                          struct error *error);

/* Cuts a new job into leases. Refuses a budget that is too small for any final, judged by
 * `quickest_us`. A space that is searched is not enumerated; any other may have at
 * most `points_max` points. Refuses a poisoned kernel and a poisoned default; no other poisoned
 * config becomes the baseline. Refuses a key with which no agent could launch the baseline. */
must_check bool submission_plan(struct submission *submission, uint64_t points_max,
                                struct error *error);

/* Stores new jobs with their leases, and raised priorities, in one transaction, which is repeated
 * after a conflict with another one. No two jobs may have the same identity. Then wakes the
 * requests that wait for leases. */
must_check bool submissions_store(struct worker *worker, struct submission *const *jobs, size_t n,
                                  const struct author *author, struct error *error);

#endif
