/* A lease as the agent executes it, read from the server's grant (docs/api.md, Leases) or made by
 * `tune`, and the hooks that get its measurements.
 *
 * Memory: a lease owns its kernel, key, space and objects. Threads: a lease belongs to the thread
 * of one device. */
#ifndef WAVETUNE_AGENT_LEASE_LEASE_H
#define WAVETUNE_AGENT_LEASE_LEASE_H

#include <stdatomic.h>

#include "agent/compile/compile.h"
#include "agent/lease/builds.h"
#include "common/kernel/kernel.h"
#include "common/measurement/measurement.h"
#include "common/regime/regime.h"

struct lease {
  char *id, *job; /* of tune: "", and a text that identifies the key */
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
  enum regime regime;
  size_t n_warm_starts;
  uint64_t *warm_starts; /* tried first: winners of neighbouring keys and older environments; some
                            may not be among `configs` */
  double best_ratio;     /* the least ratio to the baseline in other leases; 0: not known */
  int64_t device_us; /* bound of its device time (of a final: after its least rounds); 0: none */
  int64_t budget_us; /* what all leases of its stage may still spend, opening the kernel included
                        (common/verdict/budget.h); 0: not known, and opening is not counted */
  bool has_build;
  struct digest build;
  struct build_objects *objects; /* the build's, for the configs and the baseline; NULL: no build */
  bool is_signed;                /* signatures were required and verified */
  struct digest kernel_key, build_key; /* ids of the signing keys; build_key: if has_build */
};
void lease_release(struct lease *lease);

struct lease_hooks {
  void *context;
  /* Takes one measurement, in which process, round and regime are not set: they are the lease's.
   * `object`: its compiled code for a GPU; NULL: none. Both are borrowed during the call. False:
   * the lease is given up. */
  bool (*measured)(void *context, const struct lease *lease, const struct measurement *measurement,
                   const struct lease_object *object);
  /* Polled between steps and while waiting; true: stop as soon as possible (lease lost, agent
   * ends). */
  bool (*stopped)(void *context);
  /* Called before a batch of a screen begins: false for a config that was given to an idle device.
   * NULL: always true. */
  bool (*is_ours)(void *context, uint64_t config);
};

#define LEASE_CONFIGS_MAX 65536u

/* Reads a lease, without `sources` and `objects`. Refuses one that this agent cannot execute on the
 * device, which is a GPU or the CPU. */
must_check bool lease_read(const json_t *json, bool is_gpu, struct lease *ret, struct error *error);

/* Whether kernels in the language run on the device; the error says where they run. */
must_check bool language_fits(enum language language, bool is_gpu, struct error *error);

#endif
