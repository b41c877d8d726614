/* Leases of configs: a part of a job that one device measures. This header inserts, locks, changes
 * and cancels them. The requests of agents are served in server/measure/.
 *
 * Memory: the caller releases a struct lease; the rest is borrowed. Threads: a worker's own;
 * job_park_key and job_announce: any. */
#ifndef WAVETUNE_SERVER_MEASUREMENT_LEASES_H
#define WAVETUNE_SERVER_MEASUREMENT_LEASES_H

#include "common/base/digest.h"
#include "common/regime/regime.h"
#include "common/space/space.h"
#include "common/verdict/verdict.h"
#include "server/db/db.h"
#include "server/lease/lease_state.h"
#include "server/lease/lease_wake.h"
#include "server/server.h"

/* A lease whose row is locked, with the columns that decisions need. */
struct lease {
  int64_t id, job, owner_id, epoch, round, process;
  enum lease_state state;
  enum stage stage;
  char *agent, *device; /* its holder, or else its last holder */
  struct config_ranges configs, remaining;
  int64_t posts;     /* 0: no measurement of the lease was ever stored */
  int64_t fruitless; /* grants in a row without a measurement */
  int64_t
      epoch_opening_us; /* device time that opening the kernel took in this epoch, as reported */
  char *handed_back;    /* the reason that an agent gave last; NULL: none did */
  int64_t handed_back_times; /* how often in a row it was this one */
  int64_t baseline;          /* this member and the following ones are those of its job */
  double best_ratio;         /* the lowest so far; NaN: none */
  enum regime regime;
  bool has_budget;
  struct digest hardware_digest;
};
void lease_release(struct lease *lease);
#define cleanup_lease __attribute__((cleanup(lease_release)))
/* In the caller's transaction. *ret_known: whether the lease exists. */
must_check bool lease_lock(struct db *db, int64_t id, struct lease *ret, bool *ret_known,
                           struct error *error);
/* The same for a post of results. */
must_check bool lease_lock_for_results(struct db *db, int64_t id, struct lease *ret,
                                       bool *ret_known, struct error *error);

/* A change of a lease (lease_state.h). Members that are 0, NULL or empty change nothing. A lease
 * that is no longer held loses its current_config. */
struct measure_change {
  LEASE_CHANGE_MEMBERS;
  struct config_ranges less;     /* removed from `remaining` */
  struct config_ranges more;     /* added to `remaining` and to `configs` */
  bool is_split;                 /* configs that were granted to its holder are taken from it */
  int64_t posts;                 /* added: 1 when measurements of it were written or quarantined */
  int64_t fruitless_less;        /* subtracted from `fruitless`; LEASE_FRUITFUL: sets it to 0 */
  int64_t device_us, opening_us; /* added */
  int64_t outcomes[OUTCOME_COUNT]; /* added to the counts of accepted measurements; may be < 0 */
};
#define LEASE_FRUITFUL INT32_MAX
/* lease_change_state with them. */
must_check bool measure_change_state(struct db *db, const struct measure_change *changes, size_t n,
                                     struct error *error);

/* The same change of leases that were locked: rows with their ids and states. */
must_check bool leases_change_locked(struct db *db, const struct db_rows *rows,
                                     const struct measure_change *change, struct error *error);

/* The state of a lease after `less` was taken out of `remaining`: done when nothing remains, else
 * `otherwise`. */
enum lease_state lease_state_after(const struct config_ranges *remaining,
                                   const struct config_ranges *less, enum lease_state otherwise);

/* What is given up of a lease, with outcome runtime and the event `poisoned`. */
struct given_up {
  int64_t lease;
  int64_t config; /* -1: all that remain */
  int64_t poison; /* the entry of the ledger that has it; 0: its own job's losses, or the lease's */
  bool was_run;   /* else it does not count as measured */
  const char *detail;
};
/* Nothing, unless the lease is open and has the config. What the ledger has is taken from a held
 * lease, too: its holder learns it from its next renewal. In the caller's transaction. */
must_check bool lease_give_up(struct db *db, const struct given_up *given, struct error *error);

/* Cancels the open screen leases of a job that has spent the screen's part of its budget, adds the
 * event, in its own transaction, and wakes the requests that wait for the job. *ret_is_spent:
 * whether it cancelled any; then the job may move on. */
must_check bool lease_settle_budget(struct worker *worker, int64_t job, bool *ret_is_spent,
                                    struct error *error);

/* Adds the event that n leases of a job were cancelled because of its budget. */
must_check bool lease_note_cancelled(struct db *db, int64_t job, int64_t n, struct error *error);

/* Cancels the open and held leases of those of `jobs` that have ended, in its own transaction. */
must_check bool leases_cancel_ended(struct db *db, const int64_t *jobs, size_t n,
                                    struct error *error);
/* The same of all jobs: a server may have crashed before it cancelled their leases. The
 * housekeeper's. */
must_check bool leases_cancel_all_ended(struct worker *worker, struct error *error);

/* An open lease to insert. It borrows its configs. */
struct new_lease {
  int64_t job, process;
  struct config_ranges configs;
  bool is_large;    /* a screen lease that may be split (lease_is_large) */
  bool is_reserved; /* reserved for a minute for devices that have no final of the job */
};
/* Inserts leases for one stage and round of their jobs. In the caller's transaction. */
must_check bool leases_insert(struct db *db, enum stage stage, int64_t round,
                              const struct new_lease *leases, size_t n, struct error *error);

/* Raises the priority of the jobs' leases to that of the jobs. */
must_check bool jobs_raise_leases(struct db *db, const int64_t *jobs, size_t n,
                                  struct error *error);

/* Counts open and held leases for /metrics. With many it reads many rows: run it rarely. */
must_check bool leases_count(struct worker *worker, struct error *error);

/* The key under which requests for a job's events are parked (server/http/request.h). */
char *job_park_key(int64_t job, char text[PARK_KEY_SIZE]);
/* Wakes the requests that wait for events of the job. */
void job_announce(struct worker *worker, int64_t job);

#endif
