/* What each owner used of the devices, and its weight: the input of fair_share.h.
 *
 * The table `owners` has the sums of all servers. Each server adds what was posted to it, and reads
 * the sums and the number of leases that each owner holds, about every second. In between it counts
 * the leases that it grants itself, each with the mean of that owner's leases: with several servers
 * shares are approximate for that second.
 *
 * Memory: a server's (leasing.h). Threads: any, except shares_refresh, the
 * housekeeper's; there is a lock. */
#ifndef WAVETUNE_SERVER_LEASE_SHARES_H
#define WAVETUNE_SERVER_LEASE_SHARES_H

#include "server/lease/fair_share.h"
#include "server/server.h"

struct db;
struct owner_shares;
struct owner_shares *owner_shares_new(void);
void owner_shares_free(struct owner_shares *shares);

/* Notes in memory what an owner used; shares_refresh stores it. Call it after the commit. `leases`:
 * how many ended with this. */
void shares_charge(struct db *db, int64_t owner, int64_t device_us, int64_t leases);
void shares_note_grant(struct owner_shares *shares, int64_t owner);

/* Between these two calls the owner that shares_of returns does not change. An owner that is not
 * known yet has used nothing. */
void shares_lock(struct owner_shares *shares);
const struct share_owner *shares_of(const struct owner_shares *shares, int64_t owner);
void shares_unlock(struct owner_shares *shares);

/* Adds what was posted here, and reads the sums: the held leases, for which it rests where that
 * takes long. */
must_check bool shares_refresh(struct worker *worker, struct error *error);

#endif
