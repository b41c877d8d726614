/* What an object of a captured kernel is passed and what is filled before each of its launches, as
 * a build's entry of "objects" and the agent's launch specifications state them.
 *
 * JSON:
 *   "arguments": ["a_ptr", {"i32": 64}, {"i64": 4096}, {"i1": 0},
 *                 {"tensormap": {"base": "a_desc", "type": 6, "shape": [128, 64],
 *                                "strides": [128], "box": [64, 64], "swizzle": 3, "fill": 0}}]
 *   "fills": [["c_ptr", 4096, 0]]
 * An argument is one of the manifest by its name; a value in 4, 8 or 1 bytes; or a CUtensorMap (of
 * cuda.h, 128 bytes by value) of the buffer argument `base`, encoded for each launch: `type` is a
 * CUtensorMapDataType, `swizzle` a CUtensorMapSwizzle, `fill` a CUtensorMapFloatOOBfill; `shape`
 * and `box` are in elements, outermost dimension first, `strides` in bytes, of all dimensions but
 * the last, whose elements are side by side.
 * A fill repeats a 32-bit word over a number of bytes, a multiple of 4, from where the buffer
 * argument points: what hooks of configs do (Triton's `pre_hook`), so its time is the config's.
 *
 * Memory: both own everything. Threads: plain values. */
#ifndef WAVETUNE_COMMON_BUILDS_LAUNCH_ARGUMENTS_H
#define WAVETUNE_COMMON_BUILDS_LAUNCH_ARGUMENTS_H

#include "common/kernel/kernel.h"

#define LAUNCH_ARGUMENTS_MAX 256
#define LAUNCH_FILLS_MAX 16
#define TENSORMAP_RANK_MAX 5
#define TENSORMAP_BYTES 128
#define TENSORMAP_ALIGNMENT 64

struct tensormap {
  char *base;
  int64_t type, swizzle, fill;
  struct numbers shape, strides, box; /* integers */
};

struct launch_argument {
  char *name;           /* of the manifest; NULL: it is one of the others */
  int64_t i1, i32, i64; /* a value; FIELD_NONE: another */
  struct tensormap map; /* base NULL: none */
};

struct launch_arguments { /* all NULL: not stated */
  size_t n;
  struct launch_argument *all;
};

struct launch_fill {
  char *argument;
  int64_t bytes;
  uint32_t word;
};

struct launch_fills {
  size_t n;
  struct launch_fill *all;
};

/* Members of records, with FIELD_ARRAY and the limits above. */
extern const struct field_custom launch_arguments_custom, launch_fills_custom;

/* One of the manifest. */
must_check struct launch_argument launch_argument_named(const char *name);
void launch_arguments_release(struct launch_arguments *arguments);
void launch_fills_release(struct launch_fills *fills);

/* The first tensor map; n: there is none. */
size_t launch_arguments_tensormap(const struct launch_arguments *arguments);
/* The index of the kernel's argument of that name; n_arguments: it has none. */
size_t launch_argument_index(const struct kernel *kernel, const char *name);

/* Whether the kernel (of a captured one, with its case) has the arguments, tensor maps and fills
 * are within the storage of their buffers, and what is filled is written. `scope` is that of
 * argument_elements. Pointers are relative to the array. */
must_check bool launch_arguments_agree(const struct kernel *kernel,
                                       const struct launch_arguments *arguments,
                                       const struct scope *scope, struct error *error);
must_check bool launch_fills_agree(const struct kernel *kernel, const struct launch_fills *fills,
                                   const struct scope *scope, struct error *error);

#endif
