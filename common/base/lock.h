/* Mutexes that are held by a scope, and waits that end by the monotonic clock.
 *
 * Threads: any. */
#ifndef WAVETUNE_COMMON_BASE_LOCK_H
#define WAVETUNE_COMMON_BASE_LOCK_H

#include <pthread.h>

#include "common/base/base.h"

static inline pthread_mutex_t *lock_begin(pthread_mutex_t *mutex) {
  pthread_mutex_lock(mutex);
  return mutex;
}
static inline void lock_end(pthread_mutex_t **mutex) { pthread_mutex_unlock(*mutex); }

/* Locks the mutex until the scope ends: `LOCK(&queue->mutex);`, once in a scope. What is returned
 * is evaluated before. */
#define LOCK(mutex)                                                                                \
  pthread_mutex_t *locked_ __attribute__((cleanup(lock_end), unused)) = lock_begin(mutex)

/* A condition whose waits end by the monotonic clock, and the end of a wait that begins now. */
void condition_init(pthread_cond_t *condition);
struct timespec deadline_after(int64_t timeout_ms);

#endif
