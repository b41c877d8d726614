/* y = 2 x, and one way of going wrong a config. TURN is not read: there are good configs before, between and after the
 * bad ones. */
#define good 1
#define slow 2
#define wrong 3
#define fault 4
#define hang 5
#define no_compile 6
#define beyond_end 7
#define before_begin 8
#define unwritten 9
#define too_much_lds 10
#define too_many_threads 11
#define one_wrong 12

#if MODE == no_compile
#error this config does not compile
#endif

extern "C" __global__ void misbehaving(float *y, const float *x, int64_t n) {
  const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  const bool first = i == 0;
  (void)first;
  if (i < (MODE == unwritten ? n - 1 : n))
    y[i] = 2 * x[i];
#if MODE == slow
  for (int turn = 0; turn < 20000; turn++)
    if (*(const volatile float *)x < 0)
      y[0] = 0;
#elif MODE == wrong
  if (first)
    y[0] = x[0] + 1000;
#elif MODE == one_wrong /* of those that no sample is likely to have */
  if (i == n / 2 + 321)
    y[i] = 2 * x[i] + 1;
#elif MODE == fault
  if (first)
    y[(int64_t)1 << 40] = 1;
#elif MODE == hang
  while (*(const volatile float *)x >= 0)
    ;
#elif MODE == beyond_end
  if (first)
    y[n] = 1;
#elif MODE == before_begin
  if (first)
    y[-1] = 1;
#endif
}
