/* Element `index` of the softmax of its row, in double precision. */
#include <math.h>
#include <stdint.h>

double softmax_at(int64_t index, float *y, const float *x, int64_t rows, int64_t columns) {
  (void)y, (void)rows;
  const float *row = x + index / columns * columns;
  double maximum = row[0], sum = 0;
  for (int64_t i = 1; i < columns; i++)
    maximum = row[i] > maximum ? row[i] : maximum;
  for (int64_t i = 0; i < columns; i++)
    sum += exp(row[i] - maximum);
  return exp(row[index % columns] - maximum) / sum;
}
