/* One key of a campaign: lists its configs, adds measurements, prepares decisions. */
#include "agent/tune/key_tuning.h"

#include <math.h>

#include "common/base/numbers.h"

void key_tuning_release(struct key_tuning *tuning) {
  key_release(&tuning->key);
  free(tuning->job);
  free(tuning->configs);
  DISCARD(tuning->objects, build_objects_free);
  free(tuning->halved);
  free(tuning->racing);

  array_foreach (finalist, tuning->finals, tuning->n_finals) {
    free((double *)finalist->sample.samples_us);
    free((double *)finalist->sample.baseline_us);
  }

  free(tuning->finals);
  free(tuning->codes);
  array_foreach (example, tuning->examples, OUTCOME_COUNT)
    free(*example);
  free(tuning->baseline_failure);
  free(tuning->finalist_failure);
  free(tuning->disagreement);
  free(tuning->failure);
  if (tuning->is_decided)
    verdict_release(&tuning->verdict);
  *tuning = (struct key_tuning){0};
}

static void config_append(struct key_tuning *tuning, uint64_t config) {
  *APPEND(tuning->configs, tuning->n) = (struct key_config){.config = config};
}

static bool default_is_excluded(struct error *error) {
  return error_at(error, "/default",
                  "the default config is excluded by a condition for this key; every measurement "
                  "is compared with it, so choose a valid one");
}

static bool no_config_is_valid(struct error *error) {
  return error_set(error, "no config of the space satisfies its conditions for this key; loosen a "
                          "condition or add values");
}

struct key_config *key_tuning_find(const struct key_tuning *tuning, uint64_t config) {
  size_t from = tuning->sorted_from, n = tuning->n - from;
  return n ? bsearch(&config, tuning->configs + from, n, sizeof *tuning->configs, compare_ordinals)
           : NULL;
}

bool key_tuning_list(struct key_tuning *tuning, const struct space *space,
                     const struct space_facts *facts, int64_t only, struct error *error) {
  cleanup_space_iterator struct space_iterator *iterator = NULL;
  enum space_step step;
  uint64_t config;
  if (!space_iterator_new(space, facts, SPACE_STEP_LIMIT_DEFAULT, &iterator, error))
    return false;

  while ((step = space_iterator_next(iterator, &config, error)) == SPACE_POINT) {
    if (tuning->n == KEY_CONFIGS_MAX)
      return error_set(
          error,
          "more than %u configs of the space are valid; narrow it with conditions or search it "
          "with --search",
          KEY_CONFIGS_MAX);
    config_append(tuning, config);
  }

  if (step == SPACE_ERROR)
    return false;
  if (tuning->n == 0)
    return no_config_is_valid(error);
  if (space->has_default && !key_tuning_find(tuning, space->default_ordinal))
    return default_is_excluded(error);

  tuning->baseline = space->has_default ? space->default_ordinal : tuning->configs[0].config;
  if (only < 0)
    return true;
  if (!key_tuning_find(tuning, (uint64_t)only))
    return error_set(error, "config %lld of --only is not a valid config of the space for this key",
                     (long long)only);

  tuning->configs[0] = (struct key_config){.config = (uint64_t)only};
  tuning->n = 1;
  return true;
}

bool key_tuning_find_baseline(struct key_tuning *tuning, const struct space *space,
                              const struct space_facts *facts, struct error *error) {
  cleanup_space_iterator struct space_iterator *iterator = NULL;
  bool is_valid = false;
  tuning->baseline = space->default_ordinal;
  if (space->has_default)
    return space_is_valid(space, facts, space->default_ordinal, &is_valid, error) &&
           (is_valid || default_is_excluded(error));
  if (!space_iterator_new(space, facts, SPACE_STEP_LIMIT_DEFAULT, &iterator, error))
    return false;

  enum space_step step = space_iterator_next(iterator, &tuning->baseline, error);
  return step == SPACE_POINT || (step == SPACE_END && no_config_is_valid(error));
}

