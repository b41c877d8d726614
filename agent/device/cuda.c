/* The CUDA back end: the calls of CUDA's driver that gpu.h does not have in common with HIP, what
 * the driver reports of a GPU, and its state as NVIDIA's management library reports it.
 *
 * Prototypes, constants and version suffixes are those of cuda.h of CUDA 12.8 and 13.0, which agree
 * in all that is used here, and of nvml.h of CUDA 12.9. CUresult, CUdevice and nvmlReturn_t are
 * int, CUdeviceptr is a 64-bit integer, handles are pointers. The management library comes with the
 * driver but is not in every container: without it the state is not known, which is not an error.
 *
 * Memory: static; libraries stay open. Threads: see gpu.h. */
#include "agent/device/gpu.h"

#define CUDA_ERROR_NOT_SUPPORTED 801
#define CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES 8
#define CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED 14
#define CU_FUNC_CACHE_PREFER_SHARED 1
#define CU_LAUNCH_ATTRIBUTE_COOPERATIVE 2
#define CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION 4
#define CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE 5
#define CU_CLUSTER_SCHEDULING_POLICY_SPREAD 1
#define CU_TENSOR_MAP_INTERLEAVE_NONE 0
#define CU_TENSOR_MAP_L2_PROMOTION_L2_128B 2
#define CLUSTER_PORTABLE_MAX 8
#define SHARED_LARGE_BYTES (48u << 10)

#define NVML_CLOCK_SM 1
#define NVML_CLOCK_MEM 2
#define NVML_TEMPERATURE_GPU 0
#define NVML_ERROR_NOT_SUPPORTED 3
#define NVML_ERROR_INSUFFICIENT_SIZE 7
#define PROCESSES_MAX 256

_Static_assert(sizeof(void *) == sizeof(uint64_t), "a CUdeviceptr is passed as a pointer");

/* CUdevice_attribute of cuda.h */
enum {
  CU_DEVICE_ATTRIBUTE_WARP_SIZE = 10,
  CU_DEVICE_ATTRIBUTE_CLOCK_RATE = 13,
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE = 36,
  CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
};

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

static struct {
  int (*error_name)(int code, const char **name);
  int (*error_string)(int code, const char **text);
  int (*context_retain)(void **context, int device);
  int (*context_release)(int device);
  int (*context_set)(void *context);
  int (*function_attribute_set)(void *function, int attribute, int value);
  int (*function_cache_set)(void *function, int config);
  int (*launch_ex)(const struct cuda_launch_config *config, void *function, void **arguments,
                   void **extra);
  int (*tensormap_encode)(void *map, int type, uint32_t rank, void *base, const uint64_t *shape,
                          const uint64_t *strides, const uint32_t *box,
                          const uint32_t *element_strides, int interleave, int swizzle,
                          int l2_promotion, int fill);
} cuda;

struct nvml_process { /* nvmlProcessInfo_t of the _v3 call */
  unsigned pid;
  unsigned long long memory_bytes;
  unsigned gpu_instance, compute_instance;
};

static struct {
  int (*init)(void);
  int (*driver_version)(char *version, unsigned size);
  int (*find)(const char *pci, void **device);
  int (*clock)(void *device, int type, unsigned *mhz);
  int (*power)(void *device, unsigned *milliwatts);
  int (*temperature)(void *device, int sensor, unsigned *celsius);
  int (*throttle)(void *device, unsigned long long *reasons);
  /* Of compute, of graphics, and clients of the multi-process service. */
  int (*processes)(void *device, unsigned *count, struct nvml_process *processes);
  int (*graphics)(void *device, unsigned *count, struct nvml_process *processes);
  int (*clients)(void *device, unsigned *count, struct nvml_process *processes);
} nvml;

static void cuda_error_words(int code, const char **ret_name, const char **ret_words) {
  if (cuda.error_name(code, ret_name) != 0)
    *ret_name = NULL;
  if (cuda.error_string(code, ret_words) != 0)
    *ret_words = NULL;
}

