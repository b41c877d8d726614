/* What the housekeeper last read from the database and /metrics and /readyz state.
 *
 * Memory: a struct gauges owns what is set; what it returns is the caller's. Threads: any. */
#ifndef WAVETUNE_SERVER_GAUGES_H
#define WAVETUNE_SERVER_GAUGES_H

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

/* The leases of the database, as last counted (lease/lease_counts.c). */
struct lease_counts {
  int64_t read_ms; /* by clock_monotonic_ms; 0: not yet */
  int64_t open, held;
  double oldest_open_s, oldest_held_s; /* 0: there is none */
};

struct gauges;
struct server;
must_check struct gauges *gauges_new(void);
void gauges_free(struct gauges *gauges);
struct gauges *server_gauges(const struct server *server);

/* Live agents, those of all servers together. */
void gauges_set_agents(struct gauges *gauges, size_t n);
size_t gauges_agents(struct gauges *gauges);
void gauges_set_health(struct gauges *gauges, const struct database_health *health);
struct database_health gauges_health(struct gauges *gauges);
void gauges_set_leases(struct gauges *gauges, const struct lease_counts *counts);
struct lease_counts gauges_leases(struct gauges *gauges);
/* The fleet's lines of /metrics. The former takes the text over; the latter returns "" when it was
 * set longer than known_ms ago. */
void gauges_set_fleet(struct gauges *gauges, char *text);
must_check char *gauges_fleet(struct gauges *gauges, int64_t known_ms);

#endif