bool key_tuning_move_baseline(struct key_tuning *tuning, const struct space *space,
                              const struct space_facts *facts) {
  cleanup_space_iterator struct space_iterator *iterator = NULL;
  bool was_default = space->has_default && tuning->baseline == space->default_ordinal;
  struct error ignored;
  uint64_t config;
  if (!outcome_does_not_run(tuning->baseline_outcome) || key_tuning_best(tuning) ||
      tuning->n_baselines == BASELINES_MAX ||
      !space_iterator_new(space, facts, SPACE_STEP_LIMIT_DEFAULT, &iterator, &ignored))
    return false;

  while (space_iterator_next(iterator, &config, &ignored) == SPACE_POINT) {
    bool is_default = space->has_default && config == space->default_ordinal;
    if (is_default || (!was_default && config <= tuning->baseline))
      continue;
    tuning->baseline = config;
    tuning->n_baselines++;
    free(TAKE(tuning->baseline_failure));
    return true;
  }
  return false;
}

void key_tuning_add(struct key_tuning *tuning, const uint64_t *configs, size_t n) {
  tuning->sorted_from = tuning->n;
  array_foreach (config, configs, n)
    config_append(tuning, *config);
  qsort(tuning->configs + tuning->sorted_from, n, sizeof *tuning->configs, compare_ordinals);
}

void key_tuning_all_added(struct key_tuning *tuning) {
  tuning->sorted_from = 0;
  if (tuning->n)
    qsort(tuning->configs, tuning->n, sizeof *tuning->configs, compare_ordinals);
}

static int64_t known(int64_t value) { return value == FIELD_NONE ? 0 : value; }

static void final_take(struct key_tuning *tuning, int64_t process,
                       const struct measurement *measurement) {
  struct verdict_sample sample = {.config = (uint64_t)measurement->config, .process = process};
  if (measurement->outcome == OUTCOME_CORRECT) {
    size_t n = measurement->samples_us.n, size = n * sizeof(double);
    sample.n = n;
    sample.samples_us = xmemdup(measurement->samples_us.all, size);
    sample.baseline_us = xmemdup(measurement->baseline_us.all, size);
    sample.spills = known(measurement->spills);
    sample.lds_bytes = known(measurement->lds_bytes);
    sample.vgprs = known(measurement->vgprs);
    *APPEND(tuning->codes, tuning->n_codes) =
        (struct key_code){sample.config, measurement->vgprs, measurement->spills,
                          measurement->lds_bytes, measurement->occupancy};
  }

  *APPEND(tuning->finals, tuning->n_finals) =
      (struct final_measurement){measurement->outcome, sample};
}

/* Adds a measurement of a screen or a halving. */
static void race_take(struct key_tuning *tuning, struct key_config *config, enum stage stage,
                      const struct measurement *measurement) {
  bool is_right = measurement->outcome == OUTCOME_CORRECT;
  struct campaign_candidate candidate = {.config = config->config, .lease = tuning->n_leases};
  if (is_right) {
    candidate.ratio = verdict_paired_ratio(measurement->samples_us.all,
                                           measurement->baseline_us.all, measurement->samples_us.n);
    candidate.left_early = measurement_left_early(measurement);
  }

  if (stage == STAGE_SCREEN) {
    tuning->screen_outcomes[measurement->outcome]++;
    config->is_screened = is_right;
    config->left_early = candidate.left_early;
    config->ratio = candidate.ratio;
    config->lease = candidate.lease;
  } else if (is_right) {
    *APPEND(tuning->halved, tuning->n_halved) = candidate;
  }
}

