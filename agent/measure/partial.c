/* Partial sums, compared column by column. */
#include "agent/measure/partial.h"

#include <math.h>

#include "agent/measure/element.h"

static bool is_written(const struct partial *partial, const void *bytes, int64_t k) {
  size_t size = dtype_size(partial->argument->dtype), at = (size_t)k * size;
  return memcmp((const char *)bytes + at, (const char *)partial->before + at, size) != 0;
}

double partial_rms(const struct partial *partial) {
  double sum = 0;
  int64_t n = 0;
  for (int64_t k = 0; k < partial->elements; k++) {
    double value = element_get(partial->argument->dtype, partial->expected, k);
    if (!isfinite(value) || !is_written(partial, partial->expected, k))
      continue;
    sum += value * value;
    n++;
  }
  return n ? sqrt(sum / (double)n) : 0;
}

bool partial_layouts_differ(const struct partial *partial) {
  for (int64_t k = 0; k < partial->elements; k++)
    if (is_written(partial, partial->bytes, k) != is_written(partial, partial->expected, k))
      return true;
  return false;
}

/* Adds what a launch wrote to the sums of columns, or of rows, and squares to `squares`. */
static void sums_add(const struct partial *partial, bool is_of_rows, const void *bytes,
                     double *sums, double *squares) {
  const struct argument *argument = partial->argument;
  for (int64_t k = argument->before; k < partial->elements - argument->after; k++) {
    if (!is_written(partial, bytes, k))
      continue;
    double value = element_get(argument->dtype, bytes, k);
    int64_t element = k - argument->before,
            at = is_of_rows ? element / argument->row : element % argument->row;
    sums[at] += value;
    squares[at] += value * value;
  }
}

static bool sums_agree(const struct partial *partial, bool is_of_rows, struct tolerance tolerance,
                       double noise) {
  const struct argument *argument = partial->argument;
  int64_t own = partial->elements - argument->before - argument->after,
          n = is_of_rows ? own / argument->row : argument->row;
  cleanup_free double *expected = xcalloc((size_t)n, sizeof *expected);
  cleanup_free double *sums = xcalloc((size_t)n, sizeof *sums);
  cleanup_free double *squares = xcalloc((size_t)n, sizeof *squares);
  sums_add(partial, is_of_rows, partial->expected, expected, squares);
  sums_add(partial, is_of_rows, partial->bytes, sums, squares);

  double of_all = 0;
  for (int64_t i = 0; i < n; i++)
    of_all += expected[i] * expected[i] / (double)n;
  double least = tolerance.atol * sqrt(of_all) + noise;
  for (int64_t i = 0; i < n; i++) {
    double allowed = least + tolerance.rtol * sqrt(squares[i]);
    if (!(fabs(sums[i] - expected[i]) <= allowed)) /* NaN and infinity are not */
      return false;
  }
  return true;
}

bool partial_sums_agree(const struct partial *partial, struct tolerance tolerance, double noise) {
  return sums_agree(partial, false, tolerance, noise) ||
         sums_agree(partial, true, tolerance, noise);
}
