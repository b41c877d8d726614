/* y = 2 x, REPEAT times over: what system tests tune. One config is several times as fast as every
 * other one, the default among them, so that no verdict hangs on how busy the machine is. The
 * space's other parameter is not named in this file, not even here: so its configs share an object,
 * and a job of 49 configs compiles five times. */
#include <stdint.h>

void quick(float *y, const float *x, int64_t n) {
  for (int repeat = 0; repeat < REPEAT; repeat++) {
    for (int64_t i = 0; i < n; i++)
      y[i] = 2 * x[i];
    __asm__ volatile("" ::: "memory"); /* each pass is really made */
  }
}
