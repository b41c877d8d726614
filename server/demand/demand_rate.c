/* A small table of buckets under a mutex; the one that was used longest ago makes room. */
#include "server/demand/demand_rate.h"

#include <pthread.h>

#include "server/http/auth.h"

#define BUCKETS 1024

static struct bucket {
  char name[TOKEN_NAME_SIZE];
  double left;
  int64_t at_ms;
} buckets[BUCKETS];
static size_t n_buckets;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct bucket *bucket_of(const char *name, int per_minute, int64_t now_ms) {
  struct bucket *oldest = &buckets[0];
  for (size_t i = 0; i < n_buckets; i++) {
    if (strcmp(buckets[i].name, name) == 0)
      return &buckets[i];
    if (buckets[i].at_ms < oldest->at_ms)
      oldest = &buckets[i];
  }
  struct bucket *bucket = n_buckets < BUCKETS ? &buckets[n_buckets++] : oldest;
  *bucket = (struct bucket){.left = per_minute, .at_ms = now_ms};
  snprintf(bucket->name, sizeof bucket->name, "%s", name);
  return bucket;
}

bool demand_rate_take(const char *token_name, int per_minute, int64_t now_ms, int64_t *ret_wait_s) {
  pthread_mutex_lock(&lock);
  struct bucket *bucket = bucket_of(token_name, per_minute, now_ms);
  bucket->left += (double)(now_ms - bucket->at_ms) * per_minute / 60000;
  if (bucket->left > per_minute)
    bucket->left = per_minute;
  bucket->at_ms = now_ms;
  bool is_there = bucket->left >= 1;
  if (is_there)
    bucket->left--;
  *ret_wait_s = is_there ? 0 : 1 + (int64_t)((1 - bucket->left) * 60 / per_minute);
  pthread_mutex_unlock(&lock);
  return is_there;
}
