/* Occupancy: the examples of AMD's guide, clang's remarks around each boundary, CUDA's occupancy
 * calculator; and the utilisation of grids. */
#include "tests/unit/code_object_fixture.h"

#include <math.h>
#include <unistd.h>

#include "common/code/gpu_target.h"

static struct occupancy occupancy_on(const char *arch, int64_t threads, int64_t registers,
                                     int64_t lds_bytes) {
  struct workgroup workgroup = {threads, registers, lds_bytes};
  struct error error;
  cr_assert(workgroup_fits(gpu_target_find(arch), &workgroup, &error), "%s", error.message);
  return occupancy_of(gpu_target_find(arch), &workgroup);
}

/* AMD's rule */

Test(occupancy, of_168_vgprs_on_gfx942_is_3_waves) {
  struct occupancy occupancy = occupancy_on("gfx942", 256, 168, 0);
  cr_assert_eq(occupancy.waves_per_eu_by_registers, 3);
  cr_assert_eq(occupancy.workgroups_per_cu, 3);
  cr_assert_eq(occupancy.waves_per_eu, 3);
  cr_assert_eq(occupancy.workgroups_by_lds, INT64_MAX);
  cr_assert_eq(occupancy.limit, OCCUPANCY_LIMIT_REGISTERS);
}

/* The guide's example of waves_per_eu: 170 VGPRs take 176, and 3 * 176 is more than 512. */
Test(occupancy, of_170_vgprs_is_2_waves) {
  cr_assert_eq(occupancy_on("gfx942", 256, 170, 0).waves_per_eu, 2);
}

Test(occupancy, is_at_most_8_waves) {
  struct occupancy occupancy = occupancy_on("gfx942", 256, 12, 0);
  cr_assert_eq(occupancy.waves_per_eu_by_registers, 8);
  cr_assert_eq(occupancy.waves_per_eu, 8);
  cr_assert_eq(occupancy.workgroups_per_cu, 8);
  cr_assert_eq(occupancy.limit, OCCUPANCY_LIMIT_WAVES);
}

Test(occupancy, of_unknown_registers_has_no_limit_by_them) {
  cr_assert_eq(occupancy_on("gfx942", 256, CODE_UNKNOWN, 0).waves_per_eu, 8);
  cr_assert_eq(occupancy_on("gfx942", 256, 0, 32768).workgroups_per_cu, 2);
}

Test(occupancy, is_limited_by_lds) {
  struct occupancy occupancy = occupancy_on("gfx942", 256, 64, 32768);
  cr_assert_eq(occupancy.workgroups_by_lds, 2);
  cr_assert_eq(occupancy.workgroups_per_cu, 2);
  cr_assert_eq(occupancy.waves_per_eu, 2);
  cr_assert_eq(occupancy.limit, OCCUPANCY_LIMIT_LDS);
}

/* floor(65536 / L), as in the guide and in clang: L is not rounded up to the blocks in which LDS is
 * allocated. */
Test(occupancy, by_lds_does_not_round_the_bytes_up) {
  cr_assert_eq(occupancy_on("gfx942", 256, 0, 13107).workgroups_per_cu, 5);
  cr_assert_eq(occupancy_on("gfx942", 256, 0, 13108).workgroups_per_cu, 4);
  cr_assert_eq(occupancy_on("gfx942", 256, 0, 1).workgroups_by_lds, 65536);
}

Test(occupancy, of_the_whole_lds_is_one_workgroup) {
  cr_assert_eq(occupancy_on("gfx942", 512, 128, 65536).workgroups_per_cu, 1);
  cr_assert_eq(occupancy_on("gfx942", 512, 128, 65536).waves_per_eu, 2);
  cr_assert_eq(occupancy_on("gfx950", 512, 128, 65536).workgroups_per_cu, 2);
  cr_assert_eq(occupancy_on("gfx950", 256, 128, 163840).workgroups_per_cu, 1);
}

/* occ_vgpr 5 waves on 4 units hold 20 waves: 2 workgroups of 8. */
Test(occupancy, counts_whole_workgroups) {
  struct occupancy occupancy = occupancy_on("gfx942", 512, 90, 0);
  cr_assert_eq(occupancy.waves_per_eu_by_registers, 5);
  cr_assert_eq(occupancy.workgroups_per_cu, 2);
  cr_assert_eq(occupancy.waves_per_eu, 4);
}

