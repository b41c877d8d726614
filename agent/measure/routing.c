/* Routing, drawn and sorted. */
#include "agent/measure/routing.h"

#include <math.h>

#include "agent/measure/element.h"
#include "common/base/numbers.h"

#define WEIGHT_LARGEST 0x1p32 /* of the first rank */

/* The ranks of experts, by weight. Integers, so that no rounding decides what is drawn. */
struct ranks {
  int64_t n;
  uint64_t *starts;  /* n + 1: the sum of the weights before each rank */
  uint32_t *experts; /* of each rank */
};

static struct ranks ranks_make(const struct routing *routing, struct rng *rng) {
  struct ranks ranks = {routing->experts,
                        xcalloc((size_t)routing->experts + 1, sizeof *ranks.starts),
                        xcalloc((size_t)routing->experts, sizeof *ranks.experts)};
  for (int64_t i = 0; i < ranks.n; i++) {
    double weight = nearbyint(WEIGHT_LARGEST * pow((double)i + 1, -routing->skew));
    ranks.starts[i + 1] = ranks.starts[i] + (weight > 1 ? (uint64_t)weight : 1);
    size_t other = (size_t)rng_below(rng, (uint64_t)i + 1);
    ranks.experts[i] = ranks.experts[other];
    ranks.experts[other] = (uint32_t)i;
  }
  return ranks;
}

/* The rank whose share of the weights contains `at`, a number below their sum. */
static int64_t rank_at(const struct ranks *ranks, uint64_t at) {
  int64_t low = 0, high = ranks->n - 1;
  while (low < high) {
    int64_t middle = (low + high + 1) / 2;
    if (ranks->starts[middle] <= at)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

/* Draws the experts of one token without replacement. */
static void token_route(const struct ranks *ranks, struct rng *rng, int64_t top_k,
                        uint32_t *experts) {
  int64_t chosen[ROUTED_TOP_K_MAX]; /* ranks, rising */
  uint64_t left = ranks->starts[ranks->n];
  for (int64_t j = 0; j < top_k; j++) {
    uint64_t at = rng_below(rng, left);
    for (int64_t i = 0; i < j && at >= ranks->starts[chosen[i]]; i++)
      at += ranks->starts[chosen[i] + 1] - ranks->starts[chosen[i]];
    int64_t rank = rank_at(ranks, at), place = j;
    for (; place > 0 && chosen[place - 1] > rank; place--)
      chosen[place] = chosen[place - 1];
    chosen[place] = rank;
    left -= ranks->starts[rank + 1] - ranks->starts[rank];
    experts[j] = ranks->experts[rank];
  }
}

/* The expert of each row. */
static uint32_t *rows_route(const struct routing *routing, uint64_t seed) {
  struct rng rng = rng_seeded(seed ^ 0x8ebc6af09c88c6e3u); /* of no argument */
  struct ranks ranks = ranks_make(routing, &rng);
  uint32_t *experts = xcalloc((size_t)(routing->tokens * routing->top_k), sizeof *experts);
  for (int64_t token = 0; token < routing->tokens; token++)
    token_route(&ranks, &rng, routing->top_k, experts + token * routing->top_k);
  free(ranks.starts);
  free(ranks.experts);
  return experts;
}

void routing_fill(const struct routing *routing, enum dtype dtype, int64_t elements, uint64_t seed,
                  void *bytes) {
  cleanup_free uint32_t *experts = rows_route(routing, seed);
  int64_t rows = routing->tokens * routing->top_k, block = routing->block, n = 0;

  /* The place of each group of ids, which begins with a block: an expert's, or a row's. */
  int64_t groups = routing->by_row ? rows : routing->experts;
  cleanup_free int64_t *places = xcalloc((size_t)groups + 1, sizeof *places);
  for (int64_t row = 0; row < rows; row++)
    places[routing->by_row ? row : experts[row]]++;
  for (int64_t group = 0; group < groups; group++) {
    int64_t padded = (places[group] + block - 1) / block * block;
    places[group] = n;
    n += padded;
  }

  double rest = routing->what == ROUTED_TOKENS    ? (double)rows
                : routing->what == ROUTED_EXPERTS ? -1
                                                  : 0;
  for (int64_t i = 0; i < elements; i++)
    element_set(dtype, bytes, i, rest);
  if (routing->what == ROUTED_COUNT)
    element_set(dtype, bytes, 0, (double)n);
  for (int64_t row = 0; row < rows && routing->what != ROUTED_COUNT; row++) {
    int64_t place = places[routing->by_row ? row : experts[row]]++;
    if (routing->what == ROUTED_TOKENS)
      element_set(dtype, bytes, place, (double)row);
    else
      element_set(dtype, bytes, place / block, (double)experts[row]);
  }
}
