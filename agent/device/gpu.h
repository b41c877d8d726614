/* GPUs through a vendor's runtime, opened with dlopen: no header or library of a vendor is needed
 * to build.
 *
 * gpu_runtime.c loads and starts a runtime; gpu_stream.c gives it work, gpu_timing.c takes samples,
 * and gpu.c has the rest of struct device_ops, over the calls that HIP and CUDA's driver have in
 * common (GPU_CALLS); hip.c and cuda.c add what differs. An error code is the runtime's own; 0
 * is success. All work of a device is in order, on one stream.
 *
 * Memory: a device owns what its members point to. Threads: one thread to a device; a runtime is
 * loaded by one thread. */
#ifndef WAVETUNE_AGENT_DEVICE_GPU_H
#define WAVETUNE_AGENT_DEVICE_GPU_H

#include "agent/device/device.h"
#include "common/node/environment.h"

/* What is known of a GPU without opening it. */
struct gpu_facts {
  struct environment environment;
  int64_t warp_size;
  size_t cache_bytes;    /* L2 and the levels after it: all that one launch can use */
  uint32_t shared_bytes; /* of a workgroup, after opting in; 0: not known */
  char *pci;             /* "0000:05:00.0" */
  json_t *facts;         /* the rest, as provenance */
};
void gpu_facts_release(struct gpu_facts *facts);
#define cleanup_gpu_facts __attribute__((cleanup(gpu_facts_release)))

/* The calls that have the same parameters in both runtimes: X(member, HIP's symbol, CUDA's symbol,
 * parameters).
 *
 * The prototypes are those of hip_runtime_api.h of HIP 5.2, 6.2 and 7.1 (7.1 takes the source of
 * hipMemcpyHtoDAsync as const); cuda.h of CUDA 12.8 and 13.0 differs in types that are passed the
 * same way: CUdeviceptr is a 64-bit integer, CUdevice and CUresult are int, the value of
 * cuMemsetD32Async is unsigned. (13.0 gives cuEventElapsedTime a second symbol with the same
 * parameters.) */
#define GPU_CALLS(X)                                                                               \
  X(init, "hipInit", "cuInit", (unsigned flags))                                                   \
  X(version, "hipRuntimeGetVersion", "cuDriverGetVersion", (int *version))                         \
  X(device_count, "hipGetDeviceCount", "cuDeviceGetCount", (int *count))                           \
  X(device_get, "hipDeviceGet", "cuDeviceGet", (int *device, int ordinal))                         \
  X(device_name, "hipDeviceGetName", "cuDeviceGetName", (char *name, int size, int device))        \
  X(device_memory, "hipDeviceTotalMem", "cuDeviceTotalMem_v2", (size_t *bytes, int device))        \
  X(device_attribute, "hipDeviceGetAttribute", "cuDeviceGetAttribute",                             \
    (int *value, int attribute, int device))                                                       \
  X(device_pci, "hipDeviceGetPCIBusId", "cuDeviceGetPCIBusId", (char *id, int size, int device))   \
  X(memory_info, "hipMemGetInfo", "cuMemGetInfo_v2", (size_t *free_bytes, size_t *total_bytes))    \
  X(memory_new, "hipMalloc", "cuMemAlloc_v2", (void **address, size_t size))                       \
  X(memory_free, "hipFree", "cuMemFree_v2", (void *address))                                       \
  X(host_memory_new, "hipHostMalloc", "cuMemHostAlloc",                                            \
    (void **address, size_t size, unsigned flags))                                                 \
  X(host_memory_free, "hipHostFree", "cuMemFreeHost", (void *address))                             \
  X(upload, "hipMemcpyHtoDAsync", "cuMemcpyHtoDAsync_v2",                                          \
    (void *to, const void *from, size_t size, void *stream))                                       \
  X(download, "hipMemcpyDtoHAsync", "cuMemcpyDtoHAsync_v2",                                        \
    (void *to, void *from, size_t size, void *stream))                                             \
  X(copy, "hipMemcpyDtoDAsync", "cuMemcpyDtoDAsync_v2",                                            \
    (void *to, void *from, size_t size, void *stream))                                             \
  X(fill_bytes, "hipMemsetD8Async", "cuMemsetD8Async",                                             \
    (void *to, unsigned char value, size_t count, void *stream))                                   \
  X(fill_words, "hipMemsetD32Async", "cuMemsetD32Async",                                           \
    (void *to, int value, size_t count, void *stream))                                             \
  X(stream_new, "hipStreamCreateWithFlags", "cuStreamCreate", (void **stream, unsigned flags))     \
  X(stream_free, "hipStreamDestroy", "cuStreamDestroy_v2", (void *stream))                         \
  X(stream_wait, "hipStreamSynchronize", "cuStreamSynchronize", (void *stream))                    \
  X(event_new, "hipEventCreateWithFlags", "cuEventCreate", (void **event, unsigned flags))         \
  X(event_free, "hipEventDestroy", "cuEventDestroy_v2", (void *event))                             \
  X(event_record, "hipEventRecord", "cuEventRecord", (void *event, void *stream))                  \
  X(event_elapsed, "hipEventElapsedTime", "cuEventElapsedTime",                                    \
    (float *ms, void *start, void *end))                                                           \
  X(module_new, "hipModuleLoadData", "cuModuleLoadData", (void **module, const void *image))       \
  X(module_free, "hipModuleUnload", "cuModuleUnload", (void *module))                              \
  X(function_find, "hipModuleGetFunction", "cuModuleGetFunction",                                  \
    (void **function, void *module, const char *name))                                             \
  X(launch, "hipModuleLaunchKernel", "cuLaunchKernel",                                             \
    (void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,          \
     unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream, void **arguments,    \
     void **extra))