Test(occupancy, of_small_workgroups_is_a_fraction_of_a_wave) {
  cr_assert_eq(occupancy_on("gfx942", 64, 128, 65536).waves_per_eu, 0.25);
  cr_assert_eq(occupancy_on("gfx942", 65, 128, 65536).waves_per_eu, 0.5);
}

Test(occupancy, of_large_workgroups_fills_the_slots) {
  struct occupancy occupancy = occupancy_on("gfx942", 1024, 128, 0);
  cr_assert_eq(occupancy.workgroups_per_cu, 1);
  cr_assert_eq(occupancy.waves_per_eu, 4);
  cr_assert_eq(occupancy_on("gfx942", 1024, 64, 0).workgroups_per_cu, 2);
}

/* The formula of the guide, written out, over everything it is defined for. */
Test(occupancy, is_the_formula_of_the_guide) {
  for (int64_t waves = 1; waves <= 16; waves *= 2) {
    for (int64_t lds = 0; lds <= 65536; lds += 3277) {
      for (int64_t vgprs = 1; vgprs <= 512; vgprs++) {
        struct workgroup workgroup = {waves * 64, vgprs, lds};
        struct error error;
        double occ_vgpr = fmin(8, floor(512 / (ceil((double)vgprs / 8) * 8)));
        double occ_lds = lds ? floor(65536 / (double)lds) : INFINITY;
        double occ = fmin(floor(occ_vgpr * 4 / (double)waves), occ_lds) * (double)waves / 4;
        if (!workgroup_fits(gpu_target_find("gfx942"), &workgroup, &error)) {
          cr_assert_eq(occ, 0);
          continue;
        }
        struct occupancy occupancy = occupancy_of(gpu_target_find("gfx942"), &workgroup);
        cr_assert_eq(occupancy.waves_per_eu, occ, "%ld waves, %ld bytes, %ld VGPRs: %f, not %f",
                     waves, lds, vgprs, occupancy.waves_per_eu, occ);
      }
    }
  }
}

/* What cannot run */

static void assert_does_not_fit(const char *arch, struct workgroup workgroup, const char *words) {
  struct error error;
  cr_assert_not(workgroup_fits(gpu_target_find(arch), &workgroup, &error), "%s", words);
  cr_assert_not_null(strstr(error.message, words), "%s", error.message);
}

Test(workgroup, that_needs_more_than_the_target_has_cannot_run) {
  assert_does_not_fit("gfx942", (struct workgroup){256, 64, 81920},
                      "needs 81920 bytes of LDS, gfx942 has 65536 for a workgroup");
  assert_does_not_fit("gfx942", (struct workgroup){1088, 64, 0},
                      "needs 1088 threads, a workgroup on gfx942 has at most 1024");
  assert_does_not_fit("gfx942", (struct workgroup){64, 513, 0},
                      "needs 513 registers a thread, gfx942 has at most 512");
  assert_does_not_fit("sm_90", (struct workgroup){128, 256, 0},
                      "needs 256 registers a thread, sm_90 has at most 255");
  assert_does_not_fit("sm_90", (struct workgroup){128, 64, 232449},
                      "bytes of shared memory, sm_90 has 232448");
  assert_does_not_fit("sm_80", (struct workgroup){128, 64, 166913}, "sm_80 has 166912");
}

Test(workgroup, whose_waves_do_not_fit_together_cannot_run) {
  assert_does_not_fit(
      "gfx942", (struct workgroup){1024, 168, 0},
      "needs 168 registers in each of 16 waves, gfx942 holds 12 such waves in a compute unit");
  assert_does_not_fit(
      "sm_90", (struct workgroup){1024, 65, 0},
      "needs 65 registers in each of 32 warps, sm_90 holds 28 such warps in a multiprocessor");
}

Test(workgroup, at_the_limit_runs) {
  cr_assert_eq(occupancy_on("gfx942", 1024, 128, 65536).workgroups_per_cu, 1);
  cr_assert_eq(occupancy_on("gfx942", 256, 512, 0).workgroups_per_cu, 1);
  cr_assert_eq(occupancy_on("sm_90", 1024, 64, 232448).workgroups_per_cu, 1);
}

/* Comparison with clang's remarks on kernels that are made to use a number of VGPRs. */

