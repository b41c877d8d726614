/* What the files of a search share: the points of a space as strategies see them, random points,
 * and what was requested and reported. Private to search*.c.
 *
 * Every parameter has an axis: its values in the order given or, of an explicit list, those that
 * occur, sorted. Memory: a search owns all but the space and its facts. Threads: one for each
 * search. */
#ifndef WAVETUNE_COMMON_SEARCH_SEARCH_CODE_H
#define WAVETUNE_COMMON_SEARCH_SEARCH_CODE_H

#include <math.h>

#include "common/base/numbers.h"
#include "common/search/search.h"

/* How many values a step tries where conditions exclude the nearer ones. */
#define STEP_REACH 64

struct axis {
  uint32_t n;
  uint64_t stride;      /* between the ordinals of neighbours; not of a list */
  struct value *values; /* of a list: owned */
};

struct points {
  const struct space *space;
  struct conditions conditions;
  struct axis axes[SPACE_PARAMETERS_MAX];
};

must_check bool points_init(const struct space *space, const struct space_facts *facts,
                            struct points *points, struct error *error);
void points_release(struct points *points);

/* Whether a point is valid; CONDITION_FAILED with *error when a condition cannot be evaluated
 * there. */
must_check enum decision points_decide(struct points *points, uint64_t ordinal,
                                       struct error *error);

/* A point as places on the axes, in the order of the parameters, and back: false when there is no
 * such point or it is not valid. */
void points_places(const struct points *points, uint64_t ordinal,
                   uint32_t places[SPACE_PARAMETERS_MAX]);
must_check bool points_find(struct points *points, const uint32_t places[SPACE_PARAMETERS_MAX],
                            uint64_t *ret_ordinal);

/* The nearest valid point on one side (-1 or 1) along one axis. */
must_check bool points_step(struct points *points, uint64_t ordinal, size_t parameter, int side,
                            uint64_t *ret_ordinal);

/* Random valid points, each equally probable and none twice, until all were drawn.
 *
 * The parameters that conditions read come first, those of the cheapest condition before the
 * others, and as many of them as fit into a bound of work are enumerated: `heads` are the
 * combinations that no condition excludes. A candidate is a head with any values of the other
 * parameters. Candidates are visited in the order of a keyed permutation (a Feistel network walked
 * until it is back in range: Black, Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002),
 * so that what was drawn need not be stored. Those for which a condition is false are skipped. */
struct draws {
  size_t order[SPACE_PARAMETERS_MAX]; /* parameters, those of the heads first */
  size_t depth;                       /* how many of them the heads set */
  size_t n_heads;
  uint64_t *heads; /* mixed-radix numbers, in `order` */
  uint64_t n_tails;
  size_t n_open; /* conditions that the heads do not decide */
  size_t *open;
  uint64_t at, n_candidates;
  unsigned half_bits;
  uint64_t keys[6];
};

/* Enumerates heads with at most decisions_max decisions of conditions. False when all conditions
 * were decided and one cannot be evaluated for a point for which no other is false. */
must_check bool draws_init(struct points *points, uint64_t seed, uint64_t decisions_max,
                           struct draws *draws, struct error *error);
void draws_release(struct draws *draws);

/* CONDITION_TRUE: *ret_ordinal is drawn. CONDITION_FAILED: *error names the condition that cannot
 * be evaluated and the point; the next call continues after that point. CONDITION_FALSE: all were
 * drawn. UNDECIDED: *work, which counts down the candidates, is used up. */
must_check enum decision draws_next(struct draws *draws, struct points *points, uint64_t *work,
                                    uint64_t *ret_ordinal, struct error *error);

struct asked {
  uint64_t config;
  double ratio; /* INFINITY until it is reported, and when it was not measured correctly */
};

struct batch {
  size_t n;
  struct asked asked[SEARCH_BATCH_MAX];
};

struct descent {
  bool is_under_way; /* else it begins at the best config of the last batch */
  uint64_t config;
  double ratio;
  size_t parameter;      /* the parameter whose neighbours were requested last */
  size_t n_without_gain; /* parameters in a row */
};

#define POPULATION_MAX 64
struct evolution {
  size_t n_population, n; /* its size, and how many members there are so far */
  size_t oldest;
  struct asked members[POPULATION_MAX];
};

struct search {
  /* Fills one batch after the other with search_add and search_add_random. The first may have
   * warm-start configs already. An empty batch is the last. */
  void (*fill)(struct search *search);
  struct descent descent;
  struct evolution evolution;
  uint64_t trials, n_asked, n_slots;
  struct asked *slots; /* hash table of all that was requested before this batch and in it; free
                          slots have config FREE_SLOT */
  struct points points;
  struct draws draws;
  uint64_t work_limit;
  uint64_t work; /* candidates that may still be tried for this batch */
  struct rng rng;
  size_t n_likely; /* for the first batch */
  uint64_t likely[SEARCH_BATCH_MAX];
  bool has_first; /* `first` was drawn by search_new, to check that a valid point exists */
  uint64_t first;
  struct batch told, batch; /* the one before, and the one that is filled or measured */
};

void descent_fill(struct search *search);
void evolution_fill(struct search *search);

/* Adds a valid config, unless it was requested before or there is no room. */
bool search_add(struct search *search, uint64_t config);
/* Adds a random one that was not requested before; false when there is no room or none is left. */
bool search_add_random(struct search *search);
/* The ratio of a config that was requested before. */
must_check bool search_ratio(const struct search *search, uint64_t config, double *ret_ratio);

#endif
