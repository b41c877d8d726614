/* A job as a campaign (common/campaign/): the facts that its row and its measurements' rows say.
 * Decides nothing itself.
 *
 * Memory: facts borrow the rows. Threads: pure functions. */
#ifndef WAVETUNE_SERVER_JOB_JOB_CAMPAIGN_H
#define WAVETUNE_SERVER_JOB_JOB_CAMPAIGN_H

#include "server/job/job_store.h"
#include "server/job/winners.h"
#include "server/measurement/measurements.h"

/* Of a job whose stage has nothing left to measure. `screen` is read after a screen and a halving,
 * `halving` after a halving, `final` after a final. */
void job_facts(const struct job_brief *job, const struct screen_summary *screen,
               const struct screen_summary *halving, const struct final_summary *final,
               struct campaign_facts *ret_facts);

/* The batch of the round after this one of a job that searches: search_round with what the job asks
 * for first. */
must_check bool job_search_round(const struct job_brief *job, const struct space *space,
                                 const struct space_facts *facts, const uint64_t *warm_starts,
                                 size_t n_warm_starts, const struct search_told *told,
                                 size_t n_told, uint64_t ret_batch[SEARCH_BATCH_MAX], size_t *ret_n,
                                 struct error *error);

/* The warm-start configs of a job. A winner is mapped by its values: where they are no point of the
 * space it says nothing. `winners` are newest first. Returns how many. */
size_t job_warm_starts(const struct space *space, const struct key *key,
                       const struct digest *environment_digest, const struct past_winners *winners,
                       uint64_t ret[WARM_STARTS_MAX]);

#endif
