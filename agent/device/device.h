/* The interface between measuring and a device's runtime: a table of functions for each back end.
 *
 * A back end opens devices, allocates buffers on them, loads compiled objects, launches and times
 * them. Callers use the table through device->ops and do not depend on the back end.
 * The CPU back end (cpu.c) loads shared objects; the GPU back ends (gpu.h) load code objects
 * through a vendor's runtime.
 *
 * Work is done in order, as on a GPU's stream: launches and copies may still run when the call
 * returns, and a later call may report their failure; synchronize() waits for them. time() waits
 * for what it timed.
 *
 * Memory: buffers and modules belong to the caller, which frees them before it closes the device.
 * Threads: one thread to a device. */
#ifndef WAVETUNE_AGENT_DEVICE_DEVICE_H
#define WAVETUNE_AGENT_DEVICE_DEVICE_H

#include "agent/device/fingerprint.h"
#include "common/base/json.h"
#include "common/builds/launch_arguments.h"
#include "common/regime/regime.h"

struct device_ops;

/* The first member of each back end's device. */
struct device {
  const struct device_ops *ops;
  char *gpu_name, *arch; /* as the environment states them */
  int64_t compute_units; /* as the environment states them */
  int64_t warp_size;     /* lanes of a wavefront; 1 on a CPU */
  /* Once this many bytes are written no data cache holds earlier data: from the target's row in
   * common/code/gpu_target.h (512 MiB on gfx942), else twice the last-level cache. */
  size_t displacement_bytes;
  size_t memory_bytes;  /* free for buffers when it was opened; 0: not known */
  bool has_fingerprint; /* fingerprint() may be called */
};

/* Device memory of `size` bytes at `address` (as a kernel sees it), aligned to at least 4,096
 * bytes, between canary bytes and, on the CPU, pages that fault. */
struct device_buffer {
  void *address;
  size_t size;
};

struct device_module; /* a loaded object with one entry point */

/* A launch's grid in workgroups and block in threads; all zero where a launch is one call (language
 * c). A grid with a zero extent is not launched at all. */
struct device_geometry {
  uint32_t grid[3], block[3];
  uint32_t shared_bytes; /* dynamic LDS or shared memory; the back end opts in where a runtime
                            demands it */
  uint32_t cluster;      /* workgroups of a cluster along x; 0 and 1: none */
  bool cooperative;      /* all workgroups at once, so that they may wait for one another */
};

/* Memory that is filled before a call and as a part of it: `size` bytes, a multiple of 4, from
 * where a buffer argument points. */
struct device_fill {
  void *const *pointer; /* the argument's storage */
  size_t size;
  uint32_t word;
};

/* A CUtensorMap that is encoded before each call, since buffers move; only where
 * ops->has_tensormaps. Dimensions are as CUDA's driver takes them, innermost first. */
struct device_tensormap {
  void *const *base; /* the storage of the buffer argument */
  int type, swizzle, fill;
  uint32_t rank;
  uint64_t shape[TENSORMAP_RANK_MAX], strides[TENSORMAP_RANK_MAX];
  uint32_t box[TENSORMAP_RANK_MAX];
  void *encoded; /* TENSORMAP_BYTES, aligned to TENSORMAP_ALIGNMENT; an argument's storage */
};

/* One call: arguments[i] points to the storage of argument i (of a buffer: a variable with its
 * address; of a scalar: the value), which is read when the launch is given. What is filled is
 * filled even where the grid has a zero extent. */
struct device_launch {
  struct device_module *module;
  struct device_geometry geometry;
  void **arguments;
  size_t n_fills, n_tensormaps;
  const struct device_fill *fills;
  const struct device_tensormap *tensormaps;
};

/* A buffer argument that moves from call to call, so that no call finds its operands in a cache:
 * call k of all uses copy k % n_copies, at base + copy * stride. Where `pristine` is not NULL the
 * kernel changes what it reads: the copy is restored from there after each call. */
struct device_operand {
  void **pointer; /* the argument's storage, `offset` bytes behind the copy's beginning */
  char *base;
  size_t stride, size;
  const void *pristine;
  size_t offset;
};

