/* Kernels in HIP: clang for AMD, runtime compilers for AMD (a hiprtc for tests) and NVIDIA (where
 * NVRTC is), and what a source or a space can make them do. */
#include <errno.h>
#include <seccomp.h>
#include <sys/syscall.h>

#include "agent/commands.h"
#include "agent/compile/compiler.h"
#include "common/program/sandbox.h"
#include "tests/unit/agent_fixture.h"

#define HIP_ARGUMENTS                                                                              \
  "[{\"name\":\"y\",\"dtype\":\"float32\",\"shape\":[\"n\"],\"access\":\"write\"},"                \
  "{\"name\":\"x\",\"dtype\":\"float32\",\"shape\":[\"n\"],\"access\":\"read\"},"                  \
  "{\"name\":\"n\",\"dtype\":\"int64\",\"value\":\"n\"}]"
#define SIGNATURE "extern \"C\" __global__ void f(float *__restrict__ y, const float *x, int64_t n)"
#define GOOD                                                                                       \
  SIGNATURE                                                                                        \
  " {\n  __shared__ float tile[64];\n  int64_t i = (int64_t)blockIdx.x * 64 + threadIdx.x;\n"      \
  "  tile[threadIdx.x] = i < n ? x[i] : 0;\n  if (i < n) y[i] = tile[threadIdx.x ^ 1] + "          \
  "1;\n}\n"
/* Every word of the prelude. */
#define VOCABULARY                                                                                 \
  "struct __attribute__((aligned(16))) half8 { _Float16 v[8]; };\nextern __shared__ float "        \
  "dynamic[];\n"                                                                                   \
  "static __device__ __forceinline__ float add(float a, float b) { return a + b; }\n"              \
  "extern \"C\" __global__ __launch_bounds__(256, WAVES_PER_EU) void f(float *y, const float *x, " \
  "int64_t n) {\n"                                                                                 \
  "  __shared__ half8 halves[32];\n  __shared__ int count;\n  __shared__ unsigned total;\n"        \
  "  int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;\n  if (threadIdx.x < 32) "        \
  "halves[threadIdx.x] = "                                                                         \
  "((const half8 *)x)[i];\n  __syncthreads();\n  _Float16 h = halves[i & 31].v[1], g = h * h + "   \
  "(_Float16)1;\n"                                                                                 \
  "  g += h; g *= 2; g -= 0.5f; g /= h; h = -g; h = h / g - h; h = h * 2;\n  float v = add(h, "    \
  "g);\n"                                                                                          \
  "  v += expf(v) + __expf(h) + exp2f(g) + logf(v) + __logf(v) + log2f(v) + sqrtf(g) + rsqrtf(v) " \
  "+ fabsf(h) +\n"                                                                                 \
  "       fmaxf(h, 2) + fminf(g, 1) + fmaf(h, g, v);\n"                                            \
  "  for (int mask = WAVETUNE_WARP_SIZE / 2; mask > 0; mask >>= 1) v += __shfl_xor(v, mask);\n"    \
  "  v += __shfl_down(v, 1) + __shfl(v, 0);\n  int k = __shfl_xor(count, 1) + __shfl_down(count, " \
  "2u) + __shfl(3, "                                                                               \
  "0);\n"                                                                                          \
  "  unsigned u = __shfl_xor(total, 1) + __shfl_down(total, 1u) + __shfl(3u, 0);\n  "              \
  "atomicAdd(&y[1], v); "                                                                          \
  "atomicAdd(&count, k); atomicAdd(&total, u);\n"                                                  \
  "  int8_t a = 1; uint8_t b = 2; int16_t c = 3; uint16_t d = 4; int32_t e = 5; uint32_t q = 6; "  \
  "uint64_t r = 7;\n"                                                                              \
  "  dynamic[threadIdx.x] = a + b + c + d + e + q + r + sizeof(size_t);\n  __syncthreads();\n"     \
  "  if (i < n) y[i] = dynamic[threadIdx.x ^ 1] + gridDim.y + blockDim.z + blockIdx.z;\n}\n"

#define CLANG "/usr/bin/clang-19"

