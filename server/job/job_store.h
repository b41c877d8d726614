/* Jobs in the database: storing them, reading them, and the one function that changes their state.
 *
 * Memory: results are the caller's. Threads: a db's own. */
#ifndef WAVETUNE_SERVER_JOB_JOB_STORE_H
#define WAVETUNE_SERVER_JOB_JOB_STORE_H

#include "common/campaign/warm_start.h"
#include "common/verdict/budget.h"
#include "server/audit/audit.h"
#include "server/cache/match.h"
#include "server/job/job_request.h"
#include "server/job/job_state.h"
#include "server/lease/lease_plan.h"

/* The texts of manifests of kernels, by hash (NULL: unknown). */
must_check bool job_kernels_load(struct db *db, const struct digest *hashes, size_t n,
                                 char **ret_manifests, struct error *error);

/* A config that was the best one known before a job. */
struct job_incumbent {
  json_t *config; /* its values; owned */
  enum baseline_from from;
};
#define JOB_INCUMBENTS_MAX 2 /* what a job found, and what was imported */

/* A job to store, and what it is stored as. */
struct job_row {
  struct digest kernel, key_digest, space_digest,
      environment_digest; /* with tag, run and regime: the identity */
  const char *tag, *run;
  enum regime regime;
  enum job_purpose purpose;
  bool is_plain;           /* kernel_space_is_plain */
  const char *key, *space; /* JSON texts */
  const struct environment *environment;
  int64_t priority, budget_ms;
  int64_t quickest_us; /* device time of the quickest correct config when the same was measured
                          before; 0: not known */
  struct digest build; /* all zeros: none */
  struct digest device_class;
  uint64_t seed;
  struct job_search search;
  int64_t final_devices;
  struct lease_sizing sizing;
  bool has_default;
  uint64_t default_config; /* FIELD_NONE without one */
  size_t n_likely; /* of a search, which depends on them; other jobs get theirs when they start */
  uint64_t likely[WARM_STARTS_MAX];
  size_t n_incumbents; /* of a job that is new; the newest first */
  struct job_incumbent incumbents[JOB_INCUMBENTS_MAX];
  struct lease_plan plan; /* of a job that is new: owned */

  /* What is stored, or is to be stored of a new one. */
  struct job_known {
    int64_t id; /* 0: it is not stored */
    int64_t priority, configs;
    enum job_state state;
    enum baseline_from baseline_from;
    bool created; /* by jobs_insert */
  } known;
};
/* Binds the columns of `n` rows as arrays, but for `likely` and what is not a column. */
void bind_jobs(struct db_parameters *parameters, struct job_row *const *jobs, size_t n);

/* Fills `known` of those that are stored. */
must_check bool jobs_find(struct db *db, struct job_row *const *jobs, size_t n,
                          struct error *error);

/* Stores new jobs with their leases, and raises priorities of known ones, and notes both, in the
 * caller's transaction. No two of the same identity. `author`: who submits them. */
must_check bool jobs_insert(struct db *db, struct job_row *const *jobs, size_t n,
                            const struct author *author, struct error *error);

struct job_change {
  const int64_t *jobs;
  size_t n;
  enum job_state from, to;     /* from running to running: to another stage */
  const char *reason;          /* of a failure */
  const json_t *detail;        /* of the event; NULL: {} */
  const struct author *author; /* of a cancellation; NULL: nobody asked for it */
  bool at_stage;               /* only where the job is in this stage and round */
  enum stage stage;
  int64_t round;
  bool to_stage; /* the job goes to this one */
  enum stage next_stage;
  int64_t next_round;
};
/* The only function that changes a job's state or stage: compare and set, and the event, in one
 * statement. *ret_changed: how many were as `from` and `at_stage` say. Aborts on a transition
 * that job_state.h does not have. */
must_check bool job_change_state(struct db *db, const struct job_change *change,
                                 size_t *ret_changed, struct error *error);

/* What deciding about a job needs. */
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
  int64_t devices; /* live ones that can run it; only of a search */
  struct budget budget;
  bool is_cut;                   /* leases of it were cancelled for its budget */
  bool is_spent;                 /* what its budget leaves the screen */
  struct digest hardware_digest; /* whose parked requests its leases wake */
};
/* Those of `jobs` (all with NULL) that are queued or running and have no open and no held lease.
 * At most `limit`. */
must_check bool jobs_ready(struct db *db, const int64_t *jobs, size_t n, int64_t live_ms,
                           int64_t limit, struct job_brief **ret_ready, size_t *ret_n,
                           struct error *error);

/* The verdict of a done job. */
must_check bool job_store_winner(struct db *db, int64_t job, uint64_t config,
                                 const json_t *config_values, const json_t *verdict,
                                 struct error *error);
/* The text of a job's space; the caller's. */
must_check bool job_space(struct db *db, int64_t job, char **ret_space, struct error *error);

/* What a search of a job's space reads. Owned by the caller. */
struct job_search_input {
  json_t *space, *key, *environment;
  char *likely_text; /* as PostgreSQL writes an array */
  size_t n_likely;
  uint64_t likely[WARM_STARTS_MAX];
};
must_check bool job_search_input(struct db *db, int64_t job, struct job_search_input *ret,
                                 struct error *error);
void job_search_input_release(struct job_search_input *input);

/* Sets the likely configs of a job that has none. */
must_check bool job_set_likely(struct db *db, int64_t job, const uint64_t *likely, size_t n,
                               struct error *error);

struct job_filter {
  const char *state, *tag; /* NULL: any */
  const struct digest *kernel;
  int64_t before; /* ids below; INT64_MAX: from the newest */
  int64_t limit;
};
must_check bool jobs_list(struct db *db, const struct job_filter *filter, json_t **ret_items,
                          int64_t *ret_next, struct error *error);
/* The summary, or NULL when there is no such job. Agents live that were seen within live_ms. */
must_check bool job_get(struct db *db, int64_t job, int64_t live_ms, json_t **ret_summary,
                        struct error *error);

/* The job's events after number `after`, oldest first, at most `limit`; *ret_last is the last
 * one's number, or `after`. NULL in *ret_items: there is no such job. */
must_check bool job_events_list(struct db *db, int64_t job, int64_t after, int64_t limit,
                                json_t **ret_items, int64_t *ret_last, struct error *error);

#endif
