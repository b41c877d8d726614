/* The HIP back end: the calls of the HIP runtime that gpu.h does not have in common with CUDA, and
 * what the runtime, the KFD's topology and a ROCm installation report of a GPU. It uses hip* calls
 * only, so that a library that implements them over another runtime tests the same code.
 *
 * hipError_t, hipDevice_t and attributes are int, handles are pointers. hipDeviceProp_t is not
 * used: its layout changed with HIP 6. */
#include "agent/device/gpu.h"
#include "common/node/node.h"

#define HIP_ERROR_NOT_SUPPORTED 801

static struct {
  const char *(*error_name)(int code);
  const char *(*error_string)(int code);
  int (*launch_cooperative)(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                            unsigned block_x, unsigned block_y, unsigned block_z,
                            unsigned shared_bytes, void *stream, void **arguments);
} hip;

static void hip_error_words(int code, const char **ret_name, const char **ret_words) {
  *ret_name = hip.error_name(code);
  *ret_words = hip.error_string(code);
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
#define X(member, hip_symbol, cuda_symbol, parameters) {hip_symbol, &hip_api.member},
      GPU_CALLS(X)
#undef X
          {"hipGetErrorName", &hip.error_name},
      {"hipGetErrorString", &hip.error_string},
      {"hipSetDevice", &hip_api.device_enter},
      {"hipModuleLaunchCooperativeKernel", &hip.launch_cooperative, true}, /* not in HIP 5.2 */
  };
  static bool is_loaded;

  if (is_loaded)
    return true;

  /* Kernel arguments in device memory: 2 to 3 us less a launch, according to AMD. Read when the
   * runtime is loaded. Programs that use the winners get it from `fetch --print-env`. */
  setenv("HIP_FORCE_DEV_KERNARG", "1", 0);

  /* Its cache is in the home folder, which a confined process cannot write. */
  setenv("AMD_COMGR_CACHE", "0", 0);
  if (!gpu_library_load("HIP runtime", "WAVETUNE_HIP_LIBRARY", names, symbols,
                        ARRAY_LENGTH(symbols), error))
    return false;

  /* Without a GPU hipInit fails with "invalid device" and hipGetDeviceCount with the clearer "no
   * ROCm-capable device". */
  int n = 0, code = hip_api.init(0);
  if (code != 0)
    code = hip_api.device_count(&n);
  is_loaded = gpu_check(&hip_api, code, error, "starting it");
  return is_loaded || error_prefix(error, "the HIP runtime finds no GPU to work with: ");
}

static int hip_launch_cooperative(void *function, const struct device_geometry *geometry,
                                  void *stream, void **arguments) {
  const uint32_t *grid = geometry->grid, *block = geometry->block;
  if (!hip.launch_cooperative)
    return HIP_ERROR_NOT_SUPPORTED;
  return hip.launch_cooperative(function, grid[0], grid[1], grid[2], block[0], block[1], block[2],
                                geometry->shared_bytes, stream, arguments);
}

/* 0 when the runtime does not report it. */
static int64_t attribute(int device, int name) {
  int value = 0;
  return hip_api.device_attribute(&value, name, device) == 0 && value > 0 ? value : 0;
}

char *hip_rocm_version(const char *rocm_folder, int runtime_version) {
  char *installed = rocm_version_read(rocm_folder);
  return installed ? installed
                   : xasprintf("%d.%d", runtime_version / 10000000, runtime_version / 100000 % 100);
}

