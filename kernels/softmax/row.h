/* What the GPU versions share: vectors of floats, and reductions over the THREADS threads that have
 * a row together.
 *
 * A workgroup holds ROWS such groups, one a row of it: thread (x, y) is number x of group y. A
 * group's wavefronts are reduced by shuffles and, where there are several, by way of LDS: two slots
 * of it, used in turns, so that one barrier a reduction is enough. All threads of a workgroup call
 * a reduction together, also those whose group has no row.
 *
 * FAST_EXP: exponentials as the hardware has them, without care for the last bits. WAVES_PER_EU
 * (AMD) tells the compiler for how many wavefronts to leave registers. */
#ifdef __AMDGCN__
template <int N> using floats = float __attribute__((ext_vector_type(N)));
#else
template <int N> struct alignas(4 * N) floats {
  float at[N];
  __device__ float &operator[](int i) { return at[i]; }
};
#endif
#define KERNEL extern "C" __global__ __launch_bounds__(THREADS *ROWS, WAVES_PER_EU) void

#define WAVES (THREADS / WAVETUNE_WARP_SIZE)
#define LOWEST (-3.402823466e38f)

static __device__ inline float exponential(float x) {
#if FAST_EXP
  return __expf(x);
#else
  return expf(x);
#endif
}

/* A maximum, and the sum of exponentials relative to it. */
struct normaliser {
  float maximum, sum;
};

struct of_max {
  static __device__ float combine(float a, float b) { return fmaxf(a, b); }
  static __device__ float shuffle(float a, int lane_mask) { return __shfl_xor(a, lane_mask); }
};

struct of_sum {
  static __device__ float combine(float a, float b) { return a + b; }
  static __device__ float shuffle(float a, int lane_mask) { return __shfl_xor(a, lane_mask); }
};

struct of_normaliser {
  static __device__ normaliser combine(normaliser a, normaliser b) {
    float maximum = fmaxf(a.maximum, b.maximum);
    return {maximum,
            a.sum * exponential(a.maximum - maximum) + b.sum * exponential(b.maximum - maximum)};
  }
  static __device__ normaliser shuffle(normaliser a, int lane_mask) {
    return {__shfl_xor(a.maximum, lane_mask), __shfl_xor(a.sum, lane_mask)};
  }
};

/* Every thread of the group gets the result. `turn` alternates between 0 and 1 from call to
 * call. */
template <typename operation, typename value>
static __device__ inline value row_reduce(value mine, int turn) {
#pragma unroll
  for (int lane_mask = WAVETUNE_WARP_SIZE / 2; lane_mask; lane_mask /= 2)
    mine = operation::combine(mine, operation::shuffle(mine, lane_mask));
  if (WAVES == 1)
    return mine;
  __shared__ value slots[2][ROWS][WAVES];
  if (threadIdx.x % WAVETUNE_WARP_SIZE == 0)
    slots[turn][threadIdx.y][threadIdx.x / WAVETUNE_WARP_SIZE] = mine;
  __syncthreads();
  value total = slots[turn][threadIdx.y][0];
#pragma unroll
  for (int wave = 1; wave < WAVES; wave++)
    total = operation::combine(total, slots[turn][threadIdx.y][wave]);
  return total;
}

static __device__ inline float row_max(float mine, int turn) {
  return row_reduce<of_max>(mine, turn);
}
static __device__ inline float row_sum(float mine, int turn) {
  return row_reduce<of_sum>(mine, turn);
}
static __device__ inline normaliser row_normaliser(normaliser mine, int turn) {
  return row_reduce<of_normaliser>(mine, turn);
}