struct gpu_api {
  const struct device_ops *ops;
  const char *library; /* its name in sentences: "HIP runtime" */
  /* Environment variables that list the visible GPUs, by numbers or ids; the first that is set
   * counts. Ends with NULL. */
  const char *const *visible_variables;

  /* Opens the library, which fills the calls, and starts the runtime; later calls in a process
   * return at once. */
  must_check bool (*load)(struct error *error);
#define X(member, hip, cuda, parameters) int(*member) parameters;
  GPU_CALLS(X)
#undef X

  void (*error_words)(int code, const char **ret_name,
                      const char **ret_words); /* NULL: it does not name the code */
  must_check bool (*facts_read)(int ordinal, struct gpu_facts *ret_facts, struct error *error);
  int (*device_enter)(int ordinal);  /* makes it the device of the calling thread */
  void (*device_leave)(int ordinal); /* NULL: not needed */
  /* Allows a function that much dynamic shared memory; NULL: no call is needed. How much it may
   * have without the call depends on its static shared memory. */
  int (*shared_allow)(void *function, uint32_t bytes);
  /* Launches that are cooperative or in clusters. */
  int (*launch_special)(void *function, const struct device_geometry *geometry, void *stream,
                        void **arguments);
  int (*tensormap_encode)(const struct device_tensormap *map); /* where ops->has_tensormaps */
  const char *no_clusters; /* why clusters cannot be launched; NULL: they can */
  /* A kernel for the sentinel, in a form that the runtime loads for any GPU; NULL: there is none.
   * SENTINEL_ENTRY(uint32_t *out) stores in out[i] the result of SENTINEL_STEPS steps of x *
   * 1664525 + 1013904223 from x = i, for SENTINEL_VALUES threads in workgroups of SENTINEL_BLOCK.
   */
  const char *sentinel_image;

  double (*clock_mhz)(const struct gpu_facts *facts);   /* as device_ops.clock_mhz */
  json_t *(*conditions)(const struct gpu_facts *facts); /* as device_ops.conditions */
};

extern struct gpu_api hip_api, cuda_api;
extern const struct device_ops hip_ops, cuda_ops;

#define SENTINEL_ENTRY "wavetune_sentinel"
#define SENTINEL_VALUES 65536
#define SENTINEL_BLOCK 256
#define SENTINEL_STEPS 64

/* What is done before a sample, as bits. */
enum { PREPARE_DISPLACE = 1, PREPARE_FLUSH = 2, PREPARE_KINDS = 4 };

struct host_buffer {
  void *address;
  size_t size;
  bool is_used;
};

struct gpu_device {
  struct device base;
  const struct gpu_api *api;
  int ordinal;
  struct gpu_facts facts;
  void *stream;
  /* Pinned memory, kept for later problems: allocating a MiB takes a quarter of a millisecond. */
  struct host_buffer *host_buffers;
  size_t n_host_buffers, host_buffers_bytes;
  unsigned char *canaries_host; /* allocated when first needed */

  /* Fingerprints. */
  bool is_fingerprint_tried;
  struct device_module *fingerprint;
  void *parts; /* one fingerprint of each workgroup */
  struct fingerprint *parts_host;

  /* Used by gpu_timing.c, and made when first needed. */
  void *(*events)[2];
  struct interval *intervals; /* one for each pair of events */
  size_t n_event_pairs;
  void *head_start, *head_start_host; /* source and target of copies that keep the device busy */
  double head_start_us;               /* the least time that one copy takes */
  void *displacement;
  uint32_t displacement_value;
  struct device_module *instruction_flush;
  struct {
    bool is_calibrated;
    double empty_us;       /* the interval of a sample without calls */
    double preparation_us; /* the least time of the preparation */
  } kinds[PREPARE_KINDS];
  double overhead_us;    /* of the last sample; 0: none was taken */
  int64_t busy_until_ns; /* by clock_monotonic_ns: the device has work at least until then */
};

