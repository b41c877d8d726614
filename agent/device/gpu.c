/* The device_ops of GPUs, over the calls of a runtime: memory between canaries, modules, launches.
 * Samples are in gpu_timing.c.
 *
 * Memory: see device.h. Threads: one thread to a device. */
#include "agent/device/gpu_device.h"

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/code/gpu_target.h"

#define CANARY 0xC5
#define CANARY_BYTES ((size_t)64 << 10) /* before and after a buffer: a few rows of a matrix */
#define ALIGNMENT ((size_t)4096)
#define OBJECT_BYTES_MAX ((size_t)256 << 20)
/* of a target that no table has: enough for the largest known */
#define DISPLACEMENT_GUESS ((size_t)512 << 20)
#define HOST_BUFFER_UNIT ((size_t)64 << 10)
#define HOST_BUFFER_BYTES_MAX ((size_t)512 << 20) /* a larger one is not pinned */
#define HOST_BUFFERS_BYTES_MAX ((size_t)2 << 30)
#define SENTINEL_BYTES ((size_t)4 << 20)
#define SENTINEL_LAUNCHES 2

struct gpu_buffer {
  struct device_buffer base;
  char *memory; /* what the runtime gave: padding and canaries, the buffer, canaries */
};

void gpu_facts_release(struct gpu_facts *facts) {
  environment_release(&facts->environment);
  free(facts->pci);
  json_decref(facts->facts);
  *facts = (struct gpu_facts){0};
}

/* Whether a call succeeded; else the error says which and why, in the runtime's words. */
bool gpu_check(const struct gpu_api *api, int code, struct error *error, const char *what) {
  const char *name, *words;
  if (code == 0)
    return true;
  api->error_words(code, &name, &words);
  return error_set(error, "%s failed: %s (%s, %d)", what, words, name, code);
}

bool gpu_probe(const struct gpu_api *api, json_t **ret_devices, struct error *error) {
  int n = 0;
  if (!gpu_start(api, error) || !gpu_check(api, api->device_count(&n), error, "counting the GPUs"))
    return false;
  if (n < 1)
    return error_set(error, "the %s sees no GPU", api->library);
  cleanup_json json_t *devices = json_array();
  for (int i = 0; i < n; i++) {
    cleanup_gpu_facts struct gpu_facts facts = {0};
    cleanup_free char *name = xasprintf("%s%d", api->ops->backend, i);
    /* The others are as good as without it. */
    if (!api->facts_read(i, &facts, error)) {
      log_warning("device: %s is left out: %s", name, error->message);
      error_prefix(error, "%s: ", name);
      continue;
    }
    json_t *device = json_pack("{s:s, s:s, s:s, s:o, s:O}", "backend", api->ops->backend, "device",
                               name, "name", facts.environment.gpu, "environment",
                               environment_to_json(&facts.environment), "facts", facts.facts);
    if (!device) {
      log_warning("device: %s is left out: its name is not UTF-8", name);
      error_set(error, "%s: its name is not UTF-8", name);
      continue;
    }
    ALWAYS(json_array_append_new(devices, device) == 0);
  }
  if (!json_array_size(devices))
    return false;
  *ret_devices = TAKE(devices);
  return true;
}

/* Of an AMD GPU no reported size counts: common/code/gpu_target.c says why. */
static size_t displacement_of(const struct gpu_facts *facts) {
  const struct gpu_target *target = gpu_target_find(facts->environment.arch);
  if (target)
    return target->displacement_bytes;
  bool is_told = facts->cache_bytes && !string_starts(facts->environment.arch, "gfx");
  return is_told ? 2 * facts->cache_bytes : DISPLACEMENT_GUESS;
}

