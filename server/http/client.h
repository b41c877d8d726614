/* Who is at the other end of a connection, or behind the trusted proxy that is there: its address
 * and its certificate.
 *
 * Memory: a certificate is the connection's, and so are its texts. Threads: the connection's event
 * thread; client_address: the request's owner. */
#ifndef WAVETUNE_SERVER_HTTP_CLIENT_H
#define WAVETUNE_SERVER_HTTP_CLIENT_H

#include "server/http/forwarded.h"
#include "server/http/request.h"
#include "server/http/tls.h"

struct connection;
struct head;

/* A certificate that was checked. */
struct client_certificate {
  char name[TLS_NAME_SIZE];
  struct digest digest; /* tls_name_digest: what it is in the table of tokens */
  struct digest source; /* of the header that it came in; all zero: of the connection's own
                           handshake */
  int64_t until_ms;     /* clock_monotonic_ms: then it is checked again */
};

/* Notes whether the new connection is a trusted proxy's. */
void client_connected(struct connection *connection);

/* The certificate of whoever sent the request; *ret is NULL where there is none. Headers count from
 * trusted proxies only, and the certificate of a handshake counts from others only. False: there is
 * one, and it is refused. */
must_check bool client_certificate(struct connection *connection, const struct head *head,
                                   const struct client_certificate **ret, struct error *error);

/* The address of the client, as far as trusted proxies tell it. Returns text. */
char *connection_address(const struct connection *connection, char text[ADDRESS_SIZE]);
char *client_address(const struct request *request, char text[ADDRESS_SIZE]);

/* Logs that the request was answered with 401, and to whom: at most one line a second, with how
 * many were left out. */
void client_note_refused(const struct request *request, const char *why);

#endif
