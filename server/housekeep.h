/* The duties of the housekeeper thread, which calls them about every 250 ms, or as its table
 * states, with a worker (connection) of its own. Each logs its failures and is called again.
 *
 * Threads: the housekeeper's only. */
#ifndef WAVETUNE_SERVER_HOUSEKEEP_H
#define WAVETUNE_SERVER_HOUSEKEEP_H

#include "server/server.h"

void leases_housekeep(struct worker *worker); /* expires leases */
void agents_look_up(struct worker *worker);   /* agents that enrolled with another server */
void agents_housekeep(struct worker *worker); /* writes heartbeats, finds lost agents */
void channels_housekeep(
    struct worker *worker);                   /* drops cached answers after another server's move */
void tokens_housekeep(struct worker *worker); /* tokens that other servers made or revoked */
void demand_housekeep(struct worker *worker); /* makes jobs for reported misses (--demand) */
void fetches_housekeep(struct worker *worker); /* writes which releases were fetched */

#endif
