/* A table of buckets under a mutex, where the least recently used one is replaced. Memory and
 * threads: rates.h. */
#include "server/http/rates.h"

#include <pthread.h>

#include "common/base/lock.h"
#include "server/counters.h"
#include "server/http/request_private.h"
#include "server/http/tokens.h"

#define BUCKETS 1024

struct bucket {
  char name[TOKEN_NAME_SIZE];
  struct rate rate;
};

struct token_rates {
  pthread_mutex_t lock;
  int per_minute;
  size_t n;
  struct bucket buckets[BUCKETS];
};

struct token_rates *token_rates_new(int per_minute) {
  struct token_rates *rates = xcalloc(1, sizeof *rates);
  pthread_mutex_init(&rates->lock, NULL);
  rates->per_minute = per_minute;
  return rates;
}

void token_rates_free(struct token_rates *rates) {
  if (!rates)
    return;

  pthread_mutex_destroy(&rates->lock);
  free(rates);
}

bool token_rates_take(struct token_rates *rates, const char *token_name, int64_t now_ms,
                      int64_t *ret_wait_s) {
  HOLD(&rates->lock);
  struct bucket *bucket = NULL, *oldest = &rates->buckets[0];
  for (size_t i = 0; !bucket && i < rates->n; i++) {
    if (strcmp(rates->buckets[i].name, token_name) == 0)
      bucket = &rates->buckets[i];
    if (rates->buckets[i].rate.at_ms < oldest->rate.at_ms)
      oldest = &rates->buckets[i];
  }

  if (!bucket) {
    bucket = rates->n < BUCKETS ? &rates->buckets[rates->n++] : oldest;
    *bucket = (struct bucket){0};
    snprintf(bucket->name, sizeof bucket->name, "%s", token_name);
  }

  double per_second = rates->per_minute / 60.0;
  bool may = rate_take(&bucket->rate, now_ms, per_second, rates->per_minute);
  *ret_wait_s = may ? 0 : 1 + (int64_t)((1 - bucket->rate.left) / per_second);
  return may;
}

bool request_may_report(struct request *request, struct token_rates *rates, struct error *error) {
  int64_t wait_s;
  char text[24];
  if (token_rates_take(rates, request->token_name, clock_monotonic_ms(), &wait_s))
    return true;

  counter_add(COUNTER_reports_refused, 1);
  snprintf(text, sizeof text, "%lld", (long long)wait_s);
  request_add_header(request, "Retry-After", text);
  return error_of(
      error, ERROR_RATE,
      "the token %s posts more than %d reports a minute; post fewer and larger ones, or "
      "wait %s s",
      request->token_name, rates->per_minute, text);
}
