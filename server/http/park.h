/* Where requests wait: found by key (a wake-up) and by time (a poll or a deadline), all in constant
 * time.
 *
 * Plain data without a lock or a clock; http/queue keeps both. Times are clock_monotonic_ms.
 * Memory: items are embedded in what waits; the park owns its keys. Threads: under the queue's
 * lock. */
#ifndef WAVETUNE_SERVER_HTTP_PARK_H
#define WAVETUNE_SERVER_HTTP_PARK_H

#include "common/base/base.h"

#define PARK_TICK_MS 16
#define PARK_SLOTS 256    /* of the wheel: 4 s; what is due later goes around again */
#define PARK_BUCKETS 1024 /* of the keys */
/* remembered wake-ups, by hash: keys that share one are woken in vain, never missed */
#define PARK_WAKES 4096

struct park_key;

struct park_item {
  struct park_key *key; /* NULL: not parked */
  struct park_item *key_next, *key_previous;
  struct park_item *slot_next, *slot_previous;
  size_t slot;
  int64_t due_ms;
  /* What is due before its deadline polls, which is put off by poll_ms while its key is idle. 0: it
   * does not. */
  int64_t deadline_ms, poll_ms;
};

struct park_list {
  struct park_item *first, *last;
};

struct park {
  size_t n;
  int64_t tick; /* the slot that take_due looks at next */
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

/* The item, which is parked, has just found nothing that any item of its key could have. Until
 * then, or a wake-up, the others' polls are put off. */
void park_mark_idle(struct park_item *item, int64_t until_ms);

/* A wake-up of this key happened; items that are about to be parked must know: park_was_woken since
 * a generation that they took before they looked. */
void park_note_wake(struct park *park, const char *key);
bool park_was_woken(const struct park *park, const char *key, uint64_t since_generation);

#endif
