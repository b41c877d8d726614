/* Outputs whose layout depends on the config: a kernel writes a row of partial sums for each of its
 * blocks, and the program adds up as many rows as the config that it chose has blocks. Such configs
 * write other elements, and each its own values; what must be the same is the sum of each column,
 * or of each row where a block writes an element of it.
 *
 * A builder states the length of a row where the configs of a launch have several grids
 * (common/kernel/kernel_case.h). An output is compared by its sums where both configs, which have
 * no common grid, write other elements of it: those whose bytes are not those of before the launch.
 *
 * Memory: none of its own. Threads: any. */
#ifndef WAVETUNE_AGENT_MEASURE_PARTIAL_H
#define WAVETUNE_AGENT_MEASURE_PARTIAL_H

#include "agent/measure/outputs.h"

/* `before`: the output before both launches. */
struct partial {
  const struct argument *argument;
  int64_t elements;
  const void *before, *expected, *bytes;
};

/* The root mean square of the finite elements of `expected` that its launch wrote: others, which
 * may be most of a storage, tell nothing of their size. 0: there are none. */
double partial_rms(const struct partial *partial);

/* Whether the two launches wrote other elements. */
bool partial_layouts_differ(const struct partial *partial);

/* Whether the sums of all columns, or those of all rows, are finite and differ by at most
 *   atol * rms of the expected sums + rtol * root of the sum's squares + noise,
 * as the rounding of the addends, which is random, allows. */
bool partial_sums_agree(const struct partial *partial, struct tolerance tolerance, double noise);

#endif
