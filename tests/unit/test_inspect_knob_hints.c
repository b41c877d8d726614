/* The guide's rules over spaces: each rule once where it applies and once where it does not. */
#include <criterion/criterion.h>

#include "common/base/file.h"
#include "common/builds/function_record.h"
#include "inspect/knob_hints.h"

/* A folder with one kernel, read back. */
static struct kernel_folder *folder_of(const char *language, const char *name, const char *members,
                                       const char *source, const char *space) {
  char folder[] = "/tmp/wavetune-test-knobs-XXXXXX";
  struct error error;
  cr_assert_not_null(mkdtemp(folder));
  cleanup_free char *manifest =
      xasprintf("{\"name\": \"%s\", \"key\": [\"M\", \"N\", \"K\"], %s \"arguments\": [{\"name\": "
                "\"c\", \"dtype\": \"float16\", "
                "\"shape\": [\"M\", \"N\"], \"access\": \"write\"}], \"versions\": {\"v\": "
                "{\"language\": \"%s\", \"entry\": "
                "\"f\", "
                "\"sources\": [\"f.src\"]}}}",
                name, members, language);
  const char *const files[][2] = {
      {"kernel.json", manifest}, {"f.src", source}, {"space.json", space}};
  for (size_t i = 0; i < ARRAY_LENGTH(files); i++) {
    cleanup_free char *path = xasprintf("%s/%s", folder, files[i][0]);
    cr_assert(file_write_atomically(path, files[i][1], strlen(files[i][1]), 0644, &error), "%s",
              error.message);
  }
  struct kernel_folder *loaded = NULL;
  cr_assert(kernel_folder_load(folder, &loaded, &error), "%s", error.message);
  cr_assert(folder_remove(folder, &error));
  return loaded;
}

static struct kernel_folder *matmul_with(const char *parameters) {
  cleanup_free char *space = xasprintf("{\"parameters\": {%s}}", parameters);
  return folder_of("triton", "matmul", "\"launch\": {\"grid\": [\"M\"]},", "tl.dot(a, b)", space);
}

struct query {
  int triton;
  enum kernel_kind kind;
  const char *arch;
};

static struct review_findings findings_of(const struct kernel_folder *folder, struct query query) {
  struct review_findings findings = {0};
  struct knob_question question = {.folder = folder,
                                   .arch = query.arch ? query.arch : "gfx942",
                                   .triton = query.triton,
                                   .kind = query.kind};
  struct error error;
  cr_assert(knob_hints_find(&question, &findings, &error), "%s", error.message);
  return findings;
}

/* Whether a space of these parameters gets a finding with these words (NULL: none of the parameter
 * at all). */
static bool finds(const char *parameters, struct query query, enum review_severity severity,
                  const char *words) {
  cleanup_kernel_folder struct kernel_folder *folder = matmul_with(parameters);
  struct review_findings findings = findings_of(folder, query);
  bool found = false;
  for (size_t i = 0; i < findings.n; i++) {
    found = found ||
            (findings.items[i].severity == severity && strstr(findings.items[i].sentence, words));
    cr_assert(findings.items[i].source && findings.items[i].source[0]);
  }
  review_findings_release(&findings);
  return found;
}

Test(knob_hints, num_stages_0_is_refused_since_triton_3_2) {
  cr_assert(finds("\"num_stages\": [0, 2]", (struct query){306, KIND_GEMM}, REVIEW_REFUSED,
                  "num_stages = 0: Triton refuses"));
  cr_assert(finds("\"num_stages\": [0, 2]", (struct query){302, KIND_GEMM}, REVIEW_REFUSED,
                  "num_stages = 0"));
  cr_assert(finds("\"num_stages\": [0, 2]", (struct query){0, KIND_GEMM}, REVIEW_HINT,
                  "num_stages = 0: Triton refuses"));
  cr_assert_not(finds("\"num_stages\": [0, 2]", (struct query){301, KIND_GEMM}, REVIEW_REFUSED,
                      "num_stages"));
  cr_assert_not(finds("\"num_stages\": [0, 2]", (struct query){306, KIND_GEMM, "sm_90"},
                      REVIEW_REFUSED, "num_stages"));
  cr_assert(finds("\"num_stages\": [-1, 2]", (struct query){306, KIND_GEMM}, REVIEW_REFUSED,
                  "num_stages = -1"));
}

