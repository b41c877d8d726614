/* How many reports a token may post, by a bucket for each that is refilled evenly, and when jobs
 * are queued next.
 *
 * Memory: owned by the server, of a fixed size, keyed by the tokens' names. Threads: any. */
#ifndef WAVETUNE_SERVER_DEMAND_DEMAND_RATE_H
#define WAVETUNE_SERVER_DEMAND_DEMAND_RATE_H

#include "common/base/base.h"

struct demand_rate;
must_check struct demand_rate *demand_rate_new(void);
void demand_rate_free(struct demand_rate *rate);

/* Takes one of the token's reports. False: none is left for *ret_wait_s seconds. */
must_check bool demand_rate_take(struct demand_rate *rate, const char *token_name, int per_minute,
                                 int64_t now_ms, int64_t *ret_wait_s);

/* True once in every_ms: jobs are queued now. */
must_check bool demand_rate_is_due(struct demand_rate *rate, int64_t every_ms, int64_t now_ms);

#endif
