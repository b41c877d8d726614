/* The table of regimes. Nothing else depends on how many there are: tests/new_regime.c has one
 * more. */
#include "common/regime/regime.h"

#ifndef REGIMES_OF_TEST
#define REGIMES_OF_TEST(X)
#endif

#define X(id, name, rotates, flushes, launch) {name, rotates, flushes, REGIME_LAUNCH_##launch},
static const struct regime_facts regimes[] = {REGIMES(X) REGIMES_OF_TEST(X)};
#undef X

#define X(id, name, ...) name,
const char *const regime_names[] = {REGIMES(X) REGIMES_OF_TEST(X) NULL};
#undef X

#define X(id, name, ...) "|" name
const char regime_alternatives[] = REGIMES(X) REGIMES_OF_TEST(X);
#undef X

const struct regime_facts *regime_facts(enum regime regime) {
  ALWAYS((size_t)regime < ARRAY_LENGTH(regimes));
  return &regimes[regime];
}

const char *regime_name(enum regime regime) { return regime_facts(regime)->name; }

const char *regime_member(enum regime regime) {
  return regime == REGIME_IMPLIED ? NULL : regime_name(regime);
}

bool regime_parse(const char *name, enum regime *ret, struct error *error) {
  for (size_t i = 0; regime_names[i]; i++)
    if (string_equal(name, regime_names[i])) {
      *ret = (enum regime)i;
      return true;
    }

  error_set(error, "the regime must be");
  for (size_t i = 0; regime_names[i]; i++)
    error_append(error, "%s %s", i ? " or" : "", regime_names[i]);
  error_append(error, ", not \"%.40s\"", name);
  return false;
}

bool regime_get(const json_t *json, const char *pointer, enum regime *ret, struct error *error) {
  const char *name = regime_name(REGIME_IMPLIED);
  if (!json_get_string(json, pointer, "regime", JSON_NOT_NULL, &name, error))
    return false;
  return regime_parse(name, ret, error) ||
         error_pointer_prefix(error, POINTER_MEMBER(pointer, "regime"));
}
