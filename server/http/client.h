/* The address and the certificate of a connection's client; for a connection from a trusted proxy,
 * those that the proxy forwards.
 *
 * Memory: a certificate is the connection's; other results are the caller's. Threads: the
 * connection's event thread; client_address: the request's owner; networks, addresses and
 * forwarded_…: pure functions. */
#ifndef WAVETUNE_SERVER_HTTP_CLIENT_H
#define WAVETUNE_SERVER_HTTP_CLIENT_H

#include <netinet/in.h>

#include "server/http/request.h"
#include "server/http/tls.h"

/* The addresses with the same first `bits` of 128; IPv4 is mapped to ::ffff:a.b.c.d. */
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

/* The client in X-Forwarded-For, to which each proxy appends its caller's address: the last address
 * that is not a trusted proxy's. False: there is none, and text is unchanged. */
must_check bool forwarded_address(const struct networks *trusted, const char *value,
                                  char text[ADDRESS_SIZE]);

/* Decodes the header of nginx (PEM, percent-encoded) or haproxy (DER in base64) to DER. */
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

/* What limits by address count together: an address of IPv4, mapped; of IPv6 a network of 64 bits,
 * because a client usually has one; all zeros for other families. */
void address_group(const struct sockaddr *address, uint8_t ret[16]);
/* The group of the connection's peer. False: it is a trusted proxy, which has the connections of
 * many clients. */
must_check bool client_peer(const struct connection *connection, uint8_t ret[16]);

/* The certificate of the client; *ret is NULL when there is none. A trusted proxy's client has it
 * in the header, any other client in its handshake. False: it is refused. */
must_check bool client_certificate(struct connection *connection,
                                   const struct client_certificate **ret, struct error *error);

/* The address of the client, which trusted proxies may forward: "192.0.2.7", also for
 * ::ffff:192.0.2.7; "?" for other families. Returns text. */
char *connection_address(const struct connection *connection, char text[ADDRESS_SIZE]);
char *client_address(const struct request *request, char text[ADDRESS_SIZE]);

/* Logs a request that is answered 401, with the client's address: at most one line a second, with
 * the number of those left out. */
void client_note_refused(const struct request *request, const char *why);

#endif
