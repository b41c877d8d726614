/* The causes with which leases come back. */
#include "common/task/task_cause.h"

#define X(id, name, reason) name,
const char *const task_cause_names[] = {TASK_CAUSES(X) NULL};
#undef X

#define X(id, name, reason) reason,
static const char *const old_reasons[] = {TASK_CAUSES(X)};
#undef X

enum task_cause task_cause_of_reason(const char *reason) {
  int cause = 0;
  while (cause < TASK_CAUSE_COUNT &&
         !(reason && old_reasons[cause] && string_starts(reason, old_reasons[cause])))
    cause++;
  return (enum task_cause)cause;
}
