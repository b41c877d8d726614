/* What the summary of the fleet concludes: states of devices, rates, time to go. */
#include <criterion/criterion.h>
#include <math.h>

#include "server/fleet/fleet_rules.h"

Test(fleet, a_device_has_the_first_state_that_fits) {
  struct device_facts facts = {true, true, true, true, true, true};
  cr_expect_eq(device_state_of(&facts), DEVICE_ENDED);
  facts.is_ended = false;
  cr_expect_eq(device_state_of(&facts), DEVICE_LOST);
  facts.is_lost = false;
  cr_expect_eq(device_state_of(&facts), DEVICE_YIELDED);
  facts.is_yielded = false;
  cr_expect_eq(device_state_of(&facts), DEVICE_DRIFTED);
  facts.has_drifted = false;
  cr_expect_eq(device_state_of(&facts), DEVICE_DRAINED);
  facts.is_drained = false;
  cr_expect_eq(device_state_of(&facts), DEVICE_MEASURING);
  facts.has_lease = false;
  cr_expect_eq(device_state_of(&facts), DEVICE_IDLE);
}

Test(fleet, only_devices_that_measure_or_are_idle_take_work) {
  for (int state = 0; state < DEVICE_STATE_COUNT; state++)
    cr_expect_eq(device_state_takes_work((enum device_state)state),
                 state == DEVICE_MEASURING || state == DEVICE_IDLE);
}

static struct fleet_sample sample(int64_t at_s, double device_s, double measuring_s) {
  return (struct fleet_sample){.at_ms = at_s * 1000,
                               .device_us = device_s * 1e6,
                               .measurements = 10 * device_s,
                               .jobs = device_s / 10,
                               .measuring_ms = measuring_s * 1e3};
}

static void add(struct fleet_samples *samples, int64_t at_s, double device_s, double measuring_s) {
  struct fleet_sample one = sample(at_s, device_s, measuring_s);
  fleet_samples_add(samples, &one);
}

Test(fleet, a_rate_is_what_happened_since_the_oldest_sample) {
  struct fleet_samples samples = {0};
  add(&samples, 1000, 50, 100);
  add(&samples, 1010, 60, 140);
  struct fleet_sample now = sample(1030, 90, 180);
  struct fleet_rate rate = fleet_rate_of(&samples, &now);
  cr_expect_eq(rate.over_s, 30);
  cr_expect_float_eq(rate.device_seconds, 40, 1e-9);
  cr_expect_float_eq(rate.measurements, 400, 1e-9);
  cr_expect_float_eq(rate.jobs, 4, 1e-9);
  cr_expect_float_eq(rate.pace, 0.5, 1e-9);
}

Test(fleet, a_rate_without_samples_is_zero_and_its_pace_unknown) {
  struct fleet_samples samples = {0};
  struct fleet_sample now = sample(1030, 90, 180);
  struct fleet_rate rate = fleet_rate_of(&samples, &now);
  cr_expect(rate.over_s == 0 && rate.device_seconds == 0 && rate.jobs == 0);
  cr_expect(isnan(rate.pace));
}

Test(fleet, samples_of_the_last_ten_minutes_stay) {
  struct fleet_samples samples = {0};
  for (int64_t at_s = 0; at_s <= 5000; at_s++)
    add(&samples, at_s, (double)at_s, (double)at_s);
  cr_expect_eq(samples.n, RATE_OVER_MS / SAMPLE_EVERY_MS + 1);
  cr_expect_eq(samples.all[0].at_ms, 4400 * 1000);
  cr_expect_eq(samples.all[samples.n - 1].at_ms, 5000 * 1000);
}

Test(fleet, a_gap_without_samples_drops_the_old_ones) {
  struct fleet_samples samples = {0};
  add(&samples, 0, 0, 0);
  add(&samples, 10, 1, 1);
  add(&samples, 10000, 2, 2);
  cr_expect_eq(samples.n, 1);
  cr_expect_eq(samples.all[0].at_ms, 10000 * 1000);
}