static struct fixture hip_fixture(const char *source, const char *space_text) {
  struct fixture fixture = {0};
  struct error error = {0};
  char folder[] = "/tmp/wavetune-test-XXXXXX";
  cr_assert_not_null(mkdtemp(folder));
  fixture.folder = xstrdup(folder);
  json_t *manifest = json_pack(
      "{s:s, s:s, s:s, s:[o], s:[s], s:o, s:{s:[s], s:[s]}, s:{s:o, s:{s:s}}}", "name", "test",
      "language", "hip", "entry", "f", "sources", fixture_source(&fixture, "kernel.hip", source),
      "key", "n", "arguments", fixture_json(HIP_ARGUMENTS), "launch", "grid", "ceil_div(n, 64)",
      "block", "64", "reference", "source",
      fixture_source(&fixture, "reference.c", FIXTURE_REFERENCE), "outputs", "y", "f_at");
  cr_assert_not_null(manifest);
  cr_assert(kernel_parse(manifest, &fixture.kernel, &error), "%s: %s", error.pointer,
            error.message);
  json_decref(manifest);
  json_t *key = json_pack("{s:i}", "n", 1000);
  cr_assert(key_parse(key, NULL, 0, &fixture.key, &error), "%s", error.message);
  json_decref(key);
  json_t *space = fixture_json(space_text ? space_text : "{\"parameters\": {\"BLOCK\": [1]}}");
  cr_assert(space_parse(space, &fixture.space, &error), "%s: %s", error.pointer, error.message);
  json_decref(space);
  cleanup_free char *cache = xasprintf("%s/cache", fixture.folder);
  cr_assert(compile_pool_new(cache, 2, &fixture.pool, &error), "%s", error.message);
  return fixture;
}

static struct compile_result compile_for(const struct fixture *fixture, uint64_t config,
                                         const char *arch) {
  struct compile_request request = fixture_request(fixture, config, false);
  request.arch = arch;
  return compile_pool_wait(fixture->pool, compile_pool_submit(fixture->pool, &request));
}

static void pool_renew(struct fixture *fixture) {
  struct error error;
  cleanup_free char *cache = xasprintf("%s/cache", fixture->folder);
  compile_pool_free(fixture->pool);
  cr_assert(compile_pool_new(cache, 1, &fixture->pool, &error), "%s", error.message);
}

static void choose_clang(void) {
  struct error error;
  struct compiler *clang;
  if (!clang_open(CLANG, &clang, &error))
    cr_skip("no clang-19 here: %s", error.message);
  compiler_free(clang);
  setenv("WAVETUNE_HIP_COMPILER", CLANG, 1);
}

static void choose_hiprtc(void) {
  choose_clang(); /* which is behind it */
  setenv("WAVETUNE_HIP_COMPILER", FAKE_HIPRTC ".6", 1);
}

static void choose_nvrtc(void) {
  struct error error;
  struct compiler *nvrtc;
  if (!nvrtc_open(getenv("WAVETUNE_NVRTC"), &nvrtc, &error))
    cr_skip("no NVRTC here: %s", error.message);
  compiler_free(nvrtc);
}

TestSuite(compile_clang, .init = choose_clang);
TestSuite(compile_hiprtc, .init = choose_hiprtc);
TestSuite(compile_nvrtc, .init = choose_nvrtc);

Test(compile_hip, nvrtc_is_found_among_the_packages_that_the_agent_was_installed_with) {
  static const char *const places[] = {"nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
                                       "nvidia/cu13/lib/libnvrtc.so.13"};
  char site[] = "/tmp/wavetune-test-XXXXXX";
  struct error error;
  cr_assert_not_null(mkdtemp(site));
  for (size_t i = 0; i < ARRAY_LENGTH(places); i++) {
    cleanup_free char *path = xasprintf("%s/%s", site, places[i]), *folder = xstrdup(path);
    *strrchr(folder, '/') = '\0';
    cr_assert(folder_make(folder, 0700, &error) && file_write_unsynced(path, "", 0, 0600, &error),
              "%s", error.message);
  }

  cleanup_settings struct settings found = {0}, none = {0};
  cleanup_free char *of_wheel = xasprintf("%s/wavetune/bin/wavetune-agent", site),
                    *other = xasprintf("%s/bin/wavetune-agent", site);
  nvrtc_packages_add(of_wheel, &found);
  nvrtc_packages_add(other, &none);
  nvrtc_packages_add("agent", &none);
  cr_expect_eq(none.n, 0);
  cr_assert_eq(found.n, 2);
  cr_expect(string_ends(found.texts[0], places[1]) && string_ends(found.texts[1], places[0]));
  cr_expect(folder_remove(site, &error), "%s", error.message);
}

static void expect_object(const char *source, const char *space, const char *arch,
                          int64_t wavefront_size, int64_t lds_bytes_min) {
  struct fixture fixture = hip_fixture(source, space);
  struct compile_result result = compile_for(&fixture, 0, arch);
  cr_assert(result.ok, "%s", result.error.message);
  cr_expect_gt(result.compile_ms, 0);
  cr_expect_str_eq(result.object + strlen(result.object) - 3, ".co");
  cr_expect_gt(result.resources.vgprs, 0);
  cr_expect_geq(result.resources.lds_bytes, lds_bytes_min, "%lld",
                (long long)result.resources.lds_bytes);
  cr_expect_eq(result.resources.wavefront_size, wavefront_size);
  compile_result_release(&result);
  fixture_free(&fixture);
}

#define WAVES "{\"parameters\": {\"waves_per_eu\": [2]}, \"roles\": {\"waves_per_eu\": \"option\"}}"

