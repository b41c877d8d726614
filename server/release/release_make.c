/* Which winners a release includes and why the others are left out. A plan owns its reasons and
 * borrows the rest. Pure functions, any thread. */
#include "server/release/release_make.h"

#define AT(member) offsetof(struct release_candidate, member)
static const struct field candidate_fields[] = {
    {"job", FIELD_INTEGER, AT(job)},
    {"name", FIELD_TEXT, AT(name)},
    {"kernel", FIELD_DIGEST, AT(kernel)},
    {"is_external", FIELD_BOOL, AT(is_external)},
    {"is_self_timed", FIELD_BOOL, AT(is_self_timed)},
    {"kernel_order", FIELD_INTEGER, AT(kernel_order)},
    {"key_names", FIELD_JSON, AT(key_names)},
    {"key", FIELD_JSON, AT(key)},
    {"key_text", FIELD_TEXT, AT(key_text), FIELD_NO_COLUMN},
    {"space", FIELD_DIGEST, AT(space)},
    {"state", FIELD_TEXT, AT(state)},
    {"reason", FIELD_TEXT, AT(reason)},
    {"finished_us", FIELD_INTEGER, AT(finished_us)},
    {"has_winner", FIELD_BOOL, AT(has_winner)},
    {"ordinal", FIELD_INTEGER, AT(ordinal)},
    {"baseline", FIELD_INTEGER, AT(baseline)},
    {"config", FIELD_JSON, AT(config)},
    {"provenance", FIELD_JSON, AT(provenance)},
    {"verdict", FIELD_JSON, AT(verdict)},
    {"flagged_by", FIELD_INTEGER, AT(flagged_by)},
    {"flagged_ratio", FIELD_NUMBER, AT(flagged_ratio)},
    {"quarantined", FIELD_TEXT, AT(quarantined)},
};
#undef AT
const struct record release_candidate_record =
    RECORD(NULL, struct release_candidate, candidate_fields);

void release_candidates_release(struct release_candidates *candidates) {
  for (size_t i = 0; i < candidates->n; i++) {
    free(candidates->all[i].equivalents);
    record_release(&release_candidate_record, &candidates->all[i]);
  }
  free(candidates->all);
  for (size_t i = 0; i < candidates->n_spaces; i++)
    space_free(candidates->spaces[i]);
  free(candidates->spaces);
  *candidates = (struct release_candidates){0};
}

static bool outcome_parse(const char *name, enum verdict_outcome *ret) {
  static const enum verdict_outcome outcomes[] = {VERDICT_FASTER, VERDICT_SAME, VERDICT_SLOWER,
                                                  VERDICT_AMBIGUOUS};
  for (size_t i = 0; i < ARRAY_LENGTH(outcomes); i++)
    if (strcmp(verdict_outcome_name(outcomes[i]), name) == 0) {
      *ret = outcomes[i];
      return true;
    }
  return false;
}

/* A median of microseconds as milliseconds of 9 significant digits, as verdicts have them: a
 * quotient has 17. */
static void ms_from_us(double us, struct release_candidate *candidate) {
  char text[32];
  if (us <= 0)
    return;
  snprintf(text, sizeof text, "%.9g", us / 1000);
  candidate->n_ms = 1;
  candidate->ms[0] = strtod(text, NULL);
}

bool release_candidate_read_verdict(struct release_candidate *candidate, struct error *error) {
  const json_t *verdict = candidate->verdict;
  const char *outcome;
  double winner_us = 0;
  json_t *set;
  if (!json_get_string(verdict, "", "verdict", JSON_REQUIRED, &outcome, error) ||
      !json_get_array(verdict, "", "equivalence_set", JSON_REQUIRED, &set, error) ||
      !json_get_number(verdict, "", "winner_us", JSON_OPTIONAL, &winner_us, error))
    return false;
  if (!outcome_parse(outcome, &candidate->outcome))
    return error_at(error, "/verdict", "\"%.32s\" is no outcome of a verdict", outcome);

  size_t n = json_array_size(set);
  free(candidate->equivalents);
  candidate->equivalents = xcalloc(n ? n : 1, sizeof *candidate->equivalents);
  for (size_t i = 0; i < n; i++)
    candidate->equivalents[i] = (uint64_t)json_integer_value(json_array_get(set, i));
  candidate->n_equivalents = n;
  ms_from_us(winner_us, candidate);
  return true;
}

