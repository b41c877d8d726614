/* The queue of the database workers: a list of the tokens with requests, each with a FIFO. And the
 * park: a hash of keys, each with a list of items, and a timer wheel. */
#include "server/http/queue.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "common/base/lock.h"
#include "common/cache/text.h"
#include "server/http/request.h"
#include "server/http/request_private.h"

/* How long an idle worker sleeps while requests are parked: the resolution of polls and
 * deadlines. */
#define TICK_MS 20

struct park_key {
  /* The hash of the name. A collision is harmless: it wakes a request that then finds no work. */
  uint64_t hash;
  struct park_key *next;
  struct park_list items;
  int64_t idle_until_ms;
};

static uint64_t key_hash(const char *key) { return text_hash(key, strlen(key)); }

struct park *park_new(void) {
  struct park *park = xcalloc(1, sizeof *park);
  for (size_t i = 0; i < PARK_SLOTS; i++)
    TAILQ_INIT(&park->slots[i]);
  return park;
}

void park_free(struct park *park) {
  ALWAYS(park->n == 0);
  free(park);
}

static struct park_key *key_find(const struct park *park, uint64_t hash) {
  struct park_key *key = park->buckets[hash % PARK_BUCKETS];
  while (key && key->hash != hash)
    key = key->next;
  return key;
}

static int64_t tick_of(int64_t ms) { return (ms + PARK_TICK_MS - 1) / PARK_TICK_MS; }

static void wheel_add(struct park *park, struct park_item *item) {
  int64_t tick = tick_of(item->due_ms);
  if (tick < park->tick)
    tick = park->tick;
  if (tick >= park->tick + PARK_SLOTS)
    tick = park->tick + PARK_SLOTS - 1;
  item->slot = (size_t)tick % PARK_SLOTS;
  TAILQ_INSERT_TAIL(&park->slots[item->slot], item, in_slot);
}

static void wheel_remove(struct park *park, struct park_item *item) {
  TAILQ_REMOVE(&park->slots[item->slot], item, in_slot);
}

void park_add(struct park *park, struct park_item *item, const char *name, int64_t now_ms,
              int64_t due_ms) {
  ALWAYS(item->key == NULL);
  uint64_t hash = key_hash(name);
  struct park_key *key = key_find(park, hash);
  if (!key) {
    key = xcalloc(1, sizeof *key);
    key->hash = hash;
    TAILQ_INIT(&key->items);
    key->next = park->buckets[hash % PARK_BUCKETS];
    park->buckets[hash % PARK_BUCKETS] = key;
  }

  if (park->n++ == 0)
    park->tick = now_ms / PARK_TICK_MS;
  item->due_ms = due_ms;
  item->key = key;
  TAILQ_INSERT_TAIL(&key->items, item, in_key);
  wheel_add(park, item);
}

static void park_remove(struct park *park, struct park_item *item) {
  struct park_key *key = item->key;
  TAILQ_REMOVE(&key->items, item, in_key);
  wheel_remove(park, item);
  item->key = NULL;
  park->n--;
  if (!TAILQ_EMPTY(&key->items))
    return;

  struct park_key **at = &park->buckets[key->hash % PARK_BUCKETS];
  while (*at != key)
    at = &(*at)->next;
  *at = key->next;
  free(key);
}

struct park_item *park_take(struct park *park, const char *key) {
  const struct park_key *found = key_find(park, key_hash(key));
  struct park_item *item = found ? TAILQ_FIRST(&found->items) : NULL;
  if (item)
    park_remove(park, item);
  return item;
}

struct park_item *park_take_due(struct park *park, int64_t now_ms) {
  int64_t now_tick = now_ms / PARK_TICK_MS;
  while (park->n && park->tick <= now_tick) {
    struct park_item *item = TAILQ_FIRST(&park->slots[(size_t)park->tick % PARK_SLOTS]);
    if (!item) {
      park->tick++;
      continue;
    }

    bool is_due = tick_of(item->due_ms) <= now_tick;
    bool is_put_off = item->due_ms < item->deadline_ms && now_ms < item->key->idle_until_ms;
    if (is_due && !is_put_off) {
      park_remove(park, item);
      return item;
    }
    wheel_remove(park, item);
    if (is_due) {
      int64_t later_ms = now_ms + (item->poll_ms > PARK_TICK_MS ? item->poll_ms : PARK_TICK_MS);
      item->due_ms = later_ms < item->deadline_ms ? later_ms : item->deadline_ms;
    }
    wheel_add(park, item);
  }

