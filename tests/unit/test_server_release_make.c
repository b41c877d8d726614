/* What a release includes, and why the rest is left out. */
#include <criterion/criterion.h>

#include "server/release/release_make.h"

/* The members of a job that differ between tests; the others follow from them. */
struct made {
  int64_t job;        /* 0: an import */
  const char *kernel; /* a name; two with the same name before '@' are versions of one kernel */
  int key;
  const char *state;
  enum verdict_outcome outcome;
  uint64_t winner;
  const char *space;
};
#define DONE(job, kernel, key, winner) {job, kernel, key, "done", VERDICT_FASTER, winner, NULL}
#define IMPORT(kernel, key, winner) {0, kernel, key, "done", VERDICT_SAME, winner, NULL}
static const char *const plain_space =
    "{\"parameters\": {\"B\": [1, 2, 4, 8]}, \"conditions\": [\"B != 8 or M > 9\"]}";

static struct release_candidates candidates_make(const struct made *made, size_t n) {
  struct release_candidates candidates = {.n = n, .all = xcalloc(n, sizeof *candidates.all)};
  candidates.spaces = xcalloc(n, sizeof(struct space *));
  for (size_t i = 0; i < n; i++) {
    const char *space = made[i].space ? made[i].space : plain_space,
               *at = strchr(made[i].kernel, '@');
    struct error error;
    cleanup_json json_t *json = NULL;
    struct release_candidate *candidate = &candidates.all[i];
    cr_assert(json_parse(space, strlen(space), &json, &error));
    cr_assert(space_parse(json, &candidates.spaces[candidates.n_spaces++], &error), "%s",
              error.message);
    *candidate = (struct release_candidate){
        .job = made[i].job,
        .name =
            at ? xstrndup(made[i].kernel, (size_t)(at - made[i].kernel)) : xstrdup(made[i].kernel),
        .place = {.kernel = digest_of(made[i].kernel, strlen(made[i].kernel))},
        .kernel_order = at ? at[1] : 0,
        .key_names = json_pack("[s]", "M"),
        .key = json_pack("{s:i}", "M", made[i].key),
        .provenance = json_pack("{s:s}", "origin", made[i].job ? "tuned" : "imported"),
        .n_ms = 1,
        .ms = {0.5},
        .space = candidates.spaces[i]->digest,
        .points = candidates.spaces[i],
        .state = xstrdup(made[i].state),
        .finished_us = strcmp(made[i].state, "running") == 0 ? 0 : made[i].job * 1000000,
        .has_winner = strcmp(made[i].state, "done") == 0,
        .ordinal = made[i].winner,
        .config = json_pack("{s:i}", "B", 1 << made[i].winner),
        .outcome = made[i].outcome,
        .n_equivalents = 1,
        .equivalents = xmemdup(&made[i].winner, sizeof made[i].winner),
    };
    candidate->place.key_text = json_canonical(candidate->key);
  }
  return candidates;
}

static bool request_try(const char *text, struct release_request *ret, struct error *error) {
  cleanup_json json_t *json = NULL;
  cr_assert(json_parse(text, strlen(text), &json, error), "%s", error->message);
  return release_request_parse(json, ret, error);
}

/* A plan and all that it borrows. */
struct planned {
  struct release_request request;
  struct release_served served;
  struct release_candidates candidates;
  struct release_plan plan;
};
static void planned_release(struct planned *planned) {
  release_plan_release(&planned->plan);
  release_candidates_release(&planned->candidates);
  release_served_release(&planned->served);
  release_request_release(&planned->request);
}
#define cleanup_planned __attribute__((cleanup(planned_release)))

static struct planned plan_of(const char *request, const struct made *made, size_t n) {
  struct error error;
  struct planned planned = {0};
  cr_assert(request_try(request, &planned.request, &error), "%s", error.message);
  planned.candidates = candidates_make(made, n);
  release_plan(&planned.request, &planned.request.environment, &planned.served, &planned.candidates,
               &planned.plan);
  return planned;
}
#define PLAN(request, ...)                                                                         \
  plan_of(request, (const struct made[]){__VA_ARGS__},                                             \
          ARRAY_LENGTH(((const struct made[]){__VA_ARGS__})))

static const char *const anything = "{\"environment\": {\"cpu\": \"gcc\"}}";

static const char *skipped_reason(const struct planned *planned, int64_t job) {
  for (size_t i = 0; i < planned->plan.n_skipped; i++)
    if (planned->plan.skipped[i].job == job)
      return planned->plan.skipped[i].reason;
  return "";
}
static bool job_is_included(const struct planned *planned, int64_t job) {
  for (size_t i = 0; i < planned->plan.n_included; i++)
    if (planned->plan.included[i].candidate->job == job && !planned->plan.included[i].pin)
      return true;
  return false;
}

static const char *pin_request(const char *kernel, const char *config) {
  static char text[512];
  struct digest digest = digest_of(kernel, strlen(kernel));
  char hash[DIGEST_TEXT_SIZE];
  snprintf(text, sizeof text,
           "{\"environment\": {\"cpu\": \"gcc\"}, \"pins\": [{\"kernel\": \"%s\", \"key\": {\"M\": "
           "1}, \"config\": %s}]}",
           digest_format(&digest, hash), config);
  return text;
}
static const char *kernels_request(const char *first, const char *second) {
  static char text[512];
  struct digest one = digest_of(first, strlen(first)), two = digest_of(second, strlen(second));
  char one_text[DIGEST_TEXT_SIZE], two_text[DIGEST_TEXT_SIZE];
  snprintf(text, sizeof text,
           "{\"environment\": {\"cpu\": \"gcc\"}, \"kernels\": [\"%s\", \"%s\"]}",
           digest_format(&one, one_text), digest_format(&two, two_text));
  return text;
}

Test(release_plan, includes_the_winner_of_every_kernel_and_key) {
  cleanup_planned struct planned planned =
      PLAN(anything, DONE(1, "softmax", 1, 0), DONE(2, "softmax", 2, 1), DONE(3, "matmul", 1, 2));
  cr_assert_eq(planned.plan.n_included, 3);
  cr_assert_eq(planned.plan.n_skipped, 0);
}

Test(release_plan, of_several_done_jobs_includes_the_one_that_finished_last) {
  cleanup_planned struct planned planned =
      PLAN(anything, DONE(17, "softmax", 1, 1), DONE(19, "softmax", 1, 1));
  cr_assert(job_is_included(&planned, 19));
  cr_assert_eq(planned.plan.n_included, 1);
  cr_assert_str_eq(skipped_reason(&planned, 17), "superseded by job 19");
}

Test(release_plan, includes_a_winner_that_is_the_baseline_itself) {
  cleanup_planned struct planned planned =
      PLAN(anything, {1, "softmax", 1, "done", VERDICT_SAME, 0, NULL});
  cr_assert(job_is_included(&planned, 1));
}

