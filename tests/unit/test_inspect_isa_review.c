/* The review of disassemblies: hand-made texts for what a line means, compiled kernels for what
 * compilers really make. */
#include <criterion/criterion.h>

#include "common/base/file.h"
#include "common/code/disassemble.h"
#include "common/program/command.h"
#include "inspect/isa_review.h"

static struct isa_review *review_of(const char *text) {
  struct isa_review *review = NULL;
  struct error error;
  cr_assert(isa_review_make(text, NULL, &review, &error), "%s", error.message);
  return review;
}

/* A function f at 0x100 whose instructions are 4 bytes apart. */
static char *function_text(const char *const *instructions) {
  char *text = xstrdup("0000000000000100 <f>:\n");
  for (size_t i = 0; instructions[i]; i++) {
    char *longer = xasprintf("%s\t%s // %012zX: 00000000\n", text, instructions[i], 0x100 + 4 * i);
    free(text);
    text = longer;
  }
  return text;
}

static struct isa_review *review_of_instructions(const char *const *instructions) {
  cleanup_free char *text = function_text(instructions);
  return review_of(text);
}

static bool finds(const struct review_findings *findings, enum review_severity severity,
                  const char *words) {
  for (size_t i = 0; i < findings->n; i++) {
    if (findings->items[i].severity == severity && strstr(findings->items[i].sentence, words))
      return true;
  }
  return false;
}

static char *findings_text(const struct review_findings *findings) {
  cleanup_json json_t *json = review_findings_to_json(findings);
  return json_dumps(json, 0);
}
#define assert_finds(findings, severity, words)                                                    \
  do {                                                                                             \
    cleanup_free char *all_ = findings_text(findings);                                             \
    cr_assert(finds(findings, severity, words), "no %s \"%s\" in %s",                              \
              review_severity_name(severity), words, all_);                                        \
  } while (0)
#define assert_finds_nothing(findings, severity)                                                   \
  do {                                                                                             \
    cleanup_free char *all_ = findings_text(findings);                                             \
    cr_assert_eq(review_count(findings, severity), 0u, "%s", all_);                                \
  } while (0)

Test(isa_review, counts_accesses_by_width_in_both_naming_families) {
  static const char *const instructions[] = {"global_load_dwordx4 v[0:3], v[4:5], off",
                                             "buffer_load_dwordx2 v[0:1], v1, s[0:3], 0 offen",
                                             "global_load_b128 v[0:3], v[4:5], off",
                                             "flat_load_ushort v1, v[2:3]",
                                             "global_load_ubyte_d16_hi v1, v[2:3], off",
                                             "global_load_d16_b16 v1, v[2:3], off",
                                             "global_load_dwordx3 v[0:2], v[4:5], off",
                                             "global_store_dword v[0:1], v2, off",
                                             "buffer_store_byte v1, v2, s[0:3], 0",
                                             "ds_read_b128 v[0:3], v4",
                                             "ds_load_b64 v[0:1], v4",
                                             "ds_read2_b32 v[0:1], v4 offset1:1",
                                             "ds_load_2addr_b64 v[0:3], v4 offset1:1",
                                             "ds_read_u16_d16_hi v0, v4",
                                             "ds_write_b64 v0, v[2:3]",
                                             "ds_write2st64_b32 v0, v2, v3 offset1:1",
                                             "ds_store_b8 v0, v1",
                                             "s_endpgm",
                                             NULL};
  cleanup_isa_review struct isa_review *review = review_of_instructions(instructions);
  const struct isa_counts *counts = &review->functions[0].counts;
  const int64_t loads[ISA_WIDTHS] = {1, 2, 0, 1, 1, 2}, stores[ISA_WIDTHS] = {1, 0, 1, 0, 0, 0};
  const int64_t reads[ISA_WIDTHS] = {0, 1, 2, 3, 0, 1}, writes[ISA_WIDTHS] = {1, 0, 2, 1, 0, 0};
  cr_assert_arr_eq(counts->global_loads, loads, sizeof loads);
  cr_assert_arr_eq(counts->global_stores, stores, sizeof stores);
  cr_assert_arr_eq(counts->lds_reads, reads, sizeof reads);
  cr_assert_arr_eq(counts->lds_writes, writes, sizeof writes);
  cr_assert_eq(counts->flat, 1);
  cr_assert_eq(counts->instructions, 18);
}