Test(knob_hints, num_stages_that_is_recommended_for_the_kind_of_kernel_is_missed) {
  cr_assert(finds("\"num_stages\": [1, 2]", (struct query){301, KIND_GEMM}, REVIEW_HINT,
                  "before Triton 3.2"));
  cr_assert(finds("\"num_stages\": [1, 3]", (struct query){306, KIND_GEMM}, REVIEW_HINT,
                  "2 is recommended"));
  cr_assert(finds("\"num_stages\": [1, 3]", (struct query){0, KIND_GEMM}, REVIEW_HINT,
                  "2 is recommended"));
  cr_assert(finds("\"num_stages\": [2, 3]", (struct query){306, KIND_FUSED}, REVIEW_HINT,
                  "1 is recommended"));
  cr_assert(finds("\"num_stages\": [1, 2]", (struct query){306, KIND_INDIRECT}, REVIEW_HINT,
                  "3 is recommended"));
  cr_assert_not(finds("\"num_stages\": [1, 2, 3]", (struct query){306, KIND_GEMM}, REVIEW_HINT,
                      "num_stages"));
  cr_assert_not(finds("\"num_stages\": [4]", (struct query){306, KIND_ELEMENTWISE}, REVIEW_HINT,
                      "num_stages"));
}

Test(knob_hints, num_warps_is_a_power_of_two_and_at_most_1024_threads) {
  cr_assert(finds("\"num_warps\": [3, 4, 6]", (struct query){306, KIND_GEMM}, REVIEW_REFUSED,
                  "num_warps = 3, 6: num_warps must be"));
  cr_assert(finds("\"num_warps\": [16, 32]", (struct query){306, KIND_GEMM}, REVIEW_REFUSED,
                  "num_warps = 32: a workgroup"));
  cr_assert_not(finds("\"num_warps\": [16, 32]", (struct query){306, KIND_GEMM, "sm_90"},
                      REVIEW_REFUSED, "num_warps"));
  cr_assert(
      finds("\"num_warps\": [0]", (struct query){306, KIND_GEMM}, REVIEW_REFUSED, "num_warps = 0"));
}

Test(knob_hints, num_ctas_is_1_on_gfx9) {
  cr_assert(finds("\"num_ctas\": [1, 2]", (struct query){306, KIND_GEMM}, REVIEW_REFUSED,
                  "num_ctas = 2"));
  cr_assert(
      finds("\"num_ctas\": [1, 2]", (struct query){303, KIND_GEMM}, REVIEW_HINT, "num_ctas = 2"));
  cr_assert_not(finds("\"num_ctas\": [1, 2]", (struct query){306, KIND_GEMM, "sm_90"},
                      REVIEW_REFUSED, "num_ctas"));
}

Test(knob_hints, matrix_instructions_by_the_kind_of_kernel) {
  cr_assert(finds("\"matrix_instr_nonkdim\": [32]", (struct query){306, KIND_GEMM}, REVIEW_HINT,
                  "16x16 instructions are faster"));
  cr_assert(finds("\"matrix_instr_nonkdim\": [16]", (struct query){306, KIND_FUSED}, REVIEW_HINT,
                  "32x32 instructions may"));
  cr_assert(finds("\"matrix_instr_nonkdim\": [16, 8]", (struct query){306, KIND_GEMM}, REVIEW_HINT,
                  "matrix_instr_nonkdim = 8"));
  cr_assert_not(finds("\"matrix_instr_nonkdim\": [16, 32]", (struct query){306, KIND_GEMM},
                      REVIEW_HINT, "nonkdim"));
}

