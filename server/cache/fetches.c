/* A set of digests under a mutex, which the housekeeper writes to the database. */
#include "server/cache/fetches.h"

#include <pthread.h>

#include "common/base/log.h"
#include "server/cache/cache.sql.h"
#include "server/db/db_record.h"
#include "server/server.h"
#include "server/server_private.h"

#define WRITE_EVERY_POLLS 60 /* a minute with the default --poll-ms */

struct fetches {
  pthread_mutex_t lock;
  int64_t next_write_ms; /* by clock_monotonic_ms; the housekeeper's */
  size_t n;
  struct digest releases[FETCHES_MAX];
};

struct fetches *fetches_new(void) {
  struct fetches *fetches = xcalloc(1, sizeof *fetches);
  pthread_mutex_init(&fetches->lock, NULL);
  return fetches;
}

void fetches_free(struct fetches *fetches) {
  if (!fetches)
    return;

  pthread_mutex_destroy(&fetches->lock);
  free(fetches);
}

void fetches_add(struct fetches *fetches, const struct digest *release) {
  pthread_mutex_lock(&fetches->lock);
  size_t i = 0;
  while (i < fetches->n && !digest_equal(&fetches->releases[i], release))
    i++;
  if (i == fetches->n && i < FETCHES_MAX)
    fetches->releases[fetches->n++] = *release;
  pthread_mutex_unlock(&fetches->lock);
}

void fetches_of_target(void *fetches, enum route_id route, const char *target, size_t target_size) {
  static const char prefix[] = "/v1/releases/";
  enum { PREFIX_SIZE = sizeof prefix - 1, TEXT_SIZE = DIGEST_TEXT_SIZE - 1 };
  struct digest release;
  if ((route != ROUTE_release_get && route != ROUTE_release_export) ||
      target_size < PREFIX_SIZE + TEXT_SIZE)
    return;

  cleanup_free char *text = xstrndup(target + PREFIX_SIZE, TEXT_SIZE);
  if (digest_parse(text, &release))
    fetches_add(fetches, &release);
}

size_t fetches_take(struct fetches *fetches, struct digest *ret) {
  pthread_mutex_lock(&fetches->lock);
  size_t n = fetches->n;
  memcpy(ret, fetches->releases, n * sizeof *ret);
  fetches->n = 0;
  pthread_mutex_unlock(&fetches->lock);
  return n;
}

void fetches_housekeep(struct worker *worker) {
  struct fetches *fetches = worker->server->fetches;
  struct error error;
  int64_t now = clock_monotonic_ms();
  if (now < fetches->next_write_ms)
    return;

  fetches->next_write_ms = now + WRITE_EVERY_POLLS * server_options(worker->server)->poll_ms;

  cleanup_free struct digest *releases = xcalloc(FETCHES_MAX, sizeof *releases);
  cleanup_parameters struct db_parameters parameters = {0};
  size_t n = fetches_take(fetches, releases);
  if (n == 0)
    return;

  bind_digests(&parameters, "releases", releases, n);
  if (!db_run(worker->db, &sql_fetches_store, &parameters, NULL, &error)) {
    for (size_t i = 0; i < n; i++)
      fetches_add(fetches, &releases[i]);
    log_warning("fetches: %s", error.message);
  }
}
