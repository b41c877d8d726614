/* Limits how often each token may do something: a bucket for each, refilled evenly.
 *
 * Memory: owned by the server, of a fixed size, keyed by the tokens' names. Threads: any. */
#ifndef WAVETUNE_SERVER_HTTP_RATES_H
#define WAVETUNE_SERVER_HTTP_RATES_H

#include "server/http/request.h"

struct token_rates;
must_check struct token_rates *token_rates_new(int per_minute);
void token_rates_free(struct token_rates *rates);

/* Counts one event of the token. False: none is left for *ret_wait_s seconds. */
must_check bool token_rates_take(struct token_rates *rates, const char *token_name, int64_t now_ms,
                                 int64_t *ret_wait_s);

/* The same for a report of the request's token; when it posts too many, answers 429. */
must_check bool request_may_report(struct request *request, struct token_rates *rates,
                                   struct error *error);

#endif
