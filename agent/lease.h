/* A lease as the agent works on it, what it measures, and the one function that executes it: compile, measure, hand on.
 * `run` gets leases from a server and spools what they yield; `tune` makes them itself and keeps the measurements.
 *
 * Memory: a lease owns its kernel, key and space. Threads: one thread executes a lease on one device. */
#ifndef WAVETUNE_AGENT_LEASE_H
#define WAVETUNE_AGENT_LEASE_H

#include <stdatomic.h>

#include "agent/compile/compile.h"
#include "common/kernel.h"
#include "common/outcome.h"

struct lease {
  char *id, *job; /* "" for tune */
  int64_t epoch;
  struct kernel *kernel;
  char *sources; /* folder with the kernel's files */
  struct key key;
  struct space *space;
  struct config_ranges configs;
  uint64_t baseline;
  enum stage stage;
  int64_t round, process;
  uint64_t seed;
  char *regime; /* "cold" or "warm" */
};
void lease_release(struct lease *lease);

struct measurement {
  uint64_t config;
  enum outcome outcome;
  char *detail;      /* why not correct; NULL else */
  const char *timer; /* NULL when nothing was timed */
  size_t n;
  double *samples_us, *baseline_us; /* n pairs */
  int64_t compile_ms;
  int64_t device_us; /* time the device was occupied for it */
  double clock_mhz;  /* 0: not known */
  struct code_resources resources;
  int64_t occupancy;        /* workgroups of it that a compute unit holds; CODE_UNKNOWN */
  const json_t *conditions; /* what the device and the machine were like (device.h); NULL: not known */
  struct digest *object;    /* of the compiled object, where it was stored on the server; NULL */
};

struct lease_hooks {
  void *context;
  /* Takes one measurement (borrowed during the call). False: stop, the lease is given up. */
  bool (*measured)(void *context, const struct lease *lease, const struct measurement *measurement);
  /* Polled between steps and while waiting; true: stop as soon as possible (lease lost, agent ends). */
  bool (*stopped)(void *context);
};

#endif
