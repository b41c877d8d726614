/* The points of a space as strategies see them: steps from one to another, and random ones that
 * hold. Private to search*.c.
 *
 * Every parameter has an axis: its values in the order given or, of an explicit list, those that
 * occur, sorted. Memory: points and draws own what they point at, borrow the space and its facts.
 * Threads: one to a struct. */
#ifndef WAVETUNE_COMMON_SEARCH_SEARCH_POINTS_H
#define WAVETUNE_COMMON_SEARCH_SEARCH_POINTS_H

#include "common/base/rng.h"
#include "common/space/space.h"

/* Values beyond the next one that are looked at for a step, where conditions exclude the nearer
 * ones. */
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

/* Whether a point holds; CONDITION_FAILED with *error when a condition cannot be evaluated
 * there. */
must_check enum decision points_decide(struct points *points, uint64_t ordinal,
                                       struct error *error);

/* A point as places on the axes, in the order of the parameters, and back: false when there is no
 * such point or it does not hold. */
void points_places(const struct points *points, uint64_t ordinal,
                   uint32_t places[SPACE_PARAMETERS_MAX]);
must_check bool points_find(struct points *points, const uint32_t places[SPACE_PARAMETERS_MAX],
                            uint64_t *ret_ordinal);

/* The point that differs in one parameter alone. */
must_check bool points_moved(struct points *points, uint64_t ordinal, size_t parameter,
                             uint32_t place, uint64_t *ret_ordinal);

/* The nearest such point on one side (-1 or 1). */
must_check bool points_step(struct points *points, uint64_t ordinal, size_t parameter, int side,
                            uint64_t *ret_ordinal);

/* Random points that hold, each equally likely and none twice, until all were drawn.
 *
 * The parameters that conditions read come first, those of the cheapest condition before the
 * others, and as many of them as fit into a bound of work are enumerated: `heads` are what
 * conditions leave of them. A candidate is a head with any values of the other parameters.
 * Candidates are visited in the order of a keyed permutation (a Feistel network walked until it is
 * back in range: Black, Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002), so that no
 * memory of what was drawn is needed, and those for which a condition is false are passed over. */
struct draws {
  size_t order[SPACE_PARAMETERS_MAX]; /* parameters, those of the heads first */
  size_t depth;                       /* how many of them the heads set */
  size_t n_heads;
  uint64_t *heads; /* mixed-radix numbers, in `order` */
  uint64_t n_tails;
  size_t n_open; /* conditions that the heads leave open */
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

/* CONDITION_TRUE: *ret_ordinal is drawn. CONDITION_FAILED: *error says which condition cannot be
 * evaluated where; the next call goes on behind that point. CONDITION_FALSE: nothing is left.
 * UNDECIDED: *work, which counts down the candidates, is used up. */
must_check enum decision draws_next(struct draws *draws, struct points *points, uint64_t *work,
                                    uint64_t *ret_ordinal, struct error *error);

#endif
