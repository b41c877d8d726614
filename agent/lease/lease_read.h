/* A lease as the server grants it (docs/api.md, Leases), read into struct lease.
 *
 * Memory: the lease owns what it holds. Threads: any. */
#ifndef WAVETUNE_AGENT_LEASE_LEASE_READ_H
#define WAVETUNE_AGENT_LEASE_LEASE_READ_H

#include "agent/lease/lease.h"

#define LEASE_CONFIGS_MAX 65536u
#define LEASE_ID_LENGTH_MAX 64
#define LEASE_MS_MAX (24 * 3600 * 1000) /* until a lease expires, and between its renewals */

/* What tells the lease apart and how long it lives: read first, so that what cannot be executed can
 * be handed back. */
struct lease_terms {
  const char *id; /* borrowed from json */
  int64_t epoch;
  int64_t expires_in_ms, renew_every_ms;
};
must_check bool lease_terms_read(const json_t *json, struct lease_terms *ret, struct error *error);

/* Everything but `sources` and `objects`. Refuses what this agent cannot execute on the device: a
 * GPU, or the CPU. */
must_check bool lease_read(const json_t *json, bool is_gpu, struct lease *ret, struct error *error);

/* Whether kernels in the language run on the device; the sentence says where else. */
must_check bool language_fits(enum language language, bool is_gpu, struct error *error);

#endif