Test(compile_clang, a_kernel_becomes_a_code_object_whose_resources_are_known) {
  expect_object(GOOD, NULL, "gfx942", 64, 256);
}

Test(compile_clang, every_word_of_the_prelude_compiles_for_each_wavefront_size) {
  expect_object(VOCABULARY, WAVES, "gfx942", 64, 520);
  expect_object(VOCABULARY, WAVES, "gfx90a", 64, 520);
  expect_object(VOCABULARY, WAVES, "gfx1100", 32, 520);
}

Test(compile_hiprtc, a_kernel_becomes_a_code_object_whose_resources_are_known) {
  expect_object(GOOD, NULL, "gfx942", 64, 256);
}

Test(compile_nvrtc, a_kernel_becomes_a_cubin_whose_resources_are_known) {
  expect_object(GOOD, NULL, "sm_90", 32, 256);
}

Test(compile_nvrtc, every_word_of_the_prelude_compiles) {
  expect_object(VOCABULARY, WAVES, "sm_90", 32, 520);
}

static void expect_known_again(const char *arch) {
  struct fixture fixture = hip_fixture(GOOD, NULL);
  struct compile_result first = compile_for(&fixture, 0, arch);
  cr_assert(first.ok, "%s", first.error.message);
  pool_renew(&fixture);
  struct compile_result second = compile_for(&fixture, 0, arch);
  cr_assert(second.ok, "%s", second.error.message);
  cr_expect_eq(second.compile_ms, 0);
  cr_expect_str_eq(first.object, second.object);
  cr_expect_eq(memcmp(&first.resources, &second.resources, sizeof first.resources), 0);
  compile_result_release(&first);
  compile_result_release(&second);
  fixture_free(&fixture);
}

Test(compile_clang, resources_are_known_of_a_cached_object_too) { expect_known_again("gfx942"); }
Test(compile_nvrtc, resources_are_known_of_a_cached_object_too) { expect_known_again("sm_90"); }

Test(compile_clang, an_object_that_was_damaged_in_the_cache_is_compiled_again) {
  struct fixture fixture = hip_fixture(GOOD, NULL);
  struct compile_result first = compile_for(&fixture, 0, "gfx942");
  cr_assert(first.ok, "%s", first.error.message);
  cr_assert_eq(truncate(first.object, 100), 0);
  pool_renew(&fixture);
  struct compile_result second = compile_for(&fixture, 0, "gfx942");
  cr_expect(second.ok, "%s", second.error.message);
  cr_expect_gt(second.compile_ms, 0);
  compile_result_release(&first);
  compile_result_release(&second);
  fixture_free(&fixture);
}

static void expect_equal_bytes(const char *arch) {
  struct digest digests[2];
  for (int i = 0; i < 2; i++) {
    struct fixture fixture = hip_fixture("__device__ const char where[] = __FILE__;\n" GOOD, NULL);
    struct compile_result result = compile_for(&fixture, 0, arch);
    cr_assert(result.ok, "%s", result.error.message);
    struct error error;
    cleanup_free char *bytes = NULL;
    size_t size;
    cr_assert(file_read(result.object, 1 << 24, &bytes, &size, &error), "%s", error.message);
    digests[i] = digest_of(bytes, size);
    compile_result_release(&result);
    fixture_free(&fixture);
  }
  cr_expect(digest_equal(&digests[0], &digests[1]));
}

Test(compile_clang, equal_content_gives_equal_bytes_in_other_folders) {
  expect_equal_bytes("gfx942");
}
Test(compile_hiprtc, equal_content_gives_equal_bytes_in_other_folders) {
  expect_equal_bytes("gfx942");
}
Test(compile_nvrtc, equal_content_gives_equal_bytes_in_other_folders) {
  expect_equal_bytes("sm_90");
}

/* The detail of a compile that must fail because of its source; owned by the caller. */
static char *failure_of(const char *source, const char *space, const char *arch) {
  struct fixture fixture = hip_fixture(source, space);
  struct compile_result result = compile_for(&fixture, 0, arch);
  cr_assert_not(result.ok);
  cr_expect_eq(result.error.kind, ERROR_INVALID, "%s", result.error.message);
  char *detail = xstrdup(result.error.message);
  compile_result_release(&result);
  fixture_free(&fixture);
  return detail;
}

static void expect_failure(const char *source, const char *arch, const char *expected) {
  cleanup_free char *detail = failure_of(source, NULL, arch);
  cr_expect_not_null(strstr(detail, expected), "%s", detail);
}

Test(compile_clang, the_detail_of_a_failure_is_the_first_error_with_its_line) {
  cleanup_free char *detail = failure_of("\nthis is not HIP;\n", NULL, "gfx942");
  cr_expect(string_starts(detail, "kernel.hip:2:"), "%s", detail);
}

