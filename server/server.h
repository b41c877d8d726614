/* The coordinator as a whole: its configuration, its shared state, its threads.
 *
 * Threads: `event_threads` of libmicrohttpd (parse, authorise, answer from memory), `workers` database workers (each with
 * its own connection, running handlers), one housekeeper (expiry, heartbeats, polls). They meet in queues only.
 * Memory: a server owns everything; started by server_start, ended by server_stop. */
#ifndef WAVETUNE_SERVER_SERVER_H
#define WAVETUNE_SERVER_SERVER_H

#include "common/error.h"

struct server_options {
  const char *listen;   /* "127.0.0.1" */
  int port;             /* 0: any free one; server_port tells */
  const char *database; /* libpq connection string */
  int workers;          /* database workers, default 4 */
  int event_threads;    /* default 2 */
  int64_t lease_ms;     /* default 30000 */
  int64_t heartbeat_ms; /* default 5000 */
  int64_t poll_ms;      /* how often parked requests look again although nobody woke them, default 1000 */
  int64_t queue_max;    /* waiting requests beyond which 503 is answered, default 10000 */
};

struct server;

/* What a handler has: the server and this worker's connection. */
struct db;
struct worker {
  struct server *server;
  struct db *db;
  uint64_t wake_generation; /* taken before the handler runs; see request_park */
  int index;
};

must_check bool server_start(const struct server_options *options, struct server **ret_server, struct error *error);
/* Stops accepting, answers every parked and queued request (503), joins the threads, frees. */
void server_stop(struct server *server);
int server_port(const struct server *server);
const struct server_options *server_options(const struct server *server);

/* Heartbeats in memory: agents seen since the last flush. Owned by core/agents; here because routes and housekeeper
 * share it. */
struct agent_table;
struct agent_table *server_agents(struct server *server);

/* Housekeeping, called about every 250 ms on the housekeeper thread with its own worker (connection). Each module has one
 * and paces itself: leases_housekeep, agents_housekeep, tokens_housekeep, channels_housekeep. */

/* Counters and gauges of /metrics; one table. COUNTER(id, prometheus name, help). Any thread. */
/* clang-format off */
#define COUNTERS(COUNTER) \
  COUNTER(requests, "wavetune_http_requests_total", "Requests answered") \
  COUNTER(responses_memory, "wavetune_http_responses_from_memory_total", "Responses served by the event threads from memory") \
  COUNTER(queue_shed, "wavetune_queue_shed_total", "Requests refused because the queue was full") \
  COUNTER(leases_granted, "wavetune_leases_granted_total", "Leases granted") \
  COUNTER(leases_renewed, "wavetune_leases_renewed_total", "Lease renewals committed") \
  COUNTER(leases_lost, "wavetune_leases_lost_total", "Leases that expired") \
  COUNTER(leases_done, "wavetune_leases_done_total", "Leases completed") \
  COUNTER(measurements_accepted, "wavetune_measurements_accepted_total", "Measurements stored") \
  COUNTER(measurements_known, "wavetune_measurements_known_total", "Measurements that were there already") \
  COUNTER(measurements_late, "wavetune_measurements_late_total", "Measurements stored as evidence after their lease ended") \
  COUNTER(jobs_submitted, "wavetune_jobs_submitted_total", "Jobs created") \
  COUNTER(jobs_known, "wavetune_jobs_known_total", "Job submissions that named a known job") \
  COUNTER(jobs_done, "wavetune_jobs_done_total", "Jobs done") \
  COUNTER(jobs_failed, "wavetune_jobs_failed_total", "Jobs failed") \
  COUNTER(batches, "wavetune_batches_total", "Runs of a batched route") \
  COUNTER(batched_requests, "wavetune_batched_requests_total", "Requests answered by runs of batched routes")
/* clang-format on */
enum counter {
#define X(id, ...) COUNTER_##id,
  COUNTERS(X)
#undef X
      COUNTER_COUNT
};
void counter_add(enum counter counter, uint64_t n);

#endif
