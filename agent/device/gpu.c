/* The device_ops of GPUs: opening them, memory between canaries, the sentinel, fingerprints.
 * Launches are in gpu_stream.c, samples in gpu_timing.c.
 *
 * Memory: see device.h. Threads: one thread to a device. */
#include "agent/device/gpu.h"

#include "agent/compile/helper_kernels.h"
#include "common/base/log.h"
#include "common/base/numbers.h"
#include "common/code/gpu_target.h"

#define STREAM_NON_BLOCKING 1 /* of both runtimes */
#define CANARY 0xC5
#define CANARY_BYTES ((size_t)64 << 10) /* on each side of a buffer: a few rows of a matrix */
#define ALIGNMENT ((size_t)4096)
/* of a target that is not in the table: enough for the largest known */
#define DISPLACEMENT_GUESS ((size_t)512 << 20)
#define HOST_BUFFER_UNIT ((size_t)64 << 10)
#define HOST_BUFFER_BYTES_MAX ((size_t)512 << 20) /* a larger one is not pinned */
#define HOST_BUFFERS_BYTES_MAX ((size_t)2 << 30)
#define SENTINEL_BYTES ((size_t)4 << 20)
#define SENTINEL_LAUNCHES 2
/* Workgroups of FINGERPRINT_THREADS threads that fill a compute unit, or nearly. */
#define FINGERPRINT_GROUPS_PER_CU 8
/* A workgroup of a fingerprint costs more than it gains where it has fewer bytes to read. */
#define FINGERPRINT_BYTES_PER_GROUP 32768
#define FINGERPRINT_TRIAL_BYTES 1000003 /* odd, so that the last word is incomplete */

struct gpu_buffer {
  struct device_buffer base;
  void *memory; /* as allocated: padding and canaries, the buffer, canaries */
};

static bool gpu_probe(const struct gpu_api *api, json_t **ret_devices, struct error *error) {
  int n = 0;
  if (!gpu_start(api, error) || !gpu_check(api, api->device_count(&n), error, "counting the GPUs"))
    return false;
  if (n < 1)
    return error_set(error, "the %s sees no GPU", api->library);

  cleanup_json json_t *devices = json_array();
  for (int i = 0; i < n; i++) {
    cleanup_gpu_facts struct gpu_facts facts = {0};
    cleanup_free char *name = xasprintf("%s%d", api->ops->backend, i);
    json_t *device = NULL;
    if (api->facts_read(i, &facts, error)) {
      device = json_pack("{s:s, s:s, s:s, s:o, s:O}", "backend", api->ops->backend, "device", name,
                         "name", facts.environment.gpu, "environment",
                         environment_to_json(&facts.environment), "facts", facts.facts);
      if (!device)
        error_set(error, "its name is not UTF-8");
    }
    if (device) {
      json_push(devices, device);
    } else {
      log_warning("device: %s is left out: %s", name, error->message);
      error_prefix(error, "%s: ", name);
    }
  }

  if (!json_array_size(devices))
    return false;

  *ret_devices = TAKE(devices);
  return true;
}

static bool gpu_open(const struct gpu_api *api, const char *name, struct device **ret_device,
                     struct error *error) {
  cleanup_gpu_facts struct gpu_facts facts = {0};
  size_t free_bytes, total_bytes;
  int ordinal;
  void *stream;
  if (!gpu_start_for(api, name, &ordinal, error))
    return false;
  if (!api->facts_read(ordinal, &facts, error) ||
      !gpu_check(api, api->device_enter(ordinal), error, "opening the GPU"))
    return error_prefix(error, "%s: ", name);
  if (!gpu_check(api, api->memory_info(&free_bytes, &total_bytes), error,
                 "reading the GPU's free memory") ||
      !gpu_check(api, api->stream_new(&stream, STREAM_NON_BLOCKING), error,
                 "making a stream on the GPU")) {
    if (api->device_leave)
      api->device_leave(ordinal);
    return error_prefix(error, "%s: ", name);
  }

  /* AMD's reported cache sizes do not suffice: common/code/gpu_target.c says why. */
  const struct gpu_target *target = gpu_target_find(facts.environment.arch);
  bool is_size_right = facts.cache_bytes && !string_starts(facts.environment.arch, "gfx");
  size_t displacement_bytes = target          ? target->displacement_bytes
                              : is_size_right ? 2 * facts.cache_bytes
                                              : DISPLACEMENT_GUESS;
  struct gpu_device *device = xmalloc(sizeof *device);
  *device = (struct gpu_device){
      .base = {.ops = api->ops,
               .gpu_name = xstrdup(facts.environment.gpu),
               .arch = xstrdup(facts.environment.arch),
               .compute_units = facts.environment.compute_units,
               .warp_size = facts.warp_size,
               .displacement_bytes = device_displacement(displacement_bytes),
               .memory_bytes = free_bytes},
      .api = api,
      .ordinal = ordinal,
      .facts = facts,
      .stream = stream,
  };
  facts = (struct gpu_facts){0};
  *ret_device = &device->base;
  return true;
}

