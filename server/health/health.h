/* What keeps PostgreSQL from removing dead rows: sessions of other programs that are idle in a
 * transaction. They are named in the log, /readyz and /metrics, and ended when
 * --end-idle-transactions says so.
 *
 * Memory: what a duty makes lives as long as it runs. Threads: the housekeeper's. */
#ifndef WAVETUNE_SERVER_HEALTH_HEALTH_H
#define WAVETUNE_SERVER_HEALTH_HEALTH_H

#include "server/server.h"

/* Ends idle transactions, reads their effects. The housekeeper's. */
void health_housekeep(struct worker *worker);

#endif
