/* y = 2 x, and one way of going wrong a config. */
#include <stdint.h>

#define good 1
#define slow 2
#define wrong 3
#define crash 4
#define hang 5
#define no_compile 6
#define out_of_bounds 7
#define unwritten 8

#if MODE == no_compile
#error this config does not compile
#endif

void misbehaving(float *y, const float *x, int64_t n) {
  const int64_t end = MODE == unwritten ? n - 1 : n;
  for (int64_t i = 0; i < end; i++)
    y[i] = 2 * x[i];
#if MODE == slow
  /* About a hundred times the work of n = 1,000. */
  for (volatile int i = 0; i < 50000; i++)
    ;
#elif MODE == wrong
  y[0] = x[0] + 1000;
#elif MODE == crash
  *(volatile int *)0 = 1;
#elif MODE == hang
  for (volatile int i = 0;;)
    i = 0;
#elif MODE == out_of_bounds
  y[n] = 1;
#endif
}
