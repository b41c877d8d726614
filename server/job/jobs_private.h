/* What the parts of jobs.h share: job_state.c, job_flags.c, jobs.c. Memory and threads: jobs.h. */
#ifndef WAVETUNE_SERVER_JOB_JOBS_PRIVATE_H
#define WAVETUNE_SERVER_JOB_JOBS_PRIVATE_H

#include "server/job/jobs.h"

/* After the transaction in which a job failed or was cancelled: cancels its leases and wakes the
 * requests that wait for it. It uses another transaction, because none may wait for leases while it
 * holds a job's row. The housekeeper repeats it after a crash. */
must_check bool job_end_settle(struct worker *worker, const struct job_change *change,
                               bool is_changed, struct error *error);

/* Flags the winners of earlier jobs that this job found slower than the default, with the event, in
 * the transaction in which it becomes done; *ret_flagged: how many. Winners that have a flag
 * already keep it. Also fails when samples that the decision used were quarantined meanwhile: then
 * the job must be decided again. */
must_check bool winners_flag(struct worker *worker, const struct job_brief *job,
                             const struct space *space, int64_t *ret_flagged, struct error *error);

#endif
