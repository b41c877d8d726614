/* Elements of buffers on the host: one as a double, many at once, and teams of threads for large
 * buffers.
 *
 * Outputs are filled with one of two 32-bit words, which fit every dtype: floats become NaNs that
 * no arithmetic makes, others and 8-bit floats a byte that is tried twice with different values.
 *
 * A team is a few threads that exit when their work is done; it runs between measurements, never
 * during one. A node serves other devices too: team_size() is a quarter of its CPUs and at most 4,
 * the caller included. Threads: any; `work` of a team is called from several at once. */
#ifndef WAVETUNE_AGENT_MEASURE_ELEMENT_H
#define WAVETUNE_AGENT_MEASURE_ELEMENT_H

#include "agent/device/fingerprint.h"
#include "common/kernel/kernel.h"

bool dtype_is_floating(enum dtype dtype);

double element_get(enum dtype dtype, const void *bytes, int64_t index);
/* Rounds to nearest; integers and 8-bit floats saturate; of a bool, every value but 0 is true. */
void element_set(enum dtype dtype, void *bytes, int64_t index, double value);

/* The word that marks elements as not written, with mark 0 or 1. */
uint32_t element_mark(enum dtype dtype, int mark);
bool element_is_marked(enum dtype dtype, const void *bytes, int64_t index, int mark);

/* Whether one of `n` elements from `first` on is NaN or holds mark 0; may be true for infinities
 * too. As fast as memory. */
bool elements_are_suspect(enum dtype dtype, const void *bytes, int64_t first, int64_t n);

/* How many of `n` elements from `first` on hold mark 0 in `bytes` and mark 1 in `again`. */
int64_t elements_unwritten(enum dtype dtype, const void *bytes, const void *again, int64_t first,
                           int64_t n, int64_t *ret_first_unwritten);

/* The first of `n` elements from `first` on in which `a` and `b` differ by more than atol + rtol *
 * |a|, or of which one is NaN or infinite and the other is not the same; -1: none. As fast as
 * memory where both are equal, or are floats that are near. */
int64_t elements_far(enum dtype dtype, const void *a, const void *b, int64_t first, int64_t n,
                     double atol, double rtol);

/* The sum of the squares of the finite ones of `n` elements from `first` on; *ret_finite: how many
 * these are. As fast as memory where all are finite floats. */
double elements_square_sum(enum dtype dtype, const void *bytes, int64_t first, int64_t n,
                           int64_t *ret_finite);

/* Large buffers are read in pieces, each by one thread of a team. */
#define SCAN_BLOCK 8192 /* elements that are compared one by one when one of them is suspect */
#define SCAN_ELEMENTS (64 * SCAN_BLOCK) /* of a piece */

#define TEAM_MAX 8

unsigned team_size(void);

/* Calls work(context, i) once for every i below n, by at most `threads` and TEAM_MAX threads, and
 * returns when all have returned. */
void team_run(unsigned threads, size_t n, void (*work)(void *context, size_t item), void *context);

/* How many pieces a buffer has, and a team that works at each. */
size_t pieces_of(int64_t elements);
void team_run_pieces(int64_t elements, void (*work)(void *context, size_t piece), void *context);

/* Whether two buffers are equal, by a team where they are large. */
bool bytes_equal(const void *a, const void *b, size_t size);

/* The fingerprint of a buffer, by a team where it is large. */
struct fingerprint bytes_fingerprint(const void *bytes, size_t size);

#endif
