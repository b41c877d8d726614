/* The objects of server/http, and libmicrohttpd's daemon. */
#ifndef WAVETUNE_SERVER_HTTP_HTTP_PRIVATE_H
#define WAVETUNE_SERVER_HTTP_HTTP_PRIVATE_H

#include <stdatomic.h>

#include "server/http/client.h"
#include "server/http/http.h"
#include "server/http/request_private.h"

struct http {
  struct queue *queue;
  struct auth *auth;
  struct response_cache *response_cache;
  struct flights *flights;
  struct request_rates *request_rates;
  struct bodies *bodies;
  struct networks trusted_proxies;
  struct sign_in *sign_in; /* NULL: no proxy signs users in */
  struct tls *tls;         /* NULL: neither a certificate nor authorities of client certificates */
  struct daemon *daemon;   /* NULL: it does not listen */
  struct connections *connections;
  char *openapi;                     /* the document's text */
  json_t *operations;                /* openapi_operations */
  struct page *page;                 /* the web page's files */
  atomic_size_t n_open, n_suspended; /* requests begun and not completed; of these, suspended */
  int64_t started_ms;
};

/* libmicrohttpd's daemon: its socket, its threads, its limits. Threads: the one that starts and
 * stops the server. */
must_check bool daemon_start(struct server *server, struct daemon **ret_daemon,
                             struct error *error);
int daemon_port(const struct daemon *daemon);
/* Accepts no new connections; the open ones stay. */
void daemon_quiesce(struct daemon *daemon);
/* Ends all connections and the threads. No connection may be suspended: libmicrohttpd aborts the
 * process otherwise. */
void daemon_stop(struct daemon *daemon);

#endif
