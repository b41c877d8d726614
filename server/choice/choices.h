/* Requests of programs at their first launch: which config of a release to use for a key (GET and
 * POST /v1/choices), from common/formats/choices.c.
 *
 * Memory: what is returned is the caller's. Threads: a worker's own. */
#ifndef WAVETUNE_SERVER_CHOICE_CHOICES_H
#define WAVETUNE_SERVER_CHOICE_CHOICES_H

#include "common/base/digest.h"
#include "common/base/json.h"
#include "server/server.h"

#define CHOICES_FUNCTIONS_MAX 1000 /* of a request */
#define CHOICES_KEYS_MAX 1000      /* of each */
#define COUNTERS_POSTS_PER_MINUTE 6000
struct server;
struct token_rates *server_counters_rates(const struct server *server);

/* {"digest": "sha256:…", "signatures": [{"key", "signature"}]}: the digest of a release's choices,
 * and the signatures over it; a new reference. */
struct db;
must_check bool choices_signatures_load(struct db *db, const struct digest *release,
                                        const struct digest *choices, json_t **ret,
                                        struct error *error);

#endif
