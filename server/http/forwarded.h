/* What a proxy in front of the server says of the client: parsing, and which proxies are believed.
 *
 * Memory: what ret_ parameters return is the caller's. Threads: pure functions. */
#ifndef WAVETUNE_SERVER_HTTP_FORWARDED_H
#define WAVETUNE_SERVER_HTTP_FORWARDED_H

#include <netinet/in.h>

#include "common/base/error.h"

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
/* "192.0.2.7", also for ::ffff:192.0.2.7; "?" for what is not of IPv4 or IPv6. Returns text. */
char *address_format(const struct sockaddr *address, char text[ADDRESS_SIZE]);

/* The client that X-Forwarded-For names: of its addresses, to which each proxy added the one it was
 * called from, the last that is no trusted proxy's. False, and text untouched: it names none. */
must_check bool forwarded_address(const struct networks *trusted, const char *value,
                                  char text[ADDRESS_SIZE]);

/* A certificate as nginx passes it (PEM, percent-encoded) or as haproxy does (DER in base64), as
 * DER. */
must_check bool forwarded_certificate(const char *value, uint8_t **ret_der, size_t *ret_size);

#endif
