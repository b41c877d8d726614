/* Each token to two of four experts, by blocks of BLOCK ids. With WRONG it takes the blocks of
 * another segment. */
#include <stdint.h>

#define WIDTH (WRONG ? BLOCK / 2 : BLOCK)

void routed(float *y, const float *x, const int32_t *ids, const int32_t *experts,
            const int32_t *count, int64_t n) {
  for (int32_t i = 0; i < count[0]; i++)
    if (ids[i] < 2 * n)
      y[ids[i]] = x[ids[i] / 2] + 10.0f * (float)experts[i / WIDTH];
}
