/* The causes with which leases come back. */
#include "common/lease/lease_cause.h"

#define X(id, name, reason) name,
const char *const lease_cause_names[] = {LEASE_CAUSES(X) NULL};
#undef X

#define X(id, name, reason) reason,
static const char *const old_reasons[] = {LEASE_CAUSES(X)};
#undef X

enum lease_cause lease_cause_of_reason(const char *reason) {
  int cause = 0;
  while (cause < LEASE_CAUSE_COUNT &&
         !(reason && old_reasons[cause] && string_starts(reason, old_reasons[cause])))
    cause++;
  return (enum lease_cause)cause;
}
