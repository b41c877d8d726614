/* The queue of the database workers and the park beside it, under one lock. */
#include "server/http/queue.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

/* How long a worker without work sleeps while requests are parked: the grain of polls and deadlines. */
#define TICK_MS 20
#define TOKENS_BATCH 64

/* A batched route runs on so many workers at a time; more only when a whole batch waits. Otherwise the workers would share
 * what comes among them in batches of a few, and each of those costs a statement and a commit. */
#define BATCH_RUNS_MAX 2

struct queue {
  pthread_mutex_t lock;
  pthread_cond_t work;
  int64_t length_max, poll_ms;
  uint64_t jitter; /* state of a small generator */
  bool is_stopping;
  size_t length;
  uint64_t n_appended;
  struct request_private *first, *last;
  struct {
    struct request_private *first, *last;
    size_t length;
    int n_runs; /* workers that have taken of it and are not done */
  } kinds[QUEUE_KINDS];
  struct park *park;
};

struct queue *queue_new(int64_t length_max, int64_t poll_ms) {
  struct queue *queue = xcalloc(1, sizeof *queue);
  pthread_condattr_t attributes;
  pthread_mutex_init(&queue->lock, NULL);
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&queue->work, &attributes);
  pthread_condattr_destroy(&attributes);
  queue->length_max = length_max;
  queue->poll_ms = poll_ms;
  queue->jitter = 0x9e3779b97f4a7c15u;
  queue->park = park_new();
  return queue;
}

void queue_free(struct queue *queue) {
  if (!queue)
    return;
  ALWAYS(queue->length == 0);
  park_free(queue->park);
  pthread_cond_destroy(&queue->work);
  pthread_mutex_destroy(&queue->lock);
  free(queue);
}

static struct request_private *request_of_item(struct park_item *item) {
  return (struct request_private *)((char *)item - offsetof(struct request_private, park));
}

static void append(struct queue *queue, struct request_private *request) {
  request->state = request->kind == QUEUE_KIND_TOKEN ? REQUEST_AUTHORISING : REQUEST_QUEUED;
  request->next = NULL;
  request->previous = queue->last;
  *(queue->last ? &queue->last->next : &queue->first) = request;
  queue->last = request;
  request->kind_next = NULL;
  struct request_private **kind_last = &queue->kinds[request->kind].last;
  *(*kind_last ? &(*kind_last)->kind_next : &queue->kinds[request->kind].first) = request;
  *kind_last = request;
  queue->kinds[request->kind].length++;
  queue->length++;
  request->number = ++queue->n_appended;
}

static struct request_private *pop(struct queue *queue, int kind) {
  struct request_private *request = queue->kinds[kind].first;
  if (!request)
    return NULL;
  queue->kinds[kind].first = request->kind_next;
  if (!request->kind_next)
    queue->kinds[kind].last = NULL;
  queue->kinds[kind].length--;
  *(request->previous ? &request->previous->next : &queue->first) = request->next;
  *(request->next ? &request->next->previous : &queue->last) = request->previous;
  queue->length--;
  return request;
}

static void parked_end(struct request_private *request) {
  if (request->parked_at_ns)
    request->parked_ns += clock_monotonic_ns() - request->parked_at_ns;
  request->parked_at_ns = 0;
}

static void unpark(struct queue *queue, struct park_item *item, int64_t now_ms) {
  struct request_private *request = request_of_item(item);
  request->request.is_parked_before = true;
  parked_end(request);
  request->request.deadline_passed = now_ms >= request->park.deadline_ms;
  append(queue, request);
}

enum queue_answer queue_add(struct queue *queue, int kind, struct request_private *request) {
  enum queue_answer answer = QUEUE_ADDED;
  pthread_mutex_lock(&queue->lock);
  if (queue->is_stopping) {
    answer = QUEUE_STOPPING;
  } else if ((int64_t)queue->length >= queue->length_max) {
    answer = QUEUE_FULL;
  } else {
    request->kind = kind;
    append(queue, request);
    pthread_cond_signal(&queue->work);
  }
  pthread_mutex_unlock(&queue->lock);
  return answer;
}

/* Moves what is due from the park to the queue. */
static void advance(struct queue *queue) {
  int64_t now_ms = clock_monotonic_ms();
  struct park_item *item;
  while ((item = park_take_due(queue->park, now_ms)))
    unpark(queue, item, now_ms);
}

static void wait_for_work(struct queue *queue) {
  if (!queue->park->n) {
    pthread_cond_wait(&queue->work, &queue->lock);
    return;
  }
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += TICK_MS * 1000000;
  if (until.tv_nsec >= 1000000000) {
    until.tv_nsec -= 1000000000;
    until.tv_sec++;
  }
  pthread_cond_timedwait(&queue->work, &queue->lock, &until);
}

static size_t kind_batch(int kind) {
  return kind == QUEUE_KIND_TOKEN ? TOKENS_BATCH : route_of((enum route_id)kind)->batch;
}

