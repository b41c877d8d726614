/* What the agent's threads share to talk with the server: one request with its answer judged, and waiting between tries.
 *
 * Memory: answers are the caller's. Threads: a client and a back-off belong to one thread each. */
#ifndef WAVETUNE_AGENT_RUN_SERVER_CLIENT_H
#define WAVETUNE_AGENT_RUN_SERVER_CLIENT_H

#include "common/base/rng.h"
#include "common/program/http_client.h"

enum reply {
  REPLY_OK,
  REPLY_LATER,        /* no answer, the server is away or busy, or it does not know the token: the same again later */
  REPLY_CONFLICT,     /* 409 */
  REPLY_NOT_FOUND,    /* 404; 403 for a lease that is another's */
  REPLY_UNAUTHORIZED, /* 401, 403 */
  REPLY_REFUSED,      /* the request itself is wrong: never again */
};

struct server_answer {
  enum reply reply;
  int status; /* 0: no answer */
  int64_t retry_after_s;
  json_t *json;       /* the answer or the problem, NULL where there is none */
  struct error error; /* every reply but REPLY_OK: why */
};
void server_answer_release(struct server_answer *answer);
#define cleanup_server_answer __attribute__((cleanup(server_answer_release)))

/* What an answer to a request means. Whatever the server sends is one of the replies, with a sentence but for REPLY_OK. */
struct server_answer server_answer_read(const char *method, const char *path, const struct http_response *response);

/* Sends `body` (may be NULL) and reads the answer. */
struct server_answer server_ask(struct http_client *client, const char *method, const char *path, const json_t *body,
                                int64_t timeout_ms);

/* Exponential back-off with jitter: agents that lost one server together must not come back together. */
struct backoff {
  int64_t least_ms, most_ms;
  int64_t base_ms;
  struct rng rng;
};
struct backoff backoff_new(int64_t least_ms, int64_t most_ms);
int64_t backoff_next_ms(struct backoff *backoff, int64_t retry_after_s); /* never less than Retry-After asked for */
void backoff_reset(struct backoff *backoff);

#endif
