/* Samples of one config in one process, and the distance of two configs over several: moderated
 * intervals, Student's t, medians. */
#include "common/verdict/verdict_interval.h"

#include <math.h>

#include "common/base/numbers.h"

#define MEDIAN_Z 2.5758 /* 99 % of normal values are within it */

static bool time_is_sane(double us) { return us >= VERDICT_US_MIN && us <= VERDICT_US_MAX; }

static int by_config_and_process(const struct verdict_sample *a, const struct verdict_sample *b) {
  if (a->config != b->config)
    return a->config < b->config ? -1 : 1;
  return (a->process > b->process) - (a->process < b->process);
}

/* Of two samples of one config in one process the longer comes first. The rest makes the order
 * independent of the order given. */
static int samples_compare(const void *a, const void *b) {
  const struct verdict_sample *left = a, *right = b;
  int order = by_config_and_process(left, right);

  if (order)
    return order;
  if (left->n != right->n)
    return left->n > right->n ? -1 : 1;

  const int64_t left_weights[] = {left->spills, left->lds_bytes, left->vgprs};
  const int64_t right_weights[] = {right->spills, right->lds_bytes, right->vgprs};
  size_t size = left->n * sizeof *left->samples_us;
  order = memcmp(left->samples_us, right->samples_us, size);
  order = order ? order : memcmp(left->baseline_us, right->baseline_us, size);
  return order ? order : memcmp(left_weights, right_weights, sizeof left_weights);
}

bool samples_sort(const struct verdict_sample *samples, size_t n,
                  struct verdict_sample **ret_sorted, size_t *ret_n, struct error *error) {
  for (const struct verdict_sample *sample = samples; sample < samples + n; sample++) {
    unsigned long long config = sample->config;
    long long process = sample->process;
    if (sample->n == 0)
      return error_set(error,
                       "config %llu has no pair in process %lld; leave out what was not measured",
                       config, process);
    for (size_t i = 0; i < sample->n; i++)
      if (!time_is_sane(sample->samples_us[i]) || !time_is_sane(sample->baseline_us[i]))
        return error_set(error,
                         "pair %zu of config %llu in process %lld is %g us and %g us; times must "
                         "be %g to %g microseconds",
                         i, config, process, sample->samples_us[i], sample->baseline_us[i],
                         VERDICT_US_MIN, VERDICT_US_MAX);
  }

  struct verdict_sample *sorted = xmemdup(samples, n * sizeof *samples);
  size_t kept = 0;
  qsort(sorted, n, sizeof *sorted, samples_compare);

  for (size_t i = 0; i < n; i++)
    if (kept == 0 || by_config_and_process(&sorted[kept - 1], &sorted[i]) != 0)
      sorted[kept++] = sorted[i];

  *ret_sorted = sorted;
  *ret_n = kept;
  return true;
}

double samples_median_us(const struct verdict_sample *samples, size_t n, bool of_baseline) {
  size_t count = 0, at = 0;
  for (size_t i = 0; i < n; i++)
    count += samples[i].n;
  cleanup_free double *times = xcalloc(count, sizeof *times);
  for (size_t i = 0; i < n; at += samples[i++].n)
    memcpy(times + at, of_baseline ? samples[i].baseline_us : samples[i].samples_us,
           samples[i].n * sizeof *times);
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

void distance_add(struct distance *distance, double median, double error, double resolution) {
  distance->n++;
  double deviation = median - distance->mean; /* Welford: no cancellation of large sums */
  distance->mean += deviation / (double)distance->n;
  distance->squares += deviation * (median - distance->mean);
  distance->rounds += error * error;
  distance->resolution += resolution;
}

size_t distance_df(const struct distance *distance, const struct spread *pooled) {
  return pooled->df + distance->n - 1;
}

double distance_error(const struct distance *distance, const struct spread *pooled) {
  double n = (double)distance->n;
  double moderated = ((double)pooled->df * pooled->variance + distance->squares) /
                     (double)distance_df(distance, pooled);
  return sqrt(fmax(moderated / n, distance->rounds / (n * n) + distance->resolution / n));
}

struct interval distance_interval(const struct distance *distance, const struct spread *pooled,
                                  double error) {
  double half =
      student_quantile(distance_df(distance, pooled), error / 2) * distance_error(distance, pooled);
  return (struct interval){distance->mean - half, distance->mean + half};
}

struct spread spread_pool(const struct distance *distances, size_t n) {
  double squares = 0, own_df = 0;
  for (size_t i = 0; i < n; i++) {
    squares += distances[i].squares;
    own_df += (double)distances[i].n - 1;
  }

  if (own_df == 0)
    return (struct spread){0};

  double independent = (double)n / (1 + ((double)n - 1) / 4);
  double df = floor(own_df / (double)n * (independent - 1));
  return (struct spread){squares / own_df, df < SPREAD_DF_MAX ? (size_t)df : SPREAD_DF_MAX};
}

/* The probability that |T| <= sqrt(df) tan(angle). */
static double student_within(size_t df, double angle) {
  double cosine = cos(angle), term = df % 2 ? cosine : 1, sum = 0;
  for (size_t i = df % 2 ? 3 : 2; i <= df; i += 2) {
    sum += term;
    term *= cosine * cosine * (double)(i - 1) / (double)i;
  }
  return df % 2 ? 2 / M_PI * (angle + sin(angle) * sum) : sin(angle) * sum;
}

double student_quantile(size_t df, double tail) {
  double low = 0, high = M_PI / 2;
  for (int turn = 0; turn < 60; turn++) {
    double middle = (low + high) / 2;
    if (1 - student_within(df, middle) > 2 * tail)
      low = middle;
    else
      high = middle;
  }
  return sqrt((double)df) * tan(low);
}

double median_error(double *values, size_t n) {
  double low = ((double)n + 1) / 2 - MEDIAN_Z * sqrt((double)n / 4);
  size_t at = low < 1 ? 0 : (size_t)lround(low) - 1;
  double below = kth_of(values, n, at);
  return (kth_of(values, n, n - 1 - at) - below) / (2 * MEDIAN_Z);
}

double timer_resolution(double *times, size_t n) {
  size_t middle = (n - 1) / 2, equal = 0;
  double median = kth_of(times, n, middle), step = INFINITY;
  for (size_t i = 0; i < n; i++) {
    equal += times[i] == median;
    if (times[i] != median)
      step = fmin(step, fabs(times[i] - median));
  }

  if (equal < 2 || equal < n / 4 || isinf(step))
    return 0;
  return step * step / (median * median) / 12;
}
