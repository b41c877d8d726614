/* Seeded fills. Memory: none. Threads: any. */
#include "agent/measure/inputs.h"

#include <math.h>

#include "agent/measure/element.h"
#include "common/rng.h"

/* Box and Muller, "A note on the generation of random normal deviates", 1958: two deviates from two uniforms. */
static void normal_fill(enum dtype dtype, struct rng *rng, int64_t elements, void *bytes) {
  for (int64_t i = 0; i < elements; i += 2) {
    double radius = sqrt(-2 * log(1 - rng_unit(rng))), angle = 2 * M_PI * rng_unit(rng);
    element_set(dtype, bytes, i, radius * cos(angle));
    if (i + 1 < elements)
      element_set(dtype, bytes, i + 1, radius * sin(angle));
  }
}

/* 0, 1, 2, … as far as the type can tell neighbours apart, then again from 0. */
static void index_fill(enum dtype dtype, int64_t elements, void *bytes) {
  int bits = 53;
  if (dtype == DTYPE_BOOL)
    bits = 1;
  else if (dtype == DTYPE_BFLOAT16)
    bits = 8;
  else if (dtype == DTYPE_FLOAT16)
    bits = 11;
  else if (dtype == DTYPE_FLOAT32)
    bits = 24;
  else if (dtype_size(dtype) < 8)
    bits = 8 * (int)dtype_size(dtype) - (dtype == DTYPE_INT8 || dtype == DTYPE_INT16 || dtype == DTYPE_INT32);
  int64_t modulus = (int64_t)1 << bits;
  for (int64_t i = 0; i < elements; i++)
    element_set(dtype, bytes, i, (double)(i % modulus));
}

static void elements_draw(const struct argument *argument, struct rng *rng, int64_t elements, void *bytes) {
  enum dtype dtype = argument->dtype;
  double low = argument->fill_low, high = argument->fill_high;
  if (argument->fill == FILL_NORMAL) {
    normal_fill(dtype, rng, elements, bytes);
    return;
  }
  for (int64_t i = 0; i < elements; i++)
    element_set(dtype, bytes, i,
                argument->fill == FILL_UNIFORM ? low + (high - low) * rng_unit(rng)
                                               : low + (double)rng_below(rng, (uint64_t)(high - low) + 1));
}

/* Repeats the first `period` bytes up to `size`. */
static void bytes_repeat(char *bytes, size_t period, size_t size) {
  for (size_t at = period; at < size; at += period)
    memcpy(bytes + at, bytes, size - at < period ? size - at : period);
}

void inputs_fill(const struct argument *argument, size_t argument_index, int64_t elements, uint64_t seed, void *bytes) {
  struct rng rng = rng_seeded(seed ^ (0xa0761d6478bd642fu * (argument_index + 1)));
  size_t element = dtype_size(argument->dtype);
  int64_t drawn = elements < INPUTS_PERIOD ? elements : INPUTS_PERIOD;
  switch (argument->fill) {
  case FILL_NORMAL:
  case FILL_UNIFORM:
  case FILL_INTEGERS:
    elements_draw(argument, &rng, drawn, bytes);
    bytes_repeat(bytes, (size_t)drawn * element, (size_t)elements * element);
    return;
  case FILL_ZEROS:
    memset(bytes, 0, (size_t)elements * element);
    return;
  case FILL_INDEX:
    index_fill(argument->dtype, elements, bytes);
    return;
  }
}
