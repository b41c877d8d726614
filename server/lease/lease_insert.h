/* The leases of jobs that are submitted and raised.
 *
 * Memory: everything is borrowed. Threads: a db's own. */
#ifndef WAVETUNE_SERVER_LEASE_LEASE_INSERT_H
#define WAVETUNE_SERVER_LEASE_LEASE_INSERT_H

#include "common/space/space.h"
#include "server/db/db.h"

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
