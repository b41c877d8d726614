/* What the strategies share: what was asked and told, and the table of strategies. Private to
 * search*.c.
 *
 * Memory: a search owns all but the space and its facts. Threads: one to a search. */
#ifndef WAVETUNE_COMMON_SEARCH_SEARCH_STRATEGY_H
#define WAVETUNE_COMMON_SEARCH_SEARCH_STRATEGY_H

#include <math.h>

#include "common/search/search.h"
#include "common/search/search_points.h"

struct asked {
  uint64_t config;
  double ratio; /* INFINITY until it is told, and when it was not measured correctly */
};

struct batch {
  size_t n;
  struct asked asked[SEARCH_BATCH_MAX];
};

/* A strategy fills one batch after the other with search_add and search_add_random. The first may
 * hold likely configs already. One that it leaves empty is the last. */
struct strategy {
  size_t state_size; /* of search->state; zeroed */
  void (*fill)(struct search *search);
  void (*release)(void *state); /* what the state points at; may be NULL */
};
extern const struct strategy search_random, search_descent, search_evolution;

struct search {
  const struct strategy *strategy;
  void *state;
  uint64_t trials, n_asked, n_slots;
  struct asked *slots; /* all that was asked before this batch and in it, by hash; free ones have
                          config FREE_SLOT */
  struct points points;
  struct draws draws;
  uint64_t work_limit;
  uint64_t work; /* candidates that may still be looked at for this batch */
  struct rng rng;
  size_t n_likely; /* that wait for the first batch */
  uint64_t likely[SEARCH_BATCH_MAX];
  bool has_first; /* first: drawn already, to know that there is one */
  uint64_t first;
  struct batch told, batch; /* the one before, and the one that is filled or waits to be told */
};

/* Whether the batch takes another config. */
bool search_has_room(const struct search *search);
/* Adds a config that holds, unless it was asked before or there is no room. */
bool search_add(struct search *search, uint64_t config);
/* Adds a random one that was not asked before; false when there is no room or nothing is left. */
bool search_add_random(struct search *search);
/* The ratio of a config that was asked before. */
must_check bool search_ratio(const struct search *search, uint64_t config, double *ret_ratio);

#endif
