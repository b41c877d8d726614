/* The states of a lease, which changes of them there are, and the two functions that write them:
 * one grants an open lease, the other makes every other change.
 *
 *   open ──grant──▶ held ──▶ done          nothing remains
 *     ▲              │ └───▶ cancelled     its job has ended, or its budget is spent
 *     ├── handed back, lost, partly done
 *     └── done, when measurements of it are quarantined
 *
 * An open lease may also become done (its configs were given up, or another lease took them) or
 * cancelled.
 * Memory: texts and ranges are borrowed. Threads: pure functions; lease_take and
 * lease_change_state: the connection's. */
#ifndef WAVETUNE_SERVER_LEASE_LEASE_STATE_H
#define WAVETUNE_SERVER_LEASE_LEASE_STATE_H

#include "common/space/space.h"
#include "common/verdict/verdict.h"
#include "server/db/db.h"

#define LEASE_STATES(X) X(OPEN, "open") X(HELD, "held") X(DONE, "done") X(CANCELLED, "cancelled")

#define X(id, name) LEASE_##id,
enum lease_state { LEASE_STATES(X) LEASE_STATE_COUNT };
#undef X
extern const char *const lease_state_names[LEASE_STATE_COUNT + 1]; /* ends with NULL */
const char *lease_state_name(enum lease_state state);

/* Whether a lease may be written so: also from a state to itself, which writes the rest of a
 * change. */
bool lease_may_change(enum lease_state from, enum lease_state to);

/* Where a lease that loses `less` of `remaining` and is left open or held otherwise gets: done,
 * when nothing remains. */
enum lease_state lease_state_after(const struct config_ranges *remaining,
                                   const struct config_ranges *less, enum lease_state otherwise);

/* The device that asks for a lease, and the token it asks with. The nonce is the request's: a lease
 * is granted to a nonce once, however often the request is repeated. */
struct lease_holder {
  const char *agent, *device, *nonce;
  int64_t token, lease_ms; /* lease_ms: how long a grant lasts */
};

/* Open to held: grants the best open lease that the device may have, unless the nonce holds one
 * already. It raises the epoch and `fruitless`, and begins the counts of an epoch anew. It is sent
 * (db_send): which lease it was, if any, the statement lease_held says. In the caller's
 * transaction; waits for no lock. ERROR_UNIQUE: another request with this nonce was granted a lease
 * at the same time. */
must_check bool lease_take(struct db *db, const struct lease_holder *holder, struct error *error);

/* What another change of a lease writes. What is 0, NULL or empty stays as it is. A lease that
 * stops being held measures nothing any more: its current_config goes. */
struct lease_change {
  int64_t lease;
  enum lease_state from, to;       /* from: as it was read when the row was locked */
  struct config_ranges less, more; /* leave `remaining`; come to it, and to `configs` */
  bool is_split;                   /* its holder was granted more than remains from now on */
  int64_t posts;                   /* added: 1 when measurements of it were written or taken back */
  int64_t fruitless_less; /* taken off the grants in vain; LEASE_FRUITFUL: there are none now */
  int64_t device_us, opening_us; /* added */
  int64_t
      outcomes[OUTCOME_COUNT]; /* added to the accepted measurements by outcome; may be below 0 */
};
#define LEASE_FRUITFUL INT32_MAX

/* The caller has locked the rows (FOR UPDATE, in the order of their ids) in this transaction, and
 * no lease comes twice. The changes are counted (counters.h) when it commits. Aborts on a change
 * that lease_may_change does not have, on a grant, and when a row is not in `from`. It is sent
 * (db_send). */
must_check bool lease_change_state(struct db *db, const struct lease_change *changes, size_t n,
                                   struct error *error);

#endif