Test(knob_hints, kpack_2_for_a_gemm_and_1_on_gfx950) {
  cr_assert(finds("\"kpack\": [1]", (struct query){306, KIND_GEMM}, REVIEW_HINT, "wider"));
  cr_assert_not(
      finds("\"kpack\": [1]", (struct query){306, KIND_GEMM, "gfx950"}, REVIEW_HINT, "kpack"));
  cr_assert(finds("\"kpack\": [1, 2]", (struct query){306, KIND_GEMM, "gfx950"}, REVIEW_HINT,
                  "kpack = 2: Triton changes it to 1"));
  cr_assert(finds("\"kpack\": [1, 2]", (struct query){304, KIND_GEMM, "gfx950"}, REVIEW_REFUSED,
                  "kpack = 2"));
  cr_assert(finds("\"kpack\": [2, 4]", (struct query){306, KIND_GEMM}, REVIEW_HINT,
                  "kpack = 4: kpack must be 1 or 2"));
}

Test(knob_hints, a_knob_that_the_space_does_not_have_is_named) {
  const struct query gemm = {306, KIND_GEMM}, fused = {306, KIND_FUSED},
                     indirect = {306, KIND_INDIRECT};
  cr_assert(finds("\"BLOCK\": [64]", gemm, REVIEW_HINT, "kpack: role \"option\", value 2"));
  cr_assert(finds("\"BLOCK\": [64]", gemm, REVIEW_HINT,
                  "matrix_instr_nonkdim: role \"option\", value 16"));
  cr_assert(finds("\"BLOCK\": [64]", fused, REVIEW_HINT,
                  "matrix_instr_nonkdim: role \"option\", value 32"));
  cr_assert(finds("\"BLOCK\": [64]", fused, REVIEW_HINT, "num_stages: 1 is"));
  cr_assert(finds("\"BLOCK\": [64]", indirect, REVIEW_HINT, "num_stages: 3 is"));
  cr_assert_not(finds("\"BLOCK\": [64]", gemm, REVIEW_HINT, "num_stages"));
  cr_assert_not(finds("\"BLOCK\": [64]", (struct query){306, KIND_GEMM, "sm_90"}, REVIEW_HINT,
                      "role \"option\""));
  cr_assert_not(
      finds("\"BLOCK\": [64]", (struct query){306, KIND_GEMM, "gfx950"}, REVIEW_HINT, "kpack"));
}

Test(knob_hints, warps_of_archs_whose_limits_are_not_known_have_32_lanes) {
  cr_assert_not(finds("\"num_warps\": [32]", (struct query){306, KIND_GEMM, "sm_86"},
                      REVIEW_REFUSED, "num_warps"));
  cr_assert_not(finds("\"num_warps\": [32]", (struct query){306, KIND_GEMM, "gfx1100"},
                      REVIEW_REFUSED, "num_warps"));
  cr_assert(finds("\"num_warps\": [64]", (struct query){306, KIND_GEMM, "sm_86"}, REVIEW_REFUSED,
                  "num_warps = 64"));
  cr_assert(finds("\"num_warps\": [32]", (struct query){306, KIND_GEMM, "gfx908"}, REVIEW_REFUSED,
                  "num_warps = 32"));
}

Test(knob_hints, optimize_epilogue_for_a_gemm_but_not_with_atomic_add) {
  const char *epilogue =
      "\"OPTIMIZE_EPILOGUE\": [0, 1]}, \"roles\": {\"OPTIMIZE_EPILOGUE\": \"env\"";
  cr_assert(finds("\"kpack\": [2]", (struct query){303, KIND_GEMM}, REVIEW_HINT,
                  "OPTIMIZE_EPILOGUE: role"));
  cr_assert_not(finds(epilogue, (struct query){303, KIND_GEMM}, REVIEW_HINT, "OPTIMIZE_EPILOGUE"));
  cr_assert_not(finds("\"kpack\": [2]", (struct query){303, KIND_ELEMENTWISE}, REVIEW_HINT,
                      "OPTIMIZE_EPILOGUE"));
  cr_assert(finds(epilogue, (struct query){306, KIND_GEMM}, REVIEW_HINT,
                  "OPTIMIZE_EPILOGUE = 1: Triton 3.6 does not read it"));
  cleanup_kernel_folder struct kernel_folder *folder =
      folder_of("triton", "matmul", "\"launch\": {\"grid\": [\"M\"]},", "tl.atomic_add(c, x)",
                "{\"parameters\": {\"kpack\": [2], \"matrix_instr_nonkdim\": [16], "
                "\"OPTIMIZE_EPILOGUE\": [false, "
                "true]}, \"roles\": {\"OPTIMIZE_EPILOGUE\": \"env\"}}");
  struct review_findings findings = findings_of(folder, (struct query){303, KIND_GEMM});
  cr_assert_eq(findings.n, 1u);
  cr_assert_str_eq(findings.items[0].sentence,
                   "OPTIMIZE_EPILOGUE = True: not for a kernel that ends in atomic_add");
  review_findings_release(&findings);
}

