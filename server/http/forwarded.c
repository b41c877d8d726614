/* Addresses, networks and certificates in headers. Memory and threads: as the header says. */
#include "server/http/forwarded.h"

#include <arpa/inet.h>
#include <gnutls/gnutls.h>

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
      return error_set(error, "\"%.60s\" is no network: behind the / there are 0 to %u bits", text,
                       most);
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

char *address_format(const struct sockaddr *address, char text[ADDRESS_SIZE]) {
  uint8_t bytes[16];
  if (address_bytes(address, bytes))
    return bytes_format(bytes, text);
  snprintf(text, ADDRESS_SIZE, "?");
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
    /* What is not an address was not written by a proxy of ours, and neither was anything before
     * it. */
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

static int hex_digit(char c) {
  return c >= '0' && c <= '9'                     ? c - '0'
         : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                  : -1;
}

/* False where a % is not followed by two digits. */
static bool percent_decode(char *text) {
  char *to = text;
  for (const char *from = text; *from; to++) {
    *to = *from++;
    if (*to != '%')
      continue;
    int high = hex_digit(from[0]), low = high < 0 ? -1 : hex_digit(from[1]);
    if (low < 0)
      return false;
    *to = (char)(high << 4 | low);
    from += 2;
  }
  *to = '\0';
  return true;
}

bool forwarded_certificate(const char *value, uint8_t **ret_der, size_t *ret_size) {
  cleanup_free char *text = xstrdup(value);
  bool is_pem = string_starts(value, "-----BEGIN");
  if (is_pem && !percent_decode(text))
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
