/* One element of a buffer: its value as a double, and the two bit patterns that mark it as not written.
 *
 * A float buffer is marked with NaNs that no arithmetic makes, others with bytes that are tried twice with different
 * values. Memory: none. Threads: any. */
#ifndef WAVETUNE_AGENT_MEASURE_ELEMENT_H
#define WAVETUNE_AGENT_MEASURE_ELEMENT_H

#include "common/kernel.h"

bool dtype_is_floating(enum dtype dtype);

double element_get(enum dtype dtype, const void *bytes, int64_t index);
/* Rounds to nearest; integers saturate, of a bool every value but 0 is true. */
void element_set(enum dtype dtype, void *bytes, int64_t index, double value);

/* Marks `elements` elements as not written, with mark 0 or 1. */
void elements_mark(enum dtype dtype, void *bytes, int64_t elements, int mark);
bool element_is_marked(enum dtype dtype, const void *bytes, int64_t index, int mark);

#endif
