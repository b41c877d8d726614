/* The states of a job, and which changes of state there are. job_change_state (jobs.h) is the one
 * function that makes them.
 *
 * Threads: pure functions. */
#ifndef WAVETUNE_SERVER_JOB_JOB_STATE_H
#define WAVETUNE_SERVER_JOB_JOB_STATE_H

#include "common/verdict/outcome.h"

#define JOB_STATES(X)                                                                              \
  X(QUEUED, "queued")                                                                              \
  X(RUNNING, "running") X(DONE, "done") X(FAILED, "failed") X(CANCELLED, "cancelled")

#define X(id, name) JOB_##id,
enum job_state { JOB_STATES(X) JOB_STATE_COUNT };
#undef X

extern const char *const job_state_names[]; /* by value, ended by NULL */
must_check bool job_state_parse(const char *name, enum job_state *ret);

bool job_state_may_change(enum job_state from, enum job_state to);
bool job_state_is_final(enum job_state state); /* done, failed, cancelled */

#endif
