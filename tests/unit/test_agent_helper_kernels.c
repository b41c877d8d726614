/* The agent's own kernels: for which targets they are compiled, and what is in them. */
#include <dlfcn.h>

#include "agent/compile/compiler.h"
#include "agent/compile/helper_kernels.h"
#include "agent/device/fingerprint.h"
#include "common/base/file.h"
#include "common/code/disassemble.h"
#include "common/program/command.h"
#include "tests/unit/agent_fixture.h"

#define CLANG "/usr/bin/clang-19"

struct helper {
  char folder[64];
  struct compile_pool *pool;
  struct helper_object object;
};

static struct helper helper_begin(const char *compiler) {
  struct helper helper = {.folder = "/tmp/wavetune-test-XXXXXX"};
  struct error error = {0};
  cr_assert_not_null(mkdtemp(helper.folder));
  setenv("WAVETUNE_HIP_COMPILER", compiler, 1);
  cr_assert(compile_pool_new(helper.folder, 1, &helper.pool, &error), "%s", error.message);
  return helper;
}

static struct helper helper_compile(enum helper_kernel kernel, const char *compiler,
                                    const char *arch) {
  struct helper helper = helper_begin(compiler);
  struct error error = {0};
  cr_assert(helper_kernel_object(helper.pool, kernel, arch, &helper.object, &error), "%s",
            error.message);
  return helper;
}

static void helper_end(struct helper *helper) {
  struct error error = {0};
  compile_pool_free(helper->pool);
  free(helper->object.path);
  cr_expect(folder_remove(helper->folder, &error), "%s", error.message);
}

static size_t count(const char *text, const char *word) {
  size_t n = 0;
  for (const char *at = text; (at = strstr(at, word)); at++)
    n++;
  return n;
}

Test(helper_kernels, a_wave_invalidates_its_cache_and_waits_sixteen_nops) {
  char *object = NULL, *text = NULL;
  size_t size;
  struct error error = {0};
  if (access(CLANG, X_OK) != 0)
    cr_skip("there is no " CLANG);
  struct helper helper = helper_compile(HELPER_INSTRUCTION_FLUSH, CLANG, "gfx942:sramecc+:xnack-");
  cr_assert_not_null(helper.object.path);
  cr_assert(file_read(helper.object.path, 1 << 20, &object, &size, &error), "%s", error.message);
  cr_expect_not_null(
      memmem(object, size, INSTRUCTION_FLUSH_ENTRY, strlen(INSTRUCTION_FLUSH_ENTRY)));
  if (disassemble(object, size, &text, &error)) {
    char *flushing = strstr(text, "s_icache_inv");
    cr_assert_not_null(flushing, "%s", text);
    *strstr(flushing, "s_endpgm") = '\0';
    cr_expect_eq(count(flushing, "s_icache_inv"), 1);
    cr_expect_eq(count(flushing, "s_nop"), 16, "%s", flushing);
  }
  free(object);
  free(text);
  helper_end(&helper);
}

Test(helper_kernels, other_vendors_targets_need_no_flush) {
  struct helper helper = helper_compile(HELPER_INSTRUCTION_FLUSH, CLANG, "sm_90");
  cr_expect_null(helper.object.path);
  helper_end(&helper);
}

static void expect_none(const char *compiler, const char *why) {
  static const char *const without[HELPER_COUNT] = {
      "on gfx942 cold measurements leave the instruction caches warm: ",
      "on gfx942 outputs are copied to the host to be compared: "};
  for (enum helper_kernel kernel = 0; kernel < HELPER_COUNT; kernel++) {
    struct error error = {0};
    struct helper helper = helper_begin(compiler);
    cr_expect_not(helper_kernel_object(helper.pool, kernel, "gfx942", &helper.object, &error));
    cr_expect(string_starts(error.message, without[kernel]), "%s", error.message);
    cr_expect_not_null(strstr(error.message, why), "%s", error.message);
    helper_end(&helper);
  }
}

Test(helper_kernels, a_machine_without_a_compiler_has_none) {
  expect_none("/nowhere/clang", "/nowhere/clang");
}

Test(helper_kernels, a_machine_without_room_for_their_sources_has_none) {
  if (access(CLANG, X_OK) != 0)
    cr_skip("there is no " CLANG);
  setenv("TMPDIR", "/nowhere", 1);
  expect_none(CLANG, "/nowhere");
}

static void expect_object(struct helper *helper) {
  char *object = NULL;
  size_t size;
  struct error error = {0};
  cr_assert_not_null(helper->object.path);
  cr_assert(file_read(helper->object.path, 1 << 20, &object, &size, &error), "%s", error.message);
  cr_expect_not_null(memmem(object, size, FINGERPRINT_ENTRY, strlen(FINGERPRINT_ENTRY)));
  free(object);
  helper_end(helper);
}

Test(helper_kernels, the_fingerprint_is_compiled_for_amds_targets) {
  if (access(CLANG, X_OK) != 0)
    cr_skip("there is no " CLANG);
  static const char *const targets[] = {"gfx90a", "gfx942:sramecc+:xnack-", "gfx1100"};
  for (size_t i = 0; i < ARRAY_LENGTH(targets); i++) {
    struct helper helper = helper_compile(HELPER_FINGERPRINT, CLANG, targets[i]);
    expect_object(&helper);
  }
}

