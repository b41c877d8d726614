/* A lease's memory. Any thread. */
#include "agent/lease/lease.h"

void lease_release(struct lease *lease) {
  free(lease->id);
  free(lease->job);
  if (lease->kernel)
    kernel_free(lease->kernel);
  free(lease->sources);
  key_release(&lease->key);
  if (lease->space)
    space_free(lease->space);
  config_ranges_release(&lease->configs);
  free(lease->regime);
  free(lease->likely);
  if (lease->objects)
    build_objects_free(lease->objects);
  *lease = (struct lease){0};
}