  return NULL;
}

struct park_item *park_take_any(struct park *park) {
  for (size_t i = 0; park->n && i < PARK_SLOTS; i++) {
    struct park_item *item = TAILQ_FIRST(&park->slots[i]);
    if (item) {
      park_remove(park, item);
      return item;
    }
  }
  return NULL;
}

void park_mark_idle(struct park_item *item, int64_t until_ms) {
  item->key->idle_until_ms = until_ms;
}

void park_note_wake(struct park *park, const char *key) {
  struct park_key *found = key_find(park, key_hash(key));
  if (found)
    found->idle_until_ms = 0;
  park->wakes[key_hash(key) % PARK_WAKES] = ++park->generation;
}

bool park_was_woken(const struct park *park, const char *key, uint64_t since_generation) {
  return park->wakes[key_hash(key) % PARK_WAKES] > since_generation;
}

STAILQ_HEAD(fifo, request_private);

/* The requests of one token; removed when it has none. */
struct flow {
  int64_t token;
  int left;          /* requests before its turn ends */
  struct flow *next; /* in its bucket */
  TAILQ_ENTRY(flow) in_turns;
  struct fifo requests;
};

#define FLOW_BUCKETS 1024
/* How many requests in one turn a token of agents, operators or admins may have; others have one.
 */
#define FLEET_TURN 4

/* A worker that waits for a request; on its stack. */
struct waiter {
  pthread_cond_t woken;
  bool is_woken;
  TAILQ_ENTRY(waiter) entry;
};

struct queue {
  pthread_mutex_t lock;
  TAILQ_HEAD(waiters, waiter) idle; /* the first is woken next */
  size_t n_idle;
  int64_t length_max, poll_ms;
  uint64_t jitter; /* state of poll_due's random numbers */
  bool is_stopping;
  bool has_timer; /* a waiting worker looks after what is parked */
  size_t length;
  uint64_t n_appended;
  TAILQ_HEAD(turns, flow) turns; /* the first is served next, and goes to the end */
  struct flow *flows[FLOW_BUCKETS];
  struct fifo tokens; /* requests whose token needs a look-up */
  struct park *park;
};

struct queue *queue_new(int64_t length_max, int64_t poll_ms) {
  struct queue *queue = xcalloc(1, sizeof *queue);

  pthread_mutex_init(&queue->lock, NULL);
  TAILQ_INIT(&queue->idle);
  queue->length_max = length_max;
  queue->poll_ms = poll_ms;
  queue->jitter = 0x9e3779b97f4a7c15u;
  queue->park = park_new();
  TAILQ_INIT(&queue->turns);
  STAILQ_INIT(&queue->tokens);
  return queue;
}

void queue_free(struct queue *queue) {
  if (!queue)
    return;
  ALWAYS(queue->length == 0);
  park_free(queue->park);
  pthread_mutex_destroy(&queue->lock);
  free(queue);
}

static void wake_worker(struct queue *queue) {
  struct waiter *waiter = TAILQ_FIRST(&queue->idle);
  if (!waiter)
    return;

  TAILQ_REMOVE(&queue->idle, waiter, entry);
  queue->n_idle--;
  waiter->is_woken = true;
  pthread_cond_signal(&waiter->woken);
}

/* Waits to be woken. The worker that began last is woken first, so that the connections of few
 * workers stay warm while few are needed. One worker, the last to be woken, also wakes up each
 * TICK_MS while requests are parked. */
