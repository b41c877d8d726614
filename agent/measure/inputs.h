/* Input data from a seed: the same argument, extent and seed give the same bytes on every machine
 * with the same libm.
 *
 * Random data, because equal or zero operands switch fewer bits and run faster at a power limit
 * (ROCm/rocBLAS#1486). A GPU's buffers have billions of elements, so drawing is made cheap: each
 * INPUTS_BLOCK elements have a generator of their own and are drawn by a team (team.h); normal
 * deviates, which cost tens of nanoseconds each, are computed for one block and after it picked
 * from there at random; and of a buffer with more than INPUTS_PERIOD elements the first so many are
 * repeated. The period is a prime, so that no two rows are equal. Memory: none. Threads: any. */
#ifndef WAVETUNE_AGENT_MEASURE_INPUTS_H
#define WAVETUNE_AGENT_MEASURE_INPUTS_H

#include "common/kernel/kernel.h"

#define INPUTS_BLOCK 65536
#define INPUTS_PERIOD 16777259 /* the least prime above 2^24 */

/* Fills a buffer argument of `elements` elements as its manifest says. Arguments of different index
 * get different data. */
void inputs_fill(const struct argument *argument, size_t argument_index, int64_t elements,
                 uint64_t seed, void *bytes);

#endif
