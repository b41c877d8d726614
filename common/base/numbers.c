/* Sorting, and selection without sorting. */
#include "common/base/numbers.h"

#include <math.h>

int compare_ordinals(const void *a, const void *b) {
  uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
  return (left > right) - (left < right);
}

int compare_doubles(const void *a, const void *b) {
  double left = *(const double *)a, right = *(const double *)b;
  return (left > right) - (left < right);
}

size_t sort_unique(uint64_t *values, size_t n) {
  size_t n_unique = 0;
  qsort(values, n, sizeof *values, compare_ordinals);
  for (size_t i = 0; i < n; i++)
    if (n_unique == 0 || values[n_unique - 1] != values[i])
      values[n_unique++] = values[i];
  return n_unique;
}

/* Afterwards no value before values[k] is greater and none behind it is less: Hoare's FIND, as
 * Wirth writes it, with random pivots. */
double kth_of(double *values, size_t n, size_t k) {
  struct rng rng = rng_seeded(n);
  ptrdiff_t left = 0, right = (ptrdiff_t)n - 1, wanted = (ptrdiff_t)k;
  while (left < right) {
    double pivot = values[left + (ptrdiff_t)rng_below(&rng, (uint64_t)(right - left) + 1)];
    ptrdiff_t i = left, j = right;

    while (i <= j) {
      while (values[i] < pivot)
        i++;
      while (pivot < values[j])
        j--;
      if (i <= j) {
        double kept = values[i];
        values[i++] = values[j];
        values[j--] = kept;
      }
    }

    if (j < wanted)
      left = i;
    if (wanted < i)
      right = j;
  }
  return values[k];
}

double median_of(double *values, size_t n) {
  size_t low = (n - 1) / 2;
  double median = kth_of(values, n, low);
  if (n % 2 == 1)
    return median;

  double high = values[low + 1];
  for (size_t i = low + 2; i < n; i++)
    high = fmin(high, values[i]);
  return (median + high) / 2;
}
