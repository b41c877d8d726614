/* What submitted jobs refer to, each read once: kernels, their builds, the environments of agents,
 * and the winners of earlier jobs.
 *
 * Memory: a catalog owns what it read; other results are the caller's. Threads: a worker's own;
 * job_warm_starts is pure. */
#ifndef WAVETUNE_SERVER_JOB_CATALOG_H
#define WAVETUNE_SERVER_JOB_CATALOG_H

#include "common/campaign/campaign.h"
#include "common/space/space.h"
#include "server/cache/environments.h"
#include "server/db/db.h"
#include "server/server.h"

/* The winners of earlier jobs of a kernel, from which the warm-start configs of a new job are
 * chosen. */
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

/* Chooses the warm-start configs of a job and returns their number. A winner is found in the space
 * by its values, and skipped if the space does not have them. */
size_t job_warm_starts(const struct space *space, const struct key *key,
                       const struct digest *environment_digest, const struct past_winners *winners,
                       uint64_t ret[WARM_STARTS_MAX]);

/* Sets the warm-start configs of a job that has none. */
must_check bool job_set_warm_starts(struct db *db, int64_t job, const uint64_t *warm_starts,
                                    size_t n, struct error *error);
/* They as an array of PostgreSQL, {17,3}. */
must_check char *job_warm_starts_text(const uint64_t *ordinals, size_t n);

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
/* The entry of a kernel that it was loaded for, else NULL. */
struct catalog_kernel *catalog_find(struct catalog *catalog, const struct digest *hash);
/* Reads the builds of a kernel, once; only jobs that run compiled code need them. */
must_check bool catalog_load_builds(struct worker *worker, struct catalog_kernel *entry,
                                    struct error *error);
#define cleanup_catalog __attribute__((cleanup(catalog_release)))

#endif
