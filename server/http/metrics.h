/* What is counted and logged of answers (--log-requests), and /metrics.
 *
 * Counters are the process's. Threads: any. */
#ifndef WAVETUNE_SERVER_HTTP_METRICS_H
#define WAVETUNE_SERVER_HTTP_METRICS_H

#include "server/server.h"

struct connection;
struct route;

struct answer_note {
  const struct route *route; /* NULL: there is none */
  unsigned status;
  uint64_t bytes;  /* of the answer's body */
  int64_t work_ns; /* from the whole request to its answer, without waiting in the park */
  int64_t waited_ns;
  const char *token_name; /* "": without a token */
  const struct connection *connection;
};
/* An answer is about to be sent: counts it, and logs it with the id of log_set_request. */
void metrics_note_answer(const struct answer_note *note);

/* Why a token was refused, with 401 or, for what it may not do, 403. */
enum token_refusal {
  REFUSED_MISSING,
  REFUSED_UNKNOWN, /* or revoked */
  REFUSED_EXPIRED,
  REFUSED_ROLE,
  REFUSED_IDENTITY, /* --require-enrolment */
  TOKEN_REFUSALS
};
void metrics_note_refusal(enum token_refusal refusal);

must_check bool request_log_parse(const char *name,
                                  enum request_log *ret_log); /* "off", "errors", "all" */

#endif
