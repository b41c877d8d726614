/* The supervisor's side of agent/worker/worker.h: asks a worker, reads its answers, and judges when
 * it crashed or hangs.
 *
 * Deadlines: a worker must change its status page's (config, phase) within limits.open_ms while it
 * opens (or has not begun), and within limits.config_ms in each phase of a config; and a request
 * ends within the sum of what its phases and turns may take, because a kernel may write to that
 * page. What passes is killed with its process group. Memory: a worker_client owns its child,
 * socket and page. Threads: one at a time. */
#ifndef WAVETUNE_AGENT_WORKER_WORKER_CLIENT_H
#define WAVETUNE_AGENT_WORKER_WORKER_CLIENT_H

#include "agent/worker/spawner.h"
#include "common/base/json.h"

struct worker_limits {
  int64_t open_ms;
  int64_t config_ms;
};

struct worker_client;

must_check bool worker_start(struct spawner *spawner, struct worker_limits limits,
                             struct worker_client **ret_worker, struct error *error);
/* With more of an environment (agent/worker/spawner.h). */
must_check bool worker_start_under(struct spawner *spawner, char *const *environment,
                                   struct worker_limits limits, struct worker_client **ret_worker,
                                   struct error *error);

/* Tells the worker to leave and does not wait for it: for several at once, before each is freed. */
void worker_dismiss(struct worker_client *worker);

/* Kills the worker at once and frees it. */
void worker_abandon(struct worker_client *worker);

/* Waits until a request is sent, for a worker that answers nothing. */
void worker_push(struct worker_client *worker);

/* Of a worker that should not have ended: why it has, in words, the caller's. *ret_has_said: they
 * are its own. Only worker_abandon may follow. */
must_check char *worker_epitaph(struct worker_client *worker, bool *ret_has_said);

/* Closes the socket, gives the worker a moment to leave its device in order, then kills it. */
void worker_free(struct worker_client *worker);

/* Puts a request on its way; answers follow from worker_next. */
void worker_ask(struct worker_client *worker, const json_t *request);
/* With the objects that it names (agent/worker/worker_bundle.h), and one more file descriptor,
 * which stays the caller's; -1: none. False when an object is not what was compiled: nothing was
 * asked then. */
must_check bool worker_ask_with(struct worker_client *worker, const json_t *request, int fd,
                                struct error *error);

enum worker_event {
  WORKER_ANSWER,  /* *ret_answer holds a line's object */
  WORKER_CRASHED, /* the process is gone: a signal, an exit, an answer that is none */
  WORKER_HUNG,    /* it passed a deadline and was killed */
  WORKER_STOPPED, /* `stopped` said so; it was killed */
};

struct worker_end {
  uint64_t config;  /* the status page's, as the worker left it: not to be trusted */
  int64_t turn_us;  /* since the page changed last */
  char detail[256]; /* "killed by signal 11 (Segmentation fault) while checking" */
};

/* Waits for what the worker does next. `stopped` is polled, and so is the status page: *current
 * (may be NULL) gets the config that it names. After an event other than WORKER_ANSWER only
 * worker_free may follow. */
enum worker_event worker_next(struct worker_client *worker, bool (*stopped)(void *context),
                              void *context, _Atomic uint64_t *current, json_t **ret_answer,
                              struct worker_end *ret_end);

#endif
