/* The outcome of a measurement (Kernel Tuner's T4 vocabulary), and the stage of a job that it
 * belongs to: the words that agents, the server and its database share.
 *
 * Memory: static texts. Threads: pure functions. */
#ifndef WAVETUNE_COMMON_VERDICT_OUTCOME_H
#define WAVETUNE_COMMON_VERDICT_OUTCOME_H

#include "common/base/base.h"

#define OUTCOMES(X)                                                                                \
  X(CORRECT, "correct")                                                                            \
  X(COMPILE, "compile")                                                                            \
  X(RUNTIME, "runtime")                                                                            \
  X(CORRECTNESS, "correctness")                                                                    \
  X(TIMEOUT, "timeout")                                                                            \
  X(CONSTRAINTS, "constraints")
#define STAGES(X)                                                                                  \
  X(SCREEN, "screen")                                                                              \
  X(HALVING, "halving")                                                                            \
  X(FINAL, "final")

/* With this reason an agent hands a lease back that has spent its `device_us`: it is not leased
 * again. */
#define RELEASE_REASON_SPENT "the device time is spent"
/* The begin of the reason when no key that the agent trusts signed what it was to run. */
#define RELEASE_REASON_UNSIGNED "not signed for this agent: "

#define X(id, name) OUTCOME_##id,
enum outcome { OUTCOMES(X) OUTCOME_COUNT };
#undef X
#define X(id, name) STAGE_##id,
enum stage { STAGES(X) STAGE_COUNT };
#undef X

/* By value, ended by NULL, as fields of records take them (common/record/record.h). */
extern const char *const outcome_names[];
extern const char *const stage_names[];
const char *outcome_name(enum outcome outcome);
const char *stage_name(enum stage stage);

/* False for any other text, and for NULL. */
must_check bool outcome_parse(const char *name, enum outcome *ret);
must_check bool stage_parse(const char *name, enum stage *ret);

/* The index of `name` among `n` names. False when it is none of them or NULL. */
must_check bool name_find(const char *const *names, size_t n, const char *name, size_t *ret);

#endif
