/* Outputs compared with the values of Triton's interpreter. */
#include "agent/measure/expected.h"

#include <math.h>

#include "agent/measure/element.h"
#include "agent/measure/float8.h"
#include "agent/measure/outputs.h"

#define NEXT_SHARE 20     /* one 8-bit float in so many may be the next value */
#define INTEGER_SHARE 100 /* one integer in so many may differ, where there are floats */

static double tolerance_of_type(enum dtype dtype, bool is_tf32) {
  switch (dtype) {
  case DTYPE_FLOAT16:
    return 8e-3;

  case DTYPE_FLOAT32:
    return is_tf32 ? 1e-2 : 1e-4;

  case DTYPE_FLOAT64:
    return 1e-9;

  default: /* bfloat16, and what 8-bit floats may differ by near zero */
    return 3.2e-2;
  }
}

static double tolerance_of(const struct kernel *kernel, enum dtype dtype) {
  double tolerance = tolerance_of_type(dtype, kernel->is_tf32);
  array_foreach (other, kernel->arguments, kernel->n_arguments) {
    bool is_coarser = other->is_buffer && dtype_is_floating(other->dtype) &&
                      dtype_size(other->dtype) < 4 && dtype_size(dtype) >= 4;
    if (is_coarser)
      tolerance = fmax(tolerance, tolerance_of_type(other->dtype, false));
  }
  return tolerance;
}

/* How an output differs. */
struct difference {
  enum dtype dtype;
  double atol, rtol;
  int64_t n_counted;      /* elements of which only few may differ */
  int64_t element, value; /* the first of those: its index in the output and among the values */
};

/* Whether element k of the output and value i are neither near enough nor counted. */
static bool is_wrong(struct difference *difference, const struct expected_buffer *buffer,
                     const void *bytes, int64_t k, int64_t i) {
  enum dtype dtype = difference->dtype;
  size_t size = dtype_size(dtype);
  const uint8_t *found = (const uint8_t *)bytes + (size_t)k * size,
                *expected = (const uint8_t *)buffer->values + (size_t)i * size;
  if (memcmp(found, expected, size) == 0)
    return false;

  double a = element_get(dtype, bytes, k), b = element_get(dtype, buffer->values, i);
  bool is_near =
      isfinite(a) && isfinite(b) && fabs(a - b) <= difference->atol + difference->rtol * fabs(b);
  if (dtype_is_floating(dtype) && (is_near || a == b || (isnan(a) && isnan(b))))
    return false;

  bool is_next = dtype_is_float8(dtype) && float8_is_next(dtype, *found, *expected);
  if (dtype_is_floating(dtype) && !is_next)
    return true;
  if (difference->n_counted++ == 0) {
    difference->element = k;
    difference->value = i;
  }
  return false;
}

/* Names the element; `why` and the number are why it is refused. */
static bool differs(const struct kernel *kernel, const struct expected_buffer *buffer,
                    const void *bytes, const struct difference *difference, const char *why,
                    double number, struct error *error) {
  enum dtype dtype = difference->dtype;
  return error_set(error, "%s[%lld] is %.9g, Triton's interpreter has %.9g (%s%.3g)",
                   kernel->arguments[buffer->argument].name, (long long)difference->element,
                   element_get(dtype, bytes, difference->element),
                   element_get(dtype, buffer->values, difference->value), why, number);
}

bool expected_agrees(const struct kernel *kernel, const struct expected_buffer *buffer,
                     const void *bytes, double more, struct error *error) {
  enum dtype dtype = kernel->arguments[buffer->argument].dtype;
  double tolerance = tolerance_of(kernel, dtype);
  int64_t n_finite;
  double rms = output_rms(dtype, buffer->values, (int64_t)buffer->n_values, &n_finite);
  struct difference difference = {.dtype = dtype,
                                  .atol = tolerance * rms + more,
                                  .rtol = dtype_is_float8(dtype) ? 0 : tolerance};
  int64_t i = 0;
  for (size_t run = 0; run < buffer->n_runs; run++)
    for (int64_t k = buffer->runs[run].start; k < buffer->runs[run].start + buffer->runs[run].count;
         k++, i++)
      if (is_wrong(&difference, buffer, bytes, k, i)) {
        difference.element = k;
        difference.value = i;
        return differs(
            kernel, buffer, bytes, &difference, "allowed difference ",
            difference.atol + difference.rtol * fabs(element_get(dtype, buffer->values, i)), error);
      }

  bool has_floats = false;
  array_foreach (argument, kernel->arguments, kernel->n_arguments)
    has_floats |= argument->is_buffer && dtype_is_floating(argument->dtype);
  int64_t share = dtype_is_floating(dtype) ? NEXT_SHARE
                  : has_floats             ? INTEGER_SHARE
                                           : 0,
          allowed = share ? (int64_t)buffer->n_values / share : 0;
  return difference.n_counted <= allowed ||
         differs(kernel, buffer, bytes, &difference,
                 "elements that differ: ", (double)difference.n_counted, error);
}
