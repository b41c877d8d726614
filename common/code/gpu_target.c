/* The table of GPU targets. Static; any thread.
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
 * Triton kernels" says 16. The two differ at 168 VGPRs, where clang 19 says 3 waves: 8 it is. How
 * it was checked, for every number of VGPRs from 20 to 512: gfx90a and gfx942 against clang 19's
 * remark (tests/unit/test_occupancy.c does it around each boundary); gfx950, which LLVM 19 does not
 * know, against the "; Occupancy:" that the LLVM within Triton 3.6.0 writes into its assembly
 * (tests/system/test_occupancy_cli.py). No number here was measured on a GPU of AMD.
 *
 * LDS: 64 KiB, on gfx950 160 KiB (FeatureAddressableLocalMemorySize163840 in LLVM's AMDGPU.td;
 * Triton's LLVM accepts 163,840 bytes and no more). It is handed out in blocks of 128 dwords
 * (LDS_SIZE of COMPUTE_PGM_RSRC2 in LLVM's guide; its encoding was checked), on gfx950 of 320
 * (AMD's CDNA 4 instruction set guide; Triton's LLVM encodes 512, which is coarser).
 *
 * NVIDIA. The CUDA C++ Programming Guide, table "Technical Specifications per Compute Capability"
 * (columns 8.0, 9.0 and 10.0), and the tuning guides of Ampere, Hopper and Blackwell ("Occupancy":
 * 64 warps, 64 K registers, 32 blocks, 164 KiB and twice 228 KiB of shared memory of which a block
 * may take 163 KiB and 227 KiB, with 1 KiB of each block reserved). Registers are allocated by warp
 * in units of 256 and shared memory in units of 128 bytes: CUDA's cuda_occupancy.h.
 *
 * What displaces the caches is twice all of them and more, but for gfx942 and gfx950. It is a table
 * because what runtimes report is one level of one die: hipDeviceProp_t says 4 MB for an MI300X,
 * which let a tuner rank the worst config first (pytorch/pytorch#192159). gfx90a: 8 MB of L2 a die
 * (AMD's CDNA 2 white paper). gfx942, gfx950: 256 MB of Infinity Cache and 8 L2s of 4 MB (AMD's
 * CDNA 3 and 4 white papers), which 256 MiB cannot displace; hipBLASLt's guidance is "larger than
 * the cache size", for which 512 MiB is in use (no size was tried on such a GPU by us). sm_80: 40
 * MB of L2 (A100 white paper); sm_90: 50 MB, 60 MB in the full GH100 (H100 white paper); sm_100:
 * 126 MB (Blackwell tuning guide). */
#include "common/code/gpu_target.h"

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
  for (size_t i = 0; i < ARRAY_LENGTH(targets); i++) {
    if (strlen(targets[i].arch) == length && strncmp(targets[i].arch, arch, length) == 0)
      return &targets[i];
  }
  return NULL;
}

const struct gpu_target *gpu_targets(size_t *ret_n) {
  *ret_n = ARRAY_LENGTH(targets);
  return targets;
}
