/* The server itself: probes, metrics, contract. Event threads. */
#include "server/http/metrics.h"
#include "server/http/response.h"
#include "server/http/routes.h"
#include "server/server_private.h"

void route_healthz_get(struct server *server, struct request *request) {
  (void)server;
  request_answer_json(request, MHD_HTTP_OK,
                      json_pack("{s:s, s:s}", "status", "ok", "version", WAVETUNE_VERSION));
}

void route_readyz_get(struct server *server, struct request *request) {
  if (server_is_ready(server))
    request_answer_json(request, MHD_HTTP_OK, json_pack("{s:s}", "status", "ready"));
  else /* anyone may ask: where the database is, is for the log */
    request_problem(request, MHD_HTTP_SERVICE_UNAVAILABLE, "",
                    "not ready; the server's log says why");
}

void route_metrics_get(struct server *server, struct request *request) {
  size_t size;
  char *text = metrics_text(server, &size);
  request_answer_text(request, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8", text, size);
}

void route_openapi_get(struct server *server, struct request *request) {
  char *text = xstrdup(server->openapi);
  request_answer_text(request, MHD_HTTP_OK, "application/json", text, strlen(text));
}
