/* The compiled reference of a kernel, and what it says of sampled elements of an output.
 *
 * A reference is C that runs on the host whatever the device is: agent/compile/launch_source.h. It
 * is asked for different elements by several threads at once, and so must not keep anything between
 * calls but in thread-local variables. It is a stranger's code, and so runs in a process of its own
 * (agent/worker/worker_reference.c), where it can neither hold the clock that times a kernel nor
 * touch what is compared: whoever measures has its answers only, through a socket. Memory: an
 * expectation owns its arrays. Threads: one, which may have a team (team.h). */
#ifndef WAVETUNE_AGENT_MEASURE_REFERENCE_H
#define WAVETUNE_AGENT_MEASURE_REFERENCE_H

#include "common/kernel/kernel.h"

#define REFERENCE_EDGE 64 /* this many first and last elements are always among the samples */

struct reference;
must_check bool reference_load(const char *object, struct reference **ret_reference,
                               struct error *error);
/* One that another process serves; takes the socket. */
must_check struct reference *reference_connect(int socket);
void reference_free(struct reference *reference);

/* Whether its process has ended: what it was asked for since is NaN. */
bool reference_is_lost(const struct reference *reference);

/* What a reference is called with: inputs as every process fills them from the same seed
 * (inputs.h), room for outputs, and scalars. */
struct reference_host;
must_check bool reference_host_new(const struct kernel *kernel, const struct key *key,
                                   const struct space *space, uint64_t config, const char *gpu_name,
                                   const char *arch, uint64_t seed,
                                   struct reference_host **ret_host, struct error *error);
void reference_host_free(struct reference_host *host);
/* Answers what is asked through the socket until the other end is closed. */
void reference_serve(const struct reference *reference, const struct reference_host *host,
                     int socket);

/* Element `index` of the output that is argument number `argument`; `arguments` hold the inputs on
 * the host, unless another process has them. */
double reference_element(struct reference *reference, size_t argument, int64_t index,
                         void **arguments);

struct expectation {
  size_t n;
  int64_t *indices; /* rising */
  double *values;
};

/* Computes the first and the last elements and random ones, `samples` in all (0: every element). */
void expectation_compute(struct reference *reference, size_t argument, int64_t elements,
                         int64_t samples, uint64_t seed, void **arguments,
                         struct expectation *ret_expectation);
void expectation_release(struct expectation *expectation);

#endif
