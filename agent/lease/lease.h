/* A lease as the agent works on it, what it measures, and who is told.
 * `run` gets leases from a server and spools what they yield; `tune` makes them itself and keeps
 * the measurements.
 *
 * Memory: a lease owns its kernel, key, space and objects. Threads: one thread executes a lease on
 * one device. */
#ifndef WAVETUNE_AGENT_LEASE_LEASE_H
#define WAVETUNE_AGENT_LEASE_LEASE_H

#include <stdatomic.h>

#include "agent/compile/compile.h"
#include "agent/lease/builds.h"
#include "common/kernel/kernel.h"
#include "common/measurement/measurement.h"

struct lease {
  char *id, *job; /* of tune: "", and a text that tells the key from others */
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
  size_t n_likely;
  uint64_t *likely;  /* of `configs`, tried first: winners of neighbouring keys and older
                        environments */
  double best_ratio; /* least ratio to the baseline that is known from other leases; 0: none */
  int64_t device_us; /* what it may spend on the device (a final: beyond its least rounds); 0: no
                        bound */
  int64_t budget_us; /* what all leases of its stage may still spend, which opening the kernel is
                        taken from (common/verdict/budget.h); 0: not known, then it is taken from
                        nothing */
  bool has_build;
  struct digest build;
  struct build_objects *objects; /* of the build: its objects for the configs and the baseline */
  bool is_signed;                /* the keys were verified: this agent takes nothing else */
  struct digest kernel_key, build_key; /* ids; the latter where it has a build */
};
void lease_release(struct lease *lease);

struct lease_hooks {
  void *context;
  /* Takes one measurement, without what the lease says of it: process, round, regime. `object`: its
   * compiled code for a GPU; NULL: none. Both are borrowed during the call. False: stop, the lease
   * is given up. */
  bool (*measured)(void *context, const struct lease *lease, const struct measurement *measurement,
                   const struct lease_object *object);
  /* Polled between steps and while waiting; true: stop as soon as possible (lease lost, agent
   * ends). */
  bool (*stopped)(void *context);
  /* Asked before a batch of a screen begins: whether a config is still this lease's, or was given
   * to an idle device. NULL: always. */
  bool (*is_ours)(void *context, uint64_t config);
};

#endif
