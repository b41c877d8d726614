/* What each device of a final says by itself. */
#include "common/verdict/verdict.h"

#include <criterion/criterion.h>
#include <math.h>

#include "common/verdict/verdict_interval.h"
#include "tests/unit/gauss.h"

#define ROUNDS 24
#define SAMPLES_MAX 128

static struct error error;

/* Samples as they are measured; the baseline takes 100 us. */
struct measured {
  size_t n;
  struct verdict_sample samples[SAMPLES_MAX];
  double times[SAMPLES_MAX][ROUNDS], baselines[SAMPLES_MAX][ROUNDS];
};

/* The config's ratio in a process, with so much noise in each round; rng may be NULL where that is
 * 0. */
static void measure(struct measured *measured, int64_t device, int64_t process, uint64_t config,
                    double ratio, double noise, struct rng *rng) {
  size_t at = measured->n++;
  ALWAYS(at < SAMPLES_MAX);
  for (size_t i = 0; i < ROUNDS; i++) {
    measured->times[at][i] = 100 * ratio * (noise > 0 ? exp(noise * gauss(rng)) : 1);
    measured->baselines[at][i] = 100 * (noise > 0 ? exp(noise * gauss(rng)) : 1);
  }
  measured->samples[at] = (struct verdict_sample){.config = config,
                                                  .process = process,
                                                  .n = ROUNDS,
                                                  .samples_us = measured->times[at],
                                                  .baseline_us = measured->baselines[at],
                                                  .device = device};
}

static void steady(struct measured *measured, int64_t device, int64_t process, uint64_t config,
                   double ratio) {
  measure(measured, device, process, config, ratio, 0, NULL);
}

static struct device_ratios compared(const struct measured *measured, uint64_t to) {
  struct device_ratios ratios = {0};
  cr_assert(verdict_by_device(measured->samples, measured->n, to, &ratios, &error), "%s",
            error.message);
  return ratios;
}

static void row_expect(const struct device_ratio *row, int64_t device, uint64_t config, size_t n,
                       double ratio) {
  cr_expect_eq(row->device, device);
  cr_expect_eq(row->config, config);
  cr_expect_eq(row->n_processes, n, "device %lld, config %llu: %zu", (long long)device,
               (unsigned long long)config, row->n_processes);
  cr_expect_float_eq(row->ratio, ratio, 1e-12);
}

/* Config 58 is faster everywhere but on device 2. */
Test(verdict_by_device, a_chip_that_differs_is_seen) {
  struct measured measured = {0};
  const struct {
    int64_t device, process;
    double ratios[3]; /* of 53, 58, 60 */
  } processes[] = {{0, 0, {0.53, 0.48, 0.60}},
                   {0, 3, {0.55, 0.48, 0.60}},
                   {2, 1, {0.52, 0.56, 0.60}},
                   {7, 2, {0.53, 0.49, 0.60}}};
  static const uint64_t configs[] = {53, 58, 60};
  for (size_t i = 0; i < ARRAY_LENGTH(processes); i++)
    for (size_t j = 0; j < ARRAY_LENGTH(configs); j++)
      steady(&measured, processes[i].device, processes[i].process, configs[j],
             processes[i].ratios[j] / 0.48);
  cleanup_device_ratios struct device_ratios ratios = compared(&measured, 58);
  const struct device_ratio *rows = ratios.rows;
  cr_assert_eq(ratios.n, (size_t)9);
  row_expect(&rows[0], 0, 53, 2, sqrt(0.53 * 0.55) / 0.48);
  row_expect(&rows[1], 0, 58, 2, 1);
  row_expect(&rows[2], 0, 60, 2, 0.60 / 0.48);
  row_expect(&rows[3], 2, 53, 1, 0.52 / 0.56);
  row_expect(&rows[4], 2, 58, 1, 1);
  row_expect(&rows[6], 7, 53, 1, 0.53 / 0.49);
  cr_expect_float_eq(rows[0].median_us, 100 * 0.54 / 0.48, 1e-9,
                     "of 24 rounds at 0.53 and 24 at 0.55");
  cr_expect_eq(rows[1].lower, 1.0);
  cr_expect_eq(rows[1].upper, 1.0);
}

