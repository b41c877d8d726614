/* A few threads that work through numbered items and end with the work: for filling and comparing
 * large buffers on the host, between measurements and never during one.
 *
 * A node has other devices to feed: team_size() is a quarter of its CPUs and at most 4, the caller
 * included. Memory: none kept. Threads: one calls; `work` is called from several at once. */
#ifndef WAVETUNE_AGENT_MEASURE_TEAM_H
#define WAVETUNE_AGENT_MEASURE_TEAM_H

#include "agent/device/fingerprint.h"

#define TEAM_MAX 8

unsigned team_size(void);

/* Calls work(context, i) once for every i below n, by at most `threads` and TEAM_MAX threads, and
 * returns when all have returned. */
void team_run(unsigned threads, size_t n, void (*work)(void *context, size_t item), void *context);

/* Whether two buffers hold the same, by a team of team_size() where they are large. */
bool bytes_equal(const void *a, const void *b, size_t size);

/* Of a buffer on the host, likewise. */
struct fingerprint bytes_fingerprint(const void *bytes, size_t size);

#endif