static bool cuda_load(struct error *error) {
  static const char *const names[] = {"libcuda.so.1", NULL};
  static const struct gpu_symbol symbols[] = {
#define X(member, hip_symbol, cuda_symbol, parameters) {cuda_symbol, &cuda_api.member},
      GPU_CALLS(X)
#undef X
          {"cuGetErrorName", &cuda.error_name},
      {"cuGetErrorString", &cuda.error_string},
      {"cuDevicePrimaryCtxRetain", &cuda.context_retain},
      {"cuDevicePrimaryCtxRelease_v2", &cuda.context_release},
      {"cuCtxSetCurrent", &cuda.context_set},
      {"cuFuncSetAttribute", &cuda.function_attribute_set},
      {"cuFuncSetCacheConfig", &cuda.function_cache_set},
      {"cuLaunchKernelEx", &cuda.launch_ex, true},              /* since CUDA 11.8 */
      {"cuTensorMapEncodeTiled", &cuda.tensormap_encode, true}, /* since CUDA 12.0 */
  };
  static bool is_loaded;

  if (is_loaded)
    return true;

  /* The cache is ~/.nv/ComputeCache, which a confined process cannot write. */
  setenv("CUDA_CACHE_DISABLE", "1", 0);
  if (!gpu_library_load("CUDA driver", NULL, names, symbols, ARRAY_LENGTH(symbols), error))
    return false;
  is_loaded = gpu_check(&cuda_api, cuda_api.init(0), error, "starting it");
  return is_loaded || error_prefix(error, "the CUDA driver does not start: ");
}

/* The primary context is the one that libraries in this process share; a worker has no other. */
static int cuda_device_enter(int ordinal) {
  int device, code = cuda_api.device_get(&device, ordinal);
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
  if (cuda_api.device_get(&device, ordinal) != 0)
    return;
  cuda.context_set(NULL);
  cuda.context_release(device);
}

/* As Triton does, a function with much shared memory gets the larger share of L1 for it. */
static int cuda_shared_allow(void *function, uint32_t bytes) {
  int code = bytes > SHARED_LARGE_BYTES
                 ? cuda.function_cache_set(function, CU_FUNC_CACHE_PREFER_SHARED)
                 : 0;
  return code ? code
              : cuda.function_attribute_set(
                    function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)bytes);
}

