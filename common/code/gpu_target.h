/* Limits of the GPU targets that wavetune knows, and what follows from them: whether a launch can
 * run, how many workgroups a compute unit holds at once, and how evenly a grid fills the GPU.
 *
 * gpu_target.c names the sources of the numbers. For an unknown arch callers prune nothing.
 *
 * Memory: targets are static. Threads: pure functions. */
#ifndef WAVETUNE_COMMON_CODE_GPU_TARGET_H
#define WAVETUNE_COMMON_CODE_GPU_TARGET_H

#include "common/base/base.h"
#include "common/code/code_object.h"

struct gpu_target {
  const char *arch; /* "gfx942", "sm_90" */
  bool is_amd;
  int64_t warp_size;        /* lanes of a wavefront (AMD) or warp (NVIDIA) */
  int64_t eus_per_cu;       /* SIMDs of a compute unit; sub-cores of a multiprocessor */
  int64_t registers_per_eu; /* AMD: VGPRs a lane over all waves of an EU; NVIDIA: 32-bit registers
                               of a sub-core */
  int64_t register_granule; /* AMD: VGPRs; NVIDIA: registers a warp */
  int64_t registers_max;    /* of a lane or thread */
  int64_t waves_per_eu_max;
  int64_t workgroups_per_cu_max;
  int64_t lds_bytes_per_cu; /* shared memory of a multiprocessor */
  int64_t lds_bytes_per_workgroup_max;
  int64_t lds_bytes_reserved; /* of each workgroup, by the system */
  int64_t lds_granule_bytes;
  int64_t threads_per_workgroup_max;
  size_t displacement_bytes; /* reading as many displaces the contents of all data caches */
};

/* NULL when the target is not known. Features after a colon ("gfx942:sramecc+:xnack-") are ignored.
 */
const struct gpu_target *gpu_target_find(const char *arch);

/* All of them, in the table's order. */
const struct gpu_target *gpu_targets(size_t *ret_n);

/* Occupancy: how many workgroups a compute unit holds at once.
 *
 * AMD's rule (ROCm documentation, "Optimizing Triton kernels", occupancy): with V VGPRs a lane, L
 * bytes of LDS and nW waves a workgroup: occ_vgpr = floor(512 / round_up(V, granule)) waves per EU,
 * at most 8; occ_lds = floor(65536 / L) workgroups (no limit when L is 0); occ = min(floor(occ_vgpr
 * * 4 / nW), occ_lds) * nW / 4 waves per EU. The granule is the compiler's: 8 on gfx90a, gfx942 and
 * gfx950 (16 in the guide's table; gpu_target.c has how each was checked). NVIDIA's rule: the CUDA
 * occupancy calculator's, with registers allocated by warp. */
enum occupancy_limit {
  OCCUPANCY_LIMIT_WAVES, /* the EU's wave slots (or the compute unit's workgroup slots) */
  OCCUPANCY_LIMIT_REGISTERS,
  OCCUPANCY_LIMIT_LDS,
};

const char *occupancy_limit_name(enum occupancy_limit limit); /* "waves", "registers", "lds" */

/* Reviews report a kernel with at most this many registers too many for a higher occupancy: one
 * granule. The guide's example has 170 VGPRs, where 168 would suffice. */
#define OCCUPANCY_REGISTERS_NEAR 8

struct occupancy {
  int64_t workgroups_per_cu;
  double waves_per_eu;
  int64_t waves_per_eu_by_registers; /* occ_vgpr */
  int64_t workgroups_by_lds;         /* occ_lds; INT64_MAX: no limit */
  enum occupancy_limit limit;
};

struct workgroup {
  int64_t threads;
  int64_t registers; /* a lane; 0 or CODE_UNKNOWN: no limit by them */
  int64_t lds_bytes; /* static and dynamic */
};

/* Whether a workgroup can run on the target. The error is like "needs 81920 bytes of LDS, gfx942
 * has 65536 for a workgroup". */
must_check bool workgroup_fits(const struct gpu_target *target, const struct workgroup *workgroup,
                               struct error *error);

/* Of a workgroup that fits. */
struct occupancy occupancy_of(const struct gpu_target *target, const struct workgroup *workgroup);

/* The used share of the slots in all rounds of a grid: w / ceil(w), with w = workgroups / (compute
 * units × workgroups that a unit runs at once); 0 if one of the numbers is 0. */
double grid_utilization(int64_t workgroups, int64_t compute_units, int64_t workgroups_per_cu);

#endif
