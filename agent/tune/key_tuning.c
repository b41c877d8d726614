/* One key of a campaign: lists its configs, keeps what is measured, decides. Memory and threads: the header. */
#include "agent/tune/key_tuning.h"

#include <math.h>

#include "common/verdict/finalists.h"

#define DISTANCE_OTHER                                                                                                 \
  8.0 /* of members that are no numbers, or have no logarithm, and differ: as much as a factor 256 */

static void samples_free(struct key_tuning *tuning) {
  for (size_t i = 0; i < tuning->n_samples; i++) {
    free((double *)tuning->samples[i].samples_us);
    free((double *)tuning->samples[i].baseline_us);
  }
  free(tuning->samples);
}

void key_tuning_release(struct key_tuning *tuning) {
  key_release(&tuning->key);
  free(tuning->job);
  free(tuning->configs);
  if (tuning->objects)
    build_objects_free(tuning->objects);
  free(tuning->finalists);
  samples_free(tuning);
  free(tuning->codes);
  for (size_t i = 0; i < OUTCOME_COUNT; i++)
    free(tuning->examples[i]);
  free(tuning->baseline_failure);
  free(tuning->finalist_failure);
  free(tuning->failure);
  if (tuning->is_decided)
    verdict_release(&tuning->verdict);
  *tuning = (struct key_tuning){0};
}

/* Configs */

static void config_append(struct key_tuning *tuning, uint64_t config) {
  GROW(tuning->configs, tuning->n, tuning->capacity);
  tuning->configs[tuning->n++] = (struct key_config){.config = config};
}

static bool default_is_excluded(struct error *error) {
  return error_at(error, "/default",
                  "the default config is excluded by a condition for this key; every measurement is compared with it, "
                  "so choose one that holds");
}

static bool nothing_holds(struct error *error) {
  return error_set(error,
                   "no point of the space fulfils its conditions for this key; loosen a condition or add values");
}

static int by_config(const void *a, const void *b) {
  const struct key_config *left = a, *right = b;
  return left->config < right->config ? -1 : left->config > right->config;
}

struct key_config *key_tuning_find(const struct key_tuning *tuning, uint64_t config) {
  struct key_config wanted = {.config = config};
  size_t from = tuning->sorted_from;
  return tuning->n == from
             ? NULL
             : bsearch(&wanted, tuning->configs + from, tuning->n - from, sizeof *tuning->configs, by_config);
}

static bool keep_only(struct key_tuning *tuning, int64_t only, struct error *error) {
  if (!key_tuning_find(tuning, (uint64_t)only))
    return error_set(error, "config %lld of --only is no point of the space that holds for this key", (long long)only);
  tuning->configs[0] = (struct key_config){.config = (uint64_t)only};
  tuning->n = 1;
  return true;
}

bool key_tuning_list(struct key_tuning *tuning, const struct space *space, const struct space_facts *facts,
                     int64_t only, struct error *error) {
  cleanup_space_iterator struct space_iterator *iterator = NULL;
  enum space_step step;
  uint64_t config;
  if (!space_iterator_new(space, facts, SPACE_STEP_LIMIT_DEFAULT, &iterator, error))
    return false;
  while ((step = space_iterator_next(iterator, &config, error)) == SPACE_POINT) {
    if (tuning->n == KEY_CONFIGS_MAX)
      return error_set(error,
                       "more than %u points of the space hold; narrow it with conditions or search it with "
                       "--search",
                       KEY_CONFIGS_MAX);
    config_append(tuning, config);
  }
  if (step == SPACE_ERROR)
    return false;
  if (tuning->n == 0)
    return nothing_holds(error);
  if (space->has_default && !key_tuning_find(tuning, space->default_ordinal))
    return default_is_excluded(error);
  tuning->baseline = space->has_default ? space->default_ordinal : tuning->configs[0].config;
  return only < 0 || keep_only(tuning, only, error);
}

