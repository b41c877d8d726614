/* Element `index` of the layer norm of its row, in double precision. */
#include <math.h>
#include <stdint.h>

double layernorm_at(int64_t index, float *y, const float *x, const float *gamma, const float *beta,
                    int64_t rows, int64_t columns) {
  (void)y, (void)rows;
  const float *row = x + index / columns * columns;
  double mean = 0, variance = 0;
  for (int64_t i = 0; i < columns; i++)
    mean += row[i];
  mean /= (double)columns;
  for (int64_t i = 0; i < columns; i++)
    variance += (row[i] - mean) * (row[i] - mean);
  variance /= (double)columns;
  int64_t column = index % columns;
  return (row[column] - mean) / sqrt(variance + 1e-5) * gamma[column] + beta[column];
}
