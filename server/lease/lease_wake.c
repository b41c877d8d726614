/* Waking the requests that wait for leases. */
#include "server/lease/lease_wake.h"

char *lease_park_key(const struct digest *hardware_digest, bool is_selective,
                     char text[PARK_KEY_SIZE]) {
  char digest[DIGEST_TEXT_SIZE];
  snprintf(text, PARK_KEY_SIZE, "lease%s:%s", is_selective ? " selective" : "",
           digest_format(hardware_digest, digest));
  return text;
}

void leases_announce(struct worker *worker, const struct digest *hardware_digest, size_t n) {
  char key[PARK_KEY_SIZE];
  park_wake(worker->server, lease_park_key(hardware_digest, false, key), n);
  park_wake(worker->server, lease_park_key(hardware_digest, true, key), n);
}
