/* Fingerprints of a GPU's memory, by the kernel of agent/compile/helper_kernels.h: what comes over
 * the bus is a part for each workgroup.
 *
 * Memory: see gpu_device.h. Threads: one thread to a device. */
#include "agent/compile/helper_kernels.h"
#include "agent/device/gpu_device.h"
#include "common/base/rng.h"

/* FINGERPRINT_THREADS times that is what a compute unit holds, or nearly */
#define GROUPS_PER_CU 8
/* fewer groups than that many bytes each are not worth more parts */
#define BYTES_PER_GROUP 32768
#define TRIAL_BYTES 1000003 /* odd, so that the last word is not a whole one */
#define PART_BYTES sizeof(struct fingerprint)

static uint32_t groups_max(const struct gpu_device *device) {
  return (uint32_t)(device->base.compute_units > 0 ? device->base.compute_units : 1) *
         GROUPS_PER_CU;
}

static uint32_t groups_for(const struct gpu_device *device, size_t size) {
  size_t wanted = (size + BYTES_PER_GROUP - 1) / BYTES_PER_GROUP, most = groups_max(device);
  return (uint32_t)(wanted < 1 ? 1 : wanted < most ? wanted : most);
}

bool gpu_fingerprint(struct device *base, const void *address, size_t size,
                     struct fingerprint *ret_fingerprint, struct error *error) {
  struct gpu_device *device = (struct gpu_device *)base;
  uint32_t groups = groups_for(device, size);
  uint64_t bytes = size;
  void *arguments[] = {&address, &bytes, &device->parts};
  struct device_launch launch = {device->fingerprint,
                                 {.grid = {groups, 1, 1}, .block = {FINGERPRINT_THREADS, 1, 1}},
                                 arguments};
  if (!gpu_launch(base, &launch, error) ||
      !gpu_download(base, device->parts_host, device->parts, groups * PART_BYTES, error))
    return false;
  *ret_fingerprint = (struct fingerprint){0};
  for (uint32_t i = 0; i < groups; i++) {
    ret_fingerprint->sum += device->parts_host[i].sum;
    ret_fingerprint->product += device->parts_host[i].product;
  }
  return true;
}

/* Whether the kernel says of `memory` what the host says of the same bytes. */
static bool trial_in(struct gpu_device *device, void *memory, struct error *error) {
  cleanup_free uint64_t *given = xmalloc(TRIAL_BYTES + sizeof *given);
  struct rng rng = rng_seeded(TRIAL_BYTES);
  struct fingerprint found;
  for (size_t i = 0; i <= TRIAL_BYTES / sizeof *given; i++)
    given[i] = rng_next(&rng);
  if (!gpu_upload(&device->base, memory, given, TRIAL_BYTES, error) ||
      !gpu_fingerprint(&device->base, memory, TRIAL_BYTES, &found, error))
    return false;
  return fingerprint_equal(found, fingerprint_part(given, TRIAL_BYTES, 0)) ||
         error_set(error, "the GPU computes another fingerprint than the host");
}

static bool trial_passes(struct gpu_device *device, struct error *error) {
  void *memory;
  if (!gpu_memory_new(device, TRIAL_BYTES, &memory, error))
    return false;
  bool passed = trial_in(device, memory, error);
  device->api->memory_free(memory);
  return passed;
}

bool gpu_fingerprint_set(struct device *base, const char *object, struct error *error) {
  struct gpu_device *device = (struct gpu_device *)base;
  if (device->is_fingerprint_tried)
    return true;
  device->is_fingerprint_tried = true;
  size_t bytes = groups_max(device) * PART_BYTES;
  device->parts_host = gpu_host_buffer_new(base, bytes);
  if (!gpu_module_load(base, object, FINGERPRINT_ENTRY, &device->fingerprint, error) ||
      !gpu_memory_new(device, bytes, &device->parts, error) || !trial_passes(device, error))
    return false;
  base->has_fingerprint = true;
  return true;
}

void gpu_fingerprint_release(struct gpu_device *device) {
  if (device->parts_host)
    gpu_host_buffer_free(&device->base, device->parts_host);
  if (device->parts)
    device->api->memory_free(device->parts);
  if (device->fingerprint)
    gpu_module_unload(&device->base, device->fingerprint);
}
