/* What CUDA's driver tells of a GPU. Memory: facts own all. Threads: one. */
#include "agent/device/cuda.h"
#include "agent/device/nvml.h"

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

/* 0 when the driver does not tell. */
static int attribute(int device, int name) {
  int value = 0;
  return cuda.device_attribute(&value, name, device) == 0 ? value : 0;
}

static void fact_set(json_t *facts, const char *name, int64_t value) {
  if (value > 0)
    ALWAYS(json_object_set_new(facts, name, json_integer(value)) == 0);
}

static json_t *facts_more(int device, size_t memory_bytes, const char *pci) {
  json_t *facts = json_object();
  cleanup_free char *driver = nvml_driver_version();
  fact_set(facts, "memory_bytes", (int64_t)memory_bytes);
  fact_set(facts, "l2_bytes", attribute(device, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE));
  fact_set(facts, "shared_bytes",
           attribute(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
  fact_set(facts, "clock_max_mhz", attribute(device, CU_DEVICE_ATTRIBUTE_CLOCK_RATE) / 1000);
  fact_set(facts, "memory_clock_max_mhz",
           attribute(device, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE) / 1000);
  ALWAYS(json_object_set_new(facts, "pci", json_string(pci)) == 0);
  if (driver)
    ALWAYS(json_object_set_new(facts, "driver", json_string(driver)) == 0);
  return facts;
}

/* "NVIDIA H200 MIG 1g.18gb" is a part of a GPU, and says so in its name alone. */
static char *partition_of(const char *name) {
  const char *mig = strstr(name, "MIG ");
  return xstrdup(mig ? mig : "");
}

bool cuda_facts_read(int ordinal, struct gpu_facts *ret_facts, struct error *error) {
  char name[256] = "", pci[64] = "";
  int device, version = 0;
  size_t memory_bytes = 0;
  if (cuda.device_get(&device, ordinal) != 0 || cuda.device_name(name, sizeof name, device) != 0 ||
      cuda.device_pci(pci, sizeof pci, device) != 0 ||
      cuda.device_memory(&memory_bytes, device) != 0 || cuda.driver_version(&version) != 0)
    return error_set(error, "the CUDA driver does not describe the GPU; `nvidia-smi` may tell why");
  int major = attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  int minor = attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  struct gpu_facts facts = {
      .environment = {.cuda = xasprintf("%d.%d", version / 1000, version % 1000 / 10),
                      .gpu = xstrdup(name),
                      .arch = xasprintf("sm_%d%d", major, minor),
                      .partition = partition_of(name),
                      .compute_units = attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)},
      .warp_size = attribute(device, CU_DEVICE_ATTRIBUTE_WARP_SIZE),
      .cache_bytes = (size_t)attribute(device, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE),
      .shared_bytes =
          (uint32_t)attribute(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
      .pci = xstrdup(pci),
      .facts = facts_more(device, memory_bytes, pci),
  };
  *ret_facts = facts;
  return true;
}

double cuda_clock_mhz(const struct gpu_facts *facts) { return nvml_clock_mhz(facts->pci); }

json_t *cuda_conditions(const struct gpu_facts *facts) { return nvml_conditions(facts->pci); }
