/* Which winners a release includes, and why others are left out. Pure functions, any thread. */
#include "server/release/release_make.h"

#include "common/cache/signatures.h"
#include "server/release/release_agreement.h"

#define RECORD_OF struct release_candidate
static const struct field candidate_fields[] = {
    MEMBER(INTEGER, job),
    MEMBER(TEXT, name),
    MEMBER_AS("kernel", DIGEST, place.kernel),
    MEMBER(BOOL, is_external),
    MEMBER(BOOL, is_self_timed),
    MEMBER(INTEGER, kernel_order),
    MEMBER(JSON, key_names),
    MEMBER(JSON, key),
    MEMBER_AS("key_text", TEXT, place.key_text, FIELD_NO_COLUMN),
    MEMBER(DIGEST, space),
    MEMBER(TEXT, run),
    MEMBER(TEXT, state),
    MEMBER(TEXT, reason),
    MEMBER(INTEGER, finished_us),
    MEMBER(BOOL, has_winner),
    MEMBER(INTEGER, ordinal),
    MEMBER(INTEGER, baseline),
    MEMBER(JSON, config),
    MEMBER(JSON, provenance),
    MEMBER(JSON, verdict),
    MEMBER(INTEGER, flagged_by),
    MEMBER(NUMBER, flagged_ratio),
    MEMBER(TEXT, quarantined),
    MEMBER(TEXT, build_removed_by),
    MEMBER(BOOL, has_reference),
    MEMBER(TEXT, agreement),
    MEMBER(BOOL, interpreted),
    MEMBER(JSON, others),
    MEMBER(RANGES, disagreeing),
};
#undef RECORD_OF
const struct record release_candidate_record =
    RECORD(NULL, struct release_candidate, candidate_fields);

void release_candidates_release(struct release_candidates *candidates) {
  for (size_t i = 0; i < candidates->n; i++) {
    free(candidates->all[i].equivalents);
    free(candidates->all[i].substituted);
    record_release(&release_candidate_record, &candidates->all[i]);
  }

  free(candidates->all);
  for (size_t i = 0; i < candidates->n_spaces; i++)
    space_free(candidates->spaces[i]);
  free(candidates->spaces);
  *candidates = (struct release_candidates){0};
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

  candidate->outcome = VERDICT_FASTER;
  while (strcmp(verdict_outcome_name(candidate->outcome), outcome) != 0)
    if (candidate->outcome++ == VERDICT_AMBIGUOUS)
      return error_at(error, "/verdict", "\"%.32s\" is no outcome of a verdict", outcome);

  candidate->n_equivalents = json_array_size(set);
  candidate->equivalents = xcalloc(candidate->n_equivalents + 1, sizeof *candidate->equivalents);
  for (size_t i = 0; i < candidate->n_equivalents; i++)
    candidate->equivalents[i] = (uint64_t)json_integer_value(json_array_get(set, i));

  release_candidate_set_time(candidate, winner_us);
  cleanup_json json_t *stored = json_pack("{s:s*, s:b}", "agreement", candidate->agreement,
                                          "interpreted", candidate->interpreted);
  candidate->facts = agreement_read(stored);
  candidate->facts.has_reference = candidate->has_reference;
  agreement_write(candidate->provenance, &candidate->facts);
  return true;
}

void release_served_init(struct release_served *served, struct release *release) {
  *served = (struct release_served){
      .release = release, .winners = xcalloc(release->n_winners + 1, sizeof *served->winners)};
  for (size_t i = 0; i < release->n_kernels; i++)
    for (size_t j = 0; j < release->kernels[i].n_winners; j++) {
      const struct release_kernel *kernel = &release->kernels[i];
      const struct release_winner *winner = &kernel->winners[j];
      cleanup_json json_t *key = release_key_object(kernel, winner);
      served->winners[served->n++] =
          (struct release_served_winner){{kernel->hash, json_canonical(key)},
                                         winner,
                                         &kernel->configs[winner->config],
                                         kernel->provenance[winner->provenance]};
    }
  qsort(served->winners, served->n, sizeof *served->winners, release_places_compare);
}

void release_served_release(struct release_served *served) {
  for (size_t i = 0; i < served->n; i++)
    free(served->winners[i].place.key_text);
  free(served->winners);
  if (served->release)
    release_free(served->release);
  *served = (struct release_served){0};
}