Test(isa_review, counts_what_is_no_access_of_width) {
  static const char *const instructions[] = {
      "global_load_lds_dwordx4 v[0:1], off",
      "buffer_load_dword v0, s[0:3], 0 offen lds",
      "global_atomic_add_f32 v[0:1], v2, off",
      "scratch_load_dwordx4 v[0:3], off, s32",
      "scratch_store_dword off, v0, s32",
      "v_mfma_f32_16x16x16_f16 a[0:3], v[0:1], v[2:3], 0",
      "v_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[16:23], v[0:7]",
      "v_accvgpr_read_b32 v0, a0",
      "s_waitcnt vmcnt(0) lgkmcnt(0)",
      "s_waitcnt vmcnt(10)",
      "s_wait_loadcnt 0x0",
      "s_wait_dscnt 0x0",
      "s_wait_loadcnt_dscnt 0x0",
      "s_wait_loadcnt 0x2",
      "s_barrier",
      "s_barrier_signal -1",
      "s_barrier_wait -1",
      "ds_bpermute_b32 v0, v1, v2",
      "buffer_load_format_x v0, v1, s[0:3], 0",
      NULL};
  cleanup_isa_review struct isa_review *review = review_of_instructions(instructions);
  const struct isa_counts *counts = &review->functions[0].counts;
  cr_assert_eq(counts->to_lds, 2);
  cr_assert_eq(counts->atomics, 1);
  cr_assert_eq(counts->scratch_loads, 1);
  cr_assert_eq(counts->scratch_stores, 1);
  cr_assert_eq(counts->matrix, 2);
  cr_assert_eq(counts->accvgpr_moves, 1);
  cr_assert_eq(counts->waits, 6);
  cr_assert_eq(counts->waits_for_loads, 3);
  cr_assert_eq(counts->waits_for_lds, 3);
  cr_assert_eq(counts->barriers, 2);
  cr_assert_str_eq(review->functions[0].matrix[0].name, "v_mfma_f32_16x16x16_f16");
  cr_assert_eq(review->functions[0].n_matrix, 2u);
}

Test(isa_review, a_loop_is_a_way_back_to_what_dominates_it) {
  /* 0: into the loop in its middle; 2: its first half by address; 4: its head. */
  static const char *const instructions[] = {"s_nop 0",
                                             "s_branch 2", /* to 4 */
                                             "global_load_dwordx4 v[0:3], v[4:5], off",
                                             "s_cbranch_scc1 3", /* out, to 7 */
                                             "ds_read_b128 v[0:3], v4",
                                             "s_cbranch_scc1 65532", /* back, to 2 */
                                             "s_branch 65531",       /* back, to 2 */
                                             "s_endpgm",
                                             NULL};
  cleanup_isa_review struct isa_review *review = review_of_instructions(instructions);
  const struct isa_function *f = &review->functions[0];
  cr_assert_eq(f->n_loops, 1u);
  cr_assert_eq(f->loops[0].at, 16u);
  cr_assert_eq(f->loops[0].counts.instructions, 5);
  cr_assert(f->loops[0].is_hot);
}

Test(isa_review, a_branch_back_into_straight_code_is_no_loop) {
  /* 1 jumps over 2 and 3 to 4, which goes back to 2: every instruction runs once. */
  static const char *const instructions[] = {"s_nop 0",  "s_branch 2",     "s_nop 0",
                                             "s_endpgm", "s_branch 65533", NULL};
  cleanup_isa_review struct isa_review *review = review_of_instructions(instructions);
  cr_assert_eq(review->functions[0].n_loops, 0u);
}

Test(isa_review, a_cycle_with_two_entries_is_no_loop) {
  /* 0 goes to 1 or 2; 1 and 2 go to each other. */
  static const char *const instructions[] = {"s_cbranch_scc1 1",     "s_nop 0",  "s_nop 0",
                                             "s_cbranch_scc1 65533", "s_endpgm", NULL};
  cleanup_isa_review struct isa_review *review = review_of_instructions(instructions);
  cr_assert_eq(review->functions[0].n_loops, 0u);
}

