/* What is asked for of a new token: the body of POST /v1/tokens, which `wavetune-server token make` makes from its options.
 *
 * Memory: terms own their environment; other texts are borrowed from the JSON. Threads: any. */
#ifndef WAVETUNE_SERVER_TOKEN_TOKEN_REQUEST_H
#define WAVETUNE_SERVER_TOKEN_TOKEN_REQUEST_H

#include "common/base/json.h"
#include "server/token/token_store.h"

#define TOKEN_USES_MAX 1000000

/* "90s", "30m", "12h" or "7d" as milliseconds above 0; false: it is none. */
must_check bool duration_parse(const char *text, int64_t *ret_ms);

/* {"name", "role", "expires": "7d" or a time, for the role publisher "channels", for the role enrol "uses", "agent_name", "environment", and for the role agent
 * "certificate": the name of the client certificate that stands for it, as tls.h writes it, or NULL. */
struct token_request {
  struct token_terms terms;
  const char *certificate;
  struct digest digest; /* of the certificate's name */
};
must_check bool token_request_parse(const json_t *json, struct token_request *ret, struct error *error);
/* Why none was made: there is one already. */
void token_request_taken(const struct token_request *request, struct error *ret_error);

#endif
