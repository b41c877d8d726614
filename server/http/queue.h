/* Where requests wait for a database worker, and where they wait for something to happen (the
 * park).
 *
 * One FIFO. A worker takes the first request; where that is the look-up of an unknown token, it
 * takes all that wait for one, which is one statement. Woken and polled requests come back to the
 * end of the FIFO. Memory: links are in the requests; the queue owns none. Threads: any; one lock,
 * held for constant time, under which neither libmicrohttpd nor libpq is called. */
#ifndef WAVETUNE_SERVER_HTTP_QUEUE_H
#define WAVETUNE_SERVER_HTTP_QUEUE_H

#include "server/http/request_private.h"

#define QUEUE_TOKENS_MAX 64 /* that are looked up at once */

struct queue;

must_check struct queue *queue_new(int64_t length_max, int64_t poll_ms);
void queue_free(struct queue *queue); /* stopped and empty */

enum queue_answer { QUEUE_ADDED, QUEUE_FULL, QUEUE_STOPPING };
/* `for_token`: its token is to be looked up, before its handler may run. */
enum queue_answer queue_add(struct queue *queue, struct request_private *request, bool for_token);

/* Waits for work and returns how many: one request to run, or up to QUEUE_TOKENS_MAX whose tokens
 * are to be looked up
 * (*ret_for_tokens); 0: the queue stops. *ret_generation is for queue_park. */
size_t queue_take(struct queue *queue, struct request_private *requests[QUEUE_TOKENS_MAX],
                  bool *ret_for_tokens, uint64_t *ret_generation);

/* False: the queue stops, answer the request. `is_idle`: none that waits under this key could be
 * answered now: for half a poll interval the others do not look either. */
must_check bool queue_park(struct queue *queue, struct request_private *request, const char *key,
                           bool is_idle, int64_t deadline_ms, uint64_t since_generation);
void queue_wake(struct queue *queue, const char *key, size_t most);

/* From now on queue_add and queue_park refuse and queue_take returns 0. Hands out what waited,
 * until NULL. */
void queue_stop(struct queue *queue);
struct request_private *queue_drain(struct queue *queue);

struct queue_state {
  size_t queued, parked;
  bool is_stopping;
};
struct queue_state queue_state(struct queue *queue);

#endif