Test(knob_hints, what_tl_arange_runs_over_is_a_power_of_two) {
  cleanup_kernel_folder struct kernel_folder *folder = folder_of(
      "triton", "add", "\"launch\": {\"grid\": [\"M\"]},",
      "x = tl.arange(0, BLOCK)\ny = tl.arange(0,  TILE )\nz = tl.arange(0, 4 * WIDE)\ntl.arange(",
      "{\"parameters\": {\"BLOCK\": [96, 128], \"TILE\": [64], \"WIDE\": [3]}}");
  struct review_findings findings = findings_of(folder, (struct query){306, KIND_ELEMENTWISE});
  cr_assert_eq(findings.n, 1u);
  cr_assert_str_eq(findings.items[0].sentence,
                   "BLOCK = 96: tl.arange over it accepts only powers of two");
  cr_assert_eq(findings.items[0].severity, REVIEW_REFUSED);
  review_findings_release(&findings);
}

/* The finding on waves_per_eu for objects with these VGPRs. */
static char *said_of_waves(const int64_t *vgprs, size_t n, const char *parameters) {
  cleanup_kernel_folder struct kernel_folder *folder = matmul_with(parameters);
  struct code_resources resources[4];
  for (size_t i = 0; i < n; i++) {
    resources[i] = code_resources_unknown;
    resources[i].vgprs = vgprs[i];
  }
  struct review_findings findings = {0};
  struct knob_question question = {.folder = folder,
                                   .arch = "gfx942",
                                   .triton = 306,
                                   .kind = KIND_ELEMENTWISE,
                                   .resources = resources,
                                   .n_resources = n};
  struct error error;
  cr_assert(knob_hints_find(&question, &findings, &error));
  char *text = findings.n ? xstrdup(findings.items[0].sentence) : xstrdup("");
  cr_assert_leq(findings.n, 1u);
  review_findings_release(&findings);
  return text;
}

Test(knob_hints, waves_per_eu_is_useful_a_few_registers_above_a_boundary) {
  const char *parameters = "\"waves_per_eu\": [0, 2]";
  cleanup_free char *near = said_of_waves((const int64_t[]){130, 128, CODE_UNKNOWN}, 3, parameters);
  cr_assert(strstr(near, "useful for 1 of 2 objects") &&
                strstr(near, "130 VGPRs, 2 above the 128 at which 4 waves"),
            "%s", near);
  cleanup_free char *far = said_of_waves((const int64_t[]){128, 64}, 2, parameters);
  cr_assert(strstr(far, "none of 2 objects"), "%s", far);
  cleanup_free char *full = said_of_waves((const int64_t[]){40}, 1, parameters);
  cr_assert(strstr(full, "none of 1 objects"), "%s", full);
  cleanup_free char *unknown = said_of_waves(NULL, 0, parameters);
  cr_assert(strstr(unknown, "check a build"), "%s", unknown);
  cleanup_free char *capitals = said_of_waves(NULL, 0, "\"WAVES_PER_EU\": [2]");
  cr_assert(strstr(capitals, "WAVES_PER_EU: useful only"), "%s", capitals);
  cleanup_free char *unasked = said_of_waves(NULL, 0, "\"waves_per_eu\": [0]");
  cr_assert_str_eq(unasked, "");
  cr_assert(finds("\"waves_per_eu\": [0, 9]", (struct query){306, KIND_GEMM}, REVIEW_HINT,
                  "waves_per_eu = 9"));
}

