/* Measurements into landscapes. Memory and threads: as the header says. */
#include <errno.h>
#include <math.h>

#include "common/base/names.h"
#include "common/verdict/outcome.h"
#include "common/verdict/verdict.h"
#include "inspect/simulate.h"

#define LINE_MAX_BYTES ((size_t)16 << 20)

void landscapes_release(struct landscapes *landscapes) {
  for (size_t i = 0; i < landscapes->n; i++) {
    struct landscape *landscape = &landscapes->all[i];
    for (size_t j = 0; j < landscape->n; j++) {
      json_decref(landscape->configs[j].values);
      free(landscape->configs[j].ratios);
    }
    free(landscape->kernel);
    free(landscape->configs);
    json_decref(landscape->key);
    json_decref(landscape->places);
    space_free(landscape->space);
  }
  free(landscapes->all);
  json_decref(landscapes->places);
}

/* The place that `name` has among places, where it gets one when it is new. */
static size_t place_of(json_t **places, const char *name) {
  if (!*places)
    *places = json_object();
  const json_t *known = json_object_get(*places, name);
  if (known)
    return (size_t)json_integer_value(known);
  size_t place = json_object_size(*places);
  ALWAYS(json_object_set_new(*places, name, json_integer((json_int_t)place)) == 0);
  return place;
}

struct landscape *landscapes_get(struct landscapes *landscapes, const char *kernel,
                                 const json_t *key) {
  cleanup_free char *key_text = json_canonical(key);
  cleanup_free char *name = xasprintf("%s %s", kernel, key_text);
  size_t place = place_of(&landscapes->places, name);
  if (place == landscapes->n) {
    GROW(landscapes->all, landscapes->n, landscapes->capacity);
    landscapes->all[landscapes->n++] = (struct landscape){
        .kernel = xstrdup(kernel), .key = json_incref((json_t *)key), .baseline = -1};
  }
  return &landscapes->all[place];
}

static bool times_read(const json_t *row, const char *name, size_t *ret_n, double **ret_times,
                       struct error *error) {
  json_t *array, *element;
  size_t i;
  if (!json_get_array(row, "", name, JSON_REQUIRED, &array, error))
    return false;
  cleanup_free double *times = xcalloc(json_array_size(array), sizeof *times);
  json_array_foreach (array, i, element) {
    times[i] = json_number_value(element);
    if (!(times[i] >= VERDICT_US_MIN && times[i] <= VERDICT_US_MAX))
      return error_set(error, "element %zu of \"%s\" is no time in microseconds", i, name);
  }
  *ret_n = json_array_size(array);
  *ret_times = TAKE(times);
  return true;
}

static bool measured_config_get(struct landscape *landscape, uint64_t config, const json_t *values,
                                struct measured_config **ret, struct error *error) {
  cleanup_free char *name = xasprintf("%llu", (unsigned long long)config);
  size_t place = place_of(&landscape->places, name);
  if (place == landscape->n) {
    GROW(landscape->configs, landscape->n, landscape->capacity);
    landscape->configs[landscape->n++] =
        (struct measured_config){.config = config, .values = json_incref((json_t *)values)};
  }
  *ret = &landscape->configs[place];
  return json_equal((*ret)->values, values) ||
         error_set(error,
                   "config %s has other values than before: these are measurements of several "
                   "spaces; keep those "
                   "of one",
                   name);
}

bool landscape_add(struct landscape *landscape, uint64_t config, const json_t *values,
                   const json_t *row, struct error *error) {
  struct measured_config *measured;
  enum outcome outcome;
  const char *outcome_text;
  if (!json_get_string(row, "", "outcome", JSON_REQUIRED, &outcome_text, error))
    return false;
  if (!outcome_parse(outcome_text, &outcome)) {
    char shown[NAME_TEXT_SIZE];
    return error_set(error, "\"%s\" is no outcome",
                     name_cut(outcome_text, strlen(outcome_text), shown));
  }
  double ratio = INFINITY;
  if (outcome == OUTCOME_CORRECT) {
    cleanup_free double *samples = NULL, *baselines = NULL;
    size_t n, n_baselines;
    if (!times_read(row, "samples_us", &n, &samples, error) ||
        !times_read(row, "baseline_us", &n_baselines, &baselines, error))
      return false;
    if (n != n_baselines)
      return error_set(error, "%zu samples_us and %zu baseline_us are no pairs", n, n_baselines);
    if (n == 0)
      return true; /* its turn never came */
    ratio = verdict_paired_ratio(samples, baselines, n);
  }
  if (!measured_config_get(landscape, config, values, &measured, error))
    return false;
  if (outcome == OUTCOME_CORRECT) {
    GROW(measured->ratios, measured->n, measured->capacity);
    measured->ratios[measured->n++] = ratio;
  }
  measured->has_failed |= outcome != OUTCOME_CORRECT;
  return true;
}

