/* Starting a GPU runtime: for all GPUs, to look at them, or for the one that this process opens.
 *
 * A runtime starts every GPU that it sees, and a worker needs one of them. With the others hidden by the runtime's own
 * variable it starts sooner, by 0.1 s for each of them on H200s (docs/measurements.md), and cannot reach them. The variables: CUDA's programming guide, "CUDA environment variables"; ROCm's
 * documentation, "GPU isolation techniques".
 *
 * Memory: the table's struct gpu_runtime says how it was started, until the process ends. Threads: one. */
#include "agent/device/gpu_device.h"

#define NUMBER_NONE (-1)

/* The number in "hip3", NUMBER_NONE where there is none. */
static int number_read(const struct gpu_api *api, const char *name) {
  const char *digits = name + strlen(api->ops->backend);
  size_t length = strspn(digits, "0123456789");
  return length < 1 || length > 4 || digits[length] ? NUMBER_NONE : atoi(digits);
}

/* Item `number` of a list of GPUs, NULL where it ends before. Runtimes skip what is named twice. */
static char *item_find(const char *list, int number) {
  cleanup_free char *seen = xstrdup(",");
  while (*list) {
    list += strspn(list, " ");
    size_t length = strcspn(list, ",");
    cleanup_free char *item = xasprintf(",%.*s,", (int)length, list);
    if (length && !strstr(seen, item)) {
      if (number-- == 0)
        return xasprintf("%.*s", (int)length, list);
      cleanup_free char *shorter = seen;
      seen = xasprintf("%s%.*s,", shorter, (int)length, list);
    }
    list += length + (list[length] == ',');
  }
  return NULL;
}

/* False where what is set does not show that GPU: it stays as it is. */
static bool others_hide(const struct gpu_api *api, int number) {
  const char *list = NULL;
  for (size_t i = 0; !list && api->visible_variables[i]; i++)
    list = getenv(api->visible_variables[i]);
  cleanup_free char *item = list ? item_find(list, number) : xasprintf("%d", number);
  return item && setenv(api->visible_variables[0], item, 1) == 0;
}

bool gpu_start(const struct gpu_api *api, struct error *error) {
  if (api->runtime->has_one)
    return error_set(error, "this process started the %s for %s%d alone", api->library, api->ops->backend,
                     api->runtime->one);
  return api->runtime->is_started = api->load(error);
}

bool gpu_start_for(const struct gpu_api *api, const char *name, int *ret_ordinal, struct error *error) {
  struct gpu_runtime *runtime = api->runtime;
  int n = 0, number = number_read(api, name);
  if (!runtime->is_started && !runtime->has_one && number != NUMBER_NONE && others_hide(api, number)) {
    runtime->has_one = true;
    runtime->one = number;
  }
  if (!api->load(error))
    return error_prefix(error, "no device %s: ", name);
  runtime->is_started = true;
  if (!gpu_check(api, api->device_count(&n), error, "counting the GPUs"))
    return false;
  if (runtime->has_one && number != runtime->one)
    return error_set(error, "no device %s: this process started the %s for %s%d alone", name, api->library,
                     api->ops->backend, runtime->one);
  if (runtime->has_one && n == 1) {
    *ret_ordinal = 0;
    return true;
  }
  if (number == NUMBER_NONE || number >= n)
    return error_set(error, "no device %s: the %s sees %d GPU%s, counted from 0", name, api->library, n,
                     n == 1 ? "" : "s");
  *ret_ordinal = number;
  return true;
}