static int place_compare(const struct digest *kernel, const char *key_text,
                         const struct digest *other_kernel, const char *other_key_text) {
  int order = memcmp(kernel->bytes, other_kernel->bytes, DIGEST_SIZE);
  return order ? order : strcmp(key_text, other_key_text);
}

static int pin_to_candidate(const void *wanted, const void *element) {
  const struct release_candidate *candidate = wanted;
  const struct release_pin *pin = element;
  return place_compare(&candidate->kernel, candidate->key_text, &pin->kernel, pin->key_text);
}

const struct release_pin *release_pin_of(const struct release_request *request,
                                         const struct release_candidate *candidate) {
  if (!request->pins.n)
    return NULL;
  return bsearch(candidate, request->pins.all, request->pins.n, sizeof(struct release_pin),
                 pin_to_candidate);
}

static int served_compare(const void *a, const void *b) {
  const struct release_served_winner *left = a, *right = b;
  return place_compare(&left->kernel->hash, left->key_text, &right->kernel->hash, right->key_text);
}

void release_served_init(struct release_served *served, struct release *release) {
  *served = (struct release_served){
      .release = release, .winners = xcalloc(release->n_winners + 1, sizeof *served->winners)};
  for (size_t i = 0; i < release->n_kernels; i++)
    for (size_t j = 0; j < release->kernels[i].n_winners; j++) {
      const struct release_kernel *kernel = &release->kernels[i];
      json_t *key = release_key_object(kernel, &kernel->winners[j]);
      served->winners[served->n++] =
          (struct release_served_winner){kernel, &kernel->winners[j], key, json_canonical(key)};
    }
  qsort(served->winners, served->n, sizeof *served->winners, served_compare);
}

void release_served_release(struct release_served *served) {
  for (size_t i = 0; i < served->n; i++) {
    json_decref(served->winners[i].key);
    free(served->winners[i].key_text);
  }
  free(served->winners);
  if (served->release)
    release_free(served->release);
  *served = (struct release_served){0};
}

static int served_to_candidate(const void *wanted, const void *element) {
  const struct release_candidate *candidate = wanted;
  const struct release_served_winner *served = element;
  return place_compare(&candidate->kernel, candidate->key_text, &served->kernel->hash,
                       served->key_text);
}

static const struct release_served_winner *served_of(const struct release_served *served,
                                                     const struct release_candidate *candidate) {
  if (!served->n)
    return NULL;
  return bsearch(candidate, served->winners, served->n, sizeof *served->winners,
                 served_to_candidate);
}

static const struct release_config *served_config(const struct release_served_winner *served) {
  return &served->kernel->configs[served->winner->config];
}

static const json_t *served_provenance(const struct release_served_winner *served) {
  return served->kernel->provenance[served->winner->provenance];
}

static bool served_is_imported(const struct release_served_winner *served) {
  return string_equal(json_string_value(json_object_get(served_provenance(served), "origin")),
                      "imported");
}

bool release_needs_space(const struct release_request *request, const struct release_served *served,
                         const struct release_candidate *candidate) {
  if (!candidate->job)
    return false;
  const struct release_served_winner *winner = served_of(served, candidate);
  return release_pin_of(request, candidate) ||
         (winner && !(served_config(winner)->has_ordinal &&
                      digest_equal(&served_config(winner)->space, &candidate->space)));
}

void release_plan_release(struct release_plan *plan) {
  for (size_t i = 0; i < plan->n_included; i++)
    free(plan->included[i].kept_reason);
  for (size_t i = 0; i < plan->n_skipped; i++)
    free(plan->skipped[i].reason);
  free(plan->skipped);
  free(plan->included);
  *plan = (struct release_plan){0};
}

static void plan_include(struct release_plan *plan, struct release_included included) {
  GROW(plan->included, plan->n_included, plan->included_capacity);
  plan->included[plan->n_included++] = included;
}

/* Takes over the reason. */
static void plan_skip(struct release_plan *plan, struct release_skipped skipped) {
  GROW(plan->skipped, plan->n_skipped, plan->skipped_capacity);
  plan->skipped[plan->n_skipped++] = skipped;
}

static void plan_skip_job(struct release_plan *plan, const struct release_candidate *candidate,
                          char *reason) {
  plan_skip(plan, (struct release_skipped){candidate->name, candidate->kernel, candidate->key,
                                           candidate->job, reason});
}

static int by_name_kernel_and_key(const struct release_candidate *left,
                                  const struct release_candidate *right) {
  int order = strcmp(left->name, right->name);
  return order ? order
               : place_compare(&left->kernel, left->key_text, &right->kernel, right->key_text);
}

