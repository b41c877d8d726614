/* Waking those who wait. Memory and threads: as the header says. */
#include "server/lease/announce.h"

char *lease_park_key(const struct digest *hardware_digest, bool wants_signatures,
                     char text[PARK_KEY_SIZE]) {
  char digest[DIGEST_TEXT_SIZE];
  snprintf(text, PARK_KEY_SIZE, "lease%s:%s", wants_signatures ? " signed" : "",
           digest_format(hardware_digest, digest));
  return text;
}

char *job_park_key(int64_t job, char text[PARK_KEY_SIZE]) {
  snprintf(text, PARK_KEY_SIZE, "job:%lld", (long long)job);
  return text;
}

void leases_announce(struct worker *worker, const struct digest *hardware_digest, size_t n) {
  char key[PARK_KEY_SIZE];
  park_wake(worker->server, lease_park_key(hardware_digest, false, key), n);
  park_wake(worker->server, lease_park_key(hardware_digest, true, key), n);
}

void job_announce(struct worker *worker, int64_t job) {
  char key[PARK_KEY_SIZE];
  park_wake(worker->server, job_park_key(job, key), SIZE_MAX);
}
