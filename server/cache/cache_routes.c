/* GET /v1/cache: what a starting container asks. Threads: database workers. */
#include "server/channel/channel_entry.h"
#include "server/http/routes.h"

#define X(member, hardware) #member,
static const char *const cache_arguments[] = {
    ENVIRONMENT_TEXTS(X) "compute_units", "tag", "regime", "channel", "match", NULL};
#undef X

void route_cache_get(struct worker *worker, struct request *request) {
  const char *channel = request_query(request, "channel"), *match = request_query(request, "match");
  enum cache_rule widest = CACHE_RULE_UNSTATED;
  if (!request_query_only(request, cache_arguments))
    return;
  if (match && !cache_rule_parse(match, &widest))
    request_problem(request, 422, "", "match=%.32s is unknown: it must be " CACHE_RULES, match);
  else
    channel_cache_answer(worker, request, channel ? channel : "stable", widest);
}