static bool hip_facts_read(int ordinal, struct gpu_facts *ret_facts, struct error *error) {
  char name[256] = "", pci[64] = "";
  int device, version = 0;
  size_t memory_bytes = 0;
  struct kfd_node node = {0};
  struct error no_node;
  const char *arch = getenv("WAVETUNE_ARCH");

  if (hip_api.device_get(&device, ordinal) != 0 ||
      hip_api.device_name(name, sizeof name, device) != 0 || !name[0] ||
      hip_api.device_pci(pci, sizeof pci, device) != 0 || hip_api.version(&version) != 0)
    return error_set(error, "the HIP runtime does not describe the GPU; run `rocminfo` to see why");
  if (!kfd_node_find(kfd_topology_folder(), pci, &node, &no_node) && !(arch && *arch))
    return error_set(
        error,
        "the gfx target of the %s is not known: %s; show the container /sys, or name the "
        "gfx target in WAVETUNE_ARCH",
        name, no_node.message);

  /* Values that the topology lacks may be attributes. hipDeviceAttribute_t was renumbered before
   * HIP 5; in 5, 6 and 7 those used here are the same (headers of 5.2.3, 6.2 and 7.1). Other
   * versions are not queried. */
  int major = version / 10000000;
  bool has_attributes = major >= 5 && major <= 7;
  int64_t memory_clock_mhz = 0, threads_max = 0;
  if (has_attributes) {
    const struct {
      int64_t *value;
      int attribute, unit;
    } missing[] = {{&node.compute_units, 63, 1},   {&node.wavefront_size, 87, 1},
                   {&node.lds_bytes, 74, 1},       {&node.l2_bytes, 19, 1},
                   {&node.clock_max_mhz, 5, 1000}, {&memory_clock_mhz, 60, 1000},
                   {&threads_max, 56, 1}};
    list_foreach (value, missing)
      if (!*value->value)
        *value->value = attribute(device, value->attribute) / value->unit;
  }

  if (node.compute_units < 1)
    return error_set(
        error, "the number of compute units of the GPU (%s) is not known; show the container /sys",
        name);

  json_t *facts = json_object();
  bool has_memory = hip_api.device_memory(&memory_bytes, device) == 0;
  gpu_fact_set(facts, "memory_bytes", has_memory ? (int64_t)memory_bytes : node.memory_bytes);
  gpu_fact_set(facts, "hip_version", version);
  gpu_fact_set(facts, "l2_bytes", node.l2_bytes);
  gpu_fact_set(facts, "llc_bytes", node.llc_bytes);
  gpu_fact_set(facts, "simds_per_cu", node.simds_per_cu);
  gpu_fact_set(facts, "waves_per_simd", node.waves_per_simd);
  gpu_fact_set(facts, "lds_bytes", node.lds_bytes);
  gpu_fact_set(facts, "xccs", node.xccs);
  gpu_fact_set(facts, "gpu_id", node.gpu_id);
  gpu_fact_set(facts, "clock_max_mhz", node.clock_max_mhz);
  gpu_fact_set(facts, "memory_clock_max_mhz", memory_clock_mhz);
  gpu_fact_set(facts, "threads_max", threads_max);
  json_put(facts, "pci", json_string(pci));
  *ret_facts = (struct gpu_facts){
      .environment = {.rocm = hip_rocm_version(rocm_folder(), version),
                      .gpu = xstrdup(name),
                      .arch = xstrdup(arch && *arch ? arch : node.arch),
                      .partition = kfd_partition(PCI_DEVICES, pci),
                      .compute_units = node.compute_units},
      .warp_size = node.wavefront_size,
      .cache_bytes = (size_t)(node.l2_bytes + node.llc_bytes),
      .pci = xstrdup(pci),
      .facts = facts,
  };
  return true;
}

/* Read once a round: the file of the GPU that this process measures on stays open. */
static double hip_clock_mhz(const struct gpu_facts *facts) {
  static char *pci;
  static int fd = -1;

  if (!string_equal(pci, facts->pci)) {
    if (fd >= 0)
      close(fd);
    free(pci);
    pci = xstrdup(facts->pci);
    fd = kfd_clock_open(PCI_DEVICES, pci);
  }
  return kfd_clock_mhz(fd);
}

static json_t *hip_conditions(const struct gpu_facts *facts) {
  json_t *conditions = kfd_conditions(PCI_DEVICES, facts->pci);
  int64_t gpu_id = json_integer_value(json_object_get(facts->facts, "gpu_id"));
  const char *dev_kernarg = getenv("HIP_FORCE_DEV_KERNARG");
  size_t n, n_own;
  json_put(conditions, "hip_force_dev_kernarg", json_string(dev_kernarg ? dev_kernarg : ""));
  if (gpu_id && kfd_processes(kfd_processes_folder(), gpu_id, gpu_process_is_own, &n, &n_own))
    gpu_processes_set(conditions, n, n_own);
  return conditions;
}

bool hip_user_find(const json_t *facts, struct device_user *ret_user, struct error *error) {
  int64_t gpu_id = json_integer_value(json_object_get(facts, "gpu_id")), pid;
  const char *folder = kfd_processes_folder();
  if (!gpu_processes_are_named(error))
    return false;
  if (!gpu_id)
    return error_set(error, "its id in the KFD's topology is not known; show the container /sys");
  if (!kfd_process_find(folder, gpu_id, gpu_process_is_other, &pid))
    return error_set(error, "the driver lists no processes in %s; show the container /sys", folder);
  *ret_user = gpu_process_user(pid);
  return true;
}

static const char *const visible_variables[] = {"HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES",
                                                NULL};

struct gpu_api hip_api = {
    .ops = &hip_ops,
    .library = "HIP runtime",
    .visible_variables = visible_variables,
    .load = hip_load,
    .error_words = hip_error_words,
    .facts_read = hip_facts_read,
    /* device_enter is hipSetDevice. device_leave is NULL: a HIP device has one context, which lives
     * as long as the process. */
    /* shared_allow is NULL: all 64 KiB of LDS (160 KiB on gfx950) can be used without a call.
     * hipFuncSetAttribute is for functions that were linked into the program, not for those of
     * modules. */
    .launch_special = hip_launch_cooperative,
    .no_clusters = "HIP has none on AMD GPUs",
    /* sentinel_image is NULL: the runtime loads no code that fits every gfx target. The sentinel
     * runs the runtime's own fill and copy kernels; the baseline, checked against the kernel's
     * reference when a lease opens, covers launches. */
    .clock_mhz = hip_clock_mhz,
    .conditions = hip_conditions,
};
