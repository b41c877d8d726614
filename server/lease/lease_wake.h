/* Wakes the requests that wait for leases.
 *
 * Memory: none. Threads: any. */
#ifndef WAVETUNE_SERVER_LEASE_LEASE_WAKE_H
#define WAVETUNE_SERVER_LEASE_LEASE_WAKE_H

#include "common/base/digest.h"
#include "server/server.h"

/* The key under which requests for leases are parked (server/http/request.h). Selective
 * devices (struct lease_wish) have another key than the rest: otherwise one of them could consume
 * the wake-up of a device that may have the work. */
#define PARK_KEY_SIZE 96
char *lease_park_key(const struct digest *hardware_digest, bool is_selective,
                     char text[PARK_KEY_SIZE]);

/* Wakes up to n requests under each key of this hardware, for which n leases were opened. */
void leases_announce(struct worker *worker, const struct digest *hardware_digest, size_t n);

#endif
