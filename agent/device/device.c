/* The back ends that this agent is built with. */
#include "agent/device/device.h"

#include <sys/mman.h>

#include "agent/device/gpu.h"
#include "common/enrolment/enrolment.h"

#define LARGE_PAGE ((size_t)2 << 20)

/* GPUs first: a command takes the first device where none is named. */
static const struct device_ops *const back_ends[] = {&hip_ops, &cuda_ops, &cpu_ops};

bool device_launches(const struct device_ops *ops, enum regime_launch launch) {
  switch (launch) {
  case REGIME_LAUNCH_DIRECT:
    return ops->launch != NULL;
  }
  die("no such launch");
}

bool devices_probe(json_t **ret_devices, json_t **ret_absent, struct error *error) {
  cleanup_json json_t *all = json_array(), *absent = json_array();
  list_foreach (back_end, back_ends) {
    const struct device_ops *ops = *back_end;
    cleanup_json json_t *devices = NULL, *runs = json_array();
    json_t *device;
    struct error reason;
    size_t k;
    if (!ops->probe(&devices, &reason)) {
      json_push(absent, json_pack("{s:s, s:s}", "backend", ops->backend, "reason", reason.message));
      continue;
    }

    for (k = 0; regime_names[k]; k++) {
      cleanup_free char *run = run_of_regime((enum regime)k);
      if (device_launches(ops, regime_facts((enum regime)k)->launch))
        json_push(runs, json_string(run));
    }
    json_array_foreach (devices, k, device)
      json_put(device, "runs", json_incref(runs));
    ALWAYS(json_array_extend(all, devices) == 0);
  }

  if (!json_array_size(all)) {
    const json_t *last = json_array_get(absent, json_array_size(absent) - 1);
    return error_set(error, "%s", json_text(last, "reason"));
  }

  *ret_devices = TAKE(all);
  *ret_absent = TAKE(absent);
  return true;
}

/* NULL: no back end's devices have such names. */
static const struct device_ops *back_end_of(const char *name) {
  list_foreach (back_end, back_ends)
    if (string_starts(name, (*back_end)->backend))
      return *back_end;
  return NULL;
}

bool device_open(const char *name, struct device **ret_device, struct error *error) {
  const struct device_ops *ops = back_end_of(name);
  return ops ? ops->open(name, ret_device, error)
             : error_set(error, "no device %s; `wavetune-agent probe` lists this machine's", name);
}

bool device_user_find(const char *name, const json_t *facts, struct device_user *ret_user,
                      struct error *error) {
  const struct device_ops *ops = back_end_of(name);
  if (!ops || !ops->user_find)
    return error_set(error, "the processes that use %s cannot be seen", name);
  return ops->user_find(facts, ret_user, error) || error_prefix(error, "%s: ", name);
}

bool device_is_host(const char *name) {
  const struct device_ops *ops = back_end_of(name);
  return !ops || ops->is_host;
}

size_t device_displacement(size_t bytes) {
  const char *given = getenv("WAVETUNE_DISPLACEMENT_BYTES");
  unsigned long long wanted = given ? strtoull(given, NULL, 10) : 0;
  return wanted ? (size_t)wanted : bytes;
}

void *host_memory_new(size_t size) {
  size_t rounded;
  if (size < 2 * LARGE_PAGE || __builtin_add_overflow(size, LARGE_PAGE - 1, &rounded))
    return xmalloc(size);
  rounded = rounded / LARGE_PAGE * LARGE_PAGE;
  void *memory = aligned_alloc(LARGE_PAGE, rounded);
  if (!memory)
    die("out of memory (%zu bytes)", rounded);
  madvise(memory, rounded, MADV_HUGEPAGE); /* fails harmlessly where the kernel has none */
  return memory;
}
