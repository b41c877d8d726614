/* The kernel that empties instruction caches: for which targets there is one, and what is in it. */
#include <criterion/criterion.h>

#include "agent/compile/instruction_flush.h"
#include "common/disassemble.h"
#include "common/file.h"

#define CLANG "/usr/bin/clang-19"

struct flush {
  char folder[64];
  struct compile_pool *pool;
  char *path;
};

static struct flush flush_compile(const char *compiler, const char *arch) {
  struct flush flush = {.folder = "/tmp/wavetune-test-XXXXXX"};
  struct error error = {0};
  cr_assert_not_null(mkdtemp(flush.folder));
  setenv("WAVETUNE_HIP_COMPILER", compiler, 1);
  cr_assert(compile_pool_new(flush.folder, 1, &flush.pool, &error), "%s", error.message);
  cr_assert(instruction_flush_object(flush.pool, arch, &flush.path, &error), "%s", error.message);
  return flush;
}

static void flush_end(struct flush *flush) {
  struct error error = {0};
  compile_pool_free(flush->pool);
  free(flush->path);
  cr_expect(folder_remove(flush->folder, &error), "%s", error.message);
}

static size_t count(const char *text, const char *word) {
  size_t n = 0;
  for (const char *at = text; (at = strstr(at, word)); at++)
    n++;
  return n;
}

Test(instruction_flush, a_wave_invalidates_its_cache_and_waits_sixteen_nops) {
  char *object = NULL, *text = NULL;
  size_t size;
  struct error error = {0};
  if (access(CLANG, X_OK) != 0)
    cr_skip("there is no " CLANG);
  struct flush flush = flush_compile(CLANG, "gfx942:sramecc+:xnack-");
  cr_assert_not_null(flush.path);
  cr_assert(file_read(flush.path, 1 << 20, &object, &size, &error), "%s", error.message);
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
  flush_end(&flush);
}

Test(instruction_flush, other_vendors_targets_need_none) {
  struct flush flush = flush_compile(CLANG, "sm_90");
  cr_expect_null(flush.path);
  flush_end(&flush);
}

Test(instruction_flush, a_machine_without_a_compiler_measures_without) {
  struct flush flush = flush_compile("/nowhere/clang", "gfx942");
  cr_expect_null(flush.path);
  flush_end(&flush);
}
