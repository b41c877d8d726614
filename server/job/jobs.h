/* Moving jobs on: what happens when a stage of a job has nothing left to measure, and when a job
 * ends.
 *
 * Every step is one transaction with a compare-and-set on (state, stage, round), so that any number
 * of servers may try. Memory: nothing is kept. Threads: a worker's own. */
#ifndef WAVETUNE_SERVER_JOB_JOBS_H
#define WAVETUNE_SERVER_JOB_JOBS_H

#include "server/audit/audit.h"
#include "server/job/job_state.h"
#include "server/server.h"

/* Moves those of `jobs` on that have no open and no held lease. What fails is logged: the
 * housekeeper comes again. */
void jobs_advance(struct worker *worker, const int64_t *jobs, size_t n);

/* Ends a job that is queued or running: as failed, with a reason, or cancelled by `author` (else
 * NULL), which is noted. *ret_ended: whether this call did. */
must_check bool job_end(struct worker *worker, int64_t job, enum job_state to, const char *reason,
                        const struct author *author, bool *ret_ended, struct error *error);

/* Marks jobs as running whose first lease was granted. */
must_check bool jobs_start(struct worker *worker, const int64_t *jobs, size_t n,
                           struct error *error);

#endif
