/* Classes of agreement, and what follows from them. */
#include "common/verdict/agreement.h"

#define X(id, name) name,
const char *const agreement_names[] = {AGREEMENTS(X) NULL};
const char *const agreement_requirement_names[] = {AGREEMENT_REQUIREMENTS(X) NULL};
#undef X

#define CLASS_INTERPRETED "interpreted"

const char *agreement_name(enum agreement agreement) { return agreement_names[agreement]; }

enum agreement agreement_parse(const char *name) {
  for (enum agreement i = AGREEMENT_BITWISE; i < AGREEMENT_COUNT; i++)
    if (string_equal(name, agreement_names[i]))
      return i;
  return AGREEMENT_NONE;
}

static enum agreement fact_of(const json_t *object, const char *member) {
  return agreement_parse(json_text(object, member));
}

void agreement_facts_add(struct agreement_facts *facts, const json_t *conditions) {
  enum agreement with_default = fact_of(conditions, "agreement"),
                 interpreted = fact_of(conditions, "interpreted");
  if (with_default > facts->with_default)
    facts->with_default = with_default;
  if (interpreted > facts->interpreted)
    facts->interpreted = interpreted;
}

const char *agreement_class(const struct agreement_facts *facts) {
  if (facts->with_default == AGREEMENT_DISAGREES || facts->interpreted == AGREEMENT_DISAGREES)
    return agreement_name(AGREEMENT_DISAGREES);
  if (facts->with_default == AGREEMENT_AGREES && facts->interpreted == AGREEMENT_AGREES)
    return CLASS_INTERPRETED;
  return agreement_name(facts->with_default);
}

void agreement_write(json_t *object, const struct agreement_facts *facts) {
  if (facts->with_default != AGREEMENT_NONE || facts->interpreted == AGREEMENT_DISAGREES)
    json_put(object, "agreement", json_string(agreement_class(facts)));
  else
    json_object_del(object, "agreement");
  if (facts->interpreted == AGREEMENT_AGREES)
    json_put(object, "interpreted", json_true());
  else
    json_object_del(object, "interpreted");
}

struct agreement_facts agreement_read(const json_t *object) {
  const char *class = json_text(object, "agreement");
  bool is_interpreted = json_flag(object, "interpreted");
  return (struct agreement_facts){
      .with_default =
          string_equal(class, CLASS_INTERPRETED) ? AGREEMENT_AGREES : agreement_parse(class),
      .interpreted = is_interpreted ? AGREEMENT_AGREES : AGREEMENT_NONE};
}

bool agreement_satisfies(enum agreement_requirement requirement,
                         const struct agreement_facts *facts) {
  bool disagrees =
      facts->with_default == AGREEMENT_DISAGREES || facts->interpreted == AGREEMENT_DISAGREES;
  /* A reference that is newer than the measurements checked none of them. */
  bool was_checked = facts->has_reference && facts->with_default == AGREEMENT_NONE;
  switch (requirement) {
  case REQUIRE_NONE:
    return true;

  case REQUIRE_AGREES:
    return !disagrees;

  case REQUIRE_BITWISE:
    return !disagrees && facts->with_default == AGREEMENT_BITWISE;

  case REQUIRE_INTERPRETED:
    return !disagrees && (was_checked || facts->interpreted == AGREEMENT_AGREES);

  case REQUIRE_COUNT:
    break;
  }
  die("no such requirement");
}

bool agreement_refuses(const struct agreement_summary *summary, struct error *ret_reason) {
  const char *example = summary->example;
  /* A baseline that was not measured as a config agrees with itself. */
  int64_t agree = summary->agree + (summary->baseline.with_default == AGREEMENT_NONE),
          disagree = summary->disagree;
  if (summary->of_default.interpreted == AGREEMENT_DISAGREES)
    error_set(ret_reason, "configs disagree: the default differs from what Triton's interpreter "
                          "computes; nothing is published");
  else if (summary->of_default.with_default == AGREEMENT_DISAGREES)
    error_set(ret_reason, "configs disagree: the default differs from the config that won before, "
                          "with which it is compared; nothing is published");
  else if (disagree > agree && summary->of_default.interpreted != AGREEMENT_AGREES)
    error_set(ret_reason,
              "configs disagree: %lld of %lld differ from the default; nothing is published",
              (long long)disagree, (long long)(agree + disagree));
  else
    return false;

  error_append(ret_reason, "; look at the kernel with its default config%s%.300s",
               example ? ": " : "", example ? example : "");
  return true;
}

struct agreement_facts agreement_with_default(const struct agreement_summary *summary,
                                              const struct agreement_facts *facts,
                                              bool is_default) {
  struct agreement_facts found = *facts;
  if (facts->with_default == AGREEMENT_BITWISE &&
      summary->of_default.with_default != AGREEMENT_BITWISE)
    found.with_default = AGREEMENT_AGREES;
  if (is_default && facts->with_default == AGREEMENT_AGREES)
    found.with_default = AGREEMENT_BITWISE;
  return found;
}
