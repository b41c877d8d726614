/* Moving jobs on: what happens when a stage of a job has nothing left to measure, when a job ends, and who is told.
 *
 * Every step is one transaction with a compare-and-set on (state, stage, round), so that any number of servers may try.
 * Memory: nothing is kept. Threads: a worker's own. */
#ifndef WAVETUNE_SERVER_JOB_JOBS_H
#define WAVETUNE_SERVER_JOB_JOBS_H

#include "common/base/digest.h"
#include "server/audit/audit.h"
#include "server/job/job_state.h"
#include "server/server.h"

/* Moves those of `jobs` on that have no open and no held lease. What fails is logged: the housekeeper comes again. */
void jobs_advance(struct worker *worker, const int64_t *jobs, size_t n);

/* Ends a job that is queued or running: as failed, with a reason, or cancelled by `author` (else NULL), which is noted. *ret_ended: whether this call did. */
must_check bool job_end(struct worker *worker, int64_t job, enum job_state to, const char *reason,
                        const struct author *author, bool *ret_ended, struct error *error);

/* Marks jobs as running whose first lease was granted. */
must_check bool jobs_start(struct worker *worker, const int64_t *jobs, size_t n, struct error *error);

/* Keys of the park. */
#define PARK_KEY_SIZE 96
/* Devices that want signatures wait apart: one that is woken for work that it may not have must not cost another its
 * wake-up. */
char *lease_park_key(const struct digest *hardware_digest, bool wants_signatures, char text[PARK_KEY_SIZE]);
char *job_park_key(int64_t job, char text[PARK_KEY_SIZE]);
/* n leases for this hardware are open now; something happened to this job. */
void leases_announce(struct worker *worker, const struct digest *hardware_digest, size_t n);
void job_announce(struct worker *worker, int64_t job);

#endif
