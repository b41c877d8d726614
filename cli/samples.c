/* The rows of a job's final as the server lists them, read into what a verdict is decided from. One
 * thread. */
#include "cli/samples.h"

#include "cli/cli.h"

void samples_release(struct samples *samples) {
  for (size_t i = 0; i < samples->n; i++) {
    free((double *)samples->items[i].samples_us);
    free((double *)samples->items[i].baseline_us);
  }
  free(samples->items);
  json_decref(samples->devices);
}

static double *numbers_of(const json_t *array) {
  double *numbers = xcalloc(json_array_size(array), sizeof *numbers);
  size_t index;
  json_t *element;
  json_array_foreach (array, index, element)
    numbers[index] = json_number_value(element);
  return numbers;
}

static bool is_of_final(const json_t *row) {
  return string_equal(cli_member(row, "stage"), "final") &&
         !json_is_true(json_object_get(row, "late"));
}

static bool is_correct(const json_t *row) {
  return string_equal(cli_member(row, "outcome"), "correct");
}

/* Whether the config failed in some process of the final: then it is no finalist. */
static bool dropped_out(const json_t *measurements, json_int_t config) {
  size_t index;
  const json_t *row;
  json_array_foreach (measurements, index, row)
    if (is_of_final(row) && !is_correct(row) &&
        json_integer_value(json_object_get(row, "config")) == config)
      return true;
  return false;
}

/* The index in `devices` of the one that a row was measured on; it grows. */
static int64_t device_index(json_t *devices, const json_t *row) {
  size_t index;
  const json_t *known;
  json_array_foreach (devices, index, known)
    if (string_equal(cli_member(known, "agent"), cli_member(row, "agent")) &&
        string_equal(cli_member(known, "device"), cli_member(row, "device")))
      return (int64_t)index;
  ALWAYS(json_array_append_new(
             devices, json_pack("{s:s, s:s, s:b}", "agent", cli_member(row, "agent"), "device",
                                cli_member(row, "device"), "quarantined", false)) == 0);
  return (int64_t)json_array_size(devices) - 1;
}

int samples_load(struct http_client *client, const json_t *job, struct samples *ret) {
  cleanup_free char *path = xasprintf("/v1/jobs/%s/measurements", cli_member(job, "job"));
  cleanup_json json_t *measurements = NULL;
  int code = cli_list(client, path, &measurements);
  if (code != EXIT_OK)
    return code;
  struct samples samples = {0, xcalloc(json_array_size(measurements), sizeof *samples.items),
                            json_array()};
  size_t index;
  json_t *row;
  json_array_foreach (measurements, index, row) {
    if (!is_of_final(row) || !is_correct(row) ||
        dropped_out(measurements, json_integer_value(json_object_get(row, "config"))))
      continue;
    const json_t *times = json_object_get(row, "samples_us"),
                 *baselines = json_object_get(row, "baseline_us");
    if (json_array_size(times) == 0 || json_array_size(times) != json_array_size(baselines))
      continue;
    samples.items[samples.n++] = (struct verdict_sample){
        .config = (uint64_t)json_integer_value(json_object_get(row, "config")),
        .process = json_integer_value(json_object_get(row, "process")),
        .n = json_array_size(times),
        .samples_us = numbers_of(times),
        .baseline_us = numbers_of(baselines),
        .spills = json_integer_value(json_object_get(row, "spills")),
        .lds_bytes = json_integer_value(json_object_get(row, "lds_bytes")),
        .vgprs = json_integer_value(json_object_get(row, "vgprs")),
        .device = device_index(samples.devices, row),
    };
    if (json_is_true(json_object_get(row, "quarantined")))
      json_object_set_new(
          json_array_get(samples.devices, (size_t)samples.items[samples.n - 1].device),
          "quarantined", json_true());
  }
  *ret = samples;
  return EXIT_OK;
}
