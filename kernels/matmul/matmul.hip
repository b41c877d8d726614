/* c = a * b of row-major matrices on a GPU, in tiles that go through LDS, with sums in float.
 *
 * A workgroup of WAVES_M x WAVES_N waves (of 64 threads, whatever the hardware's are) makes BLOCK_M x BLOCK_N of c. For
 * each BLOCK_K of k it copies a tile of a and one of b to LDS, 16 bytes a load; the next tiles are loaded into registers
 * while these are multiplied, and go to other LDS with STAGES 2. LDS_PAD elements behind each row of a keep its rows in
 * different banks. GROUP_M rows of tiles are walked together, so that tiles of b are still in the L2 cache when they
 * are wanted again. MATRIX: `mfma` by the matrix cores (INSTRUCTION rows and columns at once: 16 or 32), or `fma`.
 * WAVES_PER_EU (AMD) tells the compiler for how many wavefronts to leave registers.
 *
 * By the key: ELEMENT_BYTES 4 (float) or 2 (_Float16), VECTOR_A and VECTOR_B how many elements at once may be loaded of
 * a's and b's rows, EDGES whether any tile reaches beyond a matrix.
 *
 * A wave's lanes share their columns of c so that each has up to 4 neighbours: what it reads of b and writes to c is one
 * wide access. With `mfma` the columns of an instruction are therefore not neighbours but every 4th; and the k that one
 * lane passes to an instruction are those which it got by one wide read of a. Both are permutations that the product
 * does not see. */
#define fma 1
#define mfma 2

#if ELEMENT_BYTES == 2
typedef _Float16 element;
#else
typedef float element;
#endif

#ifdef __AMDGCN__
template <typename T, int N> using pack = T __attribute__((ext_vector_type(N)));
#else
template <typename T, int N> struct alignas(sizeof(T) * N) pack {
  T at[N];
  __device__ T &operator[](int i) { return at[i]; }
};
#endif

#define WIDE (16 / ELEMENT_BYTES)
typedef pack<element, WIDE> wide;

#define THREADS (64 * WAVES_M * WAVES_N)
#define WAVE_M (BLOCK_M / WAVES_M)
#define WAVE_N (BLOCK_N / WAVES_N)
#define A_ROW (BLOCK_K + LDS_PAD)
#define A_TILE (BLOCK_M * A_ROW)
#define B_TILE (BLOCK_K * BLOCK_N)
#define A_WIDES (BLOCK_M * BLOCK_K / WIDE)
#define B_WIDES (B_TILE / WIDE)
#define LOADS(wides) (((wides) + THREADS - 1) / THREADS)

/* WIDE elements of a row-major matrix, of which VECTOR may be loaded at once; zeros beyond its edges. */
template <int VECTOR>
static __device__ inline wide fetch(const element *from, int64_t row, int64_t column, int64_t rows, int64_t columns) {
#if EDGES
  wide v;
#pragma unroll
  for (int i = 0; i < WIDE; i++)
    v[i] = (element)0.0f;
  if (row >= rows)
    return v;
#pragma unroll
  for (int i = 0; i < WIDE; i += VECTOR)
    if (column + i < columns) {
      pack<element, VECTOR> part = *(const pack<element, VECTOR> *)(from + row * columns + column + i);
#pragma unroll
      for (int l = 0; l < VECTOR; l++)
        v[i + l] = part[l];
    }
  return v;
#else
  (void)rows;
  return *(const wide *)(from + row * columns + column);
#endif
}

/* N neighbours of a row of c. */
template <int N>
static __device__ inline void store(element *c, int64_t row, int64_t column, int64_t m, int64_t n, const float *sums) {
#if EDGES
  if (row >= m)
    return;
#pragma unroll
  for (int i = 0; i < N; i++)
    if (column + i < n)
      c[row * n + column + i] = (element)sums[i];
#else
  (void)m;
  pack<element, N> v;
#pragma unroll
  for (int i = 0; i < N; i++)
    v[i] = (element)sums[i];
  *(pack<element, N> *)(c + row * n + column) = v;
#endif
}

#if MATRIX == mfma

#define ROW_TILES (WAVE_M / INSTRUCTION)
#define COLUMN_TILES (WAVE_N / INSTRUCTION)
#define NEIGHBOURS (COLUMN_TILES < 4 ? COLUMN_TILES : 4)
#define GROUPS (64 / INSTRUCTION)                     /* of lanes: each passes other k to an instruction */
#define SUMS (INSTRUCTION * INSTRUCTION / 64)         /* of an instruction that one lane holds */
#define DEPTH (ELEMENT_BYTES == 2 ? 4 : 1)            /* the k that one lane passes */
#define COLUMN_OF(q) ((q) * NEIGHBOURS * INSTRUCTION) /* of a wave's part: where a run of neighbours begins */

