/* One lock for all of them. */
#include "server/gauges.h"

#include <pthread.h>

struct gauges {
  pthread_mutex_t lock;
  size_t n_agents;
  struct database_health health;
  struct lease_counts leases;
  char *fleet;      /* NULL: not read yet */
  int64_t fleet_ms; /* when it was set, by clock_monotonic_ms */
};

struct gauges *gauges_new(void) {
  struct gauges *gauges = xcalloc(1, sizeof *gauges);
  pthread_mutex_init(&gauges->lock, NULL);
  return gauges;
}

void gauges_free(struct gauges *gauges) {
  if (!gauges)
    return;
  pthread_mutex_destroy(&gauges->lock);
  free(gauges->fleet);
  free(gauges);
}

/* gauges_set_NAME and gauges_NAME of a member that is copied. */
#define COPIED(name, type, parameter, value, member)                                               \
  void gauges_set_##name(struct gauges *gauges, parameter) {                                       \
    pthread_mutex_lock(&gauges->lock);                                                             \
    gauges->member = value;                                                                        \
    pthread_mutex_unlock(&gauges->lock);                                                           \
  }                                                                                                \
  type gauges_##name(struct gauges *gauges) {                                                      \
    pthread_mutex_lock(&gauges->lock);                                                             \
    type copy = gauges->member;                                                                    \
    pthread_mutex_unlock(&gauges->lock);                                                           \
    return copy;                                                                                   \
  }
COPIED(agents, size_t, size_t n, n, n_agents)
COPIED(health, struct database_health, const struct database_health *given, *given, health)
COPIED(leases, struct lease_counts, const struct lease_counts *given, *given, leases)

void gauges_set_fleet(struct gauges *gauges, char *text) {
  pthread_mutex_lock(&gauges->lock);
  free(gauges->fleet);
  gauges->fleet = text;
  gauges->fleet_ms = clock_monotonic_ms();
  pthread_mutex_unlock(&gauges->lock);
}

char *gauges_fleet(struct gauges *gauges, int64_t known_ms) {
  pthread_mutex_lock(&gauges->lock);
  bool is_known = gauges->fleet && clock_monotonic_ms() - gauges->fleet_ms < known_ms;
  char *text = xstrdup(is_known ? gauges->fleet : "");
  pthread_mutex_unlock(&gauges->lock);
  return text;
}
