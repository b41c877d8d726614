/* The states of a lease, the transitions between them, and the two functions that write them: one
 * grants an open lease, the other makes all other changes.
 *
 *   open ──grant──▶ held ──▶ done          nothing remains
 *     ▲              │ └───▶ cancelled     its job has ended, or its budget is spent
 *     ├── handed back, lost, partly done
 *     └── done, when measurements of it are quarantined
 *
 * An open lease may also become done (its configs were given up, or moved to another lease) or
 * cancelled.
 *
 * Memory: texts and ranges are borrowed. Threads: pure functions; lease_take and
 * lease_change_state: the connection's. */
#ifndef WAVETUNE_SERVER_LEASE_LEASE_STATE_H
#define WAVETUNE_SERVER_LEASE_LEASE_STATE_H

#include "common/space/space.h"
#include "common/verdict/verdict.h"
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

/* The state of a lease after `less` was taken out of `remaining`: done when nothing remains, else
 * `otherwise`. */
enum lease_state lease_state_after(const struct config_ranges *remaining,
                                   const struct config_ranges *less, enum lease_state otherwise);

/* The device that requests a lease, and the token of its request. A repeated request has the same
 * nonce and gets the same lease. */
struct lease_holder {
  const char *agent, *device, *nonce;
  int64_t token;
  int64_t lease_ms; /* how long the grant lasts */
  const struct lease_candidates *candidates;
};

/* Open to held: grants the first open lease of the candidates that the device may have, unless the
 * nonce holds one already. Raises the epoch and `fruitless`, and resets the counts of an epoch. The
 * statement is sent (db_send); the statement lease_held reads the lease afterwards. In the caller's
 * transaction. Waits for no lease, only for a concurrent request with the same nonce: when that
 * request was granted a lease, the next db_run fails with ERROR_UNIQUE. */
must_check bool lease_take(struct db *db, const struct lease_holder *holder, struct error *error);

/* Any other change of a lease. Members that are 0, NULL or empty change nothing. A lease that is no
 * longer held loses its current_config. */
struct lease_change {
  int64_t lease;
  enum lease_state from, to;     /* from: the state that was read when the row was locked */
  struct config_ranges less;     /* removed from `remaining` */
  struct config_ranges more;     /* added to `remaining` and to `configs` */
  bool is_split;                 /* configs that were granted to its holder are taken from it */
  int64_t posts;                 /* added: 1 when measurements of it were written or quarantined */
  int64_t fruitless_less;        /* subtracted from `fruitless`; LEASE_FRUITFUL: sets it to 0 */
  int64_t device_us, opening_us; /* added */
  int64_t outcomes[OUTCOME_COUNT]; /* added to the counts of accepted measurements; may be < 0 */
};
#define LEASE_FRUITFUL INT32_MAX

/* The caller has locked the rows (FOR UPDATE, in the order of their ids) in this transaction; each
 * lease occurs once. The changes are counted (counters.h) at commit. Aborts on a transition that
 * does not exist, on a grant, and when a row is not in `from`. The statement is sent (db_send),
 * unless a lease becomes open. */
must_check bool lease_change_state(struct db *db, const struct lease_change *changes, size_t n,
                                   struct error *error);

#endif
