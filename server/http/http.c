/* Makes, configures and stops the objects of server/http. */
#include <time.h>

#include "server/http/bodies.h"
#include "server/http/flights.h"
#include "server/http/http_private.h"
#include "server/http/page.h"
#include "server/http/sign_in.h"
#include "server/records.h"

#define RESPONSE_CACHE_BYTES_MAX (128 * (size_t)MIB)
/* How long sending the last answers may take. */
#define LAST_ANSWERS_MS 2000

struct http *http_new(const struct server_options *options, response_fetched *fetched,
                      void *context) {
  struct http *http = xcalloc(1, sizeof *http);
  http->queue = queue_new(options->queue_max, options->poll_ms);
  http->auth = auth_new();
  http->response_cache = response_cache_new(RESPONSE_CACHE_BYTES_MAX, fetched, context);
  http->flights = flights_new();
  http->request_rates = request_rates_new();
  http->bodies = bodies_new((size_t)options->bodies_bytes);
  http->openapi = openapi_text();
  http->operations = openapi_operations();
  http->page = page_new();
  http->started_ms = clock_monotonic_ms();
  return http;
}

void http_free(struct http *http) {
  if (!http)
    return;
  connections_free(http->connections);
  queue_free(http->queue);
  auth_free(http->auth);
  response_cache_free(http->response_cache);
  flights_free(http->flights);
  request_rates_free(http->request_rates);
  bodies_free(http->bodies);
  networks_release(&http->trusted_proxies);
  sign_in_free(http->sign_in);
  tls_free(http->tls);
  free(http->openapi);
  json_decref(http->operations);
  page_free(http->page);
  free(http);
}

bool http_start(struct server *server, struct error *error) {
  const struct server_options *options = server_options(server);
  struct http *http = server_http(server);
  const struct tls_files files = {options->tls_certificate, options->tls_key,
                                  options->tls_client_ca};
  if (!networks_parse(options->trusted_proxies, options->n_trusted_proxies, &http->trusted_proxies,
                      error))
    return error_prefix(error, "--trusted-proxy: ");
  if (!sign_in_new(options, &http->sign_in, error))
    return false;
  if (files.client_ca && !files.certificate && !http->trusted_proxies.n)
    return error_set(
        error, "--tls-client-ca needs --tls-certificate and --tls-key, or the --trusted-proxy that "
               "forwards clients' certificates");
  return tls_new(&files, &http->tls, error) && daemon_start(server, &http->daemon, error);
}

int http_port(const struct http *http) { return daemon_port(http->daemon); }
bool http_has_tls(const struct http *http) { return http->tls && tls_serves(http->tls); }

bool http_reload(struct http *http) {
  if (http->tls)
    tls_reload(http->tls);
  return http->tls != NULL;
}

void http_reload_changed(struct http *http) {
  if (http->tls)
    tls_reload_changed(http->tls);
}

void http_quiesce(struct http *http) {
  if (http->daemon)
    daemon_quiesce(http->daemon);
  queue_stop(http->queue);
}

void http_stop(struct http *http) {
  if (!http->daemon)
    return;
  int64_t until_ms = clock_monotonic_ms() + LAST_ANSWERS_MS;
  while (atomic_load(&http->n_open) && clock_monotonic_ms() < until_ms)
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
  daemon_stop(TAKE(http->daemon));
}