Test(helper_kernels, the_fingerprint_is_compiled_for_nvidias_targets) {
  struct error error;
  struct compiler *nvrtc;
  if (!nvrtc_open(getenv("WAVETUNE_NVRTC"), &nvrtc, &error))
    cr_skip("no NVRTC here: %s", error.message);
  compiler_free(nvrtc);
  struct helper helper = helper_compile(HELPER_FINGERPRINT, CLANG, "sm_90");
  expect_object(&helper);
}

/* The kernel's text as C++ of the host: a thread for each of a workgroup's, one workgroup after the
 * other. */
static const char host_words[] =
    "#include <pthread.h>\n"
    "#include <stdint.h>\n"
    "#define __global__\n"
    "#define __device__\n"
    "#define __shared__ static\n"
    "#define __forceinline__ inline\n"
    "#define __launch_bounds__(threads)\n"
    "struct coordinate { unsigned x; };\n"
    "static __thread coordinate threadIdx, blockIdx;\n"
    "static coordinate gridDim;\n"
    "static pthread_barrier_t barrier;\n"
    "static void __syncthreads() { pthread_barrier_wait(&barrier); }\n";
static const char host_launch[] =
    "#define THREADS 256\n"
    "struct call { const unsigned char *bytes; uint64_t size, *parts; unsigned thread; };\n"
    "static void *thread_run(void *context) {\n"
    "  call *made = (call *)context;\n"
    "  threadIdx.x = made->thread;\n"
    "  for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++) {\n"
    "    wavetune_fingerprint(made->bytes, made->size, made->parts);\n"
    "    __syncthreads();\n"
    "  }\n"
    "  return 0;\n"
    "}\n"
    "extern \"C\" void launch(const unsigned char *bytes, uint64_t size, uint64_t *parts, unsigned "
    "groups) {\n"
    "  static call calls[THREADS];\n"
    "  static pthread_t threads[THREADS];\n"
    "  gridDim.x = groups;\n"
    "  pthread_barrier_init(&barrier, 0, THREADS);\n"
    "  for (unsigned i = 0; i < THREADS; i++) {\n"
    "    calls[i] = call{bytes, size, parts, i};\n"
    "    pthread_create(&threads[i], 0, thread_run, &calls[i]);\n"
    "  }\n"
    "  for (unsigned i = 0; i < THREADS; i++)\n"
    "    pthread_join(threads[i], 0);\n"
    "  pthread_barrier_destroy(&barrier);\n"
    "}\n";

typedef void launch_function(const void *bytes, uint64_t size, struct fingerprint *parts,
                             unsigned groups);

static launch_function *host_compile(const char *folder) {
  struct error error = {0};
  struct command_result ran;
  launch_function *launch;
  cleanup_free char *text = xasprintf("%s%s%s", host_words, fingerprint_kernel, host_launch);
  cleanup_free char *source = xasprintf("%s/kernel.cc", folder),
                    *object = xasprintf("%s/kernel.so", folder);
  cr_assert(file_write_atomically(source, text, strlen(text), 0600, &error), "%s", error.message);
  char *arguments[] = {(char *)CLANG,
                       (char *)"-O1",
                       (char *)"-shared",
                       (char *)"-fPIC",
                       (char *)"-pthread",
                       (char *)"-o",
                       object,
                       source,
                       NULL};
  char *environment[] = {(char *)"PATH=/usr/bin:/bin", NULL};
  struct command command = {.arguments = arguments,
                            .environment = environment,
                            .folder = folder,
                            .timeout_ms = 60000,
                            .cpu_seconds_max = 60,
                            .memory_bytes_max = UINT64_MAX,
                            .file_bytes_max = 16 << 20,
                            .output_max = 4096,
                            .stop_fd = -1};
  cr_assert(command_run(&command, &ran, &error), "%s", error.message);
  cr_assert(ran.succeeded, "%s", ran.output);
  free(ran.output);
  void *library = dlopen(object, RTLD_NOW);
  cr_assert_not_null(library, "%s", dlerror());
  *(void **)&launch = dlsym(library, "launch");
  cr_assert_not_null(launch);
  return launch;
}

/* Sizes around those at which a thread takes one word more, four at once, or the cut one at the
 * end. */
Test(helper_kernels, the_text_of_the_fingerprint_computes_what_the_host_does) {
  enum { GROUPS = 2, STEP = 8 * FINGERPRINT_THREADS * GROUPS, BYTES = 9 * STEP };
  static const size_t sizes[] = {0,        5, 8, STEP + 3, 4 * STEP - 8, 4 * STEP, 4 * STEP + 9,
                                 BYTES - 1};
  char folder[] = "/tmp/wavetune-test-XXXXXX";
  struct error error = {0};
  if (access(CLANG, X_OK) != 0)
    cr_skip("there is no " CLANG);
  cr_assert_not_null(mkdtemp(folder));
  launch_function *launch = host_compile(folder);
  cleanup_free unsigned char *bytes = xmalloc(BYTES);
  for (size_t i = 0; i < BYTES; i++)
    bytes[i] = (unsigned char)(i * 7 + i / 251);
  for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
    struct fingerprint parts[GROUPS];
    launch(bytes, sizes[i], parts, GROUPS);
    struct fingerprint whole = {parts[0].sum + parts[1].sum, parts[0].product + parts[1].product};
    cr_expect(fingerprint_equal(whole, fingerprint_part(bytes, sizes[i], 0)), "%zu bytes",
              sizes[i]);
  }
  cr_expect(folder_remove(folder, &error), "%s", error.message);
}
