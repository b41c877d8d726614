/* Student's t, medians and moderated intervals against published values and by hand. */
#include "common/verdict/verdict_interval.h"

#include <criterion/criterion.h>
#include <math.h>

#include "common/base/numbers.h"

TestSuite(verdict_interval);

Test(verdict_interval, the_quantiles_of_students_t_are_those_of_the_tables) {
  static const struct {
    size_t df;
    double tail, quantile;
  } table[] = {{1, 0.025, 12.7062},   {2, 0.025, 4.30265},    {3, 0.025, 3.18245},
               {4, 0.025, 2.77645},   {5, 0.025, 2.57058},    {8, 0.025, 2.30600},
               {10, 0.025, 2.22814},  {30, 0.025, 2.04227},   {1, 0.0005, 636.619},
               {2, 0.0005, 31.5991},  {3, 0.0005, 12.9240},   {8, 0.0005, 5.04131},
               {10, 0.0005, 4.58689}, {120, 0.0005, 3.37345}, {7, 0.1, 1.41492}};
  for (size_t i = 0; i < ARRAY_LENGTH(table); i++)
    cr_expect_float_eq(student_quantile(table[i].df, table[i].tail) / table[i].quantile, 1, 3e-6,
                       "df %zu tail %g: %.7g", table[i].df, table[i].tail,
                       student_quantile(table[i].df, table[i].tail));
}

Test(verdict_interval, a_tail_of_one_in_a_million_has_a_quantile) {
  cr_expect_float_eq(student_quantile(2, 1e-6), 707.106, 1e-2, "%g", student_quantile(2, 1e-6));
}

Test(verdict_interval, the_median_of_an_even_number_is_the_mean_of_the_middle_two) {
  double values[] = {4, 1, 3, 10};
  cr_expect_eq(median_of(values, 4), 3.5);
  cr_expect_eq(median_of(values, 1), values[0]);
}

Test(verdict_interval, the_median_is_found_in_any_order_and_among_equal_values) {
  double values[99];
  for (size_t step = 1; step < 99; step++) {
    for (size_t i = 0; i < 99; i++)
      values[i] = (double)((i * step) % 33);
    double sorted[99];
    memcpy(sorted, values, sizeof sorted);
    for (size_t i = 1; i < 99; i++)
      for (size_t j = i; j > 0 && sorted[j] < sorted[j - 1]; j--) {
        double kept = sorted[j];
        sorted[j] = sorted[j - 1];
        sorted[j - 1] = kept;
      }
    cr_assert_eq(median_of(values, 99), sorted[49], "step %zu", step);
  }
}

Test(verdict_interval, the_error_of_a_median_comes_from_the_values_about_it) {
  double values[16]; /* k = 8.5 - 2.5758 * 2, so the third from either end */
  for (size_t i = 0; i < 16; i++)
    values[i] = (double)((i * 5) % 16);
  double error = median_error(values, 16);
  cr_expect_float_eq(error, (13.0 - 2.0) / (2 * 2.5758), 1e-12, "%g", error);
  double few[] = {3, 1, 2}, one[] = {7};
  error = median_error(few, 3);
  cr_expect_float_eq(error, 2 / (2 * 2.5758), 1e-12, "%g", error);
  cr_expect_eq(median_error(one, 1), 0);
}

Test(verdict_interval,
     far_heaps_of_rounds_do_not_widen_the_error_of_a_median_that_many_rounds_hold) {
  double heaps[60];
  for (size_t i = 0; i < 60; i++)
    heaps[i] = i < 10 ? -1 : i < 20 ? 1 : 0.001 * (double)i;
  double error = median_error(heaps, 60);
  cr_expect_lt(error, 0.01, "%g", error);
}

