/* Releases: what they can be made of, keeping them, reading them.
 *
 * Memory: results are the caller's. Threads: a db's own. */
#ifndef WAVETUNE_SERVER_RELEASE_RELEASES_H
#define WAVETUNE_SERVER_RELEASE_RELEASES_H

#include "server/audit/audit.h"
#include "server/channel/channels.h"
#include "server/release/release_make.h"

/* Environments, each once. */
struct release_environments {
  size_t n;
  struct environment *all;
};
void release_environments_release(struct release_environments *environments);
#define cleanup_release_environments __attribute__((cleanup(release_environments_release)))

/* Those that jobs or imports of this tag have. */
must_check bool release_environments_load(struct db *db, const char *tag, enum regime regime,
                                          struct release_environments *ret, struct error *error);

/* What the request's channel serves for the environment and tag, and where it points (counter 0:
 * nowhere yet). */
must_check bool release_served_load(struct db *db, const struct release_request *request,
                                    const struct environment *environment,
                                    struct release_served *ret_served,
                                    struct channel_state *ret_state, struct error *error);

/* Every job of the environment and tag whose kernel the request names, with its winner, every such
 * import, and the spaces that planning needs. */
must_check bool release_candidates_load(struct db *db, const struct release_request *request,
                                        const struct environment *environment,
                                        const struct release_served *served,
                                        struct release_candidates *ret, struct error *error);

/* Stores a release, unless it is there. */
must_check bool release_store(struct db *db, const struct release *release,
                              const struct author *author, bool *ret_is_new, struct error *error);

/* The canonical bytes, NUL-terminated; NULL when there is no such release. */
must_check bool release_load(struct db *db, const struct digest *digest, char **ret_bytes,
                             size_t *ret_size, struct error *error);

/* Items of GET /v1/releases below id `before` (INT64_MAX: from the newest), newest first; *ret_next
 * is 0 at the end. */
must_check bool releases_list(struct db *db, int64_t before, int64_t limit, json_t **ret_items,
                              int64_t *ret_next, struct error *error);

#endif
