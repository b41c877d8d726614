/* What decisions need of a job's measurements (common/campaign/campaign.h).
 *
 * Memory: results are the caller's. Threads: those of the db. */
#ifndef WAVETUNE_SERVER_MEASUREMENT_SUMMARIES_H
#define WAVETUNE_SERVER_MEASUREMENT_SUMMARIES_H

#include "common/campaign/campaign.h"
#include "common/measurement/measurement.h"
#include "server/db/db.h"

/* What a screen or a halving measured: the candidates, and all outcomes. */
#define SCREEN_CANDIDATES_MAX (2 * HALVING_MAX + FINALISTS_ALWAYS)
struct screen_summary {
  size_t n;
  struct campaign_candidate candidates[SCREEN_CANDIDATES_MAX];
  int64_t outcomes[OUTCOME_COUNT];
  char *example; /* why a config failed; NULL: none did */
};
/* `always`: configs that are candidates whatever their rank is. */
must_check bool measurements_screen(struct db *db, int64_t job, enum stage stage,
                                    const uint64_t always[FINALISTS_ALWAYS],
                                    struct screen_summary *ret, struct error *error);
void screen_summary_release(struct screen_summary *summary);

/* All configs that the screen of a search measured, by rising ordinal; a ratio is infinite unless
 * the config was correct. */
must_check bool measurements_search(struct db *db, int64_t job, struct search_result **ret_results,
                                    size_t *ret_n, struct error *error);

struct final_summary {
  size_t n;
  struct final_measurement *measurements; /* with their samples owned by the summary */
};
must_check bool measurements_final(struct db *db, int64_t job, struct final_summary *ret,
                                   struct error *error);
void final_summary_release(struct final_summary *summary);

/* How the configs of a job agree, of a kernel without a reference. The caller frees *ret_example,
 * which the summary borrows. */
must_check bool measurements_agreement(struct db *db, int64_t job,
                                       const uint64_t baseline_and_default[FINALISTS_ALWAYS],
                                       struct agreement_summary *ret, char **ret_example,
                                       struct error *error);
/* The facts of `n` configs; those of one that was not compared are all NONE. */
must_check bool measurements_agreement_of(struct db *db, int64_t job, const uint64_t *configs,
                                          size_t n, struct agreement_facts *ret_facts,
                                          struct error *error);

#endif
