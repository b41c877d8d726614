/* A worker's answers out of the bytes that come from its socket: what a process in which a
 * stranger's code runs says. Lines are bounded, and there are no more of them than were asked for.
 *
 * Memory: owns the bytes until worker_answers_release. Threads: one at a time. */
#ifndef WAVETUNE_AGENT_WORKER_WORKER_ANSWERS_H
#define WAVETUNE_AGENT_WORKER_WORKER_ANSWERS_H

#include "common/base/json.h"

struct worker_answers {
  char *bytes;
  size_t size, capacity;
  size_t scanned; /* without a newline */
  size_t left;    /* lines that the request may still have */
};
void worker_answers_release(struct worker_answers *answers);

/* Forgets what came: `lines` may answer the next request. */
void worker_answers_expect(struct worker_answers *answers, size_t lines);

/* Room for `size` bytes more. The caller writes there, and adds what came to answers->size. */
must_check char *worker_answers_room(struct worker_answers *answers, size_t size);

enum worker_line {
  WORKER_LINE_WHOLE,   /* *ret_answer is the object in it, the caller's */
  WORKER_LINE_MISSING, /* more bytes must come */
  WORKER_LINE_WRONG,   /* the worker is not to be believed any more: *error says why */
};
enum worker_line worker_answers_next(struct worker_answers *answers, json_t **ret_answer,
                                     struct error *error);

#endif
