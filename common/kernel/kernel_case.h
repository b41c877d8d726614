/* Cases: what a captured kernel is passed with one key.
 *
 * JSON, a member of a build's variant (docs/builds.md):
 *   {"arguments": {
 *      "q": {"elements": 4096, "access": "read", "fill": "normal"},
 *      "o": {"elements": 4096, "access": "readwrite", "alias": "q"},
 *      "k": {"elements": 1024, "before": 64, "after": 512, "access": "read"},
 *      "lengths": {"elements": 5, "access": "read", "fill": {"blob": "sha256:…"}},
 *      "T": {"value": 2048}, "scale": {"value": 0.088}},
 *    "precision": "tf32",       optional: dots of 32-bit floats are rounded to tf32 or bf16x3, so
 *                               that configs may differ more (agent/measure/agreement.h)
 *    "scale": 0.0625}           optional: the deviation of "normal" fills, from CASE_SCALE_MIN to 1
 * The names are arguments of the manifest; one that is absent is not passed (None, or compiled in).
 * A buffer has its number of elements, 1 to 2^40, and is read or read and written: "write" does not
 * exist, because compiled code does not tell whether all of a buffer is written. `before` and
 * `after` are elements of its storage around a view: the kernel is passed the address of the
 * element after `before` others, and may read and, where it is written, write all of them; they
 * are filled as reference.h says, and compared. A fill is one of
 * common/kernel/fill.h, and as there "normal" where it is absent. An alias is passed the buffer of
 * another argument, from its own `before` on: it has the same fill, if it states one, no alias
 * itself, no `after`, and does not end behind that buffer; either of them that is written makes the
 * buffer one that is written. Without them is what a reference computes. `row`
 * is the length of a row where a config may write its blocks' partial sums
 * (agent/measure/partial.h). A scalar's value is an integer, true or false, or, of a float, any
 * number, "inf", "-inf" or "nan".
 *
 * A scale below 1 states that the builder saw the kernel diverge with a deviation of 1. Recurrences
 * multiply a state by what the program has normalised; with deviates of 1 their values grow to
 * 1e35 and overflow, and no two ways to compute them agree
 * (python/wavetune/_captured/scaling.py).
 *
 * A kernel with a case has plain numbers where other manifests have expressions; where an object is
 * launched states its grid. Its hash and its JSON are the captured kernel's.
 *
 * Memory: such a kernel owns everything but the bytes of blobs. Threads: as kernel.h. */
#ifndef WAVETUNE_COMMON_KERNEL_KERNEL_CASE_H
#define WAVETUNE_COMMON_KERNEL_KERNEL_CASE_H

#include "common/kernel/kernel.h"

#define CASE_SCALE_MIN 0x1p-20

/* Pointers of errors are relative to the case. */
must_check bool kernel_of_case(const struct kernel *kernel, const json_t *json,
                               struct kernel **ret_kernel, struct error *error);

/* The blob of the argument, or NULL; its bytes must have the buffer's size. */
const struct digest *argument_blob(const struct argument *argument);
must_check bool argument_blob_check(const struct argument *argument, size_t size,
                                    struct error *error);

/* The index of the argument that has the buffer: its own, but for an alias. */
static inline size_t argument_owner(const struct kernel *kernel, size_t index) {
  const struct argument *alias = kernel->arguments[index].alias;
  return alias ? (size_t)(alias - kernel->arguments) : index;
}

/* Where a buffer argument begins in its buffer. */
static inline size_t argument_offset(const struct argument *argument) {
  return (size_t)argument->before * dtype_size(argument->dtype);
}

/* Whether it is a buffer and not another argument's. */
static inline bool argument_has_buffer(const struct argument *argument) {
  return argument->is_buffer && !argument->alias;
}

#endif
