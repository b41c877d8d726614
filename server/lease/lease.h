/* Leases: pieces of a job that one device measures. Here they are made, locked and cancelled; what
 * agents do with them is in grant/grants.h.
 *
 * Memory: results are the caller's where a release function says so. Threads: a worker's own. */
#ifndef WAVETUNE_SERVER_LEASE_LEASE_H
#define WAVETUNE_SERVER_LEASE_LEASE_H

#include "server/lease/lease_state.h"
#include "server/server.h"

/* A lease whose row was locked, and what deciding about it needs. */
struct lease {
  int64_t id, job_id, epoch;
  enum lease_state state;
  enum stage stage;
  struct config_ranges remaining;
  int64_t fruitless;        /* grants in a row that measured nothing */
  int64_t epoch_opening_us; /* what opening the kernel took in this epoch, as far as it was
                               stated */
  bool has_budget;          /* its job has one */
  struct digest hardware_digest;
};
void lease_release(struct lease *lease);
#define cleanup_lease __attribute__((cleanup(lease_release)))
/* In the caller's transaction; *ret_known false: there is no such lease. */
must_check bool lease_lock(struct db *db, int64_t id, struct lease *ret, bool *ret_known,
                           struct error *error);

/* When a job has spent what its budget leaves the screen, its open screen leases are cancelled,
 * with the event and an announcement. *ret_is_spent: there were any; then the job may move on. A
 * transaction of its own. */
must_check bool lease_settle_budget(struct worker *worker, int64_t job, bool *ret_is_spent,
                                    struct error *error);

/* The event of a job of which n leases were cancelled because of its budget. */
must_check bool lease_note_cancelled(struct db *db, int64_t job, int64_t n, struct error *error);

/* Cancels what is open or held of jobs that have ended: of `jobs`, or with NULL of any (a crash
 * between). A transaction of its own. */
must_check bool leases_cancel_ended(struct db *db, const int64_t *jobs, size_t n,
                                    struct error *error);

/* A lease to make. */
struct lease_row {
  int64_t process;
  const struct config_ranges *configs;
  bool is_apart; /* for a device without a final of the job, for a while */
};
/* The leases of a job's stage and round. In the caller's transaction. */
must_check bool leases_insert(struct db *db, int64_t job, enum stage stage, int64_t round,
                              const struct lease_row *rows, size_t n, struct error *error);

#endif