/* Clusters are spread over the multiprocessors, as Triton launches them. */
static int cuda_launch_special(void *function, const struct device_geometry *geometry, void *stream,
                               void **arguments) {
  const uint32_t *grid = geometry->grid, *block = geometry->block;
  struct cuda_launch_attribute attributes[3] = {0};
  struct cuda_launch_config config = {{grid[0], grid[1], grid[2]},
                                      {block[0], block[1], block[2]},
                                      geometry->shared_bytes,
                                      stream,
                                      attributes,
                                      0};
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

/* What Triton's launcher leaves open is as it sets it. */
static int cuda_tensormap_encode(const struct device_tensormap *map) {
  static const uint32_t element_strides[TENSORMAP_RANK_MAX] = {1, 1, 1, 1, 1};
  if (!cuda.tensormap_encode)
    return CUDA_ERROR_NOT_SUPPORTED;
  return cuda.tensormap_encode(map->encoded, map->type, map->rank, *map->base, map->shape,
                               map->strides, map->box, element_strides,
                               CU_TENSOR_MAP_INTERLEAVE_NONE, map->swizzle,
                               CU_TENSOR_MAP_L2_PROMOTION_L2_128B, map->fill);
}

static bool nvml_load(void) {
  static const char *const names[] = {"libnvidia-ml.so.1", NULL};
  static const struct gpu_symbol symbols[] = {
      {"nvmlInit_v2", &nvml.init},
      {"nvmlSystemGetDriverVersion", &nvml.driver_version},
      {"nvmlDeviceGetHandleByPciBusId_v2", &nvml.find},
      {"nvmlDeviceGetClockInfo", &nvml.clock},
      {"nvmlDeviceGetPowerUsage", &nvml.power},
      {"nvmlDeviceGetTemperature", &nvml.temperature},
      {"nvmlDeviceGetCurrentClocksThrottleReasons", &nvml.throttle, true},
      {"nvmlDeviceGetComputeRunningProcesses_v3", &nvml.processes, true},
      {"nvmlDeviceGetGraphicsRunningProcesses_v3", &nvml.graphics, true},
      {"nvmlDeviceGetMPSComputeRunningProcesses_v3", &nvml.clients, true},
  };
  static bool is_tried, is_loaded;
  struct error ignored;

  if (!is_tried)
    is_loaded = gpu_library_load("NVIDIA management library", "WAVETUNE_NVML_LIBRARY", names,
                                 symbols, ARRAY_LENGTH(symbols), &ignored) &&
                nvml.init() == 0;
  is_tried = true;
  return is_loaded;
}

/* NULL where the library does not have the GPU. The last handle is kept: a process measures on one
 * GPU and reads its clock once a round. */
static void *nvml_device(const char *pci) {
  static char *last_pci;
  static void *last;

  if (string_equal(pci, last_pci))
    return last;
  if (!nvml_load() || nvml.find(pci, &last) != 0)
    last = NULL;
  free(last_pci);
  last_pci = xstrdup(pci);
  return last;
}

static double cuda_clock_mhz(const struct gpu_facts *facts) {
  void *device = nvml_device(facts->pci);
  unsigned mhz;
  return device && nvml.clock(device, NVML_CLOCK_SM, &mhz) == 0 ? mhz : 0;
}

static json_t *cuda_conditions(const struct gpu_facts *facts) {
  /* nvmlClocksThrottleReason… of nvml.h. A clock that is low because the GPU is
   * idle, or because an administrator set it, is not throttling. */
  static const struct {
    unsigned long long bit;
    const char *name;
  } throttles[] = {{0x04, "power cap"},
                   {0x08, "hardware slowdown"},
                   {0x20, "thermal"},
                   {0x40, "hardware thermal"},
                   {0x80, "power brake"}};
  json_t *conditions = json_object();
  void *device = nvml_device(facts->pci);
  unsigned value;
  unsigned long long reasons;
  if (!device)
    return conditions;

  if (nvml.clock(device, NVML_CLOCK_SM, &value) == 0)
    json_put(conditions, "clock_mhz", json_integer(value));
  if (nvml.clock(device, NVML_CLOCK_MEM, &value) == 0)
    json_put(conditions, "memory_clock_mhz", json_integer(value));
  if (nvml.power(device, &value) == 0)
    json_put(conditions, "power_w", json_real((double)value / 1000));
  if (nvml.temperature(device, NVML_TEMPERATURE_GPU, &value) == 0)
    json_put(conditions, "temperature_c", json_integer(value));
  if (nvml.throttle && nvml.throttle(device, &reasons) == 0) {
    json_t *names = json_array();
    list_foreach (throttle, throttles)
      if (reasons & throttle->bit)
        json_push(names, json_string(throttle->name));
    json_put(conditions, "throttle", names);
  }

  struct nvml_process processes[PROCESSES_MAX];
  unsigned n = PROCESSES_MAX;
  int code = nvml.processes ? nvml.processes(device, &n, processes) : -1;
  if (code == 0 || code == NVML_ERROR_INSUFFICIENT_SIZE) {
    size_t n_own = 0;
    for (unsigned i = 0; code == 0 && i < n; i++)
      n_own += gpu_process_is_own(processes[i].pid);
    gpu_processes_set(conditions, n, n_own);
  }

  return conditions;
}

bool cuda_user_find(const json_t *facts, struct device_user *ret_user, struct error *error) {
  const char *pci = json_text(facts, "pci");
  void *device = pci ? nvml_device(pci) : NULL;
  int (*const lists[])(void *, unsigned *, struct nvml_process *) = {nvml.processes, nvml.graphics,
                                                                     nvml.clients};
  if (!gpu_processes_are_named(error))
    return false;
  if (!device || !nvml.processes)
    return error_set(error,
                     "NVIDIA's management library (libnvidia-ml.so.1 of driver 510 or later) "
                     "does not list its processes");

  *ret_user = (struct device_user){0};
  for (size_t i = 0; i < ARRAY_LENGTH(lists); i++) {
    struct nvml_process processes[PROCESSES_MAX];
    unsigned n = PROCESSES_MAX;
    int code = lists[i] ? lists[i](device, &n, processes) : NVML_ERROR_NOT_SUPPORTED;
    if (code == NVML_ERROR_NOT_SUPPORTED && i > 0)
      continue;
    if (code != 0)
      return error_set(
          error, "NVIDIA's management library cannot list its processes: it returned %d", code);
    for (unsigned k = 0; k < n && k < PROCESSES_MAX; k++) {
      if (gpu_process_is_other(processes[k].pid)) {
        *ret_user = gpu_process_user(processes[k].pid);
        return true;
      }
    }
  }
  return true;
}

/* 0 when the driver does not report it. */
static int attribute(int device, int name) {
  int value = 0;
  return cuda_api.device_attribute(&value, name, device) == 0 ? value : 0;
}

static bool cuda_facts_read(int ordinal, struct gpu_facts *ret_facts, struct error *error) {
  char name[256] = "", pci[64] = "", driver[96] = "";
  int device, version = 0;
  size_t memory_bytes = 0;

  if (cuda_api.device_get(&device, ordinal) != 0 ||
      cuda_api.device_name(name, sizeof name, device) != 0 ||
      cuda_api.device_pci(pci, sizeof pci, device) != 0 ||
      cuda_api.device_memory(&memory_bytes, device) != 0 || cuda_api.version(&version) != 0)
    return error_set(error,
                     "the CUDA driver does not describe the GPU; run `nvidia-smi` to see why");

  int l2_bytes = attribute(device, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  int shared_bytes = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  json_t *facts = json_object();
  gpu_fact_set(facts, "memory_bytes", (int64_t)memory_bytes);
  gpu_fact_set(facts, "l2_bytes", l2_bytes);
  gpu_fact_set(facts, "shared_bytes", shared_bytes);
  gpu_fact_set(facts, "clock_max_mhz", attribute(device, CU_DEVICE_ATTRIBUTE_CLOCK_RATE) / 1000);
  gpu_fact_set(facts, "memory_clock_max_mhz",
               attribute(device, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE) / 1000);
  json_put(facts, "pci", json_string(pci));
  if (nvml_load() && nvml.driver_version(driver, sizeof driver) == 0 && driver[0])
    json_put(facts, "driver", json_string(driver));

  /* The partition of a GPU is only in its name: "NVIDIA H200 MIG 1g.18gb". */
  const char *mig = strstr(name, "MIG ");
  *ret_facts = (struct gpu_facts){
      .environment = {.cuda = xasprintf("%d.%d", version / 1000, version % 1000 / 10),
                      .gpu = xstrdup(name),
                      .arch = xasprintf(
                          "sm_%d%d",
                          attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                          attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)),
                      .partition = xstrdup(mig ? mig : ""),
                      .compute_units = attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)},
      .warp_size = attribute(device, CU_DEVICE_ATTRIBUTE_WARP_SIZE),
      .cache_bytes = (size_t)l2_bytes,
      .shared_bytes = (uint32_t)shared_bytes,
      .pci = xstrdup(pci),
      .facts = facts,
  };
  return true;
}

/* 64 steps of i * 1664525 + 1013904223, compiled by the driver. */
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
_Static_assert(SENTINEL_STEPS == 64, "the PTX above has 64 steps");

static const char *const visible_variables[] = {"CUDA_VISIBLE_DEVICES", NULL};

struct gpu_api cuda_api = {
    .ops = &cuda_ops,
    .library = "CUDA driver",
    .visible_variables = visible_variables,
    .load = cuda_load,
    .error_words = cuda_error_words,
    .facts_read = cuda_facts_read,
    .device_enter = cuda_device_enter,
    .device_leave = cuda_device_leave,
    .shared_allow = cuda_shared_allow,
    .launch_special = cuda_launch_special,
    .tensormap_encode = cuda_tensormap_encode,
    .sentinel_image = sentinel_ptx,
    .clock_mhz = cuda_clock_mhz,
    .conditions = cuda_conditions,
};
