/* A set of digests under a mutex, and the housekeeping that writes it down. */
#include "server/cache/fetches.h"

#include <pthread.h>

#include "common/base/log.h"
#include "server/blob/collect.h"
#include "server/housekeep.h"

#define WRITE_EVERY_POLLS 60 /* a minute, unless the server polls at another pace */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct digest noted[FETCHES_MAX];
static size_t n_noted;

void fetches_note(const struct digest *release) {
  pthread_mutex_lock(&lock);
  size_t i = 0;
  while (i < n_noted && memcmp(noted[i].bytes, release->bytes, DIGEST_SIZE) != 0)
    i++;
  if (i == n_noted && n_noted < FETCHES_MAX)
    noted[n_noted++] = *release;
  pthread_mutex_unlock(&lock);
}

size_t fetches_take(struct digest *ret) {
  pthread_mutex_lock(&lock);
  size_t n = n_noted;
  memcpy(ret, noted, n * sizeof *ret);
  n_noted = 0;
  pthread_mutex_unlock(&lock);
  return n;
}

void fetches_housekeep(struct worker *worker) {
  static int64_t next_ms;
  struct error error;
  int64_t now = clock_monotonic_ms();
  if (now < next_ms)
    return;
  next_ms = now + WRITE_EVERY_POLLS * server_options(worker->server)->poll_ms;
  cleanup_free struct digest *releases = xcalloc(FETCHES_MAX, sizeof *releases);
  size_t n = fetches_take(releases);
  if (n && !fetches_store(worker->db, releases, n, &error)) {
    for (size_t i = 0; i < n; i++)
      fetches_note(&releases[i]);
    log_warning("fetches: %s", error.message);
  }
}
