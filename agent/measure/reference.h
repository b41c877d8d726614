/* The compiled reference of a kernel, and what it says of sampled elements of an output.
 *
 * A reference is C that runs on the host whatever the device is: agent/compile/launch_source.h. It is asked for different
 * elements by several threads at once, and so must not keep anything between calls but in thread-local variables.
 * Memory: an expectation owns its arrays. Threads: one, which may have a team (team.h). */
#ifndef WAVETUNE_AGENT_MEASURE_REFERENCE_H
#define WAVETUNE_AGENT_MEASURE_REFERENCE_H

#include "common/base/error.h"

#define REFERENCE_EDGE 64 /* this many first and last elements are always among the samples */

struct reference;
must_check bool reference_load(const char *object, struct reference **ret_reference, struct error *error);
void reference_free(struct reference *reference);

/* Element `index` of the output that is argument number `argument`; `arguments` hold the inputs on the host. */
double reference_element(const struct reference *reference, size_t argument, int64_t index, void **arguments);

struct expectation {
  size_t n;
  int64_t *indices; /* rising */
  double *values;
};

/* Computes the first and the last elements and random ones, `samples` in all (0: every element). */
void expectation_compute(const struct reference *reference, size_t argument, int64_t elements, int64_t samples,
                         uint64_t seed, void **arguments, struct expectation *ret_expectation);
void expectation_release(struct expectation *expectation);

#endif
