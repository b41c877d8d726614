/* The frame of every command that uses workers: the main thread starts workers and hears signals,
 * another one works.
 *
 * The first SIGTERM or SIGINT asks the work to end (supervisor_stopped), a second one ends the
 * program at once: workers die with it. Threads: supervise is called from the main one. */
#ifndef WAVETUNE_AGENT_WORKER_SUPERVISE_H
#define WAVETUNE_AGENT_WORKER_SUPERVISE_H

#include <stdatomic.h>

#include "agent/worker/spawner.h"

struct supervisor {
  struct spawner *spawner;
  atomic_int signal;                                         /* the first that came; 0: none */
  int (*work)(struct supervisor *supervisor, void *context); /* returns the exit code */
  void (*stop)(void *context); /* main thread, at the first signal: wakes what waits; may be NULL */
  void *context;
  int code;
};

/* Runs the work to its end and returns its exit code. */
int supervise(struct supervisor *supervisor);

bool supervisor_stopped(const struct supervisor *supervisor);

#endif
