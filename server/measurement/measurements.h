/* What the measurements of a job say, for deciding what comes next.
 *
 * Memory: results are the caller's. Threads: a db's own. */
#ifndef WAVETUNE_SERVER_MEASUREMENT_MEASUREMENTS_H
#define WAVETUNE_SERVER_MEASUREMENT_MEASUREMENTS_H

#include "server/db/db.h"
#include "server/job/job_plan.h"
#include "server/job/search_rounds.h"

#define SCREEN_RANKED_MAX (2 * HALVING_MAX + FINALISTS_ALWAYS)
struct screen_summary {
  struct screen_facts facts; /* points into the rest */
  uint64_t ranked[SCREEN_RANKED_MAX];
  double ratios[SCREEN_RANKED_MAX];
  bool left_early[SCREEN_RANKED_MAX];
  int64_t leases[SCREEN_RANKED_MAX];
  char *example;
};
/* Of stage screen or halving. `always`: configs that are ranked wherever they stand. */
must_check bool measurements_screen(struct db *db, int64_t job, enum stage stage, const uint64_t *always,
                                    size_t n_always, struct screen_summary *ret, struct error *error);
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
