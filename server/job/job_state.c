/* Names of states and the transition table of jobs. Memory: static texts. Threads: any. */
#include "server/job/job_state.h"

#define X(id, name) name,
const char *const job_state_names[] = {JOB_STATES(X) NULL};
#undef X

/* May a job go from the row's state to the column's? */
static const bool transitions[JOB_STATE_COUNT][JOB_STATE_COUNT] = {
    [JOB_QUEUED] = {[JOB_RUNNING] = true, [JOB_FAILED] = true, [JOB_CANCELLED] = true},
    [JOB_RUNNING] = {[JOB_RUNNING] = true, /* another stage or round */
                     [JOB_DONE] = true,
                     [JOB_FAILED] = true,
                     [JOB_CANCELLED] = true},
};

const char *job_state_name(enum job_state state) { return job_state_names[state]; }

bool job_state_parse(const char *name, enum job_state *ret) {
  size_t i;
  if (!name_find(job_state_names, JOB_STATE_COUNT, name, &i))
    return false;
  *ret = (enum job_state)i;
  return true;
}

bool job_state_may_change(enum job_state from, enum job_state to) { return transitions[from][to]; }

bool job_state_is_final(enum job_state state) {
  for (size_t to = 0; to < JOB_STATE_COUNT; to++)
    if (transitions[state][to])
      return false;
  return true;
}
