/* The steps of a campaign: what to try first, which configs go on to the next stage, and when it is
 * over. Pure functions. */
#include "common/campaign/campaign.h"

#include <math.h>

#include "common/base/numbers.h"

static bool is_among(const uint64_t *configs, size_t n, uint64_t config) {
  for (size_t i = 0; i < n; i++)
    if (configs[i] == config)
      return true;
  return false;
}

/* The choice */

/* A config in the order in which the choice takes them. */
struct ranked {
  double ratio; /* of a config that left its race early at least FINALISTS_LEFT times the best */
  double own_ratio;
  uint64_t config;
};

/* All configs that left early tie where the best leads by enough. Their own ratios break the tie
 * before the ordinals do, so that the HALVING_MAX with the least ratios are as good as all of
 * them. */
static int by_rank(const void *a, const void *b) {
  const struct ranked *left = a, *right = b;
  if (left->ratio != right->ratio)
    return left->ratio < right->ratio ? -1 : 1;
  if (left->own_ratio != right->own_ratio)
    return left->own_ratio < right->own_ratio ? -1 : 1;
  return compare_ordinals(&left->config, &right->config);
}

size_t finalists_choose(const struct campaign_candidate *candidates, size_t n,
                        const uint64_t *always, size_t n_always, size_t most, uint64_t *ret) {
  if (n == 0 || most == 0)
    return 0;

  cleanup_free struct ranked *ranked = xcalloc(n, sizeof *ranked);
  cleanup_free uint64_t *configs = xcalloc(n, sizeof *configs);

  /* The least ratio of those that stayed in their race, else of all. */
  double least = INFINITY, least_of_all = INFINITY;
  for (size_t i = 0; i < n; i++) {
    least_of_all = fmin(least_of_all, candidates[i].ratio);
    if (!candidates[i].left_early)
      least = fmin(least, candidates[i].ratio);
  }

  least = isfinite(least) ? least : least_of_all;

  for (size_t i = 0; i < n; i++) {
    double ratio = candidates[i].ratio;
    configs[i] = candidates[i].config;
    ranked[i] = (struct ranked){ratio, ratio, candidates[i].config};
    if (candidates[i].left_early)
      ranked[i].ratio = fmax(ratio, FINALISTS_LEFT * least);
  }

  qsort(ranked, n, sizeof *ranked, by_rank);

  size_t chosen = 0;
  ret[chosen++] = ranked[0].config;
  for (size_t i = 0; i < n_always && chosen < most; i++)
    if (is_among(configs, n, always[i]) && !is_among(ret, chosen, always[i]))
      ret[chosen++] = always[i];
  double span = ranked[0].ratio * FINALISTS_SPAN;
  for (size_t i = 1; i < n && chosen < most && ranked[i].ratio <= span; i++)
    if (!is_among(always, n_always, ranked[i].config))
      ret[chosen++] = ranked[i].config;
  qsort(ret, chosen, sizeof *ret, compare_ordinals);
  return chosen;
}

/* After a screen or a halving */

bool campaign_screen_is_spent(const struct campaign_facts *facts) {
  return facts->is_cut || budget_screen_left_us(&facts->budget, facts->processes) == 0;
}

static void screen_failed(const struct campaign_facts *facts, const struct campaign_race *race,
                          struct campaign_step *step) {
  char counts[160] = "";
  size_t used = 0;
  int64_t measured = 0;

  for (int i = 0; i < OUTCOME_COUNT; i++) {
    measured += race->outcomes[i];
    if (race->outcomes[i] > 0)
      used += (size_t)snprintf(counts + used, sizeof counts - used, "%s%s %lld", used ? ", " : "",
                               outcome_name((enum outcome)i), (long long)race->outcomes[i]);
  }

  step->kind = CAMPAIGN_FAILED;
  if (measured == 0 && race->example)
    error_set(&step->reason, "none of its configs was measured; one was %.300s", race->example);
  else if (measured == 0)
    error_set(&step->reason,
              "the budget was spent before any config was measured, and opening the kernel took "
              "%.3g device-seconds; %s",
              (double)facts->budget.opening_us * 1e-6, facts->budget_larger_by);
  else
    error_set(&step->reason, "none of %lld configs was measured correctly (%s)%s%.300s",
              (long long)measured, counts, race->example ? "; one of them: " : "",
              race->example ? race->example : "");
}

