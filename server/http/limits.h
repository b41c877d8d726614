/* Limits of what one token may send and have, so that one client does not take what all share.
 *
 * Tokens of operators and admins have none. Requests are counted in memory, by each server for
 * itself; the rest is counted in the database, and requests at the same time may exceed it by what
 * they add. Threads: any. */
#ifndef WAVETUNE_SERVER_HTTP_LIMITS_H
#define WAVETUNE_SERVER_HTTP_LIMITS_H

#include "common/base/error.h"
#include "server/options.h"

#define LIMIT_BURST_S 5 /* how many seconds' requests may come at once */

struct author;
struct server;
/* 0: there is none for this author. */
int64_t limit_of(const struct server *server, const struct author *author, enum limit limit);
/* False, with a sentence of the kind ERROR_RATE that names the limit and its option, when `n` is
 * more than the author's limit. */
must_check bool limit_check(const struct server *server, const struct author *author,
                            enum limit limit, int64_t n, struct error *error);

/* The requests of tokens: a bucket for each. */
struct request_rates;
must_check struct request_rates *request_rates_new(void);
void request_rates_free(struct request_rates *rates);
must_check bool request_rates_take(struct request_rates *rates, int64_t token, int64_t now_ms,
                                   int64_t per_second);

/* Counts a request of the request's token; when it sends too many, answers 429, which is held
 * (deadlines.h). */
struct request;
must_check bool request_may_run(struct request *request);

#endif
