/* What comes before the text of every kernel in HIP, so that one source compiles for AMD (clang with no headers and no
 * device library, or hiprtc, which brings most of this itself) and for NVIDIA (NVRTC).
 *
 * A kernel may use:
 *   __global__ __device__ __shared__ __forceinline__ __restrict__ extern "C"
 *   __launch_bounds__(threads) and __launch_bounds__(threads, waves of an execution unit; AMD only, 0: the compiler's choice)
 *   threadIdx blockIdx blockDim gridDim .x .y .z     __syncthreads()     extern __shared__ T name[];
 *   WAVETUNE_WARP_SIZE   lanes of a wavefront or warp; __shfl_xor(v, mask), __shfl_down(v, lanes), __shfl(v, lane) of
 *                        int, unsigned and float over all of it
 *   expf __expf exp2f logf __logf log2f sqrtf rsqrtf fabsf fmaxf fminf fmaf; they are fast and not IEEE to the last bit
 *   atomicAdd(float *, float), atomicAdd(int *, int), atomicAdd(unsigned *, unsigned): return what was there
 *   _Float16             on NVIDIA a struct of 2 bytes: one operation on two of them is rounded to _Float16, mixed with
 *                        float it is float; write `condition ? (float)half : 0.0f`, the two sides alike
 *   int8_t … uint64_t, size_t
 * It is AMD where __AMDGCN__ is defined (__gfx942__ names the arch), NVIDIA where __CUDA_ARCH__ is.
 * What a kernel is called with must have the types of its manifest: float16 is _Float16, bfloat16 is uint16_t.
 * Entry points are `extern "C" __global__`, so that they are found by name. */
#define _Bool bool

#if defined(__CUDA_ARCH__) || defined(__CUDACC_RTC__)

#define WAVETUNE_WARP_SIZE 32
#undef __launch_bounds__
#define __launch_bounds__(threads, ...) __attribute__((launch_bounds(threads)))

typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;

struct wavetune_half {
  unsigned short bits;
  wavetune_half() = default;
  __device__ __forceinline__ wavetune_half(float value) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value)); }
  __device__ __forceinline__ operator float() const {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
  }
  __device__ __forceinline__ wavetune_half &operator+=(float value) { return *this = (float)*this + value; }
  __device__ __forceinline__ wavetune_half &operator-=(float value) { return *this = (float)*this - value; }
  __device__ __forceinline__ wavetune_half &operator*=(float value) { return *this = (float)*this * value; }
  __device__ __forceinline__ wavetune_half &operator/=(float value) { return *this = (float)*this / value; }
};
#define _Float16 wavetune_half

/* Templates, so that they take two halves and nothing that only converts to one. */
template <class T> struct wavetune_if_half {};
template <> struct wavetune_if_half<wavetune_half> {
  typedef wavetune_half type;
};
template <class T> __device__ __forceinline__ typename wavetune_if_half<T>::type operator+(T a, T b) {
  return (float)a + (float)b;
}
template <class T> __device__ __forceinline__ typename wavetune_if_half<T>::type operator-(T a, T b) {
  return (float)a - (float)b;
}
template <class T> __device__ __forceinline__ typename wavetune_if_half<T>::type operator*(T a, T b) {
  return (float)a * (float)b;
}
template <class T> __device__ __forceinline__ typename wavetune_if_half<T>::type operator/(T a, T b) {
  return (float)a / (float)b;
}
template <class T> __device__ __forceinline__ typename wavetune_if_half<T>::type operator-(T a) { return -(float)a; }

__device__ __forceinline__ int wavetune_shfl_xor(int v, int mask) { return __shfl_xor_sync(~0u, v, mask); }
__device__ __forceinline__ unsigned wavetune_shfl_xor(unsigned v, int mask) { return __shfl_xor_sync(~0u, v, mask); }
__device__ __forceinline__ float wavetune_shfl_xor(float v, int mask) { return __shfl_xor_sync(~0u, v, mask); }
__device__ __forceinline__ int wavetune_shfl_down(int v, unsigned lanes) { return __shfl_down_sync(~0u, v, lanes); }
__device__ __forceinline__ unsigned wavetune_shfl_down(unsigned v, unsigned lanes) {
  return __shfl_down_sync(~0u, v, lanes);
}
__device__ __forceinline__ float wavetune_shfl_down(float v, unsigned lanes) { return __shfl_down_sync(~0u, v, lanes); }
__device__ __forceinline__ int wavetune_shfl(int v, int lane) { return __shfl_sync(~0u, v, lane); }
__device__ __forceinline__ unsigned wavetune_shfl(unsigned v, int lane) { return __shfl_sync(~0u, v, lane); }
__device__ __forceinline__ float wavetune_shfl(float v, int lane) { return __shfl_sync(~0u, v, lane); }
#define __shfl_xor wavetune_shfl_xor
#define __shfl_down wavetune_shfl_down
#define __shfl wavetune_shfl

#else /* AMD */

#if defined(__gfx900__) || defined(__gfx902__) || defined(__gfx904__) || defined(__gfx906__) || defined(__gfx908__) || \
    defined(__gfx909__) || defined(__gfx90a__) || defined(__gfx90c__) || defined(__gfx940__) || defined(__gfx941__) || \
    defined(__gfx942__) || defined(__gfx950__)
#define WAVETUNE_WARP_SIZE 64
#else
#define WAVETUNE_WARP_SIZE 32
#endif

#ifdef __HIPCC_RTC__

