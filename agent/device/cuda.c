/* The CUDA back end: the calls of CUDA's driver as gpu.c wants them.
 *
 * Memory: see device.h. Threads: see gpu.h. */
#include "agent/device/cuda.h"

#define CU_STREAM_NON_BLOCKING 1
#define CU_EVENT_DEFAULT 0
#define CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES 8
#define CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED 14
#define CU_FUNC_CACHE_PREFER_SHARED 1
#define CU_LAUNCH_ATTRIBUTE_COOPERATIVE 2
#define CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION 4
#define CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE 5
#define CU_CLUSTER_SCHEDULING_POLICY_SPREAD 1
#define CLUSTER_PORTABLE_MAX 8
#define SHARED_LARGE_BYTES (48u << 10)

/* CUlaunchAttribute and CUlaunchConfig of cuda.h */
struct cuda_launch_attribute {
  int id;
  char padding[4];
  union {
    char bytes[64];
    int cooperative;
    struct {
      unsigned x, y, z;
    } cluster;
    int scheduling;
  } value;
};

struct cuda_launch_config {
  unsigned grid[3], block[3], shared_bytes;
  void *stream;
  struct cuda_launch_attribute *attributes;
  unsigned n_attributes;
};

struct cuda_calls cuda;

static void cuda_error_words(int code, const char **ret_name, const char **ret_words) {
  *ret_name = *ret_words = NULL;
  if (cuda.error_name(code, ret_name) != 0 || !*ret_name)
    *ret_name = "CUresult";
  if (cuda.error_string(code, ret_words) != 0 || !*ret_words)
    *ret_words = "an error that this driver does not name";
}

static bool cuda_load(struct error *error) {
  static const char *const names[] = {"libcuda.so.1", NULL};
  static const struct gpu_symbol symbols[] = {
#define X(member, symbol, is_optional, parameters)                                                 \
  {symbol, offsetof(struct cuda_calls, member), is_optional},
      CUDA_CALLS(X)
#undef X
  };
  static bool is_loaded;
  const char *name, *words;
  struct cuda_calls calls;
  if (is_loaded)
    return true;
  /* ~/.nv/ComputeCache, which a confined process cannot write. */
  setenv("CUDA_CACHE_DISABLE", "1", 0);
  if (!gpu_library_load("CUDA driver", names, symbols, ARRAY_LENGTH(symbols), &calls, error))
    return false;
  cuda = calls;
  int code = cuda.init(0);
  if (code != 0) {
    cuda_error_words(code, &name, &words);
    return error_set(error, "the CUDA driver does not start: %s (%s, %d)", words, name, code);
  }
  is_loaded = true;
  return true;
}

static int cuda_device_count(int *ret_n) { return cuda.device_count(ret_n); }

/* The primary context is the one that libraries in this process share; a worker has no other. */
static int cuda_device_enter(int ordinal) {
  int device, code = cuda.device_get(&device, ordinal);
  void *context;
  if (code != 0 || (code = cuda.context_retain(&context, device)) != 0)
    return code;
  code = cuda.context_set(context);
  if (code != 0)
    cuda.context_release(device);
  return code;
}

static void cuda_device_leave(int ordinal) {
  int device;
  if (cuda.device_get(&device, ordinal) != 0)
    return;
  cuda.context_set(NULL);
  cuda.context_release(device);
}

static int cuda_memory_info(size_t *ret_free, size_t *ret_total) {
  return cuda.memory_info(ret_free, ret_total);
}

static int cuda_memory_new(void **ret_address, size_t size) {
  uint64_t address = 0;
  int code = cuda.memory_new(&address, size);
  *ret_address = (void *)(uintptr_t)address;
  return code;
}

static int cuda_memory_free(void *address) { return cuda.memory_free((uintptr_t)address); }

static int cuda_host_memory_new(void **ret_address, size_t size) {
  return cuda.host_memory_new(ret_address, size, 0);
}
static int cuda_host_memory_free(void *address) { return cuda.host_memory_free(address); }

