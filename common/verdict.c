/* The verdict over stored samples: finalists, the best, the equivalence set, the winner and how sure that is.
 *
 * Memory: a verdict owns its arrays; samples are borrowed. Pure functions, any thread. */
#include "common/verdict.h"

#include <math.h>

#include "common/verdict_bootstrap.h"

/* A config that was measured in enough processes: its samples lie together, by rising process. */
struct candidate {
  uint64_t config;
  size_t n; /* processes */
  const struct verdict_sample *samples;
  int64_t spills, lds_bytes, vgprs;
  double figure; /* geometric mean over processes of the median paired ratio */
};

struct candidates {
  size_t n, capacity;
  struct candidate *all;
};

static void candidates_release(struct candidates *candidates) { free(candidates->all); }

const char *verdict_outcome_name(enum verdict_outcome outcome) {
  static const char *const names[] = {"FASTER", "SAME", "SLOWER", "AMBIGUOUS"};
  return names[outcome];
}

static double *paired_ratios(const double *samples_us, const double *baseline_us, size_t n) {
  double *ratios = xcalloc(n, sizeof *ratios);
  for (size_t i = 0; i < n; i++)
    ratios[i] = samples_us[i] / baseline_us[i];
  return ratios;
}

double verdict_paired_ratio(const double *samples_us, const double *baseline_us, size_t n) {
  cleanup_free double *ratios = paired_ratios(samples_us, baseline_us, n);
  return median_of(ratios, n);
}

static bool time_is_sane(double us) { return us >= VERDICT_US_MIN && us <= VERDICT_US_MAX; }

static bool sample_check(const struct verdict_sample *sample, struct error *error) {
  if (sample->n == 0)
    return error_set(error, "config %llu has no pair in process %lld; leave out what was not measured",
                     (unsigned long long)sample->config, (long long)sample->process);
  for (size_t i = 0; i < sample->n; i++)
    if (!time_is_sane(sample->samples_us[i]) || !time_is_sane(sample->baseline_us[i]))
      return error_set(
          error, "pair %zu of config %llu in process %lld is %g us and %g us; times must be %g to %g microseconds", i,
          (unsigned long long)sample->config, (long long)sample->process, sample->samples_us[i], sample->baseline_us[i],
          VERDICT_US_MIN, VERDICT_US_MAX);
  return true;
}

static int by_config_and_process(const struct verdict_sample *a, const struct verdict_sample *b) {
  if (a->config != b->config)
    return a->config < b->config ? -1 : 1;
  return (a->process > b->process) - (a->process < b->process);
}

/* Of two samples of one config in one process the longer comes first; the rest makes the order that of a set. */
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
  order = order ? order : memcmp(left->baseline_us, right->baseline_us, left->n * sizeof *left->baseline_us);
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

/* The config's own ratios to the baseline, process by process. */
static struct series baseline_series(const struct candidate *candidate) {
  struct series series = {0};
  for (size_t i = 0; i < candidate->n; i++) {
    const struct verdict_sample *sample = &candidate->samples[i];
    cleanup_free double *ratios = paired_ratios(sample->samples_us, sample->baseline_us, sample->n);
    series_add(&series, ratios, sample->n);
  }
  return series;
}

/* The ratios of two configs in the processes that both have, over the rounds that both have. */
static struct series ratio_series(const struct candidate *candidate, const struct candidate *to) {
  struct series series = {0};
  size_t i = 0, j = 0;
  while (i < candidate->n && j < to->n) {
    const struct verdict_sample *a = &candidate->samples[i], *b = &to->samples[j];
    if (a->process < b->process) {
      i++;
    } else if (a->process > b->process) {
      j++;
    } else {
      size_t n = a->n < b->n ? a->n : b->n;
      cleanup_free double *ratios = paired_ratios(a->samples_us, a->baseline_us, n);
      cleanup_free double *to_ratios = paired_ratios(b->samples_us, b->baseline_us, n);
      for (size_t k = 0; k < n; k++)
        ratios[k] /= to_ratios[k];
      series_add(&series, ratios, n);
      i++, j++;
    }
  }
  return series;
}

