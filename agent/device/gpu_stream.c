/* Work on the stream of a GPU: filling and copying memory, modules, launches.
 *
 * Memory: see device.h. Threads: one thread to a device. */
#include "agent/device/gpu.h"
#include "common/base/file.h"

#define OBJECT_BYTES_MAX ((size_t)256 << 20)

bool gpu_synchronize(struct device *base, struct error *error) {
  struct gpu_device *device = (struct gpu_device *)base;
  device->busy_until_ns = 0;
  return gpu_check(device->api, device->api->stream_wait(device->stream), error,
                   "waiting for the GPU");
}

bool gpu_copy(struct device *base, void *to, const void *from, size_t size, struct error *error) {
  struct gpu_device *device = (struct gpu_device *)base;
  return size == 0 ||
         gpu_check(device->api,
                   device->api->copy(to, (void *)(uintptr_t)from, size, device->stream), error,
                   "copying on the GPU");
}

bool gpu_fill_words(struct gpu_device *device, void *to, uint32_t value, size_t count,
                    struct error *error) {
  return gpu_check(device->api, device->api->fill_words(to, (int)value, count, device->stream),
                   error, "filling GPU memory");
}

bool gpu_memory_new(struct gpu_device *device, size_t size, void **ret_memory,
                    struct error *error) {
  return gpu_check(device->api, device->api->memory_new(ret_memory, size), error,
                   "allocating GPU memory") ||
         error_prefix(error, "of %zu bytes: ", size);
}

bool gpu_module_new(struct gpu_device *device, char *image, const char *entry,
                    struct device_module **ret_module, struct error *error) {
  const struct gpu_api *api = device->api;
  struct device_module *module = xcalloc(1, sizeof *module);
  module->image = image;
  module->entry = xstrdup(entry);
  if (!gpu_check(api, api->module_new(&module->module, image), error, "loading the object") ||
      !gpu_check(api, api->function_find(&module->function, module->module, entry), error,
                 "finding the entry point in the object")) {
    gpu_module_unload(&device->base, module);
    return error_prefix(error, "cannot load %s: ", entry);
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
  return gpu_module_new((struct gpu_device *)base, TAKE(image), entry, ret_module, error);
}

void gpu_module_unload(struct device *base, struct device_module *module) {
  const struct gpu_device *device = (const struct gpu_device *)base;

  /* A launch may still run, and not every runtime waits for it. After a fault both calls fail. */
  if (module->module) {
    device->api->stream_wait(device->stream);
    device->api->module_free(module->module);
  }

  free(module->image);
  free(module->entry);
  free(module);
}

bool gpu_launch(struct device *base, const struct device_launch *launch, struct error *error) {
  struct gpu_device *device = (struct gpu_device *)base;
  const struct gpu_api *api = device->api;
  const struct device_geometry *geometry = &launch->geometry;
  const uint32_t *grid = geometry->grid, *block = geometry->block,
                 shared_bytes = geometry->shared_bytes;
  struct device_module *module = launch->module;

  array_foreach (fill, launch->fills, launch->n_fills)
    if (!gpu_fill_words(device, *fill->pointer, fill->word, fill->size / sizeof fill->word, error))
      return error_prefix(error, "before %s: ", module->entry);
  for (size_t i = 0; i < launch->n_tensormaps; i++)
    if (!gpu_check(api, api->tensormap_encode(&launch->tensormaps[i]), error,
                   "encoding a tensor map"))
      return error_prefix(error, "%s, tensor map %zu: ", module->entry, i);
  if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0)
    return true;
  if (geometry->cluster > 1 && api->no_clusters)
    return error_set(error, "%s cannot be launched in clusters of %u: %s", module->entry,
                     geometry->cluster, api->no_clusters);

  if (shared_bytes > module->shared_allowed && api->shared_allow) {
    if (device->facts.shared_bytes && shared_bytes > device->facts.shared_bytes)
      return error_set(
          error, "%s needs %u bytes of shared memory, and a workgroup on this GPU has at most %u",
          module->entry, shared_bytes, device->facts.shared_bytes);
    if (!gpu_check(api, api->shared_allow(module->function, shared_bytes), error,
                   "setting the shared memory size"))
      return error_prefix(error, "%s needs %u bytes: ", module->entry, shared_bytes);
    module->shared_allowed = shared_bytes;
  }

  int code =
      geometry->cooperative || geometry->cluster > 1
          ? api->launch_special(module->function, geometry, device->stream, launch->arguments)
          : api->launch(module->function, grid[0], grid[1], grid[2], block[0], block[1], block[2],
                        shared_bytes, device->stream, launch->arguments, NULL);
  return gpu_check(api, code, error, "the launch") ||
         error_prefix(error, "%s with grid %u,%u,%u, block %u,%u,%u and %u bytes: ", module->entry,
                      grid[0], grid[1], grid[2], block[0], block[1], block[2], shared_bytes);
}
