/* A lease is a part of a job that one device measures. This header inserts, locks and cancels
 * leases, and wakes the requests that wait for them. The requests of agents are served in
 * server/measure/.
 *
 * Memory: the caller releases a struct lease; the rest is borrowed. Threads: a worker's own; the
 * keys and the functions that wake requests: any. */
#ifndef WAVETUNE_SERVER_LEASE_LEASE_H
#define WAVETUNE_SERVER_LEASE_LEASE_H

#include "common/base/digest.h"
#include "common/space/space.h"
#include "server/db/db.h"
#include "server/lease/lease_state.h"
#include "server/server.h"

/* A lease whose row is locked, with the columns that decisions need. */
struct lease {
  int64_t id, job_id, owner_id, epoch;
  enum lease_state state;
  enum stage stage;
  struct config_ranges remaining;
  int64_t fruitless; /* grants in a row without a measurement */
  int64_t
      epoch_opening_us; /* device time that opening the kernel took in this epoch, as reported */
  bool has_budget;      /* its job has a budget */
  char *handed_back;    /* the reason that an agent gave last; NULL: none did */
  int64_t handed_back_times; /* how often in a row it was this one */
  struct digest hardware_digest;
};
void lease_release(struct lease *lease);
#define cleanup_lease __attribute__((cleanup(lease_release)))
/* In the caller's transaction. *ret_known: whether the lease exists. */
must_check bool lease_lock(struct db *db, int64_t id, struct lease *ret, bool *ret_known,
                           struct error *error);

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

/* Cancels the open and held leases of those of `jobs` that have ended, in its own transaction.
 * `jobs` is NULL for all jobs: a server may have crashed before it cancelled their leases. */
must_check bool leases_cancel_ended(struct db *db, const int64_t *jobs, size_t n,
                                    struct error *error);

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

/* The keys under which requests are parked (server/http/request.h). Devices that accept only signed
 * work have another key than the rest: otherwise one of them could consume the wake-up of a device
 * that may have the work. */
#define PARK_KEY_SIZE 96
char *lease_park_key(const struct digest *hardware_digest, bool wants_signatures,
                     char text[PARK_KEY_SIZE]);
char *job_park_key(int64_t job, char text[PARK_KEY_SIZE]);

/* Wakes up to n requests under each key of this hardware, for which n leases were opened. */
void leases_announce(struct worker *worker, const struct digest *hardware_digest, size_t n);
/* Wakes the requests that wait for events of the job. */
void job_announce(struct worker *worker, int64_t job);

#endif
