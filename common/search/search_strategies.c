/* The strategies other than random. */
#include "common/search/search_code.h"

/* Coordinate descent, as Inductor's autotuner does it (PyTorch,
 * torch/_inductor/runtime/coordinate_descent_tuner.py): one parameter after the other is moved by
 * one value to either side, the move is kept when it gains more than 0.1 %, and the descent ends
 * when no parameter gains any more. It differs in these: the values are those of the space instead
 * of doubles and halves; parameters of few values, which often have no order (a layout, a flag),
 * are tried with all of them; values that conditions exclude are stepped over; the trials that are
 * left are spent on descents from random points. */

#define GAIN_MIN 0.001
#define FEW_VALUES 3
#define NEIGHBOURS_MAX FEW_VALUES

static size_t neighbours_of(struct points *points, uint64_t config, size_t parameter,
                            uint64_t neighbours[NEIGHBOURS_MAX]) {
  size_t n_values = points->axes[parameter].n, n = 0;
  if (n_values > FEW_VALUES) {
    n += points_step(points, config, parameter, 1, &neighbours[n]);
    n += points_step(points, config, parameter, -1, &neighbours[n]);
    return n;
  }

  uint32_t places[SPACE_PARAMETERS_MAX];
  points_places(points, config, places);
  uint32_t own = places[parameter];
  for (uint32_t place = 0; place < n_values; place++) {
    places[parameter] = place;
    n += place != own && points_find(points, places, &neighbours[n]);
  }

  return n;
}

void descent_fill(struct search *search) {
  struct descent *descent = &search->descent;
  const struct space *space = search->points.space;

  if (!descent->is_under_way) {
    *descent = (struct descent){.ratio = INFINITY};
    for (size_t i = 0; i < search->told.n; i++) {
      const struct asked *asked = &search->told.asked[i];
      if (asked->ratio < descent->ratio)
        *descent =
            (struct descent){.is_under_way = true, .config = asked->config, .ratio = asked->ratio};
    }
  }

  if (!descent->is_under_way) {
    struct error ignored;
    bool is_first = search->told.n == 0;
    if (is_first && space->has_default &&
        points_decide(&search->points, space->default_ordinal, &ignored) == CONDITION_TRUE)
      search_add(search, space->default_ordinal);
    if (search->batch.n == 0)
      search_add_random(search);
    return;
  }

  while (descent->n_without_gain < space->n_parameters) {
    uint64_t neighbours[NEIGHBOURS_MAX];
    size_t n = neighbours_of(&search->points, descent->config, descent->parameter, neighbours);
    for (size_t i = 0; i < n; i++)
      search_add(search, neighbours[i]);
    if (search->batch.n > 0)
      return;

    /* All neighbours are known: move to the best one when it is better. */
    double least = descent->ratio * (1 - GAIN_MIN), ratio;
    descent->n_without_gain++;
    for (size_t i = 0; i < n; i++) {
      if (search_ratio(search, neighbours[i], &ratio) && ratio < least) {
        least = descent->ratio = ratio;
        descent->config = neighbours[i];
        descent->n_without_gain = 0;
      }
    }
    descent->parameter = (descent->parameter + 1) % space->n_parameters;
  }

  descent->is_under_way = false;
  search_add_random(search);
}

/* Regularised evolution: Real, Aggarwal, Huang, Le, "Regularized Evolution for Image Classifier
 * Architecture Search", AAAI 2019, algorithm 1. A population of the newest configs; the best of a
 * random sample of it is mutated; the oldest is removed.
 *
 * The paper has a population of 100 and samples of 25 for 20,000 trials. Tuning has hundreds, so
 * both are scaled: docs/search.md has the measurements that they were chosen by. It differs in that
 * a config is measured once (a mutant that is known is made again), and that children are requested
 * in batches, so that they can be compiled and raced together. */

#define POPULATION_MIN 16
#define TRIALS_OF_MEMBER 10 /* trials for each member of the population */
#define SAMPLE_DIVISOR 2    /* of the population: how many are compared for a parent */
#define BROOD_DIVISOR 2     /* of the population: children of one batch */
#define MUTATIONS_MAX 64    /* made until one is valid and new */

/* The best of a random sample; of equal ones the lower ordinal. */
static const struct asked *parent_pick(const struct evolution *evolution, struct rng *rng) {
  const struct asked *parent = NULL;
  for (size_t i = 0; i < evolution->n_population / SAMPLE_DIVISOR; i++) {
    const struct asked *member = &evolution->members[rng_below(rng, evolution->n)];
    if (!parent || member->ratio < parent->ratio ||
        (member->ratio == parent->ratio && member->config < parent->config))
      parent = member;
  }
  return parent;
}

/* Gives one random parameter another value: half of the time a neighbouring one, else any. */
static void mutate(struct search *search, uint32_t *places) {
  const struct points *points = &search->points;
  size_t parameter = (size_t)rng_below(&search->rng, points->space->n_parameters);
  uint32_t n = points->axes[parameter].n, *place = &places[parameter];

  if (n < 2)
    return;

  switch (rng_below(&search->rng, 4)) {
  case 0:
    *place = *place + 1 < n ? *place + 1 : *place - 1;
    break;
  case 1:
    *place = *place > 0 ? *place - 1 : *place + 1;
    break;
  default: {
    uint32_t other = (uint32_t)rng_below(&search->rng, n - 1);
    *place = other + (other >= *place);
  }
  }
}

/* Adds a new valid config that is one mutation from its parent, or two where such a config is hard
 * to find: all are known, or a condition ties two parameters to each other. */
static bool child_add(struct search *search, const struct asked *parent) {
  if (parent->ratio == INFINITY)
    return false;

  for (size_t i = 0; i < MUTATIONS_MAX; i++) {
    uint32_t places[SPACE_PARAMETERS_MAX];
    uint64_t child;
    points_places(&search->points, parent->config, places);
    mutate(search, places);
    if (i >= MUTATIONS_MAX / 2)
      mutate(search, places);
    if (points_find(&search->points, places, &child) && search_add(search, child))
      return true;
  }

  return false;
}

void evolution_fill(struct search *search) {
  struct evolution *evolution = &search->evolution;
  const struct batch *told = &search->told;
  if (evolution->n_population == 0) {
    uint64_t n = search->trials / TRIALS_OF_MEMBER;
    evolution->n_population = n < POPULATION_MIN   ? POPULATION_MIN
                              : n > POPULATION_MAX ? POPULATION_MAX
                                                   : (size_t)n;
  }

  for (size_t i = 0; i < told->n; i++) {
    if (evolution->n < evolution->n_population) {
      evolution->members[evolution->n++] = told->asked[i];
    } else {
      evolution->members[evolution->oldest] = told->asked[i];
      evolution->oldest = (evolution->oldest + 1) % evolution->n_population;
    }
  }

  while (evolution->n + search->batch.n < evolution->n_population)
    if (!search_add_random(search))
      return;

  if (evolution->n < evolution->n_population)
    return;
  size_t brood = evolution->n_population / BROOD_DIVISOR;
  while (search->batch.n < brood)
    if (!child_add(search, parent_pick(evolution, &search->rng)) && !search_add_random(search))
      return;
}
