/* Conditions and deadlines by the monotonic clock. */
#include "common/base/lock.h"

#include <time.h>

void condition_init(pthread_cond_t *condition) {
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(condition, &monotonic);
  pthread_condattr_destroy(&monotonic);
}

struct timespec deadline_after(int64_t timeout_ms) {
  int64_t end_ns = clock_monotonic_ns() + timeout_ms * 1000000;
  return (struct timespec){end_ns / 1000000000, end_ns % 1000000000};
}
