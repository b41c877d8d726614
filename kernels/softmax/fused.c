/* Softmax of each row while it lies in a tile of the first-level cache: memory is read once and
 * written once.
 *
 * The exponentials of a row of up to TILE columns are kept in a local tile; of a longer row, the
 * rest is kept in y. The inner loops hold UNROLL vectors of LANES; exponentials of DEGREE; the
 * result is stored past the caches when NONTEMPORAL and aligned. */
#include "exponential.h"
#if NONTEMPORAL && defined(__AVX__)
#include <immintrin.h>
#endif

#define STEP (LANES * UNROLL)

static inline void store(float *to, vector value) {
#if NONTEMPORAL && defined(__AVX__) && LANES == 8
  if ((uintptr_t)to % sizeof(vector) == 0)
    _mm256_stream_ps(to, (__m256)value);
  else
    *(vector *)to = value;
#elif NONTEMPORAL && defined(__AVX__) && LANES == 4
  if ((uintptr_t)to % sizeof(vector) == 0)
    _mm_stream_ps(to, (__m128)value);
  else
    *(vector *)to = value;
#else
  *(vector *)to = value;
#endif
}

static float row_max(const float *x, int64_t columns) {
  vector maxima[UNROLL];
  for (int u = 0; u < UNROLL; u++)
    maxima[u] = vector_of(x[0]);
  int64_t i = 0;
  for (; i + STEP <= columns; i += STEP)
    for (int u = 0; u < UNROLL; u++)
      maxima[u] = vector_max(maxima[u], *(const vector *)(x + i + u * LANES));
  for (int u = 1; u < UNROLL; u++)
    maxima[0] = vector_max(maxima[0], maxima[u]);
  float maximum = lanes_max(maxima[0]);
  for (; i < columns; i++)
    maximum = float_max(maximum, x[i]);
  return maximum;
}

/* Writes exp(x - maximum) to `to` and returns the sum. */
static float row_exp(float *restrict to, const float *restrict x, float maximum, int64_t columns) {
  vector sums[UNROLL];
  float sum = 0;
  for (int u = 0; u < UNROLL; u++)
    sums[u] = vector_of(0);
  int64_t i = 0;
  for (; i + STEP <= columns; i += STEP)
    for (int u = 0; u < UNROLL; u++) {
      vector e = vector_exp(*(const vector *)(x + i + u * LANES) - maximum);
      *(vector *)(to + i + u * LANES) = e;
      sums[u] += e;
    }
  for (; i < columns; i++)
    sum += to[i] = LANE(vector_exp(vector_of(x[i] - maximum)), 0);
  for (int u = 0; u < UNROLL; u++)
    sum += lanes_sum(sums[u]);
  return sum;
}

/* y = from * scale; `from` may be y itself. */
static void row_scale(float *y, const float *from, float scale, int64_t columns) {
  int64_t i = 0;
  for (; i + STEP <= columns; i += STEP)
    for (int u = 0; u < UNROLL; u++)
      store(y + i + u * LANES, *(const vector *)(from + i + u * LANES) * scale);
  for (; i < columns; i++)
    y[i] = from[i] * scale;
}

void softmax_fused(float *restrict y, const float *restrict x, int64_t rows, int64_t columns) {
  float tile[TILE] __attribute__((aligned(64)));
  const int64_t in_tile = columns < TILE ? columns : TILE;
  for (int64_t row = 0; row < rows; row++, x += columns, y += columns) {
    float maximum = row_max(x, columns);
    float sum = row_exp(tile, x, maximum, in_tile);
    sum += row_exp(y + in_tile, x + in_tile, maximum, columns - in_tile);
    row_scale(y, tile, 1 / sum, in_tile);
    row_scale(y + in_tile, y + in_tile, 1 / sum, columns - in_tile);
  }
#if NONTEMPORAL && defined(__AVX__)
  _mm_sfence();
#endif
}
