/* The order of a round. Memory: race_order.h. Threads: pure functions. */
#include "agent/measure/race_order.h"

/* An odd number: the median over it is one of the samples, and no mean with a slow one. */
size_t race_order_blocks(size_t n) {
  size_t needed = (n + RACE_BLOCK - 1) / RACE_BLOCK;
  return needed < RACE_BASELINES ? RACE_BASELINES : needed | 1;
}

struct race_order race_order_new(size_t n) {
  return (struct race_order){.ends = xcalloc(race_order_blocks(n), sizeof(size_t)),
                             .places = xcalloc(n + race_order_blocks(n), sizeof(size_t))};
}

void race_order_release(struct race_order *order) {
  free(order->ends);
  free(order->places);
  *order = (struct race_order){0};
}

static void shuffle(struct rng *rng, size_t *items, size_t n) {
  for (size_t i = n; i > 1; i--) {
    size_t k = rng_below(rng, i), kept = items[i - 1];
    items[i - 1] = items[k];
    items[k] = kept;
  }
}

void race_order_draw(struct race_order *order, struct rng *rng, const bool *is_in, size_t n) {
  cleanup_free size_t *drawn = xcalloc(n, sizeof *drawn);
  size_t n_in = 0, taken = 0, end = 0;
  for (size_t i = 0; i < n; i++)
    if (is_in[i])
      drawn[n_in++] = i;
  shuffle(rng, drawn, n_in);
  order->n_blocks = race_order_blocks(n_in);
  for (size_t block = 0; block < order->n_blocks; block++) {
    size_t size = n_in * (block + 1) / order->n_blocks - taken, place = rng_below(rng, size + 1);
    for (size_t k = 0; k <= size; k++)
      order->places[end++] = k == place ? ORDER_BASELINE : drawn[taken++];
    order->ends[block] = end;
  }
}

static bool block_has_config(const size_t *places, size_t begin, size_t end, const bool *is_in) {
  for (size_t k = begin; k < end; k++)
    if (places[k] != ORDER_BASELINE && is_in[places[k]])
      return true;
  return false;
}

void race_order_reverse(struct race_order *order, const bool *is_in) {
  size_t n_blocks = order->n_blocks, n_places = n_blocks ? order->ends[n_blocks - 1] : 0, end = 0,
         n_with = 0;
  cleanup_free size_t *places = xmemdup(order->places, n_places * sizeof *places);
  cleanup_free size_t *ends = xmemdup(order->ends, n_blocks * sizeof *ends);
  for (size_t block = 0; block < n_blocks; block++)
    n_with += block_has_config(places, block ? ends[block - 1] : 0, ends[block], is_in);
  size_t n_spare =
      n_with < RACE_BASELINES ? RACE_BASELINES - n_with : 0; /* blocks of the baseline alone */
  order->n_blocks = 0;
  for (size_t block = n_blocks; block-- > 0;) {
    size_t begin = block ? ends[block - 1] : 0;
    if (!block_has_config(places, begin, ends[block], is_in)) {
      if (!n_spare)
        continue;
      n_spare--;
    }
    for (size_t k = ends[block]; k-- > begin;)
      if (places[k] == ORDER_BASELINE || is_in[places[k]])
        order->places[end++] = places[k];
    order->ends[order->n_blocks++] = end;
  }
}
