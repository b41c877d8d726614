/* Where requests wait for a database worker (the queue), and where they wait for something to
 * happen (the park).
 *
 * One FIFO. A worker takes the first request; where that is the look-up of an unknown token, it
 * takes all look-ups that wait, which are one statement. Woken and polled requests come back to the
 * end of the FIFO. Memory: links are in the requests; the queue owns none. Threads: any; one lock,
 * held for constant time, under which neither libmicrohttpd nor libpq is called. */
#ifndef WAVETUNE_SERVER_HTTP_QUEUE_H
#define WAVETUNE_SERVER_HTTP_QUEUE_H

#include <sys/queue.h>

#include "common/base/base.h"

#define QUEUE_TOKENS_MAX 64 /* that are looked up at once */

struct queue;
struct request_private;

must_check struct queue *queue_new(int64_t length_max, int64_t poll_ms);
void queue_free(struct queue *queue); /* stopped and empty */

enum queue_answer { QUEUE_ADDED, QUEUE_FULL, QUEUE_STOPPING };
/* `for_token`: its token is to be looked up, before its handler may run. */
enum queue_answer queue_add(struct queue *queue, struct request_private *request, bool for_token);

/* Waits for work and returns how many: one request to run, or up to QUEUE_TOKENS_MAX whose tokens
 * are to be looked up (*ret_for_tokens); 0: the queue stops. *ret_generation is for queue_park. */
size_t queue_take(struct queue *queue, struct request_private *requests[QUEUE_TOKENS_MAX],
                  bool *ret_for_tokens, uint64_t *ret_generation);

/* False: the queue stops, answer the request. `is_idle`: no request under this key could be
 * answered now, so that the others do not poll for half an interval. */
must_check bool queue_park(struct queue *queue, struct request_private *request, const char *key,
                           bool is_idle, int64_t deadline_ms, uint64_t since_generation);
void queue_wake(struct queue *queue, const char *key, size_t most);

/* From now on queue_add and queue_park refuse and queue_take returns 0. Requests that wait are
 * answered 503. */
void queue_stop(struct queue *queue);

struct queue_state {
  size_t queued, parked;
  bool is_stopping;
};
struct queue_state queue_state(struct queue *queue);

/* The park: items are found by key (a wake-up) and by time (a poll or a deadline), in constant
 * time.
 *
 * Plain data without a lock or a clock. Times are clock_monotonic_ms. Memory: items are embedded in
 * requests; the park owns its keys. Threads: under the queue's lock. */
#define PARK_TICK_MS 16
#define PARK_SLOTS 256    /* of the wheel: 4 s; what is due later goes around again */
#define PARK_BUCKETS 1024 /* of the keys */
/* Slots of wake-ups, by hash of the key: a shared slot wakes requests needlessly, never too few. */
#define PARK_WAKES 4096

struct park_key;

struct park_item {
  struct park_key *key; /* NULL: not parked */
  TAILQ_ENTRY(park_item) in_key, in_slot;
  size_t slot;
  int64_t due_ms;
  /* What is due before its deadline polls; while its key is idle, that is put off by poll_ms. 0: it
   * is not. */
  int64_t deadline_ms, poll_ms;
};

TAILQ_HEAD(park_list, park_item);

struct park {
  size_t n;
  int64_t tick; /* the next slot of park_take_due */
  uint64_t generation;
  struct park_list slots[PARK_SLOTS];
  struct park_key *buckets[PARK_BUCKETS];
  uint64_t wakes[PARK_WAKES];
};

must_check struct park *park_new(void);
void park_free(struct park *park); /* must be empty */

void park_add(struct park *park, struct park_item *item, const char *key, int64_t now_ms,
              int64_t due_ms);
void park_remove(struct park *park, struct park_item *item);

/* The item of this key that was added first, removed; NULL when there is none. */
struct park_item *park_take(struct park *park, const char *key);
/* An item that is due and is not put off, removed; NULL when there is none (any more) by now. */
struct park_item *park_take_due(struct park *park, int64_t now_ms);
/* Any item, removed; NULL when the park is empty. */
struct park_item *park_take_any(struct park *park);

/* The item, which is parked, has found that no item of its key can have anything: until then, or a
 * wake-up, their polls are put off. */
void park_mark_idle(struct park_item *item, int64_t until_ms);

/* Notes a wake-up of this key, for requests that are about to be parked: park_was_woken since a
 * generation that they took before they looked. */
void park_note_wake(struct park *park, const char *key);
bool park_was_woken(const struct park *park, const char *key, uint64_t since_generation);

#endif
