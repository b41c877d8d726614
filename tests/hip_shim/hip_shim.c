/* A libamdhip64.so for tests: the calls that agent/device/hip.c makes, over CUDA's driver, so that
 * the same HIP code path launches and times kernels on an NVIDIA GPU. Test code, never installed,
 * no substitute for HIP: it knows what the agent uses and nothing else, and like the agent's use of
 * HIP it wants hipSetDevice before work.
 *
 * Error codes and attributes are translated; functions, modules, streams and events are CUDA's own.
 * Objects are what CUDA's driver loads (cubin, PTX). hipRuntimeGetVersion says 6.2. The driver is
 * opened with dlopen when hipInit is called; without it hipInit says hipErrorNoDevice, as without a
 * GPU.
 *
 * Memory: nothing is owned but the retained contexts. Threads: as HIP, but for two that first call
 * hipInit at once. */
#include "hip_shim.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES_MAX 64
#define CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES 8

/* X(member, symbol, parameters), from CUDA's cuda.h */
#define CUDA_CALLS(X)                                                                              \
  X(init, "cuInit", (unsigned flags))                                                              \
  X(device_count, "cuDeviceGetCount", (int *count))                                                \
  X(device_get, "cuDeviceGet", (int *device, int ordinal))                                         \
  X(device_name, "cuDeviceGetName", (char *name, int size, int device))                            \
  X(device_memory, "cuDeviceTotalMem_v2", (size_t *bytes, int device))                             \
  X(device_attribute, "cuDeviceGetAttribute", (int *value, int attribute, int device))             \
  X(device_pci, "cuDeviceGetPCIBusId", (char *id, int size, int device))                           \
  X(context_retain, "cuDevicePrimaryCtxRetain", (void **context, int device))                      \
  X(context_set, "cuCtxSetCurrent", (void *context))                                               \
  X(memory_info, "cuMemGetInfo_v2", (size_t *free_bytes, size_t *total_bytes))                     \
  X(memory_new, "cuMemAlloc_v2", (uint64_t *address, size_t size))                                 \
  X(memory_free, "cuMemFree_v2", (uint64_t address))                                               \
  X(host_memory_new, "cuMemHostAlloc", (void **address, size_t size, unsigned flags))              \
  X(host_memory_free, "cuMemFreeHost", (void *address))                                            \
  X(upload, "cuMemcpyHtoDAsync_v2", (uint64_t to, const void *from, size_t size, void *stream))    \
  X(download, "cuMemcpyDtoHAsync_v2", (void *to, uint64_t from, size_t size, void *stream))        \
  X(copy, "cuMemcpyDtoDAsync_v2", (uint64_t to, uint64_t from, size_t size, void *stream))         \
  X(fill_bytes, "cuMemsetD8Async", (uint64_t to, unsigned char value, size_t count, void *stream)) \
  X(fill_words, "cuMemsetD32Async", (uint64_t to, unsigned value, size_t count, void *stream))     \
  X(stream_new, "cuStreamCreate", (void **stream, unsigned flags))                                 \
  X(stream_free, "cuStreamDestroy_v2", (void *stream))                                             \
  X(stream_wait, "cuStreamSynchronize", (void *stream))                                            \
  X(event_new, "cuEventCreate", (void **event, unsigned flags))                                    \
  X(event_free, "cuEventDestroy_v2", (void *event))                                                \
  X(event_record, "cuEventRecord", (void *event, void *stream))                                    \
  X(event_elapsed, "cuEventElapsedTime", (float *ms, void *start, void *end))                      \
  X(module_new, "cuModuleLoadData", (void **module, const void *image))                            \
  X(module_free, "cuModuleUnload", (void *module))                                                 \
  X(function_find, "cuModuleGetFunction", (void **function, void *module, const char *name))       \
  X(function_attribute_set, "cuFuncSetAttribute", (void *function, int attribute, int value))      \
  X(launch, "cuLaunchKernel",                                                                      \
    (void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,          \
     unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream, void **arguments,    \
     void **extra))                                                                                \
  X(launch_cooperative, "cuLaunchCooperativeKernel",                                               \
    (void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,          \
     unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream, void **arguments))

static struct {
#define X(member, symbol, parameters) int(*member) parameters;
  CUDA_CALLS(X)
#undef X
} cuda;

