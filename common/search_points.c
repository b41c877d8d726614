/* Axes of a space and the steps along them. Memory and threads: as the header says. */
#include "common/search_points.h"

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
  return (struct axis){.n = n, .values = values};
}

bool points_init(const struct space *space, const struct space_facts *facts, struct points *points,
                 struct error *error) {
  uint64_t stride = 1;
  points->space = space;
  for (size_t i = space->n_parameters; i-- > 0;) {
    if (space->is_list) {
      points->axes[i] = axis_of_list(space, i);
    } else {
      points->axes[i] = (struct axis){.n = space->parameters[i].n_values, .stride = stride};
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

size_t points_place(const struct points *points, uint64_t ordinal, size_t parameter) {
  const struct axis *axis = &points->axes[parameter];
  if (!points->space->is_list)
    return (size_t)(ordinal / axis->stride % axis->n);
  const struct value *value = &points->space->list[ordinal * points->space->n_parameters + parameter];
  const struct value *found = bsearch(value, axis->values, axis->n, sizeof *value, values_sort_compare);
  ALWAYS(found != NULL);
  return (size_t)(found - axis->values);
}

bool points_moved(struct points *points, uint64_t ordinal, size_t parameter, size_t place, uint64_t *ret_ordinal) {
  const struct axis *axis = &points->axes[parameter];
  uint64_t moved;
  if (points->space->is_list) {
    struct value values[SPACE_PARAMETERS_MAX];
    ALWAYS(space_config(points->space, ordinal, values));
    values[parameter] = axis->values[place];
    if (!space_ordinal(points->space, values, &moved))
      return false;
  } else {
    moved = ordinal - points_place(points, ordinal, parameter) * axis->stride + place * axis->stride;
  }
  struct error ignored;
  if (points_decide(points, moved, &ignored) != CONDITION_TRUE)
    return false;
  *ret_ordinal = moved;
  return true;
}

bool points_step(struct points *points, uint64_t ordinal, size_t parameter, int side, uint64_t *ret_ordinal) {
  size_t place = points_place(points, ordinal, parameter), end = side < 0 ? 0 : points->axes[parameter].n - 1;
  for (size_t reach = 0; place != end && reach < STEP_REACH; reach++) {
    place = side < 0 ? place - 1 : place + 1;
    if (points_moved(points, ordinal, parameter, place, ret_ordinal))
      return true;
  }
  return false;
}
