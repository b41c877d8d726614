/* Ids of leases. Memory and threads: as the header says. */
#include "server/lease/lease_id.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "common/base/digest.h"

#define MAC_BYTES 16
#define MAC_LENGTH 22 /* of base64url without padding */

static void mac_of(const uint8_t secret[LEASE_SECRET_SIZE], int64_t lease, int64_t epoch,
                   const char *agent, char ret[MAC_LENGTH + 1]) {
  uint8_t base64[4 * (MAC_BYTES + 2) / 3 + 1];
  cleanup_free char *message = xasprintf("%lld|%lld|%s", (long long)lease, (long long)epoch, agent);
  struct digest mac = digest_keyed(secret, LEASE_SECRET_SIZE, message, strlen(message));
  ALWAYS(EVP_EncodeBlock(base64, mac.bytes, MAC_BYTES) == MAC_LENGTH + 2);
  for (size_t i = 0; i < MAC_LENGTH; i++)
    ret[i] = base64[i] == '+' ? '-' : base64[i] == '/' ? '_' : (char)base64[i];
  ret[MAC_LENGTH] = '\0';
}

char *lease_id_format(const uint8_t secret[LEASE_SECRET_SIZE], int64_t lease, int64_t epoch,
                      const char *agent, char text[LEASE_ID_SIZE]) {
  char mac[MAC_LENGTH + 1] = "";
  if (*agent)
    mac_of(secret, lease, epoch, agent, mac);
  snprintf(text, LEASE_ID_SIZE, "%lld%s%s", (long long)lease, *agent ? "." : "", mac);
  return text;
}

enum lease_id_answer lease_id_check(const uint8_t secret[LEASE_SECRET_SIZE], const char *text,
                                    int64_t epoch, const char *agent, int64_t *ret_lease) {
  char *end, mac[MAC_LENGTH + 1];
  errno = 0;
  long long lease = strtoll(text, &end, 10);
  if (*text < '0' || *text > '9' || errno || (*end && *end != '.'))
    return LEASE_ID_NONE;
  *ret_lease = lease;
  if (!*end)
    return *agent ? LEASE_ID_ANOTHERS : LEASE_ID_PLAIN;
  if (!*agent || strlen(end + 1) != MAC_LENGTH)
    return LEASE_ID_ANOTHERS;
  mac_of(secret, lease, epoch, agent, mac);
  return CRYPTO_memcmp(mac, end + 1, MAC_LENGTH) == 0 ? LEASE_ID_GRANTED : LEASE_ID_ANOTHERS;
}
