/* GPUs through a vendor's runtime. HIP's calls and those of CUDA's driver are near twins, so one
 * implementation of struct device_ops (gpu.c) works over a table of calls that hip.c and cuda.c
 * fill.
 *
 * Runtimes are opened with dlopen and never linked; no header of theirs is included. An error code
 * is the runtime's own, 0 is success. All work goes in order to one stream of the device's own.
 *
 * Memory: see device.h. Threads: one thread to a device; a runtime is loaded by one thread. */
#ifndef WAVETUNE_AGENT_DEVICE_GPU_H
#define WAVETUNE_AGENT_DEVICE_GPU_H

#include "agent/device/device.h"
#include "common/node/environment.h"

/* What there is to know of one GPU without opening it. */
struct gpu_facts {
  struct environment environment;
  int64_t warp_size;
  size_t cache_bytes;    /* L2 and what lies behind it: all that one launch can use */
  uint32_t shared_bytes; /* of a workgroup, after opting in; 0: not known */
  char *pci;             /* "0000:05:00.0" */
  json_t *facts;         /* the rest, as provenance */
};
void gpu_facts_release(struct gpu_facts *facts);
#define cleanup_gpu_facts __attribute__((cleanup(gpu_facts_release)))

struct gpu_api {
  const struct device_ops *ops;
  const char *library; /* in sentences: "HIP runtime" */
  /* Which GPUs it sees, by numbers or ids in a list: of these the first that is set. Ends with
   * NULL. */
  const char *const *visible_variables;

  /* Opens the runtime and starts it; the second call of a process is free. */
  must_check bool (*load)(struct error *error);
  void (*error_words)(int code, const char **ret_name, const char **ret_words); /* never NULL */
  int (*device_count)(int *ret_n);
  must_check bool (*facts_read)(int ordinal, struct gpu_facts *ret_facts, struct error *error);

  int (*device_enter)(int ordinal); /* makes it the calling thread's device */
  void (*device_leave)(int ordinal);
  int (*memory_info)(size_t *ret_free, size_t *ret_total);
  int (*memory_new)(void **ret_address, size_t size);
  int (*memory_free)(void *address);
  int (*host_memory_new)(void **ret_address,
                         size_t size); /* pinned: copies to it do not hold the host up */
  int (*host_memory_free)(void *address);
  int (*upload)(void *to, const void *from, size_t size, void *stream);
  int (*download)(void *to, const void *from, size_t size, void *stream);
  int (*copy)(void *to, const void *from, size_t size, void *stream);
  int (*fill_bytes)(void *to, uint8_t value, size_t count, void *stream);
  int (*fill_words)(void *to, uint32_t value, size_t count, void *stream);

  int (*stream_new)(void **ret_stream);
  int (*stream_free)(void *stream);
  int (*stream_wait)(void *stream);
  int (*event_new)(void **ret_event);
  int (*event_free)(void *event);
  int (*event_record)(void *event, void *stream);
  int (*event_elapsed)(float *ret_ms, void *start, void *end);

  int (*module_new)(void **ret_module, const void *image);
  int (*module_free)(void *module);
  int (*function_find)(void **ret_function, void *module, const char *name);
  /* Lets a function have so much dynamic shared memory; NULL: nothing has to be asked for. What it
   * may have without depends on how much it has of its own. */
  int (*shared_allow)(void *function, uint32_t bytes);
  int (*launch)(void *function, const struct device_geometry *geometry, void *stream,
                void **arguments);
  const char *no_clusters; /* why clusters cannot be launched; NULL: they can */

  /* A kernel for the sentinel, in a form that the runtime loads for any GPU:
   * SENTINEL_ENTRY(uint32_t *out) leaves sentinel_value(i) in out[i], for SENTINEL_VALUES threads
   * in workgroups of SENTINEL_BLOCK. NULL: there is none. */
  const char *sentinel_image;

  double (*clock_mhz)(const struct gpu_facts *facts);
  json_t *(*conditions)(const struct gpu_facts *facts);
};

#define SENTINEL_ENTRY "wavetune_sentinel"
#define SENTINEL_VALUES 65536
#define SENTINEL_BLOCK 256
#define SENTINEL_STEPS 64

/* Steps of a linear congruential generator from `i`: what a sentinel kernel computes. */
uint32_t sentinel_value(uint32_t i);

