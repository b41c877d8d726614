/* Which elements of two buffers differ by more than they may. */
#include <criterion/criterion.h>
#include <math.h>

#include "agent/measure/element.h"

enum { ELEMENTS = 5000 };

static const enum dtype all[] = {
#define X(name, enumerator, size, c_type) enumerator,
    DTYPES(X)
#undef X
};
static const enum dtype floats[] = {DTYPE_FLOAT16, DTYPE_BFLOAT16, DTYPE_FLOAT32, DTYPE_FLOAT64};

struct pair {
  double a[ELEMENTS], b[ELEMENTS]; /* room for the largest type */
};

static struct pair *pair_of(enum dtype dtype, double value) {
  struct pair *pair = xcalloc(1, sizeof *pair);
  for (int64_t i = 0; i < ELEMENTS; i++) {
    element_set(dtype, pair->a, i, value);
    element_set(dtype, pair->b, i, value);
  }
  return pair;
}

Test(elements, the_first_difference_is_found_at_any_place) {
  static const int64_t places[] = {0, 1, 1023, 1024, 4097, ELEMENTS - 1};
  for (size_t i = 0; i < ARRAY_LENGTH(all); i++) {
    for (size_t k = 0; k < ARRAY_LENGTH(places); k++) {
      struct pair *pair = pair_of(all[i], 1);
      cr_assert_eq(elements_far(all[i], pair->a, pair->b, 0, ELEMENTS, 0, 0), -1, "%s",
                   dtype_name(all[i]));
      element_set(all[i], pair->b, places[k], 0);
      cr_assert_eq(elements_far(all[i], pair->a, pair->b, 0, ELEMENTS, 0.5, 0), places[k], "%s",
                   dtype_name(all[i]));
      cr_assert_eq(
          elements_far(all[i], pair->a, pair->b, places[k] + 1, ELEMENTS - 1 - places[k], 0.5, 0),
          -1);
      cr_assert_eq(elements_far(all[i], pair->a, pair->b, 0, places[k], 0.5, 0), -1);
      free(pair);
    }
  }
}

Test(elements, a_difference_as_large_as_the_tolerance_is_near) {
  for (size_t i = 0; i < ARRAY_LENGTH(floats); i++) {
    struct pair *pair = pair_of(floats[i], 4);
    for (int64_t k = 0; k < ELEMENTS; k++)
      element_set(floats[i], pair->b, k, k % 2 ? 4.5 : 3.5);
    cr_expect_eq(elements_far(floats[i], pair->a, pair->b, 0, ELEMENTS, 0.5, 0), -1, "%s",
                 dtype_name(floats[i]));
    cr_expect_eq(elements_far(floats[i], pair->a, pair->b, 0, ELEMENTS, 0.25, 0.0625), -1, "%s",
                 dtype_name(floats[i]));
    cr_expect_eq(elements_far(floats[i], pair->a, pair->b, 0, ELEMENTS, 0.25, 0), 0, "%s",
                 dtype_name(floats[i]));
    free(pair);
  }
}

Test(elements, nan_and_infinity_are_near_only_themselves) {
  static const double values[] = {NAN, INFINITY, -INFINITY, 1};
  for (size_t i = 0; i < ARRAY_LENGTH(floats); i++) {
    for (size_t a = 0; a < ARRAY_LENGTH(values); a++) {
      for (size_t b = 0; b < ARRAY_LENGTH(values); b++) {
        struct pair *pair = pair_of(floats[i], 1);
        element_set(floats[i], pair->a, 7, values[a]);
        element_set(floats[i], pair->b, 7, values[b]);
        element_set(floats[i], pair->b, 8,
                    1.25); /* near: but the block is not equal, and is compared */
        cr_expect_eq(elements_far(floats[i], pair->a, pair->b, 0, ELEMENTS, 0.5, 0.5),
                     a == b ? -1 : 7, "%s %g %g", dtype_name(floats[i]), values[a], values[b]);
        free(pair);
      }
    }
  }
}

Test(elements, squares_are_summed_of_what_is_finite) {
  static const double others[] = {NAN, INFINITY, -INFINITY};
  for (size_t i = 0; i < ARRAY_LENGTH(floats); i++) {
    struct pair *pair = pair_of(floats[i], -1.5);
    int64_t finite;
    double sum = elements_square_sum(floats[i], pair->a, 3, ELEMENTS - 3, &finite);
    cr_expect_eq(finite, ELEMENTS - 3, "%s", dtype_name(floats[i]));
    cr_expect_eq(sum, 2.25 * (ELEMENTS - 3), "%s: %g", dtype_name(floats[i]), sum);
    for (size_t k = 0; k < ARRAY_LENGTH(others); k++)
      element_set(floats[i], pair->a, (int64_t)(1500 * (k + 1)), others[k]);
    sum = elements_square_sum(floats[i], pair->a, 0, ELEMENTS, &finite);
    cr_expect_eq(finite, ELEMENTS - 3, "%s", dtype_name(floats[i]));
    cr_expect_eq(sum, 2.25 * (ELEMENTS - 3), "%s: %g", dtype_name(floats[i]), sum);
    free(pair);
  }
}
