/* One agent to a device of a machine: a second one would disturb what the first measures.
 *
 * A claim is the name of an abstract socket, because agents may have different users and state
 * folders; the kernel releases it when its process ends. Such a name is local to a network
 * namespace: agents in containers see each other's claims where they share the host's network.
 * Threads: any.
 */
#ifndef WAVETUNE_AGENT_RUN_CLAIM_H
#define WAVETUNE_AGENT_RUN_CLAIM_H

#include "agent/worker/devices.h"

/* False: another process has claimed the device. Else *ret_fd holds the claim until it is closed;
 * -1: nothing is claimed, because this cannot be done here (which is logged), or because the device
 * is a part of a GPU that other parts cannot be told from. */
must_check bool device_claim(const struct device_seen *device, int *ret_fd, struct error *error);

#endif