static void wait_for_request(struct queue *queue) {
  struct waiter waiter = {0};
  struct timespec until = time_in(TICK_MS);
  bool is_timer = queue->park->n && !queue->has_timer, has_time = true;
  condition_init(&waiter.woken);

  queue->n_idle++;
  if (is_timer)
    TAILQ_INSERT_TAIL(&queue->idle, &waiter, entry);
  else
    TAILQ_INSERT_HEAD(&queue->idle, &waiter, entry);
  queue->has_timer = queue->has_timer || is_timer;
  while (!waiter.is_woken && has_time) {
    if (is_timer)
      has_time = pthread_cond_timedwait(&waiter.woken, &queue->lock, &until) != ETIMEDOUT;
    else
      pthread_cond_wait(&waiter.woken, &queue->lock);
  }

  if (is_timer)
    queue->has_timer = false;
  if (!waiter.is_woken) {
    TAILQ_REMOVE(&queue->idle, &waiter, entry);
    queue->n_idle--;
  }
  pthread_cond_destroy(&waiter.woken);
}

/* The flow of the token, or where to put it. */
static struct flow **flow_find(struct queue *queue, int64_t token) {
  struct flow **at = &queue->flows[(uint64_t)token % FLOW_BUCKETS];
  while (*at && (*at)->token != token)
    at = &(*at)->next;
  return at;
}

static int turn_of(const struct request_private *request) {
  return request->request.roles & (TOKEN_AGENT | TOKEN_OPERATOR | TOKEN_ADMIN) ? FLEET_TURN : 1;
}

static struct fifo *flow_fifo(struct queue *queue, const struct request_private *request) {
  int64_t token = request->request.token_id;
  struct flow **at = flow_find(queue, token);
  if (!*at) {
    *at = xcalloc(1, sizeof **at);
    (*at)->token = token;
    (*at)->left = turn_of(request);
    STAILQ_INIT(&(*at)->requests);
    TAILQ_INSERT_TAIL(&queue->turns, *at, in_turns);
  }
  return &(*at)->requests;
}

static void append(struct queue *queue, struct request_private *request, bool for_token) {
  struct fifo *fifo = for_token ? &queue->tokens : flow_fifo(queue, request);
  request->state = for_token ? REQUEST_AUTHORISING : REQUEST_QUEUED;
  STAILQ_INSERT_TAIL(fifo, request, next);
  queue->length++;
  request->number = ++queue->n_appended;
}

/* Whether look-ups of tokens are due before the next request. */
static bool tokens_are_due(const struct queue *queue) {
  const struct flow *flow = TAILQ_FIRST(&queue->turns);
  const struct request_private *token = STAILQ_FIRST(&queue->tokens);
  return token && (!flow || token->number < STAILQ_FIRST(&flow->requests)->number);
}

static struct request_private *pop_token(struct queue *queue) {
  struct request_private *request = STAILQ_FIRST(&queue->tokens);
  if (request) {
    STAILQ_REMOVE_HEAD(&queue->tokens, next);
    queue->length--;
  }
  return request;
}

/* Takes the oldest request of the token whose turn it is. */
static struct request_private *pop_request(struct queue *queue) {
  struct flow *flow = TAILQ_FIRST(&queue->turns);
  if (!flow)
    return NULL;

  struct request_private *request = STAILQ_FIRST(&flow->requests);
  STAILQ_REMOVE_HEAD(&flow->requests, next);
  queue->length--;

  bool is_empty = STAILQ_EMPTY(&flow->requests);
  if (--flow->left > 0 && !is_empty)
    return request;

  TAILQ_REMOVE(&queue->turns, flow, in_turns);
  if (is_empty) {
    *flow_find(queue, flow->token) = flow->next;
    free(flow);
  } else {
    TAILQ_INSERT_TAIL(&queue->turns, flow, in_turns);
    flow->left = turn_of(request);
  }
  return request;
}

static void unpark(struct queue *queue, struct park_item *item, int64_t now_ms) {
  struct request_private *request =
      (struct request_private *)((char *)item - offsetof(struct request_private, park));
  request->request.is_parked_before = true;
  request->request.deadline_passed = now_ms >= item->deadline_ms;
  request->parked_ns += clock_monotonic_ns() - request->parked_at_ns;
  request->parked_at_ns = 0;
  append(queue, request, false);
}

enum queue_answer queue_add(struct queue *queue, struct request_private *request, bool for_token) {
  HOLD(&queue->lock);
  if (queue->is_stopping)
    return QUEUE_STOPPING;
  if ((int64_t)queue->length >= queue->length_max)
    return QUEUE_FULL;
  append(queue, request, for_token);
  wake_worker(queue);
  return QUEUE_ADDED;
}