/* A group is one (kernel, key); in it the job that finished last comes first, then unfinished ones,
 * then an import. */
static int candidates_compare(const void *a, const void *b) {
  const struct release_candidate *left = a, *right = b;
  int order = by_name_kernel_and_key(left, right);
  if (order)
    return order;
  if (!left->job != !right->job)
    return left->job ? -1 : 1;
  if (left->finished_us != right->finished_us)
    return left->finished_us > right->finished_us ? -1 : 1;
  return left->job > right->job ? -1 : 1;
}

/* Why a job's winner cannot be released (the caller's), or NULL. */
static char *unusable_reason(const struct release_request *request,
                             const struct release_candidate *candidate) {
  if (request->as_of && (candidate->finished_us == 0 || candidate->finished_us > request->as_of_us))
    return xasprintf("not %s as of that time", candidate->job ? "finished" : "imported");
  if (request->refuse_self_timed && candidate->is_self_timed)
    return xstrdup("self-timed: a kernel in c runs in the process that times it and could state "
                   "any time; pin a config, or "
                   "leave out \"refuse_self_timed\"");
  if (strcmp(candidate->state, "failed") == 0)
    return xasprintf("no winner: failed: %s",
                     candidate->reason ? candidate->reason : "no reason was given");
  if (strcmp(candidate->state, "cancelled") == 0)
    return xstrdup("no winner: cancelled");
  if (strcmp(candidate->state, "done") != 0)
    return xasprintf("no winner yet: %s", candidate->state);
  if (!candidate->has_winner)
    return xstrdup("no winner");
  if (candidate->quarantined)
    return xasprintf("quarantined: %s; submit the job again with another run",
                     candidate->quarantined);
  if (candidate->flagged_by)
    return xasprintf(
        "flagged: job %lld measured this winner slower than the default, by a factor of %.3f",
        (long long)candidate->flagged_by, candidate->flagged_ratio);
  if (candidate->outcome == VERDICT_AMBIGUOUS)
    return xstrdup("ambiguous: the winner is neither faster than the baseline nor the same beyond "
                   "doubt; submit the job "
                   "again with another run when the machine is quiet, or pin a config");
  if (candidate->outcome == VERDICT_SLOWER)
    return xstrdup("slower than its baseline");
  return NULL;
}

static bool sets_meet(const struct release_candidate *one, const struct release_candidate *other) {
  for (size_t i = 0; i < one->n_equivalents; i++)
    for (size_t j = 0; j < other->n_equivalents; j++)
      if (one->equivalents[i] == other->equivalents[j])
        return true;
  return false;
}

static bool jobs_conflict(const struct release_candidate *newest,
                          const struct release_candidate *former) {
  return digest_equal(&newest->space, &former->space) && !sets_meet(newest, former);
}

static char *conflict_reason(const struct release_candidate *other) {
  return xasprintf("conflicting: job %lld measured the same space and no config is among the best "
                   "of both; run the "
                   "job once more or pin a config",
                   (long long)other->job);
}

/* Whether what is served was the winner of a job that has since been flagged or quarantined; of
 * several such jobs the newest tells. */
static bool served_is_tainted(const struct release_served_winner *served,
                              const struct release_candidate *group, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (group[i].has_winner && json_equal(group[i].config, served_config(served)->values))
      return group[i].flagged_by || group[i].quarantined;
  return false;
}

/* Whether the job's winner may take the place of what is served; else why not. */
static bool may_replace(const struct release_served_winner *served,
                        const struct release_candidate *job, double min_gain,
                        struct error *ret_reason) {
  const struct release_config *config = served_config(served);
  uint64_t ordinal = config->ordinal;
  if (!(config->has_ordinal && digest_equal(&config->space, &job->space)) &&
      !space_config_from_json(job->points, config->values, &ordinal, ret_reason))
    return error_set(ret_reason, "the space of job %lld does not have the config that is served",
                     (long long)job->job);
  return verdict_json_replaces(job->verdict, job->baseline, ordinal, min_gain, ret_reason);
}

