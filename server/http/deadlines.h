/* Until when a client must have sent a request's head and body, and read its answer. A connection
 * that misses its deadline is closed, whatever it sends: libmicrohttpd's own timeout begins again
 * with each byte.
 *
 * A body's deadline moves with what has arrived, so that a large upload may take long. While a
 * request is suspended there is no deadline. Memory: the connections are linked. Threads: the
 * connection's event thread. */
#ifndef WAVETUNE_SERVER_HTTP_DEADLINES_H
#define WAVETUNE_SERVER_HTTP_DEADLINES_H

#include <sys/queue.h>

#include "common/base/base.h"

/* How often an event thread looks for missed deadlines. */
#define DEADLINE_EVERY_MS 250

struct connection;
TAILQ_HEAD(deadlines, connection);

/* How long the refusal of a request beyond its token's rate is held. An event thread answers a
 * refusal faster than a client can send the next request, so that a client that does not wait would
 * keep it busy; held, each of its connections sends four a second. Less than a starting program
 * waits for its first byte (FIRST_BYTE_S of python/wavetune/_runtime/wire.py). */
#define HOLD_MS 250

/* A client that stays connected need not send its next request for so long. Suspended connections
 * do not time out. */
#define IDLE_TIMEOUT_S 75

void deadline_connected(struct connection *connection); /* for the first head */
void deadline_head(struct connection *connection);      /* the request line was read */
void deadline_body(struct connection *connection);      /* the body begins */
void deadline_body_arrived(struct connection *connection, size_t bytes);
void deadline_answer(struct connection *connection, uint64_t bytes);
void deadline_completed(struct connection *connection); /* for the next request */
void deadline_none(struct connection *connection);
/* Holds the answer of a suspended request back, for HOLD_MS. */
void deadline_hold(struct connection *connection);

/* Closes the connections that missed their deadline. */
struct event_thread;
void deadlines_enforce(struct event_thread *thread);
/* Resumes the connections whose answer was held until `now_ms` (INT64_MAX: all), and returns how
 * long the first of the others is held; -1: there is none. */
int64_t deadlines_release(struct event_thread *thread, int64_t now_ms);

/* When a body must be complete of which `bytes` arrived: `timeout_ms` after its begin, and later by
 * the time that these bytes take at `per_second`. */
int64_t body_deadline_ms(int64_t began_ms, uint64_t bytes, int64_t timeout_ms, int64_t per_second);

#endif
