/* Why an agent hands a lease back: the member "cause" of HandBackRequest.
 *
 * Memory: names are static. Threads: pure functions. */
#ifndef WAVETUNE_COMMON_TASK_TASK_CAUSE_H
#define WAVETUNE_COMMON_TASK_TASK_CAUSE_H

#include "common/base/base.h"

/* The last column: how the reason begins of agents that state no cause; NULL: in no special way. */
/* clang-format off */
#define TASK_CAUSES(X) \
  X(SPENT, "spent", "the device time is spent")         /* its device_us; not leased again */ \
  X(UNSIGNED, "unsigned", "not signed for this agent: ") /* by no key that the agent trusts */ \
  X(UNREADABLE, "unreadable", "the lease cannot be executed: ") /* as by an older agent */ \
  X(YIELDED, "yielded", "the device was given back: ")  /* another process needs the device */ \
  X(DEVICE, "device", "the device failed: ")            /* it does not pass its sentinel */ \
  X(FAILED, "failed", NULL)                             /* the agent cannot execute it */ \
  X(STOPPED, "stopped", NULL)                           /* the agent ends */ \
  X(EXPIRED, "expired", NULL)                           /* it was not renewed in time */ \
  X(UNSTORED, "unstored", NULL)                         /* a measurement could not be spooled */
/* clang-format on */

#define X(id, name, reason) TASK_CAUSE_##id,
enum task_cause { TASK_CAUSES(X) TASK_CAUSE_COUNT };
#undef X

/* By value, ended by NULL, as fields of records take them (common/record/record.h). */
extern const char *const task_cause_names[];

/* The cause that the reason of an older agent states; TASK_CAUSE_COUNT: none, also for NULL. */
must_check enum task_cause task_cause_of_reason(const char *reason);

#endif
