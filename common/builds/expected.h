/* Expected values: what Triton's interpreter computes for a sample of a captured kernel's programs,
 * made by a builder (python/wavetune/_captured/interpret.py), kept as a blob that a variant of a
 * build names ("expected"), and compared by agents (agent/measure/expected.h).
 *
 * The blob, of at most EXPECTED_SIZE_MAX bytes, begins with a line of canonical JSON:
 *   {"version": 1, "seed": 1, "grid": [64, 1, 1], "programs": [[0, 0, 0], …],
 *    "buffers": [{"argument": "y", "dtype": "float32", "runs": 2, "values": 256}]}
 * `seed` is that of the inputs, `programs` are those that were executed. For each buffer follow
 * `runs` pairs of int64, the first element of a run and how many follow one another, rising and
 * apart; then `values` elements, as the buffer has them. All is little-endian.
 *
 * Of a kernel that draws random numbers by block, each config has values of its own: "version" is 2
 * and the member "configs": [{"config": {…}, "buffers": […]}, …] is in the place of "buffers", the
 * config of `programs` first. Configs that are not among them have no values.
 *
 * Memory: owns everything but names. Threads: read-only after expected_parse. */
#ifndef WAVETUNE_COMMON_BUILDS_EXPECTED_H
#define WAVETUNE_COMMON_BUILDS_EXPECTED_H

#include "common/kernel/kernel.h"

#define EXPECTED_SIZE_MAX ((size_t)1 << 20)
#define EXPECTED_PROGRAMS_MAX 64
#define EXPECTED_CONFIGS_MAX 1024 /* that have values of their own */

struct expected_run {
  int64_t start, count;
};
struct expected_buffer {
  size_t argument; /* of the kernel */
  size_t n_runs, n_values;
  struct expected_run *runs;
  void *values; /* n_values elements of the argument's dtype, run after run */
};
struct expected_values {
  json_t *config; /* of which they are; NULL: of all configs */
  size_t n;
  struct expected_buffer *buffers;
};
struct expected {
  uint64_t seed;
  size_t n; /* 1 where they are of all configs */
  struct expected_values *all;
};

/* `kernel` has its case: values are of buffers that it writes and that are no aliases. */
must_check bool expected_parse(const void *bytes, size_t size, const struct kernel *kernel,
                               struct expected **ret_expected, struct error *error);
void expected_free(struct expected *expected);
DEFINE_CLEANUP(struct expected *, cleanup_expected_free, expected_free)
#define cleanup_expected cleanup_by(cleanup_expected_free)

/* The config's values, and of these the buffer's; NULL: none. */
const struct expected_values *expected_of_config(const struct expected *expected,
                                                 const json_t *config);
const struct expected_buffer *expected_find(const struct expected_values *values, size_t argument);

#endif