/* Two devices of three processes, in which config 2 has these ratios to config 1. */
static struct device_ratios of_ratios(struct measured *measured, const double *ratios) {
  for (int64_t process = 0; process < 6; process++)
    for (uint64_t config = 1; config <= 5; config++)
      steady(measured, process / 3, process, config,
             config == 1   ? 1
             : config == 2 ? ratios[process]
                           : 1.05);
  return compared(measured, 1);
}

static bool prefers(const struct device_ratios *ratios, int64_t device, uint64_t config) {
  size_t first = 0, end;
  while (first < ratios->n && ratios->rows[first].device != device)
    first++;
  for (end = first; end < ratios->n && ratios->rows[end].device == device;)
    end++;
  const struct device_ratio *row = device_preference(ratios, &ratios->rows[first], end - first);
  return row && row->config == config;
}

Test(verdict_by_device, what_counts_as_equal_is_no_preference) {
  static const double ratios[] = {0.975, 0.975, 0.975, 0.985, 0.985, 0.985};
  struct measured measured = {0};
  cleanup_device_ratios struct device_ratios steady_ratios = of_ratios(&measured, ratios);
  cr_expect(steady_ratios.knows_processes);
  cr_expect(prefers(&steady_ratios, 0, 2), "2.5 %% faster");
  cr_expect_not(prefers(&steady_ratios, 1, 2), "1.5 %% faster");
}

/* The mean of device 0 is 0.95, but its processes lie 5 % apart. */
Test(verdict_by_device, what_processes_shift_is_in_the_interval) {
  static const double ratios[] = {0.90, 0.95, 1.0028, 1, 1, 1};
  struct measured measured = {0};
  cleanup_device_ratios struct device_ratios found = of_ratios(&measured, ratios);
  cr_expect_float_eq(found.rows[1].ratio, 0.95, 1e-3);
  cr_expect_lt(found.rows[1].lower, 0.93);
  cr_expect_gt(found.rows[1].upper, 0.98);
  cr_expect_not(prefers(&found, 0, 2));
  /* Of each device four rows with two degrees of freedom, in all 2 * 2 * 4 / 1.75 = 9.1, less the
   * row's own two. */
  struct distance distance = {0};
  for (size_t i = 0; i < 3; i++)
    distance_add(&distance, log(ratios[i]), 0, 0);
  struct spread spread = {distance.squares / 16, 7};
  struct interval interval = distance_interval(&distance, &spread, 0.05);
  cr_expect_float_eq(log(found.rows[1].lower), interval.lower, 1e-9);
  cr_expect_float_eq(log(found.rows[1].upper), interval.upper, 1e-9);
}

/* A final as it often is: the winner, another, and a default that is far; two of four devices have
 * two processes. */
Test(verdict_by_device, one_other_finalist_is_enough) {
  struct measured measured = {0};
  struct rng rng = rng_seeded(3);
  for (int64_t process = 0; process < 6; process++) {
    measure(&measured, process % 4, process, 58, 1, 0.003, &rng);
    measure(&measured, process % 4, process, 53, process % 4 == 2 ? 0.945 : 1.07, 0.003, &rng);
    measure(&measured, process % 4, process, 0, 1.5, 0.003, &rng);
  }
  cleanup_device_ratios struct device_ratios ratios = compared(&measured, 58);
  cr_expect(ratios.knows_processes);
  for (int64_t device = 0; device < 4; device++)
    cr_expect_eq(prefers(&ratios, device, 53), device == 2, "device %lld", (long long)device);
}

Test(verdict_by_device, what_is_far_tells_nothing_of_processes) {
  struct measured measured = {0};
  for (int64_t process = 0; process < 3; process++) {
    steady(&measured, 0, process, 1, 1);
    steady(&measured, 0, process, 2, 1.5);
  }
  cleanup_device_ratios struct device_ratios ratios = compared(&measured, 1);
  cr_expect_not(ratios.knows_processes);
}

