/* What looks at a device found. */
#include "agent/run/device_use.h"

bool device_use_note(struct device_use *use, const char *reason, int64_t look_ns,
                     int64_t quiet_ns) {
  bool was_yielded = use->is_yielded;
  if (reason) {
    if (!was_yielded)
      use->since_ns = look_ns;
    use->n_yields += !was_yielded;
    use->is_yielded = true;
    use->free_ns = 0;
    snprintf(use->reason, sizeof use->reason, "%s", reason);
    return !was_yielded;
  }

  use->clean_ns = look_ns;
  if (was_yielded && !use->free_ns)
    use->free_ns = look_ns;
  if (was_yielded && look_ns - use->free_ns >= quiet_ns)
    use->is_yielded = false;
  return was_yielded != use->is_yielded;
}