#define KERNEL "extern \"C\" __attribute__((global, amdgpu_flat_work_group_size(%d, %d))) void "

static int64_t remark_number(const char *remark, const char *label) {
  const char *found = strstr(remark, label);
  cr_assert_not_null(found, "no %s", label);
  return strtoll(found + strlen(label), NULL, 10);
}

/* Compiles for `arch` and compares the remark on each kernel with occupancy_of. Kernels have names
 * like X<threads>. Returns the number of kernels. */
static size_t hold_against_remarks(const char *source, const char *arch) {
  char path[] = "/tmp/wavetune-occupancy-XXXXXX";
  close(mkstemp(path));
  cleanup_free char *remarks = compile_hip(source, arch, path);
  cleanup_free char *source_path = xasprintf("%s.hip", path);
  struct code_file file = code_file_read(path);
  unlink(path);
  unlink(source_path);
  cleanup_code_object struct code_object *object = code_file_parse(file);
  size_t n = 0;
  for (char *remark = strstr(remarks, "Function Name: "); remark; n++) {
    char *next = strstr(remark + 1, "Function Name: "), name[64];
    cr_assert_eq(sscanf(remark, "Function Name: %63s", name), 1);
    if (next)
      next[-1] = '\0';
    const struct code_kernel *kernel = NULL;
    struct error error;
    cr_assert(code_object_kernel(object, name, &kernel, &error), "%s", error.message);
    int64_t threads = strtoll(strrchr(name, '_') + 1, NULL, 10);
    int64_t said = remark_number(remark, "Occupancy [waves/SIMD]: ");
    /* clang rounds up where a compute unit is filled unevenly. */
    double waves = occupancy_on(arch, threads, kernel->resources.vgprs, kernel->resources.lds_bytes)
                       .waves_per_eu;
    cr_expect_eq(ceil(waves), said, "%s on %s, %ld VGPRs, %ld bytes of LDS: %f, clang says %ld",
                 name, arch, kernel->resources.vgprs, kernel->resources.lds_bytes, waves, said);
    remark = next;
  }
  cr_assert_eq(n, object->n_kernels);
  return n;
}

/* Around each number of VGPRs where a wave more or less fits, and between. */
static void hold_vgprs_against_remarks(const char *arch) {
  char *source = NULL;
  size_t size, n = 0;
  FILE *out = open_memstream(&source, &size);
  for (int vgprs = 8; vgprs <= 256; vgprs++) {
    bool is_near = false;
    for (int boundary = 56; boundary <= 256; boundary += 8)
      is_near |= abs(vgprs - boundary) <= 1;
    if (is_near && ++n)
      fprintf(out, KERNEL "v%d_256(int *p) { asm volatile(\"\" ::: \"v%d\"); *p = 1; }\n", 256, 256,
              vgprs, vgprs - 1);
  }
  for (int agprs = 1; agprs <= 256; agprs += agprs < 8 ? 1 : 31, n++)
    fprintf(out, KERNEL "a%d_256(int *p) { asm volatile(\"\" ::: \"v99\", \"a%d\"); *p = 1; }\n",
            256, 256, agprs, agprs - 1);
  fclose(out);
  cr_assert_eq(hold_against_remarks(source, arch), n);
  free(source);
}

Test(occupancy, by_vgprs_is_that_of_clang_for_gfx90a, .timeout = 250) {
  hold_vgprs_against_remarks("gfx90a");
}

Test(occupancy, by_vgprs_is_that_of_clang_for_gfx942, .timeout = 250) {
  hold_vgprs_against_remarks("gfx942");
}

Test(occupancy, by_lds_is_that_of_clang, .timeout = 250) {
  static const int bytes[] = {1,     512,   513,   4096,  4097,  8192,  13107,
                              13108, 16384, 21845, 21846, 32768, 32769, 65536};
  char *source = NULL;
  size_t size;
  FILE *out = open_memstream(&source, &size);
  for (size_t i = 0; i < ARRAY_LENGTH(bytes); i++) {
    for (int threads = 64; threads <= 1024; threads *= 2)
      fprintf(out,
              KERNEL "l%d_%d(int *p) { static __attribute__((shared)) char s[%d]; s[*p] = 1; *p = "
                     "s[p[1]]; }\n",
              threads, threads, bytes[i], threads, bytes[i]);
  }
  fclose(out);
  cr_assert_eq(hold_against_remarks(source, "gfx942"), ARRAY_LENGTH(bytes) * 5);
  free(source);
}