/* Whether the configs were measured in several leases: those of one lease raced together. */
static bool raced_apart(const struct campaign_race *race, const uint64_t *configs, size_t n) {
  const struct campaign_candidate *first = NULL;
  for (size_t i = 0; i < race->n; i++) {
    const struct campaign_candidate *candidate = &race->candidates[i];
    if (!bsearch(&candidate->config, configs, n, sizeof *configs, compare_ordinals))
      continue;
    if (first && candidate->lease != first->lease)
      return true;
    first = candidate;
  }

  return false;
}

static void after_screen(const struct campaign_facts *facts, struct campaign_step *step) {
  bool was_halved = facts->stage == STAGE_HALVING && facts->halving.n > 0;
  const struct campaign_race *race = was_halved ? &facts->halving : &facts->screen;

  if (race->n == 0) {
    screen_failed(facts, race, step);
    return;
  }

  size_t finalists_max =
      facts->finalists_max < BUDGET_FINALISTS_MIN ? BUDGET_FINALISTS_MIN : facts->finalists_max;
  size_t room = finalists_max > HALVING_MAX ? finalists_max : HALVING_MAX;
  const uint64_t always[FINALISTS_ALWAYS] = {facts->baseline, facts->default_config};
  size_t n_always = facts->has_default ? 2 : 1;
  step->configs = xcalloc(room, sizeof *step->configs);

  if (facts->stage == STAGE_SCREEN && !campaign_screen_is_spent(facts)) {
    size_t n_close =
        finalists_choose(race->candidates, race->n, NULL, 0, HALVING_MAX, step->configs);
    if (n_close > finalists_max && raced_apart(race, step->configs, n_close)) {
      step->kind = CAMPAIGN_HALVING;
      step->n_processes = 1;
      step->n_configs =
          finalists_choose(race->candidates, race->n, always, n_always, HALVING_MAX, step->configs);
      return;
    }
  }

  step->kind = CAMPAIGN_FINAL;
  step->n_processes = facts->processes;
  size_t most = budget_finalists(&facts->budget, facts->processes, finalists_max);
  step->n_configs =
      finalists_choose(race->candidates, race->n, always, n_always, most, step->configs);
}

/* After a final */

static void after_final(const struct campaign_facts *facts, struct campaign_step *step) {
  size_t n = facts->n_measurements, n_failed = 0, n_samples = 0;
  cleanup_free uint64_t *failed = xcalloc(n + 1, sizeof *failed);
  cleanup_free struct verdict_sample *samples = xcalloc(n + 1, sizeof *samples);

  step->configs = xcalloc(n + 1, sizeof *step->configs);
  step->first_process = facts->processes_begun;
  step->n_processes = 1;

  for (size_t i = 0; i < n; i++) {
    const struct verdict_sample *sample = &facts->measurements[i].sample;
    if (facts->measurements[i].outcome != OUTCOME_CORRECT)
      failed[n_failed++] = sample->config;
    if (sample->process >= step->first_process)
      step->first_process = sample->process + 1;
  }
  n_failed = sort_unique(failed, n_failed);

  for (size_t i = 0; i < n; i++) {
    const struct verdict_sample *sample = &facts->measurements[i].sample;
    if (bsearch(&sample->config, failed, n_failed, sizeof *failed, compare_ordinals))
      continue;
    step->configs[n_samples] = sample->config;
    samples[n_samples++] = *sample;
  }
  step->n_configs = sort_unique(step->configs, n_samples);

  struct error undecided = {0};
  bool may_be_more = step->first_process < facts->processes_max;
  step->kind = CAMPAIGN_FINAL;
  if (n_samples == 0) {
    const char *example = facts->final_example;
    step->kind = CAMPAIGN_FAILED;
    if (n == 0)
      error_set(&step->reason, "no finalist was measured in %lld processes",
                (long long)step->first_process);
    else
      error_set(&step->reason,
                "every finalist failed when it was measured again in a fresh process; %s%.300s",
                example ? "one of them: " : "its measurements say how", example ? example : "");
    return;
  }

  step->has_verdict =
      verdict_decide(samples, n_samples, facts->baseline, facts->seed, &step->verdict, &undecided);
  if (step->has_verdict) {
    /* Another process is worth its time: releases skip an ambiguous job, a winner may be worse than
     * another config, and one that is kept out of the equivalence set may win the next job. */
    bool is_open =
        !verdict_is_settled(&step->verdict) && may_be_more && budget_pays_process(&facts->budget);
    step->kind = is_open ? CAMPAIGN_FINAL : CAMPAIGN_DONE;
  } else if (!may_be_more) {
    step->kind = CAMPAIGN_FAILED;
    error_set(&step->reason, "after %lld processes of finals: %.500s",
              (long long)step->first_process, undecided.message);
  }
}