/* The caller may reuse the host's memory when this returns, and when download does. */
static bool upload(struct device *base, void *to, const void *bytes, size_t size,
                   struct error *error) {
  struct gpu_device *device = (struct gpu_device *)base;
  return size == 0 || (gpu_check(device->api, device->api->upload(to, bytes, size, device->stream),
                                 error, "copying to the GPU") &&
                       gpu_synchronize(base, error));
}

/* Does not wait. */
static bool download_enqueue(struct gpu_device *device, void *bytes, const void *from, size_t size,
                             struct error *error) {
  int code = device->api->download(bytes, (void *)(uintptr_t)from, size, device->stream);
  return gpu_check(device->api, code, error, "copying from the GPU");
}

static bool download(struct device *base, void *bytes, const void *from, size_t size,
                     struct error *error) {
  return size == 0 || (download_enqueue((struct gpu_device *)base, bytes, from, size, error) &&
                       gpu_synchronize(base, error));
}

static bool fill_bytes(struct gpu_device *device, void *to, uint8_t value, size_t size,
                       struct error *error) {
  return gpu_check(device->api, device->api->fill_bytes(to, value, size, device->stream), error,
                   "filling GPU memory");
}

static bool fill(struct device *base, void *to, uint32_t word, size_t size, struct error *error) {
  struct gpu_device *device = (struct gpu_device *)base;
  size_t count = size / sizeof word;
  unsigned char bytes[sizeof word];

  memcpy(bytes, &word, sizeof word);
  if (count && !gpu_fill_words(device, to, word, count, error))
    return false;
  for (size_t i = count * sizeof word; i < size; i++)
    if (!fill_bytes(device, (char *)to + i, bytes[i % sizeof word], 1, error))
      return false;
  return true;
}

/* Memory that cannot be pinned is ordinary memory. */
static void *host_buffer_new(struct device *base, size_t size) {
  struct gpu_device *device = (struct gpu_device *)base;
  size_t rounded = HOST_BUFFER_UNIT;
  struct host_buffer *best = NULL;
  void *address;

  if (size > HOST_BUFFER_BYTES_MAX)
    return host_memory_new(size);

  /* Powers of two, so that the buffers of the next problem, a little larger, fit too. */
  while (rounded < size)
    rounded *= 2;

  /* The smallest unused buffer that suffices and is at most twice as large. */
  array_foreach (buffer, device->host_buffers, device->n_host_buffers) {
    if (!buffer->is_used && buffer->size >= rounded && buffer->size / 2 <= rounded &&
        (!best || buffer->size < best->size))
      best = buffer;
  }

  if (best) {
    best->is_used = true;
    return best->address;
  }

  /* Where there are too many, the unused ones, of earlier problems, are freed. */
  if (device->host_buffers_bytes + rounded > HOST_BUFFERS_BYTES_MAX) {
    size_t n = 0;
    array_foreach (buffer, device->host_buffers, device->n_host_buffers) {
      if (buffer->is_used) {
        device->host_buffers[n++] = *buffer;
        continue;
      }
      device->host_buffers_bytes -= buffer->size;
      device->api->host_memory_free(buffer->address);
    }
    device->n_host_buffers = n;
  }

  if (device->host_buffers_bytes + rounded > HOST_BUFFERS_BYTES_MAX ||
      device->api->host_memory_new(&address, rounded, 0) != 0)
    return host_memory_new(rounded);

  *APPEND(device->host_buffers, device->n_host_buffers) =
      (struct host_buffer){address, rounded, true};
  device->host_buffers_bytes += rounded;
  return address;
}

