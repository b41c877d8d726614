/* What the measurements of a job say, for deciding what comes next.
 *
 * Memory: results are the caller's. Threads: a db's own. */
#ifndef WAVETUNE_SERVER_STORE_MEASUREMENTS_H
#define WAVETUNE_SERVER_STORE_MEASUREMENTS_H

#include "server/core/job_plan.h"
#include "server/store/db.h"

struct screen_summary {
  struct screen_facts facts; /* points into the rest */
  uint64_t ranked[FINALISTS_MAX];
  double ratios[FINALISTS_MAX];
  char *example;
};
must_check bool measurements_screen(struct db *db, int64_t job, struct screen_summary *ret, struct error *error);
void screen_summary_release(struct screen_summary *summary);

struct final_summary {
  size_t n;
  struct final_measurement *measurements; /* their samples belong to it */
};
must_check bool measurements_final(struct db *db, int64_t job, struct final_summary *ret, struct error *error);
void final_summary_release(struct final_summary *summary);

#endif
