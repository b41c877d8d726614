/* The queue of the database workers and the park beside it, under one lock. */
#include "server/http/queue.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

/* How long a worker without work sleeps while requests are parked: the grain of polls and
 * deadlines. */
#define TICK_MS 20

/* Requests in the order in which they came. */
struct fifo {
  struct request_private *first, *last;
};

struct queue {
  pthread_mutex_t lock;
  pthread_cond_t work;
  int64_t length_max, poll_ms;
  uint64_t jitter; /* state of a small generator */
  bool is_stopping;
  size_t length;
  uint64_t n_appended;
  struct fifo requests, tokens; /* the second: whose tokens are to be looked up */
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

static void append(struct queue *queue, struct request_private *request, bool for_token) {
  struct fifo *fifo = for_token ? &queue->tokens : &queue->requests;
  request->state = for_token ? REQUEST_AUTHORISING : REQUEST_QUEUED;
  request->next = NULL;
  *(fifo->last ? &fifo->last->next : &fifo->first) = request;
  fifo->last = request;
  queue->length++;
  request->number = ++queue->n_appended;
}

static struct request_private *pop(struct queue *queue, struct fifo *fifo) {
  struct request_private *request = fifo->first;
  if (!request)
    return NULL;
  fifo->first = request->next;
  if (!fifo->first)
    fifo->last = NULL;
  queue->length--;
  return request;
}

/* The one whose first request came first; of two that are empty, either. */
static struct fifo *fifo_choose(struct queue *queue) {
  const struct request_private *request = queue->requests.first, *token = queue->tokens.first;
  return token && (!request || token->number < request->number) ? &queue->tokens : &queue->requests;
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
  append(queue, request, false);
}

enum queue_answer queue_add(struct queue *queue, struct request_private *request, bool for_token) {
  enum queue_answer answer = QUEUE_ADDED;
  pthread_mutex_lock(&queue->lock);
  if (queue->is_stopping) {
    answer = QUEUE_STOPPING;
  } else if ((int64_t)queue->length >= queue->length_max) {
    answer = QUEUE_FULL;
  } else {
    append(queue, request, for_token);
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

size_t queue_take(struct queue *queue, struct request_private *requests[QUEUE_TOKENS_MAX],
                  bool *ret_for_tokens, uint64_t *ret_generation) {
  size_t n = 0;
  pthread_mutex_lock(&queue->lock);
  while (!queue->is_stopping) {
    advance(queue);
    if (queue->length)
      break;
    wait_for_work(queue);
  }

  if (!queue->is_stopping) {
    struct fifo *fifo = fifo_choose(queue);
    *ret_for_tokens = fifo == &queue->tokens;
    size_t most = *ret_for_tokens ? QUEUE_TOKENS_MAX : 1;
    while (n < most && (requests[n] = pop(queue, fifo)))
      requests[n++]->state = REQUEST_RUNNING;
    *ret_generation = queue->park->generation;
    /* A poll may have moved several here. */
    if (queue->length)
      pthread_cond_signal(&queue->work);
  }
  pthread_mutex_unlock(&queue->lock);
  return n;
}

/* Polls are spread over [poll - 1/8, poll + 1/8], so that requests parked together do not stay
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
  pthread_mutex_lock(&queue->lock);
  bool is_stopping = queue->is_stopping;
  if (!is_stopping) {
    int64_t now_ms = clock_monotonic_ms(), due_ms = poll_due(queue, now_ms);
    request->state = REQUEST_PARKED;
    request->parked_at_ns = clock_monotonic_ns();
    request->park.deadline_ms = deadline_ms;
    request->park.poll_ms = queue->poll_ms;
    /* Workers that fell asleep when nothing was parked would sleep beyond its time, while this
     * one may be busy. */
    if (!queue->park->n)
      pthread_cond_broadcast(&queue->work);
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
  struct request_private *request = pop(queue, fifo_choose(queue));
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
