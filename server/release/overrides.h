/* Stored overrides (override_rules.h), and /v1/overrides.
 *
 * Memory: results are the caller's. Threads: the db's own. */
#ifndef WAVETUNE_SERVER_RELEASE_OVERRIDES_H
#define WAVETUNE_SERVER_RELEASE_OVERRIDES_H

#include "server/db/db.h"
#include "server/release/override_rules.h"

/* Those that hold now and concern the environment and tag, the most specific first. */
must_check bool overrides_load(struct db *db, const struct environment *environment,
                               const char *tag, struct overrides *ret, struct error *error);

#endif