/* One process a device: the rounds alone make the interval, and no device is named. */
Test(verdict_by_device, a_device_is_not_told_from_its_only_process) {
  struct measured measured = {0};
  for (int64_t process = 0; process < 4; process++)
    for (uint64_t config = 1; config <= 4; config++)
      steady(&measured, process, process, config, config == 2 && process == 3 ? 0.8 : 1);
  cleanup_device_ratios struct device_ratios ratios = compared(&measured, 1);
  cr_assert_eq(ratios.n, (size_t)16);
  cr_expect_not(ratios.knows_processes);
  cr_expect_float_eq(ratios.rows[13].upper, 0.8, 1e-12);
  cr_expect_not(prefers(&ratios, 3, 2));
}

/* The interval of one process is that of its rounds and the timer: t(60) is 2.0003. */
Test(verdict_by_device, rounds_and_timer_make_the_interval_of_a_process) {
  struct measured measured = {0};
  struct rng rng = rng_seeded(5);
  measure(&measured, 0, 0, 1, 1, 0, &rng);
  measure(&measured, 0, 0, 2, 1, 0.02, &rng);
  for (size_t i = 0; i < ROUNDS; i++) /* a timer of 1 us */
    measured.times[1][i] = round(measured.times[1][i]);
  cleanup_device_ratios struct device_ratios ratios = compared(&measured, 1);
  double logs[ROUNDS], times[ROUNDS], bases[ROUNDS];
  for (size_t i = 0; i < ROUNDS; i++) {
    logs[i] = log(measured.times[1][i] / measured.baselines[1][i]);
    times[i] = measured.times[1][i];
    bases[i] = measured.baselines[1][i];
  }
  double rounds = median_error(logs, ROUNDS),
         timer = timer_resolution(times, ROUNDS) + timer_resolution(bases, ROUNDS);
  cr_assert_eq(ratios.n, (size_t)2);
  cr_assert_gt(rounds, 0);
  double half = log(ratios.rows[1].upper / ratios.rows[1].lower) / 2;
  cr_expect_float_eq(half, 2.0003 * sqrt(rounds * rounds + timer), 1e-5, "%g", half);
}

Test(verdict_by_device, a_timer_that_is_too_coarse_widens_it) {
  struct measured measured = {0};
  steady(&measured, 0, 0, 1, 1);
  steady(&measured, 0, 0, 2, 1);
  for (size_t i = 0; i < ROUNDS / 3; i++) {
    measured.times[1][i] += 12;
    measured.times[1][ROUNDS - 1 - i] -= 12;
  }
  cleanup_device_ratios struct device_ratios ratios = compared(&measured, 1);
  cr_expect_gt(ratios.rows[1].upper, 1 + 2 * 0.12 / sqrt(12) * 0.99);
}

Test(verdict_by_device, few_rounds_have_no_interval) {
  struct measured measured = {0};
  steady(&measured, 0, 0, 1, 1);
  steady(&measured, 0, 0, 2, 0.5);
  measured.samples[1].n = DEVICE_ROUNDS_MIN;
  cleanup_device_ratios struct device_ratios enough = compared(&measured, 1);
  cr_expect_float_eq(enough.rows[1].upper, 0.5, 1e-12);
  measured.samples[1].n = DEVICE_ROUNDS_MIN - 1;
  cleanup_device_ratios struct device_ratios few = compared(&measured, 1);
  cr_expect_eq(few.rows[1].upper, INFINITY);
  cr_expect_float_eq(few.rows[1].ratio, 0.5, 1e-12);
}

Test(verdict_by_device, only_processes_of_both_count_and_only_of_one_device) {
  struct measured measured = {0};
  steady(&measured, 0, 0, 1, 1.0);
  steady(&measured, 0, 0, 2, 0.9);
  steady(&measured, 0, 1, 2, 0.1); /* 1 has no process 1 */
  steady(&measured, 0, 2, 1, 1.0); /* process 2 was leased again, to another device */
  steady(&measured, 1, 2, 2, 0.2);
  steady(&measured, 1, 3, 3, 0.5); /* and 1 was never measured there */
  cleanup_device_ratios struct device_ratios ratios = compared(&measured, 1);
  cr_assert_eq(ratios.n, (size_t)2);
  row_expect(&ratios.rows[0], 0, 1, 2, 1);
  row_expect(&ratios.rows[1], 0, 2, 1, 0.9);
}

