/* Cutting a job's configs into leases. */
#include "server/measurement/lease_plan.h"

#include "common/base/numbers.h"

#define X(id, name) name,
const char *const baseline_from_names[] = {BASELINE_ORIGINS(X) NULL};
#undef X

void lease_plan_release(struct lease_plan *plan) {
  for (size_t i = 0; i < plan->n; i++)
    config_ranges_release(&plan->leases[i]);
  free(plan->leases);
  *plan = (struct lease_plan){0};
}

uint64_t lease_plan_size(uint64_t configs, uint64_t total, const struct lease_sizing *sizing) {
  uint64_t size = (uint64_t)(sizing->target_us / sizing->config_us);
  if (total > size && sizing->devices > 0) {
    uint64_t shares = 2 * (uint64_t)sizing->devices,
             share = configs / shares + (configs % shares > 0);
    size = size < share ? size : share;
  }
  if (size < LEASE_CONFIGS_MIN)
    return LEASE_CONFIGS_MIN;
  return size > LEASE_CONFIGS_MOST ? LEASE_CONFIGS_MOST : size;
}

static bool default_check(const struct space *space, const struct space_facts *facts,
                          struct error *error) {
  bool is_valid;
  if (!space_is_valid(space, facts, space->default_ordinal, &is_valid, error))
    return false;
  if (!is_valid)
    return error_at(error, "/default",
                    "the default config is excluded by a condition for this key; every measurement "
                    "is compared with it, so choose a valid one");
  return true;
}

static bool no_point(struct error *error) {
  return error_set(error, "no point of the space fulfils its conditions for this key; loosen a "
                          "condition or add values");
}

static void baseline_set(const struct space *space, uint64_t first, struct lease_plan *plan) {
  plan->baseline = space->has_default ? space->default_ordinal : first;
  plan->baseline_from = space->has_default ? BASELINE_DEFAULT : BASELINE_FIRST;
}

/* Adds a config to the last lease, or to a new one when that has `size` configs. */
static void config_add(struct lease_plan *plan, size_t *capacity, uint64_t size, uint64_t *in_lease,
                       uint64_t ordinal) {
  if (plan->n == 0 || *in_lease == size) {
    GROW(plan->leases, plan->n, *capacity);
    plan->leases[plan->n++] = (struct config_ranges){0};
    *in_lease = 0;
  }
  config_ranges_add(&plan->leases[plan->n - 1], ordinal);
  ++*in_lease;
}

bool lease_plan_make(const struct space *space, const struct space_facts *facts,
                     uint64_t points_max, const struct lease_sizing *sizing,
                     struct lease_plan *ret_plan, struct error *error) {
  if (space->has_default && !default_check(space, facts, error))
    return false;

  cleanup_lease_plan struct lease_plan plan = {0};
  if (!space_count(space, facts, JOB_STEPS_MAX, points_max, &plan.configs, error))
    return false;
  if (plan.configs == 0)
    return no_point(error);

  cleanup_space_iterator struct space_iterator *iterator = NULL;
  if (!space_iterator_new(space, facts, UINT64_MAX, &iterator, error))
    return false;

  uint64_t size = lease_plan_size(plan.configs, plan.configs, sizing), in_lease = 0, ordinal;
  size_t capacity = 0;
  enum space_step step;
  while ((step = space_iterator_next(iterator, &ordinal, error)) == SPACE_POINT)
    config_add(&plan, &capacity, size, &in_lease, ordinal);
  if (step == SPACE_ERROR)
    return false;

  baseline_set(space, plan.leases[0].ranges[0].first, &plan);
  *ret_plan = plan;
  plan = (struct lease_plan){0};
  return true;
}

bool lease_plan_baseline(const struct space *space, const struct space_facts *facts,
                         struct lease_plan *plan, struct error *error) {
  uint64_t first = 0;
  if (space->has_default) {
    if (!default_check(space, facts, error))
      return false;
  } else {
    cleanup_space_iterator struct space_iterator *iterator = NULL;
    if (!space_iterator_new(space, facts, JOB_STEPS_MAX, &iterator, error))
      return false;
    enum space_step step = space_iterator_next(iterator, &first, error);
    if (step != SPACE_POINT)
      return step == SPACE_END ? no_point(error) : false;
  }

  baseline_set(space, first, plan);
  return true;
}

void lease_plan_cut(uint64_t *configs, size_t n, uint64_t total, const struct lease_sizing *sizing,
                    struct lease_plan *plan) {
  ALWAYS(plan->n == 0);
  uint64_t size = lease_plan_size(n, total, sizing), in_lease = 0;
  size_t capacity = 0;
  qsort(configs, n, sizeof *configs, compare_ordinals);
  for (size_t i = 0; i < n; i++)
    config_add(plan, &capacity, size, &in_lease, configs[i]);
}

struct config_ranges lease_tail(const struct config_ranges *remaining) {
  struct config_ranges tail = {0};
  if (!lease_is_large(remaining))
    return tail;

  uint64_t n = config_ranges_count(remaining), kept = n - n / SPLIT_PARTS;
  for (size_t i = 0; i < remaining->n; i++) {
    const struct config_range *range = &remaining->ranges[i];
    for (uint64_t k = kept < range->count ? kept : range->count; k < range->count; k++)
      config_ranges_add(&tail, range->first + k);
    kept -= kept < range->count ? kept : range->count;
  }
  return tail;
}
