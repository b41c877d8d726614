/* The verdict over stored samples: finalists, the best, the equivalence set, the winner and how
 * sure that is; its JSON; the names of outcomes and stages. Pure functions. */
#include "common/verdict/verdict.h"

#include <math.h>

#include "common/base/numbers.h"
#include "common/verdict/verdict_interval.h"

#define REGRET_PERCENT_ABOVE 5

/* A config that was measured in enough processes. */
struct candidate {
  uint64_t config;
  size_t n; /* processes */
  const struct verdict_sample *samples;
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

#define X(id, name) name,
const char *const outcome_names[] = {OUTCOMES(X) NULL};
const char *const stage_names[] = {STAGES(X) NULL};
#undef X

const char *outcome_name(enum outcome outcome) { return outcome_names[outcome]; }
const char *stage_name(enum stage stage) { return stage_names[stage]; }

bool name_find(const char *const *names, size_t n, const char *name, size_t *ret) {
  for (size_t i = 0; name && i < n; i++)
    if (string_equal(names[i], name)) {
      *ret = i;
      return true;
    }
  return false;
}

bool outcome_parse(const char *name, enum outcome *ret) {
  size_t i;
  if (!name_find(outcome_names, OUTCOME_COUNT, name, &i))
    return false;
  *ret = (enum outcome)i;
  return true;
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

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* The configs with enough processes. Leaves only their samples in `sorted`; returns how many. */
static size_t candidates_find(struct verdict_sample *sorted, size_t n,
                              struct candidates *candidates) {
  size_t kept = 0;
  for (size_t first = 0, end; first < n; first = end) {
    for (end = first + 1; end < n && sorted[end].config == sorted[first].config;)
      end++;
    if (end - first < VERDICT_PROCESSES_MIN)
      continue;

    struct candidate candidate = {.config = sorted[first].config,
                                  .n = end - first,
                                  .samples = &sorted[kept],
                                  .turns = xcalloc(end - first, sizeof *candidate.turns)};
    for (size_t i = 0; i < candidate.n; i++) {
      struct verdict_sample *sample = &sorted[kept++];
      *sample = sorted[first + i];
      /* Where two builds of a config differ, the heavier one is used. */
      candidate.spills = larger(sample->spills, candidate.spills);
      candidate.lds_bytes = larger(sample->lds_bytes, candidate.lds_bytes);
      candidate.vgprs = larger(sample->vgprs, candidate.vgprs);

      struct turn *turn = &candidate.turns[i];
      *turn = turn_make(sample);
      distance_add(&candidate.to_baseline, turn->median, turn->error, turn->resolution);
    }
    GROW(candidates->all, candidates->n, candidates->capacity);
    candidates->all[candidates->n++] = candidate;
  }

  return kept;
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

/* The candidate of the least mean, of equal ones the lowest ordinal. Medians of quotients are not
 * transitive to the last digit, so it may be beaten in a direct comparison: then the one that beats
 * it is the best. Such a chain may be a cycle, so its length is bounded. */
static const struct candidate *best_of(struct candidates *candidates) {
  const struct candidate *best = &candidates->all[0];
  for (size_t i = 1; i < candidates->n; i++)
    if (candidates->all[i].to_baseline.mean < best->to_baseline.mean)
      best = &candidates->all[i];

  for (size_t turn = 0; turn < candidates->n; turn++) {
    const struct candidate *challenger = compare_all(candidates, best);
    if (challenger == best)
      return best;
    best = challenger;
  }

  (void)compare_all(candidates, best);
  return best;
}

/* How processes spread the distances of the finalists near the best to one config: to the baseline,
 * or to the finalist `to`. */
static struct spread spread_of(const struct candidates *candidates, const struct candidate *best,
                               uint64_t baseline, const struct candidate *to) {
  cleanup_free struct distance *distances = xcalloc(candidates->n, sizeof *distances);
  uint64_t reference = to ? to->config : baseline;
  size_t n = 0;

  for (size_t i = 0; i < candidates->n; i++) {
    const struct candidate *candidate = &candidates->all[i];
    double above_best = candidate->to_baseline.mean - best->to_baseline.mean;
    if (candidate->config == reference || above_best > log(SPREAD_NEAR))
      continue;
    struct distance distance = to ? distance_of(candidate, to) : candidate->to_baseline;
    if (distance.n >= VERDICT_PROCESSES_MIN)
      distances[n++] = distance;
  }

  return spread_pool(distances, n);
}

/* A quotient of two times with its interval. */
struct estimate {
  double ratio, lower, upper;
};

/* The time of a over that of b, or (NULL) of the baseline. With too few processes in common only
 * the figures of both are known. */
static struct estimate estimate_ratio(const struct candidate *a, const struct candidate *b,
                                      const struct distance *distance, const struct spread *spread,
                                      double error) {
  if (a == b)
    return (struct estimate){1, 1, 1};
  if (b && distance->n < VERDICT_PROCESSES_MIN)
    return (struct estimate){exp(a->to_baseline.mean - b->to_baseline.mean), 0, INFINITY};
  struct interval interval = distance_interval(distance, spread, error);
  return (struct estimate){exp(distance->mean), exp(interval.lower), exp(interval.upper)};
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
  for (size_t i = 0; i < candidates->n; i++) {
    distances[n] = distance_of(winner, &candidates->all[i]);
    if (&candidates->all[i] == winner || distances[n].n < VERDICT_PROCESSES_MIN)
      continue;
    size_t own_df = distance_df(&distances[n++], spread);
    df = own_df < df ? own_df : df;
  }

  if (n == 0)
    return 0;

  double bound = 0, quantile = greatest_quantile(n, df, seed);
  for (size_t i = 0; i < n; i++)
    bound = fmax(bound, distances[i].mean + quantile * distance_error(&distances[i], spread));
  return expm1(bound);
}

static int finalists_compare(const void *a, const void *b) {
  const struct verdict_finalist *left = a, *right = b;
  if (left->ratio != right->ratio)
    return left->ratio < right->ratio ? -1 : 1;
  return (left->config > right->config) - (left->config < right->config);
}

/* Compares the finalists with the best. Returns the lightest of those that are as good. */
static const struct candidate *finalists_rate(const struct candidates *candidates,
                                              const struct candidate *best, uint64_t baseline,
                                              struct verdict *verdict) {
  const struct candidate *lightest = best;
  struct spread spread = spread_of(candidates, best, baseline, best);

  for (size_t i = 0; i < candidates->n; i++) {
    const struct candidate *candidate = &candidates->all[i];
    struct estimate estimate =
        estimate_ratio(candidate, best, &candidate->to_best, &spread, VERDICT_ERROR);
    bool is_equivalent = estimate.upper <= VERDICT_EQUIVALENCE;
    verdict->finalists[i] = (struct verdict_finalist){
        .config = candidate->config,
        .ratio = estimate.ratio,
        .lower = estimate.lower,
        .upper = estimate.upper,
        .median_us = samples_median_us(candidate->samples, candidate->n, false),
        .equivalent = is_equivalent};

    if (is_equivalent)
      verdict->equivalents[verdict->n_equivalents++] = candidate->config;
    if (is_equivalent && estimate.ratio <= 1 + VERDICT_TIE && is_lighter(candidate, lightest))
      lightest = candidate;
  }

  return lightest;
}

/* Compares the winner with the finalists, whose order this changes, and with the baseline. */
static void winner_rate(const struct candidates *candidates, const struct candidate *best,
                        const struct candidate *winner, uint64_t baseline, uint64_t seed,
                        struct verdict *verdict) {
  size_t n_rivals = 0; /* the baseline is not compared with itself */
  for (size_t i = 0; i < candidates->n; i++)
    n_rivals += candidates->all[i].config != baseline;
  double error = VERDICT_FAMILY_ERROR / VERDICT_LOOKS / (double)(n_rivals > 0 ? n_rivals : 1);

  struct spread of_winner = spread_of(candidates, best, baseline, winner);
  for (size_t i = 0; i < candidates->n; i++) {
    struct distance distance = distance_of(winner, &candidates->all[i]);
    struct estimate estimate =
        estimate_ratio(winner, &candidates->all[i], &distance, &of_winner, error);
    verdict->finalists[i].winner_ratio = estimate.ratio;
    verdict->finalists[i].winner_lower = estimate.lower;
    verdict->finalists[i].winner_upper = estimate.upper;
  }
  qsort(verdict->finalists, verdict->n_finalists, sizeof *verdict->finalists, finalists_compare);

  struct spread of_baseline = spread_of(candidates, best, baseline, NULL);
  struct estimate gain = estimate_ratio(winner, winner->config == baseline ? winner : NULL,
                                        &winner->to_baseline, &of_baseline, error);
  bool is_same = gain.lower >= 1 / VERDICT_EQUIVALENCE && gain.upper <= VERDICT_EQUIVALENCE;
  verdict->winner = winner->config;
  verdict->winner_us = samples_median_us(winner->samples, winner->n, false);
  verdict->regret_bound = regret_bound(candidates, winner, &of_winner, seed);
  verdict->baseline_ratio = gain.ratio;
  verdict->baseline_lower = gain.lower;
  verdict->baseline_upper = gain.upper;
  verdict->outcome = gain.upper < 1   ? VERDICT_FASTER
                     : gain.lower > 1 ? VERDICT_SLOWER
                     : is_same        ? VERDICT_SAME
                                      : VERDICT_AMBIGUOUS;
}

/* With `favourite` in the winner's place where that is not NULL. */
static bool decide(const struct verdict_sample *samples, size_t n, uint64_t baseline,
                   const uint64_t *favourite, uint64_t seed, struct verdict *ret_verdict,
                   struct error *error) {
  cleanup_by(candidates_release) struct candidates candidates = {0};
  cleanup_free struct verdict_sample *sorted = NULL;
  if (!samples_sort(samples, n, &sorted, &n, error))
    return false;

  n = candidates_find(sorted, n, &candidates);
  if (n == 0)
    return error_set(error,
                     "no config was measured correctly in %d processes; measure in more processes",
                     VERDICT_PROCESSES_MIN);

  const struct candidate *winner = NULL;
  for (size_t i = 0; i < candidates.n && favourite; i++)
    if (candidates.all[i].config == *favourite)
      winner = &candidates.all[i];
  if (favourite && !winner)
    return error_set(
        error,
        "config %llu was not measured correctly in %d processes; measure it in more processes",
        (unsigned long long)*favourite, VERDICT_PROCESSES_MIN);

  struct verdict verdict = {.n_finalists = candidates.n,
                            .finalists = xcalloc(candidates.n, sizeof *verdict.finalists),
                            .equivalents = xcalloc(candidates.n, sizeof *verdict.equivalents),
                            .baseline_us = samples_median_us(sorted, n, true)};
  cleanup_free uint64_t *processes = xcalloc(n, sizeof *processes);
  cleanup_free uint64_t *devices = xcalloc(n, sizeof *devices);
  for (size_t i = 0; i < n; i++) {
    processes[i] = (uint64_t)sorted[i].process;
    devices[i] = (uint64_t)sorted[i].device;
    verdict.n_samples += sorted[i].n;
  }

  verdict.n_processes = sort_unique(processes, n);
  verdict.n_devices = sort_unique(devices, n);

  const struct candidate *best = best_of(&candidates);
  const struct candidate *lightest = finalists_rate(&candidates, best, baseline, &verdict);
  winner_rate(&candidates, best, winner ? winner : lightest, baseline, seed, &verdict);
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

/* With 9 significant digits; NULL where it is infinite. */
static json_t *rounded(double number) {
  char text[32];
  snprintf(text, sizeof text, "%.9g", number);
  return isfinite(number) ? json_real(strtod(text, NULL)) : NULL;
}

json_t *verdict_to_json(const struct verdict *verdict) {
  json_t *equivalents = json_array(), *finalists = json_array();
  for (size_t i = 0; i < verdict->n_equivalents; i++)
    json_array_append_new(equivalents, json_integer((json_int_t)verdict->equivalents[i]));

  for (size_t i = 0; i < verdict->n_finalists; i++) {
    const struct verdict_finalist *finalist = &verdict->finalists[i];
    bool has_bounds = isfinite(finalist->upper),
         has_winner_bounds = isfinite(finalist->winner_upper);
    json_array_append_new(
        finalists,
        json_pack("{s:I, s:o*, s:o*, s:o*, s:o*, s:o*, s:o*, s:o*, s:b}", "config",
                  (json_int_t)finalist->config, "ratio", rounded(finalist->ratio), "lower",
                  has_bounds ? rounded(finalist->lower) : NULL, "upper", rounded(finalist->upper),
                  "winner_ratio", rounded(finalist->winner_ratio), "winner_lower",
                  has_winner_bounds ? rounded(finalist->winner_lower) : NULL, "winner_upper",
                  rounded(finalist->winner_upper), "median_us", rounded(finalist->median_us),
                  "equivalent", finalist->equivalent));
  }

  json_t *object = json_pack(
      "{s:I, s:o, s:o*, s:s, s:o*, s:o*, s:o*, s:o*, s:o*, s:o*, s:I, s:I, s:I, s:o}", "winner",
      (json_int_t)verdict->winner, "equivalence_set", equivalents, "regret_bound",
      rounded(verdict->regret_bound), "verdict", verdict_outcome_name(verdict->outcome), "speedup",
      rounded(1 / verdict->baseline_ratio), "baseline_ratio", rounded(verdict->baseline_ratio),
      "baseline_lower", rounded(verdict->baseline_lower), "baseline_upper",
      rounded(verdict->baseline_upper), "winner_us", rounded(verdict->winner_us), "baseline_us",
      rounded(verdict->baseline_us), "samples", (json_int_t)verdict->n_samples, "processes",
      (json_int_t)verdict->n_processes, "devices", (json_int_t)verdict->n_devices, "finalists",
      finalists);
  ALWAYS(object != NULL);
  return object;
}

bool verdict_json_replaces(const json_t *verdict, uint64_t baseline, uint64_t served,
                           double min_gain, struct error *ret_reason) {
  const json_t *compared = served == baseline ? verdict : NULL;
  const char *ratio_name = compared ? "baseline_ratio" : "winner_ratio";
  const char *upper_name = compared ? "baseline_upper" : "winner_upper";
  unsigned long long config = served;

  json_elements (json_object_get(verdict, "equivalence_set"), index, element)
    if ((uint64_t)json_integer_value(element) == served)
      return error_set(ret_reason, "the served config %llu is in the job's equivalence set",
                       config);

  json_elements (json_object_get(verdict, "finalists"), index, element)
    if (!compared && (uint64_t)json_integer_value(json_object_get(element, "config")) == served)
      compared = element;

  if (!compared)
    return error_set(ret_reason,
                     "the job measured the served config %llu neither as its baseline nor as a "
                     "finalist; submit one whose baseline it is",
                     config);

  const json_t *ratio_json = json_object_get(compared, ratio_name);
  const json_t *upper_json = json_object_get(compared, upper_name);
  double ratio = json_number_value(ratio_json), upper = json_number_value(upper_json);
  if (!json_is_number(ratio_json) || !json_is_number(upper_json))
    return error_set(ret_reason,
                     "the job's verdict has no interval of its winner against the served config "
                     "%llu; submit the job with another run",
                     config);
  if (upper >= 1)
    return error_set(ret_reason,
                     "the winner's time is %.4f of the served config %llu's, but its interval "
                     "reaches %.4f: not known to be faster",
                     ratio, config, upper);
  if (ratio > 1 - min_gain)
    return error_set(
        ret_reason,
        "the winner gains %.2f %% over the served config %llu, less than the %.2f %% required",
        100 * (1 - ratio), config, 100 * min_gain);
  return true;
}