bool gpu_open(const struct gpu_api *api, const char *name, struct device **ret_device,
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
                 "asking the GPU for its free memory") ||
      !gpu_check(api, api->stream_new(&stream), error, "making a stream on the GPU")) {
    api->device_leave(ordinal);
    return error_prefix(error, "%s: ", name);
  }
  struct gpu_device *device = xcalloc(1, sizeof *device);
  device->base = (struct device){
      .ops = api->ops,
      .gpu_name = xstrdup(facts.environment.gpu),
      .arch = xstrdup(facts.environment.arch),
      .compute_units = facts.environment.compute_units,
      .warp_size = facts.warp_size,
      .cache_bytes = facts.cache_bytes,
      .displacement_bytes = device_displacement(displacement_of(&facts)),
      .memory_bytes = free_bytes,
  };
  device->api = api;
  device->ordinal = ordinal;
  device->facts = facts;
  facts = (struct gpu_facts){0};
  device->stream = stream;
  *ret_device = &device->base;
  return true;
}

/* After a fault every call of these fails; then the process ends and the driver takes all back. */
void gpu_close(struct device *base) {
  struct gpu_device *device = (struct gpu_device *)base;
  const struct gpu_api *api = device->api;
  gpu_timing_release(device);
  gpu_fingerprint_release(device);
  for (size_t i = 0; i < device->n_host_buffers; i++)
    api->host_memory_free(device->host_buffers[i].address);
  free(device->host_buffers);
  api->stream_free(device->stream);
  api->device_leave(device->ordinal);
  gpu_facts_release(&device->facts);
  free(base->gpu_name);
  free(base->arch);
  free(device);
}

bool gpu_synchronize(struct device *base, struct error *error) {
  struct gpu_device *device = (struct gpu_device *)base;
  device->busy_until_ns = 0;
  return gpu_check(device->api, device->api->stream_wait(device->stream), error,
                   "waiting for the GPU");
}

/* Host memory is the caller's again when these return. */
bool gpu_upload(struct device *base, void *to, const void *bytes, size_t size,
                struct error *error) {
  struct gpu_device *device = (struct gpu_device *)base;
  return size == 0 || (gpu_check(device->api, device->api->upload(to, bytes, size, device->stream),
                                 error, "copying to the GPU") &&
                       gpu_synchronize(base, error));
}

bool gpu_download(struct device *base, void *bytes, const void *from, size_t size,
                  struct error *error) {
  struct gpu_device *device = (struct gpu_device *)base;
  return size == 0 ||
         (gpu_check(device->api, device->api->download(bytes, from, size, device->stream), error,
                    "copying from the GPU") &&
          gpu_synchronize(base, error));
}

bool gpu_copy(struct device *base, void *to, const void *from, size_t size, struct error *error) {
  struct gpu_device *device = (struct gpu_device *)base;
  return size == 0 || gpu_check(device->api, device->api->copy(to, from, size, device->stream),
                                error, "copying on the GPU");
}

static bool fill_bytes(struct gpu_device *device, void *to, uint8_t value, size_t size,
                       struct error *error) {
  return gpu_check(device->api, device->api->fill_bytes(to, value, size, device->stream), error,
                   "filling GPU memory");
}

bool gpu_fill_words(struct gpu_device *device, void *to, uint32_t value, size_t count,
                    struct error *error) {
  return gpu_check(device->api, device->api->fill_words(to, value, count, device->stream), error,
                   "filling GPU memory");
}

bool gpu_memory_new(struct gpu_device *device, size_t size, void **ret_memory,
                    struct error *error) {
  return gpu_check(device->api, device->api->memory_new(ret_memory, size), error,
                   "allocating GPU memory") ||
         error_prefix(error, "of %zu bytes: ", size);
}

