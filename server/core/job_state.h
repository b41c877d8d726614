/* The states a job goes through, its stages, and the outcomes of a measurement; which changes of state there are.
 *
 * job_state_may_change is the whole transition table; store/jobs' job_change_state is the one function that applies it.
 * Threads: pure functions. */
#ifndef WAVETUNE_SERVER_CORE_JOB_STATE_H
#define WAVETUNE_SERVER_CORE_JOB_STATE_H

#include "common/base.h"

#define JOB_STATES(X)                                                                                                  \
  X(QUEUED, "queued") X(RUNNING, "running") X(DONE, "done") X(FAILED, "failed") X(CANCELLED, "cancelled")
#define STAGES(X) X(SCREEN, "screen") X(HALVING, "halving") X(FINAL, "final")
#define OUTCOMES(X)                                                                                                    \
  X(CORRECT, "correct")                                                                                                \
  X(COMPILE, "compile")                                                                                                \
  X(RUNTIME, "runtime") X(CORRECTNESS, "correctness") X(TIMEOUT, "timeout") X(CONSTRAINTS, "constraints")

#define X(id, name) JOB_##id,
enum job_state { JOB_STATES(X) JOB_STATE_COUNT };
#undef X
#define X(id, name) STAGE_##id,
enum stage { STAGES(X) STAGE_COUNT };
#undef X
#define X(id, name) OUTCOME_##id,
enum outcome { OUTCOMES(X) OUTCOME_COUNT };
#undef X

const char *job_state_name(enum job_state state);
const char *stage_name(enum stage stage);
const char *outcome_name(enum outcome outcome);
must_check bool job_state_parse(const char *name, enum job_state *ret);
must_check bool stage_parse(const char *name, enum stage *ret);
must_check bool outcome_parse(const char *name, enum outcome *ret);

bool job_state_may_change(enum job_state from, enum job_state to);
bool job_state_is_final(enum job_state state); /* done, failed, cancelled */

#endif
