/* What each device says of a final by itself: the ratios of its own processes, to explain a verdict over several devices.
 *
 * A verdict takes processes for draws and devices for processes: a chip on which another config is faster widens its
 * intervals and is not named. Here the finalists are held against one config on each device alone. The distance of two
 * configs in a process is verdict.h's; over a device's processes the mean is taken. Its interval is that of
 * verdict_interval.h, with the variance that processes of one device have, pooled over all finalists and devices: what a
 * fresh process shifts must not be taken for what a device is. Where too few processes share a device to tell that variance,
 * the interval is of the rounds and the timer alone, exp(m -+ t sqrt(f^2 + q^2)), and no device prefers anything.
 *
 * Each interval is a 95 % one by itself; with eight finalists on four devices in six processes a device that is like the others
 * is named in fewer than 1 % of jobs, also where a process shifts a config by 3 % (tests/unit/test_verdict_by_device.c).
 *
 * Memory: rows are the caller's. Threads: pure functions. */
#ifndef WAVETUNE_COMMON_VERDICT_VERDICT_BY_DEVICE_H
#define WAVETUNE_COMMON_VERDICT_VERDICT_BY_DEVICE_H

#include "common/verdict/verdict.h"

/* Of fewer the order statistics of verdict_interval.h tell too little of a median's error. */
#define DEVICE_ROUNDS_MIN 12

struct device_ratio {
  int64_t device; /* as the samples number it */
  uint64_t config;
  size_t n_processes; /* of that device, with both configs; >= 1 */
  double ratio;       /* the config's time over that of `to`; 1 for `to` itself */
  double lower,
      upper; /* 95 %; upper is INFINITY where a process has fewer than DEVICE_ROUNDS_MIN rounds, or too coarse ones */
  double median_us; /* of the config's samples in these processes */
};

struct device_ratios {
  size_t n;
  struct device_ratio *rows; /* by rising device, then ordinal */
  bool knows_processes;      /* whether the intervals cover what a fresh process shifts */
};

/* One row for each device and each config that it measured in a process with `to`. A device that measured no such process
 * (it had the rest of one that another had begun) has none. False, with a sentence, where samples are not as verdict.h says. */
must_check bool verdict_by_device(const struct verdict_sample *samples, size_t n, uint64_t to,
                                  struct device_ratios *ret, struct error *error);
void device_ratios_release(struct device_ratios *ratios);
#define cleanup_device_ratios __attribute__((cleanup(device_ratios_release)))

/* Which config the device of rows[0..n) would rather have than `to`: of those whose upper bound lies below what a verdict
 * takes for equal, 1 / VERDICT_EQUIVALENCE, the one of the least ratio. NULL where there is none. */
must_check const struct device_ratio *device_preference(const struct device_ratios *ratios,
                                                        const struct device_ratio *rows, size_t n);

#endif