Test(compile_hiprtc, the_detail_of_a_failure_is_the_first_error_of_the_log) {
  expect_failure("\nthis is not HIP;\n", "gfx942", "kernel.hip:2:1: error:");
}

Test(compile_nvrtc, the_detail_of_a_failure_is_the_first_error_of_the_log) {
  expect_failure("\nthis is not HIP;\n", "sm_90", "kernel.hip(2): error:");
}

#define DISAGREES "extern \"C\" __global__ void f(double *y, const float *x, int n) {}\n"

Test(compile_clang, a_source_that_disagrees_with_the_manifest_does_not_compile) {
  expect_failure(DISAGREES, "gfx942", "conflicting types for 'f'");
}

Test(compile_nvrtc, a_source_that_disagrees_with_the_manifest_does_not_compile) {
  expect_failure(DISAGREES, "sm_90", "error:");
}

Test(compile_clang, an_object_without_the_kernel_is_a_failure_with_that_reason) {
  expect_failure("extern \"C\" __global__ void g(float *y) { *y = 1; }\n", "gfx942",
                 "the source defines no `extern \"C\" __global__` function f: ");
}

Test(compile_nvrtc, an_object_without_the_kernel_is_a_failure_with_that_reason) {
  expect_failure("extern \"C\" __global__ void g(float *y) { *y = 1; }\n", "sm_90",
                 "the source defines no `extern \"C\" __global__` function f: ");
}

Test(compile_clang, an_arch_that_is_no_name_is_refused) {
  expect_failure(GOOD, "gfx942 -include x",
                 "\"gfx942 -include x\" is not the name of a GPU's architecture");
}

Test(compile_hiprtc, a_compiler_that_ends_by_a_signal_costs_one_compile) {
  expect_failure("/* FAKE_ABORT */\n" GOOD, "gfx942", "the compiler was ended by signal 6");
}

Test(compile_hiprtc, a_compiler_that_has_no_code_to_give_is_a_failure) {
  expect_failure("/* FAKE_NO_CODE */\n" GOOD, "gfx942",
                 "there is no code: HIPRTC_ERROR_INVALID_PROGRAM");
}

/* 2^32 tokens keep the compiler busy for minutes. */
#define ENDLESS "#define a(x) x x x x\n#define b(x) a(a(a(a(x))))\nint y = b(b(b(b(+)))) 1;\n"

Test(compile_hiprtc, a_compiler_that_does_not_end_is_stopped_with_what_it_started) {
  struct fixture fixture = hip_fixture(ENDLESS, NULL);
  compile_pool_set_timeout(fixture.pool, 500);
  struct compile_result result = compile_for(&fixture, 0, "gfx942");
  cr_expect_not(result.ok);
  cr_expect_eq(result.error.kind, ERROR_DEADLINE, "%s", result.error.message);
  compile_result_release(&result);
  fixture_free(&fixture);
}

Test(compile_clang, features_after_a_colon_make_no_other_object) {
  struct fixture fixture = hip_fixture(GOOD, NULL);
  struct compile_result plain = compile_for(&fixture, 0, "gfx942");
  struct compile_result full = compile_for(&fixture, 0, "gfx942:sramecc+:xnack-");
  struct compile_result other = compile_for(&fixture, 0, "gfx90a");
  cr_assert(plain.ok && full.ok && other.ok);
  cr_expect_str_eq(plain.object, full.object);
  cr_expect_str_neq(plain.object, other.object);
  compile_result_release(&plain);
  compile_result_release(&full);
  compile_result_release(&other);
  fixture_free(&fixture);
}

Test(compile_clang, parameters_are_definitions_and_options_in_capitals) {
  struct fixture fixture = hip_fixture(
      GOOD "static_assert(BLOCK == 2 && NUM_WARPS == 8, \"\");\n#ifdef num_warps\n#error\n#endif\n",
      "{\"parameters\": {\"BLOCK\": [1, 2], \"num_warps\": [8]}, \"roles\": {\"num_warps\": "
      "\"option\"}}");
  struct compile_result wrong = compile_for(&fixture, 0, "gfx942"),
                        right = compile_for(&fixture, 1, "gfx942");
  cr_expect_not(wrong.ok);
  cr_expect(right.ok, "%s", right.error.message);
  compile_result_release(&wrong);
  compile_result_release(&right);
  fixture_free(&fixture);
}

/* Parameters called as the prelude and a runtime compiler's headers call theirs. */
static void expect_any_name(const char *arch) {
  struct fixture fixture =
      hip_fixture(GOOD "static_assert(lanes + mask + T + value + v + x_count == 21, \"\");\n",
                  "{\"parameters\": {\"lanes\": [1], \"mask\": [2], \"T\": [3], \"value\": [4],"
                  " \"v\": [5], \"x_count\": [6]}}");
  struct compile_result result = compile_for(&fixture, 0, arch);
  cr_expect(result.ok, "%s", result.error.message);
  compile_result_release(&result);
  fixture_free(&fixture);
}

