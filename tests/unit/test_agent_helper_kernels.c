/* The agent's own kernels: for which targets they are compiled, and what is in them. */
#include <criterion/criterion.h>

#include "agent/compile/helper_kernels.h"
#include "common/disassemble.h"
#include "common/file.h"

#define CLANG "/usr/bin/clang-19"

struct helper {
  char folder[64];
  struct compile_pool *pool;
  char *path;
};

static struct helper helper_compile(enum helper_kernel kernel, const char *compiler, const char *arch) {
  struct helper helper = {.folder = "/tmp/wavetune-test-XXXXXX"};
  struct error error = {0};
  cr_assert_not_null(mkdtemp(helper.folder));
  setenv("WAVETUNE_HIP_COMPILER", compiler, 1);
  cr_assert(compile_pool_new(helper.folder, 1, &helper.pool, &error), "%s", error.message);
  cr_assert(helper_kernel_object(helper.pool, kernel, arch, &helper.path, &error), "%s", error.message);
  return helper;
}

static void helper_end(struct helper *helper) {
  struct error error = {0};
  compile_pool_free(helper->pool);
  free(helper->path);
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
  cr_assert_not_null(helper.path);
  cr_assert(file_read(helper.path, 1 << 20, &object, &size, &error), "%s", error.message);
  cr_expect_not_null(memmem(object, size, INSTRUCTION_FLUSH_ENTRY, strlen(INSTRUCTION_FLUSH_ENTRY)));
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
  cr_expect_null(helper.path);
  helper_end(&helper);
}

Test(helper_kernels, a_machine_without_a_compiler_does_without) {
  for (enum helper_kernel kernel = 0; kernel < HELPER_COUNT; kernel++) {
    struct helper helper = helper_compile(kernel, "/nowhere/clang", "gfx942");
    cr_expect_null(helper.path);
    helper_end(&helper);
  }
}

Test(helper_kernels, the_fingerprint_is_compiled_for_amds_targets) {
  if (access(CLANG, X_OK) != 0)
    cr_skip("there is no " CLANG);
  static const char *const targets[] = {"gfx90a", "gfx942:sramecc+:xnack-", "gfx1100"};
  for (size_t i = 0; i < ARRAY_LENGTH(targets); i++) {
    char *object = NULL;
    size_t size;
    struct error error = {0};
    struct helper helper = helper_compile(HELPER_FINGERPRINT, CLANG, targets[i]);
    cr_assert_not_null(helper.path, "%s", targets[i]);
    cr_assert(file_read(helper.path, 1 << 20, &object, &size, &error), "%s", error.message);
    cr_expect_not_null(memmem(object, size, FINGERPRINT_ENTRY, strlen(FINGERPRINT_ENTRY)));
    free(object);
    helper_end(&helper);
  }
}