static struct candidate candidate_make(const struct verdict_sample *samples, size_t n) {
  struct candidate candidate = {.config = samples[0].config, .n = n, .samples = samples};
  for (size_t i = 0; i < n; i++) { /* should two builds of a config differ, the heavier one counts */
    candidate.spills = samples[i].spills > candidate.spills ? samples[i].spills : candidate.spills;
    candidate.lds_bytes = samples[i].lds_bytes > candidate.lds_bytes ? samples[i].lds_bytes : candidate.lds_bytes;
    candidate.vgprs = samples[i].vgprs > candidate.vgprs ? samples[i].vgprs : candidate.vgprs;
  }
  cleanup_series struct series series = baseline_series(&candidate);
  candidate.figure = series_estimate(&series);
  return candidate;
}

static struct candidates candidates_find(const struct verdict_sample *sorted, size_t n) {
  struct candidates candidates = {0};
  for (size_t first = 0, end; first < n; first = end) {
    for (end = first + 1; end < n && sorted[end].config == sorted[first].config;)
      end++;
    if (end - first < VERDICT_PROCESSES_MIN)
      continue;
    GROW(candidates.all, candidates.n, candidates.capacity);
    candidates.all[candidates.n++] = candidate_make(&sorted[first], end - first);
  }
  return candidates;
}

/* Candidates lie by rising ordinal, so that of equal ones the first is the best. */
static const struct candidate *least_figure(const struct candidates *candidates) {
  const struct candidate *least = &candidates->all[0];
  for (size_t i = 1; i < candidates->n; i++)
    if (candidates->all[i].figure < least->figure)
      least = &candidates->all[i];
  return least;
}

/* The candidate that is faster than `than` by the least paired ratio, or `than` when none is. */
static const struct candidate *challenger_of(const struct candidates *candidates, const struct candidate *than) {
  const struct candidate *challenger = than;
  double least = 1;
  for (size_t i = 0; i < candidates->n; i++) {
    cleanup_series struct series series = ratio_series(&candidates->all[i], than);
    double ratio = series.n < VERDICT_PROCESSES_MIN ? 1 : series_estimate(&series);
    if (ratio < least) {
      least = ratio;
      challenger = &candidates->all[i];
    }
  }
  return challenger;
}

/* Paired ratios of medians are not transitive to the last digit, so the least figure may be beaten in a direct
 * comparison: then the one that beats it is the best. Turns are bounded, since such a chain may close. */
static const struct candidate *best_of(const struct candidates *candidates) {
  const struct candidate *best = least_figure(candidates);
  for (size_t turn = 0; turn < candidates->n; turn++) {
    const struct candidate *challenger = challenger_of(candidates, best);
    if (challenger == best)
      break;
    best = challenger;
  }
  return best;
}

/* The median over all samples (or all their baselines) of some candidates. */
static double median_us(const struct candidate *candidates, size_t n, bool of_baseline) {
  size_t count = 0, at = 0;
  for (size_t i = 0; i < n; i++)
    for (size_t j = 0; j < candidates[i].n; j++)
      count += candidates[i].samples[j].n;
  cleanup_free double *values = xcalloc(count, sizeof *values);
  for (size_t i = 0; i < n; i++)
    for (size_t j = 0; j < candidates[i].n; j++) {
      const struct verdict_sample *sample = &candidates[i].samples[j];
      memcpy(values + at, of_baseline ? sample->baseline_us : sample->samples_us, sample->n * sizeof *values);
      at += sample->n;
    }
  return median_of(values, count);
}

/* Compares a candidate with the best and lowers `least` (the least of all finalists, draw by draw) to its draws. */
static struct verdict_finalist finalist_compare(const struct candidate *candidate, const struct candidate *best,
                                                uint64_t seed, double least[VERDICT_DRAWS]) {
  struct verdict_finalist finalist = {.config = candidate->config, .median_us = median_us(candidate, 1, false)};
  cleanup_series struct series series = ratio_series(candidate, best);
  if (series.n < VERDICT_PROCESSES_MIN) {
    finalist.ratio = candidate->figure / best->figure;
    finalist.upper = INFINITY;
    return finalist;
  }
  cleanup_free double *draws = xcalloc(VERDICT_DRAWS, sizeof *draws);
  series_draw(&series, seed, draws, VERDICT_DRAWS);
  for (size_t i = 0; i < VERDICT_DRAWS; i++)
    least[i] = fmin(least[i], draws[i]);
  finalist.ratio = series_estimate(&series);
  percentiles_of(draws, VERDICT_DRAWS, &finalist.lower, &finalist.upper);
  finalist.equivalent = candidate == best || finalist.upper <= VERDICT_EQUIVALENCE;
  return finalist;
}