struct device_rotation {
  size_t n_operands;
  struct device_operand *operands;
  size_t n_copies;
  size_t next;   /* the copy that the next call uses; advanced by time() */
  bool displace; /* displace the caches before each sample: the operands are too large to be
                    copied */
  bool flush_instructions; /* flush the instruction caches before each sample; instruction_flush_set
                              was called */
};

/* Whether each sample is prepared. That affects only its first call, so such a sample has one. */
static inline bool rotation_prepares(const struct device_rotation *rotation) {
  return rotation->displace || rotation->flush_instructions;
}

/* Whether calls change what they read. */
static inline bool rotation_restores(const struct device_rotation *rotation) {
  for (size_t i = 0; i < rotation->n_operands; i++)
    if (rotation->operands[i].pristine)
      return true;
  return false;
}

/* Points the arguments to the next copies. */
static inline void rotation_step(struct device_rotation *rotation) {
  size_t copy = rotation->next;
  for (size_t i = 0; i < rotation->n_operands; i++)
    *rotation->operands[i].pointer = rotation->operands[i].base +
                                     copy * rotation->operands[i].stride +
                                     rotation->operands[i].offset;
  rotation->next = copy + 1 < rotation->n_copies ? copy + 1 : 0;
}

/* One sample: `calls` calls, each directly after the last. `us` is T - t: the interval of an empty
 * sample with the same preparations (displacing, flushing, head start) is subtracted. */
struct device_timing {
  struct device_launch launch;
  struct device_rotation *rotation;
  unsigned calls;
  double us; /* result: the mean time of a call */
};

/* A process that uses a device. */
struct device_user {
  int64_t pid;   /* 0: there is none */
  char name[32]; /* printable ASCII, which it chose itself; "": not known */
};

struct device_ops {
  const char *backend; /* "cpu" */
  const char *timer;   /* the clock that time() reads; stored with every measurement */

  /* The devices: an array of {"backend", "device", "name", "environment", "facts"} (a new
   * reference). False: there are none; the error says why. */
  must_check bool (*probe)(json_t **ret_devices, struct error *error);
  must_check bool (*open)(const char *name, struct device **ret_device, struct error *error);
  void (*close)(struct device *device);

  must_check bool (*buffer_new)(struct device *device, size_t size,
                                struct device_buffer **ret_buffer, struct error *error);
  void (*buffer_free)(struct device *device, struct device_buffer *buffer);
  /* Whether the canary bytes around a buffer are unchanged; the error says where they are not.
   * Restores them. */
  must_check bool (*buffer_intact)(struct device *device, struct device_buffer *buffer,
                                   struct error *error);
  /* Host to device, device to host, device to device. */
  must_check bool (*upload)(struct device *device, void *to, const void *bytes, size_t size,
                            struct error *error);
  must_check bool (*download)(struct device *device, void *bytes, const void *from, size_t size,
                              struct error *error);
  must_check bool (*copy)(struct device *device, void *to, const void *from, size_t size,
                          struct error *error);
  /* Repeats `word` over `size` bytes of the device's memory; `to` is 4-byte aligned, the last word
   * may be cut. */
  must_check bool (*fill)(struct device *device, void *to, uint32_t word, size_t size,
                          struct error *error);
  /* Lets fingerprint() run the object of agent/compile/helper_kernels.h, once it has passed a
   * trial; later calls do nothing, also after a failure. NULL: the host reads the device's memory
   * itself. */
  must_check bool (*fingerprint_set)(struct device *device, const char *object,
                                     struct error *error);
  /* Of `size` bytes at `address`, which is 8-byte aligned; waits for it. */
  must_check bool (*fingerprint)(struct device *device, const void *address, size_t size,
                                 struct fingerprint *ret_fingerprint, struct error *error);
  /* Memory of the host from and to which the device copies fast (pinned, where there is enough of
   * that). It is not cleared. Never NULL. */
  must_check void *(*host_buffer_new)(struct device *device, size_t size);
  void (*host_buffer_free)(struct device *device, void *buffer);

