/* What earlier jobs of a kernel tell a new one: who won, and how long a config takes.
 *
 * Memory: results are the caller's. Threads: a db's own. */
#ifndef WAVETUNE_SERVER_JOB_WINNERS_H
#define WAVETUNE_SERVER_JOB_WINNERS_H

#include "server/db/db.h"
#include "server/job/job_store.h"

#define PAST_WINNERS_MAX 256 /* of a kernel, the newest */

/* What won a job of the kernel. */
struct past_winner {
  struct digest environment_digest;
  json_t *key, *config_values;
};
struct past_winners {
  size_t n;
  struct past_winner *all; /* newest first */
};
void past_winners_release(struct past_winners *winners);

/* The winners of each of n kernels. */
must_check bool winners_past(struct db *db, const struct digest *kernels, size_t n,
                             struct past_winners *ret_winners, struct error *error);

/* Mean device time of a config in the screens of each kernel's newest jobs; 0 where none is
 * done. */
must_check bool kernels_pace(struct db *db, const struct digest *kernels, size_t n,
                             int64_t *ret_config_us, struct error *error);

/* Fills the incumbents of those of `jobs` that are not known: the values that won the newest
 * done job of the same kernel, key, environment, tag and regime, and those that were imported
 * for them, the newer first: imports have no regime. An import's environment may state less than
 * the job's; one that is equal goes before one that only fits. */
must_check bool jobs_incumbents(struct db *db, struct job_row *const *jobs, size_t n,
                                struct error *error);

/* Fills quickest_us of those of `jobs` that have a budget and are not known, from the newest
 * done job of the same kernel, key, space, environment and tag. */
must_check bool jobs_quickest(struct db *db, struct job_row *const *jobs, size_t n,
                              struct error *error);

#endif
