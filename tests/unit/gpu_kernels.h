/* The kernels of the GPU tests, once as PTX and once as HIP source: what a device loads depends on what it is, not on
 * the runtime that drives it. All but the last work on 32-bit words. */
#ifndef WAVETUNE_TESTS_GPU_KERNELS_H
#define WAVETUNE_TESTS_GPU_KERNELS_H

/* add(out, in, n, k): out[i] = in[i] + k for i < n
 * count(out): out[i] += 1 for all threads
 * exchange(out): passes words through dynamic shared memory at its end: out[i] = 256 - 1 - i, for one block of 256 that
 *   has `bytes` (second argument) of it
 * poke(address): writes to `address` */
static const char gpu_kernels_ptx[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".extern .shared .align 16 .b8 shared[];\n"
    ".visible .entry add(.param .u64 out, .param .u64 in, .param .u32 n, .param .u32 k)\n"
    "{\n"
    "  .reg .pred %p; .reg .b32 %a, %b, %c, %i, %n, %k, %x; .reg .b64 %out, %in, %offset;\n"
    "  ld.param.u64 %out, [out]; ld.param.u64 %in, [in]; ld.param.u32 %n, [n]; ld.param.u32 %k, [k];\n"
    "  cvta.to.global.u64 %out, %out; cvta.to.global.u64 %in, %in;\n"
    "  mov.u32 %a, %ctaid.x; mov.u32 %b, %ntid.x; mov.u32 %c, %tid.x; mad.lo.u32 %i, %a, %b, %c;\n"
    "  setp.ge.u32 %p, %i, %n; @%p bra end;\n"
    "  mul.wide.u32 %offset, %i, 4; add.u64 %out, %out, %offset; add.u64 %in, %in, %offset;\n"
    "  ld.global.u32 %x, [%in]; add.u32 %x, %x, %k; st.global.u32 [%out], %x;\n"
    "end: ret;\n"
    "}\n"
    ".visible .entry count(.param .u64 out)\n"
    "{\n"
    "  .reg .b32 %a, %b, %c, %i, %x; .reg .b64 %out, %offset;\n"
    "  ld.param.u64 %out, [out]; cvta.to.global.u64 %out, %out;\n"
    "  mov.u32 %a, %ctaid.x; mov.u32 %b, %ntid.x; mov.u32 %c, %tid.x; mad.lo.u32 %i, %a, %b, %c;\n"
    "  mul.wide.u32 %offset, %i, 4; add.u64 %out, %out, %offset;\n"
    "  ld.global.u32 %x, [%out]; add.u32 %x, %x, 1; st.global.u32 [%out], %x;\n"
    "  ret;\n"
    "}\n"
    ".visible .entry exchange(.param .u64 out, .param .u32 bytes)\n"
    "{\n"
    "  .reg .b32 %i, %there, %base, %bytes, %x; .reg .b64 %out, %offset;\n"
    "  ld.param.u64 %out, [out]; ld.param.u32 %bytes, [bytes]; cvta.to.global.u64 %out, %out;\n"
    "  mov.u32 %i, %tid.x; mov.u32 %base, shared; add.u32 %base, %base, %bytes; sub.u32 %base, %base, 1024;\n"
    "  shl.b32 %there, %i, 2; add.u32 %there, %base, %there; st.shared.u32 [%there], %i;\n"
    "  bar.sync 0;\n"
    "  sub.u32 %there, 255, %i; shl.b32 %there, %there, 2; add.u32 %there, %base, %there;\n"
    "  ld.shared.u32 %x, [%there];\n"
    "  mul.wide.u32 %offset, %i, 4; add.u64 %out, %out, %offset; st.global.u32 [%out], %x;\n"
    "  ret;\n"
    "}\n"
    ".visible .entry poke(.param .u64 address)\n"
    "{\n"
    "  .reg .b32 %x; .reg .b64 %address;\n"
    "  ld.param.u64 %address, [address]; mov.u32 %x, 1; st.global.u32 [%address], %x;\n"
    "  ret;\n"
    "}\n";

static const char gpu_kernels_hip[] =
    "#define KERNEL extern \"C\" __attribute__((global)) void\n"
    "#define INDEX (__builtin_amdgcn_workgroup_id_x() * 256u + __builtin_amdgcn_workitem_id_x())\n"
    "KERNEL add(unsigned *out, const unsigned *in, unsigned n, unsigned k) {\n"
    "  unsigned i = INDEX;\n"
    "  if (i < n)\n"
    "    out[i] = in[i] + k;\n"
    "}\n"
    "KERNEL count(unsigned *out) { out[INDEX]++; }\n"
    "KERNEL exchange(unsigned *out, unsigned bytes) {\n"
    "  extern __attribute__((shared)) unsigned words[];\n"
    "  unsigned i = __builtin_amdgcn_workitem_id_x(), base = bytes / 4 - 256;\n"
    "  words[base + i] = i;\n"
    "  __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, \"workgroup\");\n"
    "  __builtin_amdgcn_s_barrier();\n"
    "  __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, \"workgroup\");\n"
    "  out[i] = words[base + 255 - i];\n"
    "}\n"
    "KERNEL poke(unsigned *address) { *(volatile unsigned *)address = 1; }\n";

#endif
