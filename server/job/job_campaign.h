/* A job as a campaign (common/campaign/): the facts of its row and its measurements' rows.
 *
 * Memory: facts borrow the rows. Threads: pure functions. */
#ifndef WAVETUNE_SERVER_JOB_JOB_CAMPAIGN_H
#define WAVETUNE_SERVER_JOB_JOB_CAMPAIGN_H

#include "server/job/jobs.h"
#include "server/measurement/measurements.h"

/* The facts of a job whose stage has nothing left to measure. `screen` is read after a screen and a
 * halving, `halving` after a halving, `final` after a final. */
void job_facts(const struct job_brief *job, const struct screen_summary *screen,
               const struct screen_summary *halving, const struct final_summary *final,
               struct campaign_facts *ret_facts);

/* What a search reads. */
struct job_search_input {
  const struct space *space;
  struct space_facts facts;
  size_t n_warm_starts, n_told;
  const uint64_t *warm_starts;
  const struct search_told *told; /* by rising ordinal */
};
/* The batch of the round after this one of a job that searches. */
must_check bool job_search_round(const struct job_brief *job, const struct job_search_input *input,
                                 uint64_t ret_batch[SEARCH_BATCH_MAX], size_t *ret_n,
                                 struct error *error);

#endif
