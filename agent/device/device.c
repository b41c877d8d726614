/* The back ends that this agent is built with. Memory: none. Threads: any. */
#include "agent/device/device.h"

#include "agent/device/cpu.h"

static const struct device_ops *const back_ends[] = {&cpu_ops};

bool devices_probe(json_t **ret_devices, struct error *error) {
  cleanup_json json_t *all = json_array();
  for (size_t i = 0; i < ARRAY_LENGTH(back_ends); i++) {
    cleanup_json json_t *devices = NULL;
    if (!back_ends[i]->probe(&devices, error))
      return error_prefix(error, "%s: ", back_ends[i]->backend);
    ALWAYS(json_array_extend(all, devices) == 0);
  }
  *ret_devices = TAKE(all);
  return true;
}

bool device_open(const char *name, struct device **ret_device, struct error *error) {
  for (size_t i = 0; i < ARRAY_LENGTH(back_ends); i++)
    if (string_starts(name, back_ends[i]->backend))
      return back_ends[i]->open(name, ret_device, error);
  return error_set(error, "no device %s on this machine; `wavetune-agent probe` lists those there are", name);
}
