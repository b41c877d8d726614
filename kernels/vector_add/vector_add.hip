/* sum = a + b on a GPU: what there is to do is to keep enough loads in flight.
 *
 * A workgroup of BLOCK threads adds tiles of BLOCK * VECTOR * UNROLL floats: UNROLL loads of VECTOR floats (4 make the
 * widest load there is, 16 bytes) are given before the first is waited for. With PROGRAMS, that many workgroups for
 * each compute unit walk over the array; without, each has one tile. NONTEMPORAL (AMD) goes past the caches.
 * WAVES_PER_EU (AMD) tells the compiler for how many wavefronts to leave registers. */
#ifdef __AMDGCN__
template <int N> using floats = float __attribute__((ext_vector_type(N)));
#else
template <int N> struct alignas(4 * N) floats {
  float at[N];
  __device__ float &operator[](int i) { return at[i]; }
};
#endif

#define TILE (BLOCK * VECTOR * UNROLL)

typedef floats<VECTOR> vector;

static __device__ inline vector load(const float *from) {
#if NONTEMPORAL
  return __builtin_nontemporal_load((const vector *)from);
#else
  return *(const vector *)from;
#endif
}

static __device__ inline void store(float *to, vector value) {
#if NONTEMPORAL
  __builtin_nontemporal_store(value, (vector *)to);
#else
  *(vector *)to = value;
#endif
}

/* `first` is a multiple of TILE, so that vectors are aligned. */
static __device__ inline void tile_add(float *__restrict__ sum, const float *__restrict__ a,
                                       const float *__restrict__ b, int64_t first, int64_t n) {
  const int lane = (int)threadIdx.x * VECTOR;
  sum += first, a += first, b += first;
  if (first + TILE > n) {
#pragma unroll 1
    for (int i = threadIdx.x; i < (int)(n - first); i += BLOCK)
      sum[i] = a[i] + b[i];
    return;
  }
  vector left[UNROLL], right[UNROLL];
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    left[u] = load(a + u * BLOCK * VECTOR + lane);
    right[u] = load(b + u * BLOCK * VECTOR + lane);
  }
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    vector total;
#pragma unroll
    for (int i = 0; i < VECTOR; i++)
      total[i] = left[u][i] + right[u][i];
    store(sum + u * BLOCK * VECTOR + lane, total);
  }
}

extern "C" __global__ __launch_bounds__(BLOCK, WAVES_PER_EU) void vector_add(float *__restrict__ sum,
                                                                             const float *__restrict__ a,
                                                                             const float *__restrict__ b, int64_t n) {
#if PROGRAMS
  for (int64_t first = (int64_t)blockIdx.x * TILE; first < n; first += (int64_t)gridDim.x * TILE)
    tile_add(sum, a, b, first, n);
#else
  tile_add(sum, a, b, (int64_t)blockIdx.x * TILE, n);
#endif
}
