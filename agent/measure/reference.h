/* The host's side of a kernel: its input data from a seed, and its compiled reference with the
 * values of sampled elements of an output.
 *
 * The same argument, extent and seed give the same bytes on every machine with the same libm.
 * The data are random, because equal or zero operands switch fewer bits and run faster at a power
 * limit (ROCm/rocBLAS#1486). A GPU's buffers have billions of elements, so drawing must be cheap:
 * each INPUTS_BLOCK elements have a generator of their own, and a team (element.h) draws them;
 * normal deviates, which take tens of nanoseconds each, are computed for one block, and the other
 * blocks pick from it at random; and in a buffer with more than INPUTS_PERIOD random elements the
 * first INPUTS_PERIOD are repeated. The period is a prime, so that no two rows are equal.
 *
 * A reference is C that runs on the host whatever the device is: agent/compile/launch_source.h. It
 * is called for different elements by several threads at once, and so must keep nothing between
 * calls except in thread-local variables. It is untrusted code, and so runs in a process of its own
 * (agent/worker/worker_open.c), where it can neither hold the clock that times a kernel nor
 * change what is compared: the measuring process only gets its answers, through a socket. Memory:
 * an expectation owns its arrays. Threads: one, which may have a team (element.h). */
#ifndef WAVETUNE_AGENT_MEASURE_REFERENCE_H
#define WAVETUNE_AGENT_MEASURE_REFERENCE_H

#include "common/kernel/segments.h"

#define INPUTS_BLOCK 65536
#define INPUTS_PERIOD 16777259 /* the least prime above 2^24 */
#define REFERENCE_EDGE 64      /* this many first and last elements are always among the samples */

/* Fills a buffer argument of `elements` elements as its manifest states; the bytes of a blob were
 * read before. Arguments of different index get different random data. Elements around a view are
 * as random; a ramp goes on in them, and the first and the last element of another fill that is not
 * random are repeated, so that what steers the work stays within its bounds. */
void inputs_fill(const struct argument *argument, size_t argument_index, int64_t elements,
                 uint64_t seed, void *bytes);
/* The same for a segment; each begins as a buffer of its own would. */
void segment_fill(const struct argument *argument, size_t argument_index,
                  const struct segment *segment, uint64_t seed, void *bytes);

struct reference;
must_check bool reference_load(const char *object, struct reference **ret_reference,
                               struct error *error);
/* A reference in another process; takes the socket. */
must_check struct reference *reference_connect(int socket);
void reference_free(struct reference *reference);

/* Whether its process has ended: later values are NaN. */
bool reference_is_lost(const struct reference *reference);

/* The arguments of a reference: inputs as every process fills them from the same seed,
 * room for outputs, and scalars and segments as the config has them. */
struct reference_host;
struct reference_setup {
  const struct kernel *kernel;
  const struct space *space;
  struct space_facts facts;
  uint64_t config, seed;
};
/* For a reference in this process, before its first element. Does nothing for one in another. */
must_check bool reference_prepare(struct reference *reference, const struct reference_setup *setup,
                                  struct error *error);
must_check bool reference_host_new(const struct reference_setup *setup,
                                   struct reference_host **ret_host, struct error *error);
void reference_host_free(struct reference_host *host);
/* Answers requests through the socket until the other end is closed. */
void reference_serve(const struct reference *reference, const struct reference_host *host,
                     int socket);

/* Element `index` of the output that is argument number `argument`. */
double reference_element(struct reference *reference, size_t argument, int64_t index);

struct expectation {
  size_t n;
  int64_t *indices; /* rising */
  double *values;
};

/* Computes the first and the last elements and random ones, `samples` in all (0: every element). */
void expectation_compute(struct reference *reference, size_t argument, int64_t elements,
                         int64_t samples, uint64_t seed, struct expectation *ret_expectation);
void expectation_release(struct expectation *expectation);

/* Refuses buffers that need more than is available (bytes; 0: not known) of the named memory. */
must_check bool memory_suffices(const char *memory, size_t needed, size_t available,
                                struct error *error);

#endif
