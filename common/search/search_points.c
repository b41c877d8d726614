/* Axes of a space and the steps along them. Memory and threads: as the header says. */
#include "common/search/search_points.h"

static int values_sort_compare(const void *a, const void *b) {
  return value_compare(*(const struct value *)a, *(const struct value *)b);
}

/* The distinct values of one column of a list, sorted: a list says nothing of their order. */
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
  for (size_t i = 0; i < space->n_parameters; i++) {
    if (space->is_list)
      values[i] = points->axes[i].values[places[i]];
    else
      ordinal += places[i] * points->axes[i].stride;
  }
  if ((space->is_list && !space_ordinal(space, values, &ordinal)) ||
      points_decide(points, ordinal, &ignored) != CONDITION_TRUE)
    return false;
  *ret_ordinal = ordinal;
  return true;
}

bool points_moved(struct points *points, uint64_t ordinal, size_t parameter, uint32_t place,
                  uint64_t *ret_ordinal) {
  uint32_t places[SPACE_PARAMETERS_MAX];
  points_places(points, ordinal, places);
  places[parameter] = place;
  return points_find(points, places, ret_ordinal);
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
