/* Where the open leases of each queue begin, and which queues a device is served from. A queue has
 * the open leases of one device class, owner and priority, in the order of their groups and ids. A
 * group is what its owner wants to be done together, before what came later.
 *
 * PostgreSQL keeps the index entries of granted leases until no transaction is older than the
 * grants. Meanwhile a search from the start of a queue passes over all of them, so that with a
 * forgotten transaction each grant would take longer than the one before. Therefore each process
 * keeps a place in every queue, its front, from which grants search. There may be entries of
 * granted leases behind the front, but few: after some grants it moves on to the first open lease.
 *
 * What this process opens (inserts, hands back, raises) moves the front back, when it is written
 * and again when it is committed. What another server opens before the front is found by a survey
 * of all queues, and by one of a class when a device would get no lease otherwise. With many old
 * entries both are slow, and rest in proportion.
 *
 * A grant tries the queues of its device in the order of fair_share.h, a few in one statement. Of a
 * class and an owner the QUEUES_OF_OWNER queues of the highest priority are known; an owner's lower
 * priorities follow when those are empty.
 *
 * Memory: the fronts are a server's (leasing.h). Threads: any; they have a lock. */
#ifndef WAVETUNE_SERVER_LEASE_LEASE_FRONT_H
#define WAVETUNE_SERVER_LEASE_LEASE_FRONT_H

#include "common/base/digest.h"
#include "common/record/record.h"
#include "server/db/db.h"

#define QUEUES_OF_OWNER 16

struct lease_queue {
  struct digest class;
  int64_t owner, priority;
};
/* The fields of a queue that is the member `queue`. */
#define QUEUE_FIELDS(class_column, owner_column, priority_column, object, queue)                   \
  RECORD_FIELD_AS(class_column, DIGEST, object, queue.class),                                      \
      RECORD_FIELD_AS(owner_column, INTEGER, object, queue.owner),                                 \
      RECORD_FIELD_AS(priority_column, INTEGER, object, queue.priority)
bool lease_queue_equal(const struct lease_queue *a, const struct lease_queue *b);

/* A place in a queue. */
struct lease_place {
  int64_t group, lease; /* group: tasks of an earlier one are granted first; in SQL its job_id */
};
/* Whether a lease at `a` is granted before one at `b`. */
bool lease_place_is_before(const struct lease_place *a, const struct lease_place *b);

/* A lease by its place: of a row with device_class, owner_id, priority, job_id and id. */
struct lease_at {
  struct lease_queue queue;
  struct lease_place place;
};
extern const struct record lease_at_record;

/* The queues that a grant tries, in their order. */
#define LEASE_CANDIDATES 8
struct lease_candidates {
  size_t n;
  bool has_more; /* queues after these */
  struct lease_candidate {
    struct lease_at at;
    bool is_by_waiting; /* fair_share.h */
  } all[LEASE_CANDIDATES];
};
/* Finds the queues of these device classes in the order of their turn, without the first `skip`. */
struct leasing;
void lease_candidates_find(struct leasing *leasing, const struct digest *classes, size_t n_classes,
                           size_t skip, struct lease_candidates *ret);
/* One queue, which is searched from its start. */
struct lease_candidates lease_candidates_of(const struct lease_queue *queue);

/* Binds queues and places: :queue_classes, :queue_owners, … */
void bind_lease_candidates(struct db_parameters *parameters,
                           const struct lease_candidates *candidates);

struct lease_fronts *lease_fronts_new(void);
void lease_fronts_free(struct lease_fronts *fronts);
/* The places that a connection's transaction opens. */
struct lease_opened *lease_opened_new(void);
void lease_opened_free(struct lease_opened *opened);

/* Moves fronts back to leases that were opened (lease_at_record). In a transaction again when it
 * commits, because the front may move on while the leases are not yet visible. */
void lease_fronts_move_back(struct db *db, const struct db_rows *rows);

/* Call it after a lease of the queue and of this group was granted and committed. Notes it for the
 * shares and, now and then, moves fronts on: that of the queue, and those of tried queues that had
 * no lease. */
must_check bool lease_front_note_grant(struct db *db, const struct lease_candidates *tried,
                                       const struct lease_queue *queue, int64_t group,
                                       struct error *error);

/* Searches the queues of the class from their starts unless that rests, and moves their fronts back
 * or on. *ret_moved_back: there is an open lease before the former front of a queue. */
must_check bool lease_front_search(struct db *db, const struct digest *class, bool *ret_moved_back,
                                   struct error *error);

/* Moves each front to the first open lease of its queue. */
struct worker;
must_check bool lease_fronts_survey(struct worker *worker, struct error *error);

/* Stores since when queues that got leases wait, for other servers. */
must_check bool lease_queues_store(struct db *db, struct error *error);

#endif