Test(release_plan, skips_ambiguous_and_slower_winners) {
  cleanup_planned struct planned planned =
      PLAN(anything, {1, "softmax", 1, "done", VERDICT_AMBIGUOUS, 0, NULL},
           {2, "softmax", 2, "done", VERDICT_SLOWER, 0, NULL});
  cr_assert_eq(planned.plan.n_included, 0);
  cr_assert(string_starts(skipped_reason(&planned, 1), "ambiguous"));
  cr_assert_str_eq(skipped_reason(&planned, 2), "slower than its baseline");
}

Test(release_plan, an_ambiguous_or_failed_retune_leaves_the_older_winner_in) {
  cleanup_planned struct planned planned = PLAN(
      anything, DONE(1, "softmax", 1, 1), {2, "softmax", 1, "done", VERDICT_AMBIGUOUS, 2, NULL},
      {3, "softmax", 1, "failed", VERDICT_SAME, 0, NULL});
  cr_assert(job_is_included(&planned, 1));
  cr_assert(string_starts(skipped_reason(&planned, 2), "ambiguous"));
  cr_assert(strstr(skipped_reason(&planned, 3), "no winner: failed"));
}

Test(release_plan, states_why_jobs_without_a_winner_are_skipped) {
  cleanup_planned struct planned planned =
      PLAN(anything, {1, "softmax", 1, "cancelled", VERDICT_SAME, 0, NULL},
           {2, "softmax", 2, "running", VERDICT_SAME, 0, NULL}, DONE(3, "softmax", 3, 0));
  cr_assert_str_eq(skipped_reason(&planned, 1), "no winner: cancelled");
  cr_assert_str_eq(skipped_reason(&planned, 2), "no winner yet: running");
  planned.candidates.all[2].has_winner = false;
  release_plan_release(&planned.plan);
  release_plan(&planned.request, &planned.request.environment, &planned.served, &planned.candidates,
               &planned.plan);
  cr_assert_str_eq(skipped_reason(&planned, 3), "no winner");
}

Test(release_plan, states_why_a_job_failed) {
  cleanup_planned struct planned planned =
      PLAN(anything, {1, "softmax", 1, "failed", VERDICT_SAME, 0, NULL});
  planned.candidates.all[0].reason = xstrdup("every config crashed");
  release_plan_release(&planned.plan);
  release_plan(&planned.request, &planned.request.environment, &planned.served, &planned.candidates,
               &planned.plan);
  cr_assert_str_eq(skipped_reason(&planned, 1), "no winner: failed: every config crashed");
}

Test(release_plan, as_of_a_time_includes_only_what_had_finished_by_then) {
  cleanup_planned struct planned planned =
      PLAN("{\"environment\": {\"cpu\": \"gcc\"}, \"as_of\": \"1970-01-01T00:00:02Z\"}",
           DONE(2, "softmax", 1, 1), DONE(3, "softmax", 1, 1),
           {4, "softmax", 1, "running", VERDICT_SAME, 0, NULL});
  cr_assert(job_is_included(&planned, 2));
  cr_assert(strstr(skipped_reason(&planned, 3), "not finished"));
  cr_assert(strstr(skipped_reason(&planned, 4), "not finished"));
}

Test(release_plan, skips_both_of_two_jobs_that_contradict_each_other) {
  cleanup_planned struct planned planned =
      PLAN(anything, DONE(1, "softmax", 1, 1), DONE(2, "softmax", 1, 2));
  cr_assert_eq(planned.plan.n_included, 0);
  cr_assert(string_starts(skipped_reason(&planned, 1), "conflicting: job 2 "));
  cr_assert(string_starts(skipped_reason(&planned, 2), "conflicting: job 1 "));
}

Test(release_plan, a_third_campaign_that_agrees_settles_a_conflict) {
  cleanup_planned struct planned planned =
      PLAN(anything, DONE(1, "softmax", 1, 1), DONE(2, "softmax", 1, 2), DONE(3, "softmax", 1, 2));
  cr_assert(job_is_included(&planned, 3));
  cr_assert_str_eq(skipped_reason(&planned, 1), "superseded by job 3");
}

Test(release_plan, jobs_of_different_spaces_do_not_conflict) {
  cleanup_planned struct planned planned =
      PLAN(anything, DONE(1, "softmax", 1, 1),
           {2, "softmax", 1, "done", VERDICT_FASTER, 0, "{\"parameters\": {\"B\": [16, 32]}}"});
  cr_assert(job_is_included(&planned, 2));
}

Test(release_plan, a_pin_comes_before_every_job) {
  cleanup_planned struct planned planned = PLAN(pin_request("softmax", "{\"B\": 4}"),
                                                DONE(1, "softmax", 1, 1), DONE(2, "softmax", 1, 0));
  cr_assert_eq(planned.plan.n_included, 1);
  cr_assert_not_null(planned.plan.included[0].pin);
  cr_assert_eq(planned.plan.included[0].ordinal, 2);
  cr_assert(strstr(skipped_reason(&planned, 1), "by the pin"));
}

Test(release_plan, a_pin_of_a_config_that_only_an_older_jobs_space_has_is_included) {
  cleanup_planned struct planned planned =
      PLAN(pin_request("softmax", "{\"B\": 4}"), DONE(1, "softmax", 1, 1),
           {2, "softmax", 1, "done", VERDICT_FASTER, 0, "{\"parameters\": {\"B\": [16, 32]}}"});
  cr_assert_eq(planned.plan.n_included, 1);
  cr_assert_eq(planned.plan.included[0].candidate->job, 1);
}

Test(release_plan, a_pin_outside_the_space_is_skipped_without_a_replacement) {
  cleanup_planned struct planned planned =
      PLAN(pin_request("softmax", "{\"B\": 5}"), DONE(1, "softmax", 1, 1));
  cr_assert_eq(planned.plan.n_included, 0);
  cr_assert(string_starts(skipped_reason(&planned, 0),
                          "the pin names a config outside the space of job 1: "),
            "%s", skipped_reason(&planned, 0));
}

Test(release_plan, a_pin_that_the_conditions_exclude_is_skipped) {
  cleanup_planned struct planned planned =
      PLAN(pin_request("softmax", "{\"B\": 8}"), DONE(1, "softmax", 1, 1));
  cr_assert(strstr(skipped_reason(&planned, 0), "conditions of job 1"));
}

Test(release_plan, a_pin_whose_condition_fails_is_skipped) {
  cleanup_planned struct planned planned =
      PLAN(pin_request("softmax", "{\"B\": 0}"),
           {1, "softmax", 1, "done", VERDICT_FASTER, 0,
            "{\"parameters\": {\"B\": [1, 0]}, \"conditions\": [\"M // B > 0\"]}"});
  cr_assert(string_starts(skipped_reason(&planned, 0),
                          "a condition cannot be decided for the pinned config: "),
            "%s", skipped_reason(&planned, 0));
}

