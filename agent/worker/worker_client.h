/* The supervisor's side of agent/worker/worker.h: sends requests to a worker, reads its answers,
 * and detects that it crashed or hangs.
 *
 * Deadlines: a worker must change its status page's (config, phase) within limits.open_ms while it
 * opens (or has not begun), and within limits.config_ms in each phase of a config; and a request
 * ends within the sum of what its phases and turns may take, because a kernel may write to that
 * page. A worker that misses one is killed with its process group. Memory: a worker_client owns its
 * child, socket and page. Threads: one at a time. */
#ifndef WAVETUNE_AGENT_WORKER_WORKER_CLIENT_H
#define WAVETUNE_AGENT_WORKER_WORKER_CLIENT_H

#include "agent/worker/supervise.h"
#include "common/base/json.h"

struct worker_limits {
  int64_t open_ms;
  int64_t config_ms;
};

struct worker_client;

must_check bool worker_start(struct spawner *spawner, struct worker_limits limits,
                             struct worker_client **ret_worker, struct error *error);
/* With more environment variables, as spawner_spawn. */
must_check bool worker_start_under(struct spawner *spawner, char *const *environment,
                                   struct worker_limits limits, struct worker_client **ret_worker,
                                   struct error *error);

/* Closes the connection and does not wait for the worker: for several at once, before each is
 * freed. */
void worker_dismiss(struct worker_client *worker);

/* Kills the worker at once and frees it. */
void worker_abandon(struct worker_client *worker);

/* Waits until a request is sent, for a worker that does not answer. */
void worker_flush(struct worker_client *worker);

/* Why a worker ended that should not have, in words; owned by the caller. *ret_has_stated: they are
 * the worker's. Only worker_abandon may follow. */
must_check char *worker_death_reason(struct worker_client *worker, bool *ret_has_stated);

/* Closes the socket, gives the worker a moment to release its device, then kills it. */
void worker_free(struct worker_client *worker);

/* Begins to send a request; answers follow from worker_next. */
void worker_request(struct worker_client *worker, const json_t *request);
/* With the objects that it names (agent/worker/worker_bundle.h), and one more file descriptor,
 * which stays the caller's; -1: none. False when an object is not what was compiled: then nothing
 * is sent. */
must_check bool worker_request_with(struct worker_client *worker, const json_t *request, int fd,
                                    struct error *error);

enum worker_event {
  WORKER_ANSWER,  /* *ret_answer holds a line's object */
  WORKER_CRASHED, /* it ended by a signal or an exit, or was killed because of a wrong answer */
  WORKER_HUNG,    /* it missed a deadline and was killed */
  WORKER_STOPPED, /* `stopped` returned true; it was killed */
};

struct worker_end {
  uint64_t config;  /* the status page's, as the worker left it: not to be trusted */
  int64_t turn_us;  /* since the page changed last */
  char detail[256]; /* "killed by signal 11 (Segmentation fault) while checking" */
};

/* Waits for the next event. `stopped` is polled, and so is the status page: *current (may be NULL)
 * gets its config. After an event other than WORKER_ANSWER only worker_free may follow. */
enum worker_event worker_next(struct worker_client *worker, bool (*stopped)(void *context),
                              void *context, _Atomic uint64_t *current, json_t **ret_answer,
                              struct worker_end *ret_end);

/* Splits the bytes from a worker's socket into answers. Untrusted code runs in that process:
 * lines are bounded, and there are no more of them than the request may have. Memory: owns the
 * bytes until worker_answers_release. */
struct worker_answers {
  char *bytes;
  size_t size, capacity;
  size_t scanned; /* bytes without a newline */
  size_t left;    /* lines that the request may still have */
};
void worker_answers_release(struct worker_answers *answers);

/* Drops the bytes; `lines` may answer the next request. */
void worker_answers_expect(struct worker_answers *answers, size_t lines);

/* Room for `size` bytes more. The caller writes there and adds their number to answers->size. */
must_check char *worker_answers_room(struct worker_answers *answers, size_t size);

enum worker_line {
  WORKER_LINE_WHOLE,   /* *ret_answer is the object in it, the caller's */
  WORKER_LINE_MISSING, /* more bytes must come */
  WORKER_LINE_WRONG,   /* the worker cannot be trusted any more: *error says why */
};
enum worker_line worker_answers_next(struct worker_answers *answers, json_t **ret_answer,
                                     struct error *error);

#endif
