/* y = (x - mean) / sqrt(variance + 1e-5) * gamma + beta, mean and variance of each row.
 *
 * UNROLL accumulators of LANES floats; STATISTICS in two passes (the mean, then the squares of what
 * is left) or in one (sums and squares of the distance to the row's first element); ROWS rows share
 * a load of gamma and beta. */
#include <math.h>
#include <stdint.h>

#define two_pass 1
#define one_pass 2
#define STEP (LANES * UNROLL)
#define EPSILON 1e-5f

#if LANES > 1
typedef float vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
#define LANE(vectors, i) ((vectors)[i])
#else
typedef float vector;
#define LANE(vectors, i) (vectors)
#endif

static inline float lanes_sum(const vector *vectors) {
  vector total = vectors[0];
  for (int u = 1; u < UNROLL; u++)
    total += vectors[u];
  float sum = LANE(total, 0);
  for (int l = 1; l < LANES; l++)
    sum += LANE(total, l);
  return sum;
}

/* The sums of x - shift and of its square. */
static inline void sums_of(const float *x, float shift, int64_t columns, float *ret_sum,
                           float *ret_squares) {
  vector sums[UNROLL], squares[UNROLL];
  for (int u = 0; u < UNROLL; u++)
    sums[u] = squares[u] = (vector){0};
  int64_t i = 0;
  for (; i + STEP <= columns; i += STEP)
    for (int u = 0; u < UNROLL; u++) {
      vector d = *(const vector *)(x + i + u * LANES) - shift;
      sums[u] += d;
      squares[u] += d * d;
    }
  float sum = lanes_sum(sums), square = lanes_sum(squares);
  for (; i < columns; i++) {
    sum += x[i] - shift;
    square += (x[i] - shift) * (x[i] - shift);
  }
  *ret_sum = sum;
  *ret_squares = square;
}

static inline float sum_of(const float *x, int64_t columns) {
  vector sums[UNROLL];
  for (int u = 0; u < UNROLL; u++)
    sums[u] = (vector){0};
  int64_t i = 0;
  for (; i + STEP <= columns; i += STEP)
    for (int u = 0; u < UNROLL; u++)
      sums[u] += *(const vector *)(x + i + u * LANES);
  float sum = lanes_sum(sums);
  for (; i < columns; i++)
    sum += x[i];
  return sum;
}

static inline void statistics(const float *x, int64_t columns, float *ret_mean, float *ret_scale) {
  float sum, squares, mean, variance;
#if STATISTICS == one_pass
  sums_of(x, x[0], columns, &sum, &squares);
  float distance = sum / (float)columns;
  mean = x[0] + distance;
  variance = squares / (float)columns - distance * distance;
#else
  mean = sum_of(x, columns) / (float)columns;
  sums_of(x, mean, columns, &sum, &squares);
  variance = squares / (float)columns;
#endif
  *ret_mean = mean;
  *ret_scale = 1 / sqrtf((variance > 0 ? variance : 0) + EPSILON);
}

/* `rows` is ROWS, or 1 for what is left over. */
static inline __attribute__((always_inline)) void
rows_norm(float *restrict y, const float *restrict x, const float *restrict gamma,
          const float *restrict beta, int rows, int64_t columns) {
  float means[ROWS], scales[ROWS];
  for (int r = 0; r < rows; r++)
    statistics(x + r * columns, columns, &means[r], &scales[r]);
  int64_t i = 0;
  for (; i + LANES <= columns; i += LANES) {
    vector g = *(const vector *)(gamma + i), b = *(const vector *)(beta + i);
    for (int r = 0; r < rows; r++)
      *(vector *)(y + r * columns + i) =
          (*(const vector *)(x + r * columns + i) - means[r]) * scales[r] * g + b;
  }
  for (; i < columns; i++)
    for (int r = 0; r < rows; r++)
      y[r * columns + i] = (x[r * columns + i] - means[r]) * scales[r] * gamma[i] + beta[i];
}

void layernorm(float *restrict y, const float *restrict x, const float *restrict gamma,
               const float *restrict beta, int64_t rows, int64_t columns) {
  int64_t row = 0;
  for (; row + ROWS <= rows; row += ROWS)
    rows_norm(y + row * columns, x + row * columns, gamma, beta, ROWS, columns);
  for (; row < rows; row++)
    rows_norm(y + row * columns, x + row * columns, gamma, beta, 1, columns);
}
