/* Softmax of each row with the maximum and the sum found in one pass (Milakov, Gimelshein, "Online
 * normalizer calculation for softmax", 2018): when the maximum rises, the sum so far is scaled
 * down.
 *
 * LANES maxima and sums side by side, scaled once every BLOCK vectors; exponentials of DEGREE. The
 * second pass computes the exponentials `again`, or scales those `kept` in y by what their block's
 * maximum lacked. */
#define again 1
#define kept 2

#include "exponential.h"

/* The exponentials of one block, relative to the maxima after it. */
static inline void block_add(float *restrict y, const float *restrict x, int64_t vectors,
                             vector *maxima, vector *sums) {
  vector block_maxima = *maxima;
  for (int64_t v = 0; v < vectors; v++)
    block_maxima = vector_max(block_maxima, *(const vector *)(x + v * LANES));
  vector block_sums = *sums * vector_exp(*maxima - block_maxima);
  for (int64_t v = 0; v < vectors; v++) {
    vector e = vector_exp(*(const vector *)(x + v * LANES) - block_maxima);
    if (NORMALISE == kept)
      *(vector *)(y + v * LANES) = e;
    block_sums += e;
  }
  *maxima = block_maxima;
  *sums = block_sums;
}

static void row_softmax(float *restrict y, const float *restrict x, int64_t columns,
                        vector *block_maxima) {
  const int64_t vectors = columns / LANES, whole = vectors * LANES;
  vector maxima = vector_of(x[0]), sums = vector_of(0);
  for (int64_t v = 0; v < vectors; v += BLOCK) {
    block_add(y + v * LANES, x + v * LANES, vectors - v < BLOCK ? vectors - v : BLOCK, &maxima,
              &sums);
    if (NORMALISE == kept)
      block_maxima[v / BLOCK] = maxima;
  }
  float maximum = lanes_max(maxima);
  for (int64_t i = whole; i < columns; i++)
    maximum = float_max(maximum, x[i]);
  float sum = lanes_sum(sums * vector_exp(maxima - maximum));
  for (int64_t i = whole; i < columns; i++)
    sum += y[i] = LANE(vector_exp(vector_of(x[i] - maximum)), 0);
  const float scale = 1 / sum;
  for (int64_t v = 0; v < vectors; v += BLOCK) {
    int64_t end = vectors - v < BLOCK ? vectors : v + BLOCK;
    vector factor = vector_of(scale);
    if (NORMALISE == kept)
      factor *= vector_exp(block_maxima[v / BLOCK] - maximum);
    for (int64_t k = v; k < end; k++)
      *(vector *)(y + k * LANES) =
          (NORMALISE == kept ? *(vector *)(y + k * LANES)
                             : vector_exp(*(const vector *)(x + k * LANES) - maximum)) *
          factor;
  }
  for (int64_t i = whole; i < columns; i++)
    y[i] *= scale;
}

void softmax_online(float *restrict y, const float *restrict x, int64_t rows, int64_t columns) {
  /* A row's maxima fit in the space of its blocks' first vectors: one vector a block, on the heap
   * when there are many. */
  vector *block_maxima =
      NORMALISE == kept ? __builtin_malloc((columns / LANES / BLOCK + 1) * sizeof(vector)) : 0;
  for (int64_t row = 0; row < rows; row++)
    row_softmax(y + row * columns, x + row * columns, columns, block_maxima);
  __builtin_free(block_maxima);
}
