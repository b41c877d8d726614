/* The instruction flush, compiled like any kernel by the pool. Memory and threads: see instruction_flush.h. */
#include "agent/compile/instruction_flush.h"

#include "common/file.h"
#include "common/log.h"

#define SOURCE_NAME "instruction_flush.hip"

/* The s_nops are the waves' own: none may fetch again before the invalidation has come to its cache. */
static const char source[] = "extern \"C\" __global__ __launch_bounds__(64) void " INSTRUCTION_FLUSH_ENTRY "() {\n"
                             "  asm volatile(\"s_icache_inv\\n\"\n"
                             "               \"s_nop 0\\ns_nop 0\\ns_nop 0\\ns_nop 0\\n\"\n"
                             "               \"s_nop 0\\ns_nop 0\\ns_nop 0\\ns_nop 0\\n\"\n"
                             "               \"s_nop 0\\ns_nop 0\\ns_nop 0\\ns_nop 0\\n\"\n"
                             "               \"s_nop 0\\ns_nop 0\\ns_nop 0\\ns_nop 0\" ::: \"memory\");\n"
                             "}\n";

static struct compile_result compile_in(struct compile_pool *pool, const char *folder, const char *arch,
                                        const struct key *key, const struct space *space) {
  struct source file = {.path = (char *)SOURCE_NAME, .digest = digest_of(source, strlen(source))};
  struct kernel kernel = {
      .name = (char *)"instruction flush",
      .language = LANGUAGE_HIP,
      .entry = (char *)INSTRUCTION_FLUSH_ENTRY,
      .n_sources = 1,
      .sources = &file,
  };
  struct compile_request request = {
      .kernel = &kernel, .key = key, .space = space, .sources = folder, .gpu_name = "", .arch = arch};
  return compile_pool_wait(pool, compile_pool_submit(pool, &request));
}

static bool compile_with_source(struct compile_pool *pool, const char *folder, const char *arch,
                                struct compile_result *ret_result, struct error *error) {
  cleanup_free char *path = xasprintf("%s/" SOURCE_NAME, folder);
  cleanup_json json_t *one_config = json_pack("{s:{s:[i]}}", "parameters", "NONE", 0);
  struct space *space;
  if (!file_write_atomically(path, source, strlen(source), 0600, error) || !space_parse(one_config, &space, error))
    return false;
  *ret_result = compile_in(pool, folder, arch, &(struct key){0}, space);
  space_free(space);
  return true;
}

bool instruction_flush_object(struct compile_pool *pool, const char *arch, char **ret_path, struct error *error) {
  cleanup_free char *folder = NULL;
  struct compile_result result = {0};
  struct error ignored;
  if (!string_starts(arch, "gfx")) {
    *ret_path = NULL;
    return true;
  }
  if (!folder_make_temporary(&folder, error))
    return error_prefix(error, "the source of the instruction flush: ");
  bool asked = compile_with_source(pool, folder, arch, &result, error);
  if (!folder_remove(folder, &ignored))
    log_warning("compile: %s is left behind: %s", folder, ignored.message);
  if (!asked)
    return false;
  if (!result.ok)
    log_warning("compile: cold measurements on %s leave the instruction caches warm: %s", arch, result.detail);
  *ret_path = TAKE(result.object);
  compile_result_release(&result);
  return true;
}