Test(isa_review, an_instruction_counts_in_its_innermost_loop_alone) {
  static const char *const instructions[] = {
      "s_nop 0",
      "global_load_dword v0, v[1:2], off", /* the outer loop's head */
      "v_mfma_f32_16x16x16_f16 a[0:3], v[0:1], v[2:3], 0",
      "s_cbranch_scc1 65534", /* to 2 */
      "global_load_dword v0, v[1:2], off",
      "s_cbranch_scc0 65534", /* to 4 */
      "s_cbranch_scc1 65530", /* to 1 */
      "s_endpgm",
      NULL};
  cleanup_isa_review struct isa_review *review = review_of_instructions(instructions);
  const struct isa_function *f = &review->functions[0];
  cr_assert_eq(f->n_loops, 3u);
  cr_assert_eq(f->loops[0].depth, 1);
  cr_assert_eq(f->loops[0].counts.instructions, 2);
  cr_assert_eq(f->loops[1].depth, 2);
  cr_assert_eq(f->loops[1].counts.matrix, 1);
  cr_assert_eq(f->loops[2].depth, 2);
  cr_assert_eq(f->loops[2].counts.instructions, 2);
  cr_assert(f->loops[1].is_hot && !f->loops[0].is_hot && !f->loops[2].is_hot);
}

Test(isa_review, a_jump_out_of_the_function_or_without_a_number_ends_there) {
  static const char *const instructions[] = {"s_cbranch_scc1 4000", "s_branch .LBB0_1",
                                             "s_cbranch_scc1 .LBB0_1", "s_setpc_b64 s[30:31]",
                                             NULL};
  cleanup_isa_review struct isa_review *review = review_of_instructions(instructions);
  cr_assert_eq(review->functions[0].n_loops, 0u);
}

Test(isa_review, reports_narrow_accesses_and_full_waits_in_the_hot_loop) {
  static const char *const instructions[] = {"s_nop 0",
                                             "global_load_dword v0, v[1:2], off",
                                             "flat_load_dwordx4 v[0:3], v[1:2]",
                                             "ds_write_b32 v0, v1",
                                             "ds_read_u16 v0, v1",
                                             "scratch_load_dword v0, off, s32",
                                             "v_accvgpr_write_b32 a0, v0",
                                             "s_waitcnt vmcnt(0)",
                                             "v_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], 0",
                                             "s_cbranch_scc1 65527",
                                             "global_store_short v[0:1], v2, off",
                                             "s_endpgm",
                                             NULL};
  cleanup_isa_review struct isa_review *review = review_of_instructions(instructions);
  const struct review_findings *findings = &review->functions[0].findings;
  assert_finds(findings, REVIEW_WARNING,
               "the hot loop at +0x4: 1 of 2 global loads move less than 16 bytes");
  assert_finds(findings, REVIEW_WARNING,
               "1 of 1 LDS reads move less than 8 bytes a lane (bytes × times: 2 × 1)");
  assert_finds(findings, REVIEW_HINT, "1 of 1 LDS writes");
  assert_finds(findings, REVIEW_WARNING, "1 loads from and 0 stores to scratch");
  assert_finds(findings, REVIEW_WARNING, "1 moves between VGPRs and AGPRs");
  assert_finds(findings, REVIEW_HINT, "1 of 1 waits are for all global loads");
  assert_finds(findings, REVIEW_HINT, "1 flat accesses");
  assert_finds(findings, REVIEW_HINT, "v_mfma_f32_32x32x8_f16 is used");
  assert_finds(findings, REVIEW_HINT, "1 of 1 global stores move less than 8 bytes");
}

Test(isa_review, accepts_wide_accesses_that_overlap) {
  static const char *const instructions[] = {"s_nop 0",
                                             "global_load_dwordx4 v[0:3], v[1:2], off",
                                             "ds_read_b128 v[0:3], v1",
                                             "ds_write_b64 v0, v[2:3]",
                                             "s_waitcnt vmcnt(4)",
                                             "v_mfma_f32_16x16x16_f16 a[0:3], v[0:1], v[2:3], 0",
                                             "s_cbranch_scc1 65530",
                                             "global_store_dwordx4 v[0:1], v[2:5], off",
                                             "s_endpgm",
                                             NULL};
  cleanup_isa_review struct isa_review *review = review_of_instructions(instructions);
  cr_assert_eq(review->functions[0].findings.n, 0u);
}

Test(isa_review, adds_the_spills_of_the_notes) {
  struct code_kernel kernel = {.resources = code_resources_unknown};
  char name[] = "f";
  kernel.name = name;
  kernel.resources.vgpr_spills = 12;
  kernel.resources.sgpr_spills = 3;
  kernel.resources.scratch_bytes = 64;
  struct code_object object = {.n_kernels = 1, .kernels = &kernel};
  struct error error;
  static const char *const instructions[] = {"s_endpgm", NULL};
  cleanup_free char *text = function_text(instructions);
  cleanup_isa_review struct isa_review *review = NULL, *other = NULL;
  cr_assert(isa_review_make(text, &object, &review, &error), "%s", error.message);
  assert_finds(&review->functions[0].findings, REVIEW_WARNING, "12 VGPRs and 3 SGPRs are spilled");
  kernel.resources.vgpr_spills = kernel.resources.sgpr_spills = 0;
  cr_assert(isa_review_make(text, &object, &other, &error), "%s", error.message);
  assert_finds(&other->functions[0].findings, REVIEW_HINT,
               "64 bytes of scratch a lane and no spills");
}

