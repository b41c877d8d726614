/* A kind of task, for what leases it. A task's id is that of its lease, too: of one number "task"
 * says what is done, and "lease" who holds it until when. server/lease/ claims tasks for holders,
 * refuses what the holder of an earlier epoch says, renews and expires leases, shares devices among
 * owners and wakes requests. What a claim holds, what an answer is, what follows from it and what a
 * loss means is the kind's to say. server/task/kinds.c lists the kinds.
 *
 * Memory: kinds are static. Threads: any; the hooks run on the thread of their worker or db. */
#ifndef WAVETUNE_SERVER_LEASE_LEASE_KIND_H
#define WAVETUNE_SERVER_LEASE_LEASE_KIND_H

#include "server/db/db.h"
#include "server/lease/lease_state.h"
#include "server/server.h"

/* A task as its holder names it. */
struct lease_hold {
  int64_t task, epoch;
};

/* The statements on a table of tasks (tasks.sql). */
struct lease_table {
  struct statement claim, renew, held, end, expired;
};

struct lease_grants;

struct lease_kind {
  const char *name; /* common/task/task.h */

  /* Of tasks in a table of their own, with the columns id, epoch, leased_until and leased_by: its
   * name, and room for its statements, which take the place of `renew` and `expired`. Such tasks
   * may be expired only where there is `lost`. Nothing takes the place of `due`, `defer`, `shorten`
   * and `restarted`: without them its leases are not shortened after a step back of the clock, nor
   * taken back from an agent that restarted. */
  const char *table;
  struct lease_table *statements;

  const struct lease_grants *grants; /* to agents (lease_grant.h); NULL: it is not for agents */

  /* Renews the leases :task[] at their :epoch[] for :lease_ms, and returns "id" and what their
   * holders have to know of those that are still held. */
  const struct statement *renew;

  /* What an answer is: stores one, in a transaction that is tried again after a conflict. `answer`
   * is the kind's own; what a former attempt set in it is lost. */
  db_work *answer;
  /* What follows from an answer that was committed; NULL: nothing. Failures are logged. */
  void (*settle)(struct worker *worker, void *answer);

  /* Locks at most :limit held tasks that have expired, in the order of their ids, and returns
   * them. NULL: an expired task may be claimed again, and its holder may answer until then. */
  const struct statement *expired;
  const struct statement *due;       /* the same of those due since :since_ms; NULL: `expired` */
  const struct statement *defer;     /* :limit that were due since :since_ms and renewed; or NULL */
  const struct statement *shorten;   /* leases that last longer than :lease_ms; or NULL */
  const struct statement *restarted; /* like `expired`, all of :agent, which restarted; or NULL */
  /* What a loss means, of tasks that one of these statements locked, in the same transaction. Those
   * in a table of their own were opened; others it opens. */
  bool (*lost)(struct worker *worker, const struct db_rows *gone, struct error *error);
  /* What follows after the commit. */
  void (*settle_lost)(struct worker *worker, const struct db_rows *gone);
};

/* All kinds, ended by NULL. */
extern const struct lease_kind *const lease_kinds[];
#define LEASE_KINDS_MAX 8

/* Binds :task and :epoch. */
void bind_lease_holds(struct db_parameters *parameters, const struct lease_hold *holds, size_t n);

/* Renews leases of one kind; *ret_rows has those that are still held. `more`: what the statement
 * takes besides; NULL: nothing. */
must_check bool lease_renew(struct db *db, const struct lease_kind *kind,
                            const struct lease_hold *holds, size_t n, int64_t lease_ms,
                            struct db_parameters *more, struct db_rows **ret_rows,
                            struct error *error);

/* Stores an answer and settles what follows. */
must_check bool lease_answer(struct worker *worker, const struct lease_kind *kind, void *answer,
                             struct error *error);

/* lease_expire.c */

/* Tasks that were lost, by kind, as the statements returned them. */
struct lease_losses {
  struct db_rows *of[LEASE_KINDS_MAX];
};
void lease_losses_release(struct lease_losses *losses);
/* Takes back the tasks that an agent held when it was restarted. In the caller's transaction.
 * *ret_n: how many. */
must_check bool leases_reclaim(struct worker *worker, const char *agent, struct lease_losses *ret,
                               int64_t *ret_n, struct error *error);
/* After the commit. */
void leases_settle_losses(struct worker *worker, const struct lease_losses *losses);

/* Expires leases of all kinds. Only after agents had one lease time to renew them since this
 * server, the database or its clock was paused, unavailable or stepped. The housekeeper's. */
#define LEASES_EXPIRE_MS 500 /* how often */
must_check bool leases_expire_all(struct worker *worker, struct error *error);

/* tasks.c */

/* The statements of a kind whose tasks are in a table of their own; NULL: they are not. */
const struct lease_table *lease_table_of(const struct lease_kind *kind);

/* The next three are for these kinds, and run in the caller's transaction. Claims tasks that it has
 * locked, and returns "id" and "epoch". */
must_check bool lease_claim(struct db *db, const struct lease_kind *kind, const int64_t *tasks,
                            size_t n, const char *holder, int64_t lease_ms,
                            struct db_rows **ret_rows, struct error *error);
/* Locks those that are held at their epochs: ret_held[i] for holds[i]. */
must_check bool lease_lock_held(struct db *db, const struct lease_kind *kind,
                                const struct lease_hold *holds, size_t n, bool *ret_held,
                                struct error *error);
/* Ends the leases of tasks that were locked: they are answered, or may be claimed again. */
must_check bool lease_end(struct db *db, const struct lease_kind *kind, const int64_t *tasks,
                          size_t n, struct error *error);

#endif
