/* The names of outcomes and stages. Memory: static texts. Threads: any. */
#include "common/verdict/outcome.h"

#define X(id, name) name,
const char *const outcome_names[] = {OUTCOMES(X) NULL};
const char *const stage_names[] = {STAGES(X) NULL};
#undef X

const char *outcome_name(enum outcome outcome) { return outcome_names[outcome]; }
const char *stage_name(enum stage stage) { return stage_names[stage]; }

bool name_find(const char *const *names, size_t n, const char *name, size_t *ret) {
  for (size_t i = 0; name && i < n; i++)
    if (strcmp(names[i], name) == 0) {
      *ret = i;
      return true;
    }
  return false;
}

bool outcome_parse(const char *name, enum outcome *ret) {
  size_t i;
  if (!name_find(outcome_names, OUTCOME_COUNT, name, &i))
    return false;
  *ret = (enum outcome)i;
  return true;
}

bool stage_parse(const char *name, enum stage *ret) {
  size_t i;
  if (!name_find(stage_names, STAGE_COUNT, name, &i))
    return false;
  *ret = (enum stage)i;
  return true;
}
