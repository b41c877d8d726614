/* What earlier jobs of a kernel show a new one: which configs won.
 *
 * Memory: results are the caller's. Threads: a db's own; job_warm_starts is pure. */
#ifndef WAVETUNE_SERVER_JOB_WINNERS_H
#define WAVETUNE_SERVER_JOB_WINNERS_H

#include "common/campaign/warm_start.h"
#include "common/space/space.h"
#include "server/db/db.h"

#define PAST_WINNERS_MAX 256 /* of a kernel, the newest */

/* The winner of a job of the kernel. */
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

/* The warm-start configs of a job; returns how many. A winner is mapped by its values, and left out
 * where the space does not have them. */
size_t job_warm_starts(const struct space *space, const struct key *key,
                       const struct digest *environment_digest, const struct past_winners *winners,
                       uint64_t ret[WARM_STARTS_MAX]);

/* Sets the warm-start configs of a job that has none. */
must_check bool job_set_likely(struct db *db, int64_t job, const uint64_t *likely, size_t n,
                               struct error *error);

#endif
