/* The table of GPU targets. */
#include <criterion/criterion.h>

#include "common/code/gpu_target.h"

Test(gpu_target, is_found_by_its_arch) {
  static const char *const archs[] = {"gfx90a", "gfx942", "gfx950", "sm_80", "sm_90", "sm_100"};
  for (size_t i = 0; i < ARRAY_LENGTH(archs); i++) {
    const struct gpu_target *target = gpu_target_find(archs[i]);
    cr_assert_not_null(target, "%s", archs[i]);
    cr_expect_str_eq(target->arch, archs[i]);
    cr_expect_eq(target->is_amd, archs[i][0] == 'g');
  }
}

Test(gpu_target, features_of_an_arch_are_left_aside) {
  cr_assert_eq(gpu_target_find("gfx942:sramecc+:xnack-"), gpu_target_find("gfx942"));
}

Test(gpu_target, an_arch_that_is_not_known_is_none) {
  static const char *const archs[] = {"", "gfx", "gfx9421", "gfx1100", "x86_64", ":gfx942", "sm_9"};
  for (size_t i = 0; i < ARRAY_LENGTH(archs); i++)
    cr_expect_null(gpu_target_find(archs[i]), "%s", archs[i]);
}

Test(gpu_target, every_row_is_whole) {
  size_t n;
  const struct gpu_target *targets = gpu_targets(&n);
  cr_assert_geq(n, 6u);
  for (size_t i = 0; i < n; i++) {
    const struct gpu_target *target = &targets[i];
    cr_expect_eq(gpu_target_find(target->arch), target);
    cr_expect_eq(target->warp_size, target->is_amd ? 64 : 32);
    cr_expect_eq(target->eus_per_cu, 4);
    cr_expect_eq(target->threads_per_workgroup_max, 1024);
    cr_expect_gt(target->register_granule, 0);
    cr_expect_gt(target->lds_granule_bytes, 0);
    cr_expect_gt(target->workgroups_per_cu_max, 0);
    cr_expect_leq(target->lds_bytes_per_workgroup_max + target->lds_bytes_reserved,
                  target->lds_bytes_per_cu);
    /* A workgroup of the most threads has the registers of at least one lane each. */
    cr_expect_geq(target->waves_per_eu_max * target->eus_per_cu * target->warp_size,
                  target->threads_per_workgroup_max);
  }
}

Test(gpu_target, gfx950_has_more_lds_than_gfx942_and_the_same_registers) {
  const struct gpu_target *cdna_3 = gpu_target_find("gfx942"), *cdna_4 = gpu_target_find("gfx950");
  cr_assert_eq(cdna_3->lds_bytes_per_cu, 65536);
  cr_assert_eq(cdna_4->lds_bytes_per_cu, 163840);
  cr_assert_eq(cdna_3->registers_per_eu, 512);
  cr_assert_eq(cdna_4->registers_per_eu, 512);
}

/* The sizes of the caches are those of the vendors' white papers. */
Test(gpu_target, what_displaces_the_caches_is_more_than_all_of_them) {
  static const struct {
    const char *arch;
    size_t caches;
  } rows[] = {{"gfx90a", 8 << 20}, {"gfx942", 288 << 20}, {"gfx950", 288 << 20},
              {"sm_80", 40 << 20}, {"sm_90", 60 << 20},   {"sm_100", 126 << 20}};
  for (size_t i = 0; i < ARRAY_LENGTH(rows); i++)
    cr_expect_geq(gpu_target_find(rows[i].arch)->displacement_bytes, rows[i].caches * 7 / 4, "%s",
                  rows[i].arch);
  cr_expect_eq(gpu_target_find("gfx942")->displacement_bytes, (size_t)512 << 20);
}
