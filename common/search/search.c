/* The interface of a search; the configs that it requested and their results. */
#include "common/search/search_code.h"
#include "common/verdict/verdict.h"

/* Candidates that are tried for a batch before it is returned with fewer configs, if it has any. */
#define WORK_OF_BATCH (UINT64_C(1) << 20)
#define ENUMERATION_DIVISOR 4 /* of the work, spent on enumerating what conditions exclude */

#define FREE_SLOT UINT64_MAX

static void random_fill(struct search *search) {
  while (search_add_random(search)) {
  }
}

static void (*const fills[SEARCH_STRATEGY_COUNT])(struct search *search) = {
    [SEARCH_RANDOM] = random_fill,
    [SEARCH_DESCENT] = descent_fill,
    [SEARCH_EVOLUTION] = evolution_fill};

const char *const search_strategy_names[] = {[SEARCH_RANDOM] = "random",
                                             [SEARCH_DESCENT] = "descent",
                                             [SEARCH_EVOLUTION] = "evolution",
                                             [SEARCH_STRATEGY_COUNT] = NULL};

const char *search_strategy_name(enum search_strategy strategy) {
  return search_strategy_names[strategy];
}

bool search_strategy_parse(const char *name, enum search_strategy *ret) {
  size_t i;
  if (!name_find(search_strategy_names, SEARCH_STRATEGY_COUNT, name, &i))
    return false;
  *ret = (enum search_strategy)i;
  return true;
}

/* The slot of a config that was requested, or the free slot where it would be. */
static struct asked *slot_of(const struct search *search, uint64_t config) {
  struct rng hash = rng_seeded(config);
  uint64_t at = rng_next(&hash);
  while (search->slots[at & (search->n_slots - 1)].config != config &&
         search->slots[at & (search->n_slots - 1)].config != FREE_SLOT)
    at++;
  return &search->slots[at & (search->n_slots - 1)];
}

/* At most half of the slots are taken, so that a free one is found soon. */
static void slots_grow(struct search *search) {
  uint64_t n_before = search->n_slots;
  cleanup_free struct asked *before = search->slots;
  search->n_slots = n_before ? 2 * n_before : 4 * SEARCH_BATCH_MAX;
  search->slots = xcalloc(search->n_slots, sizeof *search->slots);
  for (uint64_t i = 0; i < search->n_slots; i++)
    search->slots[i].config = FREE_SLOT;
  for (uint64_t i = 0; i < n_before; i++)
    if (before[i].config != FREE_SLOT)
      *slot_of(search, before[i].config) = before[i];
}

bool search_new(const struct space *space, const struct space_facts *facts,
                const struct search_options *options, struct search **ret_search,
                struct error *error) {
  ALWAYS(options->strategy < SEARCH_STRATEGY_COUNT && options->trials >= 1 &&
         options->trials <= SEARCH_TRIALS_MAX);

  cleanup_search struct search *search = xcalloc(1, sizeof *search);
  search->fill = fills[options->strategy];
  search->trials = options->trials;
  search->work = search->work_limit =
      options->work_limit ? options->work_limit : SEARCH_WORK_DEFAULT;
  search->rng = rng_seeded(options->seed);
  slots_grow(search);
  if (!points_init(space, facts, &search->points, error) ||
      !draws_init(&search->points, rng_next(&search->rng), search->work_limit / ENUMERATION_DIVISOR,
                  &search->draws, error))
    return false;

  for (size_t i = 0; i < options->n_likely && search->n_likely < SEARCH_BATCH_MAX; i++) {
    enum decision decision = points_decide(&search->points, options->likely[i], error);
    if (decision == CONDITION_FAILED)
      return false;
    if (decision == CONDITION_TRUE)
      search->likely[search->n_likely++] = options->likely[i];
  }

  /* Draw the first random point now, so that a space without a valid one is refused at once. */
  switch (draws_next(&search->draws, &search->points, &search->work, &search->first, error)) {
  case CONDITION_TRUE:
    search->has_first = true;
    break;
  case CONDITION_FAILED:
    return false;
  case CONDITION_FALSE:
    return error_at(error, "/conditions",
                    "no config of the space is valid; take a condition out or add values");
  case UNDECIDED:
    if (search->n_likely == 0)
      return error_at(error, "/conditions",
                      "no valid config was found among %llu random ones; take out values that "
                      "conditions exclude, or list the configs",
                      (unsigned long long)search->work_limit);
  }

  *ret_search = TAKE(search);
  return true;
}

void search_free(struct search *search) {
  if (!search)
    return;
  free(search->slots);
  draws_release(&search->draws);
  points_release(&search->points);
  free(search);
}

static bool has_room(const struct search *search) {
  return search->batch.n < SEARCH_BATCH_MAX && search->n_asked < search->trials;
}

bool search_add(struct search *search, uint64_t config) {
  struct asked *slot = slot_of(search, config);
  if (slot->config == config || !has_room(search))
    return false;
  *slot = search->batch.asked[search->batch.n++] = (struct asked){config, INFINITY};
  if (++search->n_asked * 2 > search->n_slots)
    slots_grow(search);
  return true;
}

bool search_add_random(struct search *search) {
  while (has_room(search)) {
    /* A long search for a point is worth its time only for a batch that would else be empty. */
    if (search->batch.n > 0 && search->work_limit - search->work > WORK_OF_BATCH)
      return false;

    uint64_t config = search->first;
    struct error ignored;
    enum decision decision = CONDITION_TRUE;
    if (!search->has_first)
      decision = draws_next(&search->draws, &search->points, &search->work, &config, &ignored);
    search->has_first = false;
    if (decision == CONDITION_FALSE || decision == UNDECIDED)
      return false;
    if (decision == CONDITION_TRUE && search_add(search, config))
      return true;
  }

  return false;
}

bool search_ratio(const struct search *search, uint64_t config, double *ret_ratio) {
  const struct asked *slot = slot_of(search, config);
  if (slot->config != config)
    return false;
  *ret_ratio = slot->ratio;
  return true;
}

size_t search_ask(struct search *search, uint64_t configs[SEARCH_BATCH_MAX]) {
  for (size_t i = 0; i < search->batch.n; i++)
    slot_of(search, search->batch.asked[i].config)->ratio = search->batch.asked[i].ratio;

  search->told = search->batch;
  search->batch.n = 0;
  search->work = search->work_limit;
  for (size_t i = 0; i < search->n_likely; i++)
    search_add(search, search->likely[i]);

  search->n_likely = 0;
  search->fill(search);
  for (size_t i = 0; i < search->batch.n; i++)
    configs[i] = search->batch.asked[i].config;
  return search->batch.n;
}

void search_tell(struct search *search, uint64_t config, double ratio) {
  for (size_t i = 0; i < search->batch.n; i++) {
    struct asked *asked = &search->batch.asked[i];
    if (asked->config == config && ratio > 0 && ratio < asked->ratio)
      asked->ratio = ratio;
  }
}
