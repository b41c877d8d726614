/* The verdict over stored samples: finalists, the best, the equivalence set, the winner and how
 * sure that is.
 *
 * Memory: a verdict owns its arrays; samples are borrowed. Pure functions, any thread. */
#include "common/verdict/verdict.h"

#include <math.h>

#include "common/base/numbers.h"
#include "common/base/rng.h"
#include "common/verdict/verdict_interval.h"
#include "common/verdict/verdict_turn.h"

#define REGRET_PERCENT_ABOVE 5

/* A config that was measured in enough processes. */
struct candidate {
  uint64_t config;
  size_t n; /* processes */
  struct turn *turns;
  int64_t spills, lds_bytes, vgprs;
  struct distance to_baseline;
  struct distance to_best;
};

struct candidates {
  size_t n, capacity;
  struct candidate *all;
};

static void candidates_release(struct candidates *candidates) {
  for (size_t i = 0; i < candidates->n; i++) {
    for (size_t j = 0; j < candidates->all[i].n; j++)
      turn_release(&candidates->all[i].turns[j]);
    free(candidates->all[i].turns);
  }
  free(candidates->all);
}

const char *verdict_outcome_name(enum verdict_outcome outcome) {
  static const char *const names[] = {"FASTER", "SAME", "SLOWER", "AMBIGUOUS"};
  return names[outcome];
}

double verdict_paired_ratio(const double *samples_us, const double *baseline_us, size_t n) {
  cleanup_free double *ratios = xcalloc(n, sizeof *ratios);
  for (size_t i = 0; i < n; i++)
    ratios[i] = samples_us[i] / baseline_us[i];
  return median_of(ratios, n);
}