Test(verdict_interval, a_timer_shows_its_step_where_times_repeat) {
  double coarse[] = {10, 10, 10.5, 10, 11, 10},
         fine[] = {10, 10.1, 10.21, 10.33, 10.46, 10.57, 10.7, 10.8};
  double constant[] = {10, 10, 10};
  double resolution = timer_resolution(coarse, 6);
  cr_expect_float_eq(resolution, 0.05 * 0.05 / 12, 1e-12, "%g", resolution);
  cr_expect_eq(timer_resolution(fine, 8), 0);
  cr_expect_eq(timer_resolution(constant, 3), 0);
}

static struct distance distance_of(const double *medians, size_t n, double error) {
  struct distance distance = {0};
  for (size_t i = 0; i < n; i++)
    distance_add(&distance, medians[i], error, 0);
  return distance;
}

Test(verdict_interval, without_other_finalists_is_that_of_the_processes_alone) {
  struct distance distance = distance_of((const double[]){0.01, 0.02, 0.03}, 3, 0);
  const struct spread none = {0};
  struct interval interval = distance_interval(&distance, &none, 0.05);
  cr_expect_float_eq(distance.mean, 0.02, 1e-15);
  cr_expect_float_eq(distance_error(&distance, &none), 0.01 / sqrt(3), 1e-15);
  cr_expect_float_eq(interval.upper, 0.02 + 4.302653 * 0.01 / sqrt(3), 1e-8);
  cr_expect_float_eq(interval.lower, 0.02 - 4.302653 * 0.01 / sqrt(3), 1e-8);
}

Test(verdict_interval, of_processes_that_agree_by_luck_is_moderated_by_the_pooled_variance) {
  struct distance distance = distance_of((const double[]){0.02, 0.02, 0.02}, 3, 0);
  const struct spread pooled = {.variance = 0.0004, .df = 6};
  cr_expect_eq(distance_df(&distance, &pooled), (size_t)8);
  cr_expect_float_eq(distance_error(&distance, &pooled), sqrt(6 * 0.0004 / 8 / 3), 1e-12);
}

Test(verdict_interval, is_never_narrower_than_what_rounds_and_timer_leave) {
  struct distance distance = distance_of((const double[]){0.02, 0.02, 0.02}, 3, 0.003);
  const struct spread none = {0};
  cr_expect_float_eq(distance_error(&distance, &none), 0.003 / sqrt(3), 1e-12);
  distance.resolution = 3 * 1e-4;
  cr_expect_float_eq(distance_error(&distance, &none), sqrt(0.003 * 0.003 / 3 + 1e-4), 1e-12);
}

Test(verdict_interval, the_pooled_variance_of_one_config_is_its_own) {
  struct distance distance = distance_of((const double[]){0.01, 0.02, 0.06}, 3, 0);
  struct spread pooled = spread_pool(&distance, 1);
  cr_expect_float_eq(pooled.variance, distance.squares / 2, 1e-15);
  cr_expect_eq(pooled.df, (size_t)0, "it says nothing that the config does not say itself");
}

Test(verdict_interval, the_pooled_variance_is_the_mean_of_all) {
  struct distance distances[4];
  double sum = 0;
  for (size_t i = 0; i < 4; i++) {
    distances[i] = distance_of((const double[]){0.01 * (double)i, 0.02, 0.06}, 3, 0);
    sum += distances[i].squares / 2;
  }
  struct spread pooled = spread_pool(distances, 4);
  cr_expect_float_eq(pooled.variance, sum / 4, 1e-15);
  cr_expect_eq(pooled.df, (size_t)2, "2 (4 / 1.75 - 1) = 2.6, not %zu", pooled.df);
}

Test(verdict_interval, many_finalists_do_not_make_the_pooled_variance_a_certainty) {
  struct distance distances[100];
  for (size_t i = 0; i < 100; i++)
    distances[i] = distance_of((const double[]){0.01, 0.02, 0.03, 0.02, 0.01, 0.02}, 6, 0);
  cr_expect_eq(spread_pool(distances, 100).df, (size_t)SPREAD_DF_MAX);
}

Test(verdict_interval, no_config_pools_nothing) {
  cr_expect_eq(spread_pool(NULL, 0).df, (size_t)0);
}
