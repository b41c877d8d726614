/* How a worker closes itself in before it loads the first byte that a stranger wrote.
 *
 * On the CPU strangers' code runs in this process: it is closed in before its device is opened, and
 * sees the system's libraries and what says how the machine is (/sys, parts of /proc), nothing
 * else. On a GPU it is the driver that reads a stranger's object: the files of the runtime and the
 * device nodes stay open, because it loads parts of itself late; system calls are closed when the
 * device has been opened and has passed its sentinel, for every thread of the runtime. Either way:
 * no sockets, no other programs, no processes, no signals to others, no session of its own.
 * $WAVETUNE_WORKER_WRITES names a folder that stays writable: for profilers and debug agents in the
 * worker.
 *
 * Memory: none kept but a sandbox between the two steps. Threads: the worker's first one. */
#ifndef WAVETUNE_AGENT_WORKER_WORKER_SANDBOX_H
#define WAVETUNE_AGENT_WORKER_WORKER_SANDBOX_H

#include "common/program/sandbox.h"

#define WORKER_WRITES "WAVETUNE_WORKER_WRITES"

/* Before a device is opened; `is_host`: kernels for it run in this process. */
must_check bool worker_confine_files(bool is_host, struct sandbox **ret_sandbox,
                                     struct error *error);
/* After it was. Takes the sandbox. */
must_check bool worker_confine_calls(struct sandbox *sandbox, struct error *error);

#endif
