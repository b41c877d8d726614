/* Configs that are likely to win. Pure. */
#include "server/job/likely.h"

#include <math.h>

double key_distance(const json_t *a, const json_t *b) {
  double distance = 0;
  const char *name;
  json_t *value;
  json_object_foreach ((json_t *)a, name, value) {
    const json_t *other = json_object_get(b, name);
    double x = json_number_value(value), y = json_number_value(other);
    if (x > 0 && y > 0)
      distance += fabs(log2(x / y));
    else if (!json_equal(value, other))
      distance += KEY_DIFFERS;
  }
  return distance;
}

struct neighbour {
  const struct past_winner *winner;
  double distance;
  size_t age; /* rank among the winners, newest first */
};

static int by_distance(const void *a, const void *b) {
  const struct neighbour *x = a, *y = b;
  if (x->distance != y->distance)
    return x->distance < y->distance ? -1 : 1;
  return (x->age > y->age) - (x->age < y->age);
}

size_t likely_choose(const struct space *space, const json_t *key, const struct digest *key_digest,
                     const struct digest *environment_digest, const struct past_winner *winners, size_t n,
                     uint64_t ret[LIKELY_MAX]) {
  cleanup_free struct neighbour *neighbours = xcalloc(n + 1, sizeof *neighbours);
  size_t n_neighbours = 0, n_likely = 0;
  for (size_t i = 0; i < n; i++) {
    struct neighbour neighbour = {&winners[i], INFINITY, i};
    if (digest_equal(&winners[i].environment_digest, environment_digest))
      neighbour.distance = key_distance(key, winners[i].key);
    else if (!digest_equal(&winners[i].key_digest, key_digest))
      continue;
    neighbours[n_neighbours++] = neighbour;
  }
  qsort(neighbours, n_neighbours, sizeof *neighbours, by_distance);
  for (size_t i = 0; i < n_neighbours && n_likely < LIKELY_MAX; i++) {
    struct error no_point;
    uint64_t ordinal;
    bool is_new = space_config_from_json(space, neighbours[i].winner->config_values, &ordinal, &no_point);
    for (size_t k = 0; is_new && k < n_likely; k++)
      is_new = ret[k] != ordinal;
    if (is_new)
      ret[n_likely++] = ordinal;
  }
  return n_likely;
}
