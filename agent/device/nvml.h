/* The state of an NVIDIA GPU, by NVIDIA's management library where it is installed. GPUs are named
 * by PCI address. Memory: what is returned is the caller's. Threads: one. */
#ifndef WAVETUNE_AGENT_DEVICE_NVML_H
#define WAVETUNE_AGENT_DEVICE_NVML_H

#include "agent/device/gpu.h"

char *nvml_driver_version(void); /* "580.65.06"; NULL when it is not known */
double nvml_clock_mhz(const char *pci);
must_check json_t *
nvml_conditions(const char *pci); /* as device.h says, and "throttle": why the clock is held down */

#endif
