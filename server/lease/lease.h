/* Leases: pieces of a job that one device measures. Here they are made, locked and cancelled; what
 * agents do with them is in grant/grants.h.
 *
 * Memory: results are the caller's where a release function says so. Threads: a worker's own. */
#ifndef WAVETUNE_SERVER_LEASE_LEASE_H
#define WAVETUNE_SERVER_LEASE_LEASE_H

#include "common/base/digest.h"
#include "common/space/space.h"
#include "server/db/db.h"
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

/* Who waits for leases or for news of a job, and how they are woken.
 *
 * Memory: keys are the caller's text. Threads: any. */
/* Keys of the park. */
#define PARK_KEY_SIZE 96
/* Devices that want signatures wait apart: one that is woken for work that it may not have must not
 * cost another its wake-up. */
char *lease_park_key(const struct digest *hardware_digest, bool wants_signatures,
                     char text[PARK_KEY_SIZE]);
char *job_park_key(int64_t job, char text[PARK_KEY_SIZE]);

/* n leases for this hardware are open now. */
void leases_announce(struct worker *worker, const struct digest *hardware_digest, size_t n);
/* Something happened to this job. */
void job_announce(struct worker *worker, int64_t job);

/* The leases of jobs that are submitted and raised.
 *
 * Memory: everything is borrowed. Threads: a db's own. */
/* An open lease of a job's screen, in its first round. */
struct lease_first {
  int64_t job;
  struct config_ranges configs;
  bool is_large; /* lease_is_large */
};
must_check bool leases_insert_first(struct db *db, const struct lease_first *leases, size_t n,
                                    struct error *error);

/* After the priority of jobs was raised: their leases follow. */
must_check bool jobs_raise_leases(struct db *db, const int64_t *jobs, size_t n,
                                  struct error *error);

#endif