extern const struct device_ops hip_ops, cuda_ops;

/* The functions of a back end's struct device_ops that need its table; all others are in
 * GPU_OPS. */
must_check bool gpu_probe(const struct gpu_api *api, json_t **ret_devices, struct error *error);
must_check bool gpu_open(const struct gpu_api *api, const char *name, struct device **ret_device,
                         struct error *error);

void gpu_close(struct device *device);
must_check bool gpu_buffer_new(struct device *device, size_t size,
                               struct device_buffer **ret_buffer, struct error *error);
void gpu_buffer_free(struct device *device, struct device_buffer *buffer);
must_check bool gpu_buffer_intact(struct device *device, struct device_buffer *buffer,
                                  struct error *error);
must_check bool gpu_upload(struct device *device, void *to, const void *bytes, size_t size,
                           struct error *error);
must_check bool gpu_download(struct device *device, void *bytes, const void *from, size_t size,
                             struct error *error);
must_check bool gpu_copy(struct device *device, void *to, const void *from, size_t size,
                         struct error *error);
must_check bool gpu_fill(struct device *device, void *to, uint32_t word, size_t size,
                         struct error *error);
must_check void *gpu_host_buffer_new(struct device *device, size_t size);
void gpu_host_buffer_free(struct device *device, void *buffer);
must_check bool gpu_fingerprint_set(struct device *device, const char *object, struct error *error);
must_check bool gpu_fingerprint(struct device *device, const void *address, size_t size,
                                struct fingerprint *ret_fingerprint, struct error *error);
must_check bool gpu_sentinel(struct device *device, struct error *error);
must_check bool gpu_module_load(struct device *device, const char *object, const char *entry,
                                struct device_module **ret_module, struct error *error);
void gpu_module_unload(struct device *device, struct device_module *module);
must_check bool gpu_launch(struct device *device, const struct device_launch *launch,
                           struct error *error);
must_check bool gpu_synchronize(struct device *device, struct error *error);
must_check bool gpu_time(struct device *device, struct device_timing *timings, size_t n,
                         struct error *error);
must_check bool gpu_instruction_flush_set(struct device *device, const char *object,
                                          struct error *error);
must_check bool gpu_displace(struct device *device, struct error *error);
double gpu_clock_mhz(struct device *device);
must_check json_t *gpu_conditions(struct device *device);

#define GPU_OPS                                                                                    \
  .close = gpu_close, .buffer_new = gpu_buffer_new, .buffer_free = gpu_buffer_free,                \
  .buffer_intact = gpu_buffer_intact, .upload = gpu_upload, .download = gpu_download,              \
  .copy = gpu_copy, .fill = gpu_fill, .fingerprint_set = gpu_fingerprint_set,                      \
  .fingerprint = gpu_fingerprint, .host_buffer_new = gpu_host_buffer_new,                          \
  .host_buffer_free = gpu_host_buffer_free, .sentinel = gpu_sentinel,                              \
  .module_load = gpu_module_load, .module_unload = gpu_module_unload, .launch = gpu_launch,        \
  .synchronize = gpu_synchronize, .time = gpu_time, .displace = gpu_displace,                      \
  .clock_mhz = gpu_clock_mhz, .conditions = gpu_conditions

/* How many of the `n` processes that use a GPU are others, when `n_own` of them are this agent's by
 * their ids. None being so means that they are named as another pid namespace (the host's) knows
 * them; one of them still is this one, and as many as this agent has workers beside it may be
 * those. */
size_t gpu_processes_others(size_t n, size_t n_own, size_t n_siblings);

/* Whether a process is this one or another worker of this agent: a child of the same parent under
 * the same name. */
bool gpu_process_is_own(int64_t pid);
size_t gpu_process_siblings(void); /* how many there are of the latter */

/* A runtime as a shared library: its functions go into a struct of function pointers. */
struct gpu_symbol {
  const char *name; /* as the library exports it, version suffix included */
  size_t offset;    /* of the pointer in the struct */
  bool is_optional; /* NULL where the library does not have it */
};

/* Opens the first of `names` (NULL-terminated) that there is. It stays open for good: runtimes have
 * threads. On failure the error says in one sentence what was tried. */
must_check bool gpu_library_load(const char *what, const char *const *names,
                                 const struct gpu_symbol *symbols, size_t n_symbols,
                                 void *ret_functions, struct error *error);

#endif