static void host_buffer_free(struct device *base, void *address) {
  struct gpu_device *device = (struct gpu_device *)base;
  array_foreach (buffer, device->host_buffers, device->n_host_buffers) {
    if (buffer->address == address) {
      buffer->is_used = false;
      return;
    }
  }
  free(address);
}

static void buffer_free(struct device *base, struct device_buffer *buffer) {
  ((struct gpu_device *)base)->api->memory_free(((struct gpu_buffer *)buffer)->memory);
  free(buffer);
}

/* Where the canaries before and after a buffer begin. */
static void canaries_of(const struct device_buffer *buffer, char *ret_sides[2]) {
  ret_sides[0] = (char *)buffer->address - CANARY_BYTES;
  ret_sides[1] = (char *)buffer->address + buffer->size;
}

static bool buffer_new(struct device *base, size_t size, struct device_buffer **ret_buffer,
                       struct error *error) {
  struct gpu_device *device = (struct gpu_device *)base;
  size_t total;
  void *memory;
  if (__builtin_add_overflow(size, ALIGNMENT + 2 * CANARY_BYTES, &total))
    return error_set(error, "a buffer of %zu bytes is too large", size);
  if (!gpu_memory_new(device, total, &memory, error))
    return false;

  struct gpu_buffer *buffer = xmalloc(sizeof *buffer);
  uintptr_t start = ((uintptr_t)memory + CANARY_BYTES + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  char *sides[2];
  *buffer = (struct gpu_buffer){{(void *)start, size}, memory};
  canaries_of(&buffer->base, sides);
  if (!fill_bytes(device, sides[0], CANARY, CANARY_BYTES, error) ||
      !fill_bytes(device, sides[1], CANARY, CANARY_BYTES, error)) {
    buffer_free(base, &buffer->base);
    return false;
  }

  *ret_buffer = &buffer->base;
  return true;
}

static bool buffer_intact(struct device *base, struct device_buffer *buffer, struct error *error) {
  struct gpu_device *device = (struct gpu_device *)base;
  char *sides[2];
  bool intact = true;

  canaries_of(buffer, sides);

  /* Both sides with one wait. */
  if (!device->canaries_host)
    device->canaries_host = host_buffer_new(base, 2 * CANARY_BYTES);

  for (size_t i = 0; i < 2; i++)
    if (!download_enqueue(device, device->canaries_host + i * CANARY_BYTES, sides[i], CANARY_BYTES,
                          error))
      return false;
  if (!gpu_synchronize(base, error))
    return false;

  for (size_t i = 0; i < 2; i++) {
    const unsigned char *found = device->canaries_host + i * CANARY_BYTES;
    struct error failure;
    size_t k = 0;
    if (found[0] == CANARY && memcmp(found, found + 1, CANARY_BYTES - 1) == 0)
      continue;
    while (found[k] == CANARY)
      k++;
    if (intact)
      intact = error_set(error, "a byte outside of the buffer was written, at offset %td of %zu",
                         sides[i] + k - (char *)buffer->address, buffer->size);
    if (!fill_bytes(device, sides[i], CANARY, CANARY_BYTES, &failure)) {
      *error = failure;
      return false;
    }
  }
  return intact;
}

/* Fills one half of the memory, copies it to the other half and reads that. Runtimes implement both
 * with kernels. */
static bool sentinel_fill(struct gpu_device *device, char *memory, uint32_t value, uint32_t *found,
                          struct error *error) {
  size_t half = SENTINEL_BYTES / 2, count = half / sizeof value;
  if (!gpu_fill_words(device, memory, value, count, error) ||
      !gpu_copy(&device->base, memory + half, memory, half, error) ||
      !download(&device->base, found, memory + half, half, error))
    return false;
  for (size_t i = 0; i < count; i++)
    if (found[i] != value)
      return error_set(error, "word %zu was filled with %08x and copied, and is %08x", i, value,
                       found[i]);
  return true;
}

static bool sentinel_launch(struct gpu_device *device, struct device_module *module, char *memory,
                            uint32_t *found, struct error *error) {
  void *address = memory;
  struct device_launch launch = {
      module,
      {.grid = {SENTINEL_VALUES / SENTINEL_BLOCK, 1, 1}, .block = {SENTINEL_BLOCK, 1, 1}},
      (void *[]){&address}};
  if (!gpu_fill_words(device, memory, 0, SENTINEL_VALUES, error) ||
      !gpu_launch(&device->base, &launch, error) ||
      !download(&device->base, found, memory, SENTINEL_VALUES * sizeof *found, error))
    return false;

  for (uint32_t i = 0; i < SENTINEL_VALUES; i++) {
    uint32_t value = i; /* steps of a linear congruential generator */
    for (int step = 0; step < SENTINEL_STEPS; step++)
      value = value * 1664525u + 1013904223u;
    if (found[i] != value)
      return error_set(error, "thread %u computed %08x instead of %08x", i, found[i], value);
  }

  return true;
}

static bool sentinel(struct device *base, struct error *error) {
  struct gpu_device *device = (struct gpu_device *)base;
  const char *image = device->api->sentinel_image;
  cleanup_free uint32_t *found = xmalloc(SENTINEL_BYTES);
  struct device_module *module = NULL;
  void *memory;

  if (!gpu_memory_new(device, SENTINEL_BYTES, &memory, error))
    return error_prefix(error, "the GPU did not pass the sentinel: ");

  bool passed = sentinel_fill(device, memory, 0x5A5AA5A5, found, error) &&
                sentinel_fill(device, memory, 0xA5A55A5A, found, error) &&
                (!image || gpu_module_new(device, xstrdup(image), SENTINEL_ENTRY, &module, error));

  for (int i = 0; module && passed && i < SENTINEL_LAUNCHES; i++)
    passed = sentinel_launch(device, module, memory, found, error);
  if (module)
    gpu_module_unload(base, module);
  device->api->memory_free(memory);
  return passed || error_prefix(error, "the GPU did not pass the sentinel: ");
}

/* The number of workgroups that suffices for any size. */
static uint32_t fingerprint_groups_max(const struct device *device) {
  return (uint32_t)(device->compute_units > 0 ? device->compute_units : 1) *
         FINGERPRINT_GROUPS_PER_CU;
}

/* Runs the kernel of agent/compile/helper_kernels.h: each workgroup writes the part of its words.
 */
static bool fingerprint(struct device *base, const void *address, size_t size,
                        struct fingerprint *ret_fingerprint, struct error *error) {
  struct gpu_device *device = (struct gpu_device *)base;
  size_t wanted = (size + FINGERPRINT_BYTES_PER_GROUP - 1) / FINGERPRINT_BYTES_PER_GROUP,
         most = fingerprint_groups_max(base);
  uint32_t groups = (uint32_t)(wanted < 1 ? 1 : wanted < most ? wanted : most);
  uint64_t bytes = size;
  struct device_launch launch = {device->fingerprint,
                                 {.grid = {groups, 1, 1}, .block = {FINGERPRINT_THREADS, 1, 1}},
                                 (void *[]){&address, &bytes, &device->parts}};
  if (!gpu_launch(base, &launch, error) || !download(base, device->parts_host, device->parts,
                                                     groups * sizeof *device->parts_host, error))
    return false;

  *ret_fingerprint = (struct fingerprint){0};
  for (uint32_t i = 0; i < groups; i++) {
    ret_fingerprint->sum += device->parts_host[i].sum;
    ret_fingerprint->product += device->parts_host[i].product;
  }

  return true;
}

/* Whether the kernel computes the same fingerprint of random memory as the host. */
static bool fingerprint_trial(struct gpu_device *device, struct error *error) {
  cleanup_free uint64_t *words = xmalloc(FINGERPRINT_TRIAL_BYTES + sizeof *words);
  struct rng rng = rng_seeded(FINGERPRINT_TRIAL_BYTES);
  struct fingerprint found;
  void *memory;

  for (size_t i = 0; i <= FINGERPRINT_TRIAL_BYTES / sizeof *words; i++)
    words[i] = rng_next(&rng);
  if (!gpu_memory_new(device, FINGERPRINT_TRIAL_BYTES, &memory, error))
    return false;

  bool has_run = upload(&device->base, memory, words, FINGERPRINT_TRIAL_BYTES, error) &&
                 fingerprint(&device->base, memory, FINGERPRINT_TRIAL_BYTES, &found, error);
  device->api->memory_free(memory);
  return has_run &&
         (fingerprint_equal(found, fingerprint_part(words, FINGERPRINT_TRIAL_BYTES, 0)) ||
          error_set(error, "the GPU's fingerprint differs from the host's"));
}

static bool fingerprint_set(struct device *base, const char *object, struct error *error) {
  struct gpu_device *device = (struct gpu_device *)base;
  if (device->is_fingerprint_tried)
    return true;
  device->is_fingerprint_tried = true;

  size_t bytes = fingerprint_groups_max(base) * sizeof *device->parts_host;
  device->parts_host = host_buffer_new(base, bytes);
  base->has_fingerprint =
      gpu_module_load(base, object, FINGERPRINT_ENTRY, &device->fingerprint, error) &&
      gpu_memory_new(device, bytes, &device->parts, error) && fingerprint_trial(device, error);
  return base->has_fingerprint;
}

/* After a fault each of these calls fails; then the process exits and the driver frees everything.
 */
static void gpu_close(struct device *base) {
  struct gpu_device *device = (struct gpu_device *)base;
  const struct gpu_api *api = device->api;

  gpu_timing_release(device);
  host_buffer_free(base, device->canaries_host);
  host_buffer_free(base, device->parts_host);
  if (device->parts)
    api->memory_free(device->parts);
  if (device->fingerprint)
    gpu_module_unload(base, device->fingerprint);

  array_foreach (buffer, device->host_buffers, device->n_host_buffers)
    api->host_memory_free(buffer->address);
  free(device->host_buffers);
  api->stream_free(device->stream);
  if (api->device_leave)
    api->device_leave(device->ordinal);
  gpu_facts_release(&device->facts);
  free(base->gpu_name);
  free(base->arch);
  free(device);
}

static double clock_mhz(struct device *base) {
  struct gpu_device *device = (struct gpu_device *)base;
  return device->api->clock_mhz(&device->facts);
}

static json_t *conditions(struct device *base) {
  struct gpu_device *device = (struct gpu_device *)base;
  json_t *found = device->api->conditions(&device->facts);
  if (device->overhead_us > 0)
    json_put(found, "overhead_us", json_real(device->overhead_us));
  return found;
}

static bool hip_probe(json_t **ret_devices, struct error *error) {
  return gpu_probe(&hip_api, ret_devices, error);
}
static bool hip_open(const char *name, struct device **ret_device, struct error *error) {
  return gpu_open(&hip_api, name, ret_device, error);
}
static bool cuda_probe(json_t **ret_devices, struct error *error) {
  return gpu_probe(&cuda_api, ret_devices, error);
}
static bool cuda_open(const char *name, struct device **ret_device, struct error *error) {
  return gpu_open(&cuda_api, name, ret_device, error);
}

#define GPU_OPS                                                                                    \
  .close = gpu_close, .buffer_new = buffer_new, .buffer_free = buffer_free,                        \
  .buffer_intact = buffer_intact, .upload = upload, .download = download, .copy = gpu_copy,        \
  .fill = fill, .fingerprint_set = fingerprint_set, .fingerprint = fingerprint,                    \
  .host_buffer_new = host_buffer_new, .host_buffer_free = host_buffer_free, .sentinel = sentinel,  \
  .module_load = gpu_module_load, .module_unload = gpu_module_unload, .launch = gpu_launch,        \
  .synchronize = gpu_synchronize, .time = gpu_time, .clock_mhz = clock_mhz,                        \
  .conditions = conditions

const struct device_ops hip_ops = {.backend = "hip",
                                   .timer = "hip_event",
                                   .probe = hip_probe,
                                   .open = hip_open,
                                   .instruction_flush_set = gpu_instruction_flush_set,
                                   .user_find = hip_user_find,
                                   GPU_OPS};
const struct device_ops cuda_ops = {.backend = "cuda",
                                    .timer = "cuda_event",
                                    .has_tensormaps = true,
                                    .probe = cuda_probe,
                                    .open = cuda_open,
                                    .user_find = cuda_user_find,
                                    GPU_OPS};
