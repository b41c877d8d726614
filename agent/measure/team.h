/* A few threads that work through numbered items and end with the work: for filling and comparing large buffers on the
 * host, between measurements and never during one.
 *
 * At most TEAM_MAX threads and a quarter of the CPUs, the caller included: a node has other devices to feed.
 * Memory: none kept. Threads: one calls; `work` is called from several at once. */
#ifndef WAVETUNE_AGENT_MEASURE_TEAM_H
#define WAVETUNE_AGENT_MEASURE_TEAM_H

#include "common/base.h"

#define TEAM_MAX 4

unsigned team_size(void);

/* Calls work(context, i) once for every i below n, and returns when all have returned. */
void team_run(unsigned threads, size_t n, void (*work)(void *context, size_t item), void *context);

/* Whether two buffers hold the same, by a team of team_size() where they are large. */
bool bytes_equal(const void *a, const void *b, size_t size);

#endif
