/* The handlers of all routes, declared from the table: route_<id>, by where it runs. See
 * route.h. */
#ifndef WAVETUNE_SERVER_HTTP_ROUTES_H
#define WAVETUNE_SERVER_HTTP_ROUTES_H

#include "server/http/request.h"

#define ROUTE_DECLARE_ROUTE_DATABASE(id)                                                           \
  void route_##id(struct worker *worker, struct request *request);
#define ROUTE_DECLARE_ROUTE_EVENT_THREAD(id)                                                       \
  void route_##id(struct server *server, struct request *request);
#define X(id, method, path, role, place, ...) ROUTE_DECLARE_##place(id)
ROUTES(X)
#undef X

#endif