static int cuda_upload(void *to, const void *from, size_t size, void *stream) {
  return cuda.upload((uintptr_t)to, from, size, stream);
}

static int cuda_download(void *to, const void *from, size_t size, void *stream) {
  return cuda.download(to, (uintptr_t)from, size, stream);
}

static int cuda_copy(void *to, const void *from, size_t size, void *stream) {
  return cuda.copy((uintptr_t)to, (uintptr_t)from, size, stream);
}

static int cuda_fill_bytes(void *to, uint8_t value, size_t count, void *stream) {
  return cuda.fill_bytes((uintptr_t)to, value, count, stream);
}

static int cuda_fill_words(void *to, uint32_t value, size_t count, void *stream) {
  return cuda.fill_words((uintptr_t)to, value, count, stream);
}

static int cuda_stream_new(void **ret_stream) {
  return cuda.stream_new(ret_stream, CU_STREAM_NON_BLOCKING);
}
static int cuda_stream_free(void *stream) { return cuda.stream_free(stream); }
static int cuda_stream_wait(void *stream) { return cuda.stream_wait(stream); }
static int cuda_event_new(void **ret_event) { return cuda.event_new(ret_event, CU_EVENT_DEFAULT); }
static int cuda_event_free(void *event) { return cuda.event_free(event); }
static int cuda_event_record(void *event, void *stream) { return cuda.event_record(event, stream); }
static int cuda_event_elapsed(float *ret_ms, void *start, void *end) {
  return cuda.event_elapsed(ret_ms, start, end);
}
static int cuda_module_new(void **ret_module, const void *image) {
  return cuda.module_new(ret_module, image);
}
static int cuda_module_free(void *module) { return cuda.module_free(module); }

static int cuda_function_find(void **ret_function, void *module, const char *name) {
  return cuda.function_find(ret_function, module, name);
}

/* As Triton does, much of it is preferred to L1. */
static int cuda_shared_allow(void *function, uint32_t bytes) {
  int code = bytes > SHARED_LARGE_BYTES
                 ? cuda.function_cache_set(function, CU_FUNC_CACHE_PREFER_SHARED)
                 : 0;
  return code ? code
              : cuda.function_attribute_set(
                    function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)bytes);
}

/* A cooperative launch or one in clusters. As Triton launches them, clusters are spread over the
 * multiprocessors. */
