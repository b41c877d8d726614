/* Axes of a space, steps along them, and random valid points. */
#include "common/search/search_code.h"

#define HEADS_MAX (1u << 17)
/* A small domain is permuted within a larger one: with halves of a bit or two a network reaches few
 * permutations. */
#define HALF_BITS_MIN 5

static int values_sort_compare(const void *a, const void *b) {
  return value_compare(*(const struct value *)a, *(const struct value *)b);
}

/* The distinct values of one column of a list, sorted, since their order in a list means nothing.
 */
static struct axis axis_of_list(const struct space *space, size_t parameter) {
  size_t n = 0, rows = (size_t)space->raw_count;
  struct value *values = xcalloc(rows, sizeof *values);
  for (size_t row = 0; row < rows; row++)
    values[row] = space->list[row * space->n_parameters + parameter];
  qsort(values, rows, sizeof *values, values_sort_compare);
  for (size_t row = 0; row < rows; row++)
    if (n == 0 || value_compare(values[n - 1], values[row]) != 0)
      values[n++] = values[row];
  return (struct axis){.n = (uint32_t)n, .values = values};
}

bool points_init(const struct space *space, const struct space_facts *facts, struct points *points,
                 struct error *error) {
  uint64_t stride = 1;
  points->space = space;

  for (size_t i = space->n_parameters; i-- > 0;) {
    if (space->is_list) {
      points->axes[i] = axis_of_list(space, i);
    } else {
      points->axes[i] =
          (struct axis){.n = (uint32_t)space->parameters[i].n_values, .stride = stride};
      stride *= points->axes[i].n;
    }
  }

  return conditions_bind(space, facts, &points->conditions, error);
}

void points_release(struct points *points) {
  for (size_t i = 0; points->space && i < points->space->n_parameters; i++)
    free(points->axes[i].values);
  conditions_release(&points->conditions);
  *points = (struct points){0};
}

enum decision points_decide(struct points *points, uint64_t ordinal, struct error *error) {
  struct conditions *conditions = &points->conditions;
  if (!space_config(points->space, ordinal, conditions->slots + conditions->n_fixed))
    return CONDITION_FALSE;
  return conditions_decide(points->space, conditions, ordinal, error);
}

void points_places(const struct points *points, uint64_t ordinal,
                   uint32_t places[SPACE_PARAMETERS_MAX]) {
  const struct space *space = points->space;
  for (size_t i = 0; i < space->n_parameters; i++) {
    const struct axis *axis = &points->axes[i];
    if (space->is_list) {
      const struct value *value = &space->list[ordinal * space->n_parameters + i];
      const struct value *found =
          bsearch(value, axis->values, axis->n, sizeof *value, values_sort_compare);
      ALWAYS(found != NULL);
      places[i] = (uint32_t)(found - axis->values);
    } else {
      places[i] = (uint32_t)(ordinal / axis->stride % axis->n);
    }
  }
}

bool points_find(struct points *points, const uint32_t places[SPACE_PARAMETERS_MAX],
                 uint64_t *ret_ordinal) {
  const struct space *space = points->space;
  struct value values[SPACE_PARAMETERS_MAX];
  struct error ignored;
  uint64_t ordinal = 0;
  for (size_t i = 0; i < space->n_parameters; i++)
    if (space->is_list)
      values[i] = points->axes[i].values[places[i]];
    else
      ordinal += places[i] * points->axes[i].stride;

  if ((space->is_list && !space_ordinal(space, values, &ordinal)) ||
      points_decide(points, ordinal, &ignored) != CONDITION_TRUE)
    return false;

  *ret_ordinal = ordinal;
  return true;
}

bool points_step(struct points *points, uint64_t ordinal, size_t parameter, int side,
                 uint64_t *ret_ordinal) {
  uint32_t places[SPACE_PARAMETERS_MAX], *place = &places[parameter];
  points_places(points, ordinal, places);
  uint32_t end = side < 0 ? 0 : points->axes[parameter].n - 1;
  for (size_t reach = 0; *place != end && reach < STEP_REACH; reach++) {
    *place = side < 0 ? *place - 1 : *place + 1;
    if (points_find(points, places, ret_ordinal))
      return true;
  }
  return false;
}

static struct value *parameter_slots(struct points *points) {
  return points->conditions.slots + points->conditions.n_fixed;
}

static bool reads_parameter(const struct points *points, size_t condition, size_t parameter) {
  return expr_reads(points->conditions.exprs[condition], points->conditions.n_fixed + parameter);
}

