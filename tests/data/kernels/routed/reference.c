#include <math.h>
#include <stdint.h>

double y_at(int64_t index, float *y, const float *x, const int32_t *ids, const int32_t *experts,
            const int32_t *count, int64_t n) {
  (void)y, (void)n;
  for (int32_t i = 0; i < count[0]; i++)
    if (ids[i] == index)
      return (double)x[index / 2] + 10.0 * experts[i / BLOCK];
  return NAN;
}
