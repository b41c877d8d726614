/* The choice of the finalists from the screen. */
#include "common/finalists.h"

#include <criterion/criterion.h>

Test(finalists, are_those_with_the_least_ratios_in_order_of_ordinals) {
  const double ratios[] = {1.2, 0.9, 1.0, 0.95};
  const uint64_t configs[] = {3, 40, 7, 9};
  uint64_t chosen[2];
  cr_assert_eq(finalists_choose(ratios, configs, 4, 2, chosen), 2);
  cr_expect_eq(chosen[0], 9);
  cr_expect_eq(chosen[1], 40);
}

Test(finalists, take_the_lower_ordinal_of_equal_ratios) {
  const double ratios[] = {1.0, 1.0, 1.0};
  const uint64_t configs[] = {5, 2, 8};
  uint64_t chosen[1];
  cr_assert_eq(finalists_choose(ratios, configs, 3, 1, chosen), 1);
  cr_expect_eq(chosen[0], 2);
}

Test(finalists, leave_out_what_is_far_behind_the_best) {
  const double ratios[] = {0.5, 0.74, 0.76};
  const uint64_t configs[] = {0, 1, 2};
  uint64_t chosen[3];
  cr_expect_eq(finalists_choose(ratios, configs, 3, 3, chosen), 2);
}

Test(finalists, are_none_of_none) {
  uint64_t chosen[1];
  cr_expect_eq(finalists_choose(NULL, NULL, 0, 1, chosen), 0);
}