/* Findings for a hip kernel with 16 bytes of LDS a thread. */
static struct review_findings findings_of_workgroups(const char *space, const char *key_text,
                                                     bool *ret_done, struct error *error) {
  cleanup_kernel_folder struct kernel_folder *folder = folder_of(
      "hip", "add",
      "\"launch\": {\"grid\": [\"M\"], \"block\": [\"64 * W\", \"H\"], \"shared_bytes\": \"L\"},",
      "", space);
  cleanup_key struct key key = {0};
  struct review_findings findings = {0};
  const struct kernel *kernel = folder->kernel;
  cr_assert(key_parse_text(key_text, (const char *const *)kernel->key_names, kernel->n_key_names,
                           &key, error));
  struct knob_question question = {
      .folder = folder, .key = &key, .arch = "gfx942", .kind = KIND_ELEMENTWISE};
  *ret_done = knob_hints_find(&question, &findings, error);
  return findings;
}

Test(knob_hints, configs_that_do_not_fit_are_refused) {
  bool done;
  struct error error;
  struct review_findings findings = findings_of_workgroups(
      "{\"parameters\": {\"W\": [1, 4], \"H\": [1, 8], \"L\": [0, 65536, 65537]}}", "M=1,N=1,K=1",
      &done, &error);
  cr_assert(done);
  cr_assert_eq(findings.n, 1u);
  cr_assert_eq(findings.items[0].severity, REVIEW_REFUSED);
  /* L = 65537 in 4 of 12 configs, 4 × 64 × 8 threads in 3, both in one. */
  cr_assert_str_eq(findings.items[0].sentence,
                   "6 configs cannot run; the first: W=1 H=1 L=65537: needs 65537 bytes of LDS, "
                   "gfx942 has 65536 for a workgroup");
  review_findings_release(&findings);
}

Test(knob_hints, configs_that_a_condition_excludes_are_not_looked_at) {
  bool done;
  struct error error;
  struct review_findings findings = findings_of_workgroups(
      "{\"parameters\": {\"W\": [1, 4], \"H\": [1, 8], \"L\": [0, 65537]}, \"conditions\": [\"W "
      "* H <= 16 * M\", \"L == 0\"]}",
      "M=1,N=1,K=1", &done, &error);
  cr_assert(done);
  cr_assert_eq(findings.n, 0u);
  review_findings_release(&findings);
  findings = findings_of_workgroups(
      "{\"parameters\": {\"W\": [1], \"H\": [1], \"L\": [0]}, \"conditions\": [\"W // M == 1\"]}",
      "M=0,N=1,K=1", &done, &error);
  cr_assert_not(done);
  cr_assert(strstr(error.message, "zero"), "%s", error.message);
  review_findings_release(&findings);
}

Test(knob_hints, a_triton_config_with_too_many_warps_cannot_run) {
  cleanup_kernel_folder struct kernel_folder *folder = matmul_with("\"num_warps\": [4, 32]");
  cleanup_key struct key key = {0};
  struct error error;
  cr_assert(key_parse_text("M=1,N=1,K=1", NULL, 0, &key, &error));
  struct review_findings findings = {0};
  struct knob_question question = {
      .folder = folder, .key = &key, .arch = "gfx942:sramecc+", .kind = KIND_ELEMENTWISE};
  cr_assert(knob_hints_find(&question, &findings, &error));
  cr_assert_eq(review_count(&findings, REVIEW_REFUSED), 2u);
  cr_assert(strstr(findings.items[1].sentence,
                   "1 configs cannot run; the first: num_warps=32: needs 2048 threads"),
            "%s", findings.items[1].sentence);
  review_findings_release(&findings);
}

