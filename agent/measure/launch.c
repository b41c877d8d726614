/* Geometry and arguments of a launch. Memory: none. Threads: pure functions. */
#include "agent/measure/launch.h"

#include "common/code/occupancy.h"

/* What the runtimes take: HIP counts a dimension's threads in 32 bits, CUDA a grid's extents in
 * 31. */
#define EXTENT_MAX INT32_MAX
#define DIMENSION_THREADS_MAX UINT32_MAX

static bool extent_evaluate(const char *what, size_t dimension, const char *text,
                            const struct scope *scope, int64_t min, uint32_t *ret_extent,
                            struct error *error) {
  int64_t extent;
  if (!expr_int_in_scope(text, scope, min, EXTENT_MAX, &extent, error))
    return error_prefix(error, "%s[%zu]: ", what, dimension);
  *ret_extent = (uint32_t)extent;
  return true;
}

static bool block_make(const struct kernel *kernel, const struct launch_spec *spec,
                       const struct scope *scope, uint32_t block[3], int64_t *ret_threads,
                       struct error *error) {
  block[0] = block[1] = block[2] = 1;
  if (!kernel->launch.n_block && !spec->threads)
    return error_set(
        error, "neither the manifest nor the object of %s says how many threads a workgroup has",
        kernel->name);
  if (!kernel->launch.n_block)
    block[0] = (uint32_t)spec->threads;
  for (size_t i = 0; i < kernel->launch.n_block; i++) {
    if (!extent_evaluate("the block", i, kernel->launch.block[i], scope, 1, &block[i], error))
      return false;
  }
  int64_t threads = (int64_t)block[0] * block[1];
  if (__builtin_mul_overflow(threads, (int64_t)block[2], &threads))
    return error_set(error, "the block %u × %u × %u has too many threads", block[0], block[1],
                     block[2]);
  *ret_threads = threads;
  return true;
}

static bool shared_make(const struct kernel *kernel, const struct launch_spec *spec,
                        const struct scope *scope, uint32_t *ret_bytes, struct error *error) {
  int64_t bytes = spec->shared_bytes;
  if (kernel->launch.shared_bytes &&
      !expr_int_in_scope(kernel->launch.shared_bytes, scope, 0, EXTENT_MAX, &bytes, error))
    return error_prefix(error, "\"shared_bytes\": ");
  *ret_bytes = (uint32_t)bytes;
  return true;
}

static bool grid_make(const struct kernel *kernel, const struct launch_spec *spec,
                      const struct scope *scope, struct device_geometry *geometry,
                      struct error *error) {
  uint32_t *grid = geometry->grid;
  int64_t workgroups;
  grid[0] = grid[1] = grid[2] = 1;
  for (size_t i = 0; i < kernel->launch.n_grid; i++) {
    if (!extent_evaluate("the grid", i, kernel->launch.grid[i], scope, 0, &grid[i], error))
      return false;
  }
  int64_t along_x = (int64_t)grid[0] * spec->cluster;
  bool is_too_large = along_x > EXTENT_MAX ||
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

static bool facts_add(const struct device *device, struct scope *scope, struct error *error) {
  return scope_add(scope, "cus", value_int(device->compute_units), error) &&
         scope_add(scope, "warp_size", value_int(device->warp_size), error);
}

/* The occupancy is 1 for expressions where it is not known: a grid made of it is then small, and
 * never wrong. */
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

static bool argument_find(const struct kernel *kernel, const char *name, size_t *ret_index) {
  for (size_t i = 0; i < kernel->n_arguments; i++) {
    if (string_equal(kernel->arguments[i].name, name)) {
      *ret_index = i;
      return true;
    }
  }
  return false;
}

static bool arguments_make(const struct kernel *kernel, const struct launch_spec *spec,
                           struct launch_plan *plan, struct error *error) {
  plan->n_arguments = spec->arguments ? spec->n_arguments : kernel->n_arguments;
  plan->n_scratch = (size_t)spec->n_scratch;
  for (size_t i = 0; i < plan->n_arguments; i++) {
    plan->arguments[i] = i;
    if (spec->arguments && !argument_find(kernel, spec->arguments[i], &plan->arguments[i]))
      return error_set(
          error,
          "the object takes an argument \"%.40s\", which the manifest of %s does not have; pack it "
          "again",
          spec->arguments[i], kernel->name);
  }
  return true;
}

enum outcome launch_plan_make(const struct device *device, const struct kernel *kernel,
                              const struct launch_spec *spec, struct scope *scope,
                              struct launch_plan *ret, struct error *error) {
  struct launch_plan plan = {.occupancy = CODE_UNKNOWN, .lds_bytes = CODE_UNKNOWN};
  int64_t threads;
  if (!arguments_make(kernel, spec, &plan, error))
    return OUTCOME_RUNTIME;
  if (kernel->language == LANGUAGE_C) {
    *ret = plan;
    return OUTCOME_CORRECT;
  }
  plan.geometry.cooperative = spec->cooperative;
  plan.geometry.cluster = (uint32_t)spec->cluster;
  if (!facts_add(device, scope, error) ||
      !block_make(kernel, spec, scope, plan.geometry.block, &threads, error) ||
      !shared_make(kernel, spec, scope, &plan.geometry.shared_bytes, error))
    return OUTCOME_RUNTIME;
  enum outcome outcome = occupancy_make(device, spec, threads, &plan, scope, error);
  if (outcome == OUTCOME_CORRECT && !grid_make(kernel, spec, scope, &plan.geometry, error))
    outcome = OUTCOME_RUNTIME;
  if (outcome == OUTCOME_CORRECT)
    *ret = plan;
  return outcome;
}

double launch_utilization(const struct device *device, const struct launch_plan *plan) {
  const uint32_t *grid = plan->geometry.grid;
  int64_t workgroups = (int64_t)grid[0] * grid[1] * grid[2];
  return grid_utilization(workgroups, device->compute_units,
                          plan->occupancy > 0 ? plan->occupancy : 1);
}
