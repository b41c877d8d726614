/* What cuda.c shares with cuda_facts.c: the calls of CUDA's driver.
 *
 * Prototypes, constants and version suffixes are those of cuda.h of CUDA 12.8 and 13.0, which agree
 * in all that is used here, but that 13.0 gives cuEventElapsedTime a second symbol with the same
 * parameters. CUresult and CUdevice are int, CUdeviceptr is a 64-bit integer, handles are pointers.
 * Memory: static. Threads: see gpu.h. */
#ifndef WAVETUNE_AGENT_DEVICE_CUDA_H
#define WAVETUNE_AGENT_DEVICE_CUDA_H

#include "agent/device/gpu.h"

struct cuda_launch_config; /* CUlaunchConfig */

/* X(member, symbol, is_optional, parameters) */
#define CUDA_CALLS(X)                                                                              \
  X(init, "cuInit", false, (unsigned flags))                                                       \
  X(driver_version, "cuDriverGetVersion", false, (int *version))                                   \
  X(error_name, "cuGetErrorName", false, (int code, const char **name))                            \
  X(error_string, "cuGetErrorString", false, (int code, const char **text))                        \
  X(device_count, "cuDeviceGetCount", false, (int *count))                                         \
  X(device_get, "cuDeviceGet", false, (int *device, int ordinal))                                  \
  X(device_name, "cuDeviceGetName", false, (char *name, int size, int device))                     \
  X(device_memory, "cuDeviceTotalMem_v2", false, (size_t *bytes, int device))                      \
  X(device_attribute, "cuDeviceGetAttribute", false, (int *value, int attribute, int device))      \
  X(device_pci, "cuDeviceGetPCIBusId", false, (char *id, int size, int device))                    \
  X(context_retain, "cuDevicePrimaryCtxRetain", false, (void **context, int device))               \
  X(context_release, "cuDevicePrimaryCtxRelease_v2", false, (int device))                          \
  X(context_set, "cuCtxSetCurrent", false, (void *context))                                        \
  X(memory_info, "cuMemGetInfo_v2", false, (size_t *free_bytes, size_t *total_bytes))              \
  X(memory_new, "cuMemAlloc_v2", false, (uint64_t *address, size_t size))                          \
  X(memory_free, "cuMemFree_v2", false, (uint64_t address))                                        \
  X(host_memory_new, "cuMemHostAlloc", false, (void **address, size_t size, unsigned flags))       \
  X(host_memory_free, "cuMemFreeHost", false, (void *address))                                     \
  X(upload, "cuMemcpyHtoDAsync_v2", false,                                                         \
    (uint64_t to, const void *from, size_t size, void *stream))                                    \
  X(download, "cuMemcpyDtoHAsync_v2", false, (void *to, uint64_t from, size_t size, void *stream)) \
  X(copy, "cuMemcpyDtoDAsync_v2", false, (uint64_t to, uint64_t from, size_t size, void *stream))  \
  X(fill_bytes, "cuMemsetD8Async", false,                                                          \
    (uint64_t to, unsigned char value, size_t count, void *stream))                                \
  X(fill_words, "cuMemsetD32Async", false,                                                         \
    (uint64_t to, unsigned value, size_t count, void *stream))                                     \
  X(stream_new, "cuStreamCreate", false, (void **stream, unsigned flags))                          \
  X(stream_free, "cuStreamDestroy_v2", false, (void *stream))                                      \
  X(stream_wait, "cuStreamSynchronize", false, (void *stream))                                     \
  X(event_new, "cuEventCreate", false, (void **event, unsigned flags))                             \
  X(event_free, "cuEventDestroy_v2", false, (void *event))                                         \
  X(event_record, "cuEventRecord", false, (void *event, void *stream))                             \
  X(event_elapsed, "cuEventElapsedTime", false, (float *ms, void *start, void *end))               \
  X(module_new, "cuModuleLoadData", false, (void **module, const void *image))                     \
  X(module_free, "cuModuleUnload", false, (void *module))                                          \
  X(function_find, "cuModuleGetFunction", false,                                                   \
    (void **function, void *module, const char *name))                                             \
  X(function_attribute_set, "cuFuncSetAttribute", false,                                           \
    (void *function, int attribute, int value))                                                    \
  X(function_cache_set, "cuFuncSetCacheConfig", false, (void *function, int config))               \
  X(launch, "cuLaunchKernel", false,                                                               \
    (void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,          \
     unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream, void **arguments,    \
     void **extra))                                                                                \
  X(launch_ex, "cuLaunchKernelEx", true, /* since CUDA 11.8 */                                     \
    (const struct cuda_launch_config *config, void *function, void **arguments, void **extra))

struct cuda_calls {
#define X(member, symbol, is_optional, parameters) int(*member) parameters;
  CUDA_CALLS(X)
#undef X
};
extern struct cuda_calls cuda; /* filled by cuda_load */

#define CUDA_ERROR_NOT_SUPPORTED 801

/* cuda_facts.c */
must_check bool cuda_facts_read(int ordinal, struct gpu_facts *ret_facts, struct error *error);
double cuda_clock_mhz(const struct gpu_facts *facts);
json_t *cuda_conditions(const struct gpu_facts *facts);

#endif
