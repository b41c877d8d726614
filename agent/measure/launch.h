/* The launch of one config: its geometry, its arguments and their values, and whether the device
 * can run it at all.
 *
 * The block comes from the manifest, else from the object's spec; with the dynamic memory and what
 * the object needs that gives the occupancy, which the grid's expressions may read. A grid counts
 * programs: where the object runs in clusters, a program is a cluster and its workgroups are along
 * x. Threads: pure functions. */
#ifndef WAVETUNE_AGENT_MEASURE_LAUNCH_H
#define WAVETUNE_AGENT_MEASURE_LAUNCH_H

#include "agent/compile/launch_spec.h"
#include "agent/device/device.h"
#include "common/kernel/kernel.h"
#include "common/space/space.h"
#include "common/verdict/verdict.h"

struct launch_plan {
  struct device_geometry geometry; /* all zero in language c */
  int64_t occupancy;               /* workgroups that a compute unit holds; CODE_UNKNOWN */
  int64_t lds_bytes;               /* of a workgroup, static and dynamic; CODE_UNKNOWN */
  size_t n_arguments;
  /* The manifest's indices, in the order of passing; of a tensor map, its base's; of a value that
   * the spec states, the number of arguments. */
  size_t arguments[LAUNCH_ARGUMENTS_MAX];
  size_t n_scratch;               /* null pointers after them */
  size_t fills[LAUNCH_FILLS_MAX]; /* the manifest's indices of what is filled */
};

/* In the functions below `scope` holds key, config, gpu_name and arch. */

/* scalar_evaluate, written as the argument's type; the rest of *ret_scalar is zero. */
must_check bool scalar_store(const struct argument *argument, const struct scope *scope,
                             uint64_t *ret_scalar, struct error *error);

/* The facts of launches are added to `scope`. OUTCOME_CORRECT: *ret is the plan.
 * OUTCOME_CONSTRAINTS: the device cannot run it; OUTCOME_RUNTIME: manifest and object contradict
 * each other. The error is the reason. */
must_check enum outcome launch_plan_make(const struct device *device, const struct kernel *kernel,
                                         const struct launch_spec *spec, struct scope *scope,
                                         struct launch_plan *ret, struct error *error);

/* The share of the last round's slots that the plan's workgroups fill (grid_utilization of
 * common/code/gpu_target.h, with one workgroup for each compute unit where the occupancy is not
 * known); 0 in language c. Reads arch and compute_units. */
double launch_utilization(const struct device *device, const struct launch_plan *plan);

#endif