Test(release_plan, a_pin_of_an_unknown_key_is_skipped) {
  cleanup_planned struct planned planned =
      PLAN(pin_request("softmax", "{\"B\": 4}"), DONE(1, "softmax", 2, 1));
  cr_assert(job_is_included(&planned, 1));
  cr_assert(string_starts(skipped_reason(&planned, 0), "pinned, but no job "));
}

Test(release_plan, of_two_versions_of_a_kernel_includes_the_newer) {
  cleanup_planned struct planned planned = PLAN(
      anything, DONE(1, "softmax@2", 1, 1), DONE(2, "softmax@1", 1, 1), DONE(3, "softmax@1", 2, 1));
  cr_assert_eq(planned.plan.n_included, 1);
  cr_assert(job_is_included(&planned, 1));
  cr_assert(string_starts(skipped_reason(&planned, 2), "superseded by kernel sha256:"));
}

Test(release_plan, an_older_version_stays_where_the_newer_one_has_no_winner) {
  cleanup_planned struct planned planned = PLAN(
      anything, {1, "softmax@2", 1, "failed", VERDICT_SAME, 0, NULL}, DONE(2, "softmax@1", 1, 1));
  cr_assert(job_is_included(&planned, 2));
}

Test(release_plan, versions_that_the_request_names_are_all_included) {
  cleanup_planned struct planned planned =
      PLAN(kernels_request("softmax@1", "softmax@2"), DONE(1, "softmax@2", 1, 1),
           DONE(2, "softmax@1", 1, 1));
  cr_assert_eq(planned.plan.n_included, 2);
}

Test(release_plan, lists_a_named_kernel_that_no_job_tunes) {
  cleanup_planned struct planned planned =
      PLAN(kernels_request("softmax", "matmul"), DONE(1, "softmax", 1, 1));
  cr_assert_eq(planned.plan.n_skipped, 1);
  cr_assert_null(planned.plan.skipped[0].key);
  cr_assert(strstr(planned.plan.skipped[0].reason, "no job tunes"));
}

Test(release_plan, of_no_jobs_is_empty) {
  struct error error;
  cleanup_planned struct planned planned = {0};
  cr_assert(request_try(anything, &planned.request, &error));
  release_plan(&planned.request, &planned.request.environment, &planned.served, &planned.candidates,
               &planned.plan);
  cr_assert_eq(planned.plan.n_included + planned.plan.n_skipped, 0);
}

/* A channel serves B = 1 << ordinal of a space for key 1 of softmax, with this origin and the times
 * of job 99. */
static struct release *served_release(uint64_t ordinal, const struct digest *space,
                                      const char *origin) {
  struct error error;
  struct environment environment = {0};
  struct release *release = NULL;
  const char *const names[] = {"M"};
  const double ms = 0.25;
  cleanup_release_builder struct release_builder *builder =
      release_builder_new(&environment, "default", REGIME_COLD);
  cleanup_json json_t *key = json_pack("{s:i}", "M", 1),
                      *config = json_pack("{s:i}", "B", 1 << ordinal);
  cleanup_json json_t *provenance = json_pack("{s:s}", "origin", origin);
  const struct release_entry entry = {.name = "softmax",
                                      .kernel = digest_of("softmax", strlen("softmax")),
                                      .key_names = names,
                                      .n_key_names = 1,
                                      .key = key,
                                      .config = config,
                                      .has_ordinal = strcmp(origin, "imported") != 0,
                                      .ordinal = ordinal,
                                      .space = *space,
                                      .provenance = provenance,
                                      .ms = &ms,
                                      .n_ms = 1,
                                      .job = 99};
  cr_assert(release_builder_add(builder, &entry, &error), "%s", error.message);
  cr_assert(release_builder_finish(builder, &release, &error), "%s", error.message);
  return release;
}

/* Serves a winner of this origin (NULL space: the jobs' own) and plans the jobs of `planned` again,
 * the newest one with this verdict. */
static void serve_as(struct planned *planned, const char *origin, uint64_t ordinal,
                     const char *space, const char *verdict) {
  struct error error;
  struct digest digest = {0};
  cleanup_json json_t *json = NULL;
  for (size_t i = 0; i < planned->candidates.n; i++)
    if (!space && planned->candidates.all[i].job)
      digest = planned->candidates.all[i].space;
  release_served_init(&planned->served, served_release(ordinal, &digest, origin));
  cr_assert(json_parse(verdict, strlen(verdict), &json, &error), "%s", error.message);
  json_decref(planned->candidates.all[0].verdict);
  planned->candidates.all[0].verdict = json_incref(json);
  release_plan_release(&planned->plan);
  release_plan(&planned->request, &planned->request.environment, &planned->served,
               &planned->candidates, &planned->plan);
}

static void serve(struct planned *planned, uint64_t ordinal, const char *space,
                  const char *verdict) {
  serve_as(planned, "tuned", ordinal, space, verdict);
}

/* Serves config 0 with that class, and plans again. */
static void serve_as_class(struct planned *planned, const char *class, const char *verdict) {
  release_served_release(&planned->served);
  serve(planned, 0, NULL, verdict);
  agreement_write((json_t *)planned->served.winners[0].provenance,
                  &(struct agreement_facts){agreement_parse(class)});
  release_plan_release(&planned->plan);
  release_plan(&planned->request, &planned->request.environment, &planned->served,
               &planned->candidates, &planned->plan);
}

static const char *const replacing = "{\"environment\": {\"cpu\": \"gcc\"}, \"replaces\": {}}";
#define BASELINE_VERDICT(ratio, upper)                                                             \
  "{\"equivalence_set\": [1], \"baseline_ratio\": " #ratio ", \"baseline_upper\": " #upper         \
  ", \"finalists\": []}"

/* Why the served winner is kept; "" when it is not. */
static const char *kept_reason(const struct planned *planned) {
  cr_assert_eq(planned->plan.n_included, 1);
  return planned->plan.included[0].kept_reason ? planned->plan.included[0].kept_reason : "";
}

Test(release_plan, replaces_the_served_winner_by_one_that_is_surely_fast_enough) {
  cleanup_planned struct planned planned = PLAN(replacing, DONE(1, "softmax", 1, 1));
  serve(&planned, 0, NULL, BASELINE_VERDICT(0.95, 0.96));
  cr_assert_str_eq(kept_reason(&planned), "");
  cr_assert(job_is_included(&planned, 1));
}

Test(release_plan, keeps_what_is_served_for_a_gain_that_is_too_small) {
  cleanup_planned struct planned planned = PLAN(replacing, DONE(1, "softmax", 1, 1));
  serve(&planned, 0, NULL, BASELINE_VERDICT(0.99, 0.995));
  cr_assert(strstr(kept_reason(&planned), "less than the 2.00 %"), "%s", kept_reason(&planned));
  cr_assert_eq(planned.plan.n_skipped, 0);
}

