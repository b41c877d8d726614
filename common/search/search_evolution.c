/* Regularised evolution: Real, Aggarwal, Huang, Le, "Regularized Evolution for Image Classifier
 * Architecture Search", AAAI 2019, algorithm 1. A population of the newest configs; the best of a
 * random sample of it is mutated; the oldest dies.
 *
 * The paper has a population of 100 and samples of 25 for 20,000 trials. Tuning has hundreds, so
 * both are scaled: see docs/search.md for what they were chosen by. Other than there, a config is
 * measured once (a mutant that is known is made again), and children are asked for in batches, so
 * that they can be compiled and raced together. Memory and threads: as search.h says. */
#include "common/search/search_strategy.h"

#define POPULATION_MIN 16
#define POPULATION_MAX 64
#define TRIALS_OF_MEMBER 10 /* trials for each member of the population */
#define SAMPLE_DIVISOR 2    /* of the population: how many are compared for a parent */
#define BROOD_DIVISOR 2     /* of the population: children of one batch */
#define MUTATIONS_MAX 64    /* made until one holds and is new */

struct evolution {
  size_t n_population, n; /* n members are there already */
  size_t oldest;
  struct asked members[POPULATION_MAX];
};

static void evolution_learn(struct evolution *evolution, const struct batch *told) {
  for (size_t i = 0; i < told->n; i++) {
    if (evolution->n < evolution->n_population) {
      evolution->members[evolution->n++] = told->asked[i];
    } else {
      evolution->members[evolution->oldest] = told->asked[i];
      evolution->oldest = (evolution->oldest + 1) % evolution->n_population;
    }
  }
}

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

/* Gives one random parameter another value: as often one next to its own as any. */
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

/* Adds a new config that holds and is one mutation from its parent, or two where one such is hard
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

static void evolution_fill(struct search *search) {
  struct evolution *evolution = search->state;
  if (evolution->n_population == 0) {
    uint64_t n = search->trials / TRIALS_OF_MEMBER;
    evolution->n_population = n < POPULATION_MIN   ? POPULATION_MIN
                              : n > POPULATION_MAX ? POPULATION_MAX
                                                   : (size_t)n;
  }
  evolution_learn(evolution, &search->told);
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

const struct strategy search_evolution = {.state_size = sizeof(struct evolution),
                                          .fill = evolution_fill};