enum release_choice release_choose(const struct release_rivals *rivals, double min_gain,
                                   struct error *ret_reason) {
  const struct release_served_winner *served = rivals->served;
  const struct release_candidate *job = rivals->job, *import = rivals->import;
  if (!served)
    return job ? RELEASE_JOB : import ? RELEASE_IMPORT : RELEASE_NOTHING;

  const json_t *config = served_config(served)->values;
  bool was_imported = served_is_imported(served);
  if (job && json_equal(job->config, config)) /* perhaps of another space: then it is one release */
    return was_imported ? RELEASE_JOB : RELEASE_SAME;
  if (job)
    return may_replace(served, job, min_gain, ret_reason) ? RELEASE_JOB : RELEASE_SERVED;

  if (import && was_imported)
    return json_equal(import->config, config) ? RELEASE_SAME : RELEASE_IMPORT;
  error_set(ret_reason, "no job has a winner to replace it");
  return RELEASE_SERVED;
}

/* Adds what is chosen for a group. */
static enum release_choice choice_include(const struct release_request *request,
                                          const struct release_rivals *rivals,
                                          const struct release_candidate *group,
                                          struct release_plan *plan) {
  const struct release_candidate *job = rivals->job, *import = rivals->import;
  struct error reason;
  enum release_choice choice = release_choose(rivals, request->replaces.min_gain, &reason);

  switch (choice) {
  case RELEASE_NOTHING:
    break;
  case RELEASE_JOB:
    plan_include(plan, (struct release_included){.candidate = job, .ordinal = job->ordinal});
    break;
  case RELEASE_IMPORT:
    plan_include(plan, (struct release_included){.candidate = import});
    break;
  case RELEASE_SAME:
    plan_include(
        plan, (struct release_included){.candidate = job ? job : import, .kept = rivals->served});
    break;
  case RELEASE_SERVED:
    plan_include(plan, (struct release_included){.candidate = job ? job : group,
                                                 .kept = rivals->served,
                                                 .kept_reason = xstrdup(reason.message)});
    break;
  }
  return choice;
}

/* What is served and may stay, unless something better is there; else NULL. */
static const struct release_served_winner *
served_that_may_stay(const struct release_request *request, const struct release_served *served,
                     const struct release_candidate *group, size_t n) {
  const struct release_served_winner *winner = served_of(served, group);
  if (!winner || served_is_tainted(winner, group, n) ||
      (request->refuse_self_timed && group->is_self_timed))
    return NULL;
  return winner;
}

static char *superseded_reason(const struct release_candidate *by) {
  return !by       ? xstrdup("superseded by what is served")
         : by->job ? xasprintf("superseded by job %lld", (long long)by->job)
                   : xstrdup("superseded by an import");
}

/* One (kernel, key) without a pin: `n` candidates, of which each is included, or kept as the one
 * that did not take the place, or skipped with its reason. */
static void group_plan(const struct release_request *request, const struct release_served *served,
                       const struct release_candidate *group, size_t n, struct release_plan *plan) {
  /* Why each is skipped; NULL: it is not. */
  cleanup_free char **reasons = xcalloc(n, sizeof *reasons);
  const struct release_candidate *newest = NULL, *former = NULL, *import = NULL;
  for (size_t i = 0; i < n; i++) {
    reasons[i] = unusable_reason(request, &group[i]);
    if (reasons[i])
      continue;
    if (!group[i].job)
      import = &group[i];
    else if (!newest)
      newest = &group[i];
    else if (!former)
      former = &group[i];
  }

  bool conflict = former && jobs_conflict(newest, former);
  if (conflict) {
    reasons[newest - group] = conflict_reason(former);
    reasons[former - group] = conflict_reason(newest);
  }

  const struct release_rivals rivals = {.served = served_that_may_stay(request, served, group, n),
                                        .job = conflict ? NULL : newest,
                                        .import = import};
  enum release_choice choice = choice_include(request, &rivals, group, plan);
  bool is_import = !rivals.job && (choice == RELEASE_IMPORT || choice == RELEASE_SAME);
  const struct release_candidate *considered = is_import ? import : rivals.job;

  for (size_t i = 0; i < n; i++) {
    if (!reasons[i] && &group[i] != considered)
      reasons[i] = superseded_reason(group[i].job ? newest : considered);
    if (reasons[i])
      plan_skip_job(plan, &group[i], reasons[i]);
  }
}

/* Whether `config` is a point of the space that its conditions allow; else why not, in
 * *ret_reason. */
