/* ROCdebug-agent: a library that the ROCm runtime loads and that says what every wavefront was
 * doing when a kernel faulted. After a memory fault the config is run once more, alone, in a worker
 * under it, and this says what came out.
 *
 * What it prints and the variables that load it: ROCm documentation, "ROCR Debug Agent user guide".
 * Memory: texts are the caller's. Threads: any. */
#ifndef WAVETUNE_AGENT_LEASE_DEBUG_AGENT_H
#define WAVETUNE_AGENT_LEASE_DEBUG_AGENT_H

#include "common/base/error.h"

/* The library on this machine ($WAVETUNE_DEBUG_AGENT names another), or false: not installed. */
must_check bool debug_agent_find(char **ret_library);

/* "NAME=VALUE" strings, NULL-terminated, for a worker under it: what it prints goes to
 * FOLDER/debug-agent.txt and the code objects that were loaded beside it. Each string and the array
 * are the caller's. */
must_check char **debug_agent_environment(const char *library, const char *folder);

/* One sentence of what it printed: the error of the queue, the waves that stopped and why, where.
 * NULL: nothing was printed that says so. */
must_check char *debug_agent_summary(const char *text);

#endif
