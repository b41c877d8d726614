/* The table of GPU targets, and occupancy and grid utilisation by the vendors' own rules.
 *
 * AMD. All three targets: 4 SIMDs of 512 VGPRs a lane (architectural and accumulation VGPRs in one
 * file), 8 waves a SIMD, 1,024 threads a workgroup, 64 lanes a wave: LLVM's AMDGPUBaseInfo.cpp
 * (getTotalNumVGPRs 512 and getVGPRAllocGranule 8 with FeatureGFX90AInsts, getMaxWavesPerEU 8 on
 * gfx90a and later gfx9, getEUsPerCU 4, getMaxFlatWorkGroupSize 1024), and AMD's instruction set
 * guides of CDNA 2, 3 and 4 ("Register file", "Local data share"). 32 workgroups a compute unit are
 * its wave slots: workgroups of one wave need no barrier, those of two or more are at most 16, as
 * many as LLVM's getMaxWorkGroupsPerCU allows.
 *
 * The VGPR granule is 8: LLVM's getVGPRAllocGranule, and "granulated_workitem_vgpr_count: max(0,
 * ceil(vgprs_used / 8) - 1)" of its AMDGPU guide for gfx90a and gfx942. AMD's guide "Optimizing
 * Triton kernels" has 16. The two differ at 168 VGPRs, where clang 19 reports 3 waves, as 8 does.
 * It was checked for every number of VGPRs from 20 to 512: gfx90a and gfx942 against clang 19's
 * remark (tests/unit/test_occupancy.c does it around each boundary); gfx950, which LLVM 19 does not
 * know, against the "; Occupancy:" that the LLVM within Triton 3.6.0 writes into its assembly
 * (tests/system/test_occupancy_cli.py). No number here was measured on an AMD GPU.
 *
 * LDS: 64 KiB, on gfx950 160 KiB (FeatureAddressableLocalMemorySize163840 in LLVM's AMDGPU.td;
 * Triton's LLVM accepts 163,840 bytes and no more). It is allocated in blocks of 128 dwords
 * (LDS_SIZE of COMPUTE_PGM_RSRC2 in LLVM's guide; its encoding was checked), on gfx950 of 320
 * (AMD's CDNA 4 instruction set guide; Triton's LLVM encodes 512, which is coarser).
 *
 * NVIDIA. The CUDA C++ Programming Guide, table "Technical Specifications per Compute Capability"
 * (columns 8.0, 9.0 and 10.0), and the tuning guides of Ampere, Hopper and Blackwell ("Occupancy":
 * 64 warps, 64 K registers, 32 blocks, 164 KiB and twice 228 KiB of shared memory of which a block
 * may take 163 KiB and 227 KiB, with 1 KiB of each block reserved). Registers are allocated by warp
 * in units of 256 and shared memory in units of 128 bytes: CUDA's cuda_occupancy.h.
 *
 * displacement_bytes is at least twice all caches, but for gfx942 and gfx950. It is a table
 * because what runtimes report is one level of one die: hipDeviceProp_t has 4 MB for an MI300X,
 * which let a tuner rank the worst config first (pytorch/pytorch#192159). gfx90a: 8 MB of L2 a die
 * (AMD's CDNA 2 white paper). gfx942, gfx950: 256 MB of Infinity Cache and 8 L2s of 4 MB (AMD's
 * CDNA 3 and 4 white papers), which 256 MiB cannot displace; hipBLASLt's guidance is "larger than
 * the cache size", here 512 MiB (not tested on such a GPU). sm_80: 40 MB of L2 (A100 white paper);
 * sm_90: 50 MB, 60 MB in the full GH100 (H100 white paper); sm_100: 126 MB (Blackwell tuning
 * guide). */
#include "common/code/gpu_target.h"

#include <inttypes.h>

#define MIB ((size_t)1 << 20)
#define CDNA(name, lds_bytes, lds_granule, displacement)                                           \
  {.arch = (name),                                                                                 \
   .is_amd = true,                                                                                 \
   .warp_size = 64,                                                                                \
   .eus_per_cu = 4,                                                                                \
   .registers_per_eu = 512,                                                                        \
   .register_granule = 8,                                                                          \
   .registers_max = 512,                                                                           \
   .waves_per_eu_max = 8,                                                                          \
   .workgroups_per_cu_max = 32,                                                                    \
   .lds_bytes_per_cu = (lds_bytes),                                                                \
   .lds_bytes_per_workgroup_max = (lds_bytes),                                                     \
   .lds_bytes_reserved = 0,                                                                        \
   .lds_granule_bytes = (lds_granule),                                                             \
   .threads_per_workgroup_max = 1024,                                                              \
   .displacement_bytes = (displacement)}
#define CUDA(name, shared_bytes, displacement)                                                     \
  {.arch = (name),                                                                                 \
   .is_amd = false,                                                                                \
   .warp_size = 32,                                                                                \
   .eus_per_cu = 4,                                                                                \
   .registers_per_eu = 16384,                                                                      \
   .register_granule = 256,                                                                        \
   .registers_max = 255,                                                                           \
   .waves_per_eu_max = 16,                                                                         \
   .workgroups_per_cu_max = 32,                                                                    \
   .lds_bytes_per_cu = (shared_bytes),                                                             \
   .lds_bytes_per_workgroup_max = (shared_bytes) - 1024,                                           \
   .lds_bytes_reserved = 1024,                                                                     \
   .lds_granule_bytes = 128,                                                                       \
   .threads_per_workgroup_max = 1024,                                                              \
   .displacement_bytes = (displacement)}

static const struct gpu_target targets[] = {
    CDNA("gfx90a", 65536, 512, 64 * MIB),    CDNA("gfx942", 65536, 512, 512 * MIB),
    CDNA("gfx950", 163840, 1280, 512 * MIB), CUDA("sm_80", 164 * 1024, 128 * MIB),
    CUDA("sm_90", 228 * 1024, 128 * MIB),    CUDA("sm_100", 228 * 1024, 256 * MIB),
};

const struct gpu_target *gpu_target_find(const char *arch) {
  size_t length = strcspn(arch, ":");
  for (size_t i = 0; i < ARRAY_LENGTH(targets); i++)
    if (strlen(targets[i].arch) == length && strncmp(targets[i].arch, arch, length) == 0)
      return &targets[i];
  return NULL;
}

const struct gpu_target *gpu_targets(size_t *ret_n) {
  *ret_n = ARRAY_LENGTH(targets);
  return targets;
}

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

/* Workgroups whose LDS a compute unit holds. CUDA's rule adds the reserved bytes and rounds up to
 * blocks; AMD's does neither. */
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
