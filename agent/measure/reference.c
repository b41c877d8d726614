/* References: a shared object of the host, or a socket to a process that has one, and the elements
 * that it is asked for.
 *
 * Memory: see reference.h. Threads: one. */
#include "agent/measure/reference.h"

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <sys/socket.h>

#include "agent/device/cpu.h"
#include "agent/measure/inputs.h"
#include "agent/measure/scalar.h"
#include "agent/measure/team.h"
#include "common/base/rng.h"

#define SAMPLES_AT_ONCE 16 /* of a thread */

struct reference {
  int socket; /* -1: the object is in this process */
  bool is_lost;
  void *object;
  double (*element)(int argument, int64_t index, void **arguments);
};

struct reference_host {
  size_t n;
  void *pointers[KERNEL_ARGUMENTS_MAX], *arguments[KERNEL_ARGUMENTS_MAX];
  uint64_t scalars[KERNEL_ARGUMENTS_MAX];
};

/* A buffer's size in bytes is added up, so that too large a key is refused before any memory is
 * taken. */
static bool buffers_size(const struct kernel *kernel, const struct scope *scope, int64_t *elements,
                         struct error *error) {
  size_t bytes = 0, there_is = cpu_memory_free();
  for (size_t i = 0; i < kernel->n_arguments; i++) {
    const struct argument *argument = &kernel->arguments[i];
    if (argument->is_buffer && !argument_elements(argument, scope, &elements[i], error))
      return false;
    bytes += argument->is_buffer ? (size_t)elements[i] * dtype_size(argument->dtype) : 0;
  }
  return !there_is || bytes <= there_is ||
         error_set(error,
                   "its buffers need %.2f GiB of memory for the reference and %.2f GiB are free; "
                   "choose a smaller key",
                   (double)bytes / (1 << 30), (double)there_is / (1 << 30));
}

static bool scopes_fill(const struct key *key, const struct space *space, uint64_t config,
                        const char *gpu_name, const char *arch, struct scope *shared,
                        struct scope *of_config, struct error *error) {
  struct scope *const scopes[] = {shared, of_config};
  for (size_t i = 0; i < ARRAY_LENGTH(scopes); i++) {
    if (!key_scope_add(key, scopes[i], error) ||
        !scope_add(scopes[i], "gpu_name", value_string(gpu_name), error) ||
        !scope_add(scopes[i], "arch", value_string(arch), error))
      return false;
  }
  return space_scope_add(space, config, of_config, error);
}

bool reference_host_new(const struct kernel *kernel, const struct key *key,
                        const struct space *space, uint64_t config, const char *gpu_name,
                        const char *arch, uint64_t seed, struct reference_host **ret_host,
                        struct error *error) {
  struct scope shared = {0}, of_config = {0};
  int64_t elements[KERNEL_ARGUMENTS_MAX] = {0};
  if (!scopes_fill(key, space, config, gpu_name, arch, &shared, &of_config, error) ||
      !buffers_size(kernel, &shared, elements, error))
    return false;
  struct reference_host *host = xcalloc(1, sizeof *host);
  host->n = kernel->n_arguments;
  for (size_t i = 0; i < kernel->n_arguments; i++) {
    const struct argument *argument = &kernel->arguments[i];
    host->arguments[i] =
        argument->is_buffer ? (void *)&host->pointers[i] : (void *)&host->scalars[i];
    if (!argument->is_buffer && !scalar_store(argument, &of_config, &host->scalars[i], error)) {
      reference_host_free(host);
      return false;
    }
    if (!argument->is_buffer)
      continue;
    host->pointers[i] = host_memory_new((size_t)elements[i] * dtype_size(argument->dtype));
    if (argument->access != ACCESS_WRITE)
      inputs_fill(argument, i, elements[i], seed, host->pointers[i]);
  }
  *ret_host = host;
  return true;
}

void reference_host_free(struct reference_host *host) {
  for (size_t i = 0; i < host->n; i++)
    free(host->pointers[i]);
  free(host);
}

bool reference_load(const char *object, struct reference **ret_reference, struct error *error) {
  void *handle = dlopen(object, RTLD_NOW | RTLD_LOCAL);
  if (!handle)
    return error_set(error, "cannot load the reference: %s", dlerror());
  void *element = dlsym(handle, "wavetune_reference");
  if (!element) {
    dlclose(handle);
    return error_set(
        error, "cannot load the reference: its object has no wavetune_reference; compile it again");
  }
  struct reference *reference = xcalloc(1, sizeof *reference);
  reference->socket = -1;
  reference->object = handle;
  memcpy(&reference->element, &element, sizeof element);
  *ret_reference = reference;
  return true;
}

struct reference *reference_connect(int socket) {
  struct reference *reference = xcalloc(1, sizeof *reference);
  reference->socket = socket;
  return reference;
}

void reference_free(struct reference *reference) {
  if (reference->socket >= 0)
    close(reference->socket);
  else
    dlclose(reference->object);
  free(reference);
}

bool reference_is_lost(const struct reference *reference) { return reference->is_lost; }

