/* Which of a node's GPUs this process sees: by the variables that the runtimes read when they start.
 *
 * Memory: the environment's. Threads: one, before the process has others. */
#include "agent/device/gpu.h"

static struct {
  bool is_settled;           /* a runtime may have read the variables */
  const struct gpu_api *api; /* NULL: all GPUs are seen */
  int ordinal;               /* the one of its GPUs that is */
} seen;

void gpu_visible_settle(void) { seen.is_settled = true; }

/* A member of "3,GPU-5e1f,0", or the number itself where there is no list. NULL: the list ends before. */
static char *token_of(const char *list, int ordinal) {
  if (!list)
    return xasprintf("%d", ordinal);
  for (int i = 0; i < ordinal; i++) {
    list = strchr(list, ',');
    if (!list)
      return NULL;
    list++;
  }
  size_t size = strcspn(list, ",");
  return size ? xstrndup(list, size) : NULL;
}

static const char *list_of(const struct gpu_api *api) {
  for (const char *const *name = api->visible; *name; name++) {
    const char *list = getenv(*name);
    if (list && *list)
      return list;
  }
  return NULL;
}

void gpu_see_only(const struct gpu_api *api, const char *name) {
  int ordinal;
  if (seen.is_settled || !gpu_ordinal_parse(api, name, &ordinal))
    return;
  cleanup_free char *token = token_of(list_of(api), ordinal);
  if (!token)
    return; /* opening it says that it is not there */
  setenv(api->visible[0], token, 1);
  seen.is_settled = true;
  seen.api = api;
  seen.ordinal = ordinal;
}

bool gpu_visible_ordinal(const struct gpu_api *api, int *ordinal) {
  if (seen.api != api)
    return true;
  if (*ordinal != seen.ordinal)
    return false;
  *ordinal = 0;
  return true;
}
