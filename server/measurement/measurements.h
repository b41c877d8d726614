/* Measurements in the database: stored when they are posted, and read for decisions and for people.
 *
 * Memory: results are the caller's. Threads: a db's own. */
#ifndef WAVETUNE_SERVER_MEASUREMENT_MEASUREMENTS_H
#define WAVETUNE_SERVER_MEASUREMENT_MEASUREMENTS_H

#include "common/campaign/campaign.h"
#include "common/campaign/warm_start.h"
#include "server/db/db.h"
#include "server/measurement/drift.h"
#include "server/measurement/results.h"

/* Locks a lease for a post of results. *ret_known: whether there is one of this id. */
must_check bool posted_lease_lock(struct db *db, int64_t id, struct posted_lease *ret,
                                  bool *ret_known, struct error *error);
void posted_lease_init(struct posted_lease *lease);
void posted_lease_release(struct posted_lease *lease);

/* Those of the measurements that are stored: *ret_n; the caller's. */
must_check bool results_known(struct db *db, int64_t lease, const struct results *results,
                              struct known_measurement **ret, size_t *ret_n, struct error *error);

/* Stores what a judgement found new, what follows from it for the lease and its job, and what the
 * baseline took in a lease that is over, in the transaction that locked the lease. */
must_check bool results_store(struct db *db, const struct posted_lease *lease,
                              const struct results *results, const struct judgement *judgement,
                              struct drift_note *note, struct error *error);

/* A page of a job's measurements by rising id; *ret_next 0: there are no more. *ret_known: whether
 * there is such a job. */
must_check bool job_measurements_list(struct db *db, int64_t job, int64_t after, int64_t limit,
                                      json_t **ret_items, int64_t *ret_next, bool *ret_known,
                                      struct error *error);

/* Of a screen or a halving: the candidates that deciding needs (common/campaign/campaign.h), and
 * all outcomes. */
#define SCREEN_CANDIDATES_MAX (2 * HALVING_MAX + FINALISTS_ALWAYS)
struct screen_summary {
  size_t n;
  struct campaign_candidate candidates[SCREEN_CANDIDATES_MAX];
  int64_t outcomes[OUTCOME_COUNT];
  char *example; /* why a config failed; NULL: none did */
};
/* `always`: configs that are candidates wherever they rank. */
must_check bool measurements_screen(struct db *db, int64_t job, enum stage stage,
                                    const uint64_t always[FINALISTS_ALWAYS],
                                    struct screen_summary *ret, struct error *error);
void screen_summary_release(struct screen_summary *summary);

/* All that the screen of a search measured, by rising ordinal; the caller's. */
must_check bool measurements_search(struct db *db, int64_t job, struct search_told **ret_told,
                                    size_t *ret_n, struct error *error);

struct final_summary {
  size_t n;
  struct final_measurement *measurements; /* their samples belong to it */
};
must_check bool measurements_final(struct db *db, int64_t job, struct final_summary *ret,
                                   struct error *error);
void final_summary_release(struct final_summary *summary);

#endif
