/* Requests of the agent's threads to the server: sending one and checking its answer, the bodies of
 * answers and of measurements, and waiting between tries.
 *
 * A server may be broken, or another program: values that are not of the right type and range are
 * refused with a sentence.
 *
 * Memory: answers, and what was read from them, are the caller's. Threads: a client and a back-off
 * belong to one thread each. */
#ifndef WAVETUNE_AGENT_RUN_SERVER_CLIENT_H
#define WAVETUNE_AGENT_RUN_SERVER_CLIENT_H

#include "agent/lease/lease.h"
#include "common/base/numbers.h"
#include "common/enrolment/enrolment.h"
#include "common/program/error_codes.h"
#include "common/program/http_client.h"
#include "common/task/task.h"

struct server_answer {
  bool is_ok; /* 2xx, with JSON or with nothing */
  int64_t retry_after_s;
  json_t *json;       /* the answer or the problem, NULL where there is none */
  struct error error; /* unless is_ok: why not; its kind decides what to do */
};
void server_answer_release(struct server_answer *answer);
#define cleanup_server_answer __attribute__((cleanup(server_answer_release)))

/* Whether it is an error of this kind. */
must_check static inline bool answer_is(const struct server_answer *answer, enum error_kind kind) {
  return !answer->is_ok && answer->error.kind == kind;
}

/* Whether to send the request again later: there was no answer, or the server is away or busy. */
must_check static inline bool answer_is_for_later(const struct server_answer *answer) {
  return !answer->is_ok && error_is_retryable(answer->error.kind);
}

/* The kind of an answer that is no 2xx: that of its problem document, else (a proxy's, an older
 * server's) that of its status. A lease that was granted to another agent is ERROR_MISSING, as one
 * that does not exist. ERROR_MISSING without a "detail" may come from a proxy whose server is away:
 * it becomes ERROR_UNAVAILABLE. */
must_check enum error_kind server_error_kind(const struct http_response *response);

/* Checks an answer: whatever the server sends, the result is ok or an error with a sentence. */
struct server_answer server_answer_read(const char *method, const char *path,
                                        const struct http_response *response);

/* Sends `body` (may be NULL) and reads the answer. */
struct server_answer server_ask(struct http_client *client, const char *method, const char *path,
                                const json_t *body, int64_t timeout_ms);

/* Read the bodies of answers; the JSON may be NULL or of any type. Missing times have their
 * defaults. After a failure there is nothing to release. */
must_check bool enrolment_answer_read(const json_t *json, struct enrolment_answer *ret,
                                      struct error *error);
must_check bool agent_token_answer_read(const json_t *json, struct agent_token_answer *ret,
                                        struct error *error);
must_check bool heartbeat_answer_read(const json_t *json, struct heartbeat_answer *ret,
                                      struct error *error);
void enrolment_answer_release(struct enrolment_answer *answer);
void agent_token_answer_release(struct agent_token_answer *answer);
#define cleanup_enrolment_answer __attribute__((cleanup(enrolment_answer_release)))
#define cleanup_agent_token_answer __attribute__((cleanup(agent_token_answer_release)))

/* The answer to POST /v1/leases/ID/renew. */
struct renewed {
  int64_t expires_in_ms;
  bool is_limited;              /* to `configs`: the others were given to another device */
  struct config_ranges configs; /* the caller's to release */
};
must_check bool renewed_read(const json_t *json, struct renewed *ret, struct error *error);

/* A measurement as it is posted (a new reference): an element of the "measurements" of POST
 * /v1/leases/ID/results, but for its "seq". `object`: the digest of the code that it names; NULL:
 * none. A text that is too long for a server is cut. */
must_check json_t *measurement_to_json(const struct lease *lease,
                                       const struct measurement *measurement,
                                       const struct digest *object);

/* A JSON string (a new reference) from a text of any encoding and length, such as a compiler's. */
must_check json_t *text_to_json(const char *text);

/* Exponential back-off with jitter: agents that lost one server together must not come back
 * together. */
struct backoff {
  int64_t least_ms, most_ms;
  int64_t base_ms;
  struct rng rng;
};
struct backoff backoff_new(int64_t least_ms, int64_t most_ms);
int64_t backoff_next_ms(struct backoff *backoff,
                        int64_t retry_after_s); /* never less than Retry-After */
void backoff_reset(struct backoff *backoff);

#endif
