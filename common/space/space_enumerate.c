/* Which points of a space are valid: depth-first over the parameters, cutting below every condition
 * that is false.
 *
 * Memory: an iterator borrows its space and its facts, which must outlive it. Threads: one for each
 * iterator. */
#include "common/base/error.h"
#include "common/space/space.h"

#define NONE_FAILED SIZE_MAX
#define CONFIG_SHOWN_MAX 159 /* bytes of a config in a message */

/* The decisions of a condition that reads few parameters are kept: it is evaluated again and again
 * with the same values. */
#define MEMO_READS_MAX 8
#define MEMO_ENTRIES_MAX 65536
#define MEMO_TOTAL_MAX (4u << 20)

/* Decisions of one condition by the mixed-radix number of the parameters that it reads. */
struct memo {
  uint8_t *decisions; /* NULL: the condition reads too much to keep them */
  size_t n_reads;
  struct {
    uint32_t parameter;
    uint32_t stride;
  } reads[MEMO_READS_MAX];
};

/* One parameter of the depth-first walk. */
struct level {
  const struct value *values;
  size_t n_values;
  size_t at;       /* index of the value to be tried next */
  uint64_t prefix; /* mixed-radix number of the values chosen above */
  size_t failed;   /* the first condition that could not be evaluated at this level or above,
                      NONE_FAILED */
  size_t n_conditions;
  size_t *conditions; /* indices of those that this parameter decides, rising */
};

struct space_iterator {
  const struct space *space;
  struct conditions conditions;
  struct level levels[SPACE_PARAMETERS_MAX];
  size_t *decided;    /* the levels' lists of conditions, one after the other */
  struct memo *memos; /* one for each condition */
  size_t n_levels;    /* parameters visited; the caller multiplies by the later ones */
  size_t depth;       /* level whose next value is tried */
  uint64_t list_at;
  uint64_t steps, step_limit, found;
  bool ended;
};

void conditions_release(struct conditions *conditions) {
  for (size_t i = 0; i < conditions->n; i++)
    expr_free(conditions->exprs[i]);
  free(conditions->exprs);
}

bool conditions_bind(const struct space *space, const struct space_facts *facts,
                     struct conditions *conditions, struct error *error) {
  const char *names[SLOTS_MAX];
  const struct key *key = facts ? facts->key : NULL;
  const char *const fact_values[SPACE_FACTS] = {facts && facts->gpu_name ? facts->gpu_name : "",
                                                facts && facts->arch ? facts->arch : ""};
  size_t n = 0;
  ALWAYS(!key || key->n <= KEY_MEMBERS_MAX);
  for (; key && n < key->n; n++) {
    conditions->slots[n] = key->values[n];
    names[n] = key->names[n];
  }

  for (size_t i = 0; i < SPACE_FACTS; i++) {
    conditions->slots[n] = value_string(fact_values[i]);
    names[n++] = space_fact_names[i];
  }

  conditions->n_fixed = n;
  for (size_t i = 0; i < space->n_parameters; i++)
    names[n++] = space->parameters[i].name;

  for (size_t i = 0; key && i < key->n; i++)
    for (size_t j = key->n; j < n; j++)
      if (string_equal(names[i], names[j]))
        return error_set(
            error,
            "conditions cannot distinguish the key's member \"%s\" from the %s of that name; "
            "rename one of them",
            NAME_CUT(names[i]), j < conditions->n_fixed ? "GPU's fact" : "parameter");

  conditions->exprs = xcalloc(space->n_conditions, sizeof(struct expr *));
  for (size_t i = 0; i < space->n_conditions; i++) {
    if (!expr_parse(space->conditions[i], &conditions->exprs[i], error))
      return condition_error(error, i);
    conditions->n++;
    if (!expr_bind(conditions->exprs[i], names, n, error))
      return condition_error(error, i);
  }

  return true;
}

enum decision condition_decide(const struct conditions *conditions, size_t index,
                               struct error *error) {
  struct value value;
  if (!expr_eval(conditions->exprs[index], conditions->slots, &value, error))
    return CONDITION_FAILED;
  return value_is_true(value) ? CONDITION_TRUE : CONDITION_FALSE;
}

/* "condition N, column C: what, for the config BLOCK=64 …" */
static bool point_error(const struct space *space, uint64_t ordinal, size_t index,
                        struct error *error) {
  cleanup_free char *config = space_config_format(space, ordinal);
  size_t length = strlen(config), shown = utf8_cut(config, length, CONFIG_SHOWN_MAX);
  condition_error(error, index);
  return error_append(error, ", for the config %.*s%s", (int)shown, config,
                      shown < length ? "..." : "");
}