bool gpu_fill(struct device *base, void *to, uint32_t word, size_t size, struct error *error) {
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

/* Takes the unused ones away that are left of other problems. */
static void host_buffers_prune(struct gpu_device *device) {
  size_t n = 0;
  for (size_t i = 0; i < device->n_host_buffers; i++) {
    struct host_buffer *buffer = &device->host_buffers[i];
    if (buffer->is_used) {
      device->host_buffers[n++] = *buffer;
      continue;
    }
    device->host_buffers_bytes -= buffer->size;
    device->api->host_memory_free(buffer->address);
  }
  device->n_host_buffers = n;
}

/* Powers of two, so that the next problem's, which is a little larger, fits too. */
static size_t host_buffer_size(size_t size) {
  size_t rounded = HOST_BUFFER_UNIT;
  while (rounded < size)
    rounded *= 2;
  return rounded;
}

/* The smallest unused one that suffices and is at most twice as large. */
static struct host_buffer *host_buffer_find(struct gpu_device *device, size_t size) {
  struct host_buffer *best = NULL;
  for (size_t i = 0; i < device->n_host_buffers; i++) {
    struct host_buffer *buffer = &device->host_buffers[i];
    if (!buffer->is_used && buffer->size >= size && buffer->size / 2 <= size &&
        (!best || buffer->size < best->size))
      best = buffer;
  }
  return best;
}

/* What cannot be pinned is plain memory. */
void *gpu_host_buffer_new(struct device *base, size_t size) {
  struct gpu_device *device = (struct gpu_device *)base;
  void *address;
  if (size > HOST_BUFFER_BYTES_MAX)
    return host_memory_new(size);
  size = host_buffer_size(size);
  struct host_buffer *found = host_buffer_find(device, size);
  if (found) {
    found->is_used = true;
    return found->address;
  }
  if (device->host_buffers_bytes + size > HOST_BUFFERS_BYTES_MAX)
    host_buffers_prune(device);
  if (device->host_buffers_bytes + size > HOST_BUFFERS_BYTES_MAX ||
      device->api->host_memory_new(&address, size) != 0)
    return host_memory_new(size);
  GROW(device->host_buffers, device->n_host_buffers, device->host_buffers_capacity);
  device->host_buffers[device->n_host_buffers++] = (struct host_buffer){address, size, true};
  device->host_buffers_bytes += size;
  return address;
}

void gpu_host_buffer_free(struct device *base, void *address) {
  struct gpu_device *device = (struct gpu_device *)base;
  for (size_t i = 0; i < device->n_host_buffers; i++) {
    if (device->host_buffers[i].address == address) {
      device->host_buffers[i].is_used = false;
      return;
    }
  }
  free(address);
}

static char *canaries_after(const struct gpu_buffer *buffer) {
  return (char *)buffer->base.address + buffer->base.size;
}

static char *canaries_before(const struct gpu_buffer *buffer) {
  return (char *)buffer->base.address - CANARY_BYTES;
}

bool gpu_buffer_new(struct device *base, size_t size, struct device_buffer **ret_buffer,
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
  *buffer = (struct gpu_buffer){{(void *)start, size}, memory};
  if (!fill_bytes(device, canaries_before(buffer), CANARY, CANARY_BYTES, error) ||
      !fill_bytes(device, canaries_after(buffer), CANARY, CANARY_BYTES, error)) {
    gpu_buffer_free(base, &buffer->base);
    return false;
  }
  *ret_buffer = &buffer->base;
  return true;
}

void gpu_buffer_free(struct device *base, struct device_buffer *base_buffer) {
  struct gpu_buffer *buffer = (struct gpu_buffer *)base_buffer;
  ((struct gpu_device *)base)->api->memory_free(buffer->memory);
  free(buffer);
}

/* Both sides of a buffer, with one wait. */
static bool canaries_download(struct gpu_device *device, char *const starts[2],
                              struct error *error) {
  if (!device->canaries_host)
    device->canaries_host = gpu_host_buffer_new(&device->base, 2 * CANARY_BYTES);
  for (size_t i = 0; i < 2; i++) {
    int code = device->api->download(device->canaries_host + i * CANARY_BYTES, starts[i],
                                     CANARY_BYTES, device->stream);
    if (!gpu_check(device->api, code, error, "copying from the GPU"))
      return false;
  }
  return gpu_synchronize(&device->base, error);
}

bool gpu_buffer_intact(struct device *base, struct device_buffer *base_buffer,
                       struct error *error) {
  struct gpu_device *device = (struct gpu_device *)base;
  struct gpu_buffer *buffer = (struct gpu_buffer *)base_buffer;
  char *starts[2] = {canaries_before(buffer), canaries_after(buffer)};
  bool intact = true;
  if (!canaries_download(device, starts, error))
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
                         starts[i] + k - (char *)base_buffer->address, base_buffer->size);
    if (!fill_bytes(device, starts[i], CANARY, CANARY_BYTES, &failure)) {
      *error = failure;
      return false;
    }
  }
  return intact;
}

