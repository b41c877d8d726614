/* Softmax of each row on a GPU in three passes over memory, a workgroup of THREADS a row: the maximum, the exponentials
 * and their sum, the division.
 *
 * Loads of WIDTH floats (VECTOR, or 1 where rows would not be aligned), UNROLL of them in a step; the exponentials are
 * KEEPt in y or computed again; FAST_EXP and WAVES_PER_EU as in row.h. */
#define ROWS 1
#include "row.h"

typedef floats<WIDTH> vector;

#define STEP (THREADS * WIDTH)

KERNEL softmax_naive(float *__restrict__ y, const float *__restrict__ x, int64_t rows, int64_t columns) {
  (void)rows;
  const int64_t first = (int64_t)threadIdx.x * WIDTH;
  x += blockIdx.x * columns, y += blockIdx.x * columns;
  float maximum = LOWEST, sum = 0;
#pragma unroll UNROLL
  for (int64_t i = first; i < columns; i += STEP) {
    vector v = *(const vector *)(x + i);
#pragma unroll
    for (int l = 0; l < WIDTH; l++)
      maximum = fmaxf(maximum, v[l]);
  }
  maximum = row_max(maximum, 0);
#pragma unroll UNROLL
  for (int64_t i = first; i < columns; i += STEP) {
    vector v = *(const vector *)(x + i);
#pragma unroll
    for (int l = 0; l < WIDTH; l++)
      sum += v[l] = exponential(v[l] - maximum);
    if (KEEP)
      *(vector *)(y + i) = v;
  }
  const float scale = 1 / row_sum(sum, 1);
#pragma unroll UNROLL
  for (int64_t i = first; i < columns; i += STEP) {
    vector v = KEEP ? *(const vector *)(y + i) : *(const vector *)(x + i);
#pragma unroll
    for (int l = 0; l < WIDTH; l++)
      v[l] = (KEEP ? v[l] : exponential(v[l] - maximum)) * scale;
    *(vector *)(y + i) = v;
  }
}
