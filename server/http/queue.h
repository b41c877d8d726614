/* The queue of requests that wait for a database worker, and the park of long polls that wait for
 * an event.
 *
 * Each token has a FIFO, and the tokens are served in turn, so that one that sends many requests
 * delays the others by one request each. A token of agents or operators has four in each turn. A
 * worker takes one request; if the oldest one waits for a look-up of its token, the worker takes
 * all that do, because one statement serves them. A request that leaves the park goes to the end of
 * its token's FIFO. Memory: the links are in the requests, which the queue does not own. Threads:
 * any; one lock, held for constant time, and neither libmicrohttpd nor libpq is called under it. */
#ifndef WAVETUNE_SERVER_HTTP_QUEUE_H
#define WAVETUNE_SERVER_HTTP_QUEUE_H

#include <sys/queue.h>

#include "common/base/base.h"

#define QUEUE_TOKENS_MAX 64 /* tokens that are looked up together */

struct queue;
struct request_private;

must_check struct queue *queue_new(int64_t length_max, int64_t poll_ms);
void queue_free(struct queue *queue); /* must be stopped and empty */

enum queue_answer { QUEUE_ADDED, QUEUE_FULL, QUEUE_STOPPING };
/* `for_token`: its token must be looked up before its handler may run. */
enum queue_answer queue_add(struct queue *queue, struct request_private *request, bool for_token);

/* Waits for requests and returns their number: 1 to run, or, with *ret_for_tokens, up to
 * QUEUE_TOKENS_MAX that need a look-up; 0 when the queue stops. *ret_generation is for
 * queue_park. */
size_t queue_take(struct queue *queue, struct request_private *requests[QUEUE_TOKENS_MAX],
                  bool *ret_for_tokens, uint64_t *ret_generation);

/* False: the queue stops and the caller must answer the request. `is_idle`: no request under this
 * key could be answered now, so the others do not poll for half an interval. */
must_check bool queue_park(struct queue *queue, struct request_private *request, const char *key,
                           bool is_idle, int64_t deadline_ms, uint64_t since_generation);
void queue_wake(struct queue *queue, const char *key, size_t most);

/* Answers all waiting requests 503. From now on queue_add and queue_park refuse and queue_take
 * returns 0. */
void queue_stop(struct queue *queue);

struct queue_state {
  size_t queued, parked, idle; /* idle: workers that wait */
  bool is_stopping;
};
struct queue_state queue_state(struct queue *queue);

/* The park: a timer wheel and a hash of keys, so that items are found in constant time by key (for
 * a wake-up) and by time (for a poll or a deadline).
 *
 * Times are clock_monotonic_ms. Memory: items are embedded in requests; the park owns its keys.
 * Threads: under the queue's lock. */
#define PARK_TICK_MS 16
#define PARK_SLOTS 256    /* of the wheel: 4 s; items that are due later go around again */
#define PARK_BUCKETS 1024 /* of the keys */
/* Slots of wake-ups, by hash of the key: two keys with one slot cause needless runs, but no wake-up
 * is lost. */
#define PARK_WAKES 4096

struct park_key;

struct park_item {
  struct park_key *key; /* NULL: not parked */
  TAILQ_ENTRY(park_item) in_key, in_slot;
  size_t slot;
  int64_t due_ms;
  /* An item that is due before its deadline polls; while its key is idle, the poll is put off by
   * poll_ms. */
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

/* Removes and returns the item that was added first under this key; NULL: there is none. */
struct park_item *park_take(struct park *park, const char *key);
/* Removes and returns an item that is due and not put off; NULL: there is none. */
struct park_item *park_take_due(struct park *park, int64_t now_ms);
/* Removes and returns any item; NULL: the park is empty. */
struct park_item *park_take_any(struct park *park);

/* Puts off the polls of all items with this item's key, until until_ms or a wake-up. */
void park_mark_idle(struct park_item *item, int64_t until_ms);

/* Notes a wake-up of this key. park_was_woken returns whether there was one after a generation,
 * which a request takes before it reads the database. */
void park_note_wake(struct park *park, const char *key);
bool park_was_woken(const struct park *park, const char *key, uint64_t since_generation);

#endif