static int by_index(const void *a, const void *b) {
  int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
  return (left > right) - (left < right);
}

/* Elements of one output, which a team computes. */
struct sampling {
  const struct reference *reference;
  size_t argument, n;
  void **arguments;
  const int64_t *indices;
  double *values;
};

static void samples_compute(void *context, size_t item) {
  const struct sampling *sampling = context;
  size_t end = (item + 1) * SAMPLES_AT_ONCE;
  for (size_t i = item * SAMPLES_AT_ONCE; i < end && i < sampling->n; i++)
    sampling->values[i] = sampling->reference->element((int)sampling->argument,
                                                       sampling->indices[i], sampling->arguments);
}

static void elements_compute(const struct sampling *sampling) {
  /* Twice as many as fill and compare: a reference may take a hundred times as long, and no device
   * is at work yet. */
  team_run(2 * team_size(), (sampling->n + SAMPLES_AT_ONCE - 1) / SAMPLES_AT_ONCE, samples_compute,
           (void *)sampling);
}

/* What is asked through a socket: this, then the indices. The answer: as many values. */
struct question {
  uint32_t argument, n;
};
#define QUESTION_MAX 4096

static bool bytes_receive(int socket, void *bytes, size_t size) {
  return recv(socket, bytes, size, MSG_WAITALL) == (ssize_t)size;
}

static bool bytes_send(int socket, const void *bytes, size_t size) {
  for (size_t sent = 0; sent < size;) {
    ssize_t n = send(socket, (const char *)bytes + sent, size - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return false;
    sent += (size_t)n;
  }
  return true;
}

static bool elements_ask(int socket, const struct sampling *sampling) {
  for (size_t at = 0, n; at < sampling->n; at += n) {
    n = sampling->n - at < QUESTION_MAX ? sampling->n - at : QUESTION_MAX;
    struct question question = {(uint32_t)sampling->argument, (uint32_t)n};
    if (!bytes_send(socket, &question, sizeof question) ||
        !bytes_send(socket, sampling->indices + at, n * sizeof *sampling->indices) ||
        !bytes_receive(socket, sampling->values + at, n * sizeof *sampling->values))
      return false;
  }
  return true;
}

static void elements_get(struct reference *reference, const struct sampling *sampling) {
  if (reference->socket < 0) {
    elements_compute(sampling);
    return;
  }
  reference->is_lost = reference->is_lost || !elements_ask(reference->socket, sampling);
  for (size_t i = 0; i < sampling->n && reference->is_lost; i++)
    sampling->values[i] = NAN;
}

double reference_element(struct reference *reference, size_t argument, int64_t index,
                         void **arguments) {
  double value;
  struct sampling sampling = {reference, argument, 1, arguments, &index, &value};
  elements_get(reference, &sampling);
  return value;
}

void reference_serve(const struct reference *reference, const struct reference_host *host,
                     int socket) {
  struct question question;
  int64_t indices[QUESTION_MAX];
  double values[QUESTION_MAX];
  while (bytes_receive(socket, &question, sizeof question) && question.n <= QUESTION_MAX &&
         question.argument < KERNEL_ARGUMENTS_MAX &&
         bytes_receive(socket, indices, question.n * sizeof *indices)) {
    struct sampling sampling = {
        reference, question.argument, question.n, (void **)host->arguments, indices, values};
    elements_compute(&sampling);
    if (!bytes_send(socket, values, question.n * sizeof *values))
      return;
  }
}

void expectation_compute(struct reference *reference, size_t argument, int64_t elements,
                         int64_t samples, uint64_t seed, void **arguments,
                         struct expectation *ret_expectation) {
  bool is_all = samples == 0 || elements <= samples || elements <= 2 * REFERENCE_EDGE;
  size_t n = (size_t)(is_all                         ? elements
                      : samples > 2 * REFERENCE_EDGE ? samples
                                                     : 2 * REFERENCE_EDGE);
  struct expectation expectation = {n, xcalloc(n, sizeof(int64_t)), xcalloc(n, sizeof(double))};
  struct rng rng = rng_seeded(seed ^ (0xe7037ed1a0b428dbu * (argument + 1)));
  for (size_t i = 0; i < n; i++) {
    int64_t k = (int64_t)i;
    if (is_all || k < REFERENCE_EDGE)
      expectation.indices[i] = k;
    else if (k < 2 * REFERENCE_EDGE)
      expectation.indices[i] = elements - 2 * REFERENCE_EDGE + k;
    else
      expectation.indices[i] =
          REFERENCE_EDGE + (int64_t)rng_below(&rng, (uint64_t)(elements - 2 * REFERENCE_EDGE));
  }
  qsort(expectation.indices, n, sizeof *expectation.indices, by_index);
  struct sampling sampling = {reference,           argument,          n, arguments,
                              expectation.indices, expectation.values};
  elements_get(reference, &sampling);
  *ret_expectation = expectation;
}

void expectation_release(struct expectation *expectation) {
  free(expectation->indices);
  free(expectation->values);
}
