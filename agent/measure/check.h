/* Whether a config computes what the reference does: run once on marked outputs, and look at every element.
 *
 * An element is wrong when |value - reference| > atol + rtol * |reference| and the reference rounded to the output's
 * dtype is another value; NaN is right where the reference is NaN and nowhere else, an infinity only where the reference
 * has the same. All elements of an output that is only written must have been written: those that still hold the mark
 * are tried a second time with another mark. All elements of a float output are looked at for NaN; the first
 * CHECK_NANS_MAX of those that are not among the samples are asked of the reference. Outputs without a reference
 * function (work space) are looked at only for writes outside of them. Inputs must be unchanged; what was changed is
 * restored. A write outside of the buffers, and a launch after which the device does not pass its sentinel, spoil the
 * problem (problem.h).
 *
 * Memory: none. Threads: one. */
#ifndef WAVETUNE_AGENT_MEASURE_CHECK_H
#define WAVETUNE_AGENT_MEASURE_CHECK_H

#include "agent/measure/problem.h"
#include "common/outcome.h"

#define CHECK_NANS_MAX 4096

/* OUTCOME_CORRECT, OUTCOME_CORRECTNESS or OUTCOME_RUNTIME; of the latter two the error says why. */
must_check enum outcome candidate_check(struct problem *problem, struct candidate *candidate, struct error *error);

#endif