Test(release_plan, takes_the_requested_gain_if_it_is_certain) {
  const char *any_gain = "{\"environment\": {\"cpu\": \"gcc\"}, \"replaces\": {\"min_gain\": 0}}";
  cleanup_planned struct planned one = PLAN(any_gain, DONE(1, "softmax", 1, 1));
  cleanup_planned struct planned other = PLAN(any_gain, DONE(1, "softmax", 1, 1));
  serve(&one, 0, NULL, BASELINE_VERDICT(0.99, 0.995));
  serve(&other, 0, NULL, BASELINE_VERDICT(0.90, 1.001));
  cr_assert_str_eq(kept_reason(&one), "");
  cr_assert(strstr(kept_reason(&other), "not known to be faster"), "%s", kept_reason(&other));
}

Test(release_plan, compares_a_served_finalist_with_the_winner) {
  const char *verdict =
      "{\"equivalence_set\": [1], \"baseline_ratio\": 1, \"baseline_upper\": 1, \"finalists\": "
      "[{\"config\": 2, \"winner_ratio\": 0.9, \"winner_upper\": 0.92}]}";
  cleanup_planned struct planned planned = PLAN(replacing, DONE(1, "softmax", 1, 1));
  serve(&planned, 2, NULL, verdict);
  cr_assert_str_eq(kept_reason(&planned), "");
}

Test(release_plan, keeps_what_is_as_good_as_the_winner) {
  cleanup_planned struct planned planned = PLAN(replacing, DONE(1, "softmax", 1, 1));
  serve(&planned, 0, NULL,
        "{\"equivalence_set\": [0, 1], \"baseline_ratio\": 0.97, \"baseline_upper\": 0.98, "
        "\"finalists\": []}");
  cr_assert(strstr(kept_reason(&planned), "equivalence set"), "%s", kept_reason(&planned));
}

Test(release_plan, keeps_what_the_newest_job_did_not_measure) {
  cleanup_planned struct planned planned = PLAN(replacing, DONE(1, "softmax", 1, 1));
  serve(&planned, 2, NULL, BASELINE_VERDICT(0.5, 0.6));
  cr_assert(strstr(kept_reason(&planned), "neither as its baseline nor as a finalist"), "%s",
            kept_reason(&planned));
}

Test(release_plan, finds_a_served_config_of_another_space_by_its_values) {
  cleanup_planned struct planned planned = PLAN(replacing, DONE(1, "softmax", 1, 1));
  serve(&planned, 0, "another", BASELINE_VERDICT(0.5, 0.6));
  cr_assert_str_eq(kept_reason(&planned), "");
}

Test(release_plan, a_winner_that_is_served_already_changes_nothing) {
  cleanup_planned struct planned planned = PLAN(replacing, DONE(1, "softmax", 1, 1));
  serve(&planned, 1, "another", BASELINE_VERDICT(1, 1));
  cr_assert(job_is_included(&planned, 1));
  cr_assert_str_eq(kept_reason(&planned), "");
  cr_assert_eq(planned.plan.included[0].kept, &planned.served.winners[0]);
}

Test(release_plan, keeps_a_config_that_the_newest_jobs_space_does_not_have) {
  cleanup_planned struct planned planned = PLAN(replacing, DONE(1, "softmax", 1, 1));
  serve(&planned, 5, "another", BASELINE_VERDICT(0.5, 0.6));
  cr_assert(strstr(kept_reason(&planned), "space of job 1"));
}

Test(release_plan, a_key_that_is_not_served_needs_no_reason) {
  cleanup_planned struct planned planned = PLAN(replacing, DONE(1, "softmax", 2, 1));
  serve(&planned, 2, NULL, BASELINE_VERDICT(1, 1));
  cr_assert(job_is_included(&planned, 1));
}

Test(release_plan, a_pin_replaces_what_is_served) {
  cleanup_planned struct planned planned =
      PLAN(pin_request("softmax", "{\"B\": 4}"), DONE(1, "softmax", 1, 1));
  serve(&planned, 0, NULL, BASELINE_VERDICT(1, 1));
  cr_assert_str_eq(kept_reason(&planned), "");
  cr_assert_eq(planned.plan.included[0].ordinal, 2);
}

Test(release_plan, keeps_what_is_served_where_no_job_has_a_usable_winner) {
  cleanup_planned struct planned none =
      PLAN(replacing, {1, "softmax", 1, "done", VERDICT_AMBIGUOUS, 1, NULL});
  cleanup_planned struct planned conflict =
      PLAN(replacing, DONE(1, "softmax", 1, 1), DONE(2, "softmax", 1, 2));
  serve(&none, 0, NULL, BASELINE_VERDICT(0.5, 0.6));
  serve(&conflict, 0, NULL, BASELINE_VERDICT(0.5, 0.6));
  cr_assert(strstr(kept_reason(&none), "no job has a winner"));
  cr_assert(strstr(kept_reason(&conflict), "no job has a winner"));
  cr_assert_eq(conflict.plan.n_skipped, 2);
}

/* The served winner is that of job 1; it was measured slower than the default, or is
 * quarantined. */
static void taint(struct planned *planned, bool is_flagged) {
  for (size_t i = 0; i < planned->candidates.n; i++)
    if (planned->candidates.all[i].job == 1) {
      planned->candidates.all[i].flagged_by = is_flagged ? 2 : 0;
      planned->candidates.all[i].flagged_ratio = 1.25;
      planned->candidates.all[i].quarantined = is_flagged ? NULL : xstrdup("its device drifted");
    }
}

Test(release_plan, skips_flagged_and_quarantined_winners) {
  cleanup_planned struct planned flagged = PLAN(anything, DONE(1, "softmax", 1, 1));
  cleanup_planned struct planned quarantined = PLAN(anything, DONE(1, "softmax", 1, 1));
  taint(&flagged, true);
  taint(&quarantined, false);
  serve(&flagged, 1, NULL, BASELINE_VERDICT(1, 1));
  serve(&quarantined, 1, NULL, BASELINE_VERDICT(1, 1));
  cr_assert_eq(flagged.plan.n_included + quarantined.plan.n_included, 0);
  cr_assert(strstr(skipped_reason(&flagged, 1), "flagged: job 2"));
  cr_assert(strstr(skipped_reason(&quarantined, 1), "quarantined: its device drifted"));
}

Test(release_plan, replaces_a_flagged_winner_by_any_usable_one) {
  cleanup_planned struct planned planned =
      PLAN(replacing, DONE(1, "softmax", 1, 0), DONE(2, "softmax", 1, 1));
  taint(&planned, true);
  serve(&planned, 0, NULL, BASELINE_VERDICT(0.999, 1.001));
  cr_assert_str_eq(kept_reason(&planned), "");
  cr_assert(job_is_included(&planned, 2));
}

/* The winner of job 1, config 1, has that class; config 2, a little slower, is bitwise. */
static void agree(struct planned *planned, const char *class) {
  struct release_candidate *job = &planned->candidates.all[0];
  cleanup_json json_t *stored = json_pack("{s:s}", "agreement", class);
  job->facts = agreement_read(stored);
  job->others = json_pack("[{s:i, s:{s:i}, s:s}]", "config", 2, "config_values", "B", 4,
                          "agreement", "bitwise");
}

