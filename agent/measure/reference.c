/* References: a shared object of the host, and the elements that it is asked for.
 *
 * Memory: see reference.h. Threads: one. */
#include "agent/measure/reference.h"

#include <dlfcn.h>

#include "agent/measure/team.h"
#include "common/base/rng.h"

#define SAMPLES_AT_ONCE 16 /* of a thread */

struct reference {
  void *object;
  double (*element)(int argument, int64_t index, void **arguments);
};

bool reference_load(const char *object, struct reference **ret_reference, struct error *error) {
  void *handle = dlopen(object, RTLD_NOW | RTLD_LOCAL);
  if (!handle)
    return error_set(error, "cannot load the reference: %s", dlerror());
  void *element = dlsym(handle, "wavetune_reference");
  if (!element) {
    dlclose(handle);
    return error_set(error, "cannot load the reference: its object has no wavetune_reference; compile it again");
  }
  struct reference *reference = xmalloc(sizeof *reference);
  reference->object = handle;
  memcpy(&reference->element, &element, sizeof element);
  *ret_reference = reference;
  return true;
}

void reference_free(struct reference *reference) {
  dlclose(reference->object);
  free(reference);
}

double reference_element(const struct reference *reference, size_t argument, int64_t index, void **arguments) {
  return reference->element((int)argument, index, arguments);
}

static int by_index(const void *a, const void *b) {
  int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
  return (left > right) - (left < right);
}

/* Samples of one output, which a team computes. */
struct sampling {
  const struct reference *reference;
  size_t argument;
  void **arguments;
  struct expectation *expectation;
};

static void samples_compute(void *context, size_t item) {
  const struct sampling *sampling = context;
  struct expectation *expectation = sampling->expectation;
  size_t end = (item + 1) * SAMPLES_AT_ONCE;
  for (size_t i = item * SAMPLES_AT_ONCE; i < end && i < expectation->n; i++)
    expectation->values[i] =
        reference_element(sampling->reference, sampling->argument, expectation->indices[i], sampling->arguments);
}

void expectation_compute(const struct reference *reference, size_t argument, int64_t elements, int64_t samples,
                         uint64_t seed, void **arguments, struct expectation *ret_expectation) {
  bool is_all = samples == 0 || elements <= samples || elements <= 2 * REFERENCE_EDGE;
  size_t n = (size_t)(is_all ? elements : samples > 2 * REFERENCE_EDGE ? samples : 2 * REFERENCE_EDGE);
  struct expectation expectation = {n, xcalloc(n, sizeof(int64_t)), xcalloc(n, sizeof(double))};
  struct rng rng = rng_seeded(seed ^ (0xe7037ed1a0b428dbu * (argument + 1)));
  for (size_t i = 0; i < n; i++) {
    int64_t k = (int64_t)i;
    if (is_all || k < REFERENCE_EDGE)
      expectation.indices[i] = k;
    else if (k < 2 * REFERENCE_EDGE)
      expectation.indices[i] = elements - 2 * REFERENCE_EDGE + k;
    else
      expectation.indices[i] = REFERENCE_EDGE + (int64_t)rng_below(&rng, (uint64_t)(elements - 2 * REFERENCE_EDGE));
  }
  qsort(expectation.indices, n, sizeof *expectation.indices, by_index);
  struct sampling sampling = {reference, argument, arguments, &expectation};
  /* Twice as many as fill and compare: a reference may take a hundred times as long, and no device is at work yet. */
  team_run(2 * team_size(), (n + SAMPLES_AT_ONCE - 1) / SAMPLES_AT_ONCE, samples_compute, &sampling);
  *ret_expectation = expectation;
}

void expectation_release(struct expectation *expectation) {
  free(expectation->indices);
  free(expectation->values);
}
