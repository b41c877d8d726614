/* Which releases containers fetched: noted in memory and stored about every minute, so that a
 * release that is in use is never collected.
 *
 * Memory: a server owns its fetches. Threads: any. */
#ifndef WAVETUNE_SERVER_CACHE_FETCHES_H
#define WAVETUNE_SERVER_CACHE_FETCHES_H

#include "common/base/digest.h"
#include "server/http/route.h"
#include "server/server.h"

/* Different releases between two writes. Others are noted when they are fetched again. */
#define FETCHES_MAX 4096

struct fetches;
must_check struct fetches *fetches_new(void);
void fetches_free(struct fetches *fetches);

void fetches_add(struct fetches *fetches, const struct digest *release);

/* For response_cache_make: notes the release of an answer from the cache, if the route is one of a
 * release. The target has its digest. */
void fetches_of_target(void *fetches, enum route_id route, const char *target, size_t target_size);

/* Moves the noted releases to `ret` (FETCHES_MAX) and returns how many. */
size_t fetches_take(struct fetches *fetches, struct digest *ret);

#endif