Test(compile_clang, a_parameter_may_be_called_as_the_prelude_calls_its_own) {
  expect_any_name("gfx942");
}
Test(compile_nvrtc, a_parameter_may_be_called_as_the_prelude_calls_its_own) {
  expect_any_name("sm_90");
}

Test(compile_hip, an_option_that_becomes_the_name_of_a_definition_is_refused) {
  choose_clang();
  cleanup_free char *detail = failure_of(
      GOOD,
      "{\"parameters\": {\"BLOCK\": [1], \"block\": [8]}, \"roles\": {\"block\": \"option\"}}",
      "gfx942");
  cr_expect_str_eq(
      detail,
      "BLOCK is defined twice, as an option in capitals and by its name; rename one of them");
}

Test(compile_hip, a_variable_that_chooses_programs_or_folders_is_refused) {
  static const char *const names[] = {"LD_PRELOAD",    "LD_LIBRARY_PATH", "PATH",
                                      "TMPDIR",        "COMPILER_PATH",   "GCC_EXEC_PREFIX",
                                      "CPATH",         "WAVETUNE_NVRTC",  "GCONV_PATH",
                                      "HSA_TOOLS_LIB", "AMD_COMGR_CACHE"};
  choose_clang();
  for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
    cleanup_free char *space = xasprintf(
        "{\"parameters\": {\"%s\": [\"/tmp\"]}, \"roles\": {\"%s\": \"env\"}}", names[i], names[i]);
    cleanup_free char *expected = xasprintf("the parameter %s of role env would change which "
                                            "compiler runs or what it reads; leave it out of the "
                                            "space",
                                            names[i]);
    cleanup_free char *detail = failure_of(GOOD, space, "gfx942");
    cr_expect_str_eq(detail, expected);
  }
}

/* What a source can read of this machine: nothing. */
static void expect_no_secret(const char *detail) {
  cleanup_file FILE *file = fopen("/etc/passwd", "re");
  char line[512];
  cr_assert_not_null(file);
  while (fgets(line, sizeof line, file)) {
    line[strcspn(line, "\n")] = '\0';
    line[strcspn(line, ":") + 1] = '\0';
    cr_expect_null(strstr(detail, line), "%s", detail);
  }
}

#define NEEDS_LANDLOCK                                                                             \
  do {                                                                                             \
    if (!sandbox_confines_files())                                                                 \
      cr_skip("this kernel has no Landlock");                                                      \
  } while (0)

static void expect_include_learns_nothing(const char *arch) {
  NEEDS_LANDLOCK;
  static const char *const sources[] = {
      "#include \"/etc/passwd\"\n" GOOD,
      "#include \"../../../../../../../etc/passwd\"\n" GOOD,
      "#include </etc/passwd>\n" GOOD,
      GOOD "__asm__(\".incbin \\\"/etc/passwd\\\"\");\n",
  };
  for (size_t i = 0; i < ARRAY_LENGTH(sources); i++) {
    struct fixture fixture = hip_fixture(sources[i], NULL);
    struct compile_result result = compile_for(&fixture, 0, arch);
    cr_expect(i == 3 || !result.ok, "%zu", i);
    expect_no_secret(result.error.message);
    if (result.ok) {
      struct error error;
      cleanup_free char *bytes = NULL;
      size_t size;
      cr_assert(file_read(result.object, 1 << 24, &bytes, &size, &error));
      cr_expect_null(memmem(bytes, size, "root:", 5));
    }
    compile_result_release(&result);
    fixture_free(&fixture);
  }
}

Test(compile_clang, a_source_that_includes_a_file_of_the_machine_learns_nothing) {
  expect_include_learns_nothing("gfx942");
}
Test(compile_hiprtc, a_source_that_includes_a_file_of_the_machine_learns_nothing) {
  expect_include_learns_nothing("gfx942");
}
Test(compile_nvrtc, a_source_that_includes_a_file_of_the_machine_learns_nothing) {
  expect_include_learns_nothing("sm_90");
}

Test(compile_c, a_source_that_includes_a_file_of_the_machine_learns_nothing) {
  NEEDS_LANDLOCK;
  struct fixture fixture =
      fixture_new("#include \"/etc/passwd\"\n" FIXTURE_GOOD, (struct fixture_options){0});
  struct compile_result result = fixture_compile(&fixture, 0);
  cr_expect_not(result.ok);
  expect_no_secret(result.error.message);
  cr_expect_not_null(strstr(result.error.message, "Permission denied"), "%s", result.error.message);
  compile_result_release(&result);
  fixture_free(&fixture);
}

