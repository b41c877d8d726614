/* The scheduling with which this program was started: policy, nice value, utilization limits and
 * CPUs. All its threads keep it, and workers begin with it.
 *
 * Another process of the same user may change it, a kernel only where the sandbox filters no system
 * calls. Without a check every later worker would inherit the change and measure with it. Linux
 * lets a process without privileges leave SCHED_IDLE, or lower a nice value, only within
 * RLIMIT_NICE.
 *
 * Memory: static. Threads: see each. */
#ifndef WAVETUNE_AGENT_WORKER_SCHEDULING_H
#define WAVETUNE_AGENT_WORKER_SCHEDULING_H

#include "common/base/base.h"

/* Main thread, before any other is started. Until then nothing is checked. */
void scheduling_remember(void);

/* In a child, between fork and exec: async-signal-safe. */
void scheduling_begin(void);

/* Any thread: restores what differs in any thread of this process, and logs it. Returns how many
 * checks found a difference so far. *ret_is_restored (may be NULL): the last of them could restore
 * all. CPUs that the machine takes away or gives (a cpuset) are no difference. */
uint64_t scheduling_check(bool *ret_is_restored);

#endif
