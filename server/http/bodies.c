/* The sum, and those of the tokens that have a part of it, under a mutex. Memory and threads:
 * bodies.h. */
#include "server/http/bodies.h"

#include "common/base/lock.h"

struct bodies {
  pthread_mutex_t lock;
  size_t most, used;
  size_t n, capacity;
  struct body_holder {
    int64_t token;
    size_t bytes;
  } *holders; /* few: each has more than BODY_UNCOUNTED bytes */
};

struct bodies *bodies_new(size_t most) {
  struct bodies *bodies = xcalloc(1, sizeof *bodies);
  pthread_mutex_init(&bodies->lock, NULL);
  bodies->most = most;
  return bodies;
}

void bodies_free(struct bodies *bodies) {
  if (!bodies)
    return;
  ALWAYS(bodies->used == 0 && bodies->n == 0);
  pthread_mutex_destroy(&bodies->lock);
  free(bodies->holders);
  free(bodies);
}

size_t bodies_most_of_token(const struct bodies *bodies) { return bodies->most / 2; }

/* Returns bodies->n when there is none. */
static size_t holder_find(const struct bodies *bodies, int64_t token) {
  size_t i = 0;
  while (i < bodies->n && bodies->holders[i].token != token)
    i++;
  return i;
}

enum bodies_answer bodies_take(struct bodies *bodies, int64_t token, size_t bytes) {
  HOLD(&bodies->lock);
  size_t i = holder_find(bodies, token), has = i < bodies->n ? bodies->holders[i].bytes : 0;

  if (bytes > bodies_most_of_token(bodies) - has)
    return BODIES_TOKEN_FULL;
  if (bytes > bodies->most - bodies->used)
    return BODIES_FULL;
  if (!bytes)
    return BODIES_TAKEN;
  if (i == bodies->n) {
    GROW(bodies->holders, bodies->n, bodies->capacity);
    bodies->holders[bodies->n++] = (struct body_holder){.token = token};
  }
  bodies->holders[i].bytes += bytes;
  bodies->used += bytes;
  return BODIES_TAKEN;
}

void bodies_give(struct bodies *bodies, int64_t token, size_t bytes) {
  if (!bytes)
    return;

  HOLD(&bodies->lock);
  size_t i = holder_find(bodies, token);
  ALWAYS(i < bodies->n && bodies->holders[i].bytes >= bytes);
  bodies->holders[i].bytes -= bytes;
  bodies->used -= bytes;
  if (!bodies->holders[i].bytes)
    bodies->holders[i] = bodies->holders[--bodies->n];
}

size_t bodies_used(struct bodies *bodies) {
  HOLD(&bodies->lock);
  return bodies->used;
}