  /* Runs work whose result is known and checks it. A device must pass before it is trusted, and
   * again after a fault. */
  must_check bool (*sentinel)(struct device *device, struct error *error);

  /* Loads a compiled object and finds `entry` in it. */
  must_check bool (*module_load)(struct device *device, const char *object, const char *entry,
                                 struct device_module **ret_module, struct error *error);
  void (*module_unload)(struct device *device, struct device_module *module);

  must_check bool (*launch)(struct device *device, const struct device_launch *launch,
                            struct error *error);
  must_check bool (*synchronize)(struct device *device, struct error *error);

  /* Takes the samples in order, back to back, and waits once, for the last: a larger batch costs
   * less for each sample. With a rotation that restores, each call is timed by itself and the
   * sample is the mean; with any other, one interval around all calls is divided. */
  must_check bool (*time)(struct device *device, struct device_timing *timings, size_t n,
                          struct error *error);
  /* Loads the object of agent/compile/helper_kernels.h, for rotations that flush instruction
   * caches; later calls do nothing. NULL: the device cannot (only AMD's can). */
  must_check bool (*instruction_flush_set)(struct device *device, const char *object,
                                           struct error *error);
  bool has_tensormaps; /* launches may have tensor maps */
  bool is_host;        /* kernels run in this process, and could manipulate its clock */
  bool is_synchronous; /* a call has ended when launch() returns: it is known which config crashes
                          or hangs */
  /* The core clock now, in MHz; 0 when it is not known. Cheap enough to be read once a round. */
  double (*clock_mhz)(struct device *device);
  /* The device's state, stored as provenance (a new reference). Members that are known, of:
   * {"clock_mhz", "memory_clock_mhz", "power_w", "temperature_c", "processes": how many other than
   * this agent's use it, "throttle": why the clock is held down, "overhead_us": subtracted from the
   * last intervals}. */
  must_check json_t *(*conditions)(struct device *device);

  /* Finds a process on a device other than this one and its siblings, the workers of one agent: one
   * that has memory or a queue there. The device need not be open; `facts` are those that probe()
   * reported. NULL: the back end cannot see other processes. */
  must_check bool (*user_find)(const json_t *facts, struct device_user *ret_user,
                               struct error *error);
};

/* Every device of every back end of this machine, GPUs first, with "runs" (run_of_regime). A back
 * end without a runtime or a GPU has none, which is no error; *ret_absent (a new reference) says
 * why: [{"backend", "reason"}]. */
must_check bool devices_probe(json_t **ret_devices, json_t **ret_absent, struct error *error);

/* Opens a device by the name that probe gave it ("cpu0"). A process that opens a GPU and has not
 * probed hides all others from the runtime: it can open none of them. */
must_check bool device_open(const char *name, struct device **ret_device, struct error *error);
/* device_ops.user_find for the device of that name. */
must_check bool device_user_find(const char *name, const json_t *facts,
                                 struct device_user *ret_user, struct error *error);
/* Whether the back end can launch the calls of a sample like this. */
bool device_launches(const struct device_ops *ops, enum regime_launch launch);
/* Whether kernels for the device of that name run in the process that opens it. */
bool device_is_host(const char *name);
static inline void device_close(struct device *device) { device->ops->close(device); }

/* For back ends: $WAVETUNE_DISPLACEMENT_BYTES where it is set, else `bytes`. The variable is for
 * checking that a larger size makes no difference. */
size_t device_displacement(size_t bytes);

/* Memory of the host, in large pages where it is large: page faults and strided access cost less.
 * Freed by free(). Never NULL. */
must_check void *host_memory_new(size_t size);

/* The CPU back end: a kernel is a shared object, a launch a call in this process, on one thread.
 *
 * Objects export `void wavetune_launch(void **arguments)` (agent/compile/launch_source.h). A kernel
 * that faults ends the worker's process. */
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
size_t cpu_memory_available(void);

/* The clock of the CPU that the caller runs on, in MHz; 0 when it is not known. */
double cpu_clock_mhz(void);

#endif