/* The errors that hipError_t has in common with CUresult, by the same number. */
static const struct {
  int code;
  const char *name, *words;
} errors[] = {
    {0, "hipSuccess", "no error"},
    {1, "hipErrorInvalidValue", "invalid argument"},
    {2, "hipErrorOutOfMemory", "out of memory"},
    {3, "hipErrorNotInitialized", "initialization error"},
    {4, "hipErrorDeinitialized", "driver shutting down"},
    {100, "hipErrorNoDevice", "no ROCm-capable device is detected"},
    {101, "hipErrorInvalidDevice", "invalid device ordinal"},
    {200, "hipErrorInvalidImage", "device kernel image is invalid"},
    {201, "hipErrorInvalidContext", "invalid device context"},
    {209, "hipErrorNoBinaryForGpu", "no kernel image is available for execution on the device"},
    {218, "hipErrorInvalidKernelFile", "invalid kernel file"},
    {300, "hipErrorInvalidSource", "device kernel image is invalid"},
    {301, "hipErrorFileNotFound", "file not found"},
    {302, "hipErrorSharedObjectSymbolNotFound", "shared object symbol not found"},
    {303, "hipErrorSharedObjectInitFailed", "shared object initialization failed"},
    {400, "hipErrorInvalidHandle", "invalid resource handle"},
    {500, "hipErrorNotFound", "named symbol not found"},
    {600, "hipErrorNotReady", "device not ready"},
    {700, "hipErrorIllegalAddress", "an illegal memory access was encountered"},
    {701, "hipErrorLaunchOutOfResources", "too many resources requested for launch"},
    {702, "hipErrorLaunchTimeOut", "the launch timed out and was terminated"},
    {709, "hipErrorContextIsDestroyed", "context is destroyed"},
    {710, "hipErrorAssert", "device-side assert triggered"},
    {719, "hipErrorLaunchFailure", "unspecified launch failure"},
    {720, "hipErrorCooperativeLaunchTooLarge", "too many blocks in cooperative launch"},
    {801, "hipErrorNotSupported", "operation not supported"},
    {999, "hipErrorUnknown", "unknown error"},
};

static size_t error_index(int code) {
  size_t n = sizeof errors / sizeof errors[0];
  for (size_t i = 0; i < n; i++)
    if (errors[i].code == code)
      return i;
  return n - 1;
}

/* What only CUDA has: PTX that cannot be compiled is no binary for the GPU, faults of a kernel are
 * a launch failure. */
static int translate(int code) {
  if (code >= 221 && code <= 223)
    return 209;
  if (code >= 714 && code <= 718)
    return 719;
  return errors[error_index(code)].code;
}

const char *hipGetErrorName(int code) { return errors[error_index(code)].name; }
const char *hipGetErrorString(int code) { return errors[error_index(code)].words; }

static int load(void) {
  static const struct {
    const char *symbol;
    size_t offset;
  } symbols[] = {
#define X(member, symbol, parameters) {symbol, (size_t)((char *)&cuda.member - (char *)&cuda)},
      CUDA_CALLS(X)
#undef X
  };
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return hipErrorNoDevice;
  for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
    void *symbol = dlsym(library, symbols[i].symbol);
    if (!symbol)
      return hipErrorSharedObjectSymbolNotFound;
    memcpy((char *)&cuda + symbols[i].offset, &symbol, sizeof symbol);
  }
  return 0;
}

/* HIP shows the GPUs that its own variable lists, else those that CUDA's does. */
int hipInit(unsigned flags) {
  const char *visible = getenv("HIP_VISIBLE_DEVICES");
  if (visible && *visible)
    setenv("CUDA_VISIBLE_DEVICES", visible, 1);
  int code = cuda.init ? 0 : load();
  return code ? code : translate(cuda.init(flags));
}

int hipRuntimeGetVersion(int *version) {
  *version = 60241134;
  return 0;
}

int hipGetDeviceCount(int *count) {
  *count = 0;
  int code = cuda.init ? 0 : hipInit(0);
  if (code == 0)
    code = translate(cuda.device_count(count));
  return code == 0 && *count == 0 ? hipErrorNoDevice : code;
}

int hipDeviceGet(int *device, int ordinal) { return translate(cuda.device_get(device, ordinal)); }
int hipDeviceGetName(char *name, int size, int device) {
  return translate(cuda.device_name(name, size, device));
}
int hipDeviceTotalMem(size_t *bytes, int device) {
  return translate(cuda.device_memory(bytes, device));
}
int hipDeviceGetPCIBusId(char *id, int size, int device) {
  return translate(cuda.device_pci(id, size, device));
}

int hipDeviceGetAttribute(int *value, int attribute, int device) {
  /* hipDeviceAttribute_t of HIP 5 to 7, CUdevice_attribute */
  static const int pairs[][2] = {
      {5, 13},  /* clock rate */
      {19, 38}, /* L2 size */
      {56, 1},  /* threads of a block */
      {60, 36}, /* memory clock rate */
      {63, 16}, /* multiprocessors */
      {74, 97}, /* shared memory of a block: with CUDA's opt-in, which HIP on AMD does not have */
      {87, 10}, /* warp size */
  };
  for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
    if (pairs[i][0] == attribute)
      return translate(cuda.device_attribute(value, pairs[i][1], device));
  return hipErrorInvalidValue;
}

