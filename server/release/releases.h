/* Reading and rendering stored releases.
 *
 * Memory: results are the caller's. Threads: the db's own. */
#ifndef WAVETUNE_SERVER_RELEASE_RELEASES_H
#define WAVETUNE_SERVER_RELEASE_RELEASES_H

#include "common/cache/format.h"
#include "server/server.h"

/* Reads a release by its digest. ERROR_MISSING: there is none. */
must_check bool release_load(struct worker *worker, const struct digest *digest,
                             struct release **ret, struct error *error);

/* Renders the release in a format; `identity` may be NULL. */
must_check bool release_render(struct worker *worker, const struct release *release,
                               const struct cache_format *format, const struct identity *identity,
                               struct cache_files *ret, struct error *error);

#endif
