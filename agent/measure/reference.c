/* Input data; and references: a shared object of the host, or a socket to a process that has one,
 * and the elements that they compute. */
#include "agent/measure/reference.h"

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <sys/socket.h>

#include "agent/device/device.h"
#include "agent/measure/element.h"
#include "agent/measure/float8.h"
#include "agent/measure/launch.h"
#include "agent/measure/routing.h"
#include "common/base/numbers.h"
#include "common/kernel/kernel_case.h"

#define SAMPLES_AT_ONCE 16 /* of a thread */

struct reference {
  int socket; /* -1: the object is in this process */
  bool is_lost;
  void *object;
  double (*element)(int argument, int64_t index, void **arguments);
  struct reference_host *host; /* of an object in this process, once it is prepared */
};

struct reference_host {
  size_t n;
  void *buffers[KERNEL_ARGUMENTS_MAX]; /* of the arguments that have one */
  void *pointers[KERNEL_ARGUMENTS_MAX], *arguments[KERNEL_ARGUMENTS_MAX];
  uint64_t scalars[KERNEL_ARGUMENTS_MAX];
};

/* Box and Muller, "A note on the generation of random normal deviates", 1958: two deviates from two
 * uniforms. */
static void normal_fill(enum dtype dtype, struct rng *rng, double scale, int64_t elements,
                        void *bytes) {
  for (int64_t i = 0; i < elements; i += 2) {
    double radius = scale * sqrt(-2 * log(1 - rng_unit(rng))), angle = 2 * M_PI * rng_unit(rng);
    element_set(dtype, bytes, i, radius * cos(angle));
    if (i + 1 < elements)
      element_set(dtype, bytes, i + 1, radius * sin(angle));
  }
}

/* How many integers from 0 on the type holds exactly, at most 2^53. */
static int64_t index_modulus(enum dtype dtype) {
  int bits = 53;
  if (dtype == DTYPE_BOOL)
    bits = 1;
  else if (dtype == DTYPE_BFLOAT16)
    bits = 8;
  else if (dtype == DTYPE_FLOAT16)
    bits = 11;
  else if (dtype == DTYPE_FLOAT32)
    bits = 24;
  else if (dtype_is_float8(dtype))
    bits = float8_integer_bits(dtype);
  else if (dtype_size(dtype) < 8)
    bits = 8 * (int)dtype_size(dtype) -
           (dtype == DTYPE_INT8 || dtype == DTYPE_INT16 || dtype == DTYPE_INT32);
  return (int64_t)1 << bits;
}

/* A buffer that is filled block by block. */
struct filling {
  const struct argument *argument;
  uint64_t seed;
  int64_t elements;
  char *bytes;
};

/* Sets each of `n` elements to a random one of the first block. */
#define DEFINE_PICK(name, type)                                                                    \
  static void name(struct rng *rng, const void *block, int64_t n, void *elements) {                \
    for (int64_t i = 0; i < n; i += 4) {                                                           \
      uint64_t bits = rng_next(rng);                                                               \
      for (int64_t k = 0; k < 4 && i + k < n; k++)                                                 \
        ((type *)elements)[i + k] = ((const type *)block)[bits >> 16 * k & (INPUTS_BLOCK - 1)];    \
    }                                                                                              \
  }
_Static_assert(INPUTS_BLOCK == 1 << 16, "a pick takes 16 bits");
DEFINE_PICK(pick_8, uint8_t)
DEFINE_PICK(pick_16, uint16_t)
DEFINE_PICK(pick_32, uint32_t)
DEFINE_PICK(pick_64, uint64_t)

/* Element `index` of `elements` that rise from the fill's low end to its high end: each is drawn
 * from its own part of the range. */
static double sorted_value(const struct argument *argument, int64_t index, int64_t elements,
                           double drawn) {
  double low = argument->fill.low, high = argument->fill.high;
  if (index == 0)
    return low;
  if (index == elements - 1)
    return high;
  double value = low + floor((high - low + 1) * (((double)index + drawn) / (double)elements));
  return value < high ? value : high;
}

/* A mix of the bits of a number (David Stafford, "Better Bit Mixing", 2011, variant 13). */
static uint64_t mixed(uint64_t bits) {
  bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9u;
  bits = (bits ^ bits >> 27) * 0x94d049bb133111ebu;
  return bits ^ bits >> 31;
}

