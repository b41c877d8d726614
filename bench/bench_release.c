/* How long it takes to read a release of 50,000 winners, for which the start of a container waits,
 * compared with the SHA-256 of the same bytes, which is needed in any case. The keys are those of a
 * matrix multiplication; there are 500 configs, and one time for each winner: once with 4 digits,
 * once with the 17 digits of a quotient, once with 50 kernels that share their configs. Also
 * measured: reading the release in order to sign it, building it, and reading its keys as values.
 * Prints medians, and ratios to the digest.
 *
 *   bench_release [RUNS]
 *
 * Memory: ends with the process. Threads: one. */
#include "common/base/numbers.h"
#include "common/cache/release.h"

#define WINNERS 50000
#define CONFIGS 500
#define KERNELS 50

static void winner_add(struct release_builder *builder, int i, bool is_long, int n_kernels) {
  static const char *const names[] = {"M", "N", "K", "dtype"};
  struct error error;
  int config = i / n_kernels % CONFIGS;
  cleanup_free char *name = xasprintf("matmul/triton_%d", i % n_kernels);
  const double ms = (is_long ? 1.0 / 3 : 1) * (double)(i % 9973 + 1) / 10000;
  cleanup_json json_t *key =
      json_pack("{s:i, s:i, s:i, s:s}", "M", 16 * (i % 500 + 1), "N", 64 * (i / 500 + 1), "K", 4096,
                "dtype", i % 2 ? "fp8e4b8" : "bf16");
  cleanup_json json_t *values =
      json_pack("{s:i, s:i, s:i, s:i, s:i, s:i}", "BLOCK_M", 16 << config % 5, "BLOCK_N",
                16 << config / 5 % 5, "BLOCK_K", 32 << config / 25 % 4, "num_warps",
                1 << config / 100 % 4, "num_stages", config / 400, "waves_per_eu", 0);
  cleanup_json json_t *provenance = json_pack("{s:s}", "origin", "tuned");
  const struct release_entry entry = {.name = name,
                                      .kernel = digest_of("k", 1),
                                      .key_names = names,
                                      .n_key_names = ARRAY_LENGTH(names),
                                      .key = key,
                                      .config = values,
                                      .has_ordinal = true,
                                      .ordinal = (uint64_t)config,
                                      .space = digest_of("s", 1),
                                      .provenance = provenance,
                                      .ms = &ms,
                                      .n_ms = 1,
                                      .job = 100000 + i};
  if (!release_builder_add(builder, &entry, &error))
    die("%s", error.message);
}

static struct release *release_make(bool is_long, int n_kernels) {
  struct environment environment = {.rocm = (char *)"6.4.1", .gpu = (char *)"AMD Instinct MI300X"};
  cleanup_release_builder struct release_builder *builder =
      release_builder_new(&environment, "default", REGIME_COLD);
  struct release *release;
  struct error error;
  for (int i = 0; i < WINNERS; i++)
    winner_add(builder, i, is_long, n_kernels);
  if (!release_builder_finish(builder, &release, &error))
    die("%s", error.message);
  return release;
}

static double us_since(int64_t begin_ns) {
  return (double)(clock_monotonic_ns() - begin_ns) / 1000;
}

/* What the start of a container does: the digest, then the bytes. */
static void read_once(const struct release *release) {
  struct error error;
  cleanup_release struct release *again = NULL;
  cleanup_free char *bytes = xstrndup(release->bytes, release->size);
  const struct digest digest = digest_of(bytes, release->size);
  if (!release_take(&bytes, release->size, &digest, &again, &error))
    die("%s", error.message);
}

/* What signing requires: every number and string must be in canonical form. */
static void check_once(const struct release *release) {
  struct error error;
  cleanup_release struct release *again = NULL;
  if (!release_parse(release->bytes, release->size, &again, &error))
    die("%s", error.message);
}

static void keys_once(const struct release *release) {
  struct value values[KEY_MEMBERS_MAX];
  for (size_t k = 0; k < release->n_kernels; k++) {
    const struct release_kernel *kernel = &release->kernels[k];
    for (size_t i = 0; i < kernel->n_winners; i++) {
      release_key_values(kernel, &kernel->winners[i], values);
      release_key_values_release(kernel, values);
    }
  }
}

static void compare(const char *what, bool is_long, int n_kernels, size_t runs) {
  int64_t begin = clock_monotonic_ns();
  cleanup_release struct release *release = release_make(is_long, n_kernels);
  double build_us = us_since(begin);
  cleanup_free double *read_us = xcalloc(runs, sizeof *read_us),
                      *digest_us = xcalloc(runs, sizeof *digest_us);
  cleanup_free double *keys_us = xcalloc(runs, sizeof *keys_us),
                      *check_us = xcalloc(runs, sizeof *check_us);

  for (size_t i = 0; i < runs; i++) {
    begin = clock_monotonic_ns();
    struct digest digest = digest_of(release->bytes, release->size);
    digest_us[i] = us_since(begin);
    if (!digest_equal(&digest, &release->digest))
      die("another digest");
    begin = clock_monotonic_ns();
    read_once(release);
    read_us[i] = us_since(begin);
    begin = clock_monotonic_ns();
    check_once(release);
    check_us[i] = us_since(begin);
    begin = clock_monotonic_ns();
    keys_once(release);
    keys_us[i] = us_since(begin);
  }

  double digest = median_of(digest_us, runs), read = median_of(read_us, runs),
         check = median_of(check_us, runs), keys = median_of(keys_us, runs);
  printf("%s: %zu winners, %zu bytes\n", what, release->n_winners, release->size);
  printf("  SHA-256            %8.0f us\n", digest);
  printf("  read, with SHA-256 %8.0f us  %.1f x\n", read, read / digest);
  printf("  read to sign it    %8.0f us  %.1f x\n", check, check / digest);
  printf("  keys as values     %8.0f us  %.1f x\n", keys, keys / digest);
  printf("  build              %8.0f us  %.1f x\n", build_us, build_us / digest);
}

int main(int argc, char **argv) {
  long runs = argc > 1 ? strtol(argv[1], NULL, 10) : 11;
  if (runs < 1 || runs > 10000)
    die("bench_release [RUNS], 1 to 10000");
  compare("times of 4 digits", false, 1, (size_t)runs);
  compare("times of 17 digits", true, 1, (size_t)runs);
  compare("50 kernels", false, KERNELS, (size_t)runs);
  return 0;
}
