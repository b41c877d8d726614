// Kernels whose needs differ, to test the reader of cubins. resources_sm_90.cubin is NVRTC 13.0's (--gpu-architecture=sm_90,
// the ELF layout of CUDA 13), resources_sm_80.cubin is ptxas 12.8's (-arch sm_80, the layout before it) of the PTX that
// NVRTC made with --gpu-architecture=compute_80.

extern "C" __global__ void scale(float *y, const float *x, float factor, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    y[i] = factor * x[i];
}

extern "C" __global__ void __launch_bounds__(256) reversed(float *y, const float *x) {
  __shared__ float tile[256];
  tile[threadIdx.x] = x[blockIdx.x * 256 + threadIdx.x];
  __syncthreads();
  y[blockIdx.x * 256 + threadIdx.x] = tile[255 - threadIdx.x];
}

// A table that is indexed by what is not known: it lives in local memory.
extern "C" __global__ void on_stack(int *y, const int *x, char count) {
  int table[64];
  for (int i = 0; i < 64; i++)
    table[i] = x[i];
  for (int i = 0; i < count; i++)
    table[table[i] & 63] += i;
  y[threadIdx.x] = table[threadIdx.x & 63];
}

struct many {
  double values[600];
};

// Shared memory that the launch sizes, and an argument so large that the cubin lists its arguments in another form.
extern "C" __global__ void dynamic(many in, double *y) {
  extern __shared__ double buffer[];
  buffer[threadIdx.x] = in.values[threadIdx.x % 600];
  __syncthreads();
  y[threadIdx.x] = buffer[threadIdx.x ^ 1];
}