/* A `cc` in a folder that $PATH is set to, which does `act` when it should compile. */
static void fake_compiler(struct fixture *fixture, const char *act) {
  struct error error;
  cleanup_free char *path = xasprintf("%s/cc", fixture->folder);
  cleanup_free char *script = xasprintf("#!/bin/bash\ncase \"$*\" in *-dM*|--*) exec /usr/bin/cc "
                                        "\"$@\";; esac\nPATH=/usr/bin:/bin\n%s\n",
                                        act);
  cr_assert(file_write_atomically(path, script, strlen(script), 0700, &error), "%s", error.message);
  setenv("PATH", fixture->folder, 1);
  pool_renew(fixture);
}

static void expect_detail_of(const char *act, const char *expected) {
  struct fixture fixture = fixture_new(FIXTURE_GOOD, (struct fixture_options){0});
  fake_compiler(&fixture, act);
  struct compile_result result = fixture_compile(&fixture, 0);
  cr_expect_not(result.ok);
  expect_no_secret(result.error.message);
  cr_expect_not_null(strstr(result.error.message, expected), "%s", result.error.message);
  compile_result_release(&result);
  fixture_free(&fixture);
}

Test(compile_c, a_compromised_compiler_has_no_network) {
  expect_detail_of("echo \"error: $( (: </dev/tcp/127.0.0.1/9) 2>&1 | tail -n 1)\"; exit 1",
                   "Operation not permitted");
}

Test(compile_c, a_compromised_compiler_cannot_read_the_machines_files) {
  NEEDS_LANDLOCK;
  expect_detail_of("echo \"error: $(cat /etc/passwd 2>&1 | head -n 1)\"; exit 1",
                   "Permission denied");
}

Test(compile_c, a_compromised_compiler_cannot_pass_a_link_off_as_its_object) {
  expect_detail_of("ln -s /etc/passwd object.so; exit 0",
                   "the compiler reported success but left no object");
}

Test(compile_c, a_compromised_compiler_cannot_write_beside_its_scratch_folder) {
  NEEDS_LANDLOCK;
  expect_detail_of("echo \"error: $( (echo x >../planted.so) 2>&1)\"; exit 1", "Permission denied");
}

/* Makes this process one on a kernel without Landlock. */
static void landlock_take_away(void) {
  scmp_filter_ctx context = seccomp_init(SCMP_ACT_ALLOW);
  cr_assert_not_null(context);
  cr_assert_eq(seccomp_rule_add(context, SCMP_ACT_ERRNO(ENOSYS), SYS_landlock_create_ruleset, 0),
               0);
  cr_assert_eq(seccomp_load(context), 0);
  seccomp_release(context);
  cr_expect_not(sandbox_confines_files());
}

Test(compile_c, on_a_kernel_without_landlock_compiling_goes_on) {
  landlock_take_away();
  struct fixture fixture = fixture_new(FIXTURE_GOOD, (struct fixture_options){0});
  struct compile_result result = fixture_compile(&fixture, 0);
  cr_expect(result.ok, "%s", result.error.message);
  compile_result_release(&result);
  fixture_free(&fixture);
}

/* Whether a pool is made with the option --require-sandbox=LEVEL. */
static bool pool_is_made(const char *level, struct error *error) {
  static const struct option_spec specs[] = {MEASURE_OPTIONS};
  static const struct command_spec command = {
      .name = "test", .arguments = "", .options = specs, .n_options = ARRAY_LENGTH(specs)};
  cleanup_free char *option = xasprintf("--require-sandbox=%s", level);
  char folder[] = "/tmp/wavetune-test-XXXXXX", *arguments[] = {option, NULL};
  cleanup_options struct options *options = NULL;
  struct compile_pool *pool;
  struct error remove_error;
  cr_assert_not_null(mkdtemp(folder));
  options_parse("wavetune-agent", &command, 1, arguments, &options);
  bool made = pool_make(options, folder, NULL, &pool, error);
  if (made)
    compile_pool_free(pool);
  cr_expect(folder_remove(folder, &remove_error), "%s", remove_error.message);
  return made;
}

Test(compile_c, a_required_sandbox_is_used) {
  NEEDS_LANDLOCK;
  struct error error;
  cr_expect(pool_is_made("landlock", &error), "%s", error.message);
}

Test(compile_c, without_a_required_sandbox_compiling_does_not_start) {
  struct error error;
  landlock_take_away();
  cr_expect_not(pool_is_made("landlock", &error));
  cr_expect(string_starts(error.message, "--require-sandbox=landlock: on this Linux kernels and "
                                         "compilers are confined by: seccomp;"),
            "%s", error.message);
  cr_expect(pool_is_made("seccomp", &error), "%s", error.message);
}

Test(compile_c, a_level_that_there_is_not_is_refused) {
  struct error error;
  cr_expect_not(pool_is_made("strict", &error));
  cr_expect_str_eq(error.message,
                   "--require-sandbox must be none, seccomp or landlock, not \"strict\"");
}