#define REQUIRING(agreement)                                                                       \
  "{\"environment\": {\"cpu\": \"gcc\"}, \"require_agreement\": \"" agreement "\", \"replaces\": " \
  "{\"min_gain\": 0.02}}"
#define SUBSTITUTE_VERDICT(ratio)                                                                  \
  "{\"equivalence_set\": [1, 2], \"baseline_ratio\": " #ratio                                      \
  ", \"baseline_upper\": 0.99, \"finalists\": [{\"config\": 1, \"ratio\": 1, \"median_us\": "      \
  "500}, "                                                                                         \
  "{\"config\": 2, \"ratio\": 1.015, \"median_us\": 507.5}]}"

Test(release_plan, takes_a_config_of_the_equivalence_set_that_has_the_required_class) {
  cleanup_planned struct planned planned = PLAN(REQUIRING("bitwise"), DONE(1, "softmax", 1, 1));
  cr_assert(strstr(skipped_reason(&planned, 1), "class of agreement is none"), "%s",
            skipped_reason(&planned, 1));
  agree(&planned, "agrees");
  serve(&planned, 0, NULL, SUBSTITUTE_VERDICT(0.9));
  cr_assert_str_eq(kept_reason(&planned), "");
  cr_assert_eq(planned.plan.included[0].ordinal, 2);
  cr_assert_eq(planned.candidates.all[0].ms[0], 0.5075);
  cr_assert(strstr(planned.candidates.all[0].substituted, "config 2 of the equivalence set"));
}

Test(release_plan, a_substitute_must_save_the_same_itself) {
  cleanup_planned struct planned winner = PLAN(REQUIRING("agrees"), DONE(1, "softmax", 1, 1));
  cleanup_planned struct planned substitute = PLAN(REQUIRING("bitwise"), DONE(1, "softmax", 1, 1));
  const char *verdict = SUBSTITUTE_VERDICT(0.97);
  agree(&winner, "agrees");
  agree(&substitute, "agrees");
  serve(&winner, 0, NULL, verdict);
  cr_assert_str_eq(kept_reason(&winner), "");
  cr_assert_eq(winner.plan.included[0].ordinal, 1);
  serve(&substitute, 0, NULL, verdict);
  cr_assert_eq(substitute.plan.included[0].ordinal, 2, "what is served has no class");
  serve_as_class(&substitute, "bitwise", verdict);
  cr_assert(strstr(kept_reason(&substitute), "gains 3.00 %"), "%s", kept_reason(&substitute));
}

Test(release_plan, a_reference_of_its_own_satisfies_interpreted_and_not_bitwise) {
  cleanup_planned struct planned interpreted =
      PLAN(REQUIRING("interpreted"), DONE(1, "softmax", 1, 1));
  cleanup_planned struct planned bitwise = PLAN(REQUIRING("bitwise"), DONE(1, "softmax", 1, 1));
  interpreted.candidates.all[0].facts.has_reference = true;
  bitwise.candidates.all[0].facts.has_reference = true;
  serve(&interpreted, 1, NULL, BASELINE_VERDICT(0.9, 0.91));
  serve(&bitwise, 1, NULL, BASELINE_VERDICT(0.9, 0.91));
  cr_assert(job_is_included(&interpreted, 1));
  cr_assert_eq(bitwise.plan.n_included, 0);
}

Test(release_plan, an_import_has_no_class) {
  cleanup_planned struct planned agrees = PLAN(REQUIRING("agrees"), IMPORT("softmax", 1, 1));
  cleanup_planned struct planned bitwise = PLAN(REQUIRING("bitwise"), IMPORT("softmax", 1, 1));
  cr_assert_eq(agrees.plan.n_included, 1);
  cr_assert_eq(bitwise.plan.n_included, 0);
}

Test(release_plan, a_winner_that_disagrees_is_never_taken) {
  cleanup_planned struct planned planned = PLAN(anything, DONE(1, "softmax", 1, 1));
  planned.candidates.all[0].facts.with_default = AGREEMENT_DISAGREES;
  release_plan_release(&planned.plan);
  release_plan(&planned.request, &planned.request.environment, &planned.served, &planned.candidates,
               &planned.plan);
  cr_assert_eq(planned.plan.n_included, 0);
}

Test(release_plan, a_served_version_of_an_edited_kernel_is_superseded) {
  cleanup_planned struct planned planned =
      PLAN(replacing, DONE(1, "softmax", 1, 1), DONE(2, "softmax@2", 1, 1));
  serve(&planned, 2, NULL, BASELINE_VERDICT(0.5, 0.6));
  cr_assert(job_is_included(&planned, 2));
  cr_assert(string_starts(skipped_reason(&planned, 1), "superseded by kernel sha256:"));
}

/* A row of the table of choices: what is served (NULL: nothing) is B=2; the job (0: none) and the
 * import (0: none) have these values of B; the job's winner takes `ratio` of its baseline's time,
 * which is B=2. */
static const struct chosen {
  const char *served;
  int job;
  double ratio;
  int import;
  enum release_choice choice;
} choices[] = {
    {NULL, 0, 0, 0, RELEASE_NOTHING},
    {NULL, 0, 0, 4, RELEASE_IMPORT},
    {NULL, 4, 1, 0, RELEASE_JOB},
    {NULL, 4, 1, 8, RELEASE_JOB},
    {"imported", 0, 0, 0, RELEASE_SERVED},
    {"imported", 0, 0, 2, RELEASE_SAME},
    {"imported", 0, 0, 4, RELEASE_IMPORT},
    {"imported", 2, 1, 0, RELEASE_JOB},
    {"imported", 2, 1, 4, RELEASE_JOB},
    {"imported", 4, 0.5, 0, RELEASE_JOB},
    {"imported", 4, 0.99, 0, RELEASE_SERVED},
    {"imported", 4, 0.99, 8, RELEASE_SERVED},
    {"tuned", 0, 0, 0, RELEASE_SERVED},
    {"tuned", 0, 0, 2, RELEASE_SERVED},
    {"tuned", 0, 0, 4, RELEASE_SERVED},
    {"tuned", 2, 1, 0, RELEASE_SAME},
    {"tuned", 2, 1, 4, RELEASE_SAME},
    {"tuned", 4, 0.5, 0, RELEASE_JOB},
    {"tuned", 4, 0.5, 8, RELEASE_JOB},
    {"tuned", 4, 0.99, 0, RELEASE_SERVED},
    {"pinned", 2, 1, 0, RELEASE_SAME},
    {"pinned", 4, 0.99, 0, RELEASE_SERVED},
};