static bool is_lighter(const struct candidate *a, const struct candidate *b) {
  if (a->spills != b->spills)
    return a->spills < b->spills;
  if (a->lds_bytes != b->lds_bytes)
    return a->lds_bytes < b->lds_bytes;
  if (a->vgprs != b->vgprs)
    return a->vgprs < b->vgprs;
  return a->config < b->config;
}

/* finalists[i] is candidate i compared with the best. */
static const struct candidate *winner_of(const struct candidates *candidates, const struct verdict_finalist *finalists,
                                         const struct candidate *best) {
  const struct candidate *winner = best;
  for (size_t i = 0; i < candidates->n; i++)
    if (finalists[i].equivalent && finalists[i].ratio <= 1 + VERDICT_TIE && is_lighter(&candidates->all[i], winner))
      winner = &candidates->all[i];
  return winner;
}

static double regret_bound(const struct candidate *winner, const struct candidate *best, uint64_t seed,
                           const double least[VERDICT_DRAWS]) {
  cleanup_series struct series series = ratio_series(winner, best);
  cleanup_free double *draws = xcalloc(VERDICT_DRAWS, sizeof *draws);
  double lower, upper;
  series_draw(&series, seed, draws, VERDICT_DRAWS);
  for (size_t i = 0; i < VERDICT_DRAWS; i++)
    draws[i] /= least[i];
  percentiles_of(draws, VERDICT_DRAWS, &lower, &upper);
  return upper - 1;
}

static enum verdict_outcome outcome_of(double lower, double upper) {
  if (upper < 1)
    return VERDICT_FASTER;
  if (lower > 1)
    return VERDICT_SLOWER;
  return lower >= 1 / VERDICT_EQUIVALENCE && upper <= VERDICT_EQUIVALENCE ? VERDICT_SAME : VERDICT_AMBIGUOUS;
}

static void baseline_compare(const struct candidate *winner, uint64_t baseline, uint64_t seed,
                             struct verdict *verdict) {
  if (winner->config == baseline) {
    verdict->baseline_ratio = verdict->baseline_lower = verdict->baseline_upper = 1;
    verdict->outcome = VERDICT_SAME;
    return;
  }
  cleanup_series struct series series = baseline_series(winner);
  cleanup_free double *draws = xcalloc(VERDICT_DRAWS, sizeof *draws);
  series_draw(&series, seed, draws, VERDICT_DRAWS);
  percentiles_of(draws, VERDICT_DRAWS, &verdict->baseline_lower, &verdict->baseline_upper);
  verdict->baseline_ratio = series_estimate(&series);
  verdict->outcome = outcome_of(verdict->baseline_lower, verdict->baseline_upper);
}

static int processes_compare(const void *a, const void *b) {
  int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
  return (left > right) - (left < right);
}

static void evidence_count(const struct candidates *candidates, struct verdict *verdict) {
  cleanup_free int64_t *processes = NULL;
  size_t n = 0, capacity = 0;
  for (size_t i = 0; i < candidates->n; i++)
    for (size_t j = 0; j < candidates->all[i].n; j++) {
      GROW(processes, n, capacity);
      processes[n++] = candidates->all[i].samples[j].process;
      verdict->n_samples += candidates->all[i].samples[j].n;
    }
  ALWAYS(processes != NULL); /* every candidate has some */
  qsort(processes, n, sizeof *processes, processes_compare);
  for (size_t i = 0; i < n; i++)
    verdict->n_processes += i == 0 || processes[i] != processes[i - 1];
}

static int finalists_compare(const void *a, const void *b) {
  const struct verdict_finalist *left = a, *right = b;
  if (left->ratio != right->ratio)
    return left->ratio < right->ratio ? -1 : 1;
  return (left->config > right->config) - (left->config < right->config);
}

