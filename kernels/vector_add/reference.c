/* Element `index` of the sum, in double precision. */
#include <stdint.h>

double sum_at(int64_t index, float *sum, const float *a, const float *b, int64_t n) {
  (void)sum, (void)n;
  return (double)a[index] + (double)b[index];
}
