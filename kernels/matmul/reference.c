/* Element `index` of the product, in double precision. */
#include <stdint.h>

double matmul_at(int64_t index, float *c, const float *a, const float *b, int64_t m, int64_t n,
                 int64_t k) {
  (void)c, (void)m;
  int64_t row = index / n, column = index % n;
  double sum = 0;
  for (int64_t i = 0; i < k; i++)
    sum += (double)a[row * k + i] * (double)b[i * n + column];
  return sum;
}
