/* What is asked for of a new token: the body of POST /v1/tokens, which `wavetune-server token make` makes from its options.
 *
 * Memory: terms own their environment; other texts are borrowed from the JSON. Threads: any. */
#ifndef WAVETUNE_SERVER_HTTP_TOKEN_REQUEST_H
#define WAVETUNE_SERVER_HTTP_TOKEN_REQUEST_H

#include "common/base/json.h"
#include "server/store/tokens.h"

#define TOKEN_USES_MAX 1000000

/* {"name", "role", "expires": "7d" or a time, and for the role enrol "uses", "agent_name", "environment"} */
must_check bool token_request_parse(const json_t *json, struct token_terms *ret, struct error *error);

#endif
