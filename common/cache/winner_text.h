/* What a winner's line in a release says, as slices of the release's canonical bytes: renderers copy texts where numbers
 * would have to be printed again. Canonical numbers are written as Python's repr writes them.
 *
 * Memory: slices are borrowed from the release. Threads: pure functions. */
#ifndef WAVETUNE_COMMON_CACHE_WINNER_TEXT_H
#define WAVETUNE_COMMON_CACHE_WINNER_TEXT_H

#include "common/cache/release.h"
#include "common/cache/text_buffer.h"

struct slice {
  const char *bytes; /* not NUL-terminated */
  size_t size;
};

/* The key's values, n of them (the kernel's n_key_names), each canonical JSON of a scalar. */
void winner_key_slices(const struct release_winner *winner, struct slice *slices, size_t n);

/* The milliseconds, winner->n_ms of them. */
void winner_ms_slices(const struct release_winner *winner, struct slice slices[RELEASE_MS_MAX]);

/* Python's str() of a value that a slice is: true and null become True and None, a string loses its quotes and escapes. */
void slice_add_str(struct text *text, struct slice slice);

#endif