bool key_tuning_take(struct key_tuning *tuning, const struct lease *lease,
                     const struct measurement *measurement) {
  bool is_right = measurement->outcome == OUTCOME_CORRECT;
  tuning->device_us += known(measurement->device_us);
  tuning->final_us += lease->stage == STAGE_FINAL ? known(measurement->device_us) : 0;
  tuning->n_measurements++;
  if (measurement->baseline_failed) {
    free(tuning->baseline_failure);
    tuning->baseline_failure = xstrdup(measurement->detail);
    tuning->baseline_outcome = measurement->outcome;
    agreement_facts_add(&tuning->baseline_agreement, measurement->conditions);
    return false;
  }

  struct key_config *config = key_tuning_find(tuning, (uint64_t)measurement->config);
  ALWAYS(config != NULL);
  char **example = &tuning->examples[measurement->outcome];
  if (!is_right && !*example) {
    cleanup_free char *values = space_config_format(lease->space, config->config);
    *example = xasprintf("%s: %s", values, measurement->detail);
  }

  if (!is_right && lease->stage == STAGE_FINAL && !tuning->finalist_failure)
    tuning->finalist_failure =
        xstrdup(measurement->detail ? measurement->detail : "no reason was stated");
  if (lease->stage == STAGE_FINAL)
    final_take(tuning, lease->process, measurement);
  else
    race_take(tuning, config, lease->stage, measurement);

  if (!is_right || !config->is_measured || lease->stage != config->stage) {
    config->outcome = measurement->outcome;
    config->stage = lease->stage;
  }

  agreement_facts_add(&config->agreement, measurement->conditions);
  if (config->agreement.with_default == AGREEMENT_DISAGREES && !tuning->disagreement &&
      measurement->detail)
    tuning->disagreement = xstrdup(measurement->detail);
  config->is_measured = true;
  return true;
}

void key_tuning_opened(struct key_tuning *tuning, enum stage stage, int64_t opening_us) {
  tuning->device_us += opening_us;
  tuning->final_us += stage == STAGE_FINAL ? opening_us : 0;
  tuning->opening_us += opening_us;
  tuning->openings += opening_us > 0;
}

const struct key_config *key_tuning_best(const struct key_tuning *tuning) {
  const struct key_config *best = NULL;
  array_foreach (config, tuning->configs, tuning->n) {
    if (config->is_screened && !config->left_early && (!best || config->ratio < best->ratio))
      best = config;
  }
  return best;
}

size_t key_tuning_warm_starts(const struct key_tuning *tuning, const struct key_tuning *before,
                              size_t n_before, uint64_t ret[WARM_STARTS_MAX]) {
  cleanup_free struct known_winner *winners = xcalloc(n_before + 1, sizeof *winners);
  size_t n = 0;
  for (size_t i = n_before; i-- > 0;) { /* the newest first */
    const struct key_config *best = key_tuning_best(&before[i]);
    if (best)
      winners[n++] = (struct known_winner){.key = &before[i].key, .config = best->config};
  }
  return warm_starts_choose(&tuning->key, winners, n, ret);
}

struct agreement_summary key_tuning_agreement(const struct key_tuning *tuning) {
  struct agreement_summary summary = {.baseline = tuning->baseline_agreement,
                                      .example = tuning->baseline_failure ? tuning->baseline_failure
                                                                          : tuning->disagreement};
  array_foreach (config, tuning->configs, tuning->n) {
    const struct agreement_facts *facts = &config->agreement;
    summary.disagree += facts->with_default == AGREEMENT_DISAGREES;
    summary.agree +=
        facts->with_default == AGREEMENT_BITWISE || facts->with_default == AGREEMENT_AGREES;
    if (config->config == tuning->baseline && config->is_measured)
      summary.baseline = *facts;
  }
  summary.of_default = summary.baseline;
  return summary;
}

struct search_options key_tuning_search(const struct key_tuning *tuning, const struct space *space,
                                        const struct campaign_terms *terms,
                                        const uint64_t *warm_starts, size_t n_warm_starts,
                                        uint64_t first[SEARCH_FIRST_MAX]) {
  return (struct search_options){
      .strategy = terms->strategy,
      .seed = (uint64_t)terms->seed,
      .trials = terms->trials,
      .n_likely = search_first(tuning->baseline, space->has_default, space->default_ordinal,
                               warm_starts, n_warm_starts, first),
      .likely = first,
  };
}

