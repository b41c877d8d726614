/* Submitting jobs: from what somebody asked for to rows that can be stored. Reads the database for
 * kernels, builds and environments; enumerates spaces outside of any transaction.
 *
 * Memory: a submission owns what it made; a catalog owns kernels and builds and must outlive the
 * submissions.
 * Threads: a worker's own. */
#ifndef WAVETUNE_SERVER_JOB_SUBMIT_H
#define WAVETUNE_SERVER_JOB_SUBMIT_H

#include "server/job/job_request.h"
#include "server/job/job_store.h"
#include "server/job/winners.h"
#include "server/server.h"

/* The kernels and environments that the jobs of one post refer to, each read once. */
struct catalog_kernel {
  struct digest hash;
  struct kernel *kernel; /* NULL: not registered */
  bool has_builds;       /* they were read */
  struct match_builds builds;
  int64_t config_us; /* predicted device time of a config */
  bool has_winners;  /* they were read */
  struct past_winners winners;
};
struct catalog {
  size_t n, capacity;
  struct catalog_kernel *kernels;
  struct known_environments environments;
};
must_check bool catalog_load(struct worker *worker, const struct digest *kernels, size_t n,
                             struct catalog *ret, struct error *error);
void catalog_release(struct catalog *catalog);
/* The entry of one of the kernels that it was loaded for; NULL: it was not. */
struct catalog_kernel *catalog_find(struct catalog *catalog, const struct digest *hash);
#define cleanup_catalog __attribute__((cleanup(catalog_release)))

struct submission {
  struct job_request request;
  struct key key;
  struct space *space;
  struct environment environment;
  char *key_text, *space_text;
  struct digest identity; /* of all that makes it the same job again */
  struct job_row row;
  struct job_row *stored; /* its own row, or that of an equal job of the same post */
  json_t *agents;         /* who can run it */
};
void submission_release(struct submission *submission);

/* Checks a parsed request against kernel, builds and environments. ERROR_INVALID: the request is
 * wrong, with a pointer relative to the job and perhaps *ret_extra (else NULL; the caller's) for
 * the problem. Other kinds: the database. */
must_check bool submission_check(struct worker *worker, struct catalog *catalog,
                                 struct submission *submission, json_t **ret_extra,
                                 struct error *error);

/* Refuses a budget of which it is known that no final can keep to it: the same was measured
 * before, and took longer. */
must_check bool submission_pays(const struct submission *submission, struct error *error);

/* Cuts a job that is not known yet, whose incumbent was read, into leases: what stands for it in
 * the post gets the plan. A space that is searched is not enumerated, others have at most
 * `points_max` points. */
must_check bool submission_plan(struct submission *submission, uint64_t points_max,
                                struct error *error);

/* Stores all: the new ones with their leases, and raised priorities, in one transaction that is
 * repeated when another one was in its way. Then wakes the requests that wait for their leases. */
must_check bool submissions_store(struct worker *worker, struct job_row *const *rows, size_t n,
                                  const struct author *author, struct error *error);

#endif