size_t queue_take(struct queue *queue, struct request_private *requests[QUEUE_TOKENS_MAX],
                  bool *ret_for_tokens, uint64_t *ret_generation) {
  size_t n = 0;
  HOLD(&queue->lock);
  while (!queue->is_stopping) {
    int64_t now_ms = clock_monotonic_ms();
    for (struct park_item *item; (item = park_take_due(queue->park, now_ms));)
      unpark(queue, item, now_ms);
    if (queue->length)
      break;

    wait_for_request(queue);
  }

  if (!queue->is_stopping) {
    *ret_for_tokens = tokens_are_due(queue);
    size_t most = *ret_for_tokens ? QUEUE_TOKENS_MAX : 1;
    while (n < most && (requests[n] = *ret_for_tokens ? pop_token(queue) : pop_request(queue)))
      requests[n++]->state = REQUEST_RUNNING;
    *ret_generation = queue->park->generation;
    /* One signal may announce several requests that came from the park. And another worker that
     * waits must look after the park, if it was this one that did. */
    if (queue->length || (queue->park->n && !queue->has_timer))
      wake_worker(queue);
  }

  return n;
}

/* Spreads polls over ±1/8 of the interval, so that requests that were parked together do not poll
 * together. */
static int64_t poll_due(struct queue *queue, int64_t now_ms) {
  queue->jitter ^= queue->jitter << 13; /* xorshift64, Marsaglia 2003 */
  queue->jitter ^= queue->jitter >> 7;
  queue->jitter ^= queue->jitter << 17;
  int64_t spread = queue->poll_ms / 4 + 1;
  return now_ms + queue->poll_ms - spread / 2 + (int64_t)(queue->jitter % (uint64_t)spread);
}

bool queue_park(struct queue *queue, struct request_private *request, const char *key, bool is_idle,
                int64_t deadline_ms, uint64_t since_generation) {
  HOLD(&queue->lock);
  if (queue->is_stopping)
    return false;

  int64_t now_ms = clock_monotonic_ms(), due_ms = poll_due(queue, now_ms);
  request->state = REQUEST_PARKED;
  request->parked_at_ns = clock_monotonic_ns();
  request->park.deadline_ms = deadline_ms;
  request->park.poll_ms = queue->poll_ms;

  /* Workers that began to wait while nothing was parked wait without a time-out, and this one may
   * be busy when the request is due. */
  if (!queue->has_timer)
    wake_worker(queue);

  park_add(queue->park, &request->park, key, now_ms, deadline_ms < due_ms ? deadline_ms : due_ms);
  if (park_was_woken(queue->park, key, since_generation)) {
    park_remove(queue->park, &request->park);
    unpark(queue, &request->park, now_ms);
    wake_worker(queue);
  } else if (is_idle) {
    park_mark_idle(&request->park, now_ms + queue->poll_ms / 2);
  }
  return true;
}

void queue_wake(struct queue *queue, const char *key, size_t most) {
  HOLD(&queue->lock);
  park_note_wake(queue->park, key);
  int64_t now_ms = clock_monotonic_ms();
  struct park_item *item;
  bool is_any = false;
  for (; most && (item = park_take(queue->park, key)); most--) {
    unpark(queue, item, now_ms);
    is_any = true;
  }

  if (is_any)
    wake_worker(queue);
}

void queue_stop(struct queue *queue) {
  struct request_private *request;
  pthread_mutex_lock(&queue->lock);
  queue->is_stopping = true;
  while (queue->n_idle)
    wake_worker(queue);
  for (;;) {
    struct park_item *parked;
    while ((parked = park_take_any(queue->park)))
      unpark(queue, parked, 0);
    request = tokens_are_due(queue) ? pop_token(queue) : pop_request(queue);
    if (!request)
      break;

    pthread_mutex_unlock(&queue->lock);
    request->state = REQUEST_RUNNING;
    answer_refusal(&request->request, ERROR_UNAVAILABLE, "", "the server is stopping; try again");
    pthread_mutex_lock(&queue->lock);
  }

  pthread_mutex_unlock(&queue->lock);
}

struct queue_state queue_state(struct queue *queue) {
  HOLD(&queue->lock);
  return (struct queue_state){queue->length, queue->park->n, queue->n_idle, queue->is_stopping};
}
