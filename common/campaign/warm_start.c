/* Warm-start configs, and searches that are replayed from their measurements. Pure. */
#include "common/campaign/warm_start.h"

#include <math.h>

/* A number that has a logarithm. */
static bool number_of(struct value value, double *ret) {
  if (value.type != VALUE_INT && value.type != VALUE_FLOAT)
    return false;
  *ret = value.type == VALUE_INT ? (double)value.integer : value.real;
  return *ret > 0;
}

static const struct value *member_of(const struct key *key, const char *name) {
  for (size_t i = 0; i < key->n; i++)
    if (string_equal(key->names[i], name))
      return &key->values[i];
  return NULL;
}

double key_distance(const struct key *a, const struct key *b) {
  double distance = 0;
  for (size_t i = 0; i < a->n; i++) {
    const struct value *other = member_of(b, a->names[i]);
    double left, right;
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

static bool is_among(const uint64_t *configs, size_t n, uint64_t config) {
  for (size_t i = 0; i < n; i++)
    if (configs[i] == config)
      return true;
  return false;
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

static int by_config(const void *a, const void *b) {
  const struct search_told *left = a, *right = b;
  return (left->config > right->config) - (left->config < right->config);
}

bool search_round(const struct space *space, const struct space_facts *facts,
                  const struct search_options *options, const struct search_told *told,
                  size_t n_told, int64_t round, uint64_t ret_configs[SEARCH_BATCH_MAX],
                  size_t *ret_n, struct error *error) {
  cleanup_search struct search *search = NULL;
  if (!search_new(space, facts, options, &search, error))
    return false;

  size_t n = search_ask(search, ret_configs);
  for (; round > 0 && n > 0; round--) {
    for (size_t i = 0; i < n; i++) {
      struct search_told wanted = {ret_configs[i], 0};
      const struct search_told *found =
          n_told ? bsearch(&wanted, told, n_told, sizeof *told, by_config) : NULL;
      search_tell(search, ret_configs[i], found ? found->ratio : INFINITY);
    }
    n = search_ask(search, ret_configs);
  }
  *ret_n = n;
  return true;
}
