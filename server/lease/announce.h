/* Who waits for leases or for news of a job, and how they are woken.
 *
 * Memory: keys are the caller's text. Threads: any. */
#ifndef WAVETUNE_SERVER_LEASE_ANNOUNCE_H
#define WAVETUNE_SERVER_LEASE_ANNOUNCE_H

#include "common/base/digest.h"
#include "server/server.h"

/* Keys of the park. */
#define PARK_KEY_SIZE 96
/* Devices that want signatures wait apart: one that is woken for work that it may not have must not
 * cost another its wake-up. */
char *lease_park_key(const struct digest *hardware_digest, bool wants_signatures,
                     char text[PARK_KEY_SIZE]);
char *job_park_key(int64_t job, char text[PARK_KEY_SIZE]);

/* n leases for this hardware are open now. */
void leases_announce(struct worker *worker, const struct digest *hardware_digest, size_t n);
/* Something happened to this job. */
void job_announce(struct worker *worker, int64_t job);

#endif
