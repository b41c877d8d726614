/* Whether others use a device, as looks at it found (yield.h). A plain value. Threads: any. */
#ifndef WAVETUNE_AGENT_RUN_DEVICE_USE_H
#define WAVETUNE_AGENT_RUN_DEVICE_USE_H

#include "common/base/base.h"

#define YIELD_REASON_SIZE 161

/* Times are clock_monotonic_ns. */
struct device_use {
  bool is_yielded;
  int64_t n_yields;               /* so far */
  char reason[YIELD_REASON_SIZE]; /* what uses it, or used it last; UTF-8, one line */
  int64_t since_ns;               /* when it was yielded */
  int64_t free_ns;  /* while it is yielded: since when it has been free; 0: it is not */
  int64_t clean_ns; /* when the last look that found it free began */
};

/* Takes the result of a look that began at look_ns: `reason` says what uses the device, NULL: no
 * other. It is no longer yielded after quiet_ns without others. Returns whether is_yielded changed.
 */
bool device_use_note(struct device_use *use, const char *reason, int64_t look_ns, int64_t quiet_ns);

#endif
