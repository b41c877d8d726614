/* The other end of a connection. Memory and threads: as the header says. */
#include "server/http/client.h"

#include <stdatomic.h>

#include "common/base/log.h"
#include "server/http/request_private.h"
#include "server/server_private.h"

/* How long a certificate counts without another look at its time and its authority. */
#define CHECKED_MS 60000
#define REFUSED_EVERY_MS 1000

static const struct sockaddr *peer_of(const struct connection *connection) {
  const union MHD_ConnectionInfo *info =
      MHD_get_connection_info(connection->mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
  ALWAYS(info != NULL);
  return info->client_addr;
}

void client_connected(struct connection *connection) {
  connection->is_proxy = networks_have(&connection->server->trusted_proxies, peer_of(connection));
  connection->certificate = NULL;
}

/* Keeps what was checked, so that the next request of the connection need not. */
static bool check(struct connection *connection, const gnutls_datum_t *chain, unsigned n,
                  const struct digest *source, const struct client_certificate **ret,
                  struct error *error) {
  struct client_certificate *certificate = connection->certificate;
  if (!certificate)
    certificate = connection->certificate = xcalloc(1, sizeof *certificate);
  certificate->until_ms = 0;
  if (!tls_client_name(connection->server->tls, chain, n, certificate->name, error))
    return false;
  certificate->digest = tls_name_digest(certificate->name);
  certificate->source = *source;
  certificate->until_ms = clock_monotonic_ms() + CHECKED_MS;
  *ret = certificate;
  return true;
}

bool client_certificate(struct connection *connection, const struct head *head,
                        const struct client_certificate **ret, struct error *error) {
  const struct client_certificate *known = connection->certificate;
  struct tls *tls = connection->server->tls;
  struct digest source = {0};
  cleanup_free uint8_t *der = NULL;
  size_t size;
  *ret = NULL;
  if (!tls || !tls_asks_clients(tls) || (connection->is_proxy && !head->client_certificate))
    return true;
  if (connection->is_proxy)
    source = digest_of(head->client_certificate, strlen(head->client_certificate));
  if (known && clock_monotonic_ms() < known->until_ms && digest_equal(&known->source, &source)) {
    *ret = known;
    return true;
  }

  if (connection->is_proxy) {
    if (!forwarded_certificate(head->client_certificate, &der, &size))
      return error_set(
          error, "the header X-Client-Cert is neither PEM, percent-encoded, nor DER in base64");
    const gnutls_datum_t leaf = {der, (unsigned)size};
    return check(connection, &leaf, 1, &source, ret, error);
  }
  const union MHD_ConnectionInfo *info =
      MHD_get_connection_info(connection->mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION);
  unsigned n = 0;
  const gnutls_datum_t *chain =
      info && info->tls_session ? gnutls_certificate_get_peers(info->tls_session, &n) : NULL;
  return !chain || n == 0 || check(connection, chain, n, &source, ret, error);
}

char *connection_address(const struct connection *connection, char text[ADDRESS_SIZE]) {
  const char *forwarded = connection->is_proxy ? connection->head.forwarded_for : NULL;
  if (forwarded && forwarded_address(&connection->server->trusted_proxies, forwarded, text))
    return text;
  return address_format(peer_of(connection), text);
}

char *client_address(const struct request *request, char text[ADDRESS_SIZE]) {
  return connection_address(request_private_of(request)->connection, text);
}

void client_note_refused(const struct request *request, const char *why) {
  static atomic_int_fast64_t said_ms = INT64_MIN / 2;
  static atomic_uint_fast64_t n_left_out;
  char address[ADDRESS_SIZE];
  int64_t now_ms = clock_monotonic_ms(), before_ms = atomic_load(&said_ms);
  if (now_ms - before_ms < REFUSED_EVERY_MS ||
      !atomic_compare_exchange_strong(&said_ms, &before_ms, now_ms)) {
    atomic_fetch_add(&n_left_out, 1);
    return;
  }
  log_warning("http: refused address=%s more=%llu: %s", client_address(request, address),
              (unsigned long long)atomic_exchange(&n_left_out, 0), why);
}
