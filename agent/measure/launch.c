/* Geometry, arguments and scalars of a launch. */
#include "agent/measure/launch.h"

#include "agent/measure/element.h"
#include "common/code/gpu_target.h"

/* HIP counts a dimension's threads in 32 bits. */
#define DIMENSION_THREADS_MAX UINT32_MAX

bool scalar_store(const struct argument *argument, const struct scope *scope, uint64_t *ret_scalar,
                  struct error *error) {
  struct value value;
  if (!scalar_evaluate(argument, scope, &value, error))
    return false;
  *ret_scalar = 0;
  if (value.type == VALUE_FLOAT)
    element_set(argument->dtype, ret_scalar, 0, value.real);
  else if (dtype_size(argument->dtype) == 8 && !dtype_is_floating(argument->dtype))
    *ret_scalar = (uint64_t)value.integer;
  else
    element_set(argument->dtype, ret_scalar, 0, (double)value.integer);
  return true;
}

/* Evaluates the up to three extents of the block or the grid; those that are not given are 1. */
static bool extents_evaluate(const char *what, char *const *texts, size_t n,
                             const struct scope *scope, int64_t min, uint32_t extents[3],
                             struct error *error) {
  for (size_t i = 0; i < 3; i++) {
    int64_t extent = 1;
    if (i < n && !expr_int_in_scope(texts[i], scope, min, LAUNCH_EXTENT_MAX, &extent, error))
      return error_prefix(error, "%s[%zu]: ", what, i);
    extents[i] = (uint32_t)extent;
  }
  return true;
}

static bool block_make(const struct kernel *kernel, const struct launch_spec *spec,
                       const struct scope *scope, uint32_t block[3], int64_t *ret_threads,
                       struct error *error) {
  if (!kernel->launch.n_block && !spec->threads)
    return error_set(
        error, "neither the manifest nor the object of %s states how many threads a workgroup has",
        kernel->name);
  if (!extents_evaluate("the block", kernel->launch.block, kernel->launch.n_block, scope, 1, block,
                        error))
    return false;
  if (!kernel->launch.n_block)
    block[0] = (uint32_t)spec->threads;
  int64_t threads = (int64_t)block[0] * block[1];
  if (__builtin_mul_overflow(threads, (int64_t)block[2], ret_threads))
    return error_set(error, "the block %u × %u × %u has too many threads", block[0], block[1],
                     block[2]);
  return true;
}

static bool grid_make(const struct kernel *kernel, const struct launch_spec *spec,
                      const struct scope *scope, struct device_geometry *geometry,
                      struct error *error) {
  uint32_t *grid = geometry->grid;
  int64_t workgroups;
  if (!spec->grid.n && !kernel->launch.n_grid)
    return error_set(error, "neither the manifest nor the object of %s states the grid",
                     kernel->name);
  if (!extents_evaluate("the grid", kernel->launch.grid, kernel->launch.n_grid, scope, 0, grid,
                        error))
    return false;
  for (size_t i = 0; i < 3 && i < spec->grid.n; i++)
    grid[i] = (uint32_t)spec->grid.all[i];

  int64_t along_x = (int64_t)grid[0] * spec->cluster;
  bool is_too_large = along_x > LAUNCH_EXTENT_MAX ||
                      __builtin_mul_overflow(along_x, (int64_t)grid[1], &workgroups) ||
                      __builtin_mul_overflow(workgroups, (int64_t)grid[2], &workgroups);
  grid[0] = is_too_large ? grid[0] : (uint32_t)along_x;

  for (size_t i = 0; i < 3; i++)
    is_too_large = is_too_large || (int64_t)grid[i] * geometry->block[i] > DIMENSION_THREADS_MAX;
  return !is_too_large ||
         error_set(
             error, "the grid %u × %u × %u of blocks %u × %u × %u is larger than a launch can be",
             grid[0], grid[1], grid[2], geometry->block[0], geometry->block[1], geometry->block[2]);
}

/* Where the occupancy is not known, expressions read 1: a grid that depends on it is small, never
 * wrong. */