static bool module_find(struct gpu_device *device, struct device_module *module,
                        struct error *error) {
  const struct gpu_api *api = device->api;
  if (!gpu_check(api, api->module_new(&module->module, module->image), error, "loading the object"))
    return error_prefix(error, "cannot load %s: ", module->entry);
  if (!gpu_check(api, api->function_find(&module->function, module->module, module->entry), error,
                 "finding the entry point in the object"))
    return error_prefix(error, "cannot load %s: ", module->entry);
  return true;
}

/* Takes the image over. */
static bool module_load(struct gpu_device *device, char *image, const char *entry,
                        struct device_module **ret_module, struct error *error) {
  struct device_module *module = xcalloc(1, sizeof *module);
  module->image = image;
  module->entry = xstrdup(entry);
  if (!module_find(device, module, error)) {
    gpu_module_unload(&device->base, module);
    return false;
  }
  *ret_module = module;
  return true;
}

bool gpu_module_load(struct device *base, const char *object, const char *entry,
                     struct device_module **ret_module, struct error *error) {
  cleanup_free char *image = NULL;
  size_t size;
  if (!file_read(object, OBJECT_BYTES_MAX, &image, &size, error))
    return false;
  if (size == 0)
    return error_set(error, "cannot load %s: its object is empty; compile it again", entry);
  return module_load((struct gpu_device *)base, TAKE(image), entry, ret_module, error);
}

void gpu_module_unload(struct device *base, struct device_module *module) {
  const struct gpu_device *device = (const struct gpu_device *)base;
  /* What was launched may run still, and not every runtime waits for it. After a fault both calls
   * fail. */
  if (module->module) {
    device->api->stream_wait(device->stream);
    device->api->module_free(module->module);
  }
  free(module->image);
  free(module->entry);
  free(module);
}

static bool geometry_accept(const struct gpu_device *device, struct device_module *module,
                            const struct device_geometry *geometry, struct error *error) {
  const struct gpu_api *api = device->api;
  if (geometry->cluster > 1 && api->no_clusters)
    return error_set(error, "%s cannot be launched in clusters of %u: %s", module->entry,
                     geometry->cluster, api->no_clusters);
  if (geometry->shared_bytes <= module->shared_allowed || !api->shared_allow)
    return true;
  if (device->facts.shared_bytes && geometry->shared_bytes > device->facts.shared_bytes)
    return error_set(error,
                     "%s wants %u bytes of shared memory, a workgroup on this GPU has %u at most",
                     module->entry, geometry->shared_bytes, device->facts.shared_bytes);
  if (!gpu_check(api, api->shared_allow(module->function, geometry->shared_bytes), error,
                 "asking for shared memory"))
    return error_prefix(error, "%s wants %u bytes: ", module->entry, geometry->shared_bytes);
  module->shared_allowed = geometry->shared_bytes;
  return true;
}

static bool geometry_is_empty(const struct device_geometry *geometry) {
  return geometry->grid[0] == 0 || geometry->grid[1] == 0 || geometry->grid[2] == 0;
}

bool gpu_launch(struct device *base, const struct device_launch *launch, struct error *error) {
  struct gpu_device *device = (struct gpu_device *)base;
  const struct device_geometry *geometry = &launch->geometry;
  struct device_module *module = launch->module;
  if (geometry_is_empty(geometry))
    return true;
  if (!geometry_accept(device, module, geometry, error))
    return false;
  int code = device->api->launch(module->function, geometry, device->stream, launch->arguments);
  return gpu_check(device->api, code, error, "the launch") ||
         error_prefix(error, "%s with grid %u,%u,%u, block %u,%u,%u and %u bytes: ", module->entry,
                      geometry->grid[0], geometry->grid[1], geometry->grid[2], geometry->block[0],
                      geometry->block[1], geometry->block[2], geometry->shared_bytes);
}

