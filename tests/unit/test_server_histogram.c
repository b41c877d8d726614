/* The buckets of histograms, and their text for Prometheus. */
#include "server/http/histogram.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 4
#define ADDED 20000

/* The caller's. */
static char *text_of(struct histogram *histogram) {
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  cr_assert(out != NULL);
  histogram_write(out, "seconds", "route", "a", histogram);
  cr_assert(fclose(out) == 0);
  return text;
}

/* The value of the line that begins so. */
static double value_of(const char *text, const char *beginning) {
  const char *line = strstr(text, beginning);
  cr_assert(line != NULL, "%s is not in:\n%s", beginning, text);
  cr_assert(line == text || line[-1] == '\n');
  return strtod(line + strlen(beginning), NULL);
}

Test(histogram, a_time_counts_in_the_bucket_of_the_least_bound_that_it_does_not_exceed) {
  static struct histogram histogram;
  histogram_add(&histogram, 1000000); /* 1 ms: at the bound */
  histogram_add(&histogram, 1000001);
  histogram_add(&histogram, 30000000000);
  histogram_add(&histogram, 30000000001);
  cleanup_free char *text = text_of(&histogram);
  cr_expect_eq(value_of(text, "seconds_bucket{route=\"a\",le=\"0.001\"} "), 1);
  cr_expect_eq(value_of(text, "seconds_bucket{route=\"a\",le=\"0.0025\"} "), 2);
  cr_expect_eq(value_of(text, "seconds_bucket{route=\"a\",le=\"10\"} "), 2);
  cr_expect_eq(value_of(text, "seconds_bucket{route=\"a\",le=\"30\"} "), 3);
  cr_expect_eq(value_of(text, "seconds_bucket{route=\"a\",le=\"+Inf\"} "), 4);
  cr_expect_eq(value_of(text, "seconds_count{route=\"a\"} "), 4);
  cr_expect_float_eq(value_of(text, "seconds_sum{route=\"a\"} "), 60.002000002, 1e-6);
}

Test(histogram, buckets_are_written_from_the_least_bound_and_hold_those_before_them) {
  static struct histogram histogram;
  for (int64_t ns = 100; ns < 1000000000000; ns *= 3)
    histogram_add(&histogram, ns);
  cleanup_free char *text = text_of(&histogram);

  int n = 0;
  double bound = 0, count = 0;
  for (char *line = strtok(text, "\n"); line && strstr(line, "_bucket");
       line = strtok(NULL, "\n")) {
    double bound_here = strtod(strstr(line, "le=\"") + 4, NULL); /* of +Inf: infinity */
    double count_here = strtod(strstr(line, "} ") + 2, NULL);
    cr_expect(bound_here > bound && count_here >= count, "%s", line);
    bound = bound_here;
    count = count_here;
    n++;
  }
  cr_expect_eq(n, HISTOGRAM_BUCKET_COUNT);
  cr_expect_eq(count, 21);
}

Test(histogram, nothing_is_written_while_it_is_empty) {
  static struct histogram histogram;
  cleanup_free char *text = text_of(&histogram);
  cr_expect_str_empty(text);
}

Test(histogram, a_time_of_less_than_0_counts_as_0) {
  static struct histogram histogram;
  histogram_add(&histogram, -5);
  cleanup_free char *text = text_of(&histogram);
  cr_expect_eq(value_of(text, "seconds_bucket{route=\"a\",le=\"0.001\"} "), 1);
  cr_expect_eq(value_of(text, "seconds_sum{route=\"a\"} "), 0);
}

static void *add(void *histogram) {
  for (int i = 0; i < ADDED; i++)
    histogram_add(histogram, (int64_t)i * 1000000);
  return NULL;
}

Test(histogram, no_time_is_lost_between_threads_and_each_text_fits_itself) {
  static struct histogram histogram;
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++)
    cr_assert(pthread_create(&threads[i], NULL, add, &histogram) == 0);

  for (int i = 0; i < 50; i++) { /* while they add */
    cleanup_free char *text = text_of(&histogram);
    if (*text)
      cr_assert_eq(value_of(text, "seconds_bucket{route=\"a\",le=\"+Inf\"} "),
                   value_of(text, "seconds_count{route=\"a\"} "));
  }

  for (int i = 0; i < THREADS; i++)
    pthread_join(threads[i], NULL);
  cleanup_free char *text = text_of(&histogram);
  cr_expect_eq(value_of(text, "seconds_count{route=\"a\"} "), THREADS * ADDED);
  cr_expect_eq(value_of(text, "seconds_bucket{route=\"a\",le=\"10\"} "), THREADS * 10001);
  cr_expect_float_eq(value_of(text, "seconds_sum{route=\"a\"} "),
                     THREADS * 1e-3 * ADDED * (ADDED - 1) / 2, 1);
}
