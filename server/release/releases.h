/* Making, reading and rendering releases.
 *
 * Memory: results are the caller's. Threads: the db's own. */
#ifndef WAVETUNE_SERVER_RELEASE_RELEASES_H
#define WAVETUNE_SERVER_RELEASE_RELEASES_H

#include "common/cache/format.h"
#include "server/channel/channels.h"
#include "server/db/db.h"
#include "server/release/release_make.h"
#include "server/server.h"

/* Reads a release by its digest. ERROR_MISSING: there is none. */
must_check bool release_load(struct worker *worker, const struct digest *digest,
                             struct release **ret, struct error *error);

/* Renders the release in a format; `identity` may be NULL. */
must_check bool release_render(struct worker *worker, const struct release *release,
                               const struct cache_format *format, const struct identity *identity,
                               struct cache_files *ret, struct error *error);

/* A release that was made, and what POST /v1/releases answers. Where nothing could be released,
 * `release` is NULL and the answer has only "skipped". */
struct release_made {
  struct release *release;
  bool is_new;
  json_t *answer;
};
void release_made_release(struct release_made *made);
#define cleanup_release_made __attribute__((cleanup(release_made_release)))

/* Makes and stores the release that a request means; `environment` is the full one. */
must_check bool release_make(struct worker *worker, const struct release_request *wanted,
                             const struct environment *environment, const struct author *author,
                             struct release_made *ret, struct error *error);

#endif
