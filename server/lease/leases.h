/* What leases are made of when they are granted, and what becomes of those that come back: lost ones, and ones on which
 * nothing gets measured.
 *
 * Memory: nothing is kept. Threads: a worker's own. */
#ifndef WAVETUNE_SERVER_LEASE_LEASES_H
#define WAVETUNE_SERVER_LEASE_LEASES_H

#include "server/lease/lease_store.h"
#include "server/server.h"

/* So many grants in a row without one measurement, and what remains of the lease is given up. */
#define LEASE_FRUITLESS_MAX 8

/* Gives wishes that got no lease the tails of leases that others hold, where those have long to go yet (lease_plan.h). What
 * fails here is logged: they wait and ask again. */
void leases_take_tails(struct worker *worker, struct lease_wish *const *wishes, size_t n);

/* For jobs whose first lease was granted just now: which configs are likely to win. `likely` of those jobs is stored and
 * set, and where other leases of the job have such configs, its first one gets them. What fails here is logged: it costs
 * time only. */
void leases_choose_likely(struct worker *worker, struct lease_wish *const *wishes, size_t n, struct lease_job *jobs,
                          size_t n_jobs);

/* Applies the poison rule to lost leases that were just opened, in the transaction that opened them. */
must_check bool leases_judge_losses(struct worker *worker, const struct lease_losses *losses, struct error *error);
/* After its commit: wakes who waits and moves jobs on that have nothing left. */
void leases_settle_losses(struct worker *worker, const struct lease_losses *losses);

/* Gives up an open lease that was granted in vain too often; true in *ret_given_up. */
must_check bool lease_check_fruitless(struct worker *worker, int64_t lease, int64_t fruitless, bool *ret_given_up,
                                      struct error *error);

#endif