/* Element `index` of permutations of 0 to n - 1, one after another. A Feistel network permutes the
 * numbers of an even number of bits; those from n on are permuted again until one is below n
 * (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002). No table is needed, and
 * blocks are filled by several threads. */
static uint64_t permuted(uint64_t index, uint64_t n, uint64_t seed) {
  int half = 1;
  while (half < 31 && n > (uint64_t)1 << 2 * half)
    half++;
  uint64_t mask = ((uint64_t)1 << half) - 1, value = index % n,
           key = seed + index / n * 0x9e3779b97f4a7c15u;
  do {
    uint64_t left = value >> half, right = value & mask;
    for (uint64_t round = 0; round < 4; round++) {
      uint64_t next = (left ^ mixed(mixed(key + round) ^ right)) & mask;
      left = right;
      right = next;
    }
    value = left << half | right;
  } while (value >= n);
  return value;
}

/* Element `index` of a fill whose elements are independent of each other, but for a block's
 * generator. */
static double drawn_value(const struct filling *filling, struct rng *rng, int64_t index) {
  const struct argument *argument = filling->argument;
  double low = argument->fill.low, high = argument->fill.high;
  switch (argument->fill.kind) {
  case FILL_UNIFORM:
    return low + (high - low) * rng_unit(rng);

  case FILL_INTEGERS:
    return low + (double)rng_below(rng, (uint64_t)(high - low) + 1);

  case FILL_INDEX:
    return (double)(index % index_modulus(argument->dtype));

  case FILL_SORTED:
    return sorted_value(argument, index, filling->elements, rng_unit(rng));

  case FILL_RAMP:
    return low + (double)index * high;

  case FILL_PERMUTATION:
    return (double)permuted((uint64_t)index, (uint64_t)low, filling->seed);

  default: /* FILL_CONSTANT; others are not drawn by element */
    return low;
  }
}

/* Draws block number `item`. */
static void block_fill(void *context, size_t item) {
  const struct filling *filling = context;
  const struct fill *fill = &filling->argument->fill;
  enum dtype dtype = filling->argument->dtype;
  size_t size = dtype_size(dtype);
  int64_t first = (int64_t)item * INPUTS_BLOCK, n = filling->elements - first;
  n = n < INPUTS_BLOCK ? n : INPUTS_BLOCK;
  char *elements = filling->bytes + (size_t)first * size;
  struct rng rng = rng_seeded(filling->seed + item * 0xd1342543de82ef95u);
  if (fill->kind == FILL_BLOB)
    memcpy(elements, fill->bytes + (size_t)first * size, (size_t)n * size);
  else if (fill->kind == FILL_NORMAL && first == 0)
    normal_fill(dtype, &rng, fill->scale > 0 ? fill->scale : 1, n, elements);
  else if (fill->kind == FILL_NORMAL)
    (size == 1   ? pick_8
     : size == 2 ? pick_16
     : size == 4 ? pick_32
                 : pick_64)(&rng, filling->bytes, n, elements);
  else
    for (int64_t i = 0; i < n; i++)
      element_set(dtype, elements, i, drawn_value(filling, &rng, first + i));
}

static void later_block_fill(void *context, size_t item) { block_fill(context, item + 1); }

static void view_fill(const struct argument *argument, size_t argument_index, int64_t elements,
                      uint64_t seed, void *bytes) {
  size_t size = (size_t)elements * dtype_size(argument->dtype);
  if (argument->fill.kind == FILL_ZEROS || elements == 0) {
    memset(bytes, 0, size);
    return;
  }

  enum fill_kind kind = argument->fill.kind;
  bool is_drawn = kind == FILL_NORMAL || kind == FILL_UNIFORM || kind == FILL_INTEGERS;
  bool repeats = is_drawn && elements > INPUTS_PERIOD;
  struct rng mixed = rng_seeded(seed ^ (0xa0761d6478bd642fu * (argument_index + 1)));
  struct filling filling = {argument, rng_next(&mixed), repeats ? INPUTS_PERIOD : elements, bytes};
  size_t blocks = (size_t)((filling.elements + INPUTS_BLOCK - 1) / INPUTS_BLOCK);
  block_fill(&filling, 0);
  if (blocks > 1)
    team_run(team_size(), blocks - 1, later_block_fill, &filling);

  size_t period = (size_t)filling.elements * dtype_size(argument->dtype);
  for (size_t at = period; at < size; at += period)
    memcpy((char *)bytes + at, bytes, size - at < period ? size - at : period);
}