static bool kind_may_run(const struct queue *queue, int kind) {
  size_t batch = kind_batch(kind);
  return batch == 1 || queue->kinds[kind].n_runs < BATCH_RUNS_MAX || queue->kinds[kind].length >= batch;
}

/* The kind of the request that waits for longest among those that may run; -1: none. */
static int kind_choose(const struct queue *queue) {
  int chosen = -1;
  for (int kind = 0; queue->first && kind < QUEUE_KINDS; kind++) {
    const struct request_private *request = queue->kinds[kind].first;
    if (request && (chosen < 0 || request->number < queue->kinds[chosen].first->number) && kind_may_run(queue, kind))
      chosen = kind;
  }
  return chosen;
}

size_t queue_take(struct queue *queue, struct request_private *requests[], int *ret_kind, uint64_t *ret_generation) {
  size_t n = 0;
  int kind = -1;
  pthread_mutex_lock(&queue->lock);
  while (!queue->is_stopping) {
    advance(queue);
    if ((kind = kind_choose(queue)) >= 0)
      break;
    wait_for_work(queue);
  }
  if (!queue->is_stopping) {
    size_t most = kind_batch(kind);
    while (n < most && (requests[n] = pop(queue, kind)))
      requests[n++]->state = REQUEST_RUNNING;
    queue->kinds[kind].n_runs++;
    *ret_kind = kind;
    *ret_generation = queue->park->generation;
    /* What a poll moved here together may be several batches. */
    if (queue->first)
      pthread_cond_signal(&queue->work);
  }
  pthread_mutex_unlock(&queue->lock);
  return n;
}

void queue_done(struct queue *queue, int kind) {
  pthread_mutex_lock(&queue->lock);
  queue->kinds[kind].n_runs--;
  pthread_mutex_unlock(&queue->lock);
}

/* Polls are spread over [poll - 1/8, poll + 1/8], so that requests parked together do not stay together. */
static int64_t poll_due(struct queue *queue, int64_t now_ms) {
  queue->jitter ^= queue->jitter << 13; /* xorshift64, Marsaglia 2003 */
  queue->jitter ^= queue->jitter >> 7;
  queue->jitter ^= queue->jitter << 17;
  int64_t spread = queue->poll_ms / 4 + 1;
  return now_ms + queue->poll_ms - spread / 2 + (int64_t)(queue->jitter % (uint64_t)spread);
}

bool queue_park(struct queue *queue, struct request_private *request, const char *key, bool is_idle,
                int64_t deadline_ms, uint64_t since_generation) {
  pthread_mutex_lock(&queue->lock);
  bool is_stopping = queue->is_stopping;
  if (!is_stopping) {
    int64_t now_ms = clock_monotonic_ms(), due_ms = poll_due(queue, now_ms);
    request->state = REQUEST_PARKED;
    request->parked_at_ns = clock_monotonic_ns();
    request->park.deadline_ms = deadline_ms;
    request->park.poll_ms = queue->poll_ms;
    request->kind = (int)request->request.route;
    park_add(queue->park, &request->park, key, now_ms, deadline_ms < due_ms ? deadline_ms : due_ms);
    if (park_was_woken(queue->park, key, since_generation)) {
      park_remove(queue->park, &request->park);
      unpark(queue, &request->park, now_ms);
      pthread_cond_signal(&queue->work);
    } else if (is_idle) {
      park_mark_idle(&request->park, now_ms + queue->poll_ms / 2);
    }
  }
  pthread_mutex_unlock(&queue->lock);
  return !is_stopping;
}

void queue_wake(struct queue *queue, const char *key, size_t most) {
  pthread_mutex_lock(&queue->lock);
  park_note_wake(queue->park, key);
  int64_t now_ms = clock_monotonic_ms();
  struct park_item *item;
  bool is_any = false;
  for (; most && (item = park_take(queue->park, key)); most--) {
    unpark(queue, item, now_ms);
    is_any = true;
  }
  if (is_any)
    pthread_cond_signal(&queue->work);
  pthread_mutex_unlock(&queue->lock);
}

void queue_stop(struct queue *queue) {
  pthread_mutex_lock(&queue->lock);
  queue->is_stopping = true;
  pthread_cond_broadcast(&queue->work);
  pthread_mutex_unlock(&queue->lock);
}

struct request_private *queue_drain(struct queue *queue) {
  pthread_mutex_lock(&queue->lock);
  ALWAYS(queue->is_stopping);
  struct request_private *request = queue->first ? pop(queue, queue->first->kind) : NULL;
  if (!request) {
    struct park_item *item = park_take_any(queue->park);
    if (item) {
      request = request_of_item(item);
      parked_end(request);
    }
  }
  pthread_mutex_unlock(&queue->lock);
  return request;
}

struct queue_state queue_state(struct queue *queue) {
  pthread_mutex_lock(&queue->lock);
  struct queue_state state = {queue->length, queue->park->n, queue->is_stopping};
  pthread_mutex_unlock(&queue->lock);
  return state;
}
