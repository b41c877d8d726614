/* How long something took, as Prometheus' type histogram: how many times were at most each bound,
 * and their sum.
 *
 * Memory: a histogram is static or a member, and 0 at first. Threads: any; relaxed counters without
 * a lock, so that a text that is written meanwhile may have a sum from a moment before or after its
 * buckets. The buckets and the count of one text always fit each other. */
#ifndef WAVETUNE_SERVER_HTTP_HISTOGRAM_H
#define WAVETUNE_SERVER_HTTP_HISTOGRAM_H

#include <stdatomic.h>
#include <stdio.h>

#include "common/base/base.h"

/* BOUND(in microseconds, as Prometheus' label le: in seconds). Answers from memory take less than
 * the first, --database-timeout-ms is by default the last. */
#define HISTOGRAM_BOUNDS(BOUND)                                                                    \
  BOUND(1000, "0.001")                                                                             \
  BOUND(2500, "0.0025")                                                                            \
  BOUND(5000, "0.005")                                                                             \
  BOUND(10000, "0.01")                                                                             \
  BOUND(25000, "0.025")                                                                            \
  BOUND(50000, "0.05")                                                                             \
  BOUND(100000, "0.1")                                                                             \
  BOUND(250000, "0.25")                                                                            \
  BOUND(500000, "0.5")                                                                             \
  BOUND(1000000, "1")                                                                              \
  BOUND(2500000, "2.5")                                                                            \
  BOUND(10000000, "10")                                                                            \
  BOUND(30000000, "30")

#define X(us, le) +1
enum { HISTOGRAM_BUCKET_COUNT = 1 HISTOGRAM_BOUNDS(X) }; /* the last: more than every bound */
#undef X

struct histogram {
  atomic_uint_fast64_t buckets[HISTOGRAM_BUCKET_COUNT]; /* each without those before it */
  atomic_uint_fast64_t sum_ns;
};

/* A time of less than 0 counts as 0. */
void histogram_add(struct histogram *histogram, int64_t ns);

/* Writes the lines of a histogram with one label, but nothing while no time was added: a histogram
 * is many lines. `value` must need no quoting. */
void histogram_write(FILE *out, const char *name, const char *label, const char *value,
                     struct histogram *histogram);

#endif
