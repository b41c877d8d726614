/* Which releases containers fetched: noted in memory by whoever answers, written down about every minute, so that what is fetched is
 * never collected.
 *
 * Threads: fetches_note and fetches_take any. Memory: a bounded static set. */
#ifndef WAVETUNE_SERVER_CACHE_FETCHES_H
#define WAVETUNE_SERVER_CACHE_FETCHES_H

#include "common/base/digest.h"

#define FETCHES_MAX 4096 /* different releases between two writes; more of them are noted when they are fetched again */

void fetches_note(const struct digest *release);

/* Moves what was noted to `ret` (FETCHES_MAX) and returns how many. */
size_t fetches_take(struct digest *ret);

#endif