struct device_module {
  void *module, *function;
  char *image; /* HIP keeps referring to the bytes that it loaded from */
  char *entry;
  uint32_t shared_allowed; /* bytes that shared_allow was last called with */
  double least_us;         /* of the fastest call that was measured; 0: none was */
};

/* gpu_runtime.c */

/* Whether a call succeeded; else the error says which failed and why, in the runtime's words. */
bool gpu_check(const struct gpu_api *api, int code, struct error *error, const char *what);

/* A function of a library and the function pointer that gets it. */
struct gpu_symbol {
  const char *name; /* as the library exports it, version suffix included */
  void *function;   /* address of the pointer */
  bool is_optional; /* NULL where the library does not have it */
};

/* Opens the library that the environment variable names (NULL: none may), else the first of `names`
 * (NULL-terminated) that can be loaded, and finds the symbols. The
 * library stays open, because runtimes have threads. */
must_check bool gpu_library_load(const char *what, const char *variable, const char *const *names,
                                 const struct gpu_symbol *symbols, size_t n_symbols,
                                 struct error *error);

/* Starts the runtime for all visible GPUs. */
must_check bool gpu_start(const struct gpu_api *api, struct error *error);
/* Starts the runtime for one GPU, by its name in a process in which all are visible; *ret_ordinal
 * is its number in this process. A runtime that this process has started for all GPUs, or for this
 * one, is used; one that it started for another GPU is an error. */
must_check bool gpu_start_for(const struct gpu_api *api, const char *name, int *ret_ordinal,
                              struct error *error);

/* Whether this agent, which is this process's parent, started a process, itself or through others:
 * the process descends from it and is of the same session. */
bool gpu_process_is_own(int64_t pid);
/* How many other workers of this agent there are: children of the same parent with the same
 * arguments. */
size_t gpu_process_siblings(void);

/* Whether a process is not this agent's. One that has ended is not: a driver lists it until it has
 * released what the process had. */
bool gpu_process_is_other(int64_t pid);
/* Whether the ids of processes that drivers report are those that this process sees, as in the
 * machine's first pid namespace; the error says what to do. */
must_check bool gpu_processes_are_named(struct error *error);
/* A process by its id; 0: none. */
struct device_user gpu_process_user(int64_t pid);

/* How many of the `n` processes that use a GPU are not this agent's; `n_own` of them are, by their
 * ids. If n_own is 0, the ids are those of another pid namespace (the host's): then this process
 * and its `n_siblings` are assumed to be among them. */
size_t gpu_processes_others(size_t n, size_t n_own, size_t n_siblings);
/* Sets the member "processes" of conditions to that. */
void gpu_processes_set(json_t *conditions, size_t n, size_t n_own);
/* Sets a member of facts, unless the value is not known (0 or less). */
void gpu_fact_set(json_t *facts, const char *name, int64_t value);

/* hip.c, cuda.c: device_ops.user_find. */
must_check bool hip_user_find(const json_t *facts, struct device_user *ret_user,
                              struct error *error);
must_check bool cuda_user_find(const json_t *facts, struct device_user *ret_user,
                               struct error *error);

/* hip.c: "6.4.1", from a ROCm installation's .info/version, else "6.4" of the runtime's own version
 * number. */
must_check char *hip_rocm_version(const char *rocm_folder, int runtime_version);

/* gpu_stream.c */

must_check bool gpu_fill_words(struct gpu_device *device, void *to, uint32_t value, size_t count,
                               struct error *error);
must_check bool gpu_memory_new(struct gpu_device *device, size_t size, void **ret_memory,
                               struct error *error);
/* Takes the image. */
must_check bool gpu_module_new(struct gpu_device *device, char *image, const char *entry,
                               struct device_module **ret_module, struct error *error);
/* Members of struct device_ops. */
must_check bool gpu_copy(struct device *device, void *to, const void *from, size_t size,
                         struct error *error);
must_check bool gpu_module_load(struct device *device, const char *object, const char *entry,
                                struct device_module **ret_module, struct error *error);
void gpu_module_unload(struct device *device, struct device_module *module);
must_check bool gpu_launch(struct device *device, const struct device_launch *launch,
                           struct error *error);
must_check bool gpu_synchronize(struct device *device, struct error *error);

/* gpu_timing.c */
must_check bool gpu_time(struct device *device, struct device_timing *timings, size_t n,
                         struct error *error);
must_check bool gpu_instruction_flush_set(struct device *device, const char *object,
                                          struct error *error);
void gpu_timing_release(struct gpu_device *device);

#endif
