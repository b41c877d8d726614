/* Helper kernels, compiled by the pool. */
#include "agent/compile/helper_kernels.h"

#include "common/base/file.h"
#include "common/base/log.h"

#define SOURCE_NAME "helper.hip"

/* Every wave executes the s_nops, so that none fetches again before the invalidation has reached
 * its cache. */
static const char instruction_flush_source[] =
    "extern \"C\" __global__ __launch_bounds__(64) void " INSTRUCTION_FLUSH_ENTRY "() {\n"
    "  asm volatile(\"s_icache_inv\\n\"\n"
    "               \"s_nop 0\\ns_nop 0\\ns_nop 0\\ns_nop 0\\n\"\n"
    "               \"s_nop 0\\ns_nop 0\\ns_nop 0\\ns_nop 0\\n\"\n"
    "               \"s_nop 0\\ns_nop 0\\ns_nop 0\\ns_nop 0\\n\"\n"
    "               \"s_nop 0\\ns_nop 0\\ns_nop 0\\ns_nop 0\" ::: \"memory\");\n"
    "}\n";

/* Four words of a thread at once, because memory latency limits it. */
const char fingerprint_kernel[] =
    "static __device__ __forceinline__ void word_add(uint64_t word, uint64_t index, uint64_t &sum, "
    "uint64_t &product) "
    "{\n"
    "  uint64_t z = word + (index + 1) * 0x9e3779b97f4a7c15u;\n"
    "  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;\n"
    "  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;\n"
    "  z ^= z >> 31;\n"
    "  sum += z;\n"
    "  product += (z >> 32) * (z & 0xffffffffu);\n"
    "}\n"
    "\n"
    "extern \"C\" __global__ __launch_bounds__(256) void " FINGERPRINT_ENTRY
    "(const unsigned char *bytes, uint64_t size, uint64_t *parts) {\n"
    "  __shared__ uint64_t sums[256], products[256];\n"
    "  const uint64_t *words = (const uint64_t *)bytes;\n"
    "  uint64_t n = size / 8, step = (uint64_t)gridDim.x * 256, sum = 0, product = 0;\n"
    "  uint64_t i = (uint64_t)blockIdx.x * 256 + threadIdx.x;\n"
    "  for (; i + 3 * step < n; i += 4 * step) {\n"
    "    uint64_t a = words[i], b = words[i + step], c = words[i + 2 * step], d = words[i + 3 * "
    "step];\n"
    "    word_add(a, i, sum, product);\n"
    "    word_add(b, i + step, sum, product);\n"
    "    word_add(c, i + 2 * step, sum, product);\n"
    "    word_add(d, i + 3 * step, sum, product);\n"
    "  }\n"
    "  for (; i < n; i += step)\n"
    "    word_add(words[i], i, sum, product);\n"
    "  if (size % 8 && blockIdx.x == 0 && threadIdx.x == 0) {\n"
    "    uint64_t last = 0;\n"
    "    for (uint64_t k = 0; k < size % 8; k++)\n"
    "      last |= (uint64_t)bytes[8 * n + k] << 8 * k;\n"
    "    word_add(last, n, sum, product);\n"
    "  }\n"
    "  sums[threadIdx.x] = sum;\n"
    "  products[threadIdx.x] = product;\n"
    "  __syncthreads();\n"
    "  for (unsigned half = 128; half; half /= 2) {\n"
    "    if (threadIdx.x < half) {\n"
    "      sums[threadIdx.x] += sums[threadIdx.x + half];\n"
    "      products[threadIdx.x] += products[threadIdx.x + half];\n"
    "    }\n"
    "    __syncthreads();\n"
    "  }\n"
    "  if (threadIdx.x == 0) {\n"
    "    parts[2 * blockIdx.x] = sums[0];\n"
    "    parts[2 * blockIdx.x + 1] = products[0];\n"
    "  }\n"
    "}\n";
_Static_assert(FINGERPRINT_THREADS == 256, "as in the source above");

static const struct argument fingerprint_arguments[] = {
    {.name = (char *)"bytes", .dtype = DTYPE_UINT8, .is_buffer = true, .access = ACCESS_READ},
    {.name = (char *)"size", .dtype = DTYPE_UINT64},
    {.name = (char *)"parts", .dtype = DTYPE_UINT64, .is_buffer = true, .access = ACCESS_WRITE},
};

static const struct {
  const char *name, *entry, *source;
  size_t n_arguments;
  const struct argument *arguments;
  const char *targets; /* how the names of its archs begin */
  const char *without; /* the consequence when it does not compile */
} helpers[HELPER_COUNT] = {
    [HELPER_INSTRUCTION_FLUSH] = {"instruction_flush", INSTRUCTION_FLUSH_ENTRY,
                                  instruction_flush_source, 0, NULL, "gfx",
                                  "cold measurements leave the instruction caches warm"},
    [HELPER_FINGERPRINT] = {"fingerprint", FINGERPRINT_ENTRY, fingerprint_kernel,
                            ARRAY_LENGTH(fingerprint_arguments), fingerprint_arguments, "",
                            "outputs are copied to the host to be compared"},
};

static struct compile_result compile(struct compile_pool *pool, enum helper_kernel helper,
                                     const char *folder, const char *arch,
                                     const struct space *space) {
  const char *text = helpers[helper].source;
  struct source file = {.path = (char *)SOURCE_NAME, .digest = digest_of(text, strlen(text))};
  struct kernel kernel = {
      .name = (char *)helpers[helper].name,
      .language = LANGUAGE_HIP,
      .entry = (char *)helpers[helper].entry,
      .n_arguments = helpers[helper].n_arguments,
      .arguments = (struct argument *)helpers[helper].arguments,
      .n_sources = 1,
      .sources = &file,
  };

  struct key no_key = {0};
  struct compile_request request = {.kernel = &kernel,
                                    .key = &no_key,
                                    .space = space,
                                    .sources = folder,
                                    .gpu_name = "",
                                    .arch = arch};

  return compile_pool_wait(pool, compile_pool_submit(pool, &request));
}

bool helper_kernel_object(struct compile_pool *pool, enum helper_kernel helper, const char *arch,
                          struct helper_object *ret_object, struct error *error) {
  const char *text = helpers[helper].source;
  struct compile_result result = {0};
  struct error ignored;
  cleanup_free char *folder = NULL;
  *ret_object = (struct helper_object){0};
  if (!string_starts(arch, helpers[helper].targets))
    return true;
  if (!folder_make_temporary(&folder, error))
    return error_prefix(error, "on %s %s: ", arch, helpers[helper].without);

  cleanup_free char *path = xasprintf("%s/" SOURCE_NAME, folder);
  cleanup_json json_t *one_config = json_pack("{s:{s:[i]}}", "parameters", "NONE", 0);
  struct space *space;
  if (file_write_atomically(path, text, strlen(text), 0600, error) &&
      space_parse(one_config, &space, error)) {
    result = compile(pool, helper, folder, arch, space);
    space_free(space);
    if (!result.ok)
      *error = result.error;
  }

  if (!folder_remove(folder, &ignored))
    log_warning("compile: %s cannot be removed: %s", folder, ignored.message);

  bool ok = result.ok;
  if (ok)
    *ret_object = (struct helper_object){TAKE(result.object), result.digest};
  compile_result_release(&result);

  return ok || error_prefix(error, "on %s %s: ", arch, helpers[helper].without);
}
