/* Names of stages and outcomes; a lease's memory. Any thread. */
#include "agent/lease.h"

const char *stage_name(enum stage stage) {
  static const char *const names[] = {"screen", "halving", "final"};
  return names[stage];
}

const char *outcome_name(enum outcome outcome) {
  static const char *const names[] = {
#define X(name) #name,
      OUTCOMES(X)
#undef X
  };
  return names[outcome];
}

void lease_release(struct lease *lease) {
  free(lease->id);
  free(lease->job);
  if (lease->kernel)
    kernel_free(lease->kernel);
  free(lease->sources);
  key_release(&lease->key);
  if (lease->space)
    space_free(lease->space);
  config_ranges_release(&lease->configs);
  free(lease->regime);
  *lease = (struct lease){0};
}
