/* How often a kernel's tensors pass through LDS: what is written there and read from there again is one trip.
 *
 * A read belongs to the write whose value it names. Where the text does not tell (a buffer that a loop passes on to its
 * next iteration, a transposed view), writes and reads of the same place, inside or outside of loops, are taken for the
 * two halves of as many trips as there are of the more frequent half.
 * Memory: names are borrowed from the text. Threads: pure functions. */
#ifndef WAVETUNE_COMMON_REVIEW_TTGIR_TRIPS_H
#define WAVETUNE_COMMON_REVIEW_TTGIR_TRIPS_H

#include "common/review/ttgir_layout.h"

#define TTGIR_VALUES_MAX 256 /* in LDS, that are known by name at one place; more count as if they had none */

/* A value in LDS that later lines may read by its name. */
struct ttgir_value {
  struct span name; /* "%12" */
  int nesting;      /* of the braces that it is known in */
  bool is_in_loop, is_read;
};

/* [0]: outside of loops, [1]: in loops. */
struct ttgir_trips {
  size_t n;
  struct ttgir_value values[TTGIR_VALUES_MAX];
  int64_t whole[2], writes[2], reads[2];
};

void ttgir_trips_write(struct ttgir_trips *trips, struct span name, int nesting, bool is_in_loop);
void ttgir_trips_read(struct ttgir_trips *trips, struct span name, bool is_in_loop);
/* The names of what is nested deeper than this are no longer known. */
void ttgir_trips_leave(struct ttgir_trips *trips, int nesting);
/* At the end of the text. */
void ttgir_trips_count(struct ttgir_trips *trips, int64_t *ret_outside, int64_t *ret_in_loops);

#endif
