/* Moderated intervals, Student's t, medians. Plain values; any thread. */
#include "common/verdict_interval.h"

#include <math.h>

#include "common/rng.h"

#define NORMAL_OF_MAD 1.4826
#define NORMAL_MEDIAN_ERROR 1.2533

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
  double moderated =
      ((double)pooled->df * pooled->variance + distance->squares) / (double)distance_df(distance, pooled);
  return sqrt(fmax(moderated / n, distance->rounds / (n * n) + distance->resolution / n));
}

struct interval distance_interval(const struct distance *distance, const struct spread *pooled, double error) {
  double half = student_quantile(distance_df(distance, pooled), error / 2) * distance_error(distance, pooled);
  return (struct interval){distance->mean - half, distance->mean + half};
}

struct spread spread_pool(const double *medians, size_t n_configs, size_t n_processes) {
  if (n_configs == 0 || n_processes < 2)
    return (struct spread){0};
  double n_rows = (double)n_configs + 1, squares = 0;
  cleanup_free double *of_process = xcalloc(n_processes, sizeof *of_process);
  double mean = 0;
  for (size_t p = 0; p < n_processes; p++) {
    for (size_t c = 0; c < n_configs; c++)
      of_process[p] += medians[c * n_processes + p] / n_rows;
    mean += of_process[p] / (double)n_processes;
  }
  for (size_t c = 0; c < n_configs; c++) {
    const double *row = &medians[c * n_processes];
    double of_config = 0;
    for (size_t p = 0; p < n_processes; p++)
      of_config += row[p] / (double)n_processes;
    for (size_t p = 0; p < n_processes; p++) {
      double residual = row[p] - of_config - of_process[p] + mean;
      squares += residual * residual;
    }
  }
  for (size_t p = 0; p < n_processes; p++) /* the baseline's row is all zero */
    squares += (of_process[p] - mean) * (of_process[p] - mean);
  size_t df = (n_configs - 1) * (n_processes - 1);
  return (struct spread){2 * squares / (double)(n_configs * (n_processes - 1)),
                         df < SPREAD_DF_MAX ? df : SPREAD_DF_MAX};
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

/* Reorders so that values[k] is as if all were sorted, none before it is greater and none behind it less: Hoare's FIND, as
 * Wirth writes it, with pivots at random. */
static void partition_at(double *values, size_t n, size_t k) {
  struct rng rng = rng_seeded(n);
  ptrdiff_t left = 0, right = (ptrdiff_t)n - 1, wanted = (ptrdiff_t)k;
  while (left < right) {
    double pivot = values[left + (ptrdiff_t)rng_below(&rng, (uint64_t)(right - left) + 1)];
    ptrdiff_t i = left, j = right;
    while (i <= j) {
      while (values[i] < pivot)
        i++;
      while (pivot < values[j])
        j--;
      if (i <= j) {
        double kept = values[i];
        values[i++] = values[j];
        values[j--] = kept;
      }
    }
    if (j < wanted)
      left = i;
    if (wanted < i)
      right = j;
  }
}

double median_of(double *values, size_t n) {
  size_t low = (n - 1) / 2;
  partition_at(values, n, low);
  double median = values[low];
  if (n % 2 == 1)
    return median;
  double high = values[low + 1];
  for (size_t i = low + 2; i < n; i++)
    high = fmin(high, values[i]);
  return (median + high) / 2;
}

double median_error(double *values, size_t n, double median) {
  for (size_t i = 0; i < n; i++)
    values[i] = fabs(values[i] - median);
  return NORMAL_MEDIAN_ERROR * NORMAL_OF_MAD * median_of(values, n) / sqrt((double)n);
}

double timer_resolution(double *times, size_t n) {
  size_t middle = (n - 1) / 2, equal = 0;
  partition_at(times, n, middle);
  double median = times[middle], step = INFINITY;
  for (size_t i = 0; i < n; i++) {
    equal += times[i] == median;
    if (times[i] != median)
      step = fmin(step, fabs(times[i] - median));
  }
  if (equal < 2 || equal < n / 4 || isinf(step))
    return 0;
  return step * step / (median * median) / 12;
}
