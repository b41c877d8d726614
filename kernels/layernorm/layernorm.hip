/* y = (x - mean) / sqrt(variance + 1e-5) * gamma + beta on a GPU, THREADS threads a row and ROWS rows a workgroup.
 *
 * Loads of WIDTH floats (VECTOR, or 1 where rows would not be aligned). STATISTICS in two passes (the mean, then the
 * squares of what is left) or in one (sums and squares of the distance to the row's first element). KEEP: rows of
 * COLUMNS stay in registers between the passes, if they fit into 32 a thread, or are read again. WAVES_PER_EU (AMD)
 * tells the compiler for how many wavefronts to leave registers. */
#define two_pass 1
#define one_pass 2
#define EPSILON 1e-5f

#ifdef __AMDGCN__
template <int N> using floats = float __attribute__((ext_vector_type(N)));
#else
template <int N> struct alignas(4 * N) floats {
  float at[N];
  __device__ float &operator[](int i) { return at[i]; }
};
#endif

typedef floats<WIDTH> vector;

#define WAVES (THREADS / WAVETUNE_WARP_SIZE)
#define STEP (THREADS * WIDTH)
#define TILES_ALL ((COLUMNS + STEP - 1) / STEP)
#define KEPT (KEEP && TILES_ALL * WIDTH <= 32)
#define TILES (KEPT ? TILES_ALL : 1)

struct sums {
  float first, second;
};

/* Adds up over the threads of a row; every one of them gets the result. All threads of a workgroup call it together,
 * with `turn` 0 and 1 alternately, so that one barrier is enough. */
static __device__ inline sums row_sums(sums mine, int turn) {
#pragma unroll
  for (int lane_mask = WAVETUNE_WARP_SIZE / 2; lane_mask; lane_mask /= 2) {
    mine.first += __shfl_xor(mine.first, lane_mask);
    mine.second += __shfl_xor(mine.second, lane_mask);
  }
  if (WAVES == 1)
    return mine;
  __shared__ sums slots[2][ROWS][WAVES];
  if (threadIdx.x % WAVETUNE_WARP_SIZE == 0)
    slots[turn][threadIdx.y][threadIdx.x / WAVETUNE_WARP_SIZE] = mine;
  __syncthreads();
  sums total = {0, 0};
#pragma unroll
  for (int wave = 0; wave < WAVES; wave++) {
    total.first += slots[turn][threadIdx.y][wave].first;
    total.second += slots[turn][threadIdx.y][wave].second;
  }
  return total;
}

/* The sums of x - shift and of its square over a thread's part of the row. */
static __device__ inline sums part_sums(vector (&kept)[TILES], const float *x, float shift, int64_t end) {
  const int64_t first = (int64_t)threadIdx.x * WIDTH;
  sums mine = {0, 0};
#if KEPT
#pragma unroll
  for (int t = 0; t < TILES; t++)
    if (t * STEP + first < end)
#pragma unroll
      for (int l = 0; l < WIDTH; l++) {
        float distance = kept[t][l] - shift;
        mine.first += distance, mine.second += distance * distance;
      }
#else
#pragma unroll 4
  for (int64_t i = first; i < end; i += STEP) {
    vector v = *(const vector *)(x + i);
#pragma unroll
    for (int l = 0; l < WIDTH; l++) {
      float distance = v[l] - shift;
      mine.first += distance, mine.second += distance * distance;
    }
  }
#endif
  return mine;
}

/* `i` is where the vector of x lies in the row. */
static __device__ inline void store(float *y, vector v, const float *gamma, const float *beta, int64_t i, float mean,
                                    float scale) {
  vector g = *(const vector *)(gamma + i), b = *(const vector *)(beta + i);
#pragma unroll
  for (int l = 0; l < WIDTH; l++)
    v[l] = (v[l] - mean) * scale * g[l] + b[l];
  *(vector *)(y + i) = v;
}

extern "C" __global__ __launch_bounds__(THREADS *ROWS, WAVES_PER_EU) void layernorm(float *__restrict__ y,
                                                                                    const float *__restrict__ x,
                                                                                    const float *__restrict__ gamma,
                                                                                    const float *__restrict__ beta,
                                                                                    int64_t rows, int64_t columns) {
  const int64_t row = (int64_t)blockIdx.x * ROWS + threadIdx.y, first = (int64_t)threadIdx.x * WIDTH;
  /* A group of threads beyond the last row adds up nothing. */
  const int64_t end = row < rows ? columns : 0;
  x += row * columns, y += row * columns;
  vector kept[TILES];
#if KEPT
#pragma unroll
  for (int t = 0; t < TILES; t++)
    if (t * STEP + first < end)
      kept[t] = *(const vector *)(x + t * STEP + first);
#endif
  const float many = (float)columns;
#if STATISTICS == one_pass
  const float shift = end ? x[0] : 0;
  const sums total = row_sums(part_sums(kept, x, shift, end), 0);
  const float distance = total.first / many, mean = shift + distance;
  const float variance = fmaxf(total.second / many - distance * distance, 0);
#else
  const float mean = row_sums(part_sums(kept, x, 0, end), 0).first / many;
  const float variance = row_sums(part_sums(kept, x, mean, end), 1).second / many;
#endif
  const float scale = 1 / sqrtf(variance + EPSILON);
#if KEPT
#pragma unroll
  for (int t = 0; t < TILES; t++)
    if (t * STEP + first < end)
      store(y, kept[t], gamma, beta, t * STEP + first, mean, scale);
#else
#pragma unroll 4
  for (int64_t i = first; i < end; i += STEP)
    store(y, *(const vector *)(x + i), gamma, beta, i, mean, scale);
#endif
}
