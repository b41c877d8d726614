/* What the files of the GPU back ends share: gpu_runtime.c (how a runtime starts), gpu.c (memory,
 * modules, launches), gpu_fingerprint.c and gpu_timing.c (preparations, samples).
 *
 * Memory: a device owns what its members point to. Threads: one thread to a device. */
#ifndef WAVETUNE_AGENT_DEVICE_GPU_DEVICE_H
#define WAVETUNE_AGENT_DEVICE_GPU_DEVICE_H

#include "agent/device/gpu.h"

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
  /* Pinned memory, kept for the next problem: it costs a quarter of a millisecond a MiB to make. */
  struct host_buffer *host_buffers;
  size_t n_host_buffers, host_buffers_capacity, host_buffers_bytes;
  unsigned char *canaries_host; /* made when first needed */

  /* Of gpu_fingerprint.c. */
  bool is_fingerprint_tried;
  struct device_module *fingerprint;
  void *parts; /* what its workgroups leave */
  struct fingerprint *parts_host;

  /* Of gpu_timing.c; made when first needed. */
  void *(*events)[2];
  struct interval *intervals; /* one for each pair */
  size_t n_event_pairs;
  void *head_start, *head_start_host; /* what is copied to keep the device busy, and where to */
  double head_start_us;               /* one copy lasts at least so long */
  void *displacement;
  uint32_t displacement_value;
  struct device_module *instruction_flush;
  struct {
    bool is_calibrated;
    double empty_us;       /* the interval of a sample without calls */
    double preparation_us; /* at least, before it */
  } kinds[PREPARE_KINDS];
  double overhead_us;    /* of the last sample; 0: none was taken */
  int64_t busy_until_ns; /* of clock_monotonic_ns: until then at least the device has work */
};

struct device_module {
  void *module, *function;
  char *image; /* HIP keeps referring to what it loaded from */
  char *entry;
  uint32_t shared_allowed; /* dynamic, by this much already */
  double least_us;         /* that a call was measured to take; 0: none was */
};

/* Whether a call succeeded; else the error says which and why, in the runtime's words. */
bool gpu_check(const struct gpu_api *api, int code, struct error *error, const char *what);

/* Starts the runtime for all GPUs that it sees. */
must_check bool gpu_start(const struct gpu_api *api, struct error *error);
/* Starts the runtime for the one GPU that is `name` where it is started for all; *ret_ordinal is
 * its number now. A process that has started a runtime for all, or for this GPU, goes on so; for
 * another GPU it cannot. */
must_check bool gpu_start_for(const struct gpu_api *api, const char *name, int *ret_ordinal,
                              struct error *error);

must_check bool gpu_fill_words(struct gpu_device *device, void *to, uint32_t value, size_t count,
                               struct error *error);
must_check bool gpu_memory_new(struct gpu_device *device, size_t size, void **ret_memory,
                               struct error *error);

/* Give back what gpu_fingerprint.c and gpu_timing.c made. */
void gpu_fingerprint_release(struct gpu_device *device);
void gpu_timing_release(struct gpu_device *device);

#endif
