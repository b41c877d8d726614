/* How the tokens in memory follow the database's: other servers and the command line make and revoke them too.
 *
 * Threads: whose worker it is. */
#ifndef WAVETUNE_SERVER_HTTP_TOKENS_H
#define WAVETUNE_SERVER_HTTP_TOKENS_H

#include "server/http/request_private.h"

#define TOKEN_EXPIRED_TEXT "the token has expired; an admin makes another with \"wavetune token make\""

/* Requests of tokens that this process never saw: lets them go on or answers 401. */
void tokens_look_up(struct worker *worker, struct request_private *requests[], size_t n);

/* Answers 401: what the request shows is no live token's. */
void tokens_answer_unknown(struct request_private *request, bool is_expired);

/* Replaces the table in memory by the database's. */
must_check bool tokens_refresh(struct worker *worker, struct error *error);

#endif
