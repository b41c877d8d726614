/* What the housekeeper thread calls about every 250 ms, or as seldom as its table says, with a
 * worker (connection) of its own. Each answers nobody and logs what it cannot do: it comes again.
 *
 * Threads: the housekeeper's only. */
#ifndef WAVETUNE_SERVER_HOUSEKEEP_H
#define WAVETUNE_SERVER_HOUSEKEEP_H

#include "server/server.h"

void leases_housekeep(struct worker *worker); /* expiry */
void agents_look_up(
    struct worker *worker); /* agents that beat here and enrolled with another server */
void agents_housekeep(
    struct worker *worker); /* heartbeats from memory to the database, who is lost */
void channels_housekeep(
    struct worker *worker); /* forgets remembered answers when another server moved a channel */
void tokens_housekeep(struct worker *worker); /* tokens that other servers made or revoked */
void demand_housekeep(
    struct worker *worker); /* jobs for what deployments miss, when the operator wants that */
void fetches_housekeep(
    struct worker *worker); /* which releases were fetched, from memory to the database */

#endif
