/* Moderated intervals, Student's t, medians. Plain values; any thread. */
#include "common/verdict/verdict_interval.h"

#include <math.h>

#include "common/base/numbers.h"

#define MEDIAN_Z 2.5758 /* normal values lie within it but for 1 % */

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
