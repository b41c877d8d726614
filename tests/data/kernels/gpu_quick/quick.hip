/* y = 2 x, REPEAT times over: what tests tune on a GPU. TURN is not read, so that its configs share an object and a job
 * of 192 configs compiles 16 times. */
extern "C" __global__ __launch_bounds__(BLOCK) void quick(float *y, const float *x, int64_t n) {
  const int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (i >= n)
    return;
  for (int repeat = 0; repeat < REPEAT; repeat++)
    *(volatile float *)(y + i) = 2 * *(const volatile float *)(x + i);
}