void campaign_next(const struct campaign_facts *facts, struct campaign_step *ret_step) {
  *ret_step = (struct campaign_step){0};
  if (agreement_refuses(&facts->agreement, &ret_step->reason))
    ret_step->kind = CAMPAIGN_DISAGREED;
  else if (facts->stage == STAGE_FINAL)
    after_final(facts, ret_step);
  else
    after_screen(facts, ret_step);
}

void campaign_step_release(struct campaign_step *step) {
  free(step->configs);
  if (step->has_verdict)
    verdict_release(&step->verdict);
  *step = (struct campaign_step){0};
}

/* Warm-start configs, and searches that are replayed from their measurements */

/* The value as a number; false if it has no logarithm. */
static bool number_of(struct value value, double *ret) {
  if (value.type != VALUE_INT && value.type != VALUE_FLOAT)
    return false;
  *ret = value.type == VALUE_INT ? (double)value.integer : value.real;
  return *ret > 0;
}

double key_distance(const struct key *a, const struct key *b) {
  double distance = 0;
  for (size_t i = 0; i < a->n; i++) {
    const struct value *other = NULL;
    double left, right;
    for (size_t j = 0; j < b->n && !other; j++)
      if (string_equal(b->names[j], a->names[i]))
        other = &b->values[j];
    if (other && number_of(a->values[i], &left) && number_of(*other, &right))
      distance += fabs(log2(left / right));
    else if (!other || !value_equal(a->values[i], *other))
      distance += KEY_DIFFERS;
  }

  return distance;
}

struct neighbour {
  bool is_elsewhere;
  double distance;
  size_t age; /* place among the winners */
  uint64_t config;
};

static int by_nearness(const void *a, const void *b) {
  const struct neighbour *left = a, *right = b;
  if (left->is_elsewhere != right->is_elsewhere)
    return left->is_elsewhere ? 1 : -1;
  if (left->distance != right->distance)
    return left->distance < right->distance ? -1 : 1;
  return (left->age > right->age) - (left->age < right->age);
}

size_t warm_starts_choose(const struct key *key, const struct known_winner *winners, size_t n,
                          uint64_t ret[WARM_STARTS_MAX]) {
  cleanup_free struct neighbour *neighbours = xcalloc(n + 1, sizeof *neighbours);
  size_t n_neighbours = 0, n_chosen = 0;
  for (size_t i = 0; i < n; i++) {
    double distance = key_distance(key, winners[i].key);
    if (!winners[i].is_elsewhere || distance == 0)
      neighbours[n_neighbours++] =
          (struct neighbour){winners[i].is_elsewhere, distance, i, winners[i].config};
  }

  qsort(neighbours, n_neighbours, sizeof *neighbours, by_nearness);

  for (size_t i = 0; i < n_neighbours && n_chosen < WARM_STARTS_MAX; i++)
    if (!is_among(ret, n_chosen, neighbours[i].config))
      ret[n_chosen++] = neighbours[i].config;
  return n_chosen;
}

size_t search_first(uint64_t baseline, bool has_default, uint64_t default_config,
                    const uint64_t *warm_starts, size_t n_warm_starts,
                    uint64_t ret[SEARCH_FIRST_MAX]) {
  size_t n = 0;
  ALWAYS(n_warm_starts <= WARM_STARTS_MAX);
  ret[n++] = baseline;
  if (has_default)
    ret[n++] = default_config;
  for (size_t i = 0; i < n_warm_starts; i++)
    ret[n++] = warm_starts[i];
  return n;
}

bool search_round(const struct space *space, const struct space_facts *facts,
                  const struct search_options *options, const struct search_result *told,
                  size_t n_told, int64_t round, uint64_t ret_configs[SEARCH_BATCH_MAX],
                  size_t *ret_n, struct error *error) {
  cleanup_search struct search *search = NULL;
  if (!search_new(space, facts, options, &search, error))
    return false;

  size_t n = search_ask(search, ret_configs);
  for (; round > 0 && n > 0; round--) {
    for (size_t i = 0; i < n; i++) {
      const struct search_result *found =
          n_told ? bsearch(&ret_configs[i], told, n_told, sizeof *told, compare_ordinals) : NULL;
      search_tell(search, ret_configs[i], found ? found->ratio : INFINITY);
    }
    n = search_ask(search, ret_configs);
  }

  *ret_n = n;
  return true;
}
