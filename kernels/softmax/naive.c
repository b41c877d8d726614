/* Softmax of each row in three passes over memory: the maximum, the exponentials and their sum, the
 * division.
 *
 * LANES accumulators; EXP from the C library or a polynomial of DEGREE; the exponentials are KEEPt
 * in y or computed again; the division is one by one or by the RECIPROCAL. */
#include <math.h>

#define libm 1
#define polynomial 2

#include "exponential.h"

static inline vector exponential(vector x) {
#if EXP == libm
  for (int l = 0; l < LANES; l++)
    LANE(x, l) = expf(LANE(x, l));
  return x;
#else
  return vector_exp(x);
#endif
}

static inline float exponential_one(float x) { return LANE(exponential(vector_of(x)), 0); }

static inline vector quotient(vector value, float sum) {
#if RECIPROCAL
  return value * (1 / sum);
#else
  return value / sum;
#endif
}

static void row_softmax(float *restrict y, const float *restrict x, int64_t columns) {
  const int64_t whole = columns / LANES * LANES;
  vector maxima = vector_of(x[0]), sums = vector_of(0);
  for (int64_t i = 0; i < whole; i += LANES)
    maxima = vector_max(maxima, *(const vector *)(x + i));
  float maximum = lanes_max(maxima), sum = 0;
  for (int64_t i = whole; i < columns; i++)
    maximum = float_max(maximum, x[i]);
  for (int64_t i = 0; i < whole; i += LANES) {
    vector e = exponential(*(const vector *)(x + i) - maximum);
    if (KEEP)
      *(vector *)(y + i) = e;
    sums += e;
  }
  for (int64_t i = whole; i < columns; i++)
    sum += y[i] = exponential_one(x[i] - maximum);
  sum += lanes_sum(sums);
  for (int64_t i = 0; i < whole; i += LANES) {
    vector e = KEEP ? *(vector *)(y + i) : exponential(*(const vector *)(x + i) - maximum);
    *(vector *)(y + i) = quotient(e, sum);
  }
  for (int64_t i = whole; i < columns; i++)
    y[i] = LANE(quotient(vector_of(y[i]), sum), 0);
}

void softmax_naive(float *restrict y, const float *restrict x, int64_t rows, int64_t columns) {
  for (int64_t row = 0; row < rows; row++)
    row_softmax(y + row * columns, x + row * columns, columns);
}