/* Keeps the decisions of each condition that reads few parameters with few values. */
static void memos_init(struct space_iterator *iterator) {
  const struct conditions *conditions = &iterator->conditions;
  size_t total = 0;

  iterator->memos = xcalloc(conditions->n, sizeof *iterator->memos);
  for (size_t i = 0; i < conditions->n; i++) {
    struct memo memo = {0};
    size_t entries = 1;
    for (size_t parameter = iterator->n_levels; parameter-- > 0 && entries <= MEMO_ENTRIES_MAX;) {
      if (!expr_reads(conditions->exprs[i], conditions->n_fixed + parameter))
        continue;
      if (memo.n_reads == MEMO_READS_MAX) {
        entries = SIZE_MAX;
        break;
      }
      memo.reads[memo.n_reads].parameter = (uint32_t)parameter;
      memo.reads[memo.n_reads++].stride = (uint32_t)entries;
      entries *= iterator->levels[parameter].n_values; /* at most 65536 * 65536 */
    }

    if (entries > MEMO_ENTRIES_MAX || total + entries > MEMO_TOTAL_MAX)
      continue;
    total += entries;
    memo.decisions = xcalloc(entries, 1);
    iterator->memos[i] = memo;
  }
}

bool space_iterator_new(const struct space *space, const struct space_facts *facts,
                        uint64_t step_limit, struct space_iterator **ret_iterator,
                        struct error *error) {
  cleanup_space_iterator struct space_iterator *iterator = xcalloc(1, sizeof *iterator);
  iterator->space = space;
  iterator->step_limit = step_limit;
  if (!conditions_bind(space, facts, &iterator->conditions, error))
    return false;

  /* Each level decides the conditions that its parameter is the last one for; the first level
   * decides those that read no parameter too. */
  const struct conditions *conditions = &iterator->conditions;
  size_t n_decided = 0;
  iterator->n_levels = space->is_list ? 0 : space->n_parameters;
  iterator->decided = xcalloc(conditions->n, sizeof *iterator->decided);

  for (size_t depth = 0; depth < iterator->n_levels; depth++) {
    struct level *level = &iterator->levels[depth];
    *level = (struct level){.values = space->parameters[depth].values,
                            .n_values = space->parameters[depth].n_values,
                            .failed = NONE_FAILED,
                            .conditions = iterator->decided + n_decided};
    for (size_t i = 0; i < conditions->n; i++) {
      int last = expr_last_slot(conditions->exprs[i]) - (int)conditions->n_fixed;
      if ((last < 0 ? 0 : (size_t)last) == depth)
        level->conditions[level->n_conditions++] = i;
    }
    n_decided += level->n_conditions;
  }

  memos_init(iterator);
  *ret_iterator = TAKE(iterator);
  return true;
}

void space_iterator_free(struct space_iterator *iterator) {
  if (!iterator)
    return;
  for (size_t i = 0; iterator->memos && i < iterator->conditions.n; i++)
    free(iterator->memos[i].decisions);
  conditions_release(&iterator->conditions);
  free(iterator->memos);
  free(iterator->decided);
  free(iterator);
}

/* Whether none of the conditions that this level decides is false. *failed: the first condition
 * that cannot be evaluated. */
static inline bool level_is_valid(struct space_iterator *iterator, const struct level *level,
                                  size_t *failed) {
  for (size_t i = 0; i < level->n_conditions; i++) {
    size_t index = level->conditions[i], entry = 0;
    const struct memo *memo = &iterator->memos[index];
    uint8_t decision = UNDECIDED;
    for (size_t j = 0; memo->decisions && j < memo->n_reads; j++)
      entry += (iterator->levels[memo->reads[j].parameter].at - 1) * memo->reads[j].stride;
    if (memo->decisions)
      decision = memo->decisions[entry];

    if (decision == UNDECIDED) {
      struct error ignored;
      decision = (uint8_t)condition_decide(&iterator->conditions, index, &ignored);
      if (memo->decisions)
        memo->decisions[entry] = decision;
    }
    if (decision == CONDITION_FALSE)
      return false;
    if (decision == CONDITION_FAILED && index < *failed)
      *failed = index;
  }

  return true;
}

