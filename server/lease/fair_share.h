/* Whose turn it is: the order in which the queues of open leases are served. A queue has the open
 * leases of one device class, owner and priority.
 *
 * The queue of the highest priority is first. Of one priority it is the turn of the owner that has
 * used the least device time for its weight; of one owner, of the oldest group (lease_front.h).
 * Device time is that of the last minutes (its half-life is ten minutes), with an estimate for
 * leases that are held.
 *
 * A queue that gets no lease gains one priority for each hour that it waits, up to the highest, so
 * that no priority starves another for ever. A lease that it gets at its own priority ends the
 * wait; one that it gets by that gain costs ten minutes of it.
 *
 * Memory: borrowed. Threads: pure functions. */
#ifndef WAVETUNE_SERVER_LEASE_FAIR_SHARE_H
#define WAVETUNE_SERVER_LEASE_FAIR_SHARE_H

#include "common/base/base.h"

#define SHARE_PRIORITY_MAX 1000
#define SHARE_STEP_MS (3600 * 1000LL)
#define SHARE_COST_MS (600 * 1000LL)
/* Added for each lease, so that leases that report no device time count, too. */
#define SHARE_LEASE_US 100000

struct share_owner {
  double weight;      /* above 0 */
  double used_us;     /* of leases that have ended, decayed, with SHARE_LEASE_US for each */
  double held;        /* leases that are held */
  double lease_us;    /* what one of them is estimated to use */
  bool is_quota_used; /* its quota of the day is used: it gets no leases */
};

struct share_queue {
  const struct share_owner *owner;
  int64_t priority;
  int64_t group;     /* of its first lease */
  int64_t waited_ms; /* since it last got a lease, or its first task came */
};

/* The priority with the gain of waiting. */
int64_t share_priority(const struct share_queue *queue);

/* Writes the indices of the queues that come first, at most `most`, and returns their number.
 * Queues of owners whose quota is used are left out. */
size_t share_rank(const struct share_queue *queues, size_t n, size_t *ret, size_t most);

/* Whether the queue is served before another one only because it has waited. */
bool share_is_by_waiting(const struct share_queue *queues, size_t n, size_t index);

/* How long the queue has waited after it got a lease. */
int64_t share_waited_after(int64_t waited_ms, bool is_by_waiting);

#endif
