/* Which releases containers fetched: noted in memory, and written down about every minute, so that
 * a release that is fetched is never collected.
 *
 * Memory: a server owns its fetches. Threads: any but for fetches_housekeep, the housekeeper's. */
#ifndef WAVETUNE_SERVER_CACHE_FETCHES_H
#define WAVETUNE_SERVER_CACHE_FETCHES_H

#include "common/base/digest.h"
#include "server/http/route.h"
#include "server/server.h"

/* Different releases between two writes; more of them are noted when they are fetched again. */
#define FETCHES_MAX 4096

struct fetches;
must_check struct fetches *fetches_new(void);
void fetches_free(struct fetches *fetches);

void fetches_add(struct fetches *fetches, const struct digest *release);
/* The same, of a server. */
void fetches_note(struct server *server, const struct digest *release);

/* For response_memory_new: an answer that was given from memory. Of both routes of a release the
 * target says which one it is. */
void fetches_of_target(void *fetches, enum route_id route, const char *target, size_t target_size);

/* Moves what was noted to `ret` (FETCHES_MAX) and returns how many. */
size_t fetches_take(struct fetches *fetches, struct digest *ret);

#endif
