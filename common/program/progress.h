/* A progress bar for long work: one line on stderr that is drawn again and again, on a terminal
 * only. On a pipe or in a file nothing is written.
 *
 * Memory: a progress borrows `what`. Threads: one at a time. */
#ifndef WAVETUNE_COMMON_PROGRAM_PROGRESS_H
#define WAVETUNE_COMMON_PROGRAM_PROGRESS_H

#include "common/base/base.h"

struct progress {
  FILE *out; /* NULL: nobody looks */
  const char *what;
  uint64_t total;
  int64_t started_ms, drawn_ms;
};

/* `total` 0: not known. */
struct progress progress_start(FILE *out, const char *what, uint64_t total);

/* Shows that `done` of the total are done and `note` ("" or e.g. "best 123.4 us") beside it. Draws
 * at most ten times a second. */
void progress_show(struct progress *progress, uint64_t done, const char *note);

/* Wipes the line: what follows begins in an empty one. */
void progress_end(struct progress *progress);

#endif
