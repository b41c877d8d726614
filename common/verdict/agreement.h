/* Agreement: whether a config of a kernel without a reference computes the same as the program's
 * default config (agent/measure/agreement.h), and the same as Triton's interpreter. What a winner's
 * class is, what a release may require, and when a job publishes nothing.
 *
 * Measurements have two facts, "agreement" (bitwise, agrees, disagrees) and "interpreted" (agrees,
 * disagrees), in their conditions. Of several measurements of a config the worst counts. The class:
 *   none         the kernel has a reference of its own, or nothing is known
 *   bitwise      the outputs are those of the default
 *   interpreted  they are as near to the default's as their types allow, and to the interpreter's
 *   agrees       the same, but there were no values of the interpreter
 *   disagrees    with the default or with the interpreter: such a config cannot win
 * A winner is stored as its class and whether the interpreter agrees, which may also be so of a
 * bitwise one.
 *
 * An agent compares with the baseline, which may be an earlier winner. What that tells about the
 * default follows from how the default itself compares with the baseline.
 *
 * Memory: texts are borrowed, names are static. Threads: pure functions. */
#ifndef WAVETUNE_COMMON_VERDICT_AGREEMENT_H
#define WAVETUNE_COMMON_VERDICT_AGREEMENT_H

#include "common/base/base.h"
#include "common/base/json.h"

/* One fact, from the best to the worst. NONE: there is a reference, or it is not known. */
#define AGREEMENTS(X)                                                                              \
  X(NONE, "none")                                                                                  \
  X(BITWISE, "bitwise")                                                                            \
  X(AGREES, "agrees")                                                                              \
  X(DISAGREES, "disagrees")
#define X(id, name) AGREEMENT_##id,
enum agreement { AGREEMENTS(X) AGREEMENT_COUNT };
#undef X
extern const char *const agreement_names[]; /* by value, ended by NULL */
/* "bitwise", "agrees" or "disagrees"; "none" is never written. */
const char *agreement_name(enum agreement agreement);
/* AGREEMENT_NONE for any other text, and for NULL. */
enum agreement agreement_parse(const char *name);

struct agreement_facts {
  enum agreement with_default;
  enum agreement interpreted; /* never BITWISE */
  bool has_reference;         /* the kernel's own */
};
/* Adds the conditions of a measurement, which may be NULL. */
void agreement_facts_add(struct agreement_facts *facts, const json_t *conditions);

/* The class of both facts. */
const char *agreement_class(const struct agreement_facts *facts);
/* Writes "agreement", unless the class is none, and "interpreted", true, where that agrees; and
 * reads them again, from any JSON object or NULL. */
void agreement_write(json_t *object, const struct agreement_facts *facts);
struct agreement_facts agreement_read(const json_t *object);

/* What a release requires of winners: agrees takes all that do not disagree; bitwise asks for a
 * bitwise one; interpreted for one with which the interpreter agrees, or a reference of the
 * kernel's own. */
#define AGREEMENT_REQUIREMENTS(X)                                                                  \
  X(NONE, "none")                                                                                  \
  X(AGREES, "agrees")                                                                              \
  X(BITWISE, "bitwise")                                                                            \
  X(INTERPRETED, "interpreted")
#define X(id, name) REQUIRE_##id,
enum agreement_requirement { AGREEMENT_REQUIREMENTS(X) REQUIRE_COUNT };
#undef X
extern const char *const agreement_requirement_names[]; /* by value, ended by NULL */
must_check bool agreement_satisfies(enum agreement_requirement requirement,
                                    const struct agreement_facts *facts);

/* What was measured of a job's configs so far, compared with the baseline. */
struct agreement_summary {
  int64_t agree, disagree;                     /* configs; neither: the kernel has a reference */
  struct agreement_facts baseline, of_default; /* those of the two configs; they may be one */
  const char *example;                         /* why a config disagrees; NULL: not known */
};
/* Whether the job must end without a winner: the default disagrees with the interpreter or with the
 * baseline; or the interpreter does not confirm it, and more configs disagree with it than agree,
 * itself included. */
must_check bool agreement_refuses(const struct agreement_summary *summary,
                                  struct error *ret_reason);
/* The facts of a config compared with the default, from those compared with the baseline. */
struct agreement_facts agreement_with_default(const struct agreement_summary *summary,
                                              const struct agreement_facts *facts, bool is_default);

#endif