static const struct release_pin *pin_of(const struct release_request *request,
                                        const struct release_candidate *candidate) {
  const struct records *pins = &request->pins;
  return pins->n ? bsearch(&candidate->place, pins->all, pins->n, sizeof(struct release_pin),
                           release_places_compare)
                 : NULL;
}

static const struct release_served_winner *served_of(const struct release_served *served,
                                                     const struct release_candidate *candidate) {
  return served->n ? bsearch(&candidate->place, served->winners, served->n, sizeof *served->winners,
                             release_places_compare)
                   : NULL;
}

/* Whether the config's ordinal refers to the candidate's space. */
static bool is_of_its_space(const struct release_config *config,
                            const struct release_candidate *candidate) {
  return config->has_ordinal && digest_equal(&config->space, &candidate->space);
}

/* The next override of a kind that concerns the candidate's kernel and key. */
static const struct override *override_of(const struct release_request *request,
                                          enum override_kind kind, const struct override *last,
                                          const struct release_candidate *candidate,
                                          const json_t *config) {
  return override_next(request->overrides, kind, last, &candidate->place.kernel, candidate->name,
                       candidate->place.key_text, config);
}

bool release_needs_space(const struct release_request *request, const struct release_served *served,
                         const struct release_candidate *candidate) {
  const struct release_served_winner *winner = served_of(served, candidate);
  return candidate->job &&
         (pin_of(request, candidate) || candidate->disagreeing.n ||
          (winner && !is_of_its_space(winner->config, candidate)) ||
          override_of(request, OVERRIDE_PIN, NULL, candidate, NULL) ||
          (candidate->has_winner && release_ban_of(request, candidate, candidate->config)));
}

static const char *origin_of(const json_t *provenance) {
  return json_string_value(json_object_get(provenance, "origin"));
}

const char *release_origin(const struct release_included *included) {
  return included->kept  ? origin_of(included->kept->provenance)
         : included->pin ? "pinned"
                         : origin_of(included->candidate->provenance);
}