/* The sentence of a compile that this machine cannot do; owned by the caller. */
static char *refusal_of(const char *arch) {
  struct fixture fixture = hip_fixture(GOOD, NULL);
  struct compile_result result = compile_for(&fixture, 0, arch);
  cr_expect_not(result.ok);
  cr_expect_eq(result.error.kind, ERROR_UNAVAILABLE, "%s", result.error.message);
  char *detail = xstrdup(result.error.message);
  compile_result_release(&result);
  fixture_free(&fixture);
  return detail;
}

static void expect_refusal(const char *arch, const char *expected) {
  cleanup_free char *detail = refusal_of(arch);
  cr_expect_not_null(strstr(detail, expected), "%s", detail);
}

Test(compile_clang, an_arch_that_is_too_new_for_the_compiler_is_not_the_configs_fault) {
  expect_refusal("gfx999", "does not know the architecture gfx999; install a newer one");
}

Test(compile_hiprtc, an_arch_that_is_too_new_for_the_compiler_is_not_the_configs_fault) {
  expect_refusal("gfx999",
                 "hiprtc 6.4.43484 does not know the architecture gfx999; install a newer one");
}

Test(compile_nvrtc, an_arch_that_is_too_new_for_the_compiler_is_not_the_configs_fault) {
  expect_refusal("sm_999", "does not know the architecture sm_999; install a newer one");
}

Test(compile_hip, a_cpu_is_no_device_for_it) {
  expect_refusal("x86_64", "a kernel in hip is compiled for gfx… or sm_…, not for \"x86_64\"");
}

Test(compile_hip, without_a_compiler_the_error_states_what_to_install) {
  struct fixture fixture = hip_fixture(GOOD, NULL);
  struct error error;
  struct compiler *compiler;
  unsetenv("LD_LIBRARY_PATH");
  if (hiprtc_open(NULL, &compiler, &error)) {
    compiler_free(compiler);
    fixture_free(&fixture);
    cr_skip("ROCm is here");
  }
  if (access("/opt/rocm/llvm/bin/clang", X_OK) == 0) {
    fixture_free(&fixture);
    cr_skip("ROCm's clang is here");
  }
  setenv("PATH", "/nonexistent", 1);
  struct compile_result result = compile_for(&fixture, 0, "gfx942");
  cr_expect_eq(result.error.kind, ERROR_UNAVAILABLE);
  cr_expect_str_eq(result.error.message, "this machine cannot compile HIP for AMD: there is no "
                                         "hiprtc of ROCm 6 or later (libhiprtc.so.6); "
                                         "and there is no clang-19 or later in $PATH; install one "
                                         "(Debian: apt install clang-19 lld-19)");
  compile_result_release(&result);
  fixture_free(&fixture);
}

Test(compile_hip, without_nvrtc_the_error_states_what_to_install) {
  struct error error;
  struct compiler *compiler;
  unsetenv("WAVETUNE_NVRTC");
  unsetenv("LD_LIBRARY_PATH");
  if (nvrtc_open(NULL, &compiler, &error)) {
    compiler_free(compiler);
    cr_skip("NVRTC is here");
  }
  expect_refusal(
      "sm_90",
      "this machine cannot compile HIP for NVIDIA: there is no NVRTC (libnvrtc.so.13 or .12); "
      "install CUDA 12 or later");
}

Test(compile_hip, a_compiler_that_is_chosen_and_not_there_is_named) {
  setenv("WAVETUNE_HIP_COMPILER", "/nonexistent/clang", 1);
  expect_refusal("gfx942", "$WAVETUNE_HIP_COMPILER is /nonexistent/clang: ");
  setenv("WAVETUNE_HIP_COMPILER", "/nonexistent/libhiprtc.so", 1);
  expect_refusal("gfx942", "$WAVETUNE_HIP_COMPILER is /nonexistent/libhiprtc.so: ");
  setenv("WAVETUNE_NVRTC", "/nonexistent/libnvrtc.so", 1);
  expect_refusal("sm_90", "$WAVETUNE_NVRTC is /nonexistent/libnvrtc.so: ");
}

Test(compile_hip, hiprtc_that_is_chosen_and_not_there_is_an_error) {
  struct error error;
  struct compiler *compiler;
  if (hiprtc_open(NULL, &compiler, &error)) {
    compiler_free(compiler);
    cr_skip("ROCm is here");
  }
  setenv("WAVETUNE_HIP_COMPILER", "hiprtc", 1);
  expect_refusal("gfx942",
                 "$WAVETUNE_HIP_COMPILER is hiprtc: there is no hiprtc of ROCm 6 or later");
}

Test(compile_hip, a_compiler_that_is_not_clang_is_refused) {
  setenv("WAVETUNE_HIP_COMPILER", "/usr/bin/gcc", 1);
  expect_refusal("gfx942", ", not clang 17 or later");
}

