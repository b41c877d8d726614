/* Which channel entry a starting container gets when none was made for exactly its environment,
 * and why.
 *
 * The rules of common/cache/cache_rule.h in this order, each only when it is allowed and the ones
 * before found none:
 *
 *   exact       the one environment that the stated members mean (cache_lookup)
 *   minor       of several the newest, and none where those that fit differ in other members too,
 *               which were not stated
 *   compatible  what an operator declared: a compatibility says that who asks for its `asked`
 *               members may be served an environment with its `served` members; the first
 *               declared that finds one wins
 *   unstated    the one that states most, and none where two state as much. Tried last, so that
 *               it answers only what would have no answer
 *
 * Memory: environments are borrowed; a compatibility owns its own. Threads: pure functions. */
#ifndef WAVETUNE_SERVER_CACHE_CACHE_RULES_H
#define WAVETUNE_SERVER_CACHE_CACHE_RULES_H

#include "common/cache/cache_rule.h"
#include "common/record/record.h"
#include "server/cache/cache_lookup.h"

#define COMPATIBILITIES_MAX 1000
#define COMPATIBILITY_REASON_MAX 500

/* As it is declared, in the body of POST /v1/compatibilities and in the database. */
struct compatibility_text {
  json_t *asked, *served;
  char *reason;
};
extern const struct record compatibility_request_record;

struct compatibility {
  int64_t id;
  struct environment asked, served;
  char *reason;
};
void compatibility_release(struct compatibility *compatibility);
#define cleanup_compatibility __attribute__((cleanup(compatibility_release)))

/* Both sides state the same members, at least one, and never arch, compute_units or partition; a
 * member of theirs differs. */
must_check bool compatibility_check(const struct compatibility_text *text,
                                    struct compatibility *ret, struct error *error);
/* The same of JSON: {"asked": {…}, "served": {…}, "reason": "…"}. */
must_check bool compatibility_parse(const json_t *json, struct compatibility *ret,
                                    struct error *error);

struct cache_resolved {
  enum cache_rule rule;
  size_t index;                              /* in `there` */
  const struct compatibility *compatibility; /* of CACHE_RULE_COMPATIBLE */
};
/* `widest`: how far the rules go. CACHE_MATCH_SEVERAL only of the exact rule. */
must_check enum cache_match cache_resolve(const struct environment *asked,
                                          const struct environment *const *there, size_t n,
                                          enum cache_rule widest,
                                          const struct compatibility *declared, size_t n_declared,
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
