/* Retention: removing the measurements of jobs that ended long ago.
 *
 * The table `measurements` is partitioned by ranges of jobs. The transaction that inserts a job
 * makes the next partition ahead (migrations/11_functions.sql). A partition is due when all of its
 * jobs ended more than keep_days ago; it is replaced by one with the finals of winners that are in
 * a stored release, or that the next release may take: from these, verdicts are decided again and
 * the provenance of releases is read. Emptied partitions that are neighbours become one. The jobs,
 * with their winners and verdicts, stay.
 *
 * Memory: plain values. Threads: the db's. */
#ifndef WAVETUNE_SERVER_MEASUREMENT_RETENTION_H
#define WAVETUNE_SERVER_MEASUREMENT_RETENTION_H

#include "common/record/record.h"
#include "server/db/db.h"

struct retention {
  int64_t partitions, jobs, bytes;
  int64_t kept; /* measurements; FIELD_NONE: nothing was removed yet */
};
extern const struct record retention_record;

/* Sums up the partitions that are due. */
must_check bool retention_list(struct db *db, int64_t keep_days, struct retention *ret,
                               struct error *error);

/* Empties the oldest partition that is due, with a row in the audit table, in a transaction of its
 * own. *ret_more: another one is due. ERROR_CONTENTION: a statement that uses the measurements ran
 * for longer than the removal waits. */
must_check bool retention_remove(struct db *db, int64_t keep_days, const struct author *author,
                                 struct retention *ret, bool *ret_more, struct error *error);

#endif
