/* What space.c, space_enumerate.c and search_points.c share. */
#ifndef WAVETUNE_COMMON_SPACE_SPACE_CODE_H
#define WAVETUNE_COMMON_SPACE_SPACE_CODE_H

#include "common/space/space.h"

/* The names that conditions read beside parameters and key members. */
#define SPACE_FACTS 2
extern const char *const space_fact_names[SPACE_FACTS];

/* Adds where a condition stands: "condition N, …" and /conditions/N. Returns false. */
bool condition_error(struct error *error, size_t index);

/* An order of values for searching: by type, then by content. */
int value_compare(struct value a, struct value b);

/* The conditions of a space bound to slots: key members, then facts, then parameters, so that the
 * last slot that a condition reads says which parameter decides it. Values are put into slots by
 * the caller. */
#define SLOTS_MAX (KEY_MEMBERS_MAX + SPACE_FACTS + SPACE_PARAMETERS_MAX)
struct conditions {
  size_t n;
  struct expr **exprs;
  size_t n_fixed; /* slots before the parameters */
  struct value slots[SLOTS_MAX];
};

/* Fills in the fixed slots, whose strings it borrows from the facts, and binds every condition. */
must_check bool conditions_bind(const struct space *space, const struct space_facts *facts,
                                struct conditions *conditions, struct error *error);
void conditions_release(struct conditions *conditions);
#define cleanup_conditions __attribute__((cleanup(conditions_release)))

enum decision { UNDECIDED, CONDITION_TRUE, CONDITION_FALSE, CONDITION_FAILED };

/* Decides one condition, whose parameters must be set. *error is filled for CONDITION_FAILED. */
must_check enum decision condition_decide(const struct conditions *conditions, size_t index,
                                          struct error *error);

/* Decides all conditions for the point in the slots, which is `ordinal`: CONDITION_FALSE when one
 * is false, else CONDITION_FAILED with *error when one cannot be evaluated. */
must_check enum decision conditions_decide(const struct space *space,
                                           const struct conditions *conditions, uint64_t ordinal,
                                           struct error *error);

#endif
