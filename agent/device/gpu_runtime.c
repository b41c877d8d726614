/* Starting a GPU runtime: for all GPUs, to look at them, or for the one that this process opens.
 *
 * A runtime starts every GPU that it sees, and a worker needs one of them. With the others hidden
 * by the runtime's own variable it starts sooner (in 0.18 s instead of 0.98 on a host of four
 * H200s, docs/measurements.md) and cannot reach them. The variables: CUDA's programming guide,
 * "CUDA environment variables"; ROCm's documentation, "GPU isolation techniques".
 *
 * Memory: how it was started is known until the process ends. Threads: one. */
#include "agent/device/gpu_device.h"

#define NUMBER_NONE (-1)

static bool sees_all; /* a runtime of this process does */

/* The runtime that sees one GPU alone, and that GPU's number for a process that sees all; NULL:
 * there is none. */
static const struct gpu_api *hiding;
static int number_seen;

/* The number in "hip3", NUMBER_NONE where there is none. */
static int number_read(const struct gpu_api *api, const char *name) {
  const char *digits = name + strlen(api->ops->backend);
  size_t length = strspn(digits, "0123456789");
  return length < 1 || length > 4 || digits[length] ? NUMBER_NONE : atoi(digits);
}

static bool item_is_number(const char *item) {
  size_t length = strlen(item);
  return length && strspn(item, "0123456789") == length && (item[0] != '0' || length == 1);
}

/* Item `number` of a list. NULL where it ends before, and where it is not sure that runtimes count
 * the same: GPUs that are named twice, spaces, ids among numbers. */
static char *item_find(const char *list, int number) {
  cleanup_free char *items = xstrdup(list), *all = xasprintf(",%s,", list);
  bool are_numbers = strspn(list, "0123456789,") == strlen(list);
  char *rest = items, *item;
  while ((item = strsep(&rest, ","))) {
    cleanup_free char *between = xasprintf(",%s,", item);
    bool is_clear =
        are_numbers ? item_is_number(item) : string_starts(item, "GPU-") && !strchr(item, ' ');
    bool is_first = strstr(all, between) == all + (item - items);
    if (!is_clear || !is_first)
      return NULL;
    if (number-- == 0)
      return xstrdup(item);
  }
  return NULL;
}

/* False where what is set does not surely show that GPU: it stays as it is. */
static bool others_hide(const struct gpu_api *api, int number) {
  const char *list = NULL;
  for (size_t i = 0; !list && api->visible_variables[i]; i++)
    list = getenv(api->visible_variables[i]);
  cleanup_free char *item = list ? item_find(list, number) : xasprintf("%d", number);
  return item && setenv(api->visible_variables[0], item, 1) == 0;
}

bool gpu_start(const struct gpu_api *api, struct error *error) {
  if (hiding)
    return error_set(error, "this process is %s%d's and hides all other GPUs", hiding->ops->backend,
                     number_seen);
  if (!api->load(error))
    return false;
  sees_all = true;
  return true;
}

bool gpu_start_for(const struct gpu_api *api, const char *name, int *ret_ordinal,
                   struct error *error) {
  int n = 0, number = number_read(api, name);
  if (!sees_all && !hiding && number != NUMBER_NONE && others_hide(api, number)) {
    hiding = api;
    number_seen = number;
  }
  if (hiding && (hiding != api || number != number_seen))
    return error_set(error, "no device %s: this process is %s%d's and hides all other GPUs", name,
                     hiding->ops->backend, number_seen);
  if (!api->load(error) || !gpu_check(api, api->device_count(&n), error, "counting the GPUs"))
    return error_prefix(error, "no device %s: ", name);
  sees_all = !hiding;
  /* A runtime that hides none is asked by the number, as one that sees all. */
  if (hiding && n == 1)
    number = 0;
  else if (number == NUMBER_NONE || number >= n)
    return error_set(error, "no device %s: the %s sees %d GPU%s, counted from 0", name,
                     api->library, n, n == 1 ? "" : "s");
  *ret_ordinal = number;
  return true;
}
