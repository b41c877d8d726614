/* What an operator declared of environments: few rows, read when a lookup's exact rule finds
 * nothing.
 *
 * Memory: results are the caller's. Threads: a db's own. */
#ifndef WAVETUNE_SERVER_CACHE_COMPATIBILITIES_H
#define WAVETUNE_SERVER_CACHE_COMPATIBILITIES_H

#include "server/audit/audit.h"
#include "server/cache/cache_rules.h"

struct compatibilities {
  size_t n;
  struct compatibility *all; /* in the order in which they were made */
};
void compatibilities_release(struct compatibilities *compatibilities);
#define cleanup_compatibilities __attribute__((cleanup(compatibilities_release)))

must_check bool compatibilities_load(struct db *db, struct compatibilities *ret,
                                     struct error *error);

/* Items of GET /v1/compatibilities after id `after`; *ret_next is 0 at the end. */
must_check bool compatibilities_list(struct db *db, int64_t after, int64_t limit,
                                     json_t **ret_items, int64_t *ret_next, struct error *error);

/* Adds one; the pair of one that is there already is known, its reason the newer one. *ret_id 0:
 * there are COMPATIBILITIES_MAX of them. */
must_check bool compatibility_add(struct db *db, const struct compatibility *compatibility,
                                  const struct author *author, int64_t *ret_id,
                                  struct error *error);
must_check bool compatibility_remove(struct db *db, int64_t id, const struct author *author,
                                     bool *ret_found, struct error *error);

#endif
