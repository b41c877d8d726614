/* What hip.c shares with hip_facts.c: the calls of the HIP runtime.
 *
 * Prototypes are those of hip_runtime_api.h of HIP 5.2, 6.2 and 7.1, which agree in all that is
 * used here (7.1 takes the source of hipMemcpyHtoDAsync as const). hipError_t, hipDevice_t and
 * attributes are int, device pointers and handles are pointers. hipDeviceProp_t is not used: its
 * layout changed with HIP 6. Memory: static. Threads: see gpu.h. */
#ifndef WAVETUNE_AGENT_DEVICE_HIP_H
#define WAVETUNE_AGENT_DEVICE_HIP_H

#include "agent/device/gpu.h"

/* X(member, symbol, is_optional, return type, parameters) */
#define HIP_CALLS(X)                                                                               \
  X(init, "hipInit", false, int, (unsigned flags))                                                 \
  X(runtime_version, "hipRuntimeGetVersion", false, int, (int *version))                           \
  X(error_name, "hipGetErrorName", false, const char *, (int code))                                \
  X(error_string, "hipGetErrorString", false, const char *, (int code))                            \
  X(device_count, "hipGetDeviceCount", false, int, (int *count))                                   \
  X(device_get, "hipDeviceGet", false, int, (int *device, int ordinal))                            \
  X(device_name, "hipDeviceGetName", false, int, (char *name, int size, int device))               \
  X(device_memory, "hipDeviceTotalMem", false, int, (size_t *bytes, int device))                   \
  X(device_attribute, "hipDeviceGetAttribute", false, int,                                         \
    (int *value, int attribute, int device))                                                       \
  X(device_pci, "hipDeviceGetPCIBusId", false, int, (char *id, int size, int device))              \
  X(device_set, "hipSetDevice", false, int, (int device))                                          \
  X(memory_info, "hipMemGetInfo", false, int, (size_t *free_bytes, size_t *total_bytes))           \
  X(memory_new, "hipMalloc", false, int, (void **address, size_t size))                            \
  X(memory_free, "hipFree", false, int, (void *address))                                           \
  X(host_memory_new, "hipHostMalloc", false, int, (void **address, size_t size, unsigned flags))   \
  X(host_memory_free, "hipHostFree", false, int, (void *address))                                  \
  X(upload, "hipMemcpyHtoDAsync", false, int,                                                      \
    (void *to, const void *from, size_t size, void *stream))                                       \
  X(download, "hipMemcpyDtoHAsync", false, int, (void *to, void *from, size_t size, void *stream)) \
  X(copy, "hipMemcpyDtoDAsync", false, int, (void *to, void *from, size_t size, void *stream))     \
  X(fill_bytes, "hipMemsetD8Async", false, int,                                                    \
    (void *to, unsigned char value, size_t count, void *stream))                                   \
  X(fill_words, "hipMemsetD32Async", false, int,                                                   \
    (void *to, int value, size_t count, void *stream))                                             \
  X(stream_new, "hipStreamCreateWithFlags", false, int, (void **stream, unsigned flags))           \
  X(stream_free, "hipStreamDestroy", false, int, (void *stream))                                   \
  X(stream_wait, "hipStreamSynchronize", false, int, (void *stream))                               \
  X(event_new, "hipEventCreateWithFlags", false, int, (void **event, unsigned flags))              \
  X(event_free, "hipEventDestroy", false, int, (void *event))                                      \
  X(event_record, "hipEventRecord", false, int, (void *event, void *stream))                       \
  X(event_elapsed, "hipEventElapsedTime", false, int, (float *ms, void *start, void *end))         \
  X(module_new, "hipModuleLoadData", false, int, (void **module, const void *image))               \
  X(module_free, "hipModuleUnload", false, int, (void *module))                                    \
  X(function_find, "hipModuleGetFunction", false, int,                                             \
    (void **function, void *module, const char *name))                                             \
  X(launch, "hipModuleLaunchKernel", false, int,                                                   \
    (void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,          \
     unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream, void **arguments,    \
     void **extra))                                                                                \
  X(launch_cooperative, "hipModuleLaunchCooperativeKernel", true, int, /* not in HIP 5.2 */        \
    (void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,          \
     unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream, void **arguments))

struct hip_calls {
#define X(member, symbol, is_optional, type, parameters) type(*member) parameters;
  HIP_CALLS(X)
#undef X
};
extern struct hip_calls hip; /* filled by hip_load */

/* hip_facts.c */
must_check bool hip_facts_read(int ordinal, struct gpu_facts *ret_facts, struct error *error);
double hip_clock_mhz(const struct gpu_facts *facts);
json_t *hip_conditions(const struct gpu_facts *facts);

/* "6.4.1", from a ROCm installation's .info/version, else "6.4" of the runtime's own version
 * number. */
must_check char *hip_rocm_version(const char *rocm_folder, int runtime_version);

#endif
