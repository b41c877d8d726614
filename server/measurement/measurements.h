/* What the measurements of a job say, for deciding what comes next.
 *
 * Memory: results are the caller's. Threads: a db's own. */
#ifndef WAVETUNE_SERVER_MEASUREMENT_MEASUREMENTS_H
#define WAVETUNE_SERVER_MEASUREMENT_MEASUREMENTS_H

#include "common/campaign/campaign.h"
#include "common/campaign/warm_start.h"
#include "server/db/db.h"

/* Of a screen or a halving: the candidates that deciding needs (common/campaign/campaign.h), and all outcomes. */
#define SCREEN_CANDIDATES_MAX (2 * HALVING_MAX + FINALISTS_ALWAYS)
struct screen_summary {
  size_t n;
  struct campaign_candidate candidates[SCREEN_CANDIDATES_MAX];
  int64_t outcomes[OUTCOME_COUNT];
  char *example; /* why a config failed; NULL: none did */
};
/* `always`: configs that are candidates wherever they rank. */
must_check bool measurements_screen(struct db *db, int64_t job, enum stage stage,
                                    const uint64_t always[FINALISTS_ALWAYS], struct screen_summary *ret,
                                    struct error *error);
void screen_summary_release(struct screen_summary *summary);

/* All that the screen of a search measured, by rising ordinal; the caller's. */
must_check bool measurements_search(struct db *db, int64_t job, struct search_told **ret_told, size_t *ret_n,
                                    struct error *error);

struct final_summary {
  size_t n;
  struct final_measurement *measurements; /* their samples belong to it */
};
must_check bool measurements_final(struct db *db, int64_t job, struct final_summary *ret, struct error *error);
void final_summary_release(struct final_summary *summary);

#endif
