/* NVIDIA's management library without a GPU: what the agent asks of it, with lists of processes
 * that the test states in $FAKE_NVML: "compute graphics clients", each a process id, 0 (none) or -N
 * (the call returns N). Found by WAVETUNE_NVML_LIBRARY. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_INSUFFICIENT_SIZE 7

struct process {
  unsigned pid;
  unsigned long long memory_bytes;
  unsigned gpu_instance, compute_instance;
};

int nvmlInit_v2(void);
int nvmlSystemGetDriverVersion(char *version, unsigned size);
int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, void **device);
int nvmlDeviceGetClockInfo(void *device, int type, unsigned *mhz);
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts);
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius);
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *all);
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, unsigned *count, struct process *all);
int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *device, unsigned *count, struct process *all);

static int gpu;

int nvmlInit_v2(void) { return 0; }

int nvmlSystemGetDriverVersion(char *version, unsigned size) {
  snprintf(version, size, "570.1");
  return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, void **device) {
  *device = &gpu;
  return strcmp(pci, "00000000:17:00.0") == 0 ? 0 : 6; /* NVML_ERROR_NOT_FOUND */
}

int nvmlDeviceGetClockInfo(void *device, int type, unsigned *mhz) {
  (void)device, (void)type;
  *mhz = 1980;
  return 0;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) {
  (void)device;
  *milliwatts = 70000;
  return 0;
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius) {
  (void)device, (void)sensor;
  *celsius = 30;
  return 0;
}

static int list(int number, unsigned *count, struct process *all) {
  const char *stated = getenv("FAKE_NVML");
  int pids[3] = {0};
  if (!stated || sscanf(stated, "%d %d %d", &pids[0], &pids[1], &pids[2]) != 3)
    return 999;
  int pid = pids[number];
  if (pid < 0)
    return -pid;
  if (pid && *count == 0) {
    *count = 1;
    return ERROR_INSUFFICIENT_SIZE;
  }
  *count = pid ? 1 : 0;
  if (pid)
    all[0] = (struct process){.pid = (unsigned)pid, .memory_bytes = 1 << 20};
  return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *all) {
  (void)device;
  return list(0, count, all);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, unsigned *count, struct process *all) {
  (void)device;
  return list(1, count, all);
}

int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *device, unsigned *count, struct process *all) {
  (void)device;
  return list(2, count, all);
}
