/* Buckets of times, and their text for Prometheus. Memory and threads: histogram.h. */
#include "server/http/histogram.h"

#include <inttypes.h>

static const struct {
  int64_t ns;
  const char *le;
} bounds[HISTOGRAM_BUCKET_COUNT] = {
#define X(us, le) {us * 1000LL, le},
    HISTOGRAM_BOUNDS(X)
#undef X
        {INT64_MAX, "+Inf"}};

void histogram_add(struct histogram *histogram, int64_t ns) {
  if (ns < 0)
    ns = 0;
  size_t bucket = 0;
  while (ns > bounds[bucket].ns)
    bucket++;
  atomic_fetch_add_explicit(&histogram->buckets[bucket], 1, memory_order_relaxed);
  atomic_fetch_add_explicit(&histogram->sum_ns, (uint64_t)ns, memory_order_relaxed);
}

void histogram_write(FILE *out, const char *name, const char *label, const char *value,
                     struct histogram *histogram) {
  uint64_t n = 0, up_to[HISTOGRAM_BUCKET_COUNT];
  for (size_t i = 0; i < HISTOGRAM_BUCKET_COUNT; i++)
    up_to[i] = n += atomic_load_explicit(&histogram->buckets[i], memory_order_relaxed);
  if (!n)
    return;

  for (size_t i = 0; i < HISTOGRAM_BUCKET_COUNT; i++)
    fprintf(out, "%s_bucket{%s=\"%s\",le=\"%s\"} %" PRIu64 "\n", name, label, value, bounds[i].le,
            up_to[i]);
  double sum_s = (double)atomic_load_explicit(&histogram->sum_ns, memory_order_relaxed) / 1e9;
  fprintf(out, "%s_sum{%s=\"%s\"} %.9g\n%s_count{%s=\"%s\"} %" PRIu64 "\n", name, label, value,
          sum_s, name, label, value, n);
}