Test(isa_review, separates_the_functions_of_a_text) {
  cleanup_isa_review struct isa_review *review =
      review_of("file format elf64-amdgpu\n\n0000000000000000 <empty>:\n\n0000000000000100 "
                "<a>:\n\ts_endpgm // "
                "000000000100: BF810000\n"
                "0000000000000200 <b>:\n\ts_nop 0 // 000000000200: BF800000\n\ts_endpgm // "
                "000000000204: BF810000\n");
  cr_assert_eq(review->n, 2u);
  cr_assert_eq(isa_review_function(review, "b")->counts.instructions, 2);
  cr_assert_null(isa_review_function(review, "empty"));
}

Test(isa_review, refuses_a_text_that_is_no_disassembly) {
  static const struct {
    const char *text, *words;
  } cases[] = {
      {"", "no instructions"},
      {"hello\n", "no instructions"},
      {"\ts_endpgm // 000000000100: BF810000\n", "no instructions"},
      {"0000000000000100 <f>:\n\ts_endpgm\n\t// 12: 3\n\ts_nop 0 // x: 1\n", "no instructions"},
      {"0000000000000100 <f>:\n\ts_nop 0 // 100: 1\n\ts_nop 0 // 100: 1\n", "do not rise at 100"},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
    struct isa_review *review = NULL;
    struct error error;
    cr_assert(!isa_review_make(cases[i].text, NULL, &review, &error), "%s", cases[i].text);
    cr_assert(strstr(error.message, cases[i].words), "%s: %s", cases[i].text, error.message);
  }
}

/* A text of `n` instructions at rising addresses; the i-th goes to the last one where it
 * branches. */
static char *long_text(size_t n, const char *branch) {
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  fputs("0000000000000000 <f>:\n", out);
  for (size_t i = 0; i < n; i++) {
    if (branch)
      fprintf(out, "\t%s %zu // %zx: 0\n", branch, (n - 2 - i) & 0xffff, 4 * i);
    else
      fprintf(out, "\ta //%zx:\n", 4 * i);
  }
  fclose(out);
  return text;
}

Test(isa_review, refuses_what_would_take_too_long) {
  struct isa_review *review = NULL;
  struct error error;
  cleanup_free char *branches = long_text(12000, "s_cbranch_scc1"),
                    *endless = long_text(ISA_INSTRUCTIONS_MAX + 1, NULL);
  cr_assert(!isa_review_make(branches, NULL, &review, &error));
  cr_assert(strstr(error.message, "f: the branches of these 12000 instructions are too complex"),
            "%s", error.message);
  cr_assert(!isa_review_make(endless, NULL, &review, &error));
  cr_assert(strstr(error.message, "more than 1000000 instructions"), "%s", error.message);
}

Test(isa_review, lists_matrix_instructions_up_to_a_limit) {
  cleanup_free char *text = xstrdup("0000000000000100 <f>:\n");
  for (int i = 0; i < ISA_MATRIX_KINDS_MAX + 3; i++) {
    char *longer = xasprintf("%s\tv_mfma_%d v0 // %x: 0\n", text, i, 0x100 + 4 * i);
    free(text);
    text = longer;
  }
  cleanup_isa_review struct isa_review *review = review_of(text);
  cr_assert_eq(review->functions[0].n_matrix, (size_t)ISA_MATRIX_KINDS_MAX);
  cr_assert_eq(review->functions[0].counts.matrix, ISA_MATRIX_KINDS_MAX + 3);
}

