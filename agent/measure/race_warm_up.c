/* Warming a config up, and how many calls make a sample of it. Memory: see race.h. Threads: one. */
#include <math.h>

#include "agent/measure/race.h"

#define CALLS_MAX 100000

struct device_timing timed_sample(struct problem *problem, const struct timed *timed) {
  return (struct device_timing){candidate_launch(timed->candidate), &problem->rotation,
                                timed->calls, 0};
}

/* More calls when a sample is too short. Where something is prepared before a sample only its first
 * call sees that. */
static bool calls_raise(const struct problem *problem, struct timed *timed) {
  double sample_us = timed->estimate_us * timed->calls;
  if (sample_us >= SAMPLE_US || rotation_prepares(&problem->rotation) || timed->calls == CALLS_MAX)
    return false;
  double needed = 1.2 * SAMPLE_US / timed->estimate_us;
  timed->calls = needed > CALLS_MAX          ? CALLS_MAX
                 : needed > timed->calls + 1 ? (unsigned)needed
                                             : timed->calls + 1;
  return true;
}

bool timed_warm_up(struct problem *problem, struct timed *timed, double warm_up_us,
                   double enough_us, struct error *error) {
  int64_t start = clock_monotonic_ns();
  bool ok, goes_on = true;
  timed->calls = 1;
  timed->estimate_us = INFINITY;
  do {
    struct device_timing timing = timed_sample(problem, timed);
    ok = problem->device->ops->time(problem->device, &timing, 1, error);
    if (!ok)
      break;
    /* The least of all: what another process delayed must not look like a slow kernel. */
    timed->estimate_us = fmin(timed->estimate_us, timing.us);
    bool is_slow = enough_us > 0 && timed->estimate_us > enough_us && timed->estimate_us >= SLOW_US;
    goes_on = !is_slow && (calls_raise(problem, timed) ||
                           (double)(clock_monotonic_ns() - start) / 1000 < warm_up_us);
  } while (goes_on);
  timed->device_ns += clock_monotonic_ns() - start;
  return ok;
}

void timed_release(struct timed *timed) {
  free(timed->samples_us);
  free(timed->baseline_us);
  timed->samples_us = timed->baseline_us = NULL;
}
