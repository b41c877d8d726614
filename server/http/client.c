/* The peer of a connection: addresses and networks, certificates, and what trusted proxies forward
 * of them. */
#include "server/http/client.h"

#include <stdatomic.h>

#include "common/base/log.h"
#include "server/http/http_private.h"
#include "server/http/request_private.h"

/* How long a certificate is valid without another check of its dates and its authority. */
#define CHECKED_MS 60000
#define REFUSED_EVERY_MS 1000

static const uint8_t four_prefix[12] = {[10] = 0xff, [11] = 0xff};

static void address_map(const struct in_addr *four, uint8_t ret[16]) {
  memcpy(ret, four_prefix, sizeof four_prefix);
  memcpy(ret + sizeof four_prefix, four, sizeof *four);
}

/* Text of IPv4 or IPv6 as 16 bytes; *ret_is_four: which one it was. */
static bool address_parse(const char *text, uint8_t ret[16], bool *ret_is_four) {
  struct in_addr four;
  *ret_is_four = inet_pton(AF_INET, text, &four) == 1;
  if (*ret_is_four)
    address_map(&four, ret);
  return *ret_is_four || inet_pton(AF_INET6, text, ret) == 1;
}

static bool address_bytes(const struct sockaddr *address, uint8_t ret[16]) {
  if (address->sa_family == AF_INET)
    address_map(&((const struct sockaddr_in *)address)->sin_addr, ret);
  else if (address->sa_family == AF_INET6)
    memcpy(ret, &((const struct sockaddr_in6 *)address)->sin6_addr, 16);
  else
    return false;
  return true;
}

static bool network_parse(const char *text, struct network *ret, struct error *error) {
  char address[ADDRESS_SIZE];
  bool is_four;
  size_t length = strcspn(text, "/");
  snprintf(address, sizeof address, "%.*s", (int)length, text);
  if (length >= sizeof address || !address_parse(address, ret->address, &is_four))
    return error_set(
        error, "\"%.60s\" is no address; write 192.0.2.7, 192.0.2.0/24 or 2001:db8::/32", text);

  unsigned most = is_four ? 32 : 128, bits = most;
  if (text[length]) {
    char *end;
    const char *digits = text + length + 1;
    unsigned long given = strtoul(digits, &end, 10);
    if (*digits < '0' || *digits > '9' || *end || given > most)
      return error_set(error, "\"%.60s\" is no network: after the / there must be 0 to %u bits",
                       text, most);
    bits = (unsigned)given;
  }

  ret->bits = is_four ? 8 * sizeof four_prefix + bits : bits;
  return true;
}

bool networks_parse(const char *const *texts, size_t n, struct networks *ret, struct error *error) {
  cleanup_free struct network *all = xcalloc(n, sizeof *all);
  for (size_t i = 0; i < n; i++)
    if (!network_parse(texts[i], &all[i], error))
      return false;
  *ret = (struct networks){n, TAKE(all)};
  return true;
}

void networks_release(struct networks *networks) {
  free(networks->all);
  *networks = (struct networks){0};
}

static bool bytes_are_in(const struct networks *networks, const uint8_t address[16]) {
  for (size_t i = 0; i < networks->n; i++) {
    const struct network *network = &networks->all[i];
    size_t whole = network->bits / 8;
    uint8_t mask = (uint8_t)(0xff00 >> network->bits % 8);
    if (memcmp(address, network->address, whole) == 0 &&
        (whole == 16 || ((address[whole] ^ network->address[whole]) & mask) == 0))
      return true;
  }

  return false;
}

bool networks_have(const struct networks *networks, const struct sockaddr *address) {
  uint8_t bytes[16];
  return networks->n && address_bytes(address, bytes) && bytes_are_in(networks, bytes);
}

static char *bytes_format(const uint8_t address[16], char text[ADDRESS_SIZE]) {
  bool is_four = memcmp(address, four_prefix, sizeof four_prefix) == 0;
  ALWAYS(inet_ntop(is_four ? AF_INET : AF_INET6, is_four ? address + sizeof four_prefix : address,
                   text, ADDRESS_SIZE) != NULL);
  return text;
}

bool forwarded_address(const struct networks *trusted, const char *value, char text[ADDRESS_SIZE]) {
  const char *end = value + strlen(value);
  bool is_found = false;
  for (;;) {
    while (end > value && strchr(", \t", end[-1]))
      end--;
    const char *begin = end;
    while (begin > value && !strchr(", \t", begin[-1]))
      begin--;

    char one[ADDRESS_SIZE];
    uint8_t bytes[16];
    bool is_four;
    /* A trusted proxy wrote neither a text that is not an address nor anything before it. */
    if (begin == end || (size_t)(end - begin) >= sizeof one)
      return is_found;

    snprintf(one, sizeof one, "%.*s", (int)(end - begin), begin);
    if (!address_parse(one, bytes, &is_four))
      return is_found;

    bytes_format(bytes, text);
    is_found = true;
    if (!bytes_are_in(trusted, bytes))
      return true;
    end = begin;
  }
}

