/* Demand: counting what deployments report, ranking what is untuned, and remembering what was decided.
 *
 * Memory: results are the caller's. Threads: a db's own. */
#ifndef WAVETUNE_SERVER_DEMAND_DEMAND_STORE_H
#define WAVETUNE_SERVER_DEMAND_DEMAND_STORE_H

#include "common/base/digest.h"
#include "common/base/json.h"
#include "common/node/environment.h"
#include "server/audit/audit.h"

/* For each i with a name: the hash of the kernel of this name that was registered last. ret_known[i] is set to whether there
 * is one; entries without a name stay as they are. */
must_check bool demand_kernels_find(struct db *db, const char *const *names, size_t n, struct digest *ret_hashes,
                                    bool *ret_known, struct error *error);

struct demand_row {
  struct digest kernel, key_digest;
  char *key; /* JSON text, members in the kernel's order; owned by whoever made the row */
  int64_t hits, misses;
  double tuning_ms, kernel_ms; /* kernel_ms 0: not known */
};
/* Adds to the counts; the same key may be there twice. New keys beyond DEMAND_ROWS_MAX are dropped. */
must_check bool demand_add(struct db *db, const struct demand_row *rows, size_t n, const struct digest *environment,
                           const char *environment_text, const char *tag, enum regime regime,
                           const struct author *author, struct error *error);

/* An untuned key that was missed and about which nothing was decided yet. */
struct demand_wanted {
  int64_t id;
  struct digest kernel;
  char *name, *tag, *regime;
  json_t *key, *environment;
  int64_t hits, misses, budget_ms; /* budget of the job that shows the space; 0: none */
  double tuning_ms, kernel_ms;     /* kernel_ms 0: not known */
  double gain, saved_ms;           /* core/demand.h: how it is ranked */
  char *last_at;                   /* RFC 3339 */
  json_t *space; /* of the kernel's newest done job that tuned it, and did not only revalidate; NULL: there is none */
};
struct demand_list {
  size_t n;
  struct demand_wanted *all; /* most GPU time saved first */
};
void demand_list_release(struct demand_list *list);
#define cleanup_demand_list __attribute__((cleanup(demand_list_release)))
must_check bool demand_wanted_load(struct db *db, int64_t limit, struct demand_list *ret, struct error *error);

/* job 0: refused, with the reason. A refusal is asked again after a day. */
must_check bool demand_decided(struct db *db, int64_t id, int64_t job, const char *refused, struct error *error);

/* Jobs that were queued for demand in the last hour. */
must_check bool demand_queued_lately(struct db *db, int64_t *ret_jobs, struct error *error);

#endif
