/* Whether a config computes what the reference does: run once on marked outputs, and look at every
 * element.
 *
 * An element is wrong when |value - reference| > atol + rtol * |reference| and the reference
 * rounded to the output's dtype is another value; NaN is right where the reference is NaN and
 * nowhere else, an infinity only where the reference has the same. All elements of an output that
 * is only written must have been written: those that still hold the mark are tried a second time
 * with another mark. All elements of a float output are looked at for NaN; the first CHECK_NANS_MAX
 * of those that are not among the samples are asked of the reference. Outputs without a reference
 * function (work space) are looked at only for writes outside of them. A write outside of the
 * buffers, and a launch after which the device does not pass its sentinel, spoil the problem
 * (problem.h).
 *
 * Samples do not find the one tile that is wrong. So all elements of an output are held against
 * those of the first one that was right, which is the baseline's: where they differ by more than
 * CHECK_FAR tolerances the reference is asked, for one element of each piece (half a million
 * elements) in turn until it was asked for CHECK_FAR_ASKED, and for one of every piece in any case;
 * what is more than CHECK_FAR tolerances off is wrong. (So many, because of a hundred million
 * rounding errors the largest is about twice the largest of a thousand: 5.7 and 3.3 standard
 * deviations.) Where it is the baseline that is wrong, problem->baseline_wrong says so: nothing
 * that is paired with it is worth anything.
 *
 * An output that has the fingerprint (agent/device/fingerprint.h) of one that passed before is
 * right at once: most configs of a kernel agree to the last bit, and those outputs need not come to
 * the host. The problem keeps up to VERIFIED_MAX of each operand, none of an output that holds a
 * mark: there nothing could tell a byte that was written from one that was not.
 *
 * Inputs must be unchanged. They are looked at with the first config, then after every
 * CHECK_INPUTS_EVERY configs, when a config is found wrong, and by problem_inputs_check. What was
 * changed is restored, and the configs checked since the last look are checked again, one by one
 * with a look after each: the one that changes inputs is wrong, and nobody else.
 *
 * Memory: see problem.h. Threads: one; large outputs are compared by a few more (team.h). */
#ifndef WAVETUNE_AGENT_MEASURE_CHECK_H
#define WAVETUNE_AGENT_MEASURE_CHECK_H

#include "agent/measure/problem.h"
#include "common/verdict/outcome.h"

#define CHECK_NANS_MAX 4096
#define CHECK_FAR 4.0       /* tolerances */
#define CHECK_FAR_ASKED 256 /* of an output; each may cost the reference a row times a column */

/* OUTCOME_CORRECT, OUTCOME_CORRECTNESS or OUTCOME_RUNTIME; of the latter two the error says why.
 * The candidate keeps both. That of earlier candidates may change with this call, never from wrong
 * to right. */
must_check enum outcome candidate_check(struct problem *problem, struct candidate *candidate,
                                        struct error *error);

/* Looks at the inputs where configs were checked since the last look: after it the outcomes that
 * the candidates keep are final. To be called when all are loaded, before they are timed, and again
 * before a later request's. False: the device refused, says the error, and the problem is
 * spoiled. */
must_check bool problem_inputs_check(struct problem *problem, struct error *error);

#endif
