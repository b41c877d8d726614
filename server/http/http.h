/* The HTTP server: its socket, connections, queue, tokens and caches. server/main/ starts and stops
 * it.
 *
 * Memory: a struct http owns all of them. Threads: the one that starts and stops the server, unless
 * stated. */
#ifndef WAVETUNE_SERVER_HTTP_HTTP_H
#define WAVETUNE_SERVER_HTTP_HTTP_H

#include "server/http/response_cache.h"

struct http;
/* `fetched`, with `context`: response_cache_new. */
must_check struct http *http_new(const struct server_options *options, response_fetched *fetched,
                                 void *context);
void http_free(struct http *http); /* must be stopped */
struct http *server_http(const struct server *server);

/* Reads the files and rules that the options name, opens the socket and starts the event
 * threads. */
must_check bool http_start(struct server *server, struct error *error);
int http_port(const struct http *http);
bool http_has_tls(const struct http *http);

/* Reads the files of --tls-… again, and logs the result; false: there are none. */
bool http_reload(struct http *http);
/* The same for files that changed. The housekeeper calls it every second. */
void http_reload_changed(struct http *http);

/* Accepts no more connections; answers every parked and queued request with 503. */
void http_quiesce(struct http *http);
/* Sends the last answers and ends all connections. No handler may run. */
void http_stop(struct http *http);

/* The main function of a database worker's thread: takes its struct worker. */
void *work_main(void *worker);

#endif
