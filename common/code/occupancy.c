/* Occupancy and grid utilisation by the vendors' own rules. Pure functions over plain values. */
#include "common/code/occupancy.h"

#include <inttypes.h>

static int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }
static int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }
static int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t waves_of(const struct gpu_target *target, const struct workgroup *workgroup) {
  return workgroup->threads > 0 ? ceil_div(workgroup->threads, target->warp_size) : 1;
}

/* Waves whose registers an EU holds, without the limit of its wave slots. INT64_MAX: registers are
 * no limit. */
static int64_t waves_by_registers(const struct gpu_target *target,
                                  const struct workgroup *workgroup) {
  if (workgroup->registers <= 0)
    return INT64_MAX;
  /* AMD counts registers a lane, NVIDIA a whole warp. */
  int64_t wanted = target->is_amd ? workgroup->registers : workgroup->registers * target->warp_size;
  return target->registers_per_eu / round_up(wanted, target->register_granule);
}

/* Workgroups whose LDS a compute unit holds. AMD's rule does not round what a workgroup takes up to
 * blocks; CUDA's does, and adds what is reserved. */
static int64_t workgroups_by_lds(const struct gpu_target *target,
                                 const struct workgroup *workgroup) {
  if (workgroup->lds_bytes <= 0)
    return INT64_MAX;
  int64_t bytes = target->is_amd ? workgroup->lds_bytes
                                 : round_up(workgroup->lds_bytes + target->lds_bytes_reserved,
                                            target->lds_granule_bytes);
  return target->lds_bytes_per_cu / bytes;
}

bool workgroup_fits(const struct gpu_target *target, const struct workgroup *workgroup,
                    struct error *error) {
  if (workgroup->threads > target->threads_per_workgroup_max)
    return error_set(error, "needs %" PRId64 " threads, a workgroup on %s has at most %" PRId64,
                     workgroup->threads, target->arch, target->threads_per_workgroup_max);
  if (workgroup->lds_bytes > target->lds_bytes_per_workgroup_max)
    return error_set(error, "needs %" PRId64 " bytes of %s, %s has %" PRId64 " for a workgroup",
                     workgroup->lds_bytes, target->is_amd ? "LDS" : "shared memory", target->arch,
                     target->lds_bytes_per_workgroup_max);
  if (workgroup->registers > target->registers_max)
    return error_set(error, "needs %" PRId64 " registers a thread, %s has at most %" PRId64,
                     workgroup->registers, target->arch, target->registers_max);
  int64_t waves = waves_of(target, workgroup), fitting = waves_by_registers(target, workgroup);
  if (ceil_div(waves, target->eus_per_cu) > fitting)
    return error_set(error,
                     "needs %" PRId64 " registers in each of %" PRId64 " %s, %s holds %" PRId64
                     " such %s in a %s",
                     workgroup->registers, waves, target->is_amd ? "waves" : "warps", target->arch,
                     fitting * target->eus_per_cu, target->is_amd ? "waves" : "warps",
                     target->is_amd ? "compute unit" : "multiprocessor");
  return true;
}

struct occupancy occupancy_of(const struct gpu_target *target, const struct workgroup *workgroup) {
  int64_t waves = waves_of(target, workgroup);
  int64_t registers = waves_by_registers(target, workgroup);
  int64_t by_slots =
      min(target->waves_per_eu_max * target->eus_per_cu / waves, target->workgroups_per_cu_max);
  int64_t by_registers =
      registers == INT64_MAX ? INT64_MAX : registers * target->eus_per_cu / waves;
  int64_t by_lds = workgroups_by_lds(target, workgroup);
  int64_t workgroups = min(by_slots, min(by_registers, by_lds));
  return (struct occupancy){
      .workgroups_per_cu = workgroups,
      .waves_per_eu = (double)(workgroups * waves) / (double)target->eus_per_cu,
      .waves_per_eu_by_registers = min(registers, target->waves_per_eu_max),
      .workgroups_by_lds = by_lds,
      .limit = by_slots == workgroups       ? OCCUPANCY_LIMIT_WAVES
               : by_registers == workgroups ? OCCUPANCY_LIMIT_REGISTERS
                                            : OCCUPANCY_LIMIT_LDS,
  };
}

const char *occupancy_limit_name(enum occupancy_limit limit) {
  static const char *const names[] = {[OCCUPANCY_LIMIT_WAVES] = "waves",
                                      [OCCUPANCY_LIMIT_REGISTERS] = "registers",
                                      [OCCUPANCY_LIMIT_LDS] = "lds"};
  return names[limit];
}

double grid_utilization(int64_t workgroups, int64_t compute_units, int64_t workgroups_per_cu) {
  int64_t slots;
  if (workgroups <= 0 || compute_units <= 0 || workgroups_per_cu <= 0)
    return 0;
  if (__builtin_mul_overflow(compute_units, workgroups_per_cu, &slots))
    slots = INT64_MAX;
  double rounds = (double)workgroups / (double)slots;
  return rounds / (double)ceil_div(workgroups, slots);
}
