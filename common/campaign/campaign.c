/* What follows after a stage: the choice of the configs that go on, and the decision. Pure. */
#include "common/campaign/campaign.h"

#include <math.h>

#include "common/base/numbers.h"

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

static bool is_among(const uint64_t *configs, size_t n, uint64_t config) {
  for (size_t i = 0; i < n; i++)
    if (configs[i] == config)
      return true;
  return false;
}

/* The least ratio of those that stayed in their race, else of all; n >= 1. */
static double least_ratio(const struct campaign_candidate *candidates, size_t n) {
  double least = INFINITY, least_of_all = INFINITY;
  for (size_t i = 0; i < n; i++) {
    least_of_all = fmin(least_of_all, candidates[i].ratio);
    if (!candidates[i].left_early)
      least = fmin(least, candidates[i].ratio);
  }
  return isfinite(least) ? least : least_of_all;
}

size_t finalists_choose(const struct campaign_candidate *candidates, size_t n,
                        const uint64_t *always, size_t n_always, size_t most, uint64_t *ret) {
  if (n == 0 || most == 0)
    return 0;

  cleanup_free struct ranked *ranked = xcalloc(n, sizeof *ranked);
  cleanup_free uint64_t *configs = xcalloc(n, sizeof *configs);
  double least = least_ratio(candidates, n);
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
  if (measured == 0)
    error_set(&step->reason,
              "the budget was spent before any config was measured, and opening the kernel took "
              "%.3g device-seconds; %s",
              (double)facts->budget.opening_us * 1e-6, facts->budget_larger_by);
  else
    error_set(&step->reason, "none of %lld configs was measured correctly (%s)%s%.300s",
              (long long)measured, counts, race->example ? "; one of them: " : "",
              race->example ? race->example : "");
}

/* Configs of one lease raced together already. */
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

/* Writes each config once, in rising order. */
static size_t configs_unique(uint64_t *configs, size_t n) {
  size_t n_unique = 0;
  qsort(configs, n, sizeof *configs, compare_ordinals);
  for (size_t i = 0; i < n; i++)
    if (n_unique == 0 || configs[n_unique - 1] != configs[i])
      configs[n_unique++] = configs[i];
  return n_unique;
}

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
  n_failed = configs_unique(failed, n_failed);

  for (size_t i = 0; i < n; i++) {
    const struct verdict_sample *sample = &facts->measurements[i].sample;
    if (bsearch(&sample->config, failed, n_failed, sizeof *failed, compare_ordinals))
      continue;
    step->configs[n_samples] = sample->config;
    samples[n_samples++] = *sample;
  }
  step->n_configs = configs_unique(step->configs, n_samples);

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
    /* Releases skip an ambiguous job, a winner that may be worse than another one is none to build
     * on, and what is kept out of the equivalence set may be what the next job chooses: another
     * process is worth its time. */
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
  struct campaign_step step = {0};
  if (facts->stage == STAGE_FINAL)
    after_final(facts, &step);
  else
    after_screen(facts, &step);
  *ret_step = step;
}

void campaign_step_release(struct campaign_step *step) {
  free(step->configs);
  if (step->has_verdict)
    verdict_release(&step->verdict);
  *step = (struct campaign_step){0};
}
