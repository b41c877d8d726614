/* The choice of the finalists. Pure. */
#include "common/verdict/finalists.h"

#include <math.h>

struct candidate {
  double ratio;
  uint64_t config;
};

static int compare_ordinals(const void *a, const void *b) {
  const uint64_t *left = a, *right = b;
  return *left < *right ? -1 : *left > *right;
}

static int compare_candidates(const void *a, const void *b) {
  const struct candidate *left = a, *right = b;
  if (left->ratio != right->ratio)
    return left->ratio < right->ratio ? -1 : 1;
  return compare_ordinals(&left->config, &right->config);
}

static bool is_among(const uint64_t *configs, size_t n, uint64_t config) {
  for (size_t i = 0; i < n; i++)
    if (configs[i] == config)
      return true;
  return false;
}

/* The least ratio of those that stayed, else of all; n >= 1. */
static double least_ratio(const double *ratios, const bool *left_early, size_t n) {
  double least = INFINITY, least_of_all = INFINITY;
  for (size_t i = 0; i < n; i++) {
    least_of_all = fmin(least_of_all, ratios[i]);
    if (!left_early || !left_early[i])
      least = fmin(least, ratios[i]);
  }
  return isfinite(least) ? least : least_of_all;
}

size_t finalists_choose(const double *ratios, const bool *left_early, const uint64_t *configs, size_t n,
                        const uint64_t *always, size_t n_always, size_t most, uint64_t *ret) {
  cleanup_free struct candidate *candidates = xcalloc(n, sizeof *candidates);
  double least = least_ratio(ratios, left_early, n);
  for (size_t i = 0; i < n; i++) {
    bool has_left = left_early && left_early[i];
    candidates[i] = (struct candidate){has_left ? fmax(ratios[i], FINALISTS_LEFT * least) : ratios[i], configs[i]};
  }
  qsort(candidates, n, sizeof *candidates, compare_candidates);
  size_t chosen = 0;
  if (n > 0 && most > 0)
    ret[chosen++] = candidates[0].config;
  for (size_t i = 0; i < n_always && chosen < most; i++)
    if (is_among(configs, n, always[i]) && !is_among(ret, chosen, always[i]))
      ret[chosen++] = always[i];
  for (size_t i = 1; i < n && chosen < most && candidates[i].ratio <= candidates[0].ratio * FINALISTS_SPAN; i++)
    if (!is_among(always, n_always, candidates[i].config))
      ret[chosen++] = candidates[i].config;
  qsort(ret, chosen, sizeof *ret, compare_ordinals);
  return chosen;
}
