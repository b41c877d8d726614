/* Temporary: stands in for handlers whose file is not there yet. When one appears, touch this file and build again. */
#include "server/core/housekeep.h"
#include "server/http/routes.h"

#define DATABASE(id)                                                                                                   \
  __attribute__((weak)) void route_##id(struct worker *worker, struct request **requests, size_t n) {                  \
    (void)worker;                                                                                                      \
    for (size_t i = 0; i < n; i++)                                                                                     \
      request_problem(requests[i], 501, "", "not linked");                                                             \
  }
#define IN_MEMORY(id)                                                                                                  \
  __attribute__((weak)) void route_##id(struct server *server, struct request *request) {                              \
    (void)server;                                                                                                      \
    request_problem(request, 501, "", "not linked");                                                                   \
  }
#if !__has_include("server/http/route_jobs.c")
DATABASE(job_post)
DATABASE(job_list)
DATABASE(job_get)
DATABASE(job_measurements)
DATABASE(job_events)
DATABASE(job_delete)
#endif
#if !__has_include("server/http/route_agents.c")
DATABASE(environment_list)
DATABASE(agent_post)
IN_MEMORY(agent_heartbeat)
DATABASE(agent_drain)
DATABASE(agent_list)
#endif
#if !__has_include("server/http/route_leases.c")
DATABASE(lease_post)
DATABASE(lease_renew)
DATABASE(lease_results)
DATABASE(lease_release)
#endif
#if !__has_include("server/http/route_releases.c")
DATABASE(release_post)
DATABASE(release_list)
DATABASE(release_get)
DATABASE(release_export)
#endif
#if !__has_include("server/http/route_channels.c")
DATABASE(channel_put)
DATABASE(channel_list)
DATABASE(channel_get)
#endif
#if !__has_include("server/http/route_cache.c")
DATABASE(cache_get)
#endif