typedef float accumulator __attribute__((ext_vector_type(SUMS)));
typedef pack<_Float16, 4> half4;

struct wave_sums {
  accumulator at[ROW_TILES][COLUMN_TILES];
};

static __device__ inline accumulator multiply(const float *a, const float *b, accumulator sums) {
#if INSTRUCTION == 32
  return __builtin_amdgcn_mfma_f32_32x32x2f32(a[0], b[0], sums, 0, 0, 0);
#else
  return __builtin_amdgcn_mfma_f32_16x16x4f32(a[0], b[0], sums, 0, 0, 0);
#endif
}

static __device__ inline accumulator multiply(const _Float16 *a, const _Float16 *b, accumulator sums) {
  half4 left = {a[0], a[1], a[2], a[3]}, right = {b[0], b[1], b[2], b[3]};
#if INSTRUCTION == 32
  return __builtin_amdgcn_mfma_f32_32x32x8f16(left, right, sums, 0, 0, 0);
#else
  return __builtin_amdgcn_mfma_f32_16x16x16f16(left, right, sums, 0, 0, 0);
#endif
}

/* `a` and `b` are the wave's parts of the tiles. */
static __device__ inline void tile_multiply(wave_sums &sums, const element *a, const element *b) {
  const int lane = threadIdx.x % 64, place = lane % INSTRUCTION, group = lane / INSTRUCTION;
#pragma unroll
  for (int k = 0; k < BLOCK_K; k += WIDE * GROUPS) {
    wide left[ROW_TILES];
#pragma unroll
    for (int i = 0; i < ROW_TILES; i++)
      left[i] = *(const wide *)(a + (i * INSTRUCTION + place) * A_ROW + k + group * WIDE);
#pragma unroll
    for (int d = 0; d < WIDE; d += DEPTH) {
      element right[COLUMN_TILES][DEPTH];
#pragma unroll
      for (int q = 0; q < COLUMN_TILES / NEIGHBOURS; q++)
#pragma unroll
        for (int t = 0; t < DEPTH; t++) {
          const element *row = b + (k + group * WIDE + d + t) * BLOCK_N;
          auto v = *(const pack<element, NEIGHBOURS> *)(row + COLUMN_OF(q) + place * NEIGHBOURS);
#pragma unroll
          for (int s = 0; s < NEIGHBOURS; s++)
            right[q * NEIGHBOURS + s][t] = v[s];
        }
#pragma unroll
      for (int i = 0; i < ROW_TILES; i++) {
        element part[DEPTH];
#pragma unroll
        for (int t = 0; t < DEPTH; t++)
          part[t] = left[i][d + t];
#pragma unroll
        for (int j = 0; j < COLUMN_TILES; j++)
          sums.at[i][j] = multiply(part, right[j], sums.at[i][j]);
      }
    }
  }
}

/* `row` and `column` are where the wave's part of c begins. */
static __device__ inline void sums_store(wave_sums &sums, element *c, int64_t row, int64_t column, int64_t m,
                                         int64_t n) {
  const int lane = threadIdx.x % 64, place = lane % INSTRUCTION, group = lane / INSTRUCTION;
#pragma unroll
  for (int i = 0; i < ROW_TILES; i++)
#pragma unroll
    for (int q = 0; q < COLUMN_TILES / NEIGHBOURS; q++)
#pragma unroll
      for (int e = 0; e < SUMS; e++) {
        float run[NEIGHBOURS];
#pragma unroll
        for (int s = 0; s < NEIGHBOURS; s++)
          run[s] = sums.at[i][q * NEIGHBOURS + s][e];
        store<NEIGHBOURS>(c, row + i * INSTRUCTION + e / 4 * 8 + group * 4 + e % 4,
                          column + COLUMN_OF(q) + place * NEIGHBOURS, m, n, run);
      }
}

#else /* fma: a wave's lanes lie in 8 rows and 8 columns, each with 4 neighbours in every 32 columns */

#define LANE_M (WAVE_M / 8)
#define LANE_N (WAVE_N / 32)

struct wave_sums {
  float at[LANE_M][LANE_N][4];
};

static __device__ inline void tile_multiply(wave_sums &sums, const element *a, const element *b) {
  const int lane_row = threadIdx.x % 64 / 8, lane_column = threadIdx.x % 8 * 4;
#pragma unroll
  for (int k = 0; k < BLOCK_K; k += WIDE) {
    wide left[LANE_M];
#pragma unroll
    for (int i = 0; i < LANE_M; i++)
      left[i] = *(const wide *)(a + (i * 8 + lane_row) * A_ROW + k);
#pragma unroll
    for (int t = 0; t < WIDE; t++) {
      pack<element, 4> right[LANE_N];
#pragma unroll
      for (int j = 0; j < LANE_N; j++)
        right[j] = *(const pack<element, 4> *)(b + (k + t) * BLOCK_N + j * 32 + lane_column);
#pragma unroll
      for (int i = 0; i < LANE_M; i++)
#pragma unroll
        for (int j = 0; j < LANE_N; j++)
#pragma unroll
          for (int s = 0; s < 4; s++)
            sums.at[i][j][s] = fmaf((float)left[i][t], (float)right[j][s], sums.at[i][j][s]);
    }
  }
}