static bool pin_is_in_space(const struct release_pin *pin, const struct environment *environment,
                            const struct release_candidate *candidate, uint64_t *ret_ordinal,
                            char **ret_reason) {
  struct error error;
  cleanup_key struct key key = {0};
  bool holds = false;
  if (!space_config_from_json(candidate->points, pin->config, ret_ordinal, &error)) {
    *ret_reason = xasprintf("the pin names a config outside the space of job %lld: %s",
                            (long long)candidate->job, error.message);
    return false;
  }
  ALWAYS(key_parse(pin->key, NULL, 0, &key, &error)); /* the pin's key was made by key_to_json */
  const struct space_facts facts = {&key, environment->gpu, environment->arch};
  if (!space_holds(candidate->points, &facts, *ret_ordinal, &holds, &error)) {
    *ret_reason =
        xasprintf("a condition cannot be decided for the pinned config: %s", error.message);
    return false;
  }
  if (!holds)
    *ret_reason =
        xasprintf("the pin names a config that the conditions of job %lld's space exclude",
                  (long long)candidate->job);
  return holds;
}

/* A job's build has every config of its space compiled, the pinned one too. NULL: there is none. */
static json_t *job_build(const struct release_candidate *candidate) {
  return candidate->job ? json_object_get(candidate->provenance, "build") : NULL;
}

/* One (kernel, key) with a pin: the newest job whose space knows the config gives its number. Where
 * there are only imports, no space knows better. */
static void pinned_plan(const struct release_pin *pin, const struct environment *environment,
                        const struct release_served_winner *served,
                        const struct release_candidate *group, size_t n,
                        struct release_plan *plan) {
  cleanup_free char *first_reason = NULL;
  bool is_served = served && json_equal(served_config(served)->values, pin->config), found = false;
  for (size_t i = 0; i < n && !found; i++) {
    uint64_t ordinal = 0;
    char *reason = NULL;
    if (!group[i].job && i > 0)
      break; /* imports come last */
    found = !group[i].job || pin_is_in_space(pin, environment, &group[i], &ordinal, &reason);
    bool stays =
        is_served && (json_object_get(served_provenance(served), "build") || !job_build(&group[i]));
    if (found)
      plan_include(plan,
                   (struct release_included){&group[i], pin, stays ? served : NULL, NULL, ordinal});
    else if (!first_reason)
      first_reason = TAKE(reason);
    free(reason);
  }
  if (!found)
    plan_skip(plan,
              (struct release_skipped){group->name, pin->kernel, pin->key, 0, TAKE(first_reason)});
  for (size_t i = 0; i < n; i++)
    plan_skip_job(plan, &group[i], xstrdup("superseded by the pin"));
}

static bool kernel_is_named(const struct release_request *request, const struct digest *kernel) {
  for (size_t i = 0; i < request->kernels.n; i++)
    if (digest_equal(&request->kernels.all[i], kernel))
      return true;
  return false;
}

/* Of the included winners with one name (a run of them: they are sorted by name), drops those of
 * kernels that the request does not name and that were registered before the newest. External
 * kernels are no versions of one another: many imported tables share the name of their function. */
static void kernels_supersede(const struct release_request *request, struct release_plan *plan) {
  size_t kept = 0;
  for (size_t first = 0, end; first < plan->n_included; first = end) {
    const char *name = plan->included[first].candidate->name;
    const struct release_candidate *newest = NULL;
    for (end = first; end < plan->n_included; end++) {
      const struct release_candidate *candidate = plan->included[end].candidate;
      if (strcmp(candidate->name, name) != 0)
        break;
      if (!candidate->is_external && (!newest || candidate->kernel_order > newest->kernel_order))
        newest = candidate;
    }
    for (size_t i = first; i < end; i++) {
      const struct release_included *included = &plan->included[i];
      const struct release_candidate *candidate = included->candidate;
      char text[DIGEST_TEXT_SIZE];
      if (candidate->is_external || digest_equal(&candidate->kernel, &newest->kernel) ||
          kernel_is_named(request, &candidate->kernel)) {
        plan->included[kept++] = *included;
        continue;
      }
      free(included->kept_reason);
      plan_skip(
          plan,
          (struct release_skipped){
              candidate->name, candidate->kernel, candidate->key,
              included->pin ? 0 : candidate->job,
              xasprintf(
                  "superseded by kernel %s of the same name, which is newer; name this one in "
                  "\"kernels\" to release it",
                  digest_format(&newest->kernel, text))});
    }
  }
  plan->n_included = kept;
}

static void kernels_without_jobs_skip(const struct release_request *request,
                                      const struct release_candidates *candidates,
                                      struct release_plan *plan) {
  for (size_t i = 0; i < request->kernels.n; i++) {
    bool has_job = false;
    for (size_t j = 0; j < candidates->n && !has_job; j++)
      has_job = digest_equal(&candidates->all[j].kernel, &request->kernels.all[i]);
    if (!has_job)
      plan_skip(
          plan,
          (struct release_skipped){
              NULL, request->kernels.all[i], NULL, 0,
              xstrdup(
                  "no job tunes this kernel for this environment and tag, and no import has it")});
  }
}

