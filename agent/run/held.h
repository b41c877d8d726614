/* The leases that this agent holds: from the grant until the server has taken the last of their
 * results.
 *
 * A lease is renewed in time, also while its results wait for the server, and given up on this side
 * before the server may give it to another: held_is_alive turns false a margin before it expires.
 * Memory: the table owns its entries; an entry lives until held_drop. Threads: any. */
#ifndef WAVETUNE_AGENT_RUN_HELD_H
#define WAVETUNE_AGENT_RUN_HELD_H

#include <stdatomic.h>

#include "agent/lease/lease.h"
#include "common/space/space.h"

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
  const _Atomic uint64_t *current; /* the config at work; read until held_end */
};
void held_add(struct held_table *table, const struct held_grant *grant);

/* Whether the lease is still ours: it is not lost and does not expire in a moment. */
bool held_is_alive(struct held_table *table, const char *lease, int64_t epoch);
/* It is not ours any more. */
void held_lose(struct held_table *table, const char *lease, int64_t epoch);
/* Only these configs remain the lease's: the others were given to an idle device. Takes the
 * ranges. */
void held_limit(struct held_table *table, const char *lease, int64_t epoch,
                struct config_ranges *taken);
/* Whether a config is still the lease's, as far as is known here. */
bool held_has(struct held_table *table, const char *lease, int64_t epoch, uint64_t config);
/* Nothing is measured for it any more; its results may still wait. */
void held_end(struct held_table *table, const char *lease, int64_t epoch);
/* The server has all of its results. */
void held_drop(struct held_table *table, const char *lease, int64_t epoch);

struct held_due {
  char lease[LEASE_ID_LENGTH_MAX + 1];
  int64_t epoch;
  uint64_t config; /* UINT64_MAX: none */
  int64_t left_ms; /* until it expires */
};
/* The lease to renew next. True: *ret_due is due now (and not again for a moment). False: none is
 * due for *ret_wait_ms; INT64_MAX: there is none. */
bool held_next_due(struct held_table *table, struct held_due *ret_due, int64_t *ret_wait_ms);
void held_renewed(struct held_table *table, const char *lease, int64_t epoch, int64_t requested_ms,
                  int64_t expires_in_ms);

#endif