bool key_tuning_find_baseline(struct key_tuning *tuning, const struct space *space, const struct space_facts *facts,
                              struct error *error) {
  cleanup_space_iterator struct space_iterator *iterator = NULL;
  bool holds = false;
  tuning->baseline = space->default_ordinal;
  if (space->has_default)
    return space_holds(space, facts, space->default_ordinal, &holds, error) && (holds || default_is_excluded(error));
  if (!space_iterator_new(space, facts, SPACE_STEP_LIMIT_DEFAULT, &iterator, error))
    return false;
  enum space_step step = space_iterator_next(iterator, &tuning->baseline, error);
  return step == SPACE_POINT || (step == SPACE_END && nothing_holds(error));
}

void key_tuning_add(struct key_tuning *tuning, const uint64_t *configs, size_t n) {
  tuning->sorted_from = tuning->n;
  for (size_t i = 0; i < n; i++)
    config_append(tuning, configs[i]);
  qsort(tuning->configs + tuning->sorted_from, n, sizeof *tuning->configs, by_config);
}

void key_tuning_all_added(struct key_tuning *tuning) {
  tuning->sorted_from = 0;
  if (tuning->n)
    qsort(tuning->configs, tuning->n, sizeof *tuning->configs, by_config);
}

/* Measurements */

static void sample_add(struct key_tuning *tuning, int64_t process, const struct measurement *measurement) {
  size_t size = measurement->n * sizeof(double);
  const struct code_resources *resources = &measurement->resources;
  GROW(tuning->samples, tuning->n_samples, tuning->samples_capacity);
  GROW(tuning->codes, tuning->n_codes, tuning->codes_capacity);
  tuning->codes[tuning->n_codes++] = (struct key_code){measurement->config, *resources, measurement->occupancy};
  tuning->samples[tuning->n_samples++] = (struct verdict_sample){
      .config = measurement->config,
      .process = process,
      .n = measurement->n,
      .samples_us = xmemdup(measurement->samples_us, size),
      .baseline_us = xmemdup(measurement->baseline_us, size),
      .spills = code_resources_spills(resources),
      .lds_bytes = resources->lds_bytes > 0 ? resources->lds_bytes : 0,
      .vgprs = resources->vgprs > 0 ? resources->vgprs : 0,
  };
}

static void failure_take(struct key_tuning *tuning, const struct lease *lease, const struct measurement *measurement) {
  char **example = &tuning->examples[measurement->outcome];
  if (!*example) {
    cleanup_free char *values = space_config_format(lease->space, measurement->config);
    *example = xasprintf("%s: %s", values, measurement->detail);
  }
  if (lease->stage == STAGE_FINAL && !tuning->finalist_failure)
    tuning->finalist_failure = xstrdup(measurement->detail);
}

bool key_tuning_take(struct key_tuning *tuning, const struct lease *lease, const struct measurement *measurement) {
  bool is_right = measurement->outcome == OUTCOME_CORRECT;
  tuning->device_us += measurement->device_us;
  tuning->final_us += lease->stage == STAGE_FINAL ? measurement->device_us : 0;
  tuning->n_measurements++;
  if (measurement->baseline_failed) {
    free(tuning->baseline_failure);
    tuning->baseline_failure = xstrdup(measurement->detail);
    return false;
  }
  struct key_config *config = key_tuning_find(tuning, measurement->config);
  ALWAYS(config != NULL);
  if (!is_right)
    failure_take(tuning, lease, measurement);
  if (is_right && lease->stage == STAGE_FINAL)
    sample_add(tuning, lease->process, measurement);
  if (is_right && (lease->stage != STAGE_FINAL || !config->is_measured))
    config->ratio = verdict_paired_ratio(measurement->samples_us, measurement->baseline_us, measurement->n);
  if (is_right && lease->stage != STAGE_FINAL)
    config->left_early = measurement_left_early(measurement);
  if (!is_right || !config->is_measured) /* what failed in one process of the finals has failed */
    config->outcome = measurement->outcome;
  config->is_measured = true;
  return true;
}