void release_plan(const struct release_request *request, const struct environment *environment,
                  const struct release_served *served, struct release_candidates *candidates,
                  struct release_plan *ret_plan) {
  const struct release_pin *pins = request->pins.all;
  cleanup_free bool *pin_is_used = xcalloc(request->pins.n + 1, sizeof *pin_is_used);
  *ret_plan = (struct release_plan){0};

  if (candidates->n)
    qsort(candidates->all, candidates->n, sizeof *candidates->all, candidates_compare);
  for (size_t first = 0, end; first < candidates->n; first = end) {
    const struct release_candidate *group = &candidates->all[first];
    for (end = first + 1;
         end < candidates->n && by_name_kernel_and_key(group, &candidates->all[end]) == 0; end++)
      ;
    const struct release_pin *pin = release_pin_of(request, group);
    if (pin) {
      pin_is_used[pin - pins] = true;
      pinned_plan(pin, environment, served_of(served, group), group, end - first, ret_plan);
    } else {
      group_plan(request, served, group, end - first, ret_plan);
    }
  }
  kernels_supersede(request, ret_plan);

  for (size_t i = 0; i < request->pins.n; i++)
    if (!pin_is_used[i])
      plan_skip(ret_plan,
                (struct release_skipped){
                    NULL, pins[i].kernel, pins[i].key, 0,
                    xstrdup("pinned, but no job of this environment and tag has this kernel and "
                            "key, so its space is "
                            "not known; submit the job first, or import a table that has it")});
  kernels_without_jobs_skip(request, candidates, ret_plan);
}

const char *release_origin(const struct release_included *included) {
  if (included->kept)
    return json_string_value(json_object_get(served_provenance(included->kept), "origin"));
  return included->pin
             ? "pinned"
             : json_string_value(json_object_get(included->candidate->provenance, "origin"));
}

static bool winner_add(struct release_builder *builder, const struct release_included *included,
                       struct error *error) {
  const struct release_candidate *candidate = included->candidate;
  const char *key_names[KEY_MEMBERS_MAX];
  size_t n = json_array_size(candidate->key_names);
  if (n > KEY_MEMBERS_MAX)
    return error_set(error, "the key of kernel %.100s has %zu names; at most %d are possible",
                     candidate->name, n, KEY_MEMBERS_MAX);
  for (size_t i = 0; i < n; i++)
    key_names[i] = json_string_value(json_array_get(candidate->key_names, i));

  struct release_entry entry = {.name = candidate->name,
                                .kernel = candidate->kernel,
                                .key_names = key_names,
                                .n_key_names = n,
                                .key = candidate->key,
                                .has_ordinal = candidate->job != 0,
                                .ordinal = included->ordinal,
                                .space = candidate->space};
  cleanup_json json_t *pinned = NULL;
  if (included->kept) {
    const struct release_winner *winner = included->kept->winner;
    const struct release_config *config = served_config(included->kept);
    entry.config = config->values;
    entry.has_ordinal = config->has_ordinal;
    entry.ordinal = config->ordinal;
    entry.space = config->space;
    entry.provenance = served_provenance(included->kept);
    entry.ms = winner->ms;
    entry.n_ms = winner->n_ms;
    entry.job = winner->job;
  } else if (included->pin) {
    pinned = json_pack("{s:s, s:O*}", "origin", "pinned", "build", job_build(candidate));
    entry.config = included->pin->config;
    entry.provenance = pinned;
  } else {
    entry.config = candidate->config;
    entry.provenance = candidate->provenance;
    entry.ms = candidate->ms;
    entry.n_ms = candidate->n_ms;
    entry.job = candidate->job;
  }
  return release_builder_add(builder, &entry, error);
}

bool release_from_plan(const struct release_plan *plan, const struct environment *environment,
                       const char *tag, enum regime regime, struct release **ret_release,
                       struct error *error) {
  cleanup_release_builder struct release_builder *builder =
      release_builder_new(environment, tag, regime);
  bool ok = true;
  for (size_t i = 0; ok && i < plan->n_included; i++)
    ok = winner_add(builder, &plan->included[i], error);
  /* Whatever is wrong with winners is wrong with what is stored. */
  return (ok && release_builder_finish(builder, ret_release, error)) ||
         error_become(error, ERROR_DAMAGED);
}
