/* Whether a config computes what the reference does, or what the default config does: the checks
 * that problem.h describes.
 *
 * Memory and threads: as agent/measure/problem.h. */
#ifndef WAVETUNE_AGENT_MEASURE_CHECK_H
#define WAVETUNE_AGENT_MEASURE_CHECK_H

#include "agent/measure/problem.h"

/* OUTCOME_CORRECT, OUTCOME_CORRECTNESS or OUTCOME_RUNTIME, with the reason for the latter two. The
 * loaded config keeps both. The outcomes of earlier configs may change with this call, never from
 * wrong to right. */
must_check enum outcome config_check(struct problem *problem, struct loaded_config *loaded,
                                     struct error *error);

/* Checks the inputs where configs were checked since the last time: after it the outcomes that the
 * loaded configs keep are final. To be called when all are loaded, before they are timed, and again
 * before a later request's. False: the device refused, and the problem is spoiled. */
must_check bool problem_inputs_check(struct problem *problem, struct error *error);

#endif
