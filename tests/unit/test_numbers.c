/* Comparisons; the k-th value and medians, compared with sorting. */
#include "common/base/numbers.h"

#include <criterion/criterion.h>

Test(numbers, comparisons_are_right_over_the_whole_range) {
  uint64_t ordinals[] = {UINT64_MAX, 0, UINT64_C(1) << 63, 1, 0};
  double doubles[] = {1e-300, -1, 0, 1e300, -1e300, 0};
  qsort(ordinals, ARRAY_LENGTH(ordinals), sizeof *ordinals, compare_ordinals);
  qsort(doubles, ARRAY_LENGTH(doubles), sizeof *doubles, compare_doubles);
  for (size_t i = 1; i < ARRAY_LENGTH(ordinals); i++)
    cr_expect_leq(ordinals[i - 1], ordinals[i]);
  for (size_t i = 1; i < ARRAY_LENGTH(doubles); i++)
    cr_expect_leq(doubles[i - 1], doubles[i]);
  cr_expect_eq(compare_ordinals(&ordinals[0], &ordinals[1]), 0);
}

Test(numbers, the_kth_value_and_the_median_are_those_of_sorted_values) {
  struct rng rng = rng_seeded(7);
  for (size_t n = 1; n <= 40; n++) {
    double values[40], sorted[40];
    for (size_t i = 0; i < n; i++)
      values[i] = sorted[i] = (double)rng_below(&rng, 12) / 4; /* with ties */
    qsort(sorted, n, sizeof *sorted, compare_doubles);
    cr_expect_eq(median_of(values, n), (sorted[(n - 1) / 2] + sorted[n / 2]) / 2, "of %zu", n);
    for (size_t k = 0; k < n; k++)
      cr_expect_eq(kth_of(values, n, k), sorted[k], "%zu of %zu", k, n);
  }
}

Test(numbers, sort_unique_sorts_and_removes_duplicates) {
  uint64_t values[] = {7, UINT64_MAX, 1, 7, 0, 1};
  static const uint64_t expected[] = {0, 1, 7, UINT64_MAX};
  cr_assert_eq(sort_unique(values, 6), 4);
  cr_expect_arr_eq(values, expected, sizeof expected);
  cr_expect_eq(sort_unique(values, 0), 0);
}
