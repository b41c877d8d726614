/* The rules by which a cache that was made for one environment is served to another. The server
 * finds a cache by them, and a client checks the cache that it receives by them.
 *
 *   exact       every requested member is equal
 *   unstated    the cache's environment states less than was requested and contradicts none of it
 *               (environment_covers), as imported tables do
 *   minor       equal in all but the patch level of ROCm (6.4.1 and 6.4.0)
 *   compatible  what an operator declared, which the server alone knows: the requested arch,
 *               compute_units and partition are equal even then, so that a config of another GPU is
 *               never served
 *
 * A request allows one of: exact alone; unstated, the default: exact and unstated; minor: these two
 * and minor; compatible: all.
 *
 * Memory: environments are borrowed. Threads: pure functions. */
#ifndef WAVETUNE_COMMON_CACHE_CACHE_RULE_H
#define WAVETUNE_COMMON_CACHE_CACHE_RULE_H

#include "common/node/environment.h"

/* From the narrowest to the widest, which is not the order in which a server tries them. */
enum cache_rule { CACHE_RULE_EXACT, CACHE_RULE_UNSTATED, CACHE_RULE_MINOR, CACHE_RULE_COMPATIBLE };
#define CACHE_RULES "exact, unstated, minor or compatible"
extern const char *const cache_rule_names[]; /* by value, ended by NULL */
const char *cache_rule_name(enum cache_rule rule);
must_check bool cache_rule_parse(const char *name, enum cache_rule *ret_rule);

/* Whether this rule alone allows a cache of `served` for a request of `asked`; of compatible,
 * whether some declaration could. */
bool cache_rule_serves(enum cache_rule rule, const struct environment *asked,
                       const struct environment *served);

/* Whether one of the rules up to `widest` may. */
bool cache_rules_serve(enum cache_rule widest, const struct environment *asked,
                       const struct environment *served);

#endif
