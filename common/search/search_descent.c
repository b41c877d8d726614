/* Coordinate descent, as Inductor's autotuner does it (PyTorch,
 * torch/_inductor/runtime/coordinate_descent_tuner.py): one parameter after the other is moved by
 * one value to either side, the move is kept when it gains more than 0.1 %, and the descent ends
 * when no parameter gains any more. Other than there, the values are those of the space instead of
 * doubles and halves, parameters of few values are tried whole (they have no order: a layout, a
 * flag), values that conditions exclude are stepped over, and what trials are left go to further
 * descents from random points. Memory and threads: as search.h says. */
#include "common/search/search_strategy.h"

#define GAIN_MIN 0.001
#define FEW_VALUES 3
#define NEIGHBOURS_MAX FEW_VALUES

struct descent {
  bool is_under_way; /* else it begins at the best of what was told last */
  uint64_t config;
  double ratio;
  size_t parameter; /* whose neighbours were asked last */
  size_t n_in_vain; /* parameters in a row that gained nothing */
};

static size_t neighbours_of(struct points *points, uint64_t config, size_t parameter,
                            uint64_t neighbours[NEIGHBOURS_MAX]) {
  size_t n_values = points->axes[parameter].n, n = 0;
  if (n_values > FEW_VALUES) {
    n += points_step(points, config, parameter, 1, &neighbours[n]);
    n += points_step(points, config, parameter, -1, &neighbours[n]);
    return n;
  }
  for (uint32_t place = 0; place < n_values; place++) {
    uint64_t neighbour;
    if (points_moved(points, config, parameter, place, &neighbour) && neighbour != config)
      neighbours[n++] = neighbour;
  }
  return n;
}

static bool descent_begin(struct descent *descent, const struct batch *told) {
  *descent = (struct descent){.ratio = INFINITY};
  for (size_t i = 0; i < told->n; i++) {
    if (told->asked[i].ratio < descent->ratio) {
      descent->config = told->asked[i].config;
      descent->ratio = told->asked[i].ratio;
      descent->is_under_way = true;
    }
  }
  return descent->is_under_way;
}

/* Moves to the best neighbour, all of which are known, when it is better. */
static void descent_move(struct descent *descent, const struct search *search,
                         const uint64_t *neighbours, size_t n) {
  double least = descent->ratio * (1 - GAIN_MIN);
  descent->n_in_vain++;
  for (size_t i = 0; i < n; i++) {
    double ratio;
    if (search_ratio(search, neighbours[i], &ratio) && ratio < least) {
      least = descent->ratio = ratio;
      descent->config = neighbours[i];
      descent->n_in_vain = 0;
    }
  }
}

static void descent_fill(struct search *search) {
  struct descent *descent = search->state;
  const struct space *space = search->points.space;
  if (!descent->is_under_way && !descent_begin(descent, &search->told)) {
    struct error ignored;
    bool is_first = search->told.n == 0;
    if (is_first && space->has_default &&
        points_decide(&search->points, space->default_ordinal, &ignored) == CONDITION_TRUE)
      search_add(search, space->default_ordinal);
    if (search->batch.n == 0)
      search_add_random(search);
    return;
  }
  while (descent->n_in_vain < space->n_parameters) {
    uint64_t neighbours[NEIGHBOURS_MAX];
    size_t n = neighbours_of(&search->points, descent->config, descent->parameter, neighbours);
    for (size_t i = 0; i < n; i++)
      search_add(search, neighbours[i]);
    if (search->batch.n > 0)
      return;
    descent_move(descent, search, neighbours, n);
    descent->parameter = (descent->parameter + 1) % space->n_parameters;
  }
  descent->is_under_way = false;
  search_add_random(search);
}

const struct strategy search_descent = {.state_size = sizeof(struct descent), .fill = descent_fill};
