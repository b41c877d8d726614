/* The choice of the finalists. Pure. */
#include "common/finalists.h"

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

size_t finalists_choose(const double *ratios, const uint64_t *configs, size_t n, size_t most, uint64_t *ret) {
  cleanup_free struct candidate *candidates = xcalloc(n, sizeof *candidates);
  for (size_t i = 0; i < n; i++)
    candidates[i] = (struct candidate){ratios[i], configs[i]};
  qsort(candidates, n, sizeof *candidates, compare_candidates);
  size_t chosen = 0;
  while (chosen < n && chosen < most && candidates[chosen].ratio <= candidates[0].ratio * FINALISTS_SPAN) {
    ret[chosen] = candidates[chosen].config;
    chosen++;
  }
  qsort(ret, chosen, sizeof *ret, compare_ordinals);
  return chosen;
}