static bool line_add(struct landscapes *landscapes, const char *line, size_t length,
                     struct error *error) {
  cleanup_json json_t *row = NULL;
  const char *kernel;
  json_t *key, *values;
  int64_t config, baseline = -1;
  if (!json_parse(line, length, &row, error))
    return false;
  if (!json_is_object(row))
    return error_set(error, "this is no JSON object");
  if (!json_get_string(row, "", "kernel", JSON_REQUIRED, &kernel, error) ||
      !json_get_object(row, "", "key", JSON_REQUIRED, &key, error) ||
      !json_get_integer(row, "", "config", JSON_REQUIRED, 0, INT64_MAX, &config, error) ||
      !json_get_object(row, "", "config_values", JSON_REQUIRED, &values, error) ||
      !json_get_integer(row, "", "baseline", JSON_OPTIONAL, 0, INT64_MAX, &baseline, error))
    return false;
  struct landscape *landscape = landscapes_get(landscapes, kernel, key);
  landscape->baseline = baseline;
  return landscape_add(landscape, (uint64_t)config, values, row, error);
}

bool landscapes_read(const char *path, struct landscapes *landscapes, struct error *error) {
  cleanup_file FILE *file = fopen(path, "re");
  if (!file)
    return error_set(error, "%s cannot be read: %s", path, strerror(errno));
  cleanup_free char *line = NULL;
  size_t size = 0;
  ssize_t length;
  for (size_t number = 1; (length = getline(&line, &size, file)) >= 0; number++) {
    bool is_blank = strspn(line, " \t\r\n") == (size_t)length;
    if (is_blank)
      continue;
    bool is_added = (size_t)length <= LINE_MAX_BYTES
                        ? line_add(landscapes, line, (size_t)length, error)
                        : error_set(error, "the line is longer than %zu MiB", LINE_MAX_BYTES >> 20);
    if (!is_added) {
      error_prefix(error, "%s:%zu: ", path, number);
      size_t used = strlen(error->message);
      snprintf(
          error->message + used, sizeof error->message - used,
          "; each line must be a measurement as `wavetune-agent tune --samples FILE` writes it");
      return false;
    }
  }
  if (ferror(file))
    return error_set(error, "%s cannot be read: %s", path, strerror(errno));
  return landscapes->n > 0 ||
         error_set(error, "%s is empty; `wavetune-agent tune --samples FILE` writes measurements",
                   path);
}

static int configs_compare(const void *a, const void *b) {
  const struct measured_config *x = a, *y = b;
  return (x->config > y->config) - (x->config < y->config);
}

static int doubles_compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median_of(double *numbers, size_t n) {
  qsort(numbers, n, sizeof *numbers, doubles_compare);
  return n % 2 ? numbers[n / 2] : (numbers[n / 2 - 1] + numbers[n / 2]) / 2;
}

static bool space_of(const struct landscape *landscape, struct space **ret_space,
                     struct error *error) {
  cleanup_json json_t *json = json_object();
  json_t *list = json_array();
  json_object_set_new(json, "configs", list);
  for (size_t i = 0; i < landscape->n; i++) {
    json_array_append(list, landscape->configs[i].values);
    if (landscape->baseline >= 0 && landscape->configs[i].config == (uint64_t)landscape->baseline)
      json_object_set(json, "default", landscape->configs[i].values);
  }
  return space_parse(json, ret_space, error);
}

static bool landscape_finish(struct landscape *landscape, struct error *error) {
  qsort(landscape->configs, landscape->n, sizeof *landscape->configs, configs_compare);
  double least = INFINITY;
  for (size_t i = 0; i < landscape->n; i++) {
    struct measured_config *measured = &landscape->configs[i];
    measured->ratio = measured->has_failed ? INFINITY : median_of(measured->ratios, measured->n);
    landscape->n_failed += measured->has_failed;
    if (!measured->has_failed && measured->ratio > landscape->worst)
      landscape->worst = measured->ratio;
    if (measured->ratio < least) {
      least = measured->ratio;
      landscape->best = i;
    }
  }
  if (least == INFINITY)
    return error_set(error,
                     "no config was measured correctly, so that there is nothing to be found");
  return space_of(landscape, &landscape->space, error);
}

bool landscapes_finish(struct landscapes *landscapes, struct error *error) {
  for (size_t i = 0; i < landscapes->n; i++) {
    struct landscape *landscape = &landscapes->all[i];
    cleanup_free char *key = json_canonical(landscape->key);
    if (!landscape_finish(landscape, error))
      return error_prefix(error, "%s %s: ", landscape->kernel, key);
  }
  return true;
}