Test(release_choice, is_that_of_its_table) {
  for (size_t i = 0; i < ARRAY_LENGTH(choices); i++) {
    const struct chosen *row = &choices[i];
    struct error reason = {0};
    struct release_candidates candidates = candidates_make(
        (const struct made[]){DONE(1, "softmax", 1, 1), IMPORT("softmax", 1, 1)}, 2);
    struct release_candidate *job = &candidates.all[0], *import = &candidates.all[1];
    job->baseline = 1;
    job->verdict = json_pack("{s:[i], s:f, s:f, s:[]}", "equivalence_set", 3, "baseline_ratio",
                             row->ratio, "baseline_upper", row->ratio, "finalists");
    ALWAYS(json_object_set_new(job->config, "B", json_integer(row->job)) == 0);
    ALWAYS(json_object_set_new(import->config, "B", json_integer(row->import)) == 0);
    cleanup_release_served struct release_served served = {0};
    if (row->served)
      release_served_init(&served, served_release(1, &job->space, row->served));

    const struct release_rivals rivals = {.served = row->served ? served.winners : NULL,
                                          .job = row->job ? job : NULL,
                                          .import = row->import ? import : NULL};
    enum release_choice choice = release_choose(&rivals, 0.02, &reason);
    cr_expect_eq(choice, row->choice, "row %zu: %d", i, (int)choice);
    cr_expect_eq(choice == RELEASE_SERVED, reason.message[0] != '\0', "row %zu: \"%s\"", i,
                 reason.message);
    release_candidates_release(&candidates);
  }
}

static struct release *release_of(const struct planned *planned) {
  struct error error;
  struct release *release = NULL;
  cr_assert(release_from_plan(&planned->plan, &planned->request.environment, planned->request.tag,
                              REGIME_COLD, &release, &error),
            "%s", error.message);
  return release;
}

/* "tuned B=4 0.5 17": origin, config, milliseconds and job of the release's only winner. */
static char *only_winner(const struct planned *planned) {
  cleanup_release struct release *release = release_of(planned);
  cr_assert_eq(release->n_winners, 1);
  const struct release_kernel *kernel = &release->kernels[0];
  const struct release_winner *winner = &kernel->winners[0];
  return xasprintf(
      "%s B=%lld %g %lld",
      json_string_value(json_object_get(kernel->provenance[winner->provenance], "origin")),
      json_integer_value(json_object_get(kernel->configs[winner->config].values, "B")),
      winner->n_ms ? winner->ms[0] : 0, (long long)winner->job);
}
static void expect_winner(const struct planned *planned, const char *wanted, const char *origin) {
  cleanup_free char *winner = only_winner(planned);
  cr_expect_str_eq(winner, wanted);
  cr_expect_str_eq(release_origin(&planned->plan.included[0]), origin);
}

Test(release_from_plan, has_what_is_served_where_that_is_kept) {
  cleanup_planned struct planned planned = PLAN(replacing, DONE(1, "softmax", 1, 1));
  serve(&planned, 5, "another", BASELINE_VERDICT(1, 1));
  expect_winner(&planned, "tuned B=32 0.25 99", "tuned");
  cleanup_release struct release *release = release_of(&planned);
  cr_assert_eq(release->kernels[0].configs[0].ordinal, 5);
  cr_assert(digest_equal(&release->kernels[0].configs[0].space,
                         &planned.served.release->kernels[0].configs[0].space));
}

Test(release_from_plan, a_retune_that_changed_nothing_makes_the_release_that_is_served) {
  cleanup_planned struct planned planned =
      PLAN(replacing, DONE(1, "softmax", 1, 1), DONE(2, "softmax", 1, 1));
  serve(&planned, 1, NULL, BASELINE_VERDICT(1, 1));
  expect_winner(&planned, "tuned B=2 0.25 99", "tuned");
  cleanup_planned struct planned alone =
      PLAN(anything, DONE(1, "softmax", 1, 1), DONE(2, "softmax", 1, 1));
  expect_winner(&alone, "tuned B=2 0.5 2", "tuned");
}

Test(release_from_plan, a_pin_of_what_is_served_changes_nothing) {
  cleanup_planned struct planned planned =
      PLAN(pin_request("softmax", "{\"B\": 4}"), DONE(1, "softmax", 1, 1));
  expect_winner(&planned, "pinned B=4 0 0", "pinned");
  serve(&planned, 2, NULL, BASELINE_VERDICT(1, 1));
  expect_winner(&planned, "tuned B=4 0.25 99", "tuned");
}

#define BUILD "sha256:1111111111111111111111111111111111111111111111111111111111111111"

Test(release_from_plan, a_pin_names_the_build_of_the_job_so_that_its_code_is_found) {
  cleanup_planned struct planned planned =
      PLAN(pin_request("softmax", "{\"B\": 4}"), DONE(1, "softmax", 1, 1));
  cr_assert(
      json_object_set_new(planned.candidates.all[0].provenance, "build", json_string(BUILD)) == 0);
  serve_as(&planned, "pinned", 2, NULL,
           BASELINE_VERDICT(1, 1)); /* the same, without a build: it does not stay */
  expect_winner(&planned, "pinned B=4 0 0", "pinned");
  cleanup_release struct release *release = release_of(&planned);
  cr_assert_str_eq(json_string_value(json_object_get(release->kernels[0].provenance[0], "build")),
                   BUILD);
}

/* Jobs 2 and 1, of which the newer one's space lacks the pinned config that is served; one of them
 * has a build. */
static struct planned pin_of_the_older(size_t with_build) {
  struct made newer = {
      2, "softmax", 1, "done", VERDICT_FASTER, 1, "{\"parameters\": {\"B\": [1, 2]}}"};
  struct planned planned =
      PLAN(pin_request("softmax", "{\"B\": 4}"), DONE(1, "softmax", 1, 1), newer);
  cr_assert(json_object_set_new(planned.candidates.all[with_build].provenance, "build",
                                json_string(BUILD)) == 0);
  serve(&planned, 2, NULL, BASELINE_VERDICT(1, 1));
  return planned;
}

Test(release_from_plan, a_pin_has_the_build_of_the_job_whose_space_has_it) {
  cleanup_planned struct planned newer = pin_of_the_older(0), older = pin_of_the_older(1);
  expect_winner(&newer, "tuned B=4 0.25 99", "tuned");
  expect_winner(&older, "pinned B=4 0 0", "pinned");
  cleanup_release struct release *release = release_of(&older);
  cr_assert_str_eq(json_string_value(json_object_get(release->kernels[0].provenance[0], "build")),
                   BUILD);
}

Test(release_from_plan, has_an_import_where_no_job_is_usable) {
  cleanup_planned struct planned none = PLAN(anything, IMPORT("softmax", 1, 2));
  cleanup_planned struct planned ambiguous = PLAN(
      anything, IMPORT("softmax", 1, 2), {1, "softmax", 1, "done", VERDICT_AMBIGUOUS, 1, NULL});
  cleanup_planned struct planned conflict =
      PLAN(anything, DONE(1, "softmax", 1, 1), DONE(2, "softmax", 1, 2), IMPORT("softmax", 1, 3));
  expect_winner(&none, "imported B=4 0.5 0", "imported");
  expect_winner(&ambiguous, "imported B=4 0.5 0", "imported");
  expect_winner(&conflict, "imported B=8 0.5 0", "imported");
  cr_assert(string_starts(skipped_reason(&conflict, 2), "conflicting: job 1 "));
  cleanup_release struct release *release = release_of(&none);
  cr_assert_not(release->kernels[0].configs[0].has_ordinal);
}

