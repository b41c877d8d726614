/* One element of a buffer: its value as a double; and many at once: which of them may not have been
 * written, which of two buffers' differ.
 *
 * Outputs are filled with one of two 32-bit words, which fit every dtype: floats become NaNs that
 * no arithmetic makes, others a byte that is tried twice with different values. Memory: none.
 * Threads: any. */
#ifndef WAVETUNE_AGENT_MEASURE_ELEMENT_H
#define WAVETUNE_AGENT_MEASURE_ELEMENT_H

#include "common/kernel/kernel.h"

bool dtype_is_floating(enum dtype dtype);

double element_get(enum dtype dtype, const void *bytes, int64_t index);
/* Rounds to nearest; integers saturate, of a bool every value but 0 is true. */
void element_set(enum dtype dtype, void *bytes, int64_t index, double value);

/* The word that marks elements as not written, with mark 0 or 1. */
uint32_t element_mark(enum dtype dtype, int mark);
bool element_is_marked(enum dtype dtype, const void *bytes, int64_t index, int mark);

/* Whether one of `n` elements from `first` on is NaN or, of an integer type, holds mark 0; for
 * infinities true may be said too. As fast as memory. */
bool elements_are_suspect(enum dtype dtype, const void *bytes, int64_t first, int64_t n);

/* Counts those of `n` elements from `first` on that hold mark 0 in `bytes` and mark 1 in
 * `again`. */
int64_t elements_unwritten(enum dtype dtype, const void *bytes, const void *again, int64_t first,
                           int64_t n, int64_t *ret_first_unwritten);

/* The first of `n` elements from `first` on in which `a` and `b` differ by more than atol + rtol *
 * |a|, or of which one is NaN, or infinite, and the other is not the same; -1: none. As fast as
 * memory where both hold the same, or float32 or float64 that are near. */
int64_t elements_far(enum dtype dtype, const void *a, const void *b, int64_t first, int64_t n,
                     double atol, double rtol);

#endif