uint32_t sentinel_value(uint32_t i) {
  for (int step = 0; step < SENTINEL_STEPS; step++)
    i = i * 1664525u + 1013904223u;
  return i;
}

/* Fills one half, copies it to the other and reads that. Runtimes do both with kernels of their
 * own. */
static bool sentinel_fill(struct gpu_device *device, char *memory, uint32_t value, uint32_t *found,
                          struct error *error) {
  size_t half = SENTINEL_BYTES / 2, count = half / sizeof(uint32_t);
  if (!gpu_fill_words(device, memory, value, count, error) ||
      !gpu_copy(&device->base, memory + half, memory, half, error) ||
      !gpu_download(&device->base, found, memory + half, half, error))
    return false;
  for (size_t i = 0; i < count; i++)
    if (found[i] != value)
      return error_set(error, "word %zu that was filled with %08x and copied holds %08x", i, value,
                       found[i]);
  return true;
}

static bool sentinel_launch(struct gpu_device *device, struct device_module *module, char *memory,
                            uint32_t *found, struct error *error) {
  void *address = memory;
  void *arguments[] = {&address};
  struct device_launch launch = {
      module,
      {.grid = {SENTINEL_VALUES / SENTINEL_BLOCK, 1, 1}, .block = {SENTINEL_BLOCK, 1, 1}},
      arguments};
  if (!gpu_fill_words(device, memory, 0, SENTINEL_VALUES, error) ||
      !gpu_launch(&device->base, &launch, error) ||
      !gpu_download(&device->base, found, memory, SENTINEL_VALUES * sizeof(uint32_t), error))
    return false;
  for (uint32_t i = 0; i < SENTINEL_VALUES; i++)
    if (found[i] != sentinel_value(i))
      return error_set(error, "thread %u computed %08x instead of %08x", i, found[i],
                       sentinel_value(i));
  return true;
}

static bool sentinel_run(struct gpu_device *device, char *memory, struct error *error) {
  cleanup_free uint32_t *found = xmalloc(SENTINEL_BYTES);
  struct device_module *module;
  if (!sentinel_fill(device, memory, 0x5A5AA5A5, found, error) ||
      !sentinel_fill(device, memory, 0xA5A55A5A, found, error))
    return false;
  if (!device->api->sentinel_image)
    return true;
  if (!module_load(device, xstrdup(device->api->sentinel_image), SENTINEL_ENTRY, &module, error))
    return false;
  bool passed = true;
  for (int i = 0; i < SENTINEL_LAUNCHES && passed; i++)
    passed = sentinel_launch(device, module, memory, found, error);
  gpu_module_unload(&device->base, module);
  return passed;
}

bool gpu_sentinel(struct device *base, struct error *error) {
  struct gpu_device *device = (struct gpu_device *)base;
  void *memory;
  if (!gpu_memory_new(device, SENTINEL_BYTES, &memory, error))
    return error_prefix(error, "the GPU did not pass the sentinel: ");
  bool passed = sentinel_run(device, memory, error);
  device->api->memory_free(memory);
  return passed || error_prefix(error, "the GPU did not pass the sentinel: ");
}

size_t gpu_processes_others(size_t n, size_t n_own, size_t n_siblings) {
  size_t ours = n_own ? n_own : 1 + n_siblings;
  return n > ours ? n - ours : 0;
}

double gpu_clock_mhz(struct device *base) {
  struct gpu_device *device = (struct gpu_device *)base;
  return device->api->clock_mhz(&device->facts);
}

json_t *gpu_conditions(struct device *base) {
  struct gpu_device *device = (struct gpu_device *)base;
  json_t *conditions = device->api->conditions(&device->facts);
  if (device->overhead_us > 0)
    ALWAYS(json_object_set_new(conditions, "overhead_us", json_real(device->overhead_us)) == 0);
  return conditions;
}
