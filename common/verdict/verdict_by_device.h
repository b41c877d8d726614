/* What each device says of a final by itself: the ratios of its own processes, to explain a verdict over several devices.
 *
 * A verdict takes processes for draws and devices for processes: a chip on which another config is faster widens its
 * intervals and is not named. Here the finalists are held against one config on each device alone. The distance of two
 * configs in a process is verdict.h's; of a device's processes the mean m is taken, and
 *
 *   interval   exp(m -+ 1.96 sqrt(f^2 + q^2)), f^2 the rounds' and q^2 the timer's part (verdict_interval.h).
 *
 * It covers what the rounds leave open, in 95 % of all cases for one config. It knows nothing of what a fresh process would
 * shift: a device has one or two processes of a final, which tell no variance.
 *
 * Memory: the rows are the caller's. Threads: a pure function. */
#ifndef WAVETUNE_COMMON_VERDICT_VERDICT_BY_DEVICE_H
#define WAVETUNE_COMMON_VERDICT_VERDICT_BY_DEVICE_H

#include "common/verdict/verdict.h"

struct device_ratio {
  int64_t device; /* as the samples number it */
  uint64_t config;
  size_t n_processes;         /* of that device, with both configs; >= 1 */
  double ratio, lower, upper; /* the config's time over that of `to`; 1 for `to` itself */
  double median_us;           /* of the config's samples in these processes */
};

/* One row for each device and each config that it measured in a process with `to`, by rising device, then ordinal. None
 * where `to` was not measured. False, with a sentence, where samples are not as verdict.h says. */
must_check bool verdict_by_device(const struct verdict_sample *samples, size_t n, uint64_t to,
                                  struct device_ratio **ret_rows, size_t *ret_n, struct error *error);

/* Whether the config is surely faster there than what a verdict takes for equal: upper < 1 / VERDICT_EQUIVALENCE. */
must_check bool device_disagrees(const struct device_ratio *row);

#endif
