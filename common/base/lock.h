/* HOLD(&lock) holds a mutex until the end of the block; conditions whose waits end by
 * CLOCK_MONOTONIC. */
#ifndef WAVETUNE_COMMON_BASE_LOCK_H
#define WAVETUNE_COMMON_BASE_LOCK_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

static inline pthread_mutex_t *lock_take(pthread_mutex_t *lock) {
  pthread_mutex_lock(lock);
  return lock;
}

static inline void lock_release(pthread_mutex_t **lock) { pthread_mutex_unlock(*lock); }

#define HOLD(lock)                                                                                 \
  __attribute__((cleanup(lock_release), unused)) pthread_mutex_t *held_ = lock_take(lock)

static inline void condition_init(pthread_cond_t *condition) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(condition, &attributes);
  pthread_condattr_destroy(&attributes);
}

/* For pthread_cond_timedwait: the time in so many milliseconds. */
static inline struct timespec time_in(int64_t ms) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  int64_t ns = time.tv_nsec + ms % 1000 * 1000000;
  time.tv_sec += ms / 1000 + ns / 1000000000;
  time.tv_nsec = ns % 1000000000;
  return time;
}

#endif