bool verdict_decide(const struct verdict_sample *samples, size_t n, uint64_t baseline, uint64_t seed,
                    struct verdict *ret_verdict, struct error *error) {
  for (size_t i = 0; i < n; i++)
    if (!sample_check(&samples[i], error))
      return false;
  cleanup_free struct verdict_sample *sorted = xmemdup(samples, n * sizeof *samples);
  qsort(sorted, n, sizeof *sorted, samples_compare);
  n = samples_distinct(sorted, n);
  __attribute__((cleanup(candidates_release))) struct candidates candidates = candidates_find(sorted, n);
  if (candidates.n == 0)
    return error_set(error, "no config was measured correctly in %d processes; measure in more processes",
                     VERDICT_PROCESSES_MIN);
  struct verdict verdict = {.n_finalists = candidates.n,
                            .finalists = xcalloc(candidates.n, sizeof *verdict.finalists),
                            .equivalents = xcalloc(candidates.n, sizeof *verdict.equivalents)};
  cleanup_free double *least = xcalloc(VERDICT_DRAWS, sizeof *least);
  for (size_t i = 0; i < VERDICT_DRAWS; i++)
    least[i] = 1; /* the best itself */
  const struct candidate *best = best_of(&candidates);
  for (size_t i = 0; i < candidates.n; i++) {
    verdict.finalists[i] = finalist_compare(&candidates.all[i], best, seed, least);
    if (verdict.finalists[i].equivalent)
      verdict.equivalents[verdict.n_equivalents++] = candidates.all[i].config;
  }
  const struct candidate *winner = winner_of(&candidates, verdict.finalists, best);
  qsort(verdict.finalists, verdict.n_finalists, sizeof *verdict.finalists, finalists_compare);
  verdict.winner = winner->config;
  verdict.regret_bound = regret_bound(winner, best, seed, least);
  baseline_compare(winner, baseline, seed, &verdict);
  verdict.winner_us = median_us(winner, 1, false);
  verdict.baseline_us = median_us(candidates.all, candidates.n, true);
  evidence_count(&candidates, &verdict);
  *ret_verdict = verdict;
  return true;
}

void verdict_release(struct verdict *verdict) {
  free(verdict->finalists);
  free(verdict->equivalents);
  *verdict = (struct verdict){0};
}

static json_t *finalist_to_json(const struct verdict_finalist *finalist) {
  json_t *object = json_object();
  json_object_set_new(object, "config", json_integer((json_int_t)finalist->config));
  json_object_set_new(object, "ratio", json_real(finalist->ratio));
  if (isfinite(finalist->upper)) {
    json_object_set_new(object, "lower", json_real(finalist->lower));
    json_object_set_new(object, "upper", json_real(finalist->upper));
  }
  json_object_set_new(object, "median_us", json_real(finalist->median_us));
  json_object_set_new(object, "equivalent", json_boolean(finalist->equivalent));
  return object;
}

json_t *verdict_to_json(const struct verdict *verdict) {
  json_t *object = json_object(), *equivalents = json_array(), *finalists = json_array();
  for (size_t i = 0; i < verdict->n_equivalents; i++)
    json_array_append_new(equivalents, json_integer((json_int_t)verdict->equivalents[i]));
  for (size_t i = 0; i < verdict->n_finalists; i++)
    json_array_append_new(finalists, finalist_to_json(&verdict->finalists[i]));
  json_object_set_new(object, "winner", json_integer((json_int_t)verdict->winner));
  json_object_set_new(object, "equivalence_set", equivalents);
  json_object_set_new(object, "regret_bound", json_real(verdict->regret_bound));
  json_object_set_new(object, "verdict", json_string(verdict_outcome_name(verdict->outcome)));
  json_object_set_new(object, "speedup", json_real(1 / verdict->baseline_ratio));
  json_object_set_new(object, "baseline_ratio", json_real(verdict->baseline_ratio));
  json_object_set_new(object, "baseline_lower", json_real(verdict->baseline_lower));
  json_object_set_new(object, "baseline_upper", json_real(verdict->baseline_upper));
  json_object_set_new(object, "winner_us", json_real(verdict->winner_us));
  json_object_set_new(object, "baseline_us", json_real(verdict->baseline_us));
  json_object_set_new(object, "samples", json_integer((json_int_t)verdict->n_samples));
  json_object_set_new(object, "processes", json_integer((json_int_t)verdict->n_processes));
  json_object_set_new(object, "finalists", finalists);
  return object;
}
