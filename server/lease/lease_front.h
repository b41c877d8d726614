/* Where the open leases of a device class begin, in the order in which they are granted: by
 * priority, then job, then id.
 *
 * PostgreSQL keeps the index entries of granted leases until no transaction is older than the
 * grants. Meanwhile a search from the start of the index passes over all of them, so that with a
 * forgotten transaction each grant would take longer than the one before. Therefore each process
 * keeps a place in the order for every class, its front, from which grants search. There may be
 * entries of granted leases behind the front, but few: after some grants it moves on to the first
 * open lease.
 *
 * What this process opens (inserts, hands back, raises) moves the front back, when it is written
 * and again when it is committed. What another server opens before the front is found by a survey
 * of all open leases, and by a search from the start when a device would get no lease otherwise.
 * With many old entries both are slow, and rest in proportion.
 *
 * Memory: the fronts are static, because a process serves one database. Threads: any; they have a
 * lock. */
#ifndef WAVETUNE_SERVER_LEASE_LEASE_FRONT_H
#define WAVETUNE_SERVER_LEASE_LEASE_FRONT_H

#include "common/base/digest.h"
#include "server/db/db.h"

struct lease_place {
  int64_t priority, job, lease;
};
/* Whether a lease at `a` is granted before one at `b`. */
bool lease_place_is_before(const struct lease_place *a, const struct lease_place *b);

/* Binds the fronts of all classes, or of none, for lease_take: :front_classes, … */
void bind_lease_fronts(struct db_parameters *parameters, bool all);
/* Binds the front of a class as :front_priority, :front_job, :front_lease. */
void bind_lease_front(struct db_parameters *parameters, const struct digest *class);

/* Moves fronts back to leases that were opened: rows with device_class, priority, job_id and id. In
 * a transaction again when it commits, because the front may move on while the leases are not yet
 * visible. */
void lease_fronts_move_back(struct db *db, const struct db_rows *rows);

/* Call it after a lease of the class and of this job was granted and committed: now and then it
 * moves the front on. */
must_check bool lease_front_note_grant(struct db *db, const struct digest *class, int64_t job,
                                       struct error *error);

/* Searches the class from the start unless that rests, and moves its front back or on.
 * *ret_moved_back: there is an open lease before the former front. */
must_check bool lease_front_search(struct db *db, const struct digest *class, bool *ret_moved_back,
                                   struct error *error);

/* Moves each front back to the first open lease of its class. */
must_check bool lease_fronts_survey(struct db *db, struct error *error);

#endif
