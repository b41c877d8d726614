/* Starts workers, from the main thread only: PR_SET_PDEATHSIG follows the parent thread, so a
 * worker that a device thread had forked would die with that thread. Device threads ask; the main
 * thread serves, and hears the signals.
 *
 * A worker is this program again (/proc/self/exe worker) in a process group of its own, with
 * agent/worker/worker.h's two file descriptors and nothing else open but a pipe to print to, no new
 * privileges, and the first to go when memory runs out. The token is not in its environment,
 * because supervise() took it out of this process's. Memory: spawned is a plain value; its owner
 * closes the socket and the pipe, unmaps the page and frees the cgroup. Threads: below. */
#ifndef WAVETUNE_AGENT_WORKER_SPAWNER_H
#define WAVETUNE_AGENT_WORKER_SPAWNER_H

#include <sys/types.h>

#include "agent/worker/worker.h"
#include "common/base/error.h"
#include "common/program/custody.h"

struct spawner;

/* Main thread, before any other is started: blocks SIGTERM and SIGINT for all of them. */
must_check bool spawner_new(struct spawner **ret_spawner, struct error *error);
void spawner_free(struct spawner *spawner);

/* Before anything is started: what workers run as, and in. It is copied; what it borrows must
 * outlive the spawner. */
void spawner_set_custody(struct spawner *spawner, const struct custody *custody);
const struct custody *spawner_custody(const struct spawner *spawner);

/* Main thread: starts what is asked for until spawner_end. `signalled` gets SIGTERM and SIGINT as
 * they come. */
void spawner_serve(struct spawner *spawner, void (*signalled)(void *context, int number),
                   void *context);

/* Any thread: spawner_serve returns, and nothing more is started. */
void spawner_end(struct spawner *spawner);

struct spawned {
  pid_t pid;
  int socket;
  int output; /* what it prints; does not block */
  struct worker_status *status;
  struct cgroup *cgroup; /* NULL: none */
};

/* Any thread but the main one: waits until the main one has started a worker. `environment` (NULL:
 * none) are "NAME=VALUE" strings that come before this process's own, NULL-terminated. */
must_check bool spawner_spawn(struct spawner *spawner, char *const *environment,
                              struct spawned *ret_spawned, struct error *error);

#endif
