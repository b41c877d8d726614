/* Retention: the removal of what nothing needs any more.
 *
 * A release is needed while a channel points at it, while it is one of the last COLLECT_ENTRIES
 * that a channel pointed at (to roll back to; renewals count once), and for keep_days after it was
 * made or fetched. A file is needed while a kernel, a build or a measurement names it, and for
 * keep_days after it was stored (a request may be about to name it). Demand is kept for keep_days
 * after it was reported last. Measurements, jobs, kernels, builds and the history of channels are
 * never collected.
 *
 * Memory: a collection owns its releases. Threads: a db's own. */
#ifndef WAVETUNE_SERVER_BLOB_COLLECT_H
#define WAVETUNE_SERVER_BLOB_COLLECT_H

#include "common/record/record.h"
#include "server/audit/audit.h"

#define COLLECT_ENTRIES 8
#define COLLECT_AT_ONCE 1000 /* releases, and files, of one call */
#define COLLECT_KEEP_DAYS 30 /* unless the request says otherwise */

/* The request of POST /v1/gc. */
struct collect_request {
  bool is_dry;
  int64_t keep_days;
};
extern const struct record gc_request_record;

/* Its answer: what was removed, or would be. */
struct collection {
  struct records releases;
  struct collected_files {
    int64_t n, bytes;
  } files;
  int64_t demand; /* keys */
  bool has_more;  /* COLLECT_AT_ONCE of the releases or of the files */
  struct collect_request asked;
};
extern const struct record gc_answer_record;
void collection_release(struct collection *collection);
#define cleanup_collection __attribute__((cleanup(collection_release)))

/* In one transaction, with its row in the audit where something was removed. */
must_check bool collect(struct db *db, const struct collect_request *asked,
                        const struct author *remover, struct collection *ret, struct error *error);

#endif