Test(isa_review, json_and_lines_agree) {
  static const char *const instructions[] = {"s_nop 0",
                                             "global_load_dword v0, v[1:2], off",
                                             "v_mfma_f32_16x16x16_f16 a[0:3], v[0:1], v[2:3], 0",
                                             "s_cbranch_scc1 65533",
                                             "s_endpgm",
                                             NULL};
  cleanup_isa_review struct isa_review *review = review_of_instructions(instructions);
  cleanup_json json_t *json = isa_function_to_json(&review->functions[0]);
  cleanup_free char *canonical = json_canonical(json);
  cr_assert(strstr(canonical, "\"at\":4,\"atomics\":0,\"barriers\":0,\"depth\":1"), "%s",
            canonical);
  cr_assert(strstr(canonical, "\"global_loads\":{\"4\":1}"), "%s", canonical);
  cr_assert(strstr(canonical, "{\"v_mfma_f32_16x16x16_f16\":{\"count\":1,\"in_loops\":1}}"), "%s",
            canonical);
  cleanup_free char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  isa_function_print(&review->functions[0], out);
  fclose(out);
  cr_assert(strstr(text, "loop at +0x4 (hot), depth 1: 3 instructions, 1 matrix instructions\n    "
                         "global loads   4 × 1\n"),
            "%s", text);
  cr_assert(strstr(text, "  warning: the hot loop at +0x4"), "%s", text);
}

/* What compilers make. */

#define PRELUDE                                                                                    \
  "#define KERNEL extern \"C\" __attribute__((global, amdgpu_flat_work_group_size(64, 64)))\n"     \
  "#define LANE (__builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x())\n"     \
  "typedef float f4 __attribute__((ext_vector_type(4)));\n"

/* The review of a kernel `f` compiled for `arch`, or NULL where the tools are not there. */
static struct isa_review *review_of_source(const char *arch, const char *source) {
  struct error error;
  cleanup_free char *clang = NULL, *code = NULL, *text = NULL;
  if (!program_find("clang-19", &clang, &error))
    return NULL;
  char folder[] = "/tmp/wavetune-test-isa-XXXXXX";
  cr_assert_not_null(mkdtemp(folder));
  cleanup_free char *path = xasprintf("%s/k.hip", folder),
                    *object_path = xasprintf("%s/k.co", folder);
  cleanup_free char *whole = xasprintf("%s%s", PRELUDE, source);
  cr_assert(file_write_atomically(path, whole, strlen(whole), 0600, &error));
  cleanup_free char *command = xasprintf("%s -x hip --cuda-device-only --offload-arch=%s -nogpulib "
                                         "-nogpuinc -O3 --no-gpu-bundle-output "
                                         "-fuse-cuid=none -Wno-pass-failed %s -o %s",
                                         clang, arch, path, object_path);
  cr_assert_eq(system(command), 0, "%s", command);
  size_t size;
  cleanup_code_object struct code_object *object = NULL;
  cr_assert(file_read(object_path, 1 << 24, &code, &size, &error), "%s", error.message);
  cr_assert(code_object_parse(code, size, &object, &error), "%s", error.message);
  cr_assert(folder_remove(folder, &error));
  if (!disassemble(code, size, &text, &error))
    return NULL;
  struct isa_review *review = NULL;
  cr_assert(isa_review_make(text, object, &review, &error), "%s", error.message);
  return review;
}

static int64_t sum_of(const int64_t widths[ISA_WIDTHS]) {
  int64_t sum = 0;
  for (int i = 0; i < ISA_WIDTHS; i++)
    sum += widths[i];
  return sum;
}

#define REVIEW_SOURCE(source) REVIEW_SOURCE_FOR("gfx942", source)
#define REVIEW_SOURCE_FOR(arch, source)                                                            \
  cleanup_isa_review struct isa_review *review = review_of_source(arch, source);                   \
  if (!review)                                                                                     \
    cr_skip_test("clang-19 or llvm-objdump-19 is not here");                                       \
  const struct review_findings *findings = &isa_review_function(review, "f")->findings

Test(isa_review, finds_dword_loads_in_a_compiled_loop) {
  REVIEW_SOURCE("KERNEL void f(const float *x, float *y, int n, int stride) {\n"
                "  float sum = 0;\n"
                "  #pragma unroll 1\n"
                "  for (int i = 0; i < n; i++) sum += x[(long)i * stride + LANE];\n"
                "  y[LANE] = sum;\n}\n");
  cr_assert_eq(isa_review_function(review, "f")->n_loops, 1u);
  assert_finds(findings, REVIEW_WARNING,
               "1 of 1 global loads move less than 16 bytes a lane (bytes × times: 4 × 1)");
  assert_finds(findings, REVIEW_HINT, "1 of 1 global stores move less than 8 bytes");
}