static int cuda_launch_ex(void *function, const struct device_geometry *geometry, void *stream,
                          void **arguments) {
  struct cuda_launch_attribute attributes[3] = {0};
  struct cuda_launch_config config = {
      .grid = {geometry->grid[0], geometry->grid[1], geometry->grid[2]},
      .block = {geometry->block[0], geometry->block[1], geometry->block[2]},
      .shared_bytes = geometry->shared_bytes,
      .stream = stream,
      .attributes = attributes,
  };
  if (!cuda.launch_ex)
    return CUDA_ERROR_NOT_SUPPORTED;
  if (geometry->cooperative) {
    struct cuda_launch_attribute *attribute = &attributes[config.n_attributes++];
    attribute->id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attribute->value.cooperative = 1;
  }
  if (geometry->cluster > 1) {
    struct cuda_launch_attribute *attribute = &attributes[config.n_attributes];
    config.n_attributes += 2;
    attribute[0].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute[0].value.cluster.x = geometry->cluster;
    attribute[0].value.cluster.y = attribute[0].value.cluster.z = 1;
    attribute[1].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE;
    attribute[1].value.scheduling = CU_CLUSTER_SCHEDULING_POLICY_SPREAD;
  }
  if (geometry->cluster > CLUSTER_PORTABLE_MAX) {
    int code = cuda.function_attribute_set(function,
                                           CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
    if (code != 0)
      return code;
  }
  return cuda.launch_ex(&config, function, arguments, NULL);
}

static int cuda_launch(void *function, const struct device_geometry *geometry, void *stream,
                       void **arguments) {
  if (geometry->cooperative || geometry->cluster > 1)
    return cuda_launch_ex(function, geometry, stream, arguments);
  return cuda.launch(function, geometry->grid[0], geometry->grid[1], geometry->grid[2],
                     geometry->block[0], geometry->block[1], geometry->block[2],
                     geometry->shared_bytes, stream, arguments, NULL);
}

/* 64 steps of i * 1664525 + 1013904223, by the driver's own compiler. */
static const char sentinel_ptx[] = ".version 7.0\n"
                                   ".target sm_70\n"
                                   ".address_size 64\n"
                                   ".visible .entry " SENTINEL_ENTRY "(.param .u64 out)\n"
                                   "{\n"
                                   "  .reg .pred %p;\n"
                                   "  .reg .b32 %block, %size, %thread, %i, %x, %step;\n"
                                   "  .reg .b64 %out, %offset;\n"
                                   "  ld.param.u64 %out, [out];\n"
                                   "  cvta.to.global.u64 %out, %out;\n"
                                   "  mov.u32 %block, %ctaid.x;\n"
                                   "  mov.u32 %size, %ntid.x;\n"
                                   "  mov.u32 %thread, %tid.x;\n"
                                   "  mad.lo.u32 %i, %block, %size, %thread;\n"
                                   "  mov.u32 %x, %i;\n"
                                   "  mov.u32 %step, 64;\n"
                                   "again:\n"
                                   "  mad.lo.u32 %x, %x, 1664525, 1013904223;\n"
                                   "  sub.u32 %step, %step, 1;\n"
                                   "  setp.ne.u32 %p, %step, 0;\n"
                                   "  @%p bra again;\n"
                                   "  mul.wide.u32 %offset, %i, 4;\n"
                                   "  add.u64 %out, %out, %offset;\n"
                                   "  st.global.u32 [%out], %x;\n"
                                   "  ret;\n"
                                   "}\n";
_Static_assert(SENTINEL_STEPS == 64, "the PTX above says 64 too");

static const char *const cuda_visible_variables[] = {"CUDA_VISIBLE_DEVICES", NULL};

static const struct gpu_api cuda_api = {
    .ops = &cuda_ops,
    .library = "CUDA driver",
    .visible_variables = cuda_visible_variables,
    .load = cuda_load,
    .error_words = cuda_error_words,
    .device_count = cuda_device_count,
    .facts_read = cuda_facts_read,
    .device_enter = cuda_device_enter,
    .device_leave = cuda_device_leave,
    .memory_info = cuda_memory_info,
    .memory_new = cuda_memory_new,
    .memory_free = cuda_memory_free,
    .host_memory_new = cuda_host_memory_new,
    .host_memory_free = cuda_host_memory_free,
    .upload = cuda_upload,
    .download = cuda_download,
    .copy = cuda_copy,
    .fill_bytes = cuda_fill_bytes,
    .fill_words = cuda_fill_words,
    .stream_new = cuda_stream_new,
    .stream_free = cuda_stream_free,
    .stream_wait = cuda_stream_wait,
    .event_new = cuda_event_new,
    .event_free = cuda_event_free,
    .event_record = cuda_event_record,
    .event_elapsed = cuda_event_elapsed,
    .module_new = cuda_module_new,
    .module_free = cuda_module_free,
    .function_find = cuda_function_find,
    .shared_allow = cuda_shared_allow,
    .launch = cuda_launch,
    .sentinel_image = sentinel_ptx,
    .clock_mhz = cuda_clock_mhz,
    .conditions = cuda_conditions,
};

static bool cuda_probe(json_t **ret_devices, struct error *error) {
  return gpu_probe(&cuda_api, ret_devices, error);
}

static bool cuda_open(const char *name, struct device **ret_device, struct error *error) {
  return gpu_open(&cuda_api, name, ret_device, error);
}

const struct device_ops cuda_ops = {
    .backend = "cuda", .timer = "cuda_event", .probe = cuda_probe, .open = cuda_open, GPU_OPS};