Test(verdict_by_device, of_what_was_measured_twice_the_longer_counts) {
  struct measured measured = {0};
  steady(&measured, 0, 0, 1, 1.0);
  steady(&measured, 0, 0, 2, 0.5);
  steady(&measured, 0, 0, 2, 0.9);
  measured.samples[1].n = 3;
  cleanup_device_ratios struct device_ratios ratios = compared(&measured, 1);
  cr_assert_eq(ratios.n, (size_t)2);
  row_expect(&ratios.rows[1], 0, 2, 1, 0.9);
}

Test(verdict_by_device, a_config_that_nobody_measured_gives_no_rows) {
  struct measured measured = {0};
  cleanup_device_ratios struct device_ratios none = compared(&measured, 1);
  cr_expect_eq(none.n, (size_t)0);
  steady(&measured, 0, 0, 1, 1.0);
  cleanup_device_ratios struct device_ratios of_another = compared(&measured, 3);
  cr_expect_eq(of_another.n, (size_t)0);
}

Test(verdict_by_device, times_that_cannot_be_are_refused) {
  struct measured measured = {0};
  struct device_ratios ratios = {0};
  steady(&measured, 0, 0, 1, 0);
  cr_expect_not(verdict_by_device(measured.samples, 1, 1, &ratios, &error));
  cr_expect_not_null(strstr(error.message, "times must be"), "%s", error.message);
  cr_expect_null(ratios.rows);
}

enum { JOBS = 1000, FINALISTS = 8, DEVICES = 4, PROCESSES = 6 };

/* Of so many jobs of configs that are equal in six processes on four devices, those that name a
 * device; the winner is what was the fastest. A process shifts each config by so much; one of four
 * puts config 0 in a slow band, by `band` (0: in none). `faster`: how much config 2 is on device 3
 * (1: not at all); *ret_right: the jobs that say so. */
static size_t jobs_that_name(double process_effect, double noise, double band, double faster,
                             size_t *ret_right) {
  struct rng rng = rng_seeded(11);
  size_t named = 0;
  static struct measured measured;
  *ret_right = 0;
  for (size_t job = 0; job < JOBS; job++) {
    double sums[FINALISTS] = {0};
    measured.n = 0;
    for (int64_t process = 0; process < PROCESSES; process++)
      for (uint64_t config = 0; config < FINALISTS; config++) {
        double shift = process_effect * gauss(&rng);
        if (config == 0 && band > 0)
          shift += (rng_unit(&rng) < 0.25 ? band : 0) - 0.03; /* it is the winner all the same */
        sums[config] += shift;
        measure(&measured, process % DEVICES, process, config,
                exp(shift) * (config == 2 && process % DEVICES == 3 ? faster : 1), noise, &rng);
      }
    uint64_t to = 0;
    for (uint64_t config = 1; config < FINALISTS; config++)
      to = sums[config] < sums[to] ? config : to;
    cleanup_device_ratios struct device_ratios ratios = compared(&measured, to);
    bool is_named = false;
    for (int64_t device = 0; device < DEVICES; device++)
      for (uint64_t config = 0; config < FINALISTS; config++)
        is_named |= prefers(&ratios, device, config);
    named += is_named;
    *ret_right += prefers(&ratios, 3, 2);
  }
  cr_log_info("effect %g, noise %g, band %g, faster %g: named in %zu, rightly in %zu",
              process_effect, noise, band, faster, named, *ret_right);
  return named;
}

Test(verdict_by_device, devices_that_are_alike_are_seldom_named_and_one_that_differs_is) {
  size_t right, named;
  cr_expect_leq(jobs_that_name(0.003, 0.01, 0, 1, &right), (size_t)(JOBS / 100));
  cr_expect_leq(jobs_that_name(0.01, 0.01, 0, 1, &right), (size_t)(JOBS / 100));
  cr_expect_leq(jobs_that_name(0.03, 0.01, 0, 1, &right), (size_t)(JOBS / 100));
  cr_expect_leq(jobs_that_name(0.003, 0.01, 0.08, 1, &right), (size_t)(JOBS / 4));
  /* One that differs is named where it is not the winner itself: that it is in one job of eight or
   * so. */
  named = jobs_that_name(0.002, 0.005, 0, 0.95, &right);
  cr_expect_leq(named, right + JOBS / 100);
  cr_expect_geq(right, (size_t)(JOBS * 3 / 4), "%zu", right);
}
