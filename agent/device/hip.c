/* The HIP back end: the calls of the HIP runtime as gpu.c wants them. It goes through hip* calls
 * alone, so that a library that implements those over another runtime shows the same path.
 *
 * Memory: see device.h. Threads: see gpu.h. */
#include "agent/device/hip.h"

#define hipStreamNonBlocking 1
#define hipEventDefault 0
#define hipErrorNotSupported 801

struct hip_calls hip;

static void hip_error_words(int code, const char **ret_name, const char **ret_words) {
  *ret_name = hip.error_name(code);
  *ret_words = hip.error_string(code);
  if (!*ret_name)
    *ret_name = "hipError_t";
  if (!*ret_words)
    *ret_words = "an error that this runtime does not name";
}

static bool hip_start(struct error *error) {
  const char *name, *words;
  int n = 0, code = hip.init(0);
  /* Without a GPU hipInit says "invalid device" and hipGetDeviceCount the clearer "no ROCm-capable
   * device". */
  if (code != 0)
    code = hip.device_count(&n);
  if (code == 0)
    return true;
  hip_error_words(code, &name, &words);
  return error_set(error, "the HIP runtime finds no GPU to work with: %s (%s, %d)", words, name,
                   code);
}

static bool hip_load(struct error *error) {
  static const char *const names[] = {"libamdhip64.so.7",
                                      "libamdhip64.so.6",
                                      "libamdhip64.so.5",
                                      "/opt/rocm/lib/libamdhip64.so.7",
                                      "/opt/rocm/lib/libamdhip64.so.6",
                                      "/opt/rocm/lib/libamdhip64.so.5",
                                      NULL};
  static const struct gpu_symbol symbols[] = {
#define X(member, symbol, is_optional, type, parameters)                                           \
  {symbol, offsetof(struct hip_calls, member), is_optional},
      HIP_CALLS(X)
#undef X
  };
  static bool is_loaded;
  struct hip_calls calls;
  if (is_loaded)
    return true;
  /* Kernel arguments in device memory: 2 to 3 us less a launch, says AMD. Read when the runtime is
   * loaded. */
  setenv("HIP_FORCE_DEV_KERNARG", "1", 0);
  /* It is in the home folder, which a confined process cannot write. */
  setenv("AMD_COMGR_CACHE", "0", 0);
  const char *named = getenv("WAVETUNE_HIP_LIBRARY");
  const char *const one[] = {named, NULL};
  if (!gpu_library_load("HIP runtime", named && *named ? one : names, symbols,
                        ARRAY_LENGTH(symbols), &calls, error))
    return false;
  hip = calls;
  is_loaded = hip_start(error);
  return is_loaded;
}

static int hip_device_count(int *ret_n) { return hip.device_count(ret_n); }

static int hip_device_enter(int ordinal) { return hip.device_set(ordinal); }

/* A HIP device has one context, which lives as long as the process. */
static void hip_device_leave(int ordinal) { (void)ordinal; }

static int hip_memory_info(size_t *ret_free, size_t *ret_total) {
  return hip.memory_info(ret_free, ret_total);
}
static int hip_memory_new(void **ret_address, size_t size) {
  return hip.memory_new(ret_address, size);
}
static int hip_memory_free(void *address) { return hip.memory_free(address); }

static int hip_host_memory_new(void **ret_address, size_t size) {
  return hip.host_memory_new(ret_address, size, 0);
}
static int hip_host_memory_free(void *address) { return hip.host_memory_free(address); }

static int hip_upload(void *to, const void *from, size_t size, void *stream) {
  return hip.upload(to, from, size, stream);
}

static int hip_download(void *to, const void *from, size_t size, void *stream) {
  return hip.download(to, (void *)(uintptr_t)from, size, stream);
}

static int hip_copy(void *to, const void *from, size_t size, void *stream) {
  return hip.copy(to, (void *)(uintptr_t)from, size, stream);
}

static int hip_fill_bytes(void *to, uint8_t value, size_t count, void *stream) {
  return hip.fill_bytes(to, value, count, stream);
}

