/* What each device of a final says by itself. */
#include "common/verdict/verdict_by_device.h"

#include <criterion/criterion.h>
#include <math.h>

#include "common/base/rng.h"

#define ROUNDS 5

static struct error error;

/* A sample whose every pair has the ratio `ratio`; the baseline takes 100 us. */
static struct verdict_sample steady(int64_t device, int64_t process, uint64_t config, double ratio) {
  static double hundreds[ROUNDS] = {100, 100, 100, 100, 100}, times[64][ROUNDS];
  static size_t used;
  double *samples = times[used++];
  ALWAYS(used <= ARRAY_LENGTH(times));
  for (size_t i = 0; i < ROUNDS; i++)
    samples[i] = 100 * ratio;
  return (struct verdict_sample){.config = config,
                                 .process = process,
                                 .n = ROUNDS,
                                 .samples_us = samples,
                                 .baseline_us = hundreds,
                                 .device = device};
}

struct rows {
  size_t n;
  struct device_ratio *all;
};

static struct rows compared(const struct verdict_sample *samples, size_t n, uint64_t to) {
  struct rows rows = {0};
  cr_assert(verdict_by_device(samples, n, to, &rows.all, &rows.n, &error), "%s", error.message);
  return rows;
}

static void row_expect(const struct device_ratio *row, int64_t device, uint64_t config, size_t n, double ratio) {
  cr_expect_eq(row->device, device);
  cr_expect_eq(row->config, config);
  cr_expect_eq(row->n_processes, n, "device %lld, config %llu: %zu", (long long)device, (unsigned long long)config,
               row->n_processes);
  cr_expect_float_eq(row->ratio, ratio, 1e-12);
}

/* Config 58 is faster everywhere but on device 2. */
Test(verdict_by_device, a_chip_that_differs_is_seen) {
  const struct verdict_sample samples[] = {
      steady(0, 0, 58, 0.48), steady(0, 0, 53, 0.53), steady(0, 3, 58, 0.48), steady(0, 3, 53, 0.55),
      steady(2, 1, 58, 0.55), steady(2, 1, 53, 0.52), steady(7, 2, 58, 0.49), steady(7, 2, 53, 0.53),
  };
  struct rows rows = compared(samples, ARRAY_LENGTH(samples), 58);
  cr_assert_eq(rows.n, (size_t)6);
  row_expect(&rows.all[0], 0, 53, 2, sqrt(0.53 * 0.55) / 0.48);
  row_expect(&rows.all[1], 0, 58, 2, 1);
  row_expect(&rows.all[2], 2, 53, 1, 0.52 / 0.55);
  row_expect(&rows.all[3], 2, 58, 1, 1);
  row_expect(&rows.all[4], 7, 53, 1, 0.53 / 0.49);
  for (size_t i = 0; i < rows.n; i++)
    cr_expect_eq(device_disagrees(&rows.all[i]), i == 2, "row %zu", i);
  cr_expect_float_eq(rows.all[0].median_us, 54, 1e-9, "the median of 53 and 55");
  cr_expect_eq(rows.all[1].lower, 1.0);
  cr_expect_eq(rows.all[1].upper, 1.0);
  free(rows.all);
}

Test(verdict_by_device, only_processes_of_both_count_and_only_of_one_device) {
  const struct verdict_sample samples[] = {
      steady(0, 0, 1, 1.0), steady(0, 0, 2, 0.9), steady(0, 1, 2, 0.1), /* 1 has no process 1 */
      steady(0, 2, 1, 1.0), steady(1, 2, 2, 0.2), /* process 2 was leased again, to another device */
      steady(1, 3, 3, 0.5),                       /* and 1 was never measured there */
  };
  struct rows rows = compared(samples, ARRAY_LENGTH(samples), 1);
  cr_assert_eq(rows.n, (size_t)2);
  row_expect(&rows.all[0], 0, 1, 2, 1);
  row_expect(&rows.all[1], 0, 2, 1, 0.9);
  free(rows.all);
}

Test(verdict_by_device, of_what_was_measured_twice_the_longer_counts) {
  struct verdict_sample samples[] = {steady(0, 0, 1, 1.0), steady(0, 0, 2, 0.5), steady(0, 0, 2, 0.9)};
  samples[1].n = 3;
  struct rows rows = compared(samples, ARRAY_LENGTH(samples), 1);
  cr_assert_eq(rows.n, (size_t)2);
  row_expect(&rows.all[1], 0, 2, 1, 0.9);
  free(rows.all);
}

Test(verdict_by_device, a_config_that_nobody_measured_gives_no_rows) {
  const struct verdict_sample samples[] = {steady(0, 0, 1, 1.0), steady(0, 0, 2, 0.5)};
  struct rows rows = compared(samples, ARRAY_LENGTH(samples), 3);
  cr_expect_eq(rows.n, (size_t)0);
  free(rows.all);
  rows = compared(samples, 0, 1);
  cr_expect_eq(rows.n, (size_t)0);
  free(rows.all);
}

Test(verdict_by_device, times_that_cannot_be_are_refused) {
  struct verdict_sample sample = steady(0, 0, 1, 0);
  struct rows rows = {0};
  cr_expect_not(verdict_by_device(&sample, 1, 1, &rows.all, &rows.n, &error));
  cr_expect_not_null(strstr(error.message, "times must be"), "%s", error.message);
  cr_expect_null(rows.all);
}

static double gauss(struct rng *rng) {
  double sum = 0;
  for (int i = 0; i < 12; i++)
    sum += rng_unit(rng);
  return sum - 6;
}

/* Two configs that are equal, in one process of 60 rounds each, 2,000 times: the interval leaves 1 out in about 5 %. */
Test(verdict_by_device, the_interval_covers_what_the_rounds_leave_open) {
  enum { LONG = 60, TIMES = 2000 };
  static double a[LONG], b[LONG], baseline[LONG];
  struct rng rng = rng_seeded(11);
  size_t missed = 0;
  for (size_t time = 0; time < TIMES; time++) {
    for (size_t i = 0; i < LONG; i++) {
      a[i] = 50 * exp(0.02 * gauss(&rng));
      b[i] = 50 * exp(0.02 * gauss(&rng));
      baseline[i] = 100 * exp(0.02 * gauss(&rng));
    }
    const struct verdict_sample samples[] = {{.config = 1, .n = LONG, .samples_us = a, .baseline_us = baseline},
                                             {.config = 2, .n = LONG, .samples_us = b, .baseline_us = baseline}};
    struct rows rows = compared(samples, ARRAY_LENGTH(samples), 1);
    cr_assert_eq(rows.n, (size_t)2);
    missed += rows.all[1].lower > 1 || rows.all[1].upper < 1;
    free(rows.all);
  }
  cr_expect_leq(missed, (size_t)(TIMES * 8 / 100), "%zu", missed);
  cr_expect_geq(missed, (size_t)(TIMES * 2 / 100), "%zu", missed);
}
