/* The rules as names and as decisions. Pure functions. */
#include "common/cache/cache_rule.h"

const char *const cache_rule_names[] = {"exact", "unstated", "minor", "compatible", NULL};

const char *cache_rule_name(enum cache_rule rule) { return cache_rule_names[rule]; }

bool cache_rule_parse(const char *name, enum cache_rule *ret_rule) {
  for (size_t i = 0; cache_rule_names[i]; i++)
    if (strcmp(name, cache_rule_names[i]) == 0) {
      *ret_rule = (enum cache_rule)i;
      return true;
    }
  return false;
}

bool cache_rule_serves(enum cache_rule rule, const struct environment *asked,
                       const struct environment *served) {
  struct environment compared = *asked; /* borrowed: what must be equal */
  switch (rule) {
  case CACHE_RULE_EXACT:
    return environment_fits(asked, served);

  case CACHE_RULE_UNSTATED:
    return environment_covers(served, asked);

  case CACHE_RULE_MINOR:
    compared.rocm = NULL;
    return asked->rocm && served->rocm && version_minors_equal(asked->rocm, served->rocm) &&
           environment_fits(&compared, served);

  case CACHE_RULE_COMPATIBLE:
    compared = (struct environment){
        .arch = asked->arch, .partition = asked->partition, .compute_units = asked->compute_units};
    return environment_fits(&compared, served);
  }
  die("no such rule");
}

bool cache_rules_serve(enum cache_rule widest, const struct environment *asked,
                       const struct environment *served) {
  for (enum cache_rule rule = CACHE_RULE_EXACT; rule <= widest; rule++)
    if (cache_rule_serves(rule, asked, served))
      return true;
  return false;
}
