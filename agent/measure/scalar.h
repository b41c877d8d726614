/* The value of a scalar argument for a key and a config, and how it lies in memory.
 *
 * `scope` holds key, config, gpu_name and arch. Memory: none kept. Threads: any. */
#ifndef WAVETUNE_AGENT_MEASURE_SCALAR_H
#define WAVETUNE_AGENT_MEASURE_SCALAR_H

#include "common/kernel/kernel.h"

/* Whether the type holds the integer exactly. */
bool scalar_fits(enum dtype dtype, int64_t value);

/* Refuses what is no integer (or bool), and what the argument's type cannot hold. */
must_check bool scalar_evaluate(const struct argument *argument, const struct scope *scope,
                                int64_t *ret, struct error *error);

/* The same, written as the argument's type; the rest of *ret_scalar is zero. */
must_check bool scalar_store(const struct argument *argument, const struct scope *scope,
                             uint64_t *ret_scalar, struct error *error);

#endif
