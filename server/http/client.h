/* The client of a connection, or of the trusted proxy that made it: its address and its
 * certificate.
 *
 * Memory: a certificate is the connection's; what other ret_ parameters return is the caller's.
 * Threads: the connection's event thread; client_address: the request's owner; the rest: pure
 * functions. */
#ifndef WAVETUNE_SERVER_HTTP_CLIENT_H
#define WAVETUNE_SERVER_HTTP_CLIENT_H

#include <netinet/in.h>

#include "server/http/request.h"
#include "server/http/tls.h"

/* Addresses of which the first `bits` of 128 are the same; those of IPv4 are ::ffff:a.b.c.d. */
struct network {
  uint8_t address[16];
  unsigned bits;
};
struct networks {
  size_t n;
  struct network *all;
};
/* "192.0.2.7", "192.0.2.0/24", "2001:db8::/32". */
must_check bool networks_parse(const char *const *texts, size_t n, struct networks *ret,
                               struct error *error);
void networks_release(struct networks *networks);
bool networks_have(const struct networks *networks, const struct sockaddr *address);

#define ADDRESS_SIZE INET6_ADDRSTRLEN
/* "192.0.2.7", also for ::ffff:192.0.2.7; "?" for other families. Returns text. */
char *address_format(const struct sockaddr *address, char text[ADDRESS_SIZE]);

/* The client in X-Forwarded-For, to which each proxy appends its caller's address: the last address
 * that is not a trusted proxy's. False, and text untouched: there is none. */
must_check bool forwarded_address(const struct networks *trusted, const char *value,
                                  char text[ADDRESS_SIZE]);

/* A certificate as nginx passes it (PEM, percent-encoded) or as haproxy does (DER in base64), as
 * DER. */
must_check bool forwarded_certificate(const char *value, uint8_t **ret_der, size_t *ret_size);

struct connection;

/* A certificate that was checked. */
struct client_certificate {
  char name[TLS_NAME_SIZE];
  struct digest digest; /* tls_name_digest: its key in the table of tokens */
  struct digest source; /* of the header that it came in; zeros: the connection's own handshake */
  int64_t until_ms;     /* clock_monotonic_ms; then it is checked again */
};

/* Notes whether the new connection is a trusted proxy's. */
void client_connected(struct connection *connection);

/* The certificate of the client; *ret is NULL where there is none. The header counts from trusted
 * proxies only, and a handshake's certificate from others only. False: there is one, and it is
 * refused. */
must_check bool client_certificate(struct connection *connection,
                                   const struct client_certificate **ret, struct error *error);

/* The address of the client, which trusted proxies may forward. Returns text. */
char *connection_address(const struct connection *connection, char text[ADDRESS_SIZE]);
char *client_address(const struct request *request, char text[ADDRESS_SIZE]);

/* Logs that the request is answered with 401, and the client's address: at most one line a second,
 * with how many were left out. */
void client_note_refused(const struct request *request, const char *why);

#endif
