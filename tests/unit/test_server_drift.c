/* When a device drifts from its own history. */
#include "server/measurement/drift.h"

#include <criterion/criterion.h>

#define MINUTE_US (INT64_C(60) * 1000000)

/* Judges leases with these medians, each at this distance from the one before. */
static struct drift judge(const double *medians_us, size_t n, int64_t apart_us) {
  cleanup_free struct drift_lease *leases = xcalloc(n, sizeof *leases);
  for (size_t i = 0; i < n; i++)
    leases[i] = (struct drift_lease){medians_us[i], (int64_t)(i + 1) * apart_us};
  return drift_judge(leases, n);
}
#define JUDGE(apart_us, ...)                                                                       \
  judge((const double[]){__VA_ARGS__}, ARRAY_LENGTH(((const double[]){__VA_ARGS__})), apart_us)
#define LEASES(...) JUDGE(10 * MINUTE_US, __VA_ARGS__)

Test(drift, of_two_leases_in_a_row_that_are_slower_than_the_history) {
  struct drift drift = LEASES(100, 101, 99, 100, 100, 115, 117);
  cr_assert(drift.is_drifting);
  cr_expect_eq(drift.n_history, 5);
  cr_expect_float_eq(drift.history_us, 100, 1e-9);
  cr_expect_float_eq(drift.now_us, 116, 1e-9);
}

Test(drift, of_two_leases_in_a_row_that_are_faster) {
  cr_assert(LEASES(100, 101, 99, 100, 100, 85, 84).is_drifting);
}

Test(drift, needs_more_than_one_lease) {
  cr_expect_not(LEASES(100, 101, 99, 100, 100, 100, 150).is_drifting);
  cr_expect_not(LEASES(100, 101, 99, 100, 100, 150, 100).is_drifting);
}

Test(drift, is_not_one_slower_and_one_faster_lease) {
  cr_assert_not(LEASES(100, 101, 99, 100, 100, 150, 50).is_drifting);
}

Test(drift, is_not_a_tenth_or_less) {
  cr_expect_not(LEASES(100, 100, 100, 100, 100, 110, 110).is_drifting);
  cr_expect(LEASES(100, 100, 100, 100, 100, 111, 111).is_drifting);
}

Test(drift, is_not_a_deviation_that_the_history_has_itself) {
  /* the median absolute deviation is 5, sigma 7.4, five of them 37 */
  cr_expect_not(LEASES(90, 95, 100, 105, 110, 130, 130).is_drifting);
  cr_expect(LEASES(90, 95, 100, 105, 110, 140, 140).is_drifting);
}

Test(drift, needs_a_history_of_five_leases) {
  cr_expect_not(LEASES(100, 100, 100, 100, 150, 150).is_drifting);
  cr_expect(LEASES(100, 100, 100, 100, 100, 150, 150).is_drifting);
}

Test(drift, needs_a_history_that_is_longer_than_a_moment) {
  cr_expect_not(JUDGE(MINUTE_US, 100, 100, 100, 100, 100, 150, 150).is_drifting);
  cr_expect(JUDGE(5 * MINUTE_US / 2, 100, 100, 100, 100, 100, 150, 150).is_drifting);
}

Test(drift, is_compared_with_the_newest_leases_only) {
  double medians_us[1 + DRIFT_HISTORY_MAX + DRIFT_LEASES];
  for (size_t i = 0; i < ARRAY_LENGTH(medians_us); i++)
    medians_us[i] = i == 0 ? 1000 : 100;
  struct drift drift = judge(medians_us, ARRAY_LENGTH(medians_us), MINUTE_US);
  cr_expect_eq(drift.n_history, DRIFT_HISTORY_MAX);
  cr_expect_float_eq(drift.spread_us, 0, 1e-9);
}

Test(drift, began_after_the_newest_lease_that_did_not_deviate) {
  cr_expect_eq(LEASES(100, 100, 100, 100, 100, 150, 150).good_at_us, 50 * MINUTE_US);
  cr_expect_eq(LEASES(100, 100, 100, 100, 100, 150, 150, 150).good_at_us, 50 * MINUTE_US);
}
