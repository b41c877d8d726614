/* Retention: what nobody needs any more, and when releases were fetched last.
 *
 * A release is needed while a channel points at it, while it is one of the last COLLECT_ENTRIES that a channel pointed at (to
 * roll back to; renewals count once), and for keep_days after it was made or fetched. A file is needed while a kernel, a build or a measurement
 * names it, and for keep_days after it was stored (somebody may be about to name it). Demand is kept for keep_days after it
 * was reported last. Measurements, jobs, kernels, builds and the history of channels are never collected.
 *
 * Memory: results are the caller's. Threads: a db's own. */
#ifndef WAVETUNE_SERVER_BLOB_COLLECT_H
#define WAVETUNE_SERVER_BLOB_COLLECT_H

#include "common/base/digest.h"
#include "common/base/json.h"
#include "server/audit/audit.h"

#define COLLECT_ENTRIES 8
#define COLLECT_AT_ONCE 1000 /* releases, and files, of one call */

/* {"releases": [{"release", "tag", "winners", "bytes", "created_at"}], "files": {"n", "bytes"}, "demand": n, "more": false}:
 * what would be removed, or with `remove` was. A new reference. */
must_check bool collect(struct db *db, int64_t keep_days, const struct author *remover, json_t **ret_collected,
                        struct error *error);

must_check bool fetches_store(struct db *db, const struct digest *releases, size_t n, struct error *error);

#endif
