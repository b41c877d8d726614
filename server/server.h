/* The server as its subjects see it: options, readiness, and a worker's connection. server/main/
 * starts and stops it.
 *
 * Threads: `event_threads` of libmicrohttpd parse and authorise requests and answer from caches;
 * `workers`, each with a database connection, run handlers; one housekeeper expires leases, writes
 * heartbeats and polls; one thread renders choices before they are requested; one follows the
 * policy. They share objects that have locks. Each object is its subject's, whose header declares
 * how it is reached, as server_documents() in choice/documents.h. */
#ifndef WAVETUNE_SERVER_SERVER_H
#define WAVETUNE_SERVER_SERVER_H

#include "common/base/error.h"
#include "server/options.h"

struct server;

/* The context of a handler, and of a thread's main function: the server and the thread's own
 * connection. */
#define WORKER_MAGIC 0x574b5231u
struct db;
struct worker {
  uint32_t magic;
  struct server *server;
  struct db *db;
  uint64_t wake_generation; /* taken before the handler runs; see request_park */
  int64_t files_due_ms;     /* the housekeeper's: when files_housekeep is due */
};

const struct server_options *server_options(const struct server *server);
/* An agent that has sent no heartbeat for this long is lost: three intervals, and time to store the
 * heartbeats. */
static inline int64_t agent_live_ms(const struct server_options *options) {
  return 3 * options->heartbeat_ms + 2000;
}

/* Whether the schema has this program's version and the database answered recently: the answer of
 * /readyz. Any thread. */
bool server_is_ready(const struct server *server);
/* Why it is not ready; the caller's. Threads: any. */
must_check char *server_not_ready_reason(struct server *server);
/* When work that began then is due again: after `every_ms` or, where that is longer, after `rest`
 * times as long as it took, but at most `most_ms`. What reads many rows rests in proportion: with a
 * forgotten transaction it passes over dead ones, too. */
static inline int64_t due_again_ms(int64_t began_ms, int64_t every_ms, int64_t rest,
                                   int64_t most_ms) {
  int64_t rest_ms = rest * (clock_monotonic_ms() - began_ms);
  if (rest_ms > most_ms)
    rest_ms = most_ms;
  return began_ms + (rest_ms > every_ms ? rest_ms : every_ms);
}
/* Waits; false: the server stops. Threads: any. */
must_check bool server_pause(struct server *server, int64_t ms);

/* The secret that makes the ids of leases (lease/identity.h) and of agents with certificates
 * (http/tokens.h), of SERVER_SECRET_SIZE bytes; NULL until it is read, before the server is
 * ready. */
#define SERVER_SECRET_SIZE 32
const uint8_t *server_lease_secret(const struct server *server);

/* The next request for the fleet's summary makes a new one: an operator changed what it says. */
void fleet_changed(const struct server *server);
/* The same for an enrolment, but at most once a second: after an outage a whole fleet enrols. */
void fleet_enrolled(const struct server *server);

/* Wakes at most `most` requests that are parked under `key` (request_park), the longest parked
 * first. Any thread. */
void park_wake(struct server *server, const char *key, size_t most);

#endif
