/* How many workgroups a compute unit holds at once, how evenly a grid fills the GPU, and whether a
 * launch can run at all.
 *
 * AMD's rule (ROCm documentation, "Optimizing Triton kernels", occupancy): with V VGPRs a lane, L
 * bytes of LDS and nW waves a workgroup: occ_vgpr = floor(512 / round_up(V, granule)) waves per EU,
 * at most 8; occ_lds = floor(65536 / L) workgroups (no limit when L is 0); occ = min(floor(occ_vgpr
 * * 4 / nW), occ_lds) * nW / 4 waves per EU. The granule is the compiler's: 8 on gfx90a, gfx942 and
 * gfx950 (16 in the guide's table; gpu_target.c has how each was checked). NVIDIA's rule: the
 * CUDA occupancy calculator's, with registers allocated by warp.
 *
 * Memory: none. Threads: pure functions. */
#ifndef WAVETUNE_COMMON_CODE_OCCUPANCY_H
#define WAVETUNE_COMMON_CODE_OCCUPANCY_H

#include "common/code/code_object.h"
#include "common/code/gpu_target.h"

enum occupancy_limit {
  OCCUPANCY_LIMIT_WAVES, /* the EU's wave slots (or the compute unit's workgroup slots) */
  OCCUPANCY_LIMIT_REGISTERS,
  OCCUPANCY_LIMIT_LDS,
};

const char *occupancy_limit_name(enum occupancy_limit limit); /* "waves", "registers", "lds" */

/* How many registers above a boundary of occupancy a compiler may save: one granule. The guide's
 * example is 170 VGPRs where 168 would do. */
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

/* Whether a single workgroup can run on the target; the error is like "needs 81920 bytes of LDS,
 * gfx942 has 65536". Every member is at least 0. */
must_check bool workgroup_fits(const struct gpu_target *target, const struct workgroup *workgroup,
                               struct error *error);

/* Of a workgroup that fits. */
struct occupancy occupancy_of(const struct gpu_target *target, const struct workgroup *workgroup);

/* w / ceil(w), w = workgroups / (compute units × workgroups a unit runs at once): the share of the
 * last round's slots that is used; 0 when there are none. */
double grid_utilization(int64_t workgroups, int64_t compute_units, int64_t workgroups_per_cu);

#endif
