/* Taking results: one statement for a batch of posts.
 *
 * Memory: results are the caller's where a release function says so. Threads: a db's own. */
#ifndef WAVETUNE_SERVER_LEASE_LEASE_STORE_H
#define WAVETUNE_SERVER_LEASE_LEASE_STORE_H

#include "server/lease/lease_state.h"
#include "server/measurement/results.h"

struct lease_post {
  int64_t lease;
  const struct results *results;
  /* Out: */
  enum {
    POST_UNKNOWN,  /* no such lease */
    POST_NEVER,    /* no such epoch of it yet */
    POST_AGAIN,    /* somebody else changed the lease meanwhile: run it again */
    POST_CONFLICT, /* a seq is known with another body; nothing is stored */
    POST_OUTSIDE,  /* a config, round or process is not the lease's; nothing is stored */
    POST_TAKEN,    /* new measurements count */
    POST_LATE,     /* the lease is no longer this agent's: new measurements are kept as evidence */
  } verdict;
  int64_t accepted, known, late; /* measurements: stored now, stored before; of the accepted, those that move nothing */
  int64_t culprit;               /* index of the measurement that refused the post */
  enum lease_state state;        /* afterwards */
  int64_t current_epoch, job;
  bool ended;                  /* this post ended the lease: it is done or open now */
  bool has_budget;             /* its job has one */
  int64_t fruitless, baseline; /* baseline: the job's */
  struct digest hardware_digest;
};
/* No two posts of one lease. */
must_check bool leases_post(struct db *db, struct lease_post *const *posts, size_t n, struct error *error);

#endif
