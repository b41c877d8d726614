/* What is counted and logged of each answer: by route and status, how long the server worked for
 * it, and its line in the log of requests (--log-requests).
 *
 * Counters are the process's. Threads: any. */
#ifndef WAVETUNE_SERVER_HTTP_TRAFFIC_H
#define WAVETUNE_SERVER_HTTP_TRAFFIC_H

#include "server/http/request_private.h"

struct traffic_answer {
  const struct route *route; /* NULL: there is none */
  const char *method;
  unsigned status;
  uint64_t bytes;  /* of the answer's body */
  int64_t work_ns; /* from the whole request to its answer, without what it waited in the park */
  int64_t waited_ns;
  const char *token_name; /* "": without a token */
  const struct connection *connection;
};

/* An answer is about to be sent. Writes the line, where it gets one: with the id of
 * log_set_request. */
void traffic_note(const struct server *server, const struct traffic_answer *answer);

/* Why a token was refused, with 401 or, for what it may not do, 403. */
enum traffic_refusal {
  TRAFFIC_REFUSED_MISSING,
  TRAFFIC_REFUSED_UNKNOWN, /* or revoked */
  TRAFFIC_REFUSED_EXPIRED,
  TRAFFIC_REFUSED_ROLE,
  TRAFFIC_REFUSED_IDENTITY, /* --require-enrolment */
  TRAFFIC_REFUSALS
};
void traffic_note_refusal(enum traffic_refusal refusal);

/* Prometheus' text. */
void traffic_write(FILE *out);

must_check bool request_log_parse(const char *name,
                                  enum request_log *ret_log); /* "off", "errors", "all" */

#endif