/* Element k of a view, which is outside of it. */
static void edge_set(const struct argument *argument, char *view, int64_t elements, int64_t k) {
  const struct fill *fill = &argument->fill;
  int64_t size = (int64_t)dtype_size(argument->dtype);
  if (fill->kind == FILL_RAMP)
    element_set(argument->dtype, view + k * size, 0, fill->low + (double)k * fill->high);
  else
    memcpy(view + k * size, view + (k < 0 ? 0 : elements - 1) * size, (size_t)size);
}

void segment_fill(const struct argument *argument, size_t argument_index,
                  const struct segment *segment, uint64_t seed, void *bytes) {
  if (argument->fill.kind == FILL_ROUTED)
    routing_fill(&segment->routing, argument->dtype, segment->elements, seed, bytes);
  else
    inputs_fill(argument, argument_index, segment->elements, seed, bytes);
}

void inputs_fill(const struct argument *argument, size_t argument_index, int64_t elements,
                 uint64_t seed, void *bytes) {
  static const enum fill_kind of_all[] = {FILL_NORMAL, FILL_UNIFORM, FILL_INTEGERS, FILL_ZEROS,
                                          FILL_CONSTANT};
  list_foreach (kind, of_all)
    if (argument->fill.kind == *kind) {
      view_fill(argument, argument_index, elements, seed, bytes);
      return;
    }

  char *view = (char *)bytes + argument_offset(argument);
  int64_t own = elements - argument->before - argument->after;
  view_fill(argument, argument_index, own, seed, view);
  for (int64_t k = 1; k <= argument->before; k++)
    edge_set(argument, view, own, -k);
  for (int64_t k = 0; k < argument->after; k++)
    edge_set(argument, view, own, own + k);
}

bool memory_suffices(const char *memory, size_t needed, size_t available, struct error *error) {
  return !available || needed <= available ||
         error_set(error,
                   "its buffers need %.2f GiB of %s and %.2f GiB are free; choose a smaller key",
                   (double)needed / (1 << 30), memory, (double)available / (1 << 30));
}

bool reference_host_new(const struct reference_setup *setup, struct reference_host **ret_host,
                        struct error *error) {
  const struct kernel *kernel = setup->kernel;
  struct scope of_config = {0};
  struct segment passed[KERNEL_ARGUMENTS_MAX] = {0};
  size_t bytes = 0;
  if (!facts_scope_add(&setup->facts, &of_config, error) ||
      !space_scope_add(setup->space, setup->config, &of_config, error))
    return false;

  /* Too large a key is refused before any memory is taken. */
  for (size_t i = 0; i < kernel->n_arguments; i++) {
    const struct argument *argument = &kernel->arguments[i];
    cleanup_segments struct segments segments = {0};
    const char *text;
    if (!argument_has_buffer(argument))
      continue;
    if (!segments_find(argument, setup->space, &setup->facts, &segments, &text, error))
      return false;
    passed[i] = segments.all[segment_of(argument, &segments, setup->space, setup->config)];
    bytes += (size_t)passed[i].elements * dtype_size(argument->dtype);
  }

  if (!memory_suffices("memory for the reference", bytes, cpu_memory_available(), error))
    return false;

  struct reference_host *host = xcalloc(1, sizeof *host);
  host->n = kernel->n_arguments;
  for (size_t i = 0; i < kernel->n_arguments; i++) {
    const struct argument *argument = &kernel->arguments[i];
    if (argument_has_buffer(argument)) {
      host->buffers[i] = host_memory_new((size_t)passed[i].elements * dtype_size(argument->dtype));
      if (argument->access != ACCESS_WRITE)
        segment_fill(argument, i, &passed[i], setup->seed, host->buffers[i]);
      continue;
    }
    if (argument->is_buffer)
      continue;
    host->arguments[i] = &host->scalars[i];
    if (!scalar_store(argument, &of_config, &host->scalars[i], error)) {
      reference_host_free(host);
      return false;
    }
  }

  for (size_t i = 0; i < kernel->n_arguments; i++) {
    char *buffer = host->buffers[argument_owner(kernel, i)];
    if (!kernel->arguments[i].is_buffer)
      continue;
    host->pointers[i] = buffer + argument_offset(&kernel->arguments[i]);
    host->arguments[i] = &host->pointers[i];
  }
  *ret_host = host;
  return true;
}

void reference_host_free(struct reference_host *host) {
  array_foreach (buffer, host->buffers, host->n)
    free(*buffer);
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
  DISCARD(reference->host, reference_host_free);
  free(reference);
}