Test(release_from_plan, has_a_jobs_winner_rather_than_an_import) {
  cleanup_planned struct planned planned =
      PLAN(anything, IMPORT("softmax", 1, 2), DONE(1, "softmax", 1, 1));
  expect_winner(&planned, "tuned B=2 0.5 1", "tuned");
  cr_assert_str_eq(skipped_reason(&planned, 0), "superseded by job 1");
}

Test(release_from_plan, what_was_imported_and_is_confirmed_becomes_the_jobs) {
  cleanup_planned struct planned planned =
      PLAN(replacing, DONE(1, "softmax", 1, 1), IMPORT("softmax", 1, 1));
  serve_as(&planned, "imported", 1, NULL, BASELINE_VERDICT(1, 1));
  expect_winner(&planned, "tuned B=2 0.5 1", "tuned");
}

Test(release_from_plan,
     an_import_that_is_served_makes_way_for_a_newer_import_and_a_measured_winner) {
  cleanup_planned struct planned same = PLAN(replacing, IMPORT("softmax", 1, 1));
  cleanup_planned struct planned newer = PLAN(replacing, IMPORT("softmax", 1, 2));
  cleanup_planned struct planned tuned =
      PLAN(replacing, IMPORT("softmax", 1, 0), DONE(1, "softmax", 1, 1));
  serve_as(&same, "imported", 1, NULL, "{}");
  serve_as(&newer, "imported", 1, NULL, "{}");
  serve_as(&tuned, "imported", 0, NULL, "{}");
  expect_winner(&same, "imported B=2 0.25 99", "imported");
  expect_winner(&newer, "imported B=4 0.5 0", "imported");
  cr_assert(strstr(kept_reason(&tuned), "has no interval of its winner"), "%s",
            kept_reason(&tuned));
  release_served_release(&tuned.served);
  serve_as(&tuned, "imported", 0, NULL, BASELINE_VERDICT(0.5, 0.6));
  expect_winner(&tuned, "tuned B=2 0.5 1", "tuned");
}

Test(release_from_plan, an_import_never_replaces_what_was_tuned_and_is_served) {
  cleanup_planned struct planned planned = PLAN(replacing, IMPORT("softmax", 1, 2));
  serve(&planned, 1, NULL, "{}");
  expect_winner(&planned, "tuned B=2 0.25 99", "tuned");
  cr_assert(strstr(skipped_reason(&planned, 0), "superseded"));
}

Test(release_from_plan, as_of_a_time_has_no_later_import) {
  cleanup_planned struct planned planned =
      PLAN("{\"environment\": {\"cpu\": \"gcc\"}, \"as_of\": \"1970-01-01T00:00:02Z\"}",
           IMPORT("softmax", 1, 1));
  planned.candidates.all[0].finished_us = 3000000;
  release_plan_release(&planned.plan);
  release_plan(&planned.request, &planned.request.environment, &planned.served, &planned.candidates,
               &planned.plan);
  cr_assert(strstr(skipped_reason(&planned, 0), "not imported"));
}

Test(release_from_plan, a_pin_of_a_key_that_only_an_import_has_may_be_any_config) {
  cleanup_planned struct planned planned =
      PLAN(pin_request("softmax", "{\"C\": 3}"), IMPORT("softmax", 1, 1));
  cleanup_release struct release *release = release_of(&planned);
  cr_assert_eq(json_integer_value(json_object_get(release->kernels[0].configs[0].values, "C")), 3);
  cr_assert_not(release->kernels[0].configs[0].has_ordinal);
  cr_assert(strstr(skipped_reason(&planned, 0), "by the pin"));
}

Test(release_from_plan, external_kernels_of_one_name_are_all_included) {
  cleanup_planned struct planned planned = PLAN(
      anything, IMPORT("softmax@1", 1, 1), IMPORT("softmax@2", 1, 1), DONE(1, "softmax@0", 1, 1));
  for (size_t i = 0; i < planned.candidates.n; i++)
    planned.candidates.all[i].is_external = !planned.candidates.all[i].job;
  release_plan_release(&planned.plan);
  release_plan(&planned.request, &planned.request.environment, &planned.served, &planned.candidates,
               &planned.plan);
  cr_assert_eq(planned.plan.n_included, 3);
}

Test(release_from_plan, has_the_winners_configs_and_the_pins_own) {
  cleanup_planned struct planned planned = PLAN(pin_request("softmax", "{\"B\": 4}"),
                                                DONE(1, "softmax", 1, 1), DONE(2, "softmax", 2, 0));
  cleanup_release struct release *release = release_of(&planned);
  cr_assert_eq(release->n_winners, 2);
  cr_assert_str_eq(release->tag, "default");
  const struct release_kernel *kernel = &release->kernels[0];
  cr_assert_eq(kernel->configs[kernel->winners[0].config].ordinal, 2);
  cr_assert_eq(
      json_integer_value(json_object_get(kernel->configs[kernel->winners[0].config].values, "B")),
      4);
  cr_assert_eq(
      json_integer_value(json_object_get(kernel->configs[kernel->winners[1].config].values, "B")),
      1);
}

Test(release_from_plan, does_not_depend_on_the_order_of_jobs) {
  cleanup_planned struct planned one =
      PLAN(anything, DONE(1, "softmax", 1, 1), DONE(2, "matmul", 2, 0));
  cleanup_planned struct planned other =
      PLAN(anything, DONE(2, "matmul", 2, 0), DONE(1, "softmax", 1, 1));
  cleanup_release struct release *first = release_of(&one), *second = release_of(&other);
  cr_assert_str_eq(first->bytes, second->bytes);
}

Test(release_from_plan, a_winner_that_a_release_cannot_represent_is_an_error) {
  struct error error;
  struct release *release = NULL;
  cleanup_planned struct planned planned = PLAN(anything, IMPORT("softmax", 1, 1));
  planned.candidates.all[0].ms[0] = -1;
  cr_assert_not(release_from_plan(&planned.plan, &planned.request.environment, "default",
                                  REGIME_COLD, &release, &error));
  for (int i = 0; i < KEY_MEMBERS_MAX; i++)
    json_array_append_new(planned.candidates.all[0].key_names, json_string("N"));
  cr_assert_not(release_from_plan(&planned.plan, &planned.request.environment, "default",
                                  REGIME_COLD, &release, &error));
  cr_assert_neq(strstr(error.message, "names; at most"), NULL, "%s", error.message);
}

