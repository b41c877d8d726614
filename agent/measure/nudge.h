/* Inputs that differ from a set's by at most a unit in the last place: what they change in an
 * output is as much as rounding may change in it, since each rounding of a stable computation does
 * what such inputs would (N. J. Higham, "Accuracy and Stability of Numerical Algorithms",
 * 2002, 1.5).
 *
 * The last bit of every second element, on average, is inverted, in the buffers of floats that
 * differ between sets of inputs; float32 that tensor cores read as tf32 has ten bits behind the
 * point. NaN and infinity stay.
 *
 * Memory: a nudge owns the buffers that its problem had. Threads: as agent/measure/problem.h. */
#ifndef WAVETUNE_AGENT_MEASURE_NUDGE_H
#define WAVETUNE_AGENT_MEASURE_NUDGE_H

#include "agent/measure/problem.h"

struct nudge {
  size_t n; /* buffers that were replaced */
  struct device_buffer *replaced[KERNEL_ARGUMENTS_MAX];
};

/* Replaces the set's buffers. After a failure nothing is replaced. */
must_check bool inputs_nudge(struct problem *problem, size_t set, struct nudge *ret_nudge,
                             struct error *error);

/* Puts them back. */
void inputs_unnudge(struct problem *problem, size_t set, struct nudge *nudge);

/* Elements on the host, in place. */
void elements_nudge(enum dtype dtype, bool is_tf32, void *bytes, int64_t elements);

#endif
