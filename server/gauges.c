/* Memory and threads: gauges.h. */
#include "server/gauges.h"

struct gauges *gauges_new(void) {
  struct gauges *gauges = xcalloc(1, sizeof *gauges);
  pthread_mutex_init(&gauges->lock, NULL);
  return gauges;
}

void gauges_free(struct gauges *gauges) {
  pthread_mutex_destroy(&gauges->lock);
  free(gauges->fleet);
  free(gauges);
}

struct gauges *gauges_take(const struct server *server) {
  struct gauges *gauges = server_gauges(server);
  pthread_mutex_lock(&gauges->lock);
  return gauges;
}

void gauges_give(struct gauges *gauges) { pthread_mutex_unlock(&gauges->lock); }
