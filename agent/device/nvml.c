/* What NVIDIA's management library tells of a GPU's state: clocks, power, temperature, who else
 * uses it.
 *
 * Prototypes and structs are those of nvml.h of CUDA 12.9; nvmlReturn_t is int, a device handle a
 * pointer. The library comes with the driver but not into every container: without it nothing is
 * known, which is no error. Memory: static; the library stays open. Threads: one. */
#include "agent/device/nvml.h"

#define NVML_CLOCK_SM 1
#define NVML_CLOCK_MEM 2
#define NVML_TEMPERATURE_GPU 0
#define NVML_ERROR_INSUFFICIENT_SIZE 7
#define PROCESSES_MAX 256

struct nvml_process { /* nvmlProcessInfo_t of the _v3 call */
  unsigned pid;
  unsigned long long memory_bytes;
  unsigned gpu_instance, compute_instance;
};

/* X(member, symbol, is_optional, parameters) */
#define NVML_CALLS(X)                                                                              \
  X(init, "nvmlInit_v2", false, (void))                                                            \
  X(driver_version, "nvmlSystemGetDriverVersion", false, (char *version, unsigned size))           \
  X(find, "nvmlDeviceGetHandleByPciBusId_v2", false, (const char *pci, void **device))             \
  X(clock, "nvmlDeviceGetClockInfo", false, (void *device, int type, unsigned *mhz))               \
  X(power, "nvmlDeviceGetPowerUsage", false, (void *device, unsigned *milliwatts))                 \
  X(temperature, "nvmlDeviceGetTemperature", false, (void *device, int sensor, unsigned *celsius)) \
  X(throttle, "nvmlDeviceGetCurrentClocksThrottleReasons", true,                                   \
    (void *device, unsigned long long *reasons))                                                   \
  X(processes, "nvmlDeviceGetComputeRunningProcesses_v3", true,                                    \
    (void *device, unsigned *count, struct nvml_process *processes))

struct nvml_calls {
#define X(member, symbol, is_optional, parameters) int(*member) parameters;
  NVML_CALLS(X)
#undef X
};

static struct nvml_calls nvml;

static bool nvml_load(void) {
  static const char *const names[] = {"libnvidia-ml.so.1", NULL};
  static const struct gpu_symbol symbols[] = {
#define X(member, symbol, is_optional, parameters)                                                 \
  {symbol, offsetof(struct nvml_calls, member), is_optional},
      NVML_CALLS(X)
#undef X
  };
  static enum { UNTRIED, ABSENT, LOADED } state;
  struct error ignored;
  if (state == UNTRIED) {
    bool loaded = gpu_library_load("NVIDIA management library", names, symbols,
                                   ARRAY_LENGTH(symbols), &nvml, &ignored);
    state = loaded && nvml.init() == 0 ? LOADED : ABSENT;
  }
  return state == LOADED;
}

/* The handle of the last GPU that was asked for is kept: a process measures on one, and asks it
 * once a round. */
static void *device_find(const char *pci) {
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

char *nvml_driver_version(void) {
  char version[96] = "";
  return nvml_load() && nvml.driver_version(version, sizeof version) == 0 && version[0]
             ? xstrdup(version)
             : NULL;
}

double nvml_clock_mhz(const char *pci) {
  void *device = device_find(pci);
  unsigned mhz;
  return device && nvml.clock(device, NVML_CLOCK_SM, &mhz) == 0 ? mhz : 0;
}

static void member_set(json_t *conditions, const char *name, json_t *taken) {
  ALWAYS(json_object_set_new(conditions, name, taken) == 0);
}

/* nvmlClocksThrottleReason… of nvml.h. Idle and clocks that were set by an administrator are no
 * throttling. */
static json_t *throttle_reasons(unsigned long long reasons) {
  static const struct {
    unsigned long long bit;
    const char *name;
  } names[] = {
      {0x04, "power cap"},        {0x08, "hardware slowdown"}, {0x20, "thermal"},
      {0x40, "hardware thermal"}, {0x80, "power brake"},
  };
  json_t *list = json_array();
  for (size_t i = 0; i < ARRAY_LENGTH(names); i++)
    if (reasons & names[i].bit)
      ALWAYS(json_array_append_new(list, json_string(names[i].name)) == 0);
  return list;
}

static void processes_set(void *device, json_t *conditions) {
  struct nvml_process processes[PROCESSES_MAX];
  unsigned n = PROCESSES_MAX;
  size_t own = 0;
  if (!nvml.processes)
    return;
  int code = nvml.processes(device, &n, processes);
  if (code != 0 && code != NVML_ERROR_INSUFFICIENT_SIZE)
    return;
  for (unsigned i = 0; code == 0 && i < n; i++)
    own += gpu_process_is_own(processes[i].pid);
  member_set(
      conditions, "processes",
      json_integer((json_int_t)gpu_processes_others(n, own, own ? 0 : gpu_process_siblings())));
}

json_t *nvml_conditions(const char *pci) {
  json_t *conditions = json_object();
  void *device = device_find(pci);
  unsigned value;
  unsigned long long reasons;
  if (!device)
    return conditions;
  if (nvml.clock(device, NVML_CLOCK_SM, &value) == 0)
    member_set(conditions, "clock_mhz", json_integer(value));
  if (nvml.clock(device, NVML_CLOCK_MEM, &value) == 0)
    member_set(conditions, "memory_clock_mhz", json_integer(value));
  if (nvml.power(device, &value) == 0)
    member_set(conditions, "power_w", json_real((double)value / 1000));
  if (nvml.temperature(device, NVML_TEMPERATURE_GPU, &value) == 0)
    member_set(conditions, "temperature_c", json_integer(value));
  if (nvml.throttle && nvml.throttle(device, &reasons) == 0)
    member_set(conditions, "throttle", throttle_reasons(reasons));
  processes_set(device, conditions);
  return conditions;
}
