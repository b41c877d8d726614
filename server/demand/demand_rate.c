/* A small table of buckets under a mutex; the one that was used longest ago makes room. */
#include "server/demand/demand_rate.h"

#include <pthread.h>

#include "server/http/tokens.h"

#define BUCKETS 1024

struct bucket {
  char name[TOKEN_NAME_SIZE];
  double left;
  int64_t at_ms;
};

struct demand_rate {
  pthread_mutex_t lock;
  int64_t next_ms; /* when jobs are queued next */
  size_t n;
  struct bucket buckets[BUCKETS];
};

struct demand_rate *demand_rate_new(void) {
  struct demand_rate *rate = xcalloc(1, sizeof *rate);
  pthread_mutex_init(&rate->lock, NULL);
  return rate;
}

void demand_rate_free(struct demand_rate *rate) {
  if (!rate)
    return;
  pthread_mutex_destroy(&rate->lock);
  free(rate);
}

static struct bucket *bucket_of(struct demand_rate *rate, const char *name, int per_minute,
                                int64_t now_ms) {
  struct bucket *oldest = &rate->buckets[0];
  for (size_t i = 0; i < rate->n; i++) {
    if (strcmp(rate->buckets[i].name, name) == 0)
      return &rate->buckets[i];
    if (rate->buckets[i].at_ms < oldest->at_ms)
      oldest = &rate->buckets[i];
  }

  struct bucket *bucket = rate->n < BUCKETS ? &rate->buckets[rate->n++] : oldest;
  *bucket = (struct bucket){.left = per_minute, .at_ms = now_ms};
  snprintf(bucket->name, sizeof bucket->name, "%s", name);
  return bucket;
}

bool demand_rate_take(struct demand_rate *rate, const char *token_name, int per_minute,
                      int64_t now_ms, int64_t *ret_wait_s) {
  pthread_mutex_lock(&rate->lock);
  struct bucket *bucket = bucket_of(rate, token_name, per_minute, now_ms);
  bucket->left += (double)(now_ms - bucket->at_ms) * per_minute / 60000;
  if (bucket->left > per_minute)
    bucket->left = per_minute;
  bucket->at_ms = now_ms;
  bool is_there = bucket->left >= 1;
  if (is_there)
    bucket->left--;
  *ret_wait_s = is_there ? 0 : 1 + (int64_t)((1 - bucket->left) * 60 / per_minute);
  pthread_mutex_unlock(&rate->lock);
  return is_there;
}

bool demand_rate_is_due(struct demand_rate *rate, int64_t every_ms, int64_t now_ms) {
  pthread_mutex_lock(&rate->lock);
  bool is_due = now_ms >= rate->next_ms;
  if (is_due)
    rate->next_ms = now_ms + every_ms;
  pthread_mutex_unlock(&rate->lock);
  return is_due;
}
