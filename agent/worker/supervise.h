/* Runs a command that uses workers: the main thread starts workers and receives
 * signals, another thread does the work.
 *
 * Workers are started from the main thread only, because PR_SET_PDEATHSIG follows the parent
 * thread: a worker that a device thread had forked would die with that thread. A worker is this
 * program again (/proc/self/exe worker) in a new process group. It inherits only the two file
 * descriptors of agent/worker/worker.h and a pipe for its output, cannot gain privileges, and is
 * killed first when memory runs out. The token is not in its environment: supervise()
 * removes it from this process's.
 *
 * After the first SIGTERM or SIGINT the work should end (supervisor_stopped); a second one ends the
 * program at once, and its workers with it.
 *
 * Memory: spawned is a plain value; its owner closes the socket and the pipe, unmaps the page and
 * frees the cgroup. Threads: see each. */
#ifndef WAVETUNE_AGENT_WORKER_SUPERVISE_H
#define WAVETUNE_AGENT_WORKER_SUPERVISE_H

#include <stdatomic.h>
#include <sys/types.h>

#include "agent/worker/worker.h"
#include "common/base/error.h"
#include "common/program/custody.h"

struct supervisor {
  struct spawner *spawner;
  atomic_int signal;                                         /* the first that came; 0: none */
  int (*work)(struct supervisor *supervisor, void *context); /* returns the exit code */
  void (*stop)(void *context); /* main thread, at the first signal: wakes what waits; may be NULL */
  void *context;
  int code;
};

/* Main thread: runs the work to its end and returns its exit code. */
int supervise(struct supervisor *supervisor);

bool supervisor_stopped(const struct supervisor *supervisor);

/* What starts workers; made by supervise(). */
struct spawner;

/* Sets the user and the cgroups of workers, before any is started. `custody` is copied; what it
 * borrows must outlive the spawner. */
void spawner_set_custody(struct spawner *spawner, const struct custody *custody);
const struct custody *spawner_custody(const struct spawner *spawner);

struct spawned {
  pid_t pid;
  int socket;
  int output; /* what the worker prints; reading does not block */
  struct worker_status *status;
  struct cgroup *cgroup; /* NULL: none */
};

/* Any thread but the main one: waits until the main one has started a worker. `environment` (NULL:
 * none) are "NAME=VALUE" strings that come before this process's own, NULL-terminated. */
must_check bool spawner_spawn(struct spawner *spawner, char *const *environment,
                              struct spawned *ret_spawned, struct error *error);

#endif
