/* Softmax of each row on a GPU while it lies in registers or in LDS: memory is read once and written once.
 *
 * THREADS threads a row and ROWS rows a workgroup; with PROGRAMS, that many workgroups for each compute unit walk over
 * the rows. TILES loads of WIDTH floats (VECTOR, or 1 where rows would not be aligned) a thread stay in `registers` or in
 * `lds` (KEEP); what a longer row has beyond them is read again in each pass. It is compiled for rows of COLUMNS.
 * FAST_EXP and WAVES_PER_EU as in row.h. */
#define registers 1
#define lds 2

#include "row.h"

typedef floats<WIDTH> vector;

#define STEP (THREADS * WIDTH)
#define TILES_ALL ((COLUMNS + STEP - 1) / STEP)
#if KEEP == lds
#define TILES_MOST (12288 / ROWS / STEP) /* 48 KiB a workgroup; the manifest's shared_bytes says the same */
#else
#define TILES_MOST (32 / WIDTH) /* 32 registers a thread */
#endif
#define TILES (TILES_ALL < TILES_MOST ? TILES_ALL : TILES_MOST)

#if KEEP == lds
extern __shared__ vector row_tiles[];
#define TILE_OF(t) row_tiles[(threadIdx.y * TILES + (t)) * THREADS + threadIdx.x]
#else
#define TILE_OF(t) tiles[t]
#endif

KERNEL softmax_fused(float *__restrict__ y, const float *__restrict__ x, int64_t rows, int64_t columns) {
#if KEEP == registers
  vector tiles[TILES];
#endif
  const int64_t first = (int64_t)threadIdx.x * WIDTH;
#if PROGRAMS
  for (int64_t group = blockIdx.x; group * ROWS < rows; group += gridDim.x) {
#else
  {
    const int64_t group = blockIdx.x;
#endif
    const int64_t row = group * ROWS + threadIdx.y;
    /* A group of threads beyond the last row reduces an empty one. */
    const int64_t end = row < rows ? columns : 0;
    const int64_t rest = TILES < TILES_ALL ? TILES * STEP + first : end; /* what is not kept begins here */
    const float *from = x + row * columns;
    float *to = y + row * columns;
    float maximum = LOWEST, sum = 0;
#pragma unroll
    for (int t = 0; t < TILES; t++) {
      vector v;
#pragma unroll
      for (int l = 0; l < WIDTH; l++)
        v[l] = LOWEST;
      if (t * STEP + first < end)
        v = *(const vector *)(from + t * STEP + first);
#pragma unroll
      for (int l = 0; l < WIDTH; l++)
        maximum = fmaxf(maximum, v[l]);
      TILE_OF(t) = v;
    }
    for (int64_t i = rest; i < end; i += STEP) {
      vector v = *(const vector *)(from + i);
#pragma unroll
      for (int l = 0; l < WIDTH; l++)
        maximum = fmaxf(maximum, v[l]);
    }
    maximum = row_max(maximum, 0);
#pragma unroll
    for (int t = 0; t < TILES; t++) {
      vector v = TILE_OF(t);
#pragma unroll
      for (int l = 0; l < WIDTH; l++)
        sum += v[l] = exponential(v[l] - maximum);
      TILE_OF(t) = v;
    }
    for (int64_t i = rest; i < end; i += STEP) {
      vector v = *(const vector *)(from + i);
#pragma unroll
      for (int l = 0; l < WIDTH; l++)
        sum += exponential(v[l] - maximum);
    }
    const float scale = 1 / row_sum(sum, 1);
#pragma unroll
    for (int t = 0; t < TILES; t++) {
      vector v = TILE_OF(t);
#pragma unroll
      for (int l = 0; l < WIDTH; l++)
        v[l] *= scale;
      if (t * STEP + first < end)
        *(vector *)(to + t * STEP + first) = v;
    }
    for (int64_t i = rest; i < end; i += STEP) {
      vector v = *(const vector *)(from + i);
#pragma unroll
      for (int l = 0; l < WIDTH; l++)
        v[l] = exponential(v[l] - maximum) * scale;
      *(vector *)(to + i) = v;
    }
  }
}