void key_tuning_tell(const struct key_tuning *tuning, struct search *search, const uint64_t *batch,
                     size_t n) {
  array_foreach (ordinal, batch, n) {
    const struct key_config *config = key_tuning_find(tuning, *ordinal);
    search_tell(search, *ordinal, config->is_screened ? config->ratio : INFINITY);
  }
}

struct budget key_tuning_budget(const struct key_tuning *tuning,
                                const struct campaign_terms *terms) {
  return (struct budget){
      .total_us = terms->budget_us,
      .spent_us = tuning->device_us,
      .opening_us = tuning->opening_us,
      .openings = tuning->openings,
      .measured = tuning->n_measurements,
      .final_us = tuning->final_us,
      .final_processes = tuning->n_processes,
  };
}

void key_tuning_next(const struct key_tuning *tuning, const struct campaign_terms *terms,
                     enum stage stage, struct campaign_step *ret_step) {
  cleanup_free struct campaign_candidate *candidates = xcalloc(tuning->n + 1, sizeof *candidates);
  const char *example = tuning->examples[OUTCOME_CORRECTNESS];
  for (size_t i = 0; i < OUTCOME_COUNT && !example; i++)
    example = tuning->examples[i];

  struct campaign_facts facts = {
      .baseline = tuning->baseline, /* the default where there is one */
      .seed = (uint64_t)terms->seed,
      .finalists_max = terms->finalists,
      .processes = terms->processes,
      .processes_max = terms->is_exhaustive ? terms->processes : FINAL_PROCESSES_MAX,
      .budget = key_tuning_budget(tuning, terms),
      .budget_larger_by = "give more with --budget",
      .stage = stage,
      .is_cut = tuning->is_spent,
      .screen = {.candidates = candidates, .example = example},
      .halving = {.n = tuning->n_halved, .candidates = tuning->halved},
      .processes_begun = tuning->n_processes,
      .n_measurements = tuning->n_finals,
      .measurements = tuning->finals,
      .final_example = tuning->finalist_failure,
      .agreement = key_tuning_agreement(tuning),
  };

  for (size_t i = 0; i < OUTCOME_COUNT; i++)
    facts.screen.outcomes[i] = tuning->screen_outcomes[i];
  array_foreach (config, tuning->configs, tuning->n) {
    if (config->is_screened)
      candidates[facts.screen.n++] = (struct campaign_candidate){config->config, config->ratio,
                                                                 config->left_early, config->lease};
  }

  campaign_next(&facts, ret_step);
}

void key_tuning_apply(struct key_tuning *tuning, struct campaign_step *step) {
  if (step->kind == CAMPAIGN_DISAGREED && tuning->is_decided) { /* by an earlier process */
    verdict_release(&tuning->verdict);
    tuning->is_decided = false;
  }
  if (step->kind == CAMPAIGN_FAILED || step->kind == CAMPAIGN_DISAGREED) {
    key_tuning_fail(tuning, &step->reason);
    return;
  }

  if (step->has_verdict) {
    if (tuning->is_decided)
      verdict_release(&tuning->verdict);
    tuning->verdict = step->verdict;
    tuning->is_decided = true;
    step->has_verdict = false;
  }

  tuning->is_ended = tuning->is_ended || step->kind == CAMPAIGN_DONE;
  free(tuning->racing);
  tuning->n_racing = step->n_configs;
  tuning->racing = TAKE(step->configs);
}

bool key_tuning_dropped_out(const struct key_tuning *tuning, uint64_t config) {
  const struct key_config *found = key_tuning_find(tuning, config);
  return found->is_measured && found->stage == STAGE_FINAL && found->outcome != OUTCOME_CORRECT;
}

void key_tuning_fail(struct key_tuning *tuning, const struct error *error) {
  uint64_t winner = tuning->verdict.winner;
  tuning->is_ended = true;
  if (tuning->is_decided && ((winner == tuning->baseline && tuning->baseline_failure) ||
                             key_tuning_dropped_out(tuning, winner))) {
    verdict_release(&tuning->verdict);
    tuning->is_decided = false;
  }

  if (!tuning->is_decided && !tuning->failure)
    tuning->failure = xstrdup(error->message);
}
