/* Softmax of each row on a GPU with the maximum and the sum found in one pass (Milakov, Gimelshein, "Online normalizer
 * calculation for softmax", 2018), THREADS threads a row and ROWS rows a workgroup.
 *
 * A thread has a maximum and a sum of its own, which it scales down once every UNROLL loads of WIDTH floats (VECTOR, or
 * 1 where rows would not be aligned), when the maximum rose; those of the threads are joined at the end. The second
 * pass computes the exponentials. FAST_EXP and WAVES_PER_EU as in row.h. */
#include "row.h"

typedef floats<WIDTH> vector;

#define STEP (THREADS * WIDTH)

/* Takes in `n` loads of which the last begins before `columns`. */
template <int n> static __device__ inline void take(normaliser &row, const float *x) {
  vector v[n];
  float maximum = row.maximum;
#pragma unroll
  for (int u = 0; u < n; u++)
    v[u] = *(const vector *)(x + u * STEP);
#pragma unroll
  for (int u = 0; u < n; u++)
#pragma unroll
    for (int l = 0; l < WIDTH; l++)
      maximum = fmaxf(maximum, v[u][l]);
  row.sum *= exponential(row.maximum - maximum);
  row.maximum = maximum;
#pragma unroll
  for (int u = 0; u < n; u++)
#pragma unroll
    for (int l = 0; l < WIDTH; l++)
      row.sum += exponential(v[u][l] - maximum);
}

KERNEL softmax_online(float *__restrict__ y, const float *__restrict__ x, int64_t rows, int64_t columns) {
  const int64_t row = (int64_t)blockIdx.x * ROWS + threadIdx.y;
  /* A group beyond the last row reduces an empty one. */
  const int64_t end = row < rows ? columns : 0;
  x += row * columns, y += row * columns;
  normaliser mine = {LOWEST, 0};
  int64_t i = (int64_t)threadIdx.x * WIDTH;
  for (; i + (UNROLL - 1) * STEP < end; i += UNROLL * STEP)
    take<UNROLL>(mine, x + i);
  for (; i < end; i += STEP)
    take<1>(mine, x + i);
  const normaliser whole = row_normaliser(mine, 0);
  const float scale = 1 / whole.sum;
#pragma unroll UNROLL
  for (i = (int64_t)threadIdx.x * WIDTH; i < end; i += STEP) {
    vector v = *(const vector *)(x + i);
#pragma unroll
    for (int l = 0; l < WIDTH; l++)
      v[l] = exponential(v[l] - whole.maximum) * scale;
    *(vector *)(y + i) = v;
  }
}
