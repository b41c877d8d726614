/* The headers of a connection's present request.
 *
 * Memory: libmicrohttpd's, until the request is answered. Threads: the connection's event thread.
 */
#ifndef WAVETUNE_SERVER_HTTP_HEADERS_H
#define WAVETUNE_SERVER_HTTP_HEADERS_H

#include "server/http/request_private.h"

/* Reads them into the connection, with the request's method and id. */
void headers_read(struct connection *connection, const char *method, const char *version);

/* Refuses headers that a proxy and this server could read as different requests (RFC 9112, 6 and
 * 11.2). */
must_check bool headers_check(const struct connection *connection, struct error *error);

#endif
