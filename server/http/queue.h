/* Where requests wait for a database worker, and where they wait for something to happen (the park).
 *
 * One FIFO over all routes; a worker takes the first request and with it all that wait for the same route, up to the
 * route's batch. A batched route that another worker runs is passed over until that is done or a whole batch waits: what
 * comes in the meantime is served together. Woken and polled requests come back to the end of the FIFO.
 * Memory: links are in the requests; the queue owns none. Threads: any; one lock, held for constant time, under which
 * neither libmicrohttpd nor libpq is called. */
#ifndef WAVETUNE_SERVER_HTTP_QUEUE_H
#define WAVETUNE_SERVER_HTTP_QUEUE_H

#include "server/http/request_private.h"

/* Kinds of work: a route's number, or the look-up of an unknown token. */
#define QUEUE_KIND_TOKEN ROUTE_COUNT
#define QUEUE_KINDS (ROUTE_COUNT + 1)

struct queue;

must_check struct queue *queue_new(int64_t length_max, int64_t poll_ms);
void queue_free(struct queue *queue); /* stopped and empty */

enum queue_answer { QUEUE_ADDED, QUEUE_FULL, QUEUE_STOPPING };
enum queue_answer queue_add(struct queue *queue, int kind, struct request_private *request);

/* Waits for work. Fills `requests` with up to ROUTE_BATCH_MAX of one kind and returns how many; 0: the queue stops.
 * *ret_generation is for queue_park. */
size_t queue_take(struct queue *queue, struct request_private *requests[], int *ret_kind, uint64_t *ret_generation);
/* What queue_take gave is answered or parked; by the worker that took it, before it takes again. */
void queue_done(struct queue *queue, int kind);

/* False: the queue stops, answer the request. `is_idle`: none that waits under this key could be answered now: for half a
 * poll interval the others do not look either. */
must_check bool queue_park(struct queue *queue, struct request_private *request, const char *key, bool is_idle,
                           int64_t deadline_ms, uint64_t since_generation);
void queue_wake(struct queue *queue, const char *key, size_t most);

/* From now on queue_add and queue_park refuse and queue_take returns 0. Hands out what waited, until NULL. */
void queue_stop(struct queue *queue);
struct request_private *queue_drain(struct queue *queue);

struct queue_state {
  size_t queued, parked;
  bool is_stopping;
};
struct queue_state queue_state(struct queue *queue);

#endif