int hipSetDevice(int device) {
  static void *contexts[DEVICES_MAX];
  int handle, code;
  if (device < 0 || device >= DEVICES_MAX)
    return hipErrorInvalidDevice;
  code = cuda.device_get(&handle, device);
  if (code == 0 && !contexts[device])
    code = cuda.context_retain(&contexts[device], handle);
  return translate(code ? code : cuda.context_set(contexts[device]));
}

int hipMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
  return translate(cuda.memory_info(free_bytes, total_bytes));
}

int hipMalloc(void **address, size_t size) {
  uint64_t given = 0;
  int code = cuda.memory_new(&given, size);
  *address = (void *)(uintptr_t)given;
  return translate(code);
}

int hipFree(void *address) { return translate(cuda.memory_free((uintptr_t)address)); }

int hipHostMalloc(void **address, size_t size, unsigned flags) {
  return flags ? hipErrorInvalidValue : translate(cuda.host_memory_new(address, size, 0));
}

int hipHostFree(void *address) { return translate(cuda.host_memory_free(address)); }

int hipMemcpyHtoDAsync(void *to, const void *from, size_t size, void *stream) {
  return translate(cuda.upload((uintptr_t)to, from, size, stream));
}

int hipMemcpyDtoHAsync(void *to, void *from, size_t size, void *stream) {
  return translate(cuda.download(to, (uintptr_t)from, size, stream));
}

int hipMemcpyDtoDAsync(void *to, void *from, size_t size, void *stream) {
  return translate(cuda.copy((uintptr_t)to, (uintptr_t)from, size, stream));
}

int hipMemsetD8Async(void *to, unsigned char value, size_t count, void *stream) {
  return translate(cuda.fill_bytes((uintptr_t)to, value, count, stream));
}

int hipMemsetD32Async(void *to, int value, size_t count, void *stream) {
  return translate(cuda.fill_words((uintptr_t)to, (unsigned)value, count, stream));
}

int hipStreamCreateWithFlags(void **stream, unsigned flags) {
  return translate(cuda.stream_new(stream, flags));
}
int hipStreamDestroy(void *stream) { return translate(cuda.stream_free(stream)); }
int hipStreamSynchronize(void *stream) { return translate(cuda.stream_wait(stream)); }
int hipEventCreateWithFlags(void **event, unsigned flags) {
  return translate(cuda.event_new(event, flags));
}
int hipEventDestroy(void *event) { return translate(cuda.event_free(event)); }
int hipEventRecord(void *event, void *stream) {
  return translate(cuda.event_record(event, stream));
}
int hipEventElapsedTime(float *ms, void *start, void *end) {
  return translate(cuda.event_elapsed(ms, start, end));
}
int hipModuleLoadData(void **module, const void *image) {
  return translate(cuda.module_new(module, image));
}

int hipModuleGetFunction(void **function, void *module, const char *name) {
  return translate(cuda.function_find(function, module, name));
}

/* CUDA wants to be asked for more than 48 KiB, those included that the function has of its own; HIP
 * on AMD gives what there is. Asked once, until another function comes: the question costs host
 * time. */
static _Thread_local struct {
  void *function;
  unsigned bytes;
} allowed;

static int shared_allow(void *function, unsigned bytes) {
  if (bytes == 0 || (function == allowed.function && bytes <= allowed.bytes))
    return 0;
  int code = cuda.function_attribute_set(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                         (int)bytes);
  allowed.function = code == 0 ? function : NULL;
  allowed.bytes = bytes;
  return code;
}

/* The next module's function may lie where this one's did. */
int hipModuleUnload(void *module) {
  allowed.function = NULL;
  return translate(cuda.module_free(module));
}

int hipModuleLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                          unsigned block_x, unsigned block_y, unsigned block_z,
                          unsigned shared_bytes, void *stream, void **arguments, void **extra) {
  int code = shared_allow(function, shared_bytes);
  return translate(code ? code
                        : cuda.launch(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                                      shared_bytes, stream, arguments, extra));
}

int hipModuleLaunchCooperativeKernel(void *function, unsigned grid_x, unsigned grid_y,
                                     unsigned grid_z, unsigned block_x, unsigned block_y,
                                     unsigned block_z, unsigned shared_bytes, void *stream,
                                     void **arguments) {
  int code = shared_allow(function, shared_bytes);
  return translate(code
                       ? code
                       : cuda.launch_cooperative(function, grid_x, grid_y, grid_z, block_x, block_y,
                                                 block_z, shared_bytes, stream, arguments));
}