enum space_step space_iterator_next(struct space_iterator *iterator, uint64_t *ret_ordinal,
                                    struct error *error) {
  if (iterator->ended)
    return SPACE_END;
  if (iterator->space->is_list) {
    iterator->ended = iterator->list_at == iterator->space->raw_count;
    if (iterator->ended)
      return SPACE_END;
    *ret_ordinal = iterator->list_at++;
    return SPACE_POINT;
  }

  struct value *parameter_slots = iterator->conditions.slots + iterator->conditions.n_fixed;
  for (;;) {
    struct level *level = &iterator->levels[iterator->depth];
    if (level->at == level->n_values) {
      if (iterator->depth == 0) {
        iterator->ended = true;
        return SPACE_END;
      }
      iterator->depth--;
      continue;
    }
    if (iterator->steps++ == iterator->step_limit) {
      iterator->ended = true;
      error_at(
          error, "/conditions",
          "the space was not enumerated: %llu steps reached the limit with %llu configs found; "
          "put parameters whose conditions exclude most first, or take values out",
          (unsigned long long)iterator->step_limit, (unsigned long long)iterator->found);
      return SPACE_ERROR;
    }

    uint64_t ordinal = level->prefix * level->n_values + level->at;
    parameter_slots[iterator->depth] = level->values[level->at++];
    size_t failed = level->failed;
    if (!level_is_valid(iterator, level, &failed))
      continue;
    if (iterator->depth + 1 == iterator->n_levels) {
      if (failed != NONE_FAILED) {
        iterator->ended = true;
        ALWAYS(condition_decide(&iterator->conditions, failed, error) == CONDITION_FAILED);
        for (size_t i = iterator->n_levels; i < iterator->space->n_parameters; i++)
          ordinal *= iterator->space->parameters[i].n_values;
        point_error(iterator->space, ordinal, failed, error);
        return SPACE_ERROR;
      }
      iterator->found++;
      *ret_ordinal = ordinal;
      return SPACE_POINT;
    }

    struct level *below = &iterator->levels[++iterator->depth];
    below->at = 0;
    below->prefix = ordinal;
    below->failed = failed;
  }
}

bool space_count(const struct space *space, const struct space_facts *facts, uint64_t step_limit,
                 uint64_t count_limit, uint64_t *ret_count, struct error *error) {
  cleanup_space_iterator struct space_iterator *iterator = NULL;
  if (!space_iterator_new(space, facts, step_limit, &iterator, error))
    return false;

  uint64_t count = 0, below = 1, ordinal;
  while (iterator->n_levels > 1 && iterator->levels[iterator->n_levels - 1].n_conditions == 0)
    below *= space->parameters[--iterator->n_levels].n_values;

  for (;;) {
    enum space_step step = space_iterator_next(iterator, &ordinal, error);
    if (step == SPACE_END)
      *ret_count = count;
    if (step != SPACE_POINT)
      return step == SPACE_END;

    count += below;
    if (count > count_limit)
      return error_at(
          error, space->is_list ? "/configs" : "/parameters",
          "the space has more than %llu valid configs; add conditions or take values out",
          (unsigned long long)count_limit);
  }
}

enum decision conditions_decide(const struct space *space, const struct conditions *conditions,
                                uint64_t ordinal, struct error *error) {
  struct error failure;
  size_t failed = NONE_FAILED;
  for (size_t i = 0; i < conditions->n; i++) {
    enum decision decision =
        condition_decide(conditions, i, failed == NONE_FAILED ? error : &failure);
    if (decision == CONDITION_FALSE)
      return CONDITION_FALSE;
    if (decision == CONDITION_FAILED && failed == NONE_FAILED)
      failed = i;
  }

  if (failed == NONE_FAILED)
    return CONDITION_TRUE;

  point_error(space, ordinal, failed, error);
  return CONDITION_FAILED;
}

bool space_is_valid(const struct space *space, const struct space_facts *facts, uint64_t ordinal,
                    bool *ret_is_valid, struct error *error) {
  cleanup_conditions struct conditions conditions = {0};
  if (!conditions_bind(space, facts, &conditions, error))
    return false;

  enum decision decision = CONDITION_FALSE;
  if (space_config(space, ordinal, conditions.slots + conditions.n_fixed))
    decision = conditions_decide(space, &conditions, ordinal, error);
  if (decision == CONDITION_FAILED)
    return false;

  *ret_is_valid = decision == CONDITION_TRUE;
  return true;
}