Test(knob_hints, a_space_too_large_to_walk_is_judged_by_its_values) {
  cleanup_free char *values = xstrdup("1");
  for (int i = 2; i <= 700; i++) {
    char *longer = xasprintf("%s, %d", values, i);
    free(values);
    values = longer;
  }
  cleanup_free char *parameters =
      xasprintf("\"num_warps\": [3, 4], \"A\": [%s], \"B\": [%s]", values, values);
  cleanup_kernel_folder struct kernel_folder *folder = matmul_with(parameters);
  cleanup_key struct key key = {0};
  struct error error;
  cr_assert(key_parse_text("M=1,N=1,K=1", NULL, 0, &key, &error));
  struct review_findings findings = {0};
  struct knob_question question = {
      .folder = folder, .key = &key, .arch = "gfx942", .kind = KIND_ELEMENTWISE};
  cr_assert(knob_hints_find(&question, &findings, &error));
  cr_assert_eq(findings.n, 1u);
  cr_assert(strstr(findings.items[0].sentence, "num_warps = 3"), "%s", findings.items[0].sentence);
  review_findings_release(&findings);
}

Test(knob_hints, a_list_of_configs_is_judged_by_the_values_in_it) {
  cleanup_kernel_folder struct kernel_folder *folder = folder_of(
      "triton", "add", "\"launch\": {\"grid\": [\"M\"]},", "",
      "{\"configs\": [{\"num_warps\": 4, \"note\": \"a\"}, {\"num_warps\": 5, \"note\": null}]}");
  struct review_findings findings = findings_of(folder, (struct query){306, KIND_ELEMENTWISE});
  cr_assert_eq(findings.n, 1u);
  cr_assert(strstr(findings.items[0].sentence, "num_warps = 5"), "%s", findings.items[0].sentence);
  review_findings_release(&findings);
}

Test(knob_hints, an_unknown_arch_prunes_nothing) {
  cr_assert_not(finds("\"num_stages\": [0], \"waves_per_eu\": [2]",
                      (struct query){306, KIND_GEMM, "weird"}, REVIEW_HINT, "waves"));
  cr_assert(finds("\"num_stages\": [0]", (struct query){306, KIND_GEMM, "gfx1100"}, REVIEW_REFUSED,
                  "num_stages"));
}

Test(knob_hints, the_kind_follows_from_the_name_or_the_flops) {
  static const struct {
    const char *name, *flops;
    enum kernel_kind kind;
  } cases[] = {
      {"my_matmul", "", KIND_GEMM},
      {"Paged_Attention", "", KIND_INDIRECT},
      {"attn_fwd", "", KIND_FUSED},
      {"flash", "", KIND_FUSED},
      {"layer", "\"flops\": \"2 * M * N * K\",", KIND_GEMM},
      {"layer", "\"flops\": \"5 * M * N\",", KIND_ELEMENTWISE},
      {"layer", "", KIND_ELEMENTWISE},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
    cleanup_free char *members = xasprintf("%s\"launch\": {\"grid\": [\"M\"]},", cases[i].flops);
    cleanup_kernel_folder struct kernel_folder *folder =
        folder_of("triton", cases[i].name, members, "", "{\"parameters\": {\"A\": [1]}}");
    cr_assert_eq(kernel_kind_guess(folder->kernel), cases[i].kind, "%s", cases[i].name);
  }
}

Test(knob_hints, names_of_kinds_and_versions_of_triton_are_read) {
  enum kernel_kind kind;
  cr_assert(kernel_kind_parse("fused", &kind) && kind == KIND_FUSED);
  cr_assert_not(kernel_kind_parse("conv", &kind));
  cr_assert_str_eq(kernel_kind_name(KIND_INDIRECT), "indirect");
  cr_assert_eq(triton_version_number("3.6.0"), 306);
  cr_assert_eq(triton_version_number("3.10.1+git5"), 310);
  cr_assert_eq(triton_version_number("3"), 0);
  cr_assert_eq(triton_version_number("main"), 0);
  cr_assert_eq(triton_version_number(NULL), 0);
}
