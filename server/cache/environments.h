/* Environments, and how many agents and devices have them.
 *
 * Memory: results are the caller's. Threads: a db's own. */
#ifndef WAVETUNE_SERVER_CACHE_ENVIRONMENTS_H
#define WAVETUNE_SERVER_CACHE_ENVIRONMENTS_H

#include "common/node/environment.h"
#include "server/cache/match.h"
#include "server/db/db.h"

/* Makes sure that they are stored. Any number of equal ones. */
must_check bool environments_store(struct db *db, const struct environment *const *environments,
                                   size_t n, struct error *error);

/* All that an enrolled device has, with the agents seen within `live_ms` that are not draining. */
must_check bool environments_known(struct db *db, int64_t live_ms, struct known_environments *ret,
                                   struct error *error);

/* Items of GET /v1/environments after environment id `after`, oldest first; *ret_next is 0 at the
 * end. */
must_check bool environments_list(struct db *db, int64_t live_ms, int64_t after, int64_t limit,
                                  json_t **ret_items, int64_t *ret_next, struct error *error);

#endif
