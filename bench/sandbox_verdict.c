/* The verdict (common/verdict) on two ways to run one config, from stdin: lines {"process": 3,
 * "samples_us": […], "baseline_us": […]}, the times of a process that ran in one way, and of the
 * process that ran in the other way at the same time. Prints the verdict as JSON: how the first way
 * compares with the second. Exits with 1 and an error sentence when there is no verdict.
 *
 * Memory: freed with the process. Threads: one. */
#include <stdio.h>

#include "common/verdict/verdict.h"

#define PROCESSES_MAX 1000
#define LINE_MAX_BYTES ((size_t)16 << 20)

static double *numbers_of(const json_t *array) {
  double *numbers = xcalloc(json_array_size(array) + 1, sizeof *numbers);
  for (size_t i = 0; i < json_array_size(array); i++)
    numbers[i] = json_number_value(json_array_get(array, i));
  return numbers;
}

int main(void) {
  static struct verdict_sample samples[PROCESSES_MAX];
  static char line[LINE_MAX_BYTES];
  struct verdict verdict;
  struct error error;
  size_t n = 0;
  for (; n < PROCESSES_MAX && fgets(line, sizeof line, stdin); n++) {
    json_t *json;
    if (!json_parse(line, strlen(line), &json, &error)) {
      fprintf(stderr, "line %zu: %s\n", n + 1, error.message);
      return 1;
    }
    const json_t *one = json_object_get(json, "samples_us"),
                 *other = json_object_get(json, "baseline_us");
    size_t shorter = json_array_size(one) < json_array_size(other) ? json_array_size(one)
                                                                   : json_array_size(other);
    samples[n] =
        (struct verdict_sample){.config = 1,
                                .process = json_integer_value(json_object_get(json, "process")),
                                .n = shorter,
                                .samples_us = numbers_of(one),
                                .baseline_us = numbers_of(other)};
  }

  if (!verdict_decide_for(samples, n, 0, 1, 1, &verdict, &error)) {
    fprintf(stderr, "no verdict: %s\n", error.message);
    return 1;
  }

  cleanup_json json_t *json = verdict_to_json(&verdict);
  json_dumpf(json, stdout, JSON_COMPACT);
  putchar('\n');
  verdict_release(&verdict);
  return 0;
}