void key_tuning_opened(struct key_tuning *tuning, enum stage stage, int64_t opening_us) {
  tuning->device_us += opening_us;
  tuning->final_us += stage == STAGE_FINAL ? opening_us : 0;
  tuning->opening_us += opening_us;
  tuning->openings += opening_us > 0;
}

/* Choices */

static bool is_correct(const struct key_config *config) {
  return config->is_measured && config->outcome == OUTCOME_CORRECT;
}

size_t key_tuning_choose(const struct key_tuning *tuning, size_t most, uint64_t *ret) {
  cleanup_free double *ratios = xcalloc(tuning->n, sizeof *ratios);
  cleanup_free uint64_t *configs = xcalloc(tuning->n, sizeof *configs);
  cleanup_free bool *left_early = xcalloc(tuning->n, sizeof *left_early);
  size_t n = 0;
  for (size_t i = 0; i < tuning->n; i++) {
    const struct key_config *config = &tuning->configs[i];
    if (!is_correct(config) || (config->is_behind && config->config != tuning->baseline))
      continue;
    ratios[n] = config->ratio;
    left_early[n] = config->left_early;
    configs[n++] = config->config;
  }
  return finalists_choose(ratios, left_early, configs, n, &tuning->baseline, 1, most, ret);
}

const struct key_config *key_tuning_best(const struct key_tuning *tuning) {
  const struct key_config *best = NULL;
  for (size_t i = 0; i < tuning->n; i++) {
    const struct key_config *config = &tuning->configs[i];
    if (is_correct(config) && !config->left_early && (!best || config->ratio < best->ratio))
      best = config;
  }
  return best;
}

/* The samples of configs that failed in no process, in front. */
static size_t samples_sift(struct key_tuning *tuning) {
  size_t n = 0;
  for (size_t i = 0; i < tuning->n_samples; i++) {
    struct verdict_sample sample = tuning->samples[i];
    if (!is_correct(key_tuning_find(tuning, sample.config)))
      continue;
    tuning->samples[i] = tuning->samples[n];
    tuning->samples[n++] = sample;
  }
  return n;
}

bool key_tuning_decide(struct key_tuning *tuning, uint64_t seed, struct error *error) {
  struct verdict verdict;
  size_t n = samples_sift(tuning);
  if (n == 0 && tuning->finalist_failure)
    return error_set(error, "every finalist failed when it was measured again in a fresh process; one of them: %s",
                     tuning->finalist_failure);
  if (!verdict_decide(tuning->samples, n, tuning->baseline, seed, &verdict, error))
    return false;
  if (tuning->is_decided)
    verdict_release(&tuning->verdict);
  tuning->verdict = verdict;
  tuning->is_decided = true;
  return true;
}

bool key_tuning_failed_config(const struct key_tuning *tuning, uint64_t config) {
  const struct key_config *found = key_tuning_find(tuning, config);
  return found->is_measured && found->outcome != OUTCOME_CORRECT;
}

void key_tuning_fail(struct key_tuning *tuning, const struct error *error) {
  uint64_t winner = tuning->verdict.winner;
  tuning->is_ended = true;
  if (tuning->is_decided &&
      ((winner == tuning->baseline && tuning->baseline_failure) || key_tuning_failed_config(tuning, winner))) {
    verdict_release(&tuning->verdict);
    tuning->is_decided = false;
  }
  if (!tuning->is_decided && !tuning->failure)
    tuning->failure = xstrdup(error->message);
}

static bool number_of(struct value value, double *ret) {
  if (value.type != VALUE_INT && value.type != VALUE_FLOAT)
    return false;
  *ret = value.type == VALUE_INT ? (double)value.integer : value.real;
  return *ret > 0;
}

double key_distance(const struct key *a, const struct key *b) {
  double distance = 0;
  for (size_t i = 0; i < a->n && i < b->n; i++) {
    double left, right;
    if (number_of(a->values[i], &left) && number_of(b->values[i], &right))
      distance += fabs(log2(left / right));
    else if (!value_equal(a->values[i], b->values[i]))
      distance += DISTANCE_OTHER;
  }
  return distance;
}