/* NVIDIA's rule: cuda_occupancy.h's examples by hand. */

Test(occupancy, of_a_warp_takes_registers_in_units_of_256) {
  /* 33 registers are 1,056 a warp, 1,280 allocated: 12 warps in a quarter of 16,384, 48 of 64. */
  struct occupancy occupancy = occupancy_on("sm_90", 128, 33, 0);
  cr_assert_eq(occupancy.waves_per_eu_by_registers, 12);
  cr_assert_eq(occupancy.workgroups_per_cu, 12);
  cr_assert_eq(occupancy.waves_per_eu, 12);
  cr_assert_eq(occupancy.limit, OCCUPANCY_LIMIT_REGISTERS);
  cr_assert_eq(occupancy_on("sm_90", 128, 32, 0).waves_per_eu, 16);
}

Test(occupancy, of_a_multiprocessor_is_at_most_32_blocks) {
  struct occupancy occupancy = occupancy_on("sm_90", 32, 16, 0);
  cr_assert_eq(occupancy.workgroups_per_cu, 32);
  cr_assert_eq(occupancy.waves_per_eu, 8);
  cr_assert_eq(occupancy.limit, OCCUPANCY_LIMIT_WAVES);
}

Test(occupancy, of_a_multiprocessor_is_at_most_64_warps) {
  cr_assert_eq(occupancy_on("sm_80", 1024, 32, 0).workgroups_per_cu, 2);
  cr_assert_eq(occupancy_on("sm_80", 768, 32, 0).workgroups_per_cu, 2);
}

Test(occupancy, of_a_block_takes_a_kilobyte_of_shared_memory_more) {
  /* 228 KiB: 4 blocks of 56 KiB and 1 of the system's, 3 of one byte more, which takes 128. */
  cr_assert_eq(occupancy_on("sm_90", 128, 32, 56 * 1024).workgroups_per_cu, 4);
  struct occupancy occupancy = occupancy_on("sm_90", 128, 32, 56 * 1024 + 1);
  cr_assert_eq(occupancy.workgroups_per_cu, 3);
  cr_assert_eq(occupancy.workgroups_by_lds, 3);
  cr_assert_eq(occupancy.limit, OCCUPANCY_LIMIT_LDS);
  cr_assert_eq(occupancy_on("sm_80", 128, 32, 40 * 1024).workgroups_per_cu, 4);
}

/* The share of a grid's rounds */

static double percent(int64_t m, int64_t n, int64_t block_m, int64_t block_n) {
  return round(1000 * grid_utilization(m / block_m * (n / block_n), 304, 1)) / 10;
}

/* AMD's guide prints 94 % and 99 % for the last two; its own formula, w / ceil(w), gives 96.2 % for
 * both: 4,096 workgroups are 13.47 rounds of 304 and take 14, 2,048 are 6.74 and take 7. */
Test(utilization, of_4096_by_4096_on_304_units) {
  cr_assert_eq(percent(4096, 4096, 256, 256), 84.2);
  cr_assert_eq(percent(4096, 4096, 128, 128), 84.2);
  cr_assert_eq(percent(4096, 4096, 64, 64), 96.2);
  cr_assert_eq(percent(4096, 4096, 128, 64), 96.2);
}

Test(utilization, is_whole_where_the_last_round_is_full) {
  cr_assert_eq(grid_utilization(304, 304, 1), 1);
  cr_assert_eq(grid_utilization(608, 304, 2), 1);
  cr_assert_eq(grid_utilization(304, 304, 2), 0.5);
}

Test(utilization, of_an_empty_grid_is_zero) {
  cr_assert_eq(grid_utilization(0, 304, 1), 0);
  cr_assert_eq(grid_utilization(1, 0, 1), 0);
  cr_assert_eq(grid_utilization(1, 304, 0), 0);
}

Test(utilization, of_huge_grids_does_not_overflow) {
  cr_assert_gt(grid_utilization(INT64_MAX, 304, 8), 0.999);
  cr_assert_eq(grid_utilization(INT64_MAX, INT64_MAX, 8), 1);
}
