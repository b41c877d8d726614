/* Kernel manifests: a kernel's arguments, how its results are checked, and how much it computes.
 *
 * JSON of a manifest, which POST /v1/kernels takes (kernel_hash is the digest of its canonical
 * text):
 *   {"name": "softmax/fused", "language": "c", "entry": "softmax_fused",
 *    "sources": [{"path": "fused.c", "digest": "sha256:…"}],        the first one is compiled and
 *                                                                   includes the others
 *    "key": ["rows", "columns"],
 *    "arguments": [
 *      {"name": "y", "dtype": "float32", "shape": ["rows", "columns"], "access": "write"},
 *      {"name": "x", "dtype": "float32", "shape": ["rows", "columns"], "access": "read",
 *       "fill": "normal"},
 *      {"name": "rows", "dtype": "int64", "value": "rows"}],
 *    "defines": {"COLUMNS": "columns"},                             optional: constants derived
 *                                                                   from key and config
 *    "launch": {"grid": ["…"], "block": ["…"], "shared_bytes": "…"},   not for language c
 *    "reference": {"source": {"path": "reference.c", "digest": "…"},
 *                  "outputs": {"y": "softmax_at"}, "rtol": 1e-5, "atol": 1e-6, "samples": 4096},
 *    "flops": "5 * rows * columns", "bytes": "8 * rows * columns",
 *    "exports": {"FORMAT": {…}, …}}
 *
 * A captured kernel (triton only) has "cases": "build". Its arguments state a "kind" in place of
 * shape, access, fill and value: {"name": "q", "dtype": "bfloat16", "kind": "buffer"}, or "scalar".
 * It has no launch and no defines. What is passed with a key is stated by the case of a build
 * (common/kernel/kernel_case.h), so that the kernel stays the same for new keys. Its reference may
 * take pointers as const or not, and is no part of its hash: whoever adds one later does not make
 * another kernel.
 *
 * A kernel that is known by name only, from imported tables, has the language "external" and only a
 * name, a key and exports. It can have winners, but no jobs and no builds; `entry` is NULL.
 *
 * An argument with a shape is a buffer (extents in elements, row-major), one with a value a scalar.
 * Access is read, write or readwrite. A buffer that is read has a fill (common/kernel/fill.h); one
 * that is only read may name a member of the config in "segments", over which its shape and its
 * fill are expressions too (common/kernel/segments.h). The kernel's C prototype follows from the
 * arguments: buffers are pointers (const when only read), scalars values. The reference is C: for
 * each output a function `double f(int64_t index, <the kernel's arguments>)` that computes element
 * `index` of that output in double precision; readwrite buffers hold their values from before the
 * call. The defines and the members that "segments" name are macros in it, with the baseline's
 * values. `samples` is the number of elements of each output for which the reference is computed
 * (0: all); the first and last 64 are always among them. All others are compared with the
 * baseline's output (agent/measure/problem.h). Every element must have been written, and may be NaN
 * only where the reference is.
 *
 * An expression is a string or an integer. Optional: fill ("normal" when absent; buffers
 * that hold no floats must state one of the others), defines, shared_bytes, rtol (1e-5), atol
 * (1e-8), samples (4096), flops, bytes, exports; "block" for triton, where it follows from
 * num_warps; "reference" for hip and triton. A kernel in c writes at least one buffer and has a
 * reference entry for each. Every extent is at least 1.
 *
 * Memory: a kernel owns everything. Threads: read-only after kernel_parse. */
#ifndef WAVETUNE_COMMON_KERNEL_KERNEL_H
#define WAVETUNE_COMMON_KERNEL_KERNEL_H

#include "common/kernel/fill.h"
#include "common/record/record.h"
#include "common/space/space.h"

#define KERNEL_ARGUMENTS_MAX 64
#define KERNEL_DIMENSIONS_MAX 8
#define KERNEL_SOURCES_MAX 64

enum language { LANGUAGE_HIP, LANGUAGE_TRITON, LANGUAGE_C, LANGUAGE_EXTERNAL };
const char *language_name(enum language language);

enum access { ACCESS_READ, ACCESS_WRITE, ACCESS_READWRITE };
struct argument {
  char *name;
  enum dtype dtype;
  bool is_buffer;
  enum { KIND_BUFFER, KIND_SCALAR } kind;    /* of a captured kernel, as its manifest states it */
  RECORD_ARRAY(char *, n_dimensions, shape); /* of a buffer: expressions */
  enum access access;
  struct fill fill;
  char *segments;               /* of a buffer: a member of the config, or NULL */
  const struct argument *alias; /* of a case: the argument whose buffer it is passed; NULL: none */
  int64_t before, after; /* of a case: elements of its buffer around those that it is passed */
  int64_t row; /* of a case: of a buffer of partial sums, the elements of a row; 0: it is none */
  char *value; /* of a scalar: an expression */
  struct value literal;        /* of a case's scalar: an int or a float; else None */
  const char *reference_entry; /* the function that computes an element of an output, or NULL */
};

struct source {
  char *path; /* relative, no "..", no leading "/" */
  struct digest digest;
};

struct define {
  char *name;
  char *value; /* an expression of the key and the config */
};

struct launch { /* all 0 in language c */
  RECORD_ARRAY(char *, n_grid, grid);
  RECORD_ARRAY(char *, n_block, block);
  char *shared_bytes; /* expression or NULL */
};

