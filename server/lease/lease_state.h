/* The states of a lease, the transitions between them, and the function that makes all changes but
 * grants, which are made by the `take` of struct lease_grants.
 *
 *   open ──grant──▶ held ──▶ done          nothing remains
 *     ▲              │ └───▶ cancelled     nothing needs it any more
 *     ├── handed back, lost, partly done
 *     └── done, when its answers do not count any more
 *
 * An open lease may also become done (what remained was given up, or moved to another lease) or
 * cancelled.
 *
 * Memory: texts are borrowed. Threads: pure functions; lease_change_state: the connection's. */
#ifndef WAVETUNE_SERVER_LEASE_LEASE_STATE_H
#define WAVETUNE_SERVER_LEASE_LEASE_STATE_H

#include "common/record/record.h"
#include "server/db/db.h"
#include "server/lease/lease_front.h"

#define LEASE_STATES(X) X(OPEN, "open") X(HELD, "held") X(DONE, "done") X(CANCELLED, "cancelled")

#define X(id, name) LEASE_##id,
enum lease_state { LEASE_STATES(X) LEASE_STATE_COUNT };
#undef X
extern const char *const lease_state_names[LEASE_STATE_COUNT + 1]; /* ends with NULL */
const char *lease_state_name(enum lease_state state);

/* Whether the transition exists. A transition from a state to itself changes only other columns. */
bool lease_may_change(enum lease_state from, enum lease_state to);

/* A change of a lease other than a grant (struct lease_grants): the first members of the struct
 * with which a kind of tasks describes it. */
#define LEASE_CHANGE_MEMBERS                                                                       \
  int64_t lease;                                                                                   \
  enum lease_state from, to /* from: the state that was read when the row was locked */
struct lease_change {
  LEASE_CHANGE_MEMBERS;
};
/* `record`: of the kind's struct. `statement` makes the changes and returns lease_at_record of
 * each.
 *
 * The caller has locked the rows (FOR UPDATE, in the order of their ids) in this transaction; each
 * lease occurs once. The changes are counted (counters.h) at commit. Aborts on a transition that
 * does not exist, on a grant, and when a row is not in `from`. The statement is sent (db_send),
 * unless a lease becomes open. */
must_check bool lease_change_state(struct db *db, const struct statement *statement,
                                   const struct record *record, const void *changes, size_t n,
                                   struct error *error);

#endif
