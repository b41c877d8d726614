/* GET /v1/cache: what a starting container asks. Threads: database workers. */
#include "server/http/channel_entry.h"
#include "server/http/routes.h"

#define X(member, hardware) #member,
static const char *const cache_arguments[] = {ENVIRONMENT_TEXTS(X) "compute_units", "tag", "channel", NULL};
#undef X

void route_cache_get(struct worker *worker, struct request **requests, size_t n) {
  for (size_t i = 0; i < n; i++) {
    const char *channel = request_query(requests[i], "channel");
    if (request_query_only(requests[i], cache_arguments))
      channel_entry_answer(worker, requests[i], channel ? channel : "stable", "exact");
  }
}
