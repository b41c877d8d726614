/* Element `index` of y = 2 x. */
#include <stdint.h>

double twice_at(int64_t index, float *y, const float *x, int64_t n) {
  (void)y, (void)n;
  return 2 * (double)x[index];
}