static __device__ inline void sums_store(wave_sums &sums, element *c, int64_t row, int64_t column, int64_t m,
                                         int64_t n) {
  const int lane_row = threadIdx.x % 64 / 8, lane_column = threadIdx.x % 8 * 4;
#pragma unroll
  for (int i = 0; i < LANE_M; i++)
#pragma unroll
    for (int j = 0; j < LANE_N; j++)
      store<4>(c, row + i * 8 + lane_row, column + j * 32 + lane_column, m, n, sums.at[i][j]);
}

#endif

/* What a thread has on the way from memory to LDS. */
struct wides {
  wide a[LOADS(A_WIDES)], b[LOADS(B_WIDES)];
};

static __device__ inline void wides_load(wides &next, const element *a, const element *b, int64_t row, int64_t column,
                                         int64_t depth, int64_t m, int64_t n, int64_t k) {
#pragma unroll
  for (int u = 0; u < LOADS(A_WIDES); u++) {
    int i = u * THREADS + threadIdx.x;
    if (A_WIDES % THREADS == 0 || i < A_WIDES)
      next.a[u] = fetch<VECTOR_A>(a, row + i / (BLOCK_K / WIDE), depth + i % (BLOCK_K / WIDE) * WIDE, m, k);
  }
#pragma unroll
  for (int u = 0; u < LOADS(B_WIDES); u++) {
    int i = u * THREADS + threadIdx.x;
    if (B_WIDES % THREADS == 0 || i < B_WIDES)
      next.b[u] = fetch<VECTOR_B>(b, depth + i / (BLOCK_N / WIDE), column + i % (BLOCK_N / WIDE) * WIDE, k, n);
  }
}

static __device__ inline void wides_store(wides &next, element *a, element *b) {
#pragma unroll
  for (int u = 0; u < LOADS(A_WIDES); u++) {
    int i = u * THREADS + threadIdx.x;
    if (A_WIDES % THREADS == 0 || i < A_WIDES)
      *(wide *)(a + i / (BLOCK_K / WIDE) * A_ROW + i % (BLOCK_K / WIDE) * WIDE) = next.a[u];
  }
#pragma unroll
  for (int u = 0; u < LOADS(B_WIDES); u++) {
    int i = u * THREADS + threadIdx.x;
    if (B_WIDES % THREADS == 0 || i < B_WIDES)
      *(wide *)(b + i * WIDE) = next.b[u];
  }
}

extern "C" __global__ __launch_bounds__(THREADS, WAVES_PER_EU) void matmul(element *__restrict__ c,
                                                                           const element *__restrict__ a,
                                                                           const element *__restrict__ b, int64_t m,
                                                                           int64_t n, int64_t k) {
  alignas(16) __shared__ element a_tiles[STAGES][A_TILE], b_tiles[STAGES][B_TILE];
  const unsigned block_rows = (m + BLOCK_M - 1) / BLOCK_M, block_columns = (n + BLOCK_N - 1) / BLOCK_N;
  const unsigned in_group = blockIdx.x % (GROUP_M * block_columns);
  const unsigned first_row = blockIdx.x / (GROUP_M * block_columns) * GROUP_M;
  const unsigned group_rows = block_rows - first_row < GROUP_M ? block_rows - first_row : GROUP_M;
  const int64_t row = (int64_t)(first_row + in_group % group_rows) * BLOCK_M;
  const int64_t column = (int64_t)(in_group / group_rows) * BLOCK_N;
  const int wave = threadIdx.x / 64;
  const int wave_row = wave / WAVES_N * WAVE_M, wave_column = wave % WAVES_N * WAVE_N;

  wides next;
  wave_sums sums = {};
  wides_load(next, a, b, row, column, 0, m, n, k);
  wides_store(next, a_tiles[0], b_tiles[0]);
  __syncthreads();
  int stage = 0;
#pragma unroll 1
  for (int64_t depth = BLOCK_K; depth < k + BLOCK_K; depth += BLOCK_K) {
    if (depth < k)
      wides_load(next, a, b, row, column, depth, m, n, k);
    tile_multiply(sums, a_tiles[stage] + wave_row * A_ROW, b_tiles[stage] + wave_column);
    if (depth >= k)
      break;
    if (STAGES == 1)
      __syncthreads();
    stage = STAGES - 1 - stage;
    wides_store(next, a_tiles[stage], b_tiles[stage]);
    __syncthreads();
  }
  sums_store(sums, c, row + wave_row, column + wave_column, m, n);
}