/* Orders the parameters by the conditions that they decide, the cheapest first. decided_at[i] is
 * the depth at which condition i is decided. Returns the depth after which no condition is
 * decided. */
static size_t order_parameters(const struct points *points, size_t *order, size_t *decided_at) {
  size_t n = points->conditions.n, n_parameters = points->space->n_parameters, depth = 0;
  bool is_set[SPACE_PARAMETERS_MAX] = {0};
  cleanup_free bool *is_decided = xcalloc(n, sizeof *is_decided);

  for (size_t decided = 0; decided < n; decided++) {
    /* The condition whose parameters that are not set yet have the fewest combinations. */
    size_t next = n;
    double least = 0;
    for (size_t i = 0; i < n; i++) {
      double combinations = 1;
      for (size_t j = 0; j < n_parameters && !is_decided[i]; j++)
        if (!is_set[j] && reads_parameter(points, i, j))
          combinations *= (double)points->axes[j].n;
      if (!is_decided[i] && (next == n || combinations < least)) {
        next = i;
        least = combinations;
      }
    }

    for (size_t i = 0; i < n_parameters; i++)
      if (!is_set[i] && reads_parameter(points, next, i)) {
        is_set[i] = true;
        order[depth++] = i;
      }
    is_decided[next] = true;
    decided_at[next] = depth ? depth - 1 : 0;
  }

  /* Conditions that read no parameter are decided by the first. */
  size_t decisive = n && depth == 0 ? 1 : depth;
  for (size_t i = 0; i < n_parameters; i++)
    if (!is_set[i])
      order[depth++] = i;

  return decisive;
}

/* Sets the parameters of order[from] to order[to - 1] from their mixed-radix number, and adds their
 * part of the ordinal to *ordinal. */
static void number_apply(struct points *points, const size_t *order, size_t from, size_t to,
                         uint64_t number, uint64_t *ordinal) {
  struct value *slots = parameter_slots(points);
  for (size_t depth = to; depth-- > from;) {
    size_t parameter = order[depth];
    uint64_t place = number % points->axes[parameter].n;
    number /= points->axes[parameter].n;
    slots[parameter] = points->space->parameters[parameter].values[place];
    *ordinal += place * points->axes[parameter].stride;
  }
}

struct level {
  size_t parameter;
  size_t n_conditions;
  const size_t *conditions; /* that the parameter decides */
};

/* Replaces the heads by those that set one parameter more and for which no condition of the level
 * is false. False: there would be too many; they stay as they are. */
static bool heads_extend(struct draws *draws, struct points *points, const struct level *level,
                         bool *has_failed) {
  const struct parameter *parameter = &points->space->parameters[level->parameter];
  cleanup_free uint64_t *heads = NULL;
  size_t n = 0, capacity = 0;

  for (size_t i = 0; i < draws->n_heads; i++) {
    uint64_t ignored = 0;
    number_apply(points, draws->order, 0, draws->depth, draws->heads[i], &ignored);
    for (size_t place = 0; place < parameter->n_values; place++) {
      enum decision decision = CONDITION_TRUE;
      parameter_slots(points)[level->parameter] = parameter->values[place];
      for (size_t j = 0; j < level->n_conditions && decision != CONDITION_FALSE; j++) {
        struct error failure;
        decision = condition_decide(&points->conditions, level->conditions[j], &failure);
        *has_failed |= decision == CONDITION_FAILED;
      }
      if (decision == CONDITION_FALSE)
        continue;
      if (n == HEADS_MAX)
        return false;
      GROW(heads, n, capacity);
      heads[n++] = draws->heads[i] * parameter->n_values + place;
    }
  }

  free(draws->heads);
  draws->heads = TAKE(heads);
  draws->n_heads = n;
  draws->depth++;
  return true;
}