void release_plan_release(struct release_plan *plan) {
  for (size_t i = 0; i < plan->n_included; i++)
    free(plan->included[i].kept_reason);
  for (size_t i = 0; i < plan->n_skipped; i++)
    free(plan->skipped[i].reason);
  for (size_t i = 0; i < plan->n_standing; i++) {
    free(plan->standing[i]->standing);
    free(plan->standing[i]);
  }
  free(plan->standing);
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

/* Skips a pin with a reason, which is taken over. */
static void plan_skip_pin(struct release_plan *plan, const struct release_candidate *candidate,
                          const struct release_pin *pin, char *reason) {
  plan_skip(plan,
            (struct release_skipped){candidate->name, pin->place.kernel, pin->key, 0, reason});
}

/* "the config is banned by override 3 of alice: REASON" */
static char *banned_text(const char *what, const struct override *ban) {
  cleanup_free char *text = override_text(ban);
  return xasprintf("%s is banned by %s", what, text);
}

/* The pin of an override for the candidate's kernel and key: the most specific one whose config is
 * not banned. NULL: none. */
static const struct release_pin *standing_pin(const struct release_request *request,
                                              const struct release_candidate *candidate,
                                              struct release_plan *plan) {
  for (const struct override *it = NULL;
       (it = override_of(request, OVERRIDE_PIN, it, candidate, NULL));) {
    struct release_pin *pin = xcalloc(1, sizeof *pin);
    *pin = (struct release_pin){.place = candidate->place,
                                .key = candidate->key,
                                .config = it->config,
                                .standing = override_text(it)};
    GROW(plan->standing, plan->n_standing, plan->standing_capacity);
    plan->standing[plan->n_standing++] = pin;

    const struct override *ban = release_ban_of(request, candidate, it->config);
    if (!ban)
      return pin;
    cleanup_free char *what = xasprintf("the pin of %s is not used: its config", pin->standing);
    plan_skip_pin(plan, candidate, pin, banned_text(what, ban));
  }
  return NULL;
}

static void plan_skip_candidate(struct release_plan *plan,
                                const struct release_candidate *candidate, char *reason) {
  plan_skip(plan, (struct release_skipped){candidate->name, candidate->place.kernel, candidate->key,
                                           candidate->job, reason});
}

static int compare_names_and_places(const struct release_candidate *left,
                                    const struct release_candidate *right) {
  int order = strcmp(left->name, right->name);
  return order ? order : release_places_compare(&left->place, &right->place);
}

/* A group has one (kernel, key): first the jobs that have finished, the last one first, then the
 * unfinished ones, then an import. */
static int candidates_compare(const void *a, const void *b) {
  const struct release_candidate *left = a, *right = b;
  int order = compare_names_and_places(left, right);
  if (order)
    return order;
  if (!left->job != !right->job)
    return left->job ? -1 : 1;
  if (left->finished_us != right->finished_us)
    return left->finished_us > right->finished_us ? -1 : 1;
  return left->job > right->job ? -1 : 1;
}

/* Why a candidate's winner cannot be released (the caller's), or NULL. */
static char *unusable_reason(const struct release_request *request,
                             const struct release_group *group,
                             const struct release_candidate *candidate) {
  if (request->as_of && (candidate->finished_us == 0 || candidate->finished_us > request->as_of_us))
    return xasprintf("not %s as of that time", candidate->job ? "finished" : "imported");

  if (request->refuse_self_timed && candidate->is_self_timed)
    return xstrdup("self-timed: a kernel in c runs in the process that times it and could state "
                   "any time; pin a config, or leave out \"refuse_self_timed\"");
  if (strcmp(candidate->state, "failed") == 0)
    return xasprintf("no winner: failed: %s",
                     candidate->reason ? candidate->reason : "no reason was given");
  if (strcmp(candidate->state, "cancelled") == 0)
    return xstrdup("no winner: cancelled");
  if (strcmp(candidate->state, "done") != 0)
    return xasprintf("no winner yet: %s", candidate->state);
  if (!candidate->has_winner)
    return candidate->reason ? xasprintf("no winner: %s", candidate->reason) : xstrdup("no winner");

  if (candidate->build_removed_by)
    return xasprintf("its build was removed by %s; build and tune the kernel again",
                     candidate->build_removed_by);
  if (candidate->quarantined)
    return xasprintf("quarantined: %s; submit the job again with another run",
                     candidate->quarantined);
  if (candidate->flagged_by)
    return xasprintf(
        "flagged: job %lld measured this winner slower than the default, by a factor of %.3f",
        (long long)candidate->flagged_by, candidate->flagged_ratio);
  if (candidate->outcome == VERDICT_AMBIGUOUS)
    return xstrdup("ambiguous: the winner is neither faster than the baseline nor the same beyond "
                   "doubt; submit the job again with another run when the machine is quiet, or pin "
                   "a config");
  if (candidate->outcome == VERDICT_SLOWER)
    return xstrdup("slower than its baseline");

  const struct override *ban = release_ban_of(request, candidate, candidate->config);
  if (ban)
    return banned_text(candidate->n_equivalents > 1
                           ? "the winner, as the rest of its equivalence set,"
                           : "the winner",
                       ban);

  const struct release_candidate *by =
      release_contradiction(group, candidate->finished_us, candidate->config);
  if (by)
    return xasprintf("disagrees: job %lld found later that this config computes something else; "
                     "tune the key again with another run",
                     (long long)by->job);
  if (!release_facts_satisfy(request, &candidate->facts))
    return xasprintf("its class of agreement is %s, as is that of its equals, and %s is required; "
                     "pin a config, or require less",
                     agreement_class(&candidate->facts),
                     agreement_requirement_names[request->require_agreement]);
  return NULL;
}

/* Jobs of different spaces cannot contradict each other. */
static bool jobs_agree(const struct release_candidate *one, const struct release_candidate *other) {
  if (!digest_equal(&one->space, &other->space))
    return true;

  for (size_t i = 0; i < one->n_equivalents; i++)
    for (size_t j = 0; j < other->n_equivalents; j++)
      if (one->equivalents[i] == other->equivalents[j])
        return true;
  return false;
}

enum release_choice release_choose(const struct release_rivals *rivals, double min_gain,
                                   struct error *ret_reason) {
  const struct release_served_winner *served = rivals->served;
  const struct release_candidate *job = rivals->job, *import = rivals->import;
  if (!served)
    return job ? RELEASE_JOB : import ? RELEASE_IMPORT : RELEASE_NOTHING;

  bool was_imported = string_equal(origin_of(served->provenance), "imported");
  if (!job && !(import && was_imported)) {
    error_set(ret_reason, "no job has a winner to replace it");
    return RELEASE_SERVED;
  }

  /* Equal configs of different spaces make the same release, too. */
  if (json_equal((job ? job : import)->config, served->config->values)) {
    struct agreement_facts facts = agreement_read(served->provenance);
    bool is_restated = job && (facts.with_default != job->facts.with_default ||
                               facts.interpreted != job->facts.interpreted);
    return job && (was_imported || is_restated) ? RELEASE_JOB : RELEASE_SAME;
  }
  if (!job)
    return RELEASE_IMPORT;

  uint64_t ordinal = served->config->ordinal;
  if (!is_of_its_space(served->config, job) &&
      !space_config_from_json(job->points, served->config->values, &ordinal, ret_reason)) {
    error_set(ret_reason, "the space of job %lld does not have the config that is served",
              (long long)job->job);
    return RELEASE_SERVED;
  }

  /* The verdict is about the winner: a substitute needs the same gain, so the winner more. */
  if (job->slower > 0)
    min_gain = 1 - (1 - min_gain) / job->slower;
  return verdict_json_replaces(job->verdict, job->baseline, ordinal, min_gain, ret_reason)
             ? RELEASE_JOB
             : RELEASE_SERVED;
}

/* Whether the served winner must not be kept: its build was removed, the newest job with this
 * winner has been flagged or quarantined since, a job after its own found that it disagrees, or the
 * request refuses self-timed winners or its class of agreement. */
static bool served_is_unusable(const struct release_request *request,
                               const struct release_served_winner *served,
                               const struct release_group *group) {
  const struct release_candidate *all = group->all;
  struct agreement_facts facts = agreement_read(served->provenance);
  int64_t chosen_us = 0; /* when its job finished; 0: no job chose it, or that is not known */
  facts.has_reference = all->has_reference;
  for (size_t i = 0; i < group->n; i++)
    if (all[i].job && all[i].job == served->winner->job) {
      chosen_us = all[i].finished_us;
      if (all[i].build_removed_by)
        return true;
    }
  if ((request->refuse_self_timed && all->is_self_timed) ||
      !release_facts_satisfy(request, &facts) ||
      release_ban_of(request, all, served->config->values) ||
      release_contradiction(group, chosen_us, served->config->values))
    return true;

  for (size_t i = 0; i < group->n; i++)
    if (all[i].has_winner && json_equal(all[i].config, served->config->values))
      return all[i].flagged_by || all[i].quarantined;
  return false;
}

/* Plans one (kernel, key) without a pin. Each of the `n` candidates is included, or listed with the
 * served winner that it does not replace, or skipped with a reason. */
static void group_plan(const struct release_request *request,
                       const struct release_served_winner *served,
                       const struct release_candidate *group, size_t n, struct release_plan *plan) {
  const struct release_group candidates = {group, n};
  cleanup_free char **reasons =
      xcalloc(n, sizeof *reasons); /* why each candidate is skipped, or NULL */
  const struct release_candidate *jobs[2] = {NULL, NULL}; /* the two newest usable ones */
  struct release_rivals rivals = {
      .served = served && !served_is_unusable(request, served, &candidates) ? served : NULL};
  for (size_t i = 0; i < n; i++) {
    reasons[i] = unusable_reason(request, &candidates, &group[i]);
    if (reasons[i])
      continue;
    if (!group[i].job)
      rivals.import = &group[i];
    else if (!jobs[0] || !jobs[1])
      jobs[jobs[0] != NULL] = &group[i];
  }

  if (!jobs[1] || jobs_agree(jobs[0], jobs[1]))
    rivals.job = jobs[0];
  else
    for (size_t i = 0; i < 2; i++)
      reasons[jobs[i] - group] =
          xasprintf("conflicting: job %lld measured the same space and no config is among the best "
                    "of both; run the job once more or pin a config",
                    (long long)jobs[1 - i]->job);

  struct error reason;
  enum release_choice choice = release_choose(&rivals, request->replaces.min_gain, &reason);
  bool is_kept = choice == RELEASE_SAME || choice == RELEASE_SERVED;
  const struct release_candidate *considered = /* the candidate that is not skipped */
      rivals.job || choice == RELEASE_SERVED ? rivals.job : rivals.import;
  if (choice != RELEASE_NOTHING)
    plan_include(plan, (struct release_included){
                           .candidate = considered ? considered : group,
                           .kept = is_kept ? rivals.served : NULL,
                           .kept_reason = choice == RELEASE_SERVED ? xstrdup(reason.message) : NULL,
                           .ordinal = rivals.job ? rivals.job->ordinal : 0});

  for (size_t i = 0; i < n; i++) {
    const struct release_candidate *by = group[i].job ? jobs[0] : considered;
    if (!reasons[i] && &group[i] != considered)
      reasons[i] = !by       ? xstrdup("superseded by what is served")
                   : by->job ? xasprintf("superseded by job %lld", (long long)by->job)
                             : xstrdup("superseded by an import");
    if (reasons[i])
      plan_skip_candidate(plan, &group[i], reasons[i]);
  }
}

/* Finds the pinned config in the job's space. Returns why it is not a valid config of it (the
 * caller's), or NULL. */
static char *pin_find(const struct release_pin *pin, const struct environment *environment,
                      const struct release_candidate *job, uint64_t *ret_ordinal) {
  struct error error;
  cleanup_key struct key key = {0};
  bool holds = false;
  if (!space_config_from_json(job->points, pin->config, ret_ordinal, &error))
    return xasprintf("the pin names a config outside the space of job %lld: %s",
                     (long long)job->job, error.message);

  ALWAYS(key_parse(pin->key, NULL, 0, &key, &error)); /* pins_finish wrote it from a key */
  const struct space_facts facts = {&key, environment->gpu, environment->arch};
  if (!space_is_valid(job->points, &facts, *ret_ordinal, &holds, &error))
    return xasprintf("a condition cannot be decided for the pinned config: %s", error.message);
  return holds ? NULL
               : xasprintf("the pin names a config that the conditions of job %lld's space exclude",
                           (long long)job->job);
}

/* The build of a job: it has every config of the space, also a pinned one. NULL: none. */
static json_t *job_build(const struct release_candidate *candidate) {
  return candidate->job ? json_object_get(candidate->provenance, "build") : NULL;
}

/* Plans one (kernel, key) with a pin. The ordinal of the config is that in the space of the newest
 * job whose space has it. If there are only imports, any config may be pinned. False: it is
 * skipped.
 */
static bool pinned_plan(const struct release_pin *pin, const struct environment *environment,
                        const struct release_served_winner *served,
                        const struct release_candidate *group, size_t n,
                        struct release_plan *plan) {
  cleanup_free char *first_reason = NULL;
  bool is_served = served && json_equal(served->config->values, pin->config), found = false;
  for (size_t i = 0; i < n && !found && (i == 0 || group[i].job); i++) { /* imports come last */
    uint64_t ordinal = 0;
    cleanup_free char *reason =
        group[i].job ? pin_find(pin, environment, &group[i], &ordinal) : NULL;
    if (reason) {
      if (!first_reason)
        first_reason = TAKE(reason);
      continue;
    }

    bool stays =
        is_served && (json_object_get(served->provenance, "build") || !job_build(&group[i]));
    plan_include(plan,
                 (struct release_included){&group[i], pin, stays ? served : NULL, NULL, ordinal});
    found = true;
  }

  if (!found && pin->standing)
    plan_skip_pin(plan, group, pin,
                  xasprintf("the pin of %s is not used: %s", pin->standing, first_reason));
  else if (!found)
    plan_skip_pin(plan, group, pin, TAKE(first_reason));
  for (size_t i = 0; i < n && (found || !pin->standing); i++)
    plan_skip_candidate(plan, &group[i], xstrdup("superseded by the pin"));
  return found;
}

/* For each kernel name (the included winners are sorted by it), drops the winners of all kernels
 * but the newest, except of kernels that the request names. External kernels are never dropped:
 * they are not versions of each other, because many imported tables have the same function name. */
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
      if (candidate->is_external || digest_equal(&candidate->place.kernel, &newest->place.kernel) ||
          release_names_kernel(request, &candidate->place.kernel)) {
        plan->included[kept++] = *included;
        continue;
      }
      free(included->kept_reason);
      plan_skip(plan, (struct release_skipped){
                          candidate->name, candidate->place.kernel, candidate->key,
                          included->pin ? 0 : candidate->job,
                          xasprintf("superseded by kernel %s of the same name, which is newer; "
                                    "name this one in \"kernels\" to release it",
                                    digest_format(&newest->place.kernel, text))});
    }
  }

  plan->n_included = kept;
}

