/* Proposals: releases that a policy made for its channel, and that wait to be promoted.
 *
 * When all captured keys of an image that a policy covers are done on some hardware (refused by a
 * builder, or tuned or failed by a job; none is waiting, building, untuned or undecided), the
 * winners of the image's kernels become a release: with those of other images that are done, and
 * with all that the channel serves now, which are replaced for a reason only (release_make.h). When
 * that release is not what the channel serves, it is proposed, with what changes.
 *
 * There is one open proposal for each channel, environment, tag and regime: a newer release, or a
 * move of the channel, replaces it. A release that was rejected is not proposed again. A publisher
 * promotes it by the channel's rules: from the entry that it was compared with, signed where this
 * server wants signatures. Where it wants none, a policy with `promote` does it.
 *
 * Memory and threads: policy.h. */
#ifndef WAVETUNE_SERVER_POLICY_PROPOSALS_H
#define WAVETUNE_SERVER_POLICY_PROPOSALS_H

#include "server/policy/policy.h"

#define PROPOSAL_REASON_MAX 500

#define PROPOSAL_KEEP_DAYS 30 /* replaced ones */
/* Even if nothing seems to have changed: captures may be removed, and winners flagged. */
#define PROPOSAL_LOOK_MS 600000

/* What was considered last, in all and for each environment, so that nothing is looked up or made
 * again without need. The thread's. */
struct proposed_places {
  struct digest state;
  int64_t looked_ms; /* 0: never */
  size_t n, capacity;
  struct proposed_place {
    int64_t policy;
    struct digest environment, seen;
  } *all;
};
void proposed_places_release(struct proposed_places *places);

/* Makes, replaces and promotes the proposals of policies, under policy_lock. */
must_check bool proposals_make(struct worker *worker, const struct policy *policies, size_t n,
                               struct proposed_places *places, struct error *error);

/* Ends the open proposals to channels that no policy has. In the caller's transaction. */
must_check bool proposals_end(struct db *db, const char *reason, const struct author *author,
                              struct error *error);

#endif
