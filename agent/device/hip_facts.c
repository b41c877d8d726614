/* What the HIP runtime, the KFD's topology and a ROCm installation tell of a GPU.
 *
 * Memory: facts own all. Threads: one. */
#include "agent/device/hip.h"
#include "common/node/kfd.h"
#include "common/node/node.h"

/* hipDeviceAttribute_t, by the runtime's major version: the enum was renumbered before. In 5, 6 and
 * 7 those used here are the same (headers of 5.2.3, 6.2 and 7.1); an unknown version is asked for
 * none of them. */
struct hip_attributes {
  int major;
  int compute_units, warp_size, threads_max, lds_bytes, l2_bytes, clock_khz, memory_clock_khz;
};
static const struct hip_attributes attributes[] = {
    {5, 63, 87, 56, 74, 19, 5, 60},
    {6, 63, 87, 56, 74, 19, 5, 60},
    {7, 63, 87, 56, 74, 19, 5, 60},
};

static const struct hip_attributes *attributes_find(int runtime_version) {
  for (size_t i = 0; i < ARRAY_LENGTH(attributes); i++)
    if (attributes[i].major == runtime_version / 10000000)
      return &attributes[i];
  return NULL;
}

/* 0 when the runtime does not tell. */
static int64_t attribute(int device, int name) {
  int value = 0;
  return hip.device_attribute(&value, name, device) == 0 && value > 0 ? value : 0;
}

char *hip_rocm_version(const char *rocm_folder, int runtime_version) {
  char *installed = rocm_version_read(rocm_folder);
  return installed ? installed
                   : xasprintf("%d.%d", runtime_version / 10000000, runtime_version / 100000 % 100);
}

static void fact_set(json_t *facts, const char *name, int64_t value) {
  if (value > 0)
    ALWAYS(json_object_set_new(facts, name, json_integer(value)) == 0);
}

static json_t *facts_more(int device, const struct hip_attributes *known,
                          const struct kfd_node *node, const char *pci, int runtime_version) {
  json_t *facts = json_object();
  size_t memory_bytes = 0;
  bool is_told = hip.device_memory(&memory_bytes, device) == 0;
  fact_set(facts, "memory_bytes", is_told ? (int64_t)memory_bytes : node->memory_bytes);
  fact_set(facts, "hip_version", runtime_version);
  fact_set(facts, "l2_bytes", node->l2_bytes);
  fact_set(facts, "llc_bytes", node->llc_bytes);
  fact_set(facts, "simds_per_cu", node->simds_per_cu);
  fact_set(facts, "waves_per_simd", node->waves_per_simd);
  fact_set(facts, "lds_bytes", node->lds_bytes);
  fact_set(facts, "xccs", node->xccs);
  fact_set(facts, "gpu_id", node->gpu_id);
  fact_set(facts, "clock_max_mhz", node->clock_max_mhz);
  fact_set(facts, "memory_clock_max_mhz",
           known ? attribute(device, known->memory_clock_khz) / 1000 : 0);
  fact_set(facts, "threads_max", known ? attribute(device, known->threads_max) : 0);
  ALWAYS(json_object_set_new(facts, "pci", json_string(pci)) == 0);
  return facts;
}

/* What the topology does not tell, the attributes may. */
static void node_complete(int device, const struct hip_attributes *known, struct kfd_node *node) {
  if (!known)
    return;
  if (!node->compute_units)
    node->compute_units = attribute(device, known->compute_units);
  if (!node->wavefront_size)
    node->wavefront_size = attribute(device, known->warp_size);
  if (!node->lds_bytes)
    node->lds_bytes = attribute(device, known->lds_bytes);
  if (!node->l2_bytes)
    node->l2_bytes = attribute(device, known->l2_bytes);
  if (!node->clock_max_mhz)
    node->clock_max_mhz = attribute(device, known->clock_khz) / 1000;
}

bool hip_facts_read(int ordinal, struct gpu_facts *ret_facts, struct error *error) {
  char name[256] = "", pci[64] = "";
  int device, version = 0;
  struct kfd_node node = {0};
  struct error no_node;
  const char *arch = getenv("WAVETUNE_ARCH");
  if (hip.device_get(&device, ordinal) != 0 || hip.device_name(name, sizeof name, device) != 0 ||
      !name[0] || hip.device_pci(pci, sizeof pci, device) != 0 ||
      hip.runtime_version(&version) != 0)
    return error_set(error, "the HIP runtime does not describe the GPU; `rocminfo` may tell why");
  if (!kfd_node_find(kfd_topology_folder(), pci, &node, &no_node) && !(arch && *arch))
    return error_set(error,
                     "what kind of GPU the %s is is not known: %s; show the container /sys, or "
                     "name the gfx target in "
                     "WAVETUNE_ARCH",
                     name, no_node.message);
  const struct hip_attributes *known = attributes_find(version);
  node_complete(device, known, &node);
  if (node.compute_units < 1)
    return error_set(
        error, "how many compute units the GPU (%s) has is not known; show the container /sys",
        name);
  *ret_facts = (struct gpu_facts){
      .environment = {.rocm = hip_rocm_version(rocm_folder(), version),
                      .gpu = xstrdup(name),
                      .arch = xstrdup(arch && *arch ? arch : node.arch),
                      .partition = kfd_partition(PCI_DEVICES, pci),
                      .compute_units = node.compute_units},
      .warp_size = node.wavefront_size,
      .cache_bytes = (size_t)(node.l2_bytes + node.llc_bytes),
      .pci = xstrdup(pci),
      .facts = facts_more(device, known, &node, pci, version),
  };
  return true;
}

/* Asked once a round: the file of the GPU that this process measures on stays open. */
double hip_clock_mhz(const struct gpu_facts *facts) {
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

json_t *hip_conditions(const struct gpu_facts *facts) {
  json_t *conditions = kfd_conditions(PCI_DEVICES, facts->pci);
  int64_t gpu_id = json_integer_value(json_object_get(facts->facts, "gpu_id"));
  size_t n, own;
  if (gpu_id && kfd_processes(KFD_PROCESSES, gpu_id, gpu_process_is_own, &n, &own))
    ALWAYS(json_object_set_new(conditions, "processes",
                               json_integer((json_int_t)gpu_processes_others(
                                   n, own, own ? 0 : gpu_process_siblings()))) == 0);
  return conditions;
}