bool forwarded_certificate(const char *value, uint8_t **ret_der, size_t *ret_size) {
  cleanup_free char *text = xstrdup(value);
  struct error error;
  bool is_pem = string_starts(value, "-----BEGIN");
  if (is_pem && !uri_decode(text, false, &error))
    return false;

  gnutls_datum_t given = {(unsigned char *)text, (unsigned)strlen(text)}, der = {0};
  int reason = is_pem ? gnutls_pem_base64_decode2("CERTIFICATE", &given, &der)
                      : gnutls_base64_decode2(&given, &der);
  if (reason < 0 || der.size == 0) {
    gnutls_free(der.data);
    return false;
  }

  *ret_der = xmemdup(der.data, der.size);
  *ret_size = der.size;
  gnutls_free(der.data);
  return true;
}

static const struct sockaddr *peer_of(const struct connection *connection) {
  const union MHD_ConnectionInfo *info =
      MHD_get_connection_info(connection->mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
  ALWAYS(info != NULL);
  return info->client_addr;
}

void client_connected(struct connection *connection) {
  connection->is_proxy = networks_have(&connection->http->trusted_proxies, peer_of(connection));
  connection->certificate = NULL;
}

void address_group(const struct sockaddr *address, uint8_t ret[16]) {
  memset(ret, 0, 16);
  if (address_bytes(address, ret) && memcmp(ret, four_prefix, sizeof four_prefix) != 0)
    memset(ret + 8, 0, 8);
}

bool client_peer(const struct connection *connection, uint8_t ret[16]) {
  address_group(peer_of(connection), ret);
  return !connection->is_proxy;
}

bool client_certificate(struct connection *connection, const struct client_certificate **ret,
                        struct error *error) {
  struct client_certificate *known = connection->certificate;
  const char *header = connection->headers[HEADER_CLIENT_CERTIFICATE];
  struct tls *tls = connection->http->tls;
  struct digest source = {0};
  *ret = NULL;
  if (!tls || !tls_asks_clients(tls) || (connection->is_proxy && !header))
    return true;

  if (connection->is_proxy)
    source = digest_of(header, strlen(header));
  if (known && clock_monotonic_ms() < known->until_ms && digest_equal(&known->source, &source)) {
    *ret = known;
    return true;
  }

  cleanup_free uint8_t *der = NULL;
  size_t size;
  gnutls_datum_t leaf;
  const gnutls_datum_t *chain = &leaf;
  unsigned n = 1;
  if (connection->is_proxy) {
    if (!forwarded_certificate(header, &der, &size))
      return error_set(
          error, "the header X-Client-Cert is neither PEM, percent-encoded, nor DER in base64");
    leaf = (gnutls_datum_t){der, (unsigned)size};
  } else {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection->mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    chain = info && info->tls_session ? gnutls_certificate_get_peers(info->tls_session, &n) : NULL;
    if (!chain || n == 0)
      return true;
  }

  /* Stored, so that the connection's next request does not check it again. */
  if (!known)
    known = connection->certificate = xcalloc(1, sizeof *known);
  known->until_ms = 0;
  if (!tls_client_name(tls, chain, n, known->name, error))
    return false;

  known->digest = tls_name_digest(known->name);
  known->source = source;
  known->until_ms = clock_monotonic_ms() + CHECKED_MS;
  *ret = known;
  return true;
}

char *connection_address(const struct connection *connection, char text[ADDRESS_SIZE]) {
  const char *forwarded = connection->is_proxy ? connection->headers[HEADER_FORWARDED_FOR] : NULL;
  uint8_t bytes[16];
  if (forwarded && forwarded_address(&connection->http->trusted_proxies, forwarded, text))
    return text;
  if (address_bytes(peer_of(connection), bytes))
    return bytes_format(bytes, text);
  snprintf(text, ADDRESS_SIZE, "?");
  return text;
}

char *client_address(const struct request *request, char text[ADDRESS_SIZE]) {
  return connection_address(request_private_of(request)->connection, text);
}

void client_note_refused(const struct request *request, const char *why) {
  static atomic_int_fast64_t logged_ms = INT64_MIN / 2;
  static atomic_uint_fast64_t n_left_out;
  char address[ADDRESS_SIZE];
  int64_t now_ms = clock_monotonic_ms(), before_ms = atomic_load(&logged_ms);
  if (now_ms - before_ms < REFUSED_EVERY_MS ||
      !atomic_compare_exchange_strong(&logged_ms, &before_ms, now_ms)) {
    atomic_fetch_add(&n_left_out, 1);
    return;
  }

  log_warning("http: refused address=%s more=%llu: %s", client_address(request, address),
              (unsigned long long)atomic_exchange(&n_left_out, 0), why);
}