struct output {
  char *argument;
  char *entry;
};

struct kernel_reference {
  struct source source; /* path NULL: outputs are not compared with a reference */
  RECORD_ARRAY(struct output, n_outputs, outputs);
  double rtol, atol;
  int64_t samples;
};

struct export {
  char *format;
  json_t *mapping; /* object */
};

struct kernel {
  /* kernel_hash: digest of the canonical manifest, of a captured kernel without its reference */
  struct digest hash;
  char *name;
  enum language language;
  char *entry; /* NULL: external */
  RECORD_ARRAY(struct source, n_sources, sources);
  RECORD_ARRAY(char *, n_key_names, key_names);
  RECORD_ARRAY(struct argument, n_arguments, arguments);
  RECORD_ARRAY(struct define, n_defines, defines);
  struct launch launch;
  enum { CASES_BUILD } cases; /* as the manifest states it, or -1 */
  bool is_captured;    /* launches and arguments are those of a build's cases (kernel_case.h) */
  bool is_tf32;        /* of a case: dots of 32-bit floats are rounded */
  bool is_scaled_down; /* of a case: its normal deviates, which are less than 1 */
  struct kernel_reference reference;
  char *flops, *bytes; /* expressions or NULL */
  RECORD_ARRAY(struct export, n_exports, exports);
  json_t *json; /* the manifest */
};

/* The names of a kernel's key and their number, as two arguments. */
#define KEY_NAMES(kernel) (const char *const *)(kernel)->key_names, (kernel)->n_key_names

/* The fields of a manifest with code, and of one that is known by name only. */
extern const struct record manifest_record, external_manifest_record;

must_check bool kernel_parse(const json_t *manifest, struct kernel **ret_kernel,
                             struct error *error);
void kernel_free(struct kernel *kernel);
DEFINE_CLEANUP(struct kernel *, cleanup_kernel_free, kernel_free)
#define cleanup_kernel cleanup_by(cleanup_kernel_free)

/* Whether key, space and manifest fit together: the key has the manifest's names, expressions use
 * known names only, and the language allows the roles of the parameters (c: no options). POST
 * /v1/jobs and `tune` check this first. Pointers are those of a job: "/key", "/space/…", "/kernel".
 */
must_check bool kernel_accepts(const struct kernel *kernel, const struct key *key,
                               const struct space *space, struct error *error);

/* Whether the space cannot change the meaning of signed sources, for agents with --trusted-key. No
 * key signs the space, and its parameters become macros, which could rename a function, a type or a
 * keyword. So names of parameters must be capitals, digits and _, a letter first, and no parameter
 * may have the role env. Always true for Triton, where parameters are not macros. */
must_check bool kernel_space_is_plain(const struct kernel *kernel, const struct space *space,
                                      struct error *error);

/* Evaluating a manifest (kernel_key.c). A scope holds the key, gpu_name and arch; for scalars also
 * a config. */

/* The largest extent of a grid or a block: CUDA counts them in 31 bits. */
#define LAUNCH_EXTENT_MAX INT32_MAX

/* Adds the names that every expression may read: key, gpu_name and arch. */
must_check bool facts_scope_add(const struct space_facts *facts, struct scope *scope,
                                struct error *error);

#define ELEMENTS_MAX ((int64_t)1 << 40) /* of a buffer */
/* The number of elements of a buffer; of one with segments, `scope` has the member. */
must_check bool argument_elements(const struct argument *argument, const struct scope *scope,
                                  int64_t *ret_elements, struct error *error);

/* Evaluates a scalar argument: *ret is an int or, of a case, perhaps a float. Refuses other values,
 * and those that the argument's type cannot hold. */
must_check bool scalar_evaluate(const struct argument *argument, const struct scope *scope,
                                struct value *ret, struct error *error);

/* What a device must be known to have before launches are evaluated; 0: not known. */
struct launch_facts {
  struct space_facts facts;
  int64_t cus, warp_size;
};

/* Whether the key gives every buffer its extents, in all segments; and with a config, whether
 * scalars, defines, block and grid have values that an agent accepts. Both refuse only what every
 * agent refuses: launches are not evaluated where a fact is not known, and a grid that reads the
 * occupancy must have a value for one that a device may have. Pointers are those of a job: the
 * member of the key that the expression reads, "/key" where it reads several, and "/kernel" where
 * it reads none. */
must_check bool kernel_takes_key(const struct kernel *kernel, const struct space *space,
                                 const struct launch_facts *facts, struct error *error);
must_check bool kernel_takes_config(const struct kernel *kernel, const struct space *space,
                                    uint64_t config, const struct launch_facts *facts,
                                    struct error *error);

/* Names and paths in manifests and kernel folders. Threads: pure functions. */
#define IDENTIFIER_MAX 128
#define PATH_TEXT_MAX 255

/* [A-Za-z_][A-Za-z0-9_]*, at most IDENTIFIER_MAX bytes. */
bool identifier_is_valid(const char *text);

/* Whether expressions use the name: as a keyword, or for a fact of the device. */
bool name_is_reserved(const char *name);

/* Whether the path is relative, without control characters, and without "..", "." and empty parts.
 */
must_check bool source_path_check(const char *path, const char *pointer, struct error *error);

#endif