/* Macros: whether hiprtc declares these names, and as what, depends on its version. */
#define int8_t __INT8_TYPE__
#define uint8_t __UINT8_TYPE__
#define int16_t __INT16_TYPE__
#define uint16_t __UINT16_TYPE__
#define int32_t __INT32_TYPE__
#define uint32_t __UINT32_TYPE__
#define int64_t __INT64_TYPE__
#define uint64_t __UINT64_TYPE__

#else

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __forceinline__ inline __attribute__((always_inline))

typedef __INT8_TYPE__ int8_t;
typedef __UINT8_TYPE__ uint8_t;
typedef __INT16_TYPE__ int16_t;
typedef __UINT16_TYPE__ uint16_t;
typedef __INT32_TYPE__ int32_t;
typedef __UINT32_TYPE__ uint32_t;
typedef __INT64_TYPE__ int64_t;
typedef __UINT64_TYPE__ uint64_t;
typedef __SIZE_TYPE__ size_t;

#define __device_inline__ static __device__ __forceinline__

struct wavetune_index {
  unsigned x, y, z;
};
__device_inline__ wavetune_index wavetune_thread() {
  return {__builtin_amdgcn_workitem_id_x(), __builtin_amdgcn_workitem_id_y(), __builtin_amdgcn_workitem_id_z()};
}
__device_inline__ wavetune_index wavetune_block() {
  return {__builtin_amdgcn_workgroup_id_x(), __builtin_amdgcn_workgroup_id_y(), __builtin_amdgcn_workgroup_id_z()};
}
/* What the runtime passes behind a kernel's own arguments since code object version 5: the extents of the grid in
 * workgroups, then those of a workgroup (LLVM's AMDGPU user guide, hidden_block_count_x and hidden_group_size_x). */
__device_inline__ wavetune_index wavetune_grid_extents() {
  auto hidden = (const __attribute__((address_space(4))) unsigned *)__builtin_amdgcn_implicitarg_ptr();
  return {hidden[0], hidden[1], hidden[2]};
}
__device_inline__ wavetune_index wavetune_block_extents() {
  auto hidden = (const __attribute__((address_space(4))) unsigned short *)__builtin_amdgcn_implicitarg_ptr();
  return {hidden[6], hidden[7], hidden[8]};
}
#define threadIdx (wavetune_thread())
#define blockIdx (wavetune_block())
#define blockDim (wavetune_block_extents())
#define gridDim (wavetune_grid_extents())

__device_inline__ void __syncthreads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

__device_inline__ int wavetune_lane() {
#if WAVETUNE_WARP_SIZE == 64
  return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
#else
  return __builtin_amdgcn_mbcnt_lo(~0u, 0);
#endif
}
__device_inline__ int __shfl(int v, int lane) {
  return __builtin_amdgcn_ds_bpermute((lane & (WAVETUNE_WARP_SIZE - 1)) << 2, v);
}
__device_inline__ unsigned __shfl(unsigned v, int lane) { return (unsigned)__shfl((int)v, lane); }
__device_inline__ float __shfl(float v, int lane) {
  return __builtin_bit_cast(float, __shfl(__builtin_bit_cast(int, v), lane));
}
template <class T> __device_inline__ T __shfl_xor(T v, int mask) { return __shfl(v, wavetune_lane() ^ mask); }
template <class T> __device_inline__ T __shfl_down(T v, unsigned lanes) {
  int lane = wavetune_lane(), from = lane + (int)lanes;
  return __shfl(v, from < WAVETUNE_WARP_SIZE ? from : lane);
}

__device_inline__ float expf(float x) { return __builtin_elementwise_exp(x); }
__device_inline__ float exp2f(float x) { return __builtin_elementwise_exp2(x); }
__device_inline__ float __expf(float x) { return __builtin_amdgcn_exp2f(x * 1.44269504088896340736f); }
__device_inline__ float logf(float x) { return __builtin_elementwise_log(x); }
__device_inline__ float log2f(float x) { return __builtin_elementwise_log2(x); }
__device_inline__ float __logf(float x) { return __builtin_amdgcn_logf(x) * 0.693147180559945309417f; }
__device_inline__ float sqrtf(float x) { return __builtin_elementwise_sqrt(x); }
__device_inline__ float rsqrtf(float x) { return __builtin_amdgcn_rsqf(x); }
__device_inline__ float fabsf(float x) { return __builtin_fabsf(x); }
__device_inline__ float fmaxf(float a, float b) { return __builtin_fmaxf(a, b); }
__device_inline__ float fminf(float a, float b) { return __builtin_fminf(a, b); }
__device_inline__ float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

__device_inline__ float atomicAdd(float *at, float v) {
  return __hip_atomic_fetch_add(at, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
__device_inline__ int atomicAdd(int *at, int v) {
  return __hip_atomic_fetch_add(at, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
__device_inline__ unsigned atomicAdd(unsigned *at, unsigned v) {
  return __hip_atomic_fetch_add(at, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
#undef __device_inline__

#endif /* __HIPCC_RTC__ */

#undef __launch_bounds__
#define WAVETUNE_BOUNDS_1(threads) __attribute__((amdgpu_flat_work_group_size(1, threads)))
#define WAVETUNE_BOUNDS_2(threads, waves)                                                                              \
  __attribute__((amdgpu_flat_work_group_size(1, threads), amdgpu_waves_per_eu(waves)))
#define WAVETUNE_BOUNDS(one, two, chosen, ...) chosen
#define __launch_bounds__(...) WAVETUNE_BOUNDS(__VA_ARGS__, WAVETUNE_BOUNDS_2, WAVETUNE_BOUNDS_1, )(__VA_ARGS__)

#endif
