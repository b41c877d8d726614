/* Giving devices back to others: --yield-when-busy looks for other processes on a device,
 * --busy-file for a file that a scheduler makes.
 *
 * One thread looks every YIELD_LOOK_MS and at the end of each lease, at processes through a worker
 * of its own, which opens no device: a driver may crash or hang. A device that another process uses
 * is yielded: its worker is killed, its lease handed back, and it takes none until it has been free
 * for --free-seconds. A process that comes and goes between two looks is not seen. When looking has
 * failed for YIELD_BLIND_MS, all GPUs are yielded.
 *
 * A measurement is spooled only after a look that began later found its device free: what was
 * measured since the last such look is thrown away.
 *
 * Memory: the agent owns the watch. Threads: yield_run's; the functions on a device any. The
 * agent's mutex guards struct device_use. */
#ifndef WAVETUNE_AGENT_RUN_YIELD_H
#define WAVETUNE_AGENT_RUN_YIELD_H

#include "agent/run/agent.h"

#define YIELD_LOOK_MS 100
#define YIELD_BLIND_MS 3000

/* The options of both; agent->yield stays NULL where none is given. Looks once: false when the
 * processes on a device cannot be seen. */
must_check bool yield_prepare(struct agent *agent, struct error *error);
void yield_release(struct agent *agent);

/* A thread: looks until all device threads have ended. */
void *yield_run(void *agent);

/* For the device's thread. Whether the device was yielded since device_settle returned true last
 * (or since the start), even if it has been free again since then. */
bool device_is_yielded(struct device_thread *thread);
/* After the device was given back: whether it may be used again. */
bool device_settle(struct device_thread *thread);
/* What was measured before this time was measured on a free device; INT64_MAX where nothing is
 * looked for, 0 once the device was yielded. */
int64_t device_clean_ns(struct device_thread *thread);
/* Sleeps for timeout_ms, or until the agent stops or the device is yielded. */
void device_wait(struct device_thread *thread, int64_t timeout_ms);
/* device_use.reason of the device, the caller's. */
must_check char *device_yield_reason(struct device_thread *thread);

/* The agent's yielded devices, for a heartbeat; the caller releases them (a plain array of texts in
 * a record). Nothing is set where nothing is looked for. */
void yield_state(struct agent *agent, struct heartbeat *heartbeat);

/* clang-format off */
#define YIELD_OPTIONS \
  {"yield-when-busy", OPTION_FLAG, \
   .help = "give a GPU back within a second when another process appears on it"}, \
  {"busy-file", OPTION_TEXT, "PATH", \
   .help = "give all devices back while this file exists; in a folder, PATH/DEVICE is for one " \
           "device; its first line is the reason that is shown"}, \
  {"free-seconds", OPTION_INTEGER, "SECONDS", "30", 0, 86400, \
   "how long a device that was given back must have been free before it takes leases again"}
/* clang-format on */

#endif