Test(compile_hip, a_library_of_something_else_is_refused) {
  setenv("WAVETUNE_NVRTC", FAKE_HIPRTC ".6", 1);
  expect_refusal("sm_90", "is not a library of nvrtc");
}

Test(compile_hip, hiprtc_of_rocm_5_is_refused) {
  setenv("WAVETUNE_HIP_COMPILER", FAKE_HIPRTC ".5", 1);
  expect_refusal("gfx942",
                 "is of ROCm 5, whose hiprtc does not know gfx942; install ROCm 6 or later");
}

Test(compile_hip, clang_without_its_linker_is_refused_with_what_to_install) {
  struct fixture fixture = hip_fixture(GOOD, NULL);
  struct error error;
  cleanup_free char *path = xasprintf("%s/clang", fixture.folder);
  static const char script[] =
      "#!/bin/sh\ncase \"$*\" in *lld*) echo lld; exit;; esac\n"
      "echo '#define __clang_major__ 19'\necho '#define __clang_minor__ 1'\n"
      "echo '#define __clang_patchlevel__ 7'\n";
  cr_assert(file_write_atomically(path, script, strlen(script), 0700, &error), "%s", error.message);
  setenv("WAVETUNE_HIP_COMPILER", path, 1);
  expect_refusal("gfx942",
                 "/clang finds no lld, which links its objects; install the lld of its version");
  fixture_free(&fixture);
}

/* Answers clang's queries: where its linker is, and its macros. */
#define FAKE_CLANG                                                                                 \
  "int x(void); int main(int n, char **a) { x(); return puts(strstr(a[1], \"lld\") ?"              \
  " \"/bin/true\" : \"#define __clang_major__ 19\\n#define __clang_minor__ 1\\n"                   \
  "#define __clang_patchlevel__ 7\") < 0; }"

/* The program stays as it is; the library that contains its code is repaired. */
Test(compile_hip, a_compiler_whose_library_was_repaired_is_another_one) {
  char folder[] = "/tmp/wavetune-test-XXXXXX";
  struct error error;
  cr_assert_not_null(mkdtemp(folder));
  cleanup_free char *program = xasprintf("%s/clang", folder);
  cleanup_free char *build = xasprintf(
      "cd %s && echo 'int x(void) { return 0; }' >x.c && cc -shared -fPIC -o libx.so x.c && "
      "printf '%%s' '" FAKE_CLANG
      "' >main.c && cc -w -include stdio.h -include string.h -o clang main.c -L. -lx -Wl,-rpath,%s",
      folder, folder);
  cleanup_free char *repair = xasprintf("echo >>%s/libx.so", folder);
  cr_assert_eq(system(build), 0);
  struct compiler *compilers[3];
  for (int i = 0; i < 3; i++) {
    cr_assert(i < 2 || system(repair) == 0);
    cr_assert(clang_open(program, &compilers[i], &error), "%s", error.message);
  }
  cr_expect_str_eq(compilers[0]->fingerprint, compilers[1]->fingerprint);
  cr_expect_str_neq(compilers[0]->fingerprint, compilers[2]->fingerprint);
  for (int i = 0; i < 3; i++)
    compiler_free(compilers[i]);
  cr_expect(folder_remove(folder, &error), "%s", error.message);
}

Test(compile_hip, the_fingerprint_names_the_programs_that_do_the_work) {
  struct error error;
  struct compiler *cc, *clang;
  cr_assert(cc_open(&cc, &error), "%s", error.message);
  cr_expect_not_null(strstr(cc->fingerprint, "/libc.so.6 "), "%s", cc->fingerprint);
  if (string_starts(cc->identity, "gcc"))
    cr_expect_not_null(strstr(cc->fingerprint, "/cc1 "), "%s", cc->fingerprint);
  compiler_free(cc);
  choose_clang();
  cr_assert(clang_open(CLANG, &clang, &error), "%s", error.message);
  cr_expect_not_null(strstr(clang->fingerprint, "/lld "), "%s", clang->fingerprint);
  compiler_free(clang);
}

Test(compile_hip, the_identity_of_a_runtime_compiler_is_its_version) {
  struct error error;
  cleanup_compiler struct compiler *compiler = NULL;
  cr_assert(hiprtc_open(FAKE_HIPRTC ".6", &compiler, &error), "%s", error.message);
  cr_expect_str_eq(compiler->identity, "hiprtc 6.4.43484");
}

Test(compile_hip, a_kernel_in_triton_is_not_compiled_here) {
  struct fixture fixture = hip_fixture(GOOD, NULL);
  fixture.kernel->language = LANGUAGE_TRITON;
  struct compile_result result = compile_for(&fixture, 0, "gfx942");
  cr_expect(!result.ok && result.error.kind == ERROR_UNAVAILABLE);
  cr_expect_not_null(strstr(result.error.message, "wavetune kernel push --build"), "%s",
                     result.error.message);
  compile_result_release(&result);
  fixture_free(&fixture);
}
