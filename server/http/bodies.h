/* A budget of memory for the bodies of requests that are open, and for the JSON values that are
 * made of them.
 *
 * Small ones are not counted, so that heartbeats, leases and most results are always read. One
 * token may have half of the budget. Threads: any. */
#ifndef WAVETUNE_SERVER_HTTP_BODIES_H
#define WAVETUNE_SERVER_HTTP_BODIES_H

#include "common/base/base.h"

#define BODY_UNCOUNTED (64 * 1024)
#define JSON_UNCOUNTED (1024 * 1024)
/* A JSON value may take so much memory for each byte that the route's body may have. */
#define JSON_FACTOR 32

struct bodies;
must_check struct bodies *bodies_new(size_t most);
void bodies_free(struct bodies *bodies); /* must be empty */

enum bodies_answer { BODIES_TAKEN, BODIES_FULL, BODIES_TOKEN_FULL };
enum bodies_answer bodies_take(struct bodies *bodies, int64_t token, size_t bytes);
void bodies_give(struct bodies *bodies, int64_t token, size_t bytes);
size_t bodies_used(struct bodies *bodies);
size_t bodies_most_of_token(const struct bodies *bodies);

#endif
