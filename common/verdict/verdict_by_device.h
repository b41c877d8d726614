/* The ratios of a final on each device alone, to explain a verdict over several devices.
 *
 * A verdict treats processes as draws, whatever their device: a chip on which another config is
 * faster widens its intervals and is not named. Here the finalists are compared with one config on
 * each device alone. The distance of two configs in a process is verdict.h's; over the P processes
 * of a device the mean is taken, and its interval is that of verdict_interval.h: a shift of one
 * process must not pass for a property of the device. Pooled are the distances of the configs
 * within SPREAD_NEAR of the one, on devices that measured both in two processes or more. Those of
 * one device share that config's noise, so m of them have (P - 1) m / (1 + (m - 1) / 4) degrees of
 * freedom; those of several devices share nothing and are added up:
 *
 *   d0 = sum over devices of (P - 1) m / (1 + (m - 1) / 4), less the row's own P - 1 where it is
 *   pooled, rounded down.
 *
 * Where nothing is pooled no device prefers anything; a row of one process then has the interval of
 * its rounds and the timer alone, exp(d -+ t sqrt(e^2 + q^2)), t with 60 degrees of freedom, about
 * as many as there are rounds.
 *
 * Each interval is a 95 % one by itself. With eight finalists on four devices in six processes, a
 * device that is like the others is named in fewer than 1 % of jobs where processes shift all
 * configs alike by 0.3 to 3 % (standard deviation), in up to one of four where the winner alone is
 * 8 % slower in one process of four: what is named should be measured again
 * (tests/unit/test_verdict_by_device.c).
 *
 * Memory: rows are the caller's. Threads: pure functions. */
#ifndef WAVETUNE_COMMON_VERDICT_VERDICT_BY_DEVICE_H
#define WAVETUNE_COMMON_VERDICT_VERDICT_BY_DEVICE_H

#include "common/verdict/verdict.h"

/* With fewer the order statistics of verdict_interval.h do not bound a median's error. */
#define DEVICE_ROUNDS_MIN 12

struct device_ratio {
  int64_t device; /* as the samples number it */
  uint64_t config;
  size_t n_processes; /* of that device, with both configs; >= 1 */
  double ratio;       /* the config's time over that of `to`; 1 for `to` itself */
  /* 95 %; upper is INFINITY where a process has fewer than DEVICE_ROUNDS_MIN rounds, or too coarse
   * ones. */
  double lower, upper;
  double median_us; /* of the config's samples in these processes */
};

struct device_ratios {
  size_t n;
  struct device_ratio *rows; /* by rising device, then ordinal */
  bool knows_processes; /* whether something is pooled: the intervals cover what a fresh process
                           shifts */
};

/* One row for each device and each config that it measured in a process with `to`. A device that
 * measured no such process (it had the rest of one that another had begun) has none. False, with a
 * sentence, where samples are not as in verdict.h. */
must_check bool verdict_by_device(const struct verdict_sample *samples, size_t n, uint64_t to,
                                  struct device_ratios *ret, struct error *error);
void device_ratios_release(struct device_ratios *ratios);
#define cleanup_device_ratios __attribute__((cleanup(device_ratios_release)))

/* The config that is better than `to` on the device of rows[0..n): of those whose upper bound is
 * below 1 / VERDICT_EQUIVALENCE the one of the least ratio. NULL where there is none. */
must_check const struct device_ratio *device_preference(const struct device_ratios *ratios,
                                                        const struct device_ratio *rows, size_t n);

#endif