static struct candidate candidate_make(const struct verdict_sample *samples, size_t n) {
  struct candidate candidate = {
      .config = samples[0].config, .n = n, .turns = xcalloc(n, sizeof *candidate.turns)};
  for (size_t i = 0; i < n;
       i++) { /* should two builds of a config differ, the heavier one counts */
    candidate.spills = samples[i].spills > candidate.spills ? samples[i].spills : candidate.spills;
    candidate.lds_bytes =
        samples[i].lds_bytes > candidate.lds_bytes ? samples[i].lds_bytes : candidate.lds_bytes;
    candidate.vgprs = samples[i].vgprs > candidate.vgprs ? samples[i].vgprs : candidate.vgprs;
    struct turn *turn = &candidate.turns[i];
    *turn = turn_make(&samples[i]);
    distance_add(&candidate.to_baseline, turn->median, turn->error, turn->resolution);
  }
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

/* The distance of two configs over the processes that both have, there over the rounds that both
 * have. */
static struct distance distance_of(const struct candidate *candidate, const struct candidate *to) {
  struct distance distance = {0};
  size_t i = 0, j = 0;
  while (i < candidate->n && j < to->n) {
    const struct turn *a = &candidate->turns[i], *b = &to->turns[j];
    if (a->sample->process == b->sample->process)
      turns_compare(a, b, &distance);
    i += a->sample->process <= b->sample->process;
    j += a->sample->process >= b->sample->process;
  }
  return distance;
}

/* Candidates lie by rising ordinal, so that of equal ones the first is the best. */
static const struct candidate *least_mean(const struct candidates *candidates) {
  const struct candidate *least = &candidates->all[0];
  for (size_t i = 1; i < candidates->n; i++)
    if (candidates->all[i].to_baseline.mean < least->to_baseline.mean)
      least = &candidates->all[i];
  return least;
}

/* Sets all distances to `best`; returns the candidate that is faster than it by the most, or itself
 * when none is. */
static const struct candidate *compare_all(struct candidates *candidates,
                                           const struct candidate *best) {
  const struct candidate *challenger = best;
  double least = 0;
  for (size_t i = 0; i < candidates->n; i++) {
    struct candidate *candidate = &candidates->all[i];
    candidate->to_best = distance_of(candidate, best);
    if (candidate->to_best.n >= VERDICT_PROCESSES_MIN && candidate->to_best.mean < least) {
      least = candidate->to_best.mean;
      challenger = candidate;
    }
  }
  return challenger;
}

/* Medians of quotients are not transitive to the last digit, so the least mean may be beaten in a
 * direct comparison: then the one that beats it is the best. Turns are bounded, since such a chain
 * may close. */
static const struct candidate *best_of(struct candidates *candidates) {
  const struct candidate *best = least_mean(candidates);
  for (size_t turn = 0; turn < candidates->n; turn++) {
    const struct candidate *challenger = compare_all(candidates, best);
    if (challenger == best)
      return best;
    best = challenger;
  }
  (void)compare_all(candidates, best);
  return best;
}

static int integers_compare(const void *a, const void *b) {
  int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
  return (left > right) - (left < right);
}

static size_t count_distinct(int64_t *values, size_t n) {
  size_t distinct = 0;
  qsort(values, n, sizeof *values, integers_compare);
  for (size_t i = 0; i < n; i++)
    distinct += i == 0 || values[i] != values[i - 1];
  return distinct;
}

static void evidence_count(const struct candidates *candidates, struct verdict *verdict) {
  size_t n = 0;
  for (size_t i = 0; i < candidates->n; i++)
    n += candidates->all[i].n;
  cleanup_free int64_t *processes = xcalloc(n, sizeof *processes);
  cleanup_free int64_t *devices = xcalloc(n, sizeof *devices);
  n = 0;
  for (size_t i = 0; i < candidates->n; i++)
    for (size_t j = 0; j < candidates->all[i].n; j++) {
      const struct verdict_sample *sample = candidates->all[i].turns[j].sample;
      processes[n] = sample->process;
      devices[n++] = sample->device;
      verdict->n_samples += sample->n;
    }
  verdict->n_processes = count_distinct(processes, n);
  verdict->n_devices = count_distinct(devices, n);
}

/* The error of one of the winner's intervals against other configs. The baseline is no rival of
 * itself. */
static double error_of_one(const struct candidates *candidates, uint64_t baseline) {
  size_t rivals = 0;
  for (size_t i = 0; i < candidates->n; i++)
    rivals += candidates->all[i].config != baseline;
  return VERDICT_FAMILY_ERROR / VERDICT_LOOKS / (double)(rivals > 0 ? rivals : 1);
}

static bool is_near(const struct candidate *candidate, const struct candidate *best) {
  return candidate->to_baseline.mean - best->to_baseline.mean <= log(SPREAD_NEAR);
}

/* What processes do to the distances of finalists to one config: the baseline, or (`to`) a
 * finalist. */
static struct spread spread_of(const struct candidates *candidates, const struct candidate *best,
                               uint64_t baseline, const struct candidate *to) {
  cleanup_free struct distance *distances = xcalloc(candidates->n, sizeof *distances);
  uint64_t reference = to ? to->config : baseline;
  size_t n = 0;
  ALWAYS(best != NULL); /* there is a candidate */
  for (size_t i = 0; i < candidates->n; i++) {
    const struct candidate *candidate = &candidates->all[i];
    if (candidate->config == reference || !is_near(candidate, best))
      continue;
    struct distance distance = to ? distance_of(candidate, to) : candidate->to_baseline;
    if (distance.n >= VERDICT_PROCESSES_MIN)
      distances[n++] = distance;
  }
  return spread_pool(distances, n);
}

/* The median over all samples (or all their baselines) of some candidates. */
static double median_us(const struct candidate *candidates, size_t n, bool of_baseline) {
  size_t count = 0, at = 0;
  for (size_t i = 0; i < n; i++)
    count += candidates[i].n;
  cleanup_free const struct verdict_sample **samples = xcalloc(count, sizeof *samples);
  for (size_t i = 0; i < n; i++)
    for (size_t j = 0; j < candidates[i].n; j++)
      samples[at++] = candidates[i].turns[j].sample;
  return samples_median_us(samples, count, of_baseline);
}

static struct verdict_finalist finalist_of(const struct candidate *candidate,
                                           const struct candidate *best,
                                           const struct spread *spread) {
  struct verdict_finalist finalist = {.config = candidate->config,
                                      .median_us = median_us(candidate, 1, false)};
  if (candidate == best) {
    finalist.ratio = finalist.lower = finalist.upper = 1;
    finalist.equivalent = true;
  } else if (candidate->to_best.n < VERDICT_PROCESSES_MIN) {
    finalist.ratio = exp(candidate->to_baseline.mean - best->to_baseline.mean);
    finalist.upper = INFINITY;
  } else {
    struct interval interval = distance_interval(&candidate->to_best, spread, VERDICT_ERROR);
    finalist.ratio = exp(candidate->to_best.mean);
    finalist.lower = exp(interval.lower);
    finalist.upper = exp(interval.upper);
    finalist.equivalent = finalist.upper <= VERDICT_EQUIVALENCE;
  }
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
static const struct candidate *winner_of(const struct candidates *candidates,
                                         const struct verdict_finalist *finalists,
                                         const struct candidate *best) {
  const struct candidate *winner = best;
  for (size_t i = 0; i < candidates->n; i++)
    if (finalists[i].equivalent && finalists[i].ratio <= 1 + VERDICT_TIE &&
        is_lighter(&candidates->all[i], winner))
      winner = &candidates->all[i];
  return winner;
}

static void finalist_against_winner(const struct candidate *candidate,
                                    const struct candidate *winner, const struct spread *spread,
                                    double error, struct verdict_finalist *finalist) {
  if (candidate == winner) {
    finalist->winner_ratio = finalist->winner_lower = finalist->winner_upper = 1;
    return;
  }
  struct distance distance = distance_of(winner, candidate);
  if (distance.n < VERDICT_PROCESSES_MIN) {
    finalist->winner_ratio = exp(winner->to_baseline.mean - candidate->to_baseline.mean);
    finalist->winner_upper = INFINITY;
    return;
  }
  struct interval interval = distance_interval(&distance, spread, error);
  finalist->winner_ratio = exp(distance.mean);
  finalist->winner_lower = exp(interval.lower);
  finalist->winner_upper = exp(interval.upper);
}

/* Normal numbers, by the polar method: Marsaglia, Bray, "A convenient method for generating normal
 * variables", SIAM Review 6, 1964. It makes two at a time. */
struct normals {
  struct rng rng;
  bool has_spare;
  double spare;
};

static double draw_normal(struct normals *normals) {
  double u, v, square;
  normals->has_spare = !normals->has_spare;
  if (!normals->has_spare)
    return normals->spare;
  do {
    u = 2 * rng_unit(&normals->rng) - 1;
    v = 2 * rng_unit(&normals->rng) - 1;
    square = u * u + v * v;
  } while (square >= 1 || square == 0);
  double scale = sqrt(-2 * log(square) / square);
  normals->spare = v * scale;
  return u * scale;
}

/* The square root of a draw of df / chi^2: what turns normal draws into draws of Student's t. Two
 * degrees of freedom are an exponential number, minus twice the logarithm of a uniform one. */
static double draw_scale(struct normals *normals, size_t df) {
  double product = 1, odd = df % 2 ? draw_normal(normals) : 0;
  for (size_t i = 0; i < df / 2; i++)
    product *= 1 - rng_unit(&normals->rng);
  return sqrt((double)df / (odd * odd - 2 * log(product)));
}

/* What the greatest of n numbers exceeds in REGRET_PERCENT_ABOVE of a hundred draws, each Student's
 * t with `df` degrees of freedom and all with one number in common, as distances to one config
 * have: their correlations are 1/2. */
static double greatest_quantile(size_t n, size_t df, uint64_t seed) {
  struct normals normals = {.rng = rng_seeded(seed)};
  cleanup_free double *draws = xcalloc(VERDICT_DRAWS, sizeof *draws);
  for (size_t draw = 0; draw < VERDICT_DRAWS; draw++) {
    double scale = draw_scale(&normals, df) * M_SQRT1_2, common = draw_normal(&normals),
           greatest = -INFINITY;
    for (size_t i = 0; i < n; i++)
      greatest = fmax(greatest, scale * (draw_normal(&normals) - common));
    draws[draw] = greatest;
  }
  return kth_of(draws, VERDICT_DRAWS,
                VERDICT_DRAWS - 1 - VERDICT_DRAWS * REGRET_PERCENT_ABOVE / 100);
}

static double regret_bound(const struct candidates *candidates, const struct candidate *winner,
                           const struct spread *spread, uint64_t seed) {
  cleanup_free struct distance *distances = xcalloc(candidates->n, sizeof *distances);
  size_t n = 0, df = SIZE_MAX;
  double bound = 0;
  for (size_t i = 0; i < candidates->n; i++) {
    distances[n] = distance_of(winner, &candidates->all[i]);
    if (&candidates->all[i] == winner || distances[n].n < VERDICT_PROCESSES_MIN)
      continue;
    size_t own_df = distance_df(&distances[n++], spread);
    df = own_df < df ? own_df : df;
  }
  if (n == 0)
    return 0;
  double quantile = greatest_quantile(n, df, seed);
  for (size_t i = 0; i < n; i++)
    bound = fmax(bound, distances[i].mean + quantile * distance_error(&distances[i], spread));
  return expm1(bound);
}

static enum verdict_outcome outcome_of(double lower, double upper) {
  if (upper < 1)
    return VERDICT_FASTER;
  if (lower > 1)
    return VERDICT_SLOWER;
  return lower >= 1 / VERDICT_EQUIVALENCE && upper <= VERDICT_EQUIVALENCE ? VERDICT_SAME
                                                                          : VERDICT_AMBIGUOUS;
}

static void baseline_compare(const struct candidate *winner, uint64_t baseline,
                             const struct spread *spread, double error, struct verdict *verdict) {
  if (winner->config == baseline) {
    verdict->baseline_ratio = verdict->baseline_lower = verdict->baseline_upper = 1;
    verdict->outcome = VERDICT_SAME;
    return;
  }
  struct interval interval = distance_interval(&winner->to_baseline, spread, error);
  verdict->baseline_ratio = exp(winner->to_baseline.mean);
  verdict->baseline_lower = exp(interval.lower);
  verdict->baseline_upper = exp(interval.upper);
  verdict->outcome = outcome_of(verdict->baseline_lower, verdict->baseline_upper);
}

static int finalists_compare(const void *a, const void *b) {
  const struct verdict_finalist *left = a, *right = b;
  if (left->ratio != right->ratio)
    return left->ratio < right->ratio ? -1 : 1;
  return (left->config > right->config) - (left->config < right->config);
}

static const struct candidate *candidate_find(const struct candidates *candidates,
                                              uint64_t config) {
  for (size_t i = 0; i < candidates->n; i++)
    if (candidates->all[i].config == config)
      return &candidates->all[i];
  return NULL;
}

/* Of `favourite` in the winner's place where that is not NULL. */
static bool decide(const struct verdict_sample *samples, size_t n, uint64_t baseline,
                   const uint64_t *favourite, uint64_t seed, struct verdict *ret_verdict,
                   struct error *error) {
  cleanup_free struct verdict_sample *sorted = NULL;
  if (!samples_sort(samples, n, &sorted, &n, error))
    return false;
  __attribute__((cleanup(candidates_release))) struct candidates candidates =
      candidates_find(sorted, n);
  if (!candidates.all)
    return error_set(error,
                     "no config was measured correctly in %d processes; measure in more processes",
                     VERDICT_PROCESSES_MIN);
  const struct candidate *winner = favourite ? candidate_find(&candidates, *favourite) : NULL;
  if (favourite && !winner)
    return error_set(
        error,
        "config %llu was not measured correctly in %d processes; measure it in more processes",
        (unsigned long long)*favourite, VERDICT_PROCESSES_MIN);
  struct verdict verdict = {.n_finalists = candidates.n,
                            .finalists = xcalloc(candidates.n, sizeof *verdict.finalists),
                            .equivalents = xcalloc(candidates.n, sizeof *verdict.equivalents)};
  evidence_count(&candidates, &verdict);
  const struct candidate *best = best_of(&candidates);
  struct spread spread = spread_of(&candidates, best, baseline, best);
  for (size_t i = 0; i < candidates.n; i++) {
    verdict.finalists[i] = finalist_of(&candidates.all[i], best, &spread);
    if (verdict.finalists[i].equivalent)
      verdict.equivalents[verdict.n_equivalents++] = candidates.all[i].config;
  }
  winner = winner ? winner : winner_of(&candidates, verdict.finalists, best);
  double error_of_each = error_of_one(&candidates, baseline);
  struct spread of_winner = spread_of(&candidates, best, baseline, winner);
  struct spread of_baseline = spread_of(&candidates, best, baseline, NULL);
  for (size_t i = 0; i < candidates.n; i++)
    finalist_against_winner(&candidates.all[i], winner, &of_winner, error_of_each,
                            &verdict.finalists[i]);
  qsort(verdict.finalists, verdict.n_finalists, sizeof *verdict.finalists, finalists_compare);
  verdict.winner = winner->config;
  verdict.regret_bound = regret_bound(&candidates, winner, &of_winner, seed);
  baseline_compare(winner, baseline, &of_baseline, error_of_each, &verdict);
  verdict.winner_us = median_us(winner, 1, false);
  verdict.baseline_us = median_us(candidates.all, candidates.n, true);
  *ret_verdict = verdict;
  return true;
}

bool verdict_decide(const struct verdict_sample *samples, size_t n, uint64_t baseline,
                    uint64_t seed, struct verdict *ret_verdict, struct error *error) {
  return decide(samples, n, baseline, NULL, seed, ret_verdict, error);
}

bool verdict_decide_for(const struct verdict_sample *samples, size_t n, uint64_t baseline,
                        uint64_t config, uint64_t seed, struct verdict *ret_verdict,
                        struct error *error) {
  return decide(samples, n, baseline, &config, seed, ret_verdict, error);
}

void verdict_release(struct verdict *verdict) {
  free(verdict->finalists);
  free(verdict->equivalents);
  *verdict = (struct verdict){0};
}

bool verdict_is_settled(const struct verdict *verdict) {
  for (size_t i = 0; i < verdict->n_finalists; i++)
    if (!verdict->finalists[i].equivalent && verdict->finalists[i].lower <= 1)
      return false;
  return verdict->outcome != VERDICT_AMBIGUOUS && verdict->regret_bound <= VERDICT_REGRET;
}

bool verdict_replaces(const struct verdict *verdict, double min_gain) {
  return verdict->outcome == VERDICT_FASTER && verdict->baseline_ratio <= 1 - min_gain;
}