static int hip_fill_words(void *to, uint32_t value, size_t count, void *stream) {
  return hip.fill_words(to, (int)value, count, stream);
}

static int hip_stream_new(void **ret_stream) {
  return hip.stream_new(ret_stream, hipStreamNonBlocking);
}
static int hip_stream_free(void *stream) { return hip.stream_free(stream); }
static int hip_stream_wait(void *stream) { return hip.stream_wait(stream); }
static int hip_event_new(void **ret_event) { return hip.event_new(ret_event, hipEventDefault); }
static int hip_event_free(void *event) { return hip.event_free(event); }
static int hip_event_record(void *event, void *stream) { return hip.event_record(event, stream); }
static int hip_event_elapsed(float *ret_ms, void *start, void *end) {
  return hip.event_elapsed(ret_ms, start, end);
}
static int hip_module_new(void **ret_module, const void *image) {
  return hip.module_new(ret_module, image);
}
static int hip_module_free(void *module) { return hip.module_free(module); }

static int hip_function_find(void **ret_function, void *module, const char *name) {
  return hip.function_find(ret_function, module, name);
}

static int hip_launch(void *function, const struct device_geometry *geometry, void *stream,
                      void **arguments) {
  const uint32_t *grid = geometry->grid, *block = geometry->block;
  if (!geometry->cooperative)
    return hip.launch(function, grid[0], grid[1], grid[2], block[0], block[1], block[2],
                      geometry->shared_bytes, stream, arguments, NULL);
  if (!hip.launch_cooperative)
    return hipErrorNotSupported;
  return hip.launch_cooperative(function, grid[0], grid[1], grid[2], block[0], block[1], block[2],
                                geometry->shared_bytes, stream, arguments);
}

static const char *const hip_visible_variables[] = {"HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES",
                                                    NULL};

static const struct gpu_api hip_api = {
    .ops = &hip_ops,
    .library = "HIP runtime",
    .visible_variables = hip_visible_variables,
    .load = hip_load,
    .error_words = hip_error_words,
    .device_count = hip_device_count,
    .facts_read = hip_facts_read,
    .device_enter = hip_device_enter,
    .device_leave = hip_device_leave,
    .memory_info = hip_memory_info,
    .memory_new = hip_memory_new,
    .memory_free = hip_memory_free,
    .host_memory_new = hip_host_memory_new,
    .host_memory_free = hip_host_memory_free,
    .upload = hip_upload,
    .download = hip_download,
    .copy = hip_copy,
    .fill_bytes = hip_fill_bytes,
    .fill_words = hip_fill_words,
    .stream_new = hip_stream_new,
    .stream_free = hip_stream_free,
    .stream_wait = hip_stream_wait,
    .event_new = hip_event_new,
    .event_free = hip_event_free,
    .event_record = hip_event_record,
    .event_elapsed = hip_event_elapsed,
    .module_new = hip_module_new,
    .module_free = hip_module_free,
    .function_find = hip_function_find,
    /* shared_allow is NULL: all 64 KiB of LDS (160 KiB on gfx950) are there without asking.
     * hipFuncSetAttribute is for functions that were linked into the program, not for those of
     * modules. */
    .launch = hip_launch,
    .no_clusters = "HIP on AMD GPUs has none",
    /* sentinel_image is NULL: the runtime loads no code that fits every gfx target. The runtime's
     * own fill and copy kernels are one half; the baseline, checked against the kernel's reference
     * when a lease opens, is the other. */
    .clock_mhz = hip_clock_mhz,
    .conditions = hip_conditions,
};

static bool hip_probe(json_t **ret_devices, struct error *error) {
  return gpu_probe(&hip_api, ret_devices, error);
}

static bool hip_open(const char *name, struct device **ret_device, struct error *error) {
  return gpu_open(&hip_api, name, ret_device, error);
}

const struct device_ops hip_ops = {.backend = "hip",
                                   .timer = "hip_event",
                                   .probe = hip_probe,
                                   .open = hip_open,
                                   .instruction_flush_set = gpu_instruction_flush_set,
                                   GPU_OPS};
