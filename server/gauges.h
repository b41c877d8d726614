/* What the housekeeper last read from the database and /metrics and /readyz state.
 *
 * Memory: a server owns its gauges. Threads: any, between gauges_take and gauges_give. */
#ifndef WAVETUNE_SERVER_GAUGES_H
#define WAVETUNE_SERVER_GAUGES_H

#include <pthread.h>

#include "common/base/base.h"

/* What keeps PostgreSQL from removing dead rows, as last read (server/health/). */
#define HOT_TABLES(TABLE) TABLE(agents) TABLE(jobs) TABLE(leases) TABLE(measurements)
enum hot_table {
#define X(table) HOT_TABLE_##table,
  HOT_TABLES(X)
#undef X
      HOT_TABLE_COUNT
};
#define IDLE_SESSIONS_MAX 8
struct database_health {
  int64_t dead_rows[HOT_TABLE_COUNT];
  int64_t xmin_age;      /* transactions since the oldest one that vacuum respects */
  double longest_idle_s; /* of a transaction that vacuum respects; 0: none is idle */
  size_t n_sessions;     /* that have been idle for long, the longest first */
  struct idle_session {
    int64_t pid;
    char application[64], role[64];
    double idle_s;
  } sessions[IDLE_SESSIONS_MAX];
};

/* The leases of the database, as last counted (measurement/lease_counts.c). */
struct lease_counts {
  int64_t read_ms; /* by clock_monotonic_ms; 0: not yet */
  int64_t open, held;
  double oldest_open_s, oldest_held_s; /* 0: there is none */
};

/* What was not read is zero. */
struct gauges {
  pthread_mutex_t lock;
  size_t n_agents; /* live ones, those of all servers together */
  struct database_health health;
  struct lease_counts leases;
  char *fleet;      /* its lines of /metrics; owned */
  int64_t fleet_ms; /* when they were read, by clock_monotonic_ms */
};

struct server;
must_check struct gauges *gauges_new(void);
void gauges_free(struct gauges *gauges);
struct gauges *server_gauges(const struct server *server);
/* Between these two calls the caller reads or writes them. */
must_check struct gauges *gauges_take(const struct server *server);
void gauges_give(struct gauges *gauges);

#endif
