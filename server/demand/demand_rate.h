/* How many reports of demand a token may post: a bucket for each, refilled evenly.
 *
 * Threads: any. Memory: a bounded static table, keyed by the token's name. */
#ifndef WAVETUNE_SERVER_DEMAND_DEMAND_RATE_H
#define WAVETUNE_SERVER_DEMAND_DEMAND_RATE_H

#include "common/base/base.h"

/* Takes one of the token's reports. False: it has none left; *ret_wait_s says for how long. */
must_check bool demand_rate_take(const char *token_name, int per_minute, int64_t now_ms, int64_t *ret_wait_s);

#endif
