/* The leases that this agent holds: from the grant until the server has stored their last result.
 *
 * A lease is renewed in time, also while its results wait to be posted. The agent gives it up
 * before the server may grant it to another agent: held_is_alive is false from a margin before it
 * expires. Memory: the table owns its entries; an entry lives until held_drop. Threads: any. */
#ifndef WAVETUNE_AGENT_RUN_HELD_H
#define WAVETUNE_AGENT_RUN_HELD_H

#include <stdatomic.h>

#include "agent/lease/lease.h"
#include "common/space/space.h"
#include "common/task/task.h"

struct held_table;
/* The clock of leases: it runs on while this machine is suspended, as the server's does. */
int64_t held_clock_ms(void);

must_check struct held_table *held_table_new(void);
void held_table_free(struct held_table *table);

struct held_grant {
  const char *lease;
  int64_t epoch;
  int64_t requested_ms; /* held_clock_ms before the request: the server's clock starts later */
  int64_t expires_in_ms, renew_every_ms;
  const _Atomic uint64_t *current; /* the config being measured; read until held_end */
};
void held_add(struct held_table *table, const struct held_grant *grant);

/* Whether the lease is held: it is not lost and does not expire within its margin. */
bool held_is_alive(struct held_table *table, const char *lease, int64_t epoch);
/* Marks a lease that the server has taken away. */
void held_lose(struct held_table *table, const char *lease, int64_t epoch);
/* Limits the lease to these configs: the server gave the others to an idle device. Takes the
 * ranges. */
void held_limit(struct held_table *table, const char *lease, int64_t epoch,
                struct config_ranges *taken);
/* Whether a config still belongs to the lease, according to the last renewal. */
bool held_has(struct held_table *table, const char *lease, int64_t epoch, uint64_t config);
/* Measuring for the lease has ended; its results may not be posted yet. */
void held_end(struct held_table *table, const char *lease, int64_t epoch);
/* Removes a lease whose results are all posted. */
void held_drop(struct held_table *table, const char *lease, int64_t epoch);

struct held_due {
  char lease[TASK_ID_LENGTH_MAX + 1];
  int64_t epoch;
  uint64_t config; /* UINT64_MAX: none */
  int64_t left_ms; /* until it expires */
};
/* Finds the lease to renew next. True: *ret_due is due now; it is not returned again before its
 * next retry. False: none is due for *ret_wait_ms; INT64_MAX: there is no lease. */
bool held_next_due(struct held_table *table, struct held_due *ret_due, int64_t *ret_wait_ms);
void held_renewed(struct held_table *table, const char *lease, int64_t epoch, int64_t requested_ms,
                  int64_t expires_in_ms);

#endif
