/* What buffers hold: the types of their elements, and what they are filled with.
 *
 * JSON of a fill: "normal" (mean 0, deviation 1), "uniform" ([0, 1)), "zeros", "index" (0, 1, 2, …,
 * and 0 again after the last integer that the type holds), or one of
 *   {"uniform": [low, high]}
 *   {"integers": [low, high]}    random ones, both ends included
 *   {"sorted": [low, high]}      the same, rising: the first is `low`, the last `high`
 *   {"ramp": [start, step]}      start + i * step; the type's ends where that is beyond them
 *   {"permutation": n}           0 to n - 1, each once, shuffled; every n elements another time
 *   {"constant": value}          a number, true or false
 *   {"routed": {…}}              which tokens go to which experts: of manifests only, see below
 *   {"blob": "sha256:…"}         these bytes, of the buffer's size: of cases only (case.h)
 * Integers are from -2^53 to 2^53 and such that the type holds them. Types that are no floats need
 * integers, so not "normal" and "uniform". The data are the same on every machine
 * (agent/measure/reference.h).
 *
 * A routed fill is one of the three arguments that a fused mixture of experts takes from
 * moe_align_block_size (vLLM, SGLang):
 *   {"what": "tokens",    sorted token ids; or "experts", of each block; or "count", of ids in use
 *    "tokens": "M", "top_k": 2, "experts": "E", "block": "BLOCK_SIZE_M",
 *    "by_row": "M * top_k * 4 <= E",    optional: each row has a block to itself, in order
 *    "skew": 1.0}                       optional: 0 (uniform) to 8
 * Each token goes to top_k different experts, which makes tokens * top_k rows, at most 2^26; row
 * token * top_k + j is its j-th. The ids are the rows by expert, rising within one; those of an
 * expert are padded to a multiple of `block` by the number of rows, which is no id. Blocks behind
 * the last one have the expert -1, ids there the padding. The expert of rank k (from 1) is drawn
 * with a weight of k^-skew; which expert has which rank is random. Arguments of one kernel that
 * state the same numbers describe the same routing. All members but "what" and "skew" are
 * expressions over the key and the argument's "segments" (common/kernel/segments.h). Routing as it
 * was recorded is a blob.
 *
 * Memory: a fill owns its expressions and borrows the bytes of its blob. Threads: pure functions.
 */
#ifndef WAVETUNE_COMMON_KERNEL_FILL_H
#define WAVETUNE_COMMON_KERNEL_FILL_H

#include "common/record/record.h"

/* X(name in manifests, enumerator, bytes, C type): torch's names; float8e4b15 is Triton's own
 * (agent/measure/float8.h). The floats are last. */
#define DTYPES(X)                                                                                  \
  X("bool", DTYPE_BOOL, 1, "_Bool")                                                                \
  X("int8", DTYPE_INT8, 1, "int8_t")                                                               \
  X("uint8", DTYPE_UINT8, 1, "uint8_t")                                                            \
  X("int16", DTYPE_INT16, 2, "int16_t")                                                            \
  X("uint16", DTYPE_UINT16, 2, "uint16_t")                                                         \
  X("int32", DTYPE_INT32, 4, "int32_t")                                                            \
  X("uint32", DTYPE_UINT32, 4, "uint32_t")                                                         \
  X("int64", DTYPE_INT64, 8, "int64_t")                                                            \
  X("uint64", DTYPE_UINT64, 8, "uint64_t")                                                         \
  X("float16", DTYPE_FLOAT16, 2, "_Float16")                                                       \
  X("bfloat16", DTYPE_BFLOAT16, 2, "uint16_t")                                                     \
  X("float32", DTYPE_FLOAT32, 4, "float")                                                          \
  X("float64", DTYPE_FLOAT64, 8, "double")                                                         \
  X("float8_e4m3fn", DTYPE_FLOAT8_E4M3FN, 1, "uint8_t")                                            \
  X("float8_e5m2", DTYPE_FLOAT8_E5M2, 1, "uint8_t")                                                \
  X("float8_e4m3fnuz", DTYPE_FLOAT8_E4M3FNUZ, 1, "uint8_t")                                        \
  X("float8_e5m2fnuz", DTYPE_FLOAT8_E5M2FNUZ, 1, "uint8_t")                                        \
  X("float8e4b15", DTYPE_FLOAT8_E4B15, 1, "uint8_t")
enum dtype {
#define X(name, enumerator, size, c_type) enumerator,
  DTYPES(X)
#undef X
};
extern const char *const dtype_names[]; /* ended by NULL */
const char *dtype_name(enum dtype dtype);
const char *dtype_c_type(enum dtype dtype);
size_t dtype_size(enum dtype dtype);
must_check bool dtype_parse(const char *name, enum dtype *ret_dtype);
/* Whether the type holds the integer exactly; larger floats than 8-bit ones are not asked beyond
 * 2^53. */
bool dtype_holds(enum dtype dtype, int64_t value);

enum fill_kind {
  FILL_NORMAL,
  FILL_UNIFORM,
  FILL_INTEGERS,
  FILL_ZEROS,
  FILL_INDEX,
  FILL_SORTED,
  FILL_RAMP,
  FILL_PERMUTATION,
  FILL_CONSTANT,
  FILL_ROUTED,
  FILL_BLOB
};

enum routed_what { ROUTED_TOKENS, ROUTED_EXPERTS, ROUTED_COUNT };
struct routed { /* expressions, as the manifest states them */
  enum routed_what what;
  char *tokens, *top_k, *experts, *block;
  char *by_row; /* or NULL */
  double skew;
};
/* The same with the numbers of a key and a segment. */
#define ROUTED_EXPERTS_MAX 65536
#define ROUTED_TOP_K_MAX 1024
#define ROUTED_ROWS_MAX (1 << 26) /* the expert of each is in the agent's memory */
struct routing {
  enum routed_what what;
  int64_t tokens, top_k, experts, block;
  bool by_row;
  double skew;
};

struct fill {
  enum fill_kind kind;
  bool is_stated;   /* the manifest has one */
  double low, high; /* its one or two numbers; of FILL_PERMUTATION n and 0 */
  double scale;     /* of FILL_NORMAL: the deviation; 0: 1 */
  struct digest blob;
  const char *bytes; /* of the blob; NULL until it was read */
  struct routed routed;
};

/* The member "fill" of another record, a struct fill. */
extern const struct field_custom fill_custom;

/* Whether a buffer of the type can be filled so; the error's pointer begins with "/fill". */
must_check bool fill_fits(const struct fill *fill, enum dtype dtype, struct error *error);

#endif
