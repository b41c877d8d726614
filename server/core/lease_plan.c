/* Cutting a job's points into leases. Memory: the caller owns the plan. Threads: pure functions. */
#include "server/core/lease_plan.h"

#define LEASE_SHARE 16
#define LEASE_CONFIGS_MIN 8
#define LEASE_CONFIGS_MAX 256

void lease_plan_release(struct lease_plan *plan) {
  for (size_t i = 0; i < plan->n; i++)
    config_ranges_release(&plan->leases[i]);
  free(plan->leases);
  *plan = (struct lease_plan){0};
}

uint64_t lease_plan_size(uint64_t configs) {
  uint64_t size = configs / LEASE_SHARE;
  if (size < LEASE_CONFIGS_MIN)
    return LEASE_CONFIGS_MIN;
  return size > LEASE_CONFIGS_MAX ? LEASE_CONFIGS_MAX : size;
}

static bool default_check(const struct space *space, const struct space_facts *facts, struct error *error) {
  bool holds;
  if (!space_holds(space, facts, space->default_ordinal, &holds, error))
    return false;
  if (!holds)
    return error_at(error, "/default",
                    "the default config is excluded by a condition for this key; every measurement "
                    "is compared with it, so choose one that holds");
  return true;
}

bool lease_plan_make(const struct space *space, const struct space_facts *facts, uint64_t points_max,
                     struct lease_plan *ret_plan, struct error *error) {
  if (space->has_default && !default_check(space, facts, error))
    return false;
  cleanup_lease_plan struct lease_plan plan = {0};
  if (!space_count(space, facts, JOB_STEPS_MAX, points_max, &plan.configs, error))
    return false;
  if (plan.configs == 0)
    return error_set(error,
                     "no point of the space fulfils its conditions for this key; loosen a condition or add values");

  cleanup_space_iterator struct space_iterator *iterator = NULL;
  if (!space_iterator_new(space, facts, UINT64_MAX, &iterator, error))
    return false;
  uint64_t size = lease_plan_size(plan.configs), in_lease = size, ordinal;
  size_t capacity = 0;
  enum space_step step;
  while ((step = space_iterator_next(iterator, &ordinal, error)) == SPACE_POINT) {
    if (in_lease == size) {
      GROW(plan.leases, plan.n, capacity);
      plan.leases[plan.n++] = (struct config_ranges){0};
      in_lease = 0;
    }
    config_ranges_add(&plan.leases[plan.n - 1], ordinal);
    in_lease++;
  }
  if (step == SPACE_ERROR)
    return false;
  plan.baseline = space->has_default ? space->default_ordinal : plan.leases[0].ranges[0].first;
  *ret_plan = plan;
  plan = (struct lease_plan){0};
  return true;
}
