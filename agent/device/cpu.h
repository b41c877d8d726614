/* The CPU back end: a kernel is a shared object, a launch a call in this process, on one thread.
 *
 * Objects export `void wavetune_launch(void **arguments)` (agent/compile/launch_source.h). A kernel
 * that faults ends the worker's process. */
#ifndef WAVETUNE_AGENT_DEVICE_CPU_H
#define WAVETUNE_AGENT_DEVICE_CPU_H

#include "agent/device/device.h"

extern const struct device_ops cpu_ops;

/* The machine's CPUs. */
struct cpu_facts {
  char *model;      /* "AMD EPYC 9654 96-Core Processor" */
  char *machine;    /* "x86_64" */
  int64_t cpus;     /* online */
  size_t l2_bytes;  /* of one core; 0: not known */
  size_t llc_bytes; /* the last level that one core reaches; 32 MiB where it is not known */
  int64_t memory_bytes;
};
void cpu_facts_read(struct cpu_facts *ret_facts);
void cpu_facts_release(struct cpu_facts *facts);
#define cleanup_cpu_facts __attribute__((cleanup(cpu_facts_release)))

/* How much of this machine's memory, and of the control group's limit, a process can have; 0 when
 * it is not known. */
size_t cpu_memory_free(void);

/* The clock of the CPU that the caller runs on, in MHz; 0 when it is not known. */
double cpu_clock_mhz(void);

#endif
