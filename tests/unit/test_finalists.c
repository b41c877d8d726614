/* The choice of the finalists from the screen. */
#include "common/verdict/finalists.h"

#include <criterion/criterion.h>

Test(finalists, are_those_with_the_least_ratios_in_order_of_ordinals) {
  const double ratios[] = {0.93, 0.9, 0.94, 0.92};
  const uint64_t configs[] = {3, 40, 7, 9};
  uint64_t chosen[2];
  cr_assert_eq(finalists_choose(ratios, NULL, configs, 4, NULL, 0, 2, chosen), 2);
  cr_expect_eq(chosen[0], 9);
  cr_expect_eq(chosen[1], 40);
}

Test(finalists, take_the_lower_ordinal_of_equal_ratios) {
  const double ratios[] = {1.0, 1.0, 1.0};
  const uint64_t configs[] = {5, 2, 8};
  uint64_t chosen[1];
  cr_assert_eq(finalists_choose(ratios, NULL, configs, 3, NULL, 0, 1, chosen), 1);
  cr_expect_eq(chosen[0], 2);
}

Test(finalists, leave_out_what_is_behind_the_best_by_more_than_the_span) {
  const double ratios[] = {0.5, 0.534, 0.536};
  const uint64_t configs[] = {0, 1, 2};
  uint64_t chosen[3];
  cr_expect_eq(finalists_choose(ratios, NULL, configs, 3, NULL, 0, 3, chosen), 2);
}

Test(finalists, hold_what_is_always_kept_however_slow_it_is) {
  const double ratios[] = {0.5, 0.51, 0.52, 1.0, 3.0};
  const uint64_t configs[] = {4, 3, 2, 1, 0}, always[] = {0, 1};
  uint64_t chosen[3];
  cr_assert_eq(finalists_choose(ratios, NULL, configs, 5, always, 2, 3, chosen), 3);
  cr_expect(chosen[0] == 0 && chosen[1] == 1 && chosen[2] == 4, "%lu %lu %lu", chosen[0], chosen[1], chosen[2]);
}

Test(finalists, hold_what_is_always_kept_once) {
  const double ratios[] = {0.5, 0.51, 0.52};
  const uint64_t configs[] = {4, 3, 2}, always[] = {4, 3, 3};
  uint64_t chosen[3];
  cr_assert_eq(finalists_choose(ratios, NULL, configs, 3, always, 3, 3, chosen), 3);
  cr_expect(chosen[0] == 2 && chosen[1] == 3 && chosen[2] == 4, "%lu %lu %lu", chosen[0], chosen[1], chosen[2]);
}

Test(finalists, leave_out_what_is_always_kept_but_was_not_measured) {
  const double ratios[] = {0.5};
  const uint64_t configs[] = {4}, always[] = {9};
  uint64_t chosen[2];
  cr_assert_eq(finalists_choose(ratios, NULL, configs, 1, always, 1, 2, chosen), 1);
  cr_expect_eq(chosen[0], 4);
}

Test(finalists, hold_the_best_where_there_is_room_for_one) {
  const double ratios[] = {0.5, 1.0};
  const uint64_t configs[] = {4, 1}, always[] = {1};
  uint64_t chosen[1];
  cr_assert_eq(finalists_choose(ratios, NULL, configs, 2, always, 1, 1, chosen), 1);
  cr_expect_eq(chosen[0], 4);
}

/* Config 7 left in a slow round of the baseline; so did a crowd that would fill the final. */
Test(finalists, are_not_measured_by_what_left_its_race_early) {
  const double ratios[] = {0.3, 0.31, 0.32, 0.60, 0.61, 0.629};
  const bool left_early[] = {true, true, true, false, false, true};
  const uint64_t configs[] = {7, 8, 9, 1, 2, 3};
  uint64_t chosen[6];
  cr_assert_eq(finalists_choose(ratios, left_early, configs, 6, NULL, 0, 2, chosen), 2);
  cr_expect(chosen[0] == 1 && chosen[1] == 2, "%lu %lu", chosen[0], chosen[1]);
  cr_expect_eq(finalists_choose(ratios, left_early, configs, 6, NULL, 0, 6, chosen), 6);
}

Test(finalists, are_of_what_left_early_where_nothing_stayed) {
  const double ratios[] = {0.5, 0.4, 0.6};
  const bool left_early[] = {true, true, true};
  const uint64_t configs[] = {1, 2, 3};
  uint64_t chosen[3];
  cr_expect_eq(finalists_choose(ratios, left_early, configs, 3, NULL, 0, 3, chosen), 1);
  cr_expect_eq(chosen[0], 2);
}

Test(finalists, are_none_of_none) {
  uint64_t chosen[1];
  cr_expect_eq(finalists_choose(NULL, NULL, NULL, 0, NULL, 0, 1, chosen), 0);
}
