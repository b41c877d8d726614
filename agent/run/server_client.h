/* What the agent's threads share to talk with the server: one request with its answer judged, and
 * waiting between tries.
 *
 * Memory: answers are the caller's. Threads: a client and a back-off belong to one thread each. */
#ifndef WAVETUNE_AGENT_RUN_SERVER_CLIENT_H
#define WAVETUNE_AGENT_RUN_SERVER_CLIENT_H

#include "common/base/rng.h"
#include "common/program/error_codes.h"
#include "common/program/http_client.h"

struct server_answer {
  bool is_ok; /* 2xx, with JSON or with nothing */
  int64_t retry_after_s;
  json_t *json;       /* the answer or the problem, NULL where there is none */
  struct error error; /* unless it is ok: why not, and what to do by its kind */
};
void server_answer_release(struct server_answer *answer);
#define cleanup_server_answer __attribute__((cleanup(server_answer_release)))

/* Whether it is an error of this kind. */
must_check static inline bool answer_is(const struct server_answer *answer, enum error_kind kind) {
  return !answer->is_ok && answer->error.kind == kind;
}

/* Whether the same is to be asked again later: no answer, or the server is away or busy. */
must_check static inline bool answer_is_for_later(const struct server_answer *answer) {
  return !answer->is_ok && error_is_retryable(answer->error.kind);
}

/* The kind of an answer that is no 2xx: what its problem document says, else (a proxy's, an older
 * server's) what its status says. */
must_check enum error_kind server_error_kind(const struct http_response *response);

/* What an answer to a request means. Whatever the server sends is ok or an error with a sentence. A
 * lease that was granted to another is ERROR_MISSING, as one that is not there; what is missing and
 * no server of ours says so is ERROR_UNAVAILABLE: it is a proxy's answer whose server is away. */
struct server_answer server_answer_read(const char *method, const char *path,
                                        const struct http_response *response);

/* Sends `body` (may be NULL) and reads the answer. */
struct server_answer server_ask(struct http_client *client, const char *method, const char *path,
                                const json_t *body, int64_t timeout_ms);

/* Exponential back-off with jitter: agents that lost one server together must not come back
 * together. */
struct backoff {
  int64_t least_ms, most_ms;
  int64_t base_ms;
  struct rng rng;
};
struct backoff backoff_new(int64_t least_ms, int64_t most_ms);
int64_t backoff_next_ms(struct backoff *backoff,
                        int64_t retry_after_s); /* never less than Retry-After asked for */
void backoff_reset(struct backoff *backoff);

#endif
