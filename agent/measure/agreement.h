/* Whether a kernel without a reference computes the same with every config: each is compared with
 * the default config, which is the first that is checked.
 *
 * Every config runs on AGREEMENT_SETS sets of inputs: those that are timed, others of the same
 * kind, and others whose normal deviates are AGREEMENT_LARGE times as large, or of the same kind
 * where the case scales them down (common/kernel/kernel_case.h); only on the first where memory
 * does not suffice for three. The default runs twice on each set: by how much it differs from
 * itself (atomic additions in another order) is the noise. NaN and infinity must be in the same
 * places, and for all other elements b of the default and a of another config
 *   |a - b| <= atol * rms(b) + rtol * |b| + 4 * noise
 * where rms is over what the default wrote of the output, noise the largest difference in it, and
 * atol and rtol are
 *   bfloat16   1.6e-2, 1.6e-2    float32   1e-5, 1e-5 (tf32: 1e-3, 1e-3)
 *   float16    4e-3, 1e-3        float64   1e-10, 1e-10
 *   integers, bool   0, 0
 * A float32 or float64 of a kernel that also has buffers of 16 bits is compared as these are: what
 * it is computed from may have been rounded to them. Of an 8-bit float at most one element in a
 * thousand may be the next value. Elements that the default does not write must not be written.
 * Where outputs differ by more, how much the default's change with inputs a unit in the last place
 * away (nudge.h), at most rms / 20, counts as noise too: recurrences over thousands of steps
 * amplify rounding. An output of which the default overflows with the large inputs, or with the
 * second set not in the same places twice (atomic additions of 16 bits), is not compared with
 * these. Partial sums of blocks are compared by what they add up to (partial.h). Of a kernel that
 * draws other random numbers with other blocks, a config's output must be what Triton's interpreter
 * computed for that config, and in all sets have the distribution of the default's
 * (outputs_are_alike). The result is a class (enum agreement): the worst one of all outputs and
 * sets.
 *
 * What this does not find: a default that is wrong makes the others wrong in the same way; data
 * races that show rarely. Memory and threads: as agent/measure/problem.h, of which this is a part.
 */
#ifndef WAVETUNE_AGENT_MEASURE_AGREEMENT_H
#define WAVETUNE_AGENT_MEASURE_AGREEMENT_H

#include "agent/measure/problem.h"

/* Runs a config on all sets, and leaves the inputs of the first. Sets loaded->agreement. */
must_check enum outcome agreement_check(struct problem *problem, struct loaded_config *loaded,
                                        struct error *error);

#endif
