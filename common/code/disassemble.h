/* Disassembles GPU code: with llvm-objdump AMDGPU code objects, with nvdisasm or cuobjdump CUDA
 * cubins.
 *
 * The tool is a program of this machine. It reads a copy of the bytes in a temporary folder,
 * confined (common/program/sandbox.h) and within bounds of time, memory and output, because the
 * bytes are untrusted. Without a tool the error states what to install or which variable to set.
 * Tools, of which the first that can read the bytes is used:
 *   AMDGPU: $WAVETUNE_OBJDUMP alone where it is set; llvm-objdump-30 down to -19 and llvm-objdump
 *           in $PATH (before 19 LLVM does not know gfx942), /opt/rocm/llvm/bin/llvm-objdump
 *   CUDA:   $WAVETUNE_NVDISASM alone where it is set; nvdisasm in $PATH, in a Triton package of
 *           $VIRTUAL_ENV, in /usr/local/cuda, in a Triton package of the system's Python; then
 *           cuobjdump in the same places
 *
 * Memory: the text is the caller's. Threads: any. */
#ifndef WAVETUNE_COMMON_CODE_DISASSEMBLE_H
#define WAVETUNE_COMMON_CODE_DISASSEMBLE_H

#include "common/base/base.h"
#include "common/code/code_object.h"

#define DISASSEMBLY_MAX ((size_t)64 << 20) /* bytes of text; more is an error */

must_check bool disassemble(const void *bytes, size_t size, char **ret_text, struct error *error);

/* From here: one line of llvm-objdump's disassembly of AMD GPU code as an instruction, with its
 * class and the instruction that follows it.
 *
 * Both families of names are known: global_load_dwordx4, ds_read_b128 (gfx9) and global_load_b128,
 * ds_load_b128 (gfx11 and later). Threads: pure functions. */

/* Bytes that one lane moves in one access. */
enum isa_width { ISA_1, ISA_2, ISA_4, ISA_8, ISA_12, ISA_16, ISA_WIDTHS };
extern const int64_t isa_width_bytes[ISA_WIDTHS];

enum isa_class {
  ISA_OTHER,
  ISA_GLOBAL_LOAD, /* global_, buffer_ and flat_ */
  ISA_GLOBAL_STORE,
  ISA_ATOMIC, /* on global memory */
  ISA_LDS_READ,
  ISA_LDS_WRITE,
  ISA_SCRATCH_LOAD,
  ISA_SCRATCH_STORE,
  ISA_MATRIX,  /* MFMA and WMMA */
  ISA_ACCVGPR, /* moves between the two halves of the register file */
  ISA_WAIT,
  ISA_BARRIER,
};

enum isa_flow { ISA_NEXT, ISA_BRANCH /* or next */, ISA_JUMP, ISA_END };

struct isa_instruction {
  uint64_t address;
  uint64_t target; /* of a branch or jump */
  enum isa_class class;
  enum isa_flow flow;
  enum isa_width width; /* of a memory access */
  int accesses;         /* how many of that width: 2 for ds_read2_b64, else 1 */
  bool is_flat, is_to_lds;
  bool waits_for_loads, waits_for_lds; /* for all that are in flight */
  const char *name;                    /* borrowed from the text; not NUL-terminated */
  size_t name_length;
};

/* False for a line that holds no instruction. `line` ends with a newline or the text's end. */
must_check bool isa_decode(const char *line, struct isa_instruction *ret);

/* The name (borrowed, not NUL-terminated) and the address of "0000000000001700 <matmul_kernel>:";
 * false for other lines. */
must_check bool isa_decode_label(const char *line, const char **ret_name, size_t *ret_length,
                                 uint64_t *ret_address);

#endif