bool reference_prepare(struct reference *reference, const struct reference_setup *setup,
                       struct error *error) {
  return reference->socket >= 0 || reference_host_new(setup, &reference->host, error);
}

bool reference_is_lost(const struct reference *reference) { return reference->is_lost; }

/* Elements of one output, which a team computes. */
struct sampling {
  const struct reference *reference;
  const struct reference_host *host;
  size_t argument, n;
  const int64_t *indices;
  double *values;
};

static void samples_compute(void *context, size_t item) {
  const struct sampling *sampling = context;
  size_t end = (item + 1) * SAMPLES_AT_ONCE;
  for (size_t i = item * SAMPLES_AT_ONCE; i < end && i < sampling->n; i++)
    sampling->values[i] = sampling->reference->element(
        (int)sampling->argument, sampling->indices[i], (void **)sampling->host->arguments);
}

static void elements_compute(const struct sampling *sampling) {
  /* Twice as many as fill and compare: a reference may take a hundred times as long, and no device
   * is at work yet. */
  team_run(2 * team_size(), (sampling->n + SAMPLES_AT_ONCE - 1) / SAMPLES_AT_ONCE, samples_compute,
           (void *)sampling);
}

/* A request through the socket: this, then the indices. The answer: as many values. */
struct element_request {
  uint32_t argument, n;
};
#define REQUEST_ELEMENTS_MAX 4096

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

static bool elements_request(int socket, const struct sampling *sampling) {
  for (size_t at = 0, n; at < sampling->n; at += n) {
    n = sampling->n - at < REQUEST_ELEMENTS_MAX ? sampling->n - at : REQUEST_ELEMENTS_MAX;
    struct element_request request = {(uint32_t)sampling->argument, (uint32_t)n};
    if (!bytes_send(socket, &request, sizeof request) ||
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
  reference->is_lost = reference->is_lost || !elements_request(reference->socket, sampling);
  for (size_t i = 0; i < sampling->n && reference->is_lost; i++)
    sampling->values[i] = NAN;
}

double reference_element(struct reference *reference, size_t argument, int64_t index) {
  double value;
  elements_get(reference,
               &(struct sampling){reference, reference->host, argument, 1, &index, &value});
  return value;
}

void reference_serve(const struct reference *reference, const struct reference_host *host,
                     int socket) {
  struct element_request request;
  int64_t indices[REQUEST_ELEMENTS_MAX];
  double values[REQUEST_ELEMENTS_MAX];

  while (bytes_receive(socket, &request, sizeof request) && request.n <= REQUEST_ELEMENTS_MAX &&
         request.argument < KERNEL_ARGUMENTS_MAX &&
         bytes_receive(socket, indices, request.n * sizeof *indices)) {
    struct sampling sampling = {reference, host, request.argument, request.n, indices, values};
    elements_compute(&sampling);
    if (!bytes_send(socket, values, request.n * sizeof *values))
      return;
  }
}

void expectation_compute(struct reference *reference, size_t argument, int64_t elements,
                         int64_t samples, uint64_t seed, struct expectation *ret_expectation) {
  bool is_all = samples == 0 || elements <= samples || elements <= 2 * REFERENCE_EDGE;
  int64_t least = samples > 2 * REFERENCE_EDGE ? samples : 2 * REFERENCE_EDGE;
  size_t n = (size_t)(is_all ? elements : least);
  struct expectation expectation = {n, xcalloc(n, sizeof(int64_t)), xcalloc(n, sizeof(double))};
  struct rng rng = rng_seeded(seed ^ (0xe7037ed1a0b428dbu * (argument + 1)));
  for (size_t i = 0; i < n; i++) {
    int64_t k = (int64_t)i;
    if (!is_all && k >= 2 * REFERENCE_EDGE)
      k = REFERENCE_EDGE + (int64_t)rng_below(&rng, (uint64_t)(elements - 2 * REFERENCE_EDGE));
    else if (!is_all && k >= REFERENCE_EDGE)
      k += elements - 2 * REFERENCE_EDGE;
    expectation.indices[i] = k;
  }

  qsort(expectation.indices, n, sizeof *expectation.indices, compare_ordinals); /* all >= 0 */

  elements_get(reference, &(struct sampling){reference, reference->host, argument, n,
                                             expectation.indices, expectation.values});
  *ret_expectation = expectation;
}

void expectation_release(struct expectation *expectation) {
  free(expectation->indices);
  free(expectation->values);
}
