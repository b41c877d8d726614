/* Whether an output is what Triton's interpreter computed for the same inputs, in the elements that
 * a sample of programs wrote (common/builds/expected.h). Unlike the default config, the interpreter
 * shares no compiler with what is tuned, so that it also finds a default that is wrong.
 *
 * NaN and infinity must be in the same places; for all other elements b of the interpreter and a of
 * the config |a - b| <= atol * rms(b) + rtol * |b|, where rms is over the values and both are
 *   bfloat16   3.2e-2   float16   8e-3   float32   1e-4 (tf32: 1e-2)   float64   1e-9
 * On an H200 a backward kernel of linear attention was off by at most 4e-3 (bfloat16) and 4.2e-4
 * (float16) of its largest value, about 2e-2 and 2e-3 of rms, with inputs widened to float32; the
 * interpreter rounds as the program does, which leaves the order of sums and approximate functions.
 * Outputs of 32 and 64 bits of a kernel with 16-bit or 8-bit buffers are compared as the coarsest
 * of these. Of an 8-bit float one element in 20 may be the next value. Integers are equal; of a
 * kernel that also has buffers of floats one in 100 may differ, since rounding may change them.
 *
 * Memory: none of its own. Threads: any. */
#ifndef WAVETUNE_AGENT_MEASURE_EXPECTED_H
#define WAVETUNE_AGENT_MEASURE_EXPECTED_H

#include "common/builds/expected.h"

/* `bytes` is the whole output; `more` is added to its tolerance. The error names the element with
 * both values. */
must_check bool expected_agrees(const struct kernel *kernel, const struct expected_buffer *buffer,
                                const void *bytes, double more, struct error *error);

#endif