Test(release_candidate, reads_the_verdict_that_the_job_stored) {
  struct error error;
  struct release_candidate candidate = {0};
  cleanup_json json_t *verdict = json_pack("{s:s, s:[i, i], s:f}", "verdict", "SAME",
                                           "equivalence_set", 17, 19, "winner_us", 203.1);
  candidate.verdict = verdict;
  cr_assert(release_candidate_read_verdict(&candidate, &error));
  cr_assert_eq(candidate.outcome, VERDICT_SAME);
  cr_assert_eq(candidate.n_equivalents, 2);
  cr_assert_eq(candidate.equivalents[1], 19);
  cr_assert_eq(candidate.n_ms, 1);
  cr_assert_eq(candidate.ms[0], 0.2031);
  free(candidate.equivalents);
}

Test(release_candidate, refuses_a_verdict_without_an_outcome_or_with_an_unknown_one) {
  struct error error;
  struct release_candidate candidate = {0};
  cleanup_json json_t *none = json_pack("{s:[]}", "equivalence_set");
  cleanup_json json_t *unknown = json_pack("{s:s, s:[]}", "verdict", "BETTER", "equivalence_set");
  candidate.verdict = none;
  cr_assert_not(release_candidate_read_verdict(&candidate, &error));
  candidate.verdict = unknown;
  cr_assert_not(release_candidate_read_verdict(&candidate, &error));
  cr_assert(strstr(error.message, "BETTER"));
}

/* The error's pointer for a request that must be refused. */
static const char *refused_at(const char *text) {
  static struct error error;
  struct release_request request;
  cr_assert_not(request_try(text, &request, &error), "%s", text);
  return error.pointer;
}

Test(release_request, refuses_malformed_requests) {
  cr_assert_str_eq(refused_at("{}"), "/environment");
  cr_assert_str_eq(refused_at("{\"environment\": {\"cpu\": 1}}"), "/environment/cpu");
  cr_assert_str_eq(refused_at("{\"environment\": {}, \"tags\": \"a\"}"), "/tags");
  cr_assert_str_eq(refused_at("{\"environment\": {}, \"tag\": \"\"}"), "/tag");
  cr_assert_str_eq(refused_at("{\"environment\": {}, \"as_of\": \"yesterday\"}"), "/as_of");
  cr_assert_str_eq(refused_at("{\"environment\": {}, \"kernels\": []}"), "/kernels");
  cr_assert_str_eq(refused_at("{\"environment\": {}, \"kernels\": [\"softmax\"]}"), "/kernels/0");
  cr_assert_str_eq(refused_at("{\"environment\": {}, \"pins\": [{\"key\": {}}]}"),
                   "/pins/0/kernel");
  cr_assert_str_eq(refused_at("{\"environment\": {}, \"replaces\": {\"channels\": 1}}"),
                   "/replaces/channels");
  cr_assert_str_eq(refused_at("{\"environment\": {}, \"replaces\": {\"channel\": \"No\"}}"),
                   "/replaces/channel");
  cr_assert_str_eq(refused_at("{\"environment\": {}, \"replaces\": {\"min_gain\": 1}}"),
                   "/replaces/min_gain");
}

Test(release_request, refuses_too_many_pins) {
  struct error error;
  struct release_request request;
  cleanup_json json_t *pins = json_array();
  for (int i = 0; i <= RELEASE_PINS_MAX; i++)
    json_array_append_new(pins, json_object());
  cleanup_json json_t *json = json_pack("{s:{}, s:O}", "environment", "pins", pins);
  cr_assert_not(release_request_parse(json, &request, &error));
  cr_assert_str_eq(error.pointer, "/pins");
}

#define HASH_A "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define HASH_B "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define PIN(hash, key, config)                                                                     \
  "{\"kernel\": \"" hash "\", \"key\": " key ", \"config\": " config "}"

Test(release_request, refuses_two_pins_for_one_kernel_and_key) {
  cr_assert_str_eq(refused_at("{\"environment\": {}, \"pins\": [" PIN(
                       HASH_A, "{\"M\": 1, \"N\": 2}",
                       "{\"B\": 1}") "," PIN(HASH_B, "{\"M\": 1, \"N\": 2}",
                                             "{\"B\": 1}") "," PIN(HASH_A, "{\"N\": 2, \"M\": 1}",
                                                                   "{\"B\": 2}") "]}"),
                   "/pins/2");
}

Test(release_request, refuses_a_pin_of_a_kernel_that_kernels_leaves_out) {
  cr_assert_str_eq(refused_at("{\"environment\": {}, \"kernels\": [\"" HASH_B
                              "\"], \"pins\": [" PIN(HASH_A, "{\"M\": 1}", "{\"B\": 1}") "]}"),
                   "/pins/0");
}

Test(release_request, refuses_a_pin_whose_key_or_config_is_not_flat) {
  cr_assert_str_eq(
      refused_at("{\"environment\": {}, \"pins\": [" PIN(HASH_A, "{\"M\": []}", "{}") "]}"),
      "/pins/0/key/M");
  cr_assert_str_eq(
      refused_at("{\"environment\": {}, \"pins\": [" PIN(HASH_A, "{\"M\": 1}", "{\"B\": []}") "]}"),
      "/pins/0/config");
  cr_assert_str_eq(
      refused_at("{\"environment\": {}, \"pins\": [" PIN(HASH_A, "{\"M\": 1}", "1") "]}"),
      "/pins/0/config");
  cr_assert_str_eq(refused_at("{\"environment\": {}, \"pins\": [" PIN(HASH_A, "1", "{}") "]}"),
                   "/pins/0/key");
}

Test(release_request, refuses_kernels_that_are_no_array) {
  cr_assert_str_eq(refused_at("{\"environment\": {}, \"kernels\": {}}"), "/kernels");
  cr_assert_str_eq(refused_at("{\"environment\": {}, \"kernels\": null}"), "/kernels");
}

Test(release_request, replaces_a_channel_only_on_request) {
  struct error error;
  cleanup_release_request struct release_request none = {0}, null = {0}, usual = {0}, other = {0};
  cr_assert(request_try("{\"environment\": {}}", &none, &error));
  cr_assert(request_try("{\"environment\": {}, \"replaces\": null}", &null, &error));
  cr_assert(request_try("{\"environment\": {}, \"replaces\": {}}", &usual, &error));
  cr_assert(
      request_try("{\"environment\": {}, \"replaces\": {\"channel\": \"night\", \"min_gain\": 0}}",
                  &other, &error));
  cr_expect_null(none.replaces.channel);
  cr_expect_null(null.replaces.channel);
  cr_expect_str_eq(usual.replaces.channel, "stable");
  cr_expect_eq(usual.replaces.min_gain, VERDICT_MIN_GAIN);
  cr_expect_str_eq(other.replaces.channel, "night");
  cr_expect_eq(other.replaces.min_gain, 0);
}

Test(release_request, refuses_a_malformed_time) {
  cr_assert_str_eq(refused_at("{\"environment\": {}, \"as_of\": \"2026-02-29T07:05:00Z\"}"),
                   "/as_of");
}
