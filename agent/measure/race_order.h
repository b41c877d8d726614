/* The order of a round: blocks of at most RACE_BLOCK configs, each with one sample of the baseline.
 *
 * Round 2k is drawn: the configs in random order, cut into blocks of like size, and the baseline at
 * a random place of each. Round 2k + 1 is round 2k in reverse, so that each config comes as often
 * before its baseline as behind it, and what changes steadily meanwhile falls on all alike; who has
 * left since is left out, and a block with nobody else. A round has at least RACE_BASELINES blocks,
 * if need be of the baseline alone.
 *
 * Memory: an order owns its arrays. Threads: pure functions. */
#ifndef WAVETUNE_AGENT_MEASURE_RACE_ORDER_H
#define WAVETUNE_AGENT_MEASURE_RACE_ORDER_H

#include "agent/measure/race.h"
#include "common/base/rng.h"

#define ORDER_BASELINE SIZE_MAX

struct race_order {
  size_t n_blocks;
  size_t *ends;   /* of each block among the places; the next begins there */
  size_t *places; /* indices of configs, or ORDER_BASELINE */
};

/* How many blocks a drawn round of n configs has; a later one never has more. */
size_t race_order_blocks(size_t n);

/* Room for n configs; n >= 1. */
struct race_order race_order_new(size_t n);
void race_order_release(struct race_order *order);

/* Draws a round of those of the n configs that are in, at least one. */
void race_order_draw(struct race_order *order, struct rng *rng, const bool *is_in, size_t n);
void race_order_reverse(struct race_order *order, const bool *is_in);

#endif