void release_plan(const struct release_request *request, const struct environment *environment,
                  const struct release_served *served, struct release_candidates *candidates,
                  struct release_plan *ret_plan) {
  const struct release_pin *pins = request->pins.all;
  cleanup_free bool *pin_is_used = xcalloc(request->pins.n + 1, sizeof *pin_is_used);
  cleanup_free bool *has_job = xcalloc(request->kernel_texts.n + 1, sizeof *has_job);
  *ret_plan = (struct release_plan){0};

  for (size_t i = 0; i < candidates->n; i++)
    release_candidate_substitute(request, &candidates->all[i]);
  if (candidates->n)
    qsort(candidates->all, candidates->n, sizeof *candidates->all, candidates_compare);
  for (size_t first = 0, end; first < candidates->n; first = end) {
    const struct release_candidate *group = &candidates->all[first];
    for (end = first + 1; end < candidates->n; end++)
      if (compare_names_and_places(group, &candidates->all[end]) != 0)
        break;
    for (size_t i = 0; i < request->kernel_texts.n; i++)
      has_job[i] |= digest_equal(&group->place.kernel, &request->kernels[i]);

    /* A pin of the request is used, or skipped with the reason, and nothing takes its place; but
     * that of an override does not take a key out of a release. */
    const struct release_pin *pin = pin_of(request, group);
    const struct release_served_winner *winner = served_of(served, group);
    const struct override *ban = pin ? release_ban_of(request, group, pin->config) : NULL;
    if (pin)
      pin_is_used[pin - pins] = true;
    if (ban)
      plan_skip_pin(ret_plan, group, pin, banned_text("the pinned config", ban));
    if (!pin)
      pin = standing_pin(request, group, ret_plan);
    if (!pin || ban ||
        (!pinned_plan(pin, environment, winner, group, end - first, ret_plan) && pin->standing))
      group_plan(request, winner, group, end - first, ret_plan);
  }

  kernels_supersede(request, ret_plan);

  for (size_t i = 0; i < request->pins.n; i++)
    if (!pin_is_used[i])
      plan_skip(ret_plan,
                (struct release_skipped){
                    NULL, pins[i].place.kernel, pins[i].key, 0,
                    xstrdup("pinned, but no job of this environment and tag has this kernel and "
                            "key, so its space is not known; submit the job first, or import a "
                            "table that has it")});
  for (size_t i = 0; i < request->kernel_texts.n; i++)
    if (!has_job[i])
      plan_skip(ret_plan,
                (struct release_skipped){NULL, request->kernels[i], NULL, 0,
                                         xstrdup("no job tunes this kernel for this environment "
                                                 "and tag, and no import has it")});
}

