/* Element `index` of y = 2 x. */
#include <stdint.h>

double y_at(int64_t index, float *y, const float *x, int64_t n) {
  (void)y, (void)n;
  return 2.0 * x[index];
}
