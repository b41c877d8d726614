/* Compiled GPU code as text: llvm-objdump for AMDGPU code objects, nvdisasm or cuobjdump for
 * CUDA's.
 *
 * The tool is a program of this machine, run on a copy of the bytes in a folder of its own,
 * confined (common/program/sandbox.h) and bounded in time, memory and output, because the bytes are
 * untrusted. Without a tool the error names what to install or which variable to set; nothing else
 * of wavetune needs one.
 * Tools, the first that reads the bytes counts:
 *   AMDGPU: $WAVETUNE_OBJDUMP alone where it is set; llvm-objdump-30 down to -19 and llvm-objdump
 *           in $PATH (before 19 LLVM does not know gfx942), /opt/rocm/llvm/bin/llvm-objdump
 *   CUDA:   $WAVETUNE_NVDISASM alone where it is set; nvdisasm in $PATH, of a Triton package in
 *           $VIRTUAL_ENV, of /usr/local/cuda, of a Triton package of the system's Python; the same
 *           places for cuobjdump
 *
 * Memory: the text is the caller's. Threads: any. */
#ifndef WAVETUNE_COMMON_CODE_DISASSEMBLE_H
#define WAVETUNE_COMMON_CODE_DISASSEMBLE_H

#include "common/code/code_object.h"

#define DISASSEMBLY_MAX ((size_t)64 << 20) /* bytes of text; more is an error */

must_check bool disassemble(const void *bytes, size_t size, char **ret_text, struct error *error);

#endif
