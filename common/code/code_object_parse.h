/* Shared by the readers of the two formats. Private to common/code/code_object*.c.
 *
 * Memory: an image borrows the caller's copy of the bytes; section data and names are borrowed from
 * it. Threads: one. */
#ifndef WAVETUNE_COMMON_CODE_CODE_OBJECT_PARSE_H
#define WAVETUNE_COMMON_CODE_CODE_OBJECT_PARSE_H

#include <gelf.h>

#include "common/code/code_object.h"

/* An ELF file all of whose segments and sections are within its bytes. */
struct elf_image {
  Elf *elf;
  GElf_Ehdr header;
  const char *bytes;
  size_t size;
};

/* A part of a file; `bytes` may have any alignment. */
struct bytes_view {
  const char *bytes;
  size_t size;
};

/* Both fill the target and the kernels of `object`; after a failure code_object_free releases what
 * was filled. */
must_check bool amdgpu_parse(const struct elf_image *image, struct code_object *object,
                             struct error *error);
must_check bool cuda_parse(const struct elf_image *image, struct code_object *object,
                           struct error *error);

/* Appends a kernel whose resources are all unknown. An error if the object has one of this name or
 * too many, or if the name is not UTF-8 text. The pointer is valid until the next call. */
must_check bool code_object_add_kernel(struct code_object *object, const char *name, size_t length,
                                       struct code_kernel **ret_kernel, struct error *error);

/* Sorts the kernel's arguments by offset. An error if one is outside of the kernarg segment or
 * overlaps another. */
must_check bool code_kernel_order_arguments(struct code_kernel *kernel, struct error *error);

#endif
