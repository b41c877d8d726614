/* Finds the environment that the stated members mean, and the channel entry that a starting
 * container gets when none was made for exactly its environment.
 *
 * The rules of common/cache/release.h are tried in this order, each only if it is allowed and those
 * before found no entry:
 *
 *   exact       an environment that equals the stated members, else the only one that they fit
 *               (cache_lookup)
 *   minor       the newest of those that fit; none where these also differ in other members, which
 *               the query did not state
 *   compatible  what an operator declared: a compatibility states that a query for its `asked`
 *               members may be served an environment with its `served` members; the first
 *               declared that finds one wins
 *   unstated    the one that states most members; none where two state as many. Tried last, so
 *               that it changes no answer of the other rules
 *
 * Memory: environments are borrowed; a compatibility owns its own. Threads: pure functions, but for
 * compatibilities_load, which has its thread's db. */
#ifndef WAVETUNE_SERVER_CACHE_CACHE_RULES_H
#define WAVETUNE_SERVER_CACHE_CACHE_RULES_H

#include "common/cache/release.h"
#include "common/record/record.h"

#define COMPATIBILITIES_MAX 1000
#define COMPATIBILITY_REASON_MAX 500

/* Reads the members from the texts of a query; get returns one by name, or NULL. */
must_check bool environment_from_texts(const char *(*get)(const void *context, const char *name),
                                       const void *context, struct environment *ret,
                                       struct error *error);

enum cache_match { CACHE_MATCH_ONE, CACHE_MATCH_NONE, CACHE_MATCH_SEVERAL };

/* The exact rule: no cache of another environment is served in place of the right one. *ret_index
 * is set for CACHE_MATCH_ONE. */
must_check enum cache_match cache_lookup(const struct environment *asked,
                                         const struct environment *const *there, size_t n,
                                         size_t *ret_index);

/* The environments that fit, as a JSON array; a new reference. */
must_check json_t *cache_fitting(const struct environment *asked,
                                 const struct environment *const *there, size_t n);

/* For CACHE_MATCH_NONE: {"environment": {…}, "differences": {"gpu": {"asked": …, "there": …}}} of
 * the environment that differs in the fewest members, then in the fewest of the hardware; json null
 * when there is none. A new reference; *ret_sentence (the caller's) is the same for a person: "the
 * nearest is …, which differs in gpu (asked …, there …)". */
must_check json_t *cache_nearest(const struct environment *asked,
                                 const struct environment *const *there, size_t n,
                                 char **ret_sentence);

/* The body of POST /v1/compatibilities. */
struct compatibility {
  int64_t id; /* not in the body */
  struct environment asked, served;
  char *reason;
};
extern const struct record compatibility_request_record;
/* Both sides state the same members, at least one, and never arch, compute_units or partition; a
 * member of theirs differs. */
must_check bool compatibility_parse(const json_t *json, struct compatibility *ret,
                                    struct error *error);
void compatibility_release(struct compatibility *compatibility);
#define cleanup_compatibility __attribute__((cleanup(compatibility_release)))

struct compatibilities {
  size_t n;
  struct compatibility *all; /* in the order in which they were made */
};
struct db;
must_check bool compatibilities_load(struct db *db, struct compatibilities *ret,
                                     struct error *error);
void compatibilities_release(struct compatibilities *compatibilities);

struct cache_resolved {
  enum cache_rule rule;
  size_t index;                              /* in `there` */
  const struct compatibility *compatibility; /* of CACHE_RULE_COMPATIBLE */
};
/* `widest`: the last rule of enum cache_rule that may be used. Only the exact rule returns
 * CACHE_MATCH_SEVERAL. */
must_check enum cache_match cache_resolve(const struct environment *asked,
                                          const struct environment *const *there, size_t n,
                                          enum cache_rule widest,
                                          const struct compatibilities *declared,
                                          struct cache_resolved *ret);

/* {"rule": "minor", "differs": {"rocm": {"asked": "6.4.1", "served": "6.4.0"}}}; new. */
must_check json_t *cache_match_to_json(const struct environment *asked,
                                       const struct environment *served,
                                       const struct cache_resolved *resolved);
/* The header Wavetune-Match: "exact", "minor; rocm=6.4.0", "unstated; arch, partition". Owned by
 * the caller. */
must_check char *cache_match_header(const struct environment *asked,
                                    const struct environment *served,
                                    const struct cache_resolved *resolved);

#endif
