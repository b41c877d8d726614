/* What the housekeeper thread calls about every 250 ms, with a worker (connection) of its own. Each paces itself, answers
 * nobody and logs what it cannot do: it comes again.
 *
 * Threads: the housekeeper's only. */
#ifndef WAVETUNE_SERVER_HOUSEKEEP_H
#define WAVETUNE_SERVER_HOUSEKEEP_H

#include "server/server.h"

void leases_housekeep(struct worker *worker);   /* expiry */
void agents_housekeep(struct worker *worker);   /* heartbeats from memory to the database, who is lost */
void channels_housekeep(struct worker *worker); /* forgets remembered answers when another server moved a channel */
void tokens_housekeep(struct worker *worker);   /* tokens that other servers made or revoked */
void demand_housekeep(struct worker *worker);   /* jobs for what deployments miss, when the operator wants that */
void fetches_housekeep(struct worker *worker);  /* which releases were fetched, from memory to the database */

/* The heartbeats in memory: made by server_start, freed by server_stop; defined by core/agents. */
must_check struct agent_table *agent_table_new(void);
void agent_table_free(struct agent_table *table);
size_t agent_table_count(const struct agent_table *table); /* live ones of all servers, for /metrics; any thread */

#endif