static bool winner_add(struct release_builder *builder, const struct release_included *included,
                       struct error *error) {
  const struct release_candidate *candidate = included->candidate;
  const struct release_served_winner *kept = included->kept;
  const char *key_names[KEY_MEMBERS_MAX];
  size_t n = json_array_size(candidate->key_names);
  if (n > KEY_MEMBERS_MAX)
    return error_set(error, "the key of kernel %.100s has %zu names; at most %d are possible",
                     candidate->name, n, KEY_MEMBERS_MAX);

  for (size_t i = 0; i < n; i++)
    key_names[i] = json_string_value(json_array_get(candidate->key_names, i));

  struct release_entry entry = {.name = candidate->name,
                                .kernel = candidate->place.kernel,
                                .key_names = key_names,
                                .n_key_names = n,
                                .key = candidate->key,
                                .has_ordinal = candidate->job != 0,
                                .ordinal = included->ordinal,
                                .space = candidate->space};
  cleanup_json json_t *pinned = NULL;
  if (kept) {
    entry.config = kept->config->values;
    entry.has_ordinal = kept->config->has_ordinal;
    entry.ordinal = kept->config->ordinal;
    entry.space = kept->config->space;
    entry.provenance = kept->provenance;
    entry.ms = kept->winner->ms;
    entry.n_ms = kept->winner->n_ms;
    entry.job = kept->winner->job;
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

  /* Any error in the winners is an error in the stored data. */
  return (ok && release_builder_finish(builder, ret_release, error)) ||
         error_become(error, ERROR_DAMAGED);
}
