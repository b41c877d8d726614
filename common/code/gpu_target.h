/* Limits of the GPU targets that wavetune knows: what a compute unit has and what a workgroup may
 * take.
 *
 * Each row of gpu_target.c names its source. An unknown arch is no error: callers then prune
 * nothing. Memory: static. Threads: any. */
#ifndef WAVETUNE_COMMON_CODE_GPU_TARGET_H
#define WAVETUNE_COMMON_CODE_GPU_TARGET_H

#include "common/base/base.h"

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
  size_t
      displacement_bytes; /* how much has to be read to displace the contents of all data caches */
};

/* NULL when it is not known. Features after a colon ("gfx942:sramecc+:xnack-") are ignored. */
const struct gpu_target *gpu_target_find(const char *arch);

/* All of them, in the table's order. */
const struct gpu_target *gpu_targets(size_t *ret_n);

#endif
