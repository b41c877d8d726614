/* Configuration spaces: parameters × conditions, or an explicit list of configs; ordinals; lazy
 * enumeration.
 *
 * A point's ordinal is its mixed-radix position in the raw product, parameters in order, the last
 * one fastest; in a list it is the index. Conditions do not move ordinals: a point they exclude
 * keeps its number and is never launched. JSON (design, section 5): {"parameters": {name:
 * [values]}, "roles": {name: role}, "conditions": [text], "default": {name: value}} or {"configs":
 * [{name: value}], "roles", "default"}; every config of a list has the same names. The order of
 * "parameters" is meaningful, so a space is stored as text, never as jsonb.
 *
 * Memory: a space owns everything it points at. Threads: read-only after space_parse; an iterator
 * belongs to one. */
#ifndef WAVETUNE_COMMON_SPACE_SPACE_H
#define WAVETUNE_COMMON_SPACE_SPACE_H

#include "common/record/record.h"
#include "common/space/key.h"

#define SPACE_PARAMETERS_MAX 64
#define SPACE_VALUES_MAX 65536 /* of one parameter */
#define SPACE_CONDITIONS_MAX 256
#define SPACE_LIST_MAX 100000 /* configs of an explicit list */

/* How a parameter reaches the kernel: a compile-time constant ("constexpr", or "define" for hip and
 * c), a compiler or launch option ("option": num_warps, …), or an environment variable of the
 * compile ("env"). */
enum role { ROLE_CONSTEXPR, ROLE_OPTION, ROLE_ENV };

struct parameter {
  char *name;
  enum role role;
  size_t n_values;
  struct value *values;   /* None, bool, int or string; distinct */
  uint32_t *values_order; /* indices of the values, sorted: how space_ordinal finds one */
};

struct space {
  size_t n_parameters;
  struct parameter *parameters; /* of a list: without values, n_values is 0 */
  bool is_list;
  uint64_t raw_count;   /* points of the raw product, or configs of the list; 1 to INT64_MAX */
  struct value *list;   /* is_list: raw_count × n_parameters, row by row; rows are distinct */
  uint32_t *list_order; /* is_list: indices of the rows, sorted */
  size_t n_conditions;
  char **conditions; /* their texts */
  bool has_default;
  uint64_t default_ordinal;
  struct digest digest; /* of the canonical form, in which the order of parameters counts */
  json_t *json;         /* as it was given, members in order: what is stored and sent */
};

/* Checks the JSON of a space, before its parts are compared with each other. */
extern const struct record space_json_record;

must_check bool space_parse(const json_t *json, struct space **ret_space, struct error *error);
void space_free(struct space *space);
DEFINE_CLEANUP(struct space *, cleanup_space_free, space_free)
#define cleanup_space cleanup_by(cleanup_space_free)

/* The index of the parameter of that name; n_parameters: there is none. */
size_t space_parameter(const struct space *space, const char *name);

/* Convert both ways in O(parameters × log values); false when the ordinal is out of range or the
 * values are not a point of the space. `values` has n_parameters elements; space_config's are
 * borrowed from the space. Conditions are not evaluated. */
must_check bool space_config(const struct space *space, uint64_t ordinal, struct value *values);
must_check bool space_ordinal(const struct space *space, const struct value *values,
                              uint64_t *ret_ordinal);

/* {"BLOCK": 64, …} in parameter order; aborts when the ordinal is out of range. */
must_check json_t *space_config_to_json(const struct space *space, uint64_t ordinal);
must_check char *space_config_format(const struct space *space,
                                     uint64_t ordinal); /* "BLOCK=64 num_warps=4" */
/* The inverse of space_config_to_json: members must be exactly the parameters, with values of the
 * space. */
must_check bool space_config_from_json(const struct space *space, const json_t *json,
                                       uint64_t *ret_ordinal, struct error *error);
must_check bool space_scope_add(const struct space *space, uint64_t ordinal, struct scope *scope,
                                struct error *error);

/* What conditions may read beside the parameters. A text that is NULL reads as "". */
struct space_facts {
  const struct key *key; /* may be NULL */
  const char *gpu_name;
  const char *arch;
};

/* A point is excluded when any condition is false for it. If none is false and one cannot be
 * evaluated (it divides by zero, say), that is an error: so a condition may guard another one,
 * whatever their order. Conditions read parameters, key members, gpu_name and arch; a name that
 * means two of those is refused.
 *
 * Enumeration in ordinal order, lazily: a condition is decided as soon as the parameters that it
 * reads are set, and cuts everything below. `step_limit` bounds the partial points visited, so
 * that an enumeration ends with an error rather than hangs. After SPACE_END and SPACE_ERROR every
 * call returns SPACE_END. */
#define SPACE_STEP_LIMIT_DEFAULT 100000000u
struct space_iterator;
must_check bool space_iterator_new(const struct space *space, const struct space_facts *facts,
                                   uint64_t step_limit, struct space_iterator **ret_iterator,
                                   struct error *error);
void space_iterator_free(struct space_iterator *iterator);
DEFINE_CLEANUP(struct space_iterator *, cleanup_space_iterator_free, space_iterator_free)
#define cleanup_space_iterator cleanup_by(cleanup_space_iterator_free)
enum space_step { SPACE_POINT, SPACE_END, SPACE_ERROR };
must_check enum space_step space_iterator_next(struct space_iterator *iterator,
                                               uint64_t *ret_ordinal, struct error *error);

/* The number of valid points; more than `count_limit` is an error. Parameters after the last one
 * that a condition reads are multiplied, not visited. */
must_check bool space_count(const struct space *space, const struct space_facts *facts,
                            uint64_t step_limit, uint64_t count_limit, uint64_t *ret_count,
                            struct error *error);

/* Whether one point is valid; an ordinal outside of the space is not. Parses the conditions at
 * every call: for a few points. */
must_check bool space_is_valid(const struct space *space, const struct space_facts *facts,
                               uint64_t ordinal, bool *ret_is_valid, struct error *error);

/* Conditions one by one, for searches and enumerations */

/* The names that conditions read beside parameters and key members. */
#define SPACE_FACTS 2
extern const char *const space_fact_names[SPACE_FACTS];

/* Adds which condition is wrong: "condition N, …" and /conditions/N. Returns false. */
bool condition_error(struct error *error, size_t index);

/* The conditions of a space bound to slots: key members, then facts, then parameters, so that the
 * last slot that a condition reads is the parameter that decides it. The caller sets the slots of
 * the parameters. */
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
#define cleanup_conditions cleanup_by(conditions_release)

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
