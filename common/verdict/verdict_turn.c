/* One config in one process: its paired ratios as logarithms, their median and its error. Pure
 * functions; any thread. */
#include "common/verdict/verdict_turn.h"

#include <math.h>

#include "common/base/numbers.h"

static bool time_is_sane(double us) { return us >= VERDICT_US_MIN && us <= VERDICT_US_MAX; }

static bool sample_check(const struct verdict_sample *sample, struct error *error) {
  if (sample->n == 0)
    return error_set(error,
                     "config %llu has no pair in process %lld; leave out what was not measured",
                     (unsigned long long)sample->config, (long long)sample->process);
  for (size_t i = 0; i < sample->n; i++)
    if (!time_is_sane(sample->samples_us[i]) || !time_is_sane(sample->baseline_us[i]))
      return error_set(error,
                       "pair %zu of config %llu in process %lld is %g us and %g us; times must be "
                       "%g to %g microseconds",
                       i, (unsigned long long)sample->config, (long long)sample->process,
                       sample->samples_us[i], sample->baseline_us[i], VERDICT_US_MIN,
                       VERDICT_US_MAX);
  return true;
}

static int by_config_and_process(const struct verdict_sample *a, const struct verdict_sample *b) {
  if (a->config != b->config)
    return a->config < b->config ? -1 : 1;
  return (a->process > b->process) - (a->process < b->process);
}

/* Of two samples of one config in one process the longer comes first; the rest makes the order that
 * of a set. */
static int samples_compare(const void *a, const void *b) {
  const struct verdict_sample *left = a, *right = b;
  int order = by_config_and_process(left, right);
  if (order)
    return order;
  if (left->n != right->n)
    return left->n > right->n ? -1 : 1;
  const int64_t left_weights[] = {left->spills, left->lds_bytes, left->vgprs};
  const int64_t right_weights[] = {right->spills, right->lds_bytes, right->vgprs};
  order = memcmp(left->samples_us, right->samples_us, left->n * sizeof *left->samples_us);
  order = order
              ? order
              : memcmp(left->baseline_us, right->baseline_us, left->n * sizeof *left->baseline_us);
  return order ? order : memcmp(left_weights, right_weights, sizeof left_weights);
}

/* Keeps the first sample of each config in each process; returns how many there are. */
static size_t samples_distinct(struct verdict_sample *sorted, size_t n) {
  size_t kept = 0;
  for (size_t i = 0; i < n; i++)
    if (kept == 0 || by_config_and_process(&sorted[kept - 1], &sorted[i]) != 0)
      sorted[kept++] = sorted[i];
  return kept;
}

bool samples_sort(const struct verdict_sample *samples, size_t n,
                  struct verdict_sample **ret_sorted, size_t *ret_n, struct error *error) {
  for (size_t i = 0; i < n; i++)
    if (!sample_check(&samples[i], error))
      return false;
  *ret_sorted = xmemdup(samples, n * sizeof *samples);
  qsort(*ret_sorted, n, sizeof **ret_sorted, samples_compare);
  *ret_n = samples_distinct(*ret_sorted, n);
  return true;
}

double samples_median_us(const struct verdict_sample *const *samples, size_t n, bool of_baseline) {
  size_t count = 0, at = 0;
  for (size_t i = 0; i < n; i++)
    count += samples[i]->n;
  cleanup_free double *times = xcalloc(count, sizeof *times);
  for (size_t i = 0; i < n; at += samples[i++]->n)
    memcpy(times + at, of_baseline ? samples[i]->baseline_us : samples[i]->samples_us,
           samples[i]->n * sizeof *times);
  return median_of(times, count);
}

static double resolution_of(const double *times, size_t n) {
  cleanup_free double *copy = xmemdup(times, n * sizeof *copy);
  return timer_resolution(copy, n);
}

struct turn turn_make(const struct verdict_sample *sample) {
  struct turn turn = {.sample = sample,
                      .logs = xcalloc(sample->n, sizeof *turn.logs),
                      .resolution = resolution_of(sample->samples_us, sample->n) +
                                    resolution_of(sample->baseline_us, sample->n)};
  for (size_t i = 0; i < sample->n; i++)
    turn.logs[i] = log(sample->samples_us[i] / sample->baseline_us[i]);
  cleanup_free double *scratch = xmemdup(turn.logs, sample->n * sizeof *scratch);
  turn.median = median_of(scratch, sample->n);
  turn.error = median_error(scratch, sample->n);
  return turn;
}

void turn_release(struct turn *turn) { free(turn->logs); }

void turns_compare(const struct turn *a, const struct turn *b, struct distance *distance) {
  size_t n = a->sample->n < b->sample->n ? a->sample->n : b->sample->n;
  cleanup_free double *logs = xcalloc(n, sizeof *logs);
  for (size_t i = 0; i < n; i++)
    logs[i] = a->logs[i] - b->logs[i];
  double median = median_of(logs, n);
  distance_add(distance, median, median_error(logs, n), a->resolution + b->resolution);
}
