/* The part of HIP's API that the shim has, with hipError_t, hipDevice_t and hipDeviceAttribute_t as
 * int, device pointers and handles as void *. Checked against hip_runtime_api.h of HIP 5.2, 6.2
 * and 7.1. */
#ifndef WAVETUNE_TESTS_HIP_SHIM_H
#define WAVETUNE_TESTS_HIP_SHIM_H

#include <stddef.h>

enum {
  hipErrorInvalidValue = 1,
  hipErrorNoDevice = 100,
  hipErrorInvalidDevice = 101,
  hipErrorSharedObjectSymbolNotFound = 302,
};

int hipInit(unsigned flags);
int hipRuntimeGetVersion(int *version);
const char *hipGetErrorName(int code);
const char *hipGetErrorString(int code);
int hipGetDeviceCount(int *count);
int hipDeviceGet(int *device, int ordinal);
int hipDeviceGetName(char *name, int size, int device);
int hipDeviceTotalMem(size_t *bytes, int device);
int hipDeviceGetAttribute(int *value, int attribute, int device);
int hipDeviceGetPCIBusId(char *id, int size, int device);
int hipSetDevice(int device);
int hipMemGetInfo(size_t *free_bytes, size_t *total_bytes);
int hipMalloc(void **address, size_t size);
int hipFree(void *address);
int hipHostMalloc(void **address, size_t size, unsigned flags);
int hipHostFree(void *address);
int hipMemcpyHtoDAsync(void *to, const void *from, size_t size, void *stream);
int hipMemcpyDtoHAsync(void *to, void *from, size_t size, void *stream);
int hipMemcpyDtoDAsync(void *to, void *from, size_t size, void *stream);
int hipMemsetD8Async(void *to, unsigned char value, size_t count, void *stream);
int hipMemsetD32Async(void *to, int value, size_t count, void *stream);
int hipStreamCreateWithFlags(void **stream, unsigned flags);
int hipStreamDestroy(void *stream);
int hipStreamSynchronize(void *stream);
int hipEventCreateWithFlags(void **event, unsigned flags);
int hipEventDestroy(void *event);
int hipEventRecord(void *event, void *stream);
int hipEventElapsedTime(float *ms, void *start, void *end);
int hipModuleLoadData(void **module, const void *image);
int hipModuleUnload(void *module);
int hipModuleGetFunction(void **function, void *module, const char *name);
int hipModuleLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                          unsigned block_x, unsigned block_y, unsigned block_z,
                          unsigned shared_bytes, void *stream, void **arguments, void **extra);
int hipModuleLaunchCooperativeKernel(void *function, unsigned grid_x, unsigned grid_y,
                                     unsigned grid_z, unsigned block_x, unsigned block_y,
                                     unsigned block_z, unsigned shared_bytes, void *stream,
                                     void **arguments);

#endif
