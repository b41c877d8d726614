/* Medians, and bootstrap draws over processes and rounds. A series is its owner's; any thread. */
#include "common/verdict_bootstrap.h"

#include <math.h>

#include "common/rng.h"

static int doubles_compare(const void *a, const void *b) {
  double left = *(const double *)a, right = *(const double *)b;
  return (left > right) - (left < right);
}

double median_of(double *values, size_t n) {
  qsort(values, n, sizeof *values, doubles_compare);
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

void percentiles_of(double *draws, size_t n, double *ret_lower, double *ret_upper) {
  qsort(draws, n, sizeof *draws, doubles_compare);
  *ret_lower = draws[n / 40];
  *ret_upper = draws[n - 1 - n / 40];
}

static int rounds_compare(const void *a, const void *b) {
  const struct round_ratio *left = a, *right = b;
  if (left->value != right->value)
    return left->value < right->value ? -1 : 1;
  return (left->round > right->round) - (left->round < right->round);
}

void series_add(struct series *series, const double *ratios, size_t n) {
  ALWAYS(n > 0);
  struct process_ratios process = {.n = n, .sorted = xcalloc(n, sizeof *process.sorted)};
  for (size_t i = 0; i < n; i++)
    process.sorted[i] = (struct round_ratio){ratios[i], i};
  qsort(process.sorted, n, sizeof *process.sorted, rounds_compare);
  GROW(series->processes, series->n, series->capacity);
  series->processes[series->n++] = process;
}

void series_release(struct series *series) {
  for (size_t i = 0; i < series->n; i++)
    free(series->processes[i].sorted);
  free(series->processes);
  *series = (struct series){0};
}

double series_estimate(const struct series *series) {
  double log_sum = 0;
  for (size_t i = 0; i < series->n; i++) {
    const struct process_ratios *process = &series->processes[i];
    log_sum += log((process->sorted[(process->n - 1) / 2].value + process->sorted[process->n / 2].value) / 2);
  }
  return exp(log_sum / (double)series->n);
}

/* The median of n rounds drawn with replacement. The ratios are sorted once and the draw only counts how often each
 * round came, so that a median is one walk instead of one sort. */
static double median_drawn(const struct process_ratios *process, struct rng *rng, uint32_t *times) {
  size_t n = process->n, low = (n - 1) / 2, high = n / 2, seen = 0, at = 0;
  memset(times, 0, n * sizeof *times);
  for (size_t i = 0; i < n; i++)
    times[rng_below(rng, n)]++;
  while ((seen += times[process->sorted[at].round]) <= low)
    at++;
  double lower_middle = process->sorted[at].value;
  while (seen <= high)
    seen += times[process->sorted[++at].round];
  return (lower_middle + process->sorted[at].value) / 2;
}

void series_draw(const struct series *series, uint64_t seed, double *draws, size_t n) {
  struct rng rng = rng_seeded(seed);
  size_t rounds_max = 0;
  for (size_t i = 0; i < series->n; i++)
    if (series->processes[i].n > rounds_max)
      rounds_max = series->processes[i].n;
  cleanup_free uint32_t *times = xcalloc(rounds_max, sizeof *times);
  for (size_t draw = 0; draw < n; draw++) {
    double log_sum = 0;
    for (size_t i = 0; i < series->n; i++)
      log_sum += log(median_drawn(&series->processes[rng_below(&rng, series->n)], &rng, times));
    draws[draw] = exp(log_sum / (double)series->n);
  }
}