/* Enumerates heads as deep as conditions go and work and memory allow. */
static void heads_enumerate(struct draws *draws, struct points *points, uint64_t decisions_max,
                            bool *has_failed) {
  size_t n = points->conditions.n;
  cleanup_free size_t *decided_at = xcalloc(n, sizeof *decided_at);
  cleanup_free size_t *decided = xcalloc(n, sizeof *decided);
  size_t decisive = order_parameters(points, draws->order, decided_at);
  uint64_t work = 0;

  draws->heads = xcalloc(1, sizeof *draws->heads);
  draws->n_heads = 1;
  while (draws->depth < decisive) {
    struct level level = {.parameter = draws->order[draws->depth], .conditions = decided};
    for (size_t i = 0; i < n; i++)
      if (decided_at[i] == draws->depth)
        decided[level.n_conditions++] = i;
    work += draws->n_heads * points->axes[level.parameter].n * (level.n_conditions + 1);
    if (work > decisions_max || !heads_extend(draws, points, &level, has_failed))
      break;
  }

  draws->open = xcalloc(n, sizeof *draws->open);
  for (size_t i = 0; i < n; i++)
    if (decided_at[i] >= draws->depth)
      draws->open[draws->n_open++] = i;
}

/* The ordinal of a candidate, whose values are put into the slots. */
static uint64_t candidate_apply(const struct draws *draws, struct points *points,
                                uint64_t candidate) {
  uint64_t ordinal = 0;
  number_apply(points, draws->order, 0, draws->depth, draws->heads[candidate / draws->n_tails],
               &ordinal);
  number_apply(points, draws->order, draws->depth, points->space->n_parameters,
               candidate % draws->n_tails, &ordinal);
  return ordinal;
}

bool draws_init(struct points *points, uint64_t seed, uint64_t decisions_max, struct draws *draws,
                struct error *error) {
  struct rng rng = rng_seeded(seed);
  for (size_t i = 0; i < ARRAY_LENGTH(draws->keys); i++)
    draws->keys[i] = rng_next(&rng);

  draws->n_tails = 1;
  if (points->space->is_list) {
    draws->n_candidates = points->space->raw_count;
  } else {
    bool has_failed = false;
    heads_enumerate(draws, points, decisions_max, &has_failed);
    for (size_t i = draws->depth; i < points->space->n_parameters; i++)
      draws->n_tails *= points->axes[draws->order[i]].n;
    draws->n_candidates = draws->n_heads * draws->n_tails;

    /* A head that no condition excludes and for which one cannot be evaluated is refused, as an
     * enumeration would. */
    for (size_t i = 0; has_failed && draws->n_open == 0 && i < draws->n_heads; i++) {
      uint64_t ordinal = candidate_apply(draws, points, i * draws->n_tails);
      if (conditions_decide(points->space, &points->conditions, ordinal, error) == CONDITION_FAILED)
        return false;
    }
  }

  draws->half_bits = HALF_BITS_MIN;
  while (draws->half_bits < 32 && draws->n_candidates >> (2 * draws->half_bits) != 0)
    draws->half_bits++;
  return true;
}

void draws_release(struct draws *draws) {
  free(draws->heads);
  free(draws->open);
  *draws = (struct draws){0};
}

/* One pass through the network: a permutation of the numbers of twice half_bits. */
static uint64_t network_pass(const struct draws *draws, uint64_t number) {
  uint64_t mask = (UINT64_C(1) << draws->half_bits) - 1;
  uint64_t left = number >> draws->half_bits, right = number & mask;
  for (size_t i = 0; i < ARRAY_LENGTH(draws->keys); i++) {
    struct rng rng = rng_seeded(draws->keys[i] + right * 0xd1342543de82ef95u);
    uint64_t mixed = left ^ (rng_next(&rng) >> (64 - draws->half_bits));
    left = right;
    right = mixed;
  }
  return left << draws->half_bits | right;
}

enum decision draws_next(struct draws *draws, struct points *points, uint64_t *work,
                         uint64_t *ret_ordinal, struct error *error) {
  while (draws->at < draws->n_candidates) {
    if (*work == 0)
      return UNDECIDED;
    (*work)--;
    uint64_t candidate = draws->at++;
    do
      candidate = network_pass(draws, candidate);
    while (candidate >= draws->n_candidates);

    /* The conditions that heads leave open come first: they exclude most candidates. */
    uint64_t ordinal = candidate;
    enum decision decision = CONDITION_TRUE;
    if (!points->space->is_list)
      ordinal = candidate_apply(draws, points, candidate);
    for (size_t i = 0; i < draws->n_open && decision != CONDITION_FALSE; i++) {
      struct error ignored;
      decision = condition_decide(&points->conditions, draws->open[i], &ignored);
    }
    if (decision != CONDITION_FALSE)
      decision = points_decide(points, ordinal, error);
    if (decision == CONDITION_FALSE)
      continue;
    *ret_ordinal = ordinal;
    return decision;
  }

  return CONDITION_FALSE;
}
