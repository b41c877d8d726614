/* Which required keys a plan does not include. Pure functions, any thread. */
#include "server/release/release_make.h"

static bool place_is_included(const struct release_plan *plan, const struct release_place *place) {
  for (size_t i = 0; i < plan->n_included; i++) {
    const struct release_place *included = &plan->included[i].candidate->place;
    if (digest_equal(&included->kernel, &place->kernel) &&
        strcmp(included->key_text, place->key_text) == 0)
      return true;
  }
  return false;
}

static bool is_newest_of_name(const struct release_candidates *candidates,
                              const struct release_candidate *candidate) {
  for (size_t i = 0; i < candidates->n; i++) {
    const struct release_candidate *other = &candidates->all[i];
    if (!other->is_external && !candidate->is_external &&
        strcmp(other->name, candidate->name) == 0 && other->kernel_order > candidate->kernel_order)
      return false;
  }
  return true;
}

static bool is_required(const struct release_requires *required,
                        const struct release_candidates *candidates,
                        const struct release_candidate *candidate, bool *ret_is_named) {
  char id[24];
  snprintf(id, sizeof id, "%lld", (long long)candidate->job);
  *ret_is_named = false;
  for (size_t i = 0; candidate->job && i < required->jobs.n && !*ret_is_named; i++)
    *ret_is_named = string_equal(required->jobs.all[i], id);
  return *ret_is_named ||
         (required->run && candidate->run && string_equal(candidate->run, required->run)) ||
         (required->all && is_newest_of_name(candidates, candidate));
}

/* Why the candidate was left out; the caller's. */
static char *reason_of(const struct release_plan *plan, const struct release_candidate *candidate) {
  for (size_t i = 0; i < plan->n_skipped; i++) {
    const struct release_skipped *skipped = &plan->skipped[i];
    if (skipped->job == candidate->job && skipped->key == candidate->key)
      return xstrdup(skipped->reason);
  }
  return xstrdup("no winner of it is in the release");
}

void release_missing(const struct release_request *request,
                     const struct release_candidates *candidates, const struct release_plan *plan,
                     struct release_skipped **ret_missing, size_t *ret_n) {
  const struct release_requires *required = &request->required;
  size_t capacity = 0, n = 0;
  struct release_skipped *missing = NULL;
  cleanup_free bool *is_found = xcalloc(required->jobs.n + 1, sizeof *is_found);

  /* Candidates are sorted: those of a key follow each other, the newest job first. Of a key whose
   * jobs are not named one is enough. */
  const struct release_candidate *last = NULL;
  for (size_t i = 0; i < candidates->n; i++) {
    const struct release_candidate *candidate = &candidates->all[i];
    bool is_named;
    if (!is_required(required, candidates, candidate, &is_named))
      continue;
    for (size_t j = 0; is_named && j < required->jobs.n; j++)
      is_found[j] |= strtoll(required->jobs.all[j], NULL, 10) == candidate->job;
    bool is_same_key = last && digest_equal(&last->place.kernel, &candidate->place.kernel) &&
                       strcmp(last->place.key_text, candidate->place.key_text) == 0;
    if ((is_same_key && !is_named) || place_is_included(plan, &candidate->place))
      continue;
    last = candidate;
    GROW(missing, n, capacity);
    missing[n++] =
        (struct release_skipped){candidate->name, candidate->place.kernel, candidate->key,
                                 candidate->job, reason_of(plan, candidate)};
  }

  for (size_t j = 0; j < required->jobs.n; j++) {
    if (is_found[j])
      continue;
    GROW(missing, n, capacity);
    missing[n++] = (struct release_skipped){
        .job = strtoll(required->jobs.all[j], NULL, 10),
        .reason = xasprintf("there is no job %.40s of this environment, tag and regime",
                            required->jobs.all[j])};
  }

  if (required->run && n == 0) {
    bool is_any = false;
    for (size_t i = 0; i < candidates->n && !is_any; i++)
      is_any = candidates->all[i].run && string_equal(candidates->all[i].run, required->run);
    if (!is_any) {
      GROW(missing, n, capacity);
      missing[n++] = (struct release_skipped){
          .reason = xasprintf("no job of this environment, tag and regime has the run \"%.80s\"",
                              required->run)};
    }
  }

  *ret_missing = missing;
  *ret_n = n;
}
