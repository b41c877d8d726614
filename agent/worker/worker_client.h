/* The supervisor's side of agent/worker/worker.h: sends requests to a worker, reads its answers,
 * and detects that it crashed or hangs.
 *
 * Deadlines: a worker must change the (config, phase) of its status page within limits.open_ms
 * while it opens (or has not begun), and within limits.config_ms in each phase of a config. A
 * request must also end within the sum of the limits of its phases and turns, because a kernel may
 * write to that page. A worker that misses one is killed with its process group. Memory: a
 * worker_client owns its child, socket and page. Threads: one at a time. */
#ifndef WAVETUNE_AGENT_WORKER_WORKER_CLIENT_H
#define WAVETUNE_AGENT_WORKER_WORKER_CLIENT_H

#include "agent/worker/supervise.h"
#include "common/base/json.h"

struct worker_limits {
  int64_t open_ms;
  int64_t config_ms;
};

struct worker_client;

/* How a worker ends:                 waits for its end     kills it            frees the client
 *   worker_dismiss (closes its end)   no                    no                  no
 *   worker_strike                     no                    yes                 no
 *   worker_free                       a moment              then                yes
 *   worker_abandon                    no                    yes                 yes */

must_check bool worker_start(struct spawner *spawner, struct worker_limits limits,
                             struct worker_client **ret_worker, struct error *error);
/* Starts a worker with additional environment variables (see spawner_spawn). */
must_check bool worker_start_under(struct spawner *spawner, char *const *environment,
                                   struct worker_limits limits, struct worker_client **ret_worker,
                                   struct error *error);

/* Closes the connection without waiting for the worker. Called for several workers before each is
 * freed, so that they exit at the same time. */
void worker_dismiss(struct worker_client *worker);

/* Kills the worker without waiting for its end. Called for several workers before each is
 * abandoned. */
void worker_strike(struct worker_client *worker);

/* Kills the worker at once and frees it. */
void worker_abandon(struct worker_client *worker);

/* Waits until the request is sent. For a worker that does not answer: worker_next is not called. */
void worker_flush(struct worker_client *worker);

/* Why a worker ended unexpectedly; owned by the caller. *ret_has_stated: the worker itself reported
 * the reason. Only worker_abandon may follow. */
must_check char *worker_death_reason(struct worker_client *worker, bool *ret_has_stated);

/* Closes the socket, gives the worker a moment to release its device, then kills it. */
void worker_free(struct worker_client *worker);

/* Begins to send a request; worker_next returns the answers. */
void worker_request(struct worker_client *worker, const json_t *request);
/* Sends a request with the objects that it names (agent/worker/worker_bundle.h) and one more file
 * descriptor, which the caller keeps; -1: none. False when the bytes of an object are not those
 * that were compiled: then nothing is sent. */
must_check bool worker_request_with(struct worker_client *worker, const json_t *request, int fd,
                                    struct error *error);

enum worker_event {
  WORKER_ANSWER,  /* *ret_answer holds a line's object */
  WORKER_CRASHED, /* it ended by a signal or an exit, or was killed after an invalid answer */
  WORKER_HUNG,    /* it missed a deadline and was killed */
  WORKER_STOPPED, /* `stopped` returned true; it was killed */
};

struct worker_end {
  uint64_t config;  /* on the status page when the worker ended; untrusted */
  int64_t turn_us;  /* since the last change of the page */
  char detail[256]; /* "killed by signal 11 (Segmentation fault) while checking" */
};

/* Waits for the next event. `stopped` is polled, and so is the status page: *current (may be NULL)
 * gets its config. After an event other than WORKER_ANSWER only worker_free may follow. */
enum worker_event worker_next(struct worker_client *worker, bool (*stopped)(void *context),
                              void *context, _Atomic uint64_t *current, json_t **ret_answer,
                              struct worker_end *ret_end);

/* Splits the bytes from a worker's socket into answers. Untrusted code runs in that process: the
 * size and the number of lines are bounded. Memory: owns the bytes until worker_answers_release. */
struct worker_answers {
  char *bytes;
  size_t size, capacity;
  size_t scanned; /* bytes without a newline */
  size_t left;    /* lines that may still answer the request */
};
void worker_answers_release(struct worker_answers *answers);

/* Drops the bytes; at most `lines` lines may answer the next request. */
void worker_answers_expect(struct worker_answers *answers, size_t lines);

/* Room for `size` bytes more. The caller writes there and adds their number to answers->size. */
must_check char *worker_answers_room(struct worker_answers *answers, size_t size);

enum worker_line {
  WORKER_LINE_WHOLE,   /* *ret_answer is the object in it, the caller's */
  WORKER_LINE_MISSING, /* more bytes must come */
  WORKER_LINE_WRONG,   /* the answer is invalid, and the worker is not trusted: *error says why */
};
enum worker_line worker_answers_next(struct worker_answers *answers, json_t **ret_answer,
                                     struct error *error);

#endif