Test(isa_review, accepts_dwordx4_loads_in_a_compiled_loop) {
  REVIEW_SOURCE("KERNEL void f(const f4 *x, f4 *y, int n) {\n"
                "  f4 sum = 0;\n"
                "  #pragma unroll 1\n"
                "  for (int i = 0; i < n; i++) sum += x[i * 64 + LANE];\n"
                "  y[LANE] = sum;\n}\n");
  cr_assert_eq(isa_review_function(review, "f")->loops[0].counts.global_loads[ISA_16], 1);
  assert_finds_nothing(findings, REVIEW_WARNING);
}

Test(isa_review, reads_the_names_that_gfx11_has) {
  REVIEW_SOURCE_FOR("gfx1100", "KERNEL void f(const f4 *x, float *y, int n) {\n"
                               "  f4 sum = 0;\n"
                               "  #pragma unroll 1\n"
                               "  for (int i = 0; i < n; i++) sum += x[i * 64 + LANE];\n"
                               "  y[LANE] = sum[0] + sum[1];\n}\n");
  const struct isa_function *f = isa_review_function(review, "f");
  cr_assert_eq(sum_of(f->loops[0].counts.global_loads), 1);
  cr_assert_eq(f->counts.global_stores[ISA_4], 1);
  assert_finds(findings, REVIEW_HINT, "waits are for all");
}

Test(isa_review, finds_scratch_of_an_array_with_a_computed_index) {
  REVIEW_SOURCE("KERNEL void f(const int *x, float *y, int n) {\n"
                "  float table[64];\n"
                "  for (int i = 0; i < 64; i++) table[i] = i * n;\n"
                "  #pragma unroll 1\n"
                "  for (int i = 0; i < n; i++) table[x[i] & 63] += table[x[i + LANE] & 63];\n"
                "  y[LANE] = table[x[n] & 63];\n}\n");
  assert_finds(findings, REVIEW_WARNING, "to scratch, which is memory");
  assert_finds(findings, REVIEW_HINT, "bytes of scratch a lane and no spills");
}

Test(isa_review, finds_the_spills_of_a_kernel_with_too_many_live_values) {
  REVIEW_SOURCE("extern \"C\" __attribute__((global, amdgpu_flat_work_group_size(1024, 1024)))\n"
                "void f(const f4 *x, f4 *y, int n) {\n"
                "  f4 live[40];\n"
                "  #pragma unroll\n"
                "  for (int i = 0; i < 40; i++) live[i] = x[i * 1024 + LANE];\n"
                "  #pragma unroll 1\n"
                "  for (int k = 0; k < n; k++) {\n"
                "    #pragma unroll\n"
                "    for (int i = 0; i < 40; i++) live[i] = live[i] * x[k] + live[(i + 1) % 40];\n"
                "  }\n"
                "  #pragma unroll\n"
                "  for (int i = 0; i < 40; i++) y[i * 1024 + LANE] = live[i];\n}\n");
  assert_finds(findings, REVIEW_WARNING, "SGPRs are spilled");
}

Test(isa_review, finds_the_matrix_instructions_and_the_hot_loop_of_a_triton_matmul) {
  cleanup_free char *bytes = NULL, *text = NULL;
  size_t size;
  struct error error;
  cr_assert(file_read(SOURCE_FOLDER "/tests/data/codeobjects/matmul_gfx942.hsaco", 1 << 24, &bytes,
                      &size, &error),
            "%s", error.message);
  if (!disassemble(bytes, size, &text, &error))
    cr_skip_test("%s", error.message);
  cleanup_isa_review struct isa_review *review = review_of(text);
  const struct isa_function *f = isa_review_function(review, "matmul_kernel");
  cr_assert_not_null(f);
  cr_assert_eq(f->n_matrix, 1u);
  cr_assert_str_eq(f->matrix[0].name, "v_mfma_f32_16x16x16_f16");
  cr_assert_eq(f->matrix[0].count, 24);
  cr_assert_eq(f->matrix[0].count_in_loops, 8);
  const struct isa_loop *hot = NULL;
  for (size_t i = 0; i < f->n_loops; i++)
    hot = f->loops[i].is_hot ? &f->loops[i] : hot;
  cr_assert_not_null(hot);
  cr_assert_eq(hot->at, 0x694u);
  cr_assert_eq(hot->counts.matrix, 8);
  cr_assert_eq(hot->counts.global_loads[ISA_16], 2);
  cr_assert_eq(hot->counts.lds_reads[ISA_2], 16);
  cr_assert_eq(hot->counts.lds_reads[ISA_8], 4);
  cr_assert_eq(hot->counts.lds_writes[ISA_16], 1);
  assert_finds(&f->findings, REVIEW_WARNING, "16 of 20 LDS reads");
}
