/* The thread of a device, which requests tasks and runs them. */
#ifndef WAVETUNE_AGENT_RUN_DEVICE_THREAD_H
#define WAVETUNE_AGENT_RUN_DEVICE_THREAD_H

#include "agent/run/agent.h"

/* `context` is a struct device_thread. */
void *device_thread_run(void *context);

#endif
