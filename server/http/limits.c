/* The sentences of limits, and a table of buckets for requests. Memory: request_rates owns its
 * table, of a fixed size. Threads: limits.h. */
#include "server/http/limits.h"

#include <pthread.h>

#include "common/base/lock.h"
#include "server/http/http_private.h"
#include "server/http/request.h"
#include "server/http/request_private.h"

#define SLOTS 16384

static const struct {
  const char *option, *noun;
} limits[LIMIT_COUNT] = {
#define X(id, option_, fallback, most, noun_, help) {option_, noun_},
    LIMITS(X)
#undef X
};

/* The token of an id has the slot id % SLOTS. */
struct request_rates {
  pthread_mutex_t lock;
  struct {
    int64_t token;
    struct rate rate;
  } slots[SLOTS];
};

struct request_rates *request_rates_new(void) {
  struct request_rates *rates = xcalloc(1, sizeof *rates);
  pthread_mutex_init(&rates->lock, NULL);
  return rates;
}

void request_rates_free(struct request_rates *rates) {
  if (!rates)
    return;
  pthread_mutex_destroy(&rates->lock);
  free(rates);
}

bool request_rates_take(struct request_rates *rates, int64_t token, int64_t now_ms,
                        int64_t per_second) {
  HOLD(&rates->lock);
  struct rate *rate = &rates->slots[token % SLOTS].rate;
  int64_t *owner = &rates->slots[token % SLOTS].token;

  /* Another token may have the slot. While its bucket is not full again, the two share it:
   * otherwise they could empty it in turn. */
  if (*owner != token && now_ms - rate->at_ms >= LIMIT_BURST_S * 1000) {
    *owner = token;
    *rate = (struct rate){0};
  }
  return rate_take(rate, now_ms, (double)per_second, (double)(per_second * LIMIT_BURST_S));
}

static void exceeded(struct error *error, const char *token, enum limit limit, int64_t most) {
  metrics_note_limit(limit);
  error_of(error, ERROR_RATE, "the token \"%s\" may have at most %lld %s (serve --%s)", token,
           (long long)most, limits[limit].noun, limits[limit].option);
}

int64_t limit_of(const struct server *server, const struct author *author, enum limit limit) {
  unsigned roles;
  struct error unknown;
  if (!author->token || !roles_parse(author->roles, &roles, &unknown) ||
      roles & (TOKEN_OPERATOR | TOKEN_ADMIN))
    return 0;
  return server_options(server)->limits[limit];
}

bool limit_check(const struct server *server, const struct author *author, enum limit limit,
                 int64_t n, struct error *error) {
  int64_t most = limit_of(server, author, limit);
  if (!most || n <= most)
    return true;
  exceeded(error, author->name, limit, most);
  return false;
}

bool request_may_run(struct request *request) {
  struct server *server = request->server;
  int64_t most = server_options(server)->limits[LIMIT_REQUESTS];
  struct error error;
  if (!most || request->roles & (TOKEN_OPERATOR | TOKEN_ADMIN) || !request->token_id ||
      request_rates_take(server_http(server)->request_rates, request->token_id,
                         clock_monotonic_ms(), most))
    return true;

  request_private_of(request)->is_beyond_rate = true;
  exceeded(&error, request->token_name, LIMIT_REQUESTS, most);
  request_add_header(request, MHD_HTTP_HEADER_RETRY_AFTER, "1");
  answer_failure(request, &error);
  return false;
}