static enum outcome occupancy_make(const struct device *device, const struct launch_spec *spec,
                                   int64_t threads, struct launch_plan *plan, struct scope *scope,
                                   struct error *error) {
  const struct gpu_target *target = gpu_target_find(device->arch);
  int64_t lds_static = spec->resources.lds_bytes;
  struct workgroup workgroup = {
      .threads = threads,
      .registers = spec->resources.vgprs > 0 ? spec->resources.vgprs : 0,
      .lds_bytes = (lds_static > 0 ? lds_static : 0) + plan->geometry.shared_bytes,
  };
  plan->lds_bytes =
      lds_static == CODE_UNKNOWN && !workgroup.lds_bytes ? CODE_UNKNOWN : workgroup.lds_bytes;
  plan->occupancy = CODE_UNKNOWN;
  if (spec->resources.workgroup_max > 0 && threads > spec->resources.workgroup_max) {
    error_set(error, "has %lld threads in a workgroup, its code was compiled for at most %lld",
              (long long)threads, (long long)spec->resources.workgroup_max);
    return OUTCOME_CONSTRAINTS;
  }

  if (target && !workgroup_fits(target, &workgroup, error))
    return OUTCOME_CONSTRAINTS;
  if (target && spec->resources.vgprs > 0)
    plan->occupancy = occupancy_of(target, &workgroup).workgroups_per_cu;
  int64_t readable = plan->occupancy > 1 ? plan->occupancy : 1;
  return scope_add(scope, "occupancy", value_int(readable), error) ? OUTCOME_CORRECT
                                                                   : OUTCOME_RUNTIME;
}

static bool arguments_make(const struct kernel *kernel, const struct launch_spec *spec,
                           const struct scope *scope, struct launch_plan *plan,
                           struct error *error) {
  const struct launch_arguments *stated = &spec->arguments;
  if (!launch_arguments_agree(kernel, stated, scope, error) ||
      !launch_fills_agree(kernel, &spec->fills, scope, error))
    return false;

  plan->n_arguments = stated->all ? stated->n : kernel->n_arguments;
  plan->n_scratch = (size_t)spec->n_scratch;
  for (size_t i = 0; i < plan->n_arguments; i++) {
    const struct launch_argument *argument = stated->all ? &stated->all[i] : NULL;
    const char *name = argument && argument->map.base ? argument->map.base
                       : argument                     ? argument->name
                                                      : NULL;
    plan->arguments[i] = argument ? launch_argument_index(kernel, name) : i;
  }
  for (size_t i = 0; i < spec->fills.n; i++)
    plan->fills[i] = launch_argument_index(kernel, spec->fills.all[i].argument);
  return true;
}

enum outcome launch_plan_make(const struct device *device, const struct kernel *kernel,
                              const struct launch_spec *spec, struct scope *scope,
                              struct launch_plan *ret, struct error *error) {
  struct launch_plan plan = {.occupancy = CODE_UNKNOWN, .lds_bytes = CODE_UNKNOWN};
  if (!arguments_make(kernel, spec, scope, &plan, error))
    return OUTCOME_RUNTIME;
  if (kernel->language == LANGUAGE_C) {
    *ret = plan;
    return OUTCOME_CORRECT;
  }

  int64_t threads, shared_bytes = spec->shared_bytes;
  plan.geometry.cooperative = spec->cooperative;
  plan.geometry.cluster = (uint32_t)spec->cluster;
  if (!scope_add(scope, "cus", value_int(device->compute_units), error) ||
      !scope_add(scope, "warp_size", value_int(device->warp_size), error) ||
      !block_make(kernel, spec, scope, plan.geometry.block, &threads, error))
    return OUTCOME_RUNTIME;
  if (kernel->launch.shared_bytes && !expr_int_in_scope(kernel->launch.shared_bytes, scope, 0,
                                                        LAUNCH_EXTENT_MAX, &shared_bytes, error)) {
    error_prefix(error, "\"shared_bytes\": ");
    return OUTCOME_RUNTIME;
  }

  plan.geometry.shared_bytes = (uint32_t)shared_bytes;
  enum outcome outcome = occupancy_make(device, spec, threads, &plan, scope, error);
  if (outcome != OUTCOME_CORRECT)
    return outcome;
  if (!grid_make(kernel, spec, scope, &plan.geometry, error))
    return OUTCOME_RUNTIME;

  *ret = plan;
  return OUTCOME_CORRECT;
}

double launch_utilization(const struct device *device, const struct launch_plan *plan) {
  const uint32_t *grid = plan->geometry.grid;
  int64_t workgroups = (int64_t)grid[0] * grid[1] * grid[2];
  return grid_utilization(workgroups, device->compute_units,
                          plan->occupancy > 0 ? plan->occupancy : 1);
}