Test(fleet, samples_begin_anew_when_the_clock_is_stepped_back) {
  struct fleet_samples samples = {0};
  add(&samples, 500, 5, 5);
  add(&samples, 520, 6, 6);
  add(&samples, 100, 7, 7);
  cr_expect_eq(samples.n, 1);
  cr_expect_eq(samples.all[0].at_ms, 100 * 1000);
}

Test(fleet, totals_that_shrink_are_no_rate) {
  struct fleet_samples samples = {0};
  add(&samples, 0, 100, 100);
  struct fleet_sample now = sample(10, 50, 110);
  struct fleet_rate rate = fleet_rate_of(&samples, &now);
  cr_expect(rate.device_seconds == 0 && rate.measurements == 0 && isnan(rate.pace));
}

Test(to_go, owners_of_one_priority_are_served_by_their_weights) {
  const struct queue_load queues[] = {{1, 100}, {1, 10}, {2, 1000}};
  cr_expect_float_eq(shared_us(queues, 3, 1, 100), 100 + 10 + 200, 1e-9,
                     "the first of equal owners");
  cr_expect_float_eq(shared_us(queues, 3, 1, 10), 10 + 10 + 20, 1e-9,
                     "is not behind what is left of others");
  cr_expect_float_eq(shared_us(queues, 3, 2, 1000), 100 + 10 + 1000, 1e-9,
                     "with the most work: behind all");
  cr_expect_float_eq(shared_us(queues + 2, 1, 2, 300), 300, 1e-9, "alone");
}

static const struct fleet_rate half = {.over_s = 600, .device_seconds = 100, .pace = 0.5};

static void expect_has(const struct to_go *to_go, const char *words) {
  cr_expect_not_null(strstr(to_go->basis, words), "\"%s\" is not in \"%s\"", words, to_go->basis);
}

Test(to_go, the_hardware_that_needs_longest_decides) {
  const struct hardware_load loads[] = {{.left_us = 100e6, .jobs = 10, .devices = 10},
                                        {.left_us = 80e6, .jobs = 3, .devices = 2, .unknown = 3}};
  struct to_go to_go;
  to_go_estimate(loads, 2, &half, &to_go);
  cr_expect_float_eq(to_go.seconds, 80, 1e-9);
  expect_has(&to_go, "13 jobs (3 are of kernels that were never tuned) need about 3 min");
  expect_has(&to_go, "12 devices take leases");
  expect_has(&to_go, "0.50 s of device time a second (last 10 min)");
}

Test(to_go, jobs_without_devices_are_left_out_and_named) {
  const struct hardware_load loads[] = {{.left_us = 10e6, .jobs = 1, .devices = 1},
                                        {.left_us = 800e6, .jobs = 7}};
  struct to_go to_go;
  to_go_estimate(loads, 2, &half, &to_go);
  cr_expect_float_eq(to_go.seconds, 20, 1e-9);
  expect_has(&to_go,
             "7 jobs wait for hardware of which no device takes leases and are not counted.");
  to_go_estimate(loads + 1, 1, &half, &to_go);
  cr_expect(isnan(to_go.seconds));
  cr_expect_str_eq(to_go.basis, "7 jobs wait for hardware of which no device takes leases.");
}

Test(to_go, without_open_jobs_there_is_no_time) {
  struct to_go to_go;
  to_go_estimate(NULL, 0, &half, &to_go);
  cr_expect(isnan(to_go.seconds));
  cr_expect_str_eq(to_go.basis, "No job is open.");
}

Test(to_go, without_a_pace_it_is_not_known) {
  const struct hardware_load load = {.left_us = 10e6, .jobs = 1, .devices = 1};
  const struct fleet_rate none = {.over_s = 42, .pace = (double)NAN};
  struct to_go to_go;
  to_go_estimate(&load, 1, &none, &to_go);
  cr_expect(isnan(to_go.seconds));
  cr_expect_str_eq(to_go.basis, "Not known yet: no device time was reported in the last 42 s.");
}
