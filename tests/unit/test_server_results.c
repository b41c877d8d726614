/* The results that an agent posts: refusals have the pointer of the member. */
#include <criterion/criterion.h>

#include <math.h>

#include "server/measurement/measurements.h"

TestSuite(results);

static bool parsed(const char *text, struct results *ret, struct error *error) {
  cleanup_json json_t *json = NULL;
  cr_assert(json_parse(text, strlen(text), &json, error), "%s", error->message);
  return results_parse(json, ret, error);
}

/* Posts one measurement and expects it to be refused at `pointer`. */
static void refuses(const char *measurement, const char *pointer) {
  struct results results = {0};
  struct error error = {0};
  cleanup_free char *text = xasprintf("{\"epoch\": 1, \"measurements\": [%s]}", measurement);
  cr_expect_not(parsed(text, &results, &error), "%s", measurement);
  cr_expect_str_eq(error.pointer, pointer, "%s: %s at %s", measurement, error.message,
                   error.pointer);
}

#define CORRECT(members)                                                                           \
  "{\"seq\": 1, \"config\": 4, \"outcome\": \"correct\", \"samples_us\": [10, 20, 30], "           \
  "\"baseline_us\": [20, 20, "                                                                     \
  "20]" members "}"

Test(results, a_measurement_has_the_median_of_its_paired_ratios) {
  struct results results = {0};
  struct error error;
  cr_assert(parsed("{\"epoch\": 3, \"measurements\": [" CORRECT("") "], \"done\": true}", &results,
                   &error),
            "%s", error.message);
  cr_expect_eq(results.epoch, 3);
  cr_expect(results.done);
  cr_assert_eq(results.measurements.n, 1);
  cr_expect_float_eq(results.posted[0].ratio, 1.0, 1e-12);
  results_release(&results);
}

static int64_t opening_read(const char *member, struct error *error) {
  struct results results = {0};
  cleanup_free char *body =
      xasprintf("{\"epoch\": 1, \"measurements\": [], \"done\": true%s}", member);
  int64_t opening_us = parsed(body, &results, error) ? results.opening_us : -1;
  results_release(&results);
  return opening_us;
}

Test(results, a_post_states_what_opening_the_kernel_took) {
  struct error error = {0};
  cr_expect_eq(opening_read("", &error), 0, "older agents say nothing");
  cr_expect_eq(opening_read(", \"opening_us\": 1500", &error), 1500);
  static const char *const refused[] = {"null", "-1", "1.5", "\"1500\"", "1000000000000001"};
  for (size_t i = 0; i < ARRAY_LENGTH(refused); i++) {
    cleanup_free char *member = xasprintf(", \"opening_us\": %s", refused[i]);
    cr_expect_eq(opening_read(member, &error), -1, "%s", refused[i]);
    cr_expect_str_eq(error.pointer, "/opening_us", "%s", error.message);
  }
}

Test(results, what_is_not_stated_is_not_known) {
  struct results results = {0};
  struct error error;
  cr_assert(
      parsed("{\"epoch\": 3, \"measurements\": [" CORRECT(", \"vgprs\": 64, \"spills\": null") "]}",
             &results, &error));
  const struct measurement *measurement = RESULTS_MEASUREMENT(&results, 0);
  cr_expect_eq(measurement->vgprs, 64);
  cr_expect_eq(measurement->spills, FIELD_NONE);
  cr_expect_eq(measurement->process, FIELD_NONE);
  cr_expect_not(results.done);
  results_release(&results);
}

Test(results, the_body_digest_tells_a_repetition_from_a_contradiction) {
  struct results results = {0};
  struct error error;
  cr_assert(parsed(
      "{\"epoch\": 1, \"measurements\": [{\"seq\": 1, \"config\": 1, \"outcome\": \"compile\"},"
      " {\"outcome\": \"compile\", \"config\": 1, \"seq\": 2}]}",
      &results, &error));
  cr_expect_not(digest_equal(&results.posted[0].body, &results.posted[1].body));
  results_release(&results);
}

#define FAILURE(rest) "{\"seq\": 1, \"config\": 1, \"outcome\": \"compile\"" rest "}"

static enum baseline_failure failure_read(const char *measurement) {
  struct results results = {0};
  struct error error;
  cleanup_free char *body = xasprintf("{\"epoch\": 1, \"measurements\": [%s]}", measurement);
  cr_assert(parsed(body, &results, &error), "%s", error.message);
  enum baseline_failure failure = results.posted[0].baseline_failure;
  results_release(&results);
  return failure;
}

Test(results, a_baseline_that_failed_is_a_member) {
  cr_expect_eq(failure_read(FAILURE(", \"detail\": \"crashed\", \"baseline_failed\": true")),
               BASELINE_FAILED);
  cr_expect_eq(failure_read(FAILURE(", \"detail\": \"crashed\", \"baseline_failed\": false")),
               BASELINE_WORKED);
  cr_expect_eq(failure_read(FAILURE(", \"detail\": \"crashed\"")), BASELINE_WORKED);
  refuses(FAILURE(", \"baseline_failed\": true"), "/measurements/0/detail");
  refuses(FAILURE(", \"detail\": \"crashed\", \"baseline_failed\": 1"),
          "/measurements/0/baseline_failed");
  refuses(CORRECT(", \"baseline_failed\": true"), "/measurements/0/baseline_failed");
}

Test(results, a_detail_reports_a_failed_baseline_only_as_old_agents_write_it) {
  cr_expect_eq(failure_read(FAILURE(", \"detail\": \"baseline: crashed\"")),
               BASELINE_FAILED_BY_DETAIL);
  cr_expect_eq(
      failure_read(FAILURE(", \"detail\": \"baseline.hip:12:5: error: unknown type name\"")),
      BASELINE_WORKED);
  cr_expect_eq(failure_read(FAILURE(", \"detail\": \"baseline\"")), BASELINE_WORKED);
}

#define OBJECT "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

Test(results, a_correct_measurement_may_name_its_object_and_the_conditions) {
  struct results results = {0};
  struct error error;
  char text[DIGEST_TEXT_SIZE];
  cr_assert(parsed("{\"epoch\": 1, \"measurements\": [" CORRECT(
                       ", \"object\": \"" OBJECT
                       "\", \"conditions\": {\"power_w\": 310.5, \"clock_mhz\": 2100}") "]}",
                   &results, &error),
            "%s", error.message);
  const struct measurement *measurement = RESULTS_MEASUREMENT(&results, 0);
  cr_assert_not(digest_is_none(&measurement->object));
  cr_expect_str_eq(digest_format(&measurement->object, text), OBJECT);
  cleanup_free char *conditions = json_canonical(measurement->conditions);
  cr_expect_str_eq(conditions, "{\"clock_mhz\":2100,\"power_w\":310.5}");
  results_release(&results);
}

Test(results, without_object_and_conditions_there_are_none) {
  struct results results = {0};
  struct error error;
  cr_assert(parsed(
      "{\"epoch\": 1, \"measurements\": [" CORRECT(", \"object\": null, \"conditions\": null") "]}",
      &results, &error));
  cr_expect(digest_is_none(&RESULTS_MEASUREMENT(&results, 0)->object));
  cr_expect_null(RESULTS_MEASUREMENT(&results, 0)->conditions);
  results_release(&results);
}

Test(results, object_and_conditions_belong_to_the_body) {
  static const char *const members[] = {"", ", \"object\": \"" OBJECT "\"", ", \"conditions\": {}",
                                        ", \"conditions\": {\"power_w\": 1}"};
  struct digest bodies[ARRAY_LENGTH(members)];
  for (size_t i = 0; i < ARRAY_LENGTH(members); i++) {
    struct results results = {0};
    struct error error;
    cleanup_free char *text =
        xasprintf("{\"epoch\": 1, \"measurements\": [" CORRECT("%s") "]}", members[i]);
    cr_assert(parsed(text, &results, &error), "%s", error.message);
    bodies[i] = results.posted[0].body;
    results_release(&results);
    for (size_t k = 0; k < i; k++)
      cr_expect_not(digest_equal(&bodies[i], &bodies[k]), "%s and %s", members[i], members[k]);
  }
}

Test(results, wrong_objects_and_conditions_are_refused_with_a_pointer) {
  refuses("{\"seq\": 1, \"config\": 1, \"outcome\": \"runtime\", \"object\": \"" OBJECT "\"}",
          "/measurements/0/object");
  refuses(CORRECT(", \"object\": \"sha256:a\""), "/measurements/0/object");
  refuses(CORRECT(", \"conditions\": [1]"), "/measurements/0/conditions");
}

Test(results, conditions_of_4_KiB_are_kept_and_larger_ones_refused) {
  for (int extra = 0; extra < 2; extra++) {
    struct results results = {0};
    struct error error;
    int width = MEASUREMENT_CONDITIONS_MAX - (int)strlen("{\"a\":\"\"}") + extra;
    cleanup_free char *measurement =
        xasprintf(CORRECT(", \"conditions\": {\"a\": \"%0*d\"}"), width, 0);
    cleanup_free char *text = xasprintf("{\"epoch\": 1, \"measurements\": [%s]}", measurement);
    if (extra) {
      refuses(measurement, "/measurements/0/conditions");
    } else {
      cr_assert(parsed(text, &results, &error), "%s", error.message);
      cleanup_free char *conditions = json_canonical(RESULTS_MEASUREMENT(&results, 0)->conditions);
      cr_expect_eq(strlen(conditions), MEASUREMENT_CONDITIONS_MAX);
      results_release(&results);
    }
  }
}

Test(results, a_refusal_leaves_nothing_of_what_was_read_before_it) {
  refuses(CORRECT(", \"conditions\": {\"power_w\": 310}") ", {\"seq\": 0}", "/measurements/1/seq");
}

Test(results, an_agent_may_report_that_a_config_violates_constraints) {
  struct results results = {0};
  struct error error;
  cr_assert(parsed(
      "{\"epoch\": 1, \"measurements\": [{\"seq\": 1, \"config\": 1, \"outcome\": \"constraints\","
      " \"detail\": \"baseline: 98304 bytes of LDS, the device has 65536\"}]}",
      &results, &error));
  cr_expect_eq(RESULTS_MEASUREMENT(&results, 0)->outcome, OUTCOME_CONSTRAINTS);
  cr_expect_eq(results.posted[0].baseline_failure, BASELINE_FAILED_BY_DETAIL);
  results_release(&results);
}

Test(results, an_empty_post_is_taken_only_with_done) {
  struct results results = {0};
  struct error error;
  cr_expect(parsed("{\"epoch\": 1, \"measurements\": [], \"done\": true}", &results, &error));
  results_release(&results);
  cr_expect_not(parsed("{\"epoch\": 1, \"measurements\": []}", &results, &error));
  cr_expect_str_eq(error.pointer, "/measurements");
}

Test(results, a_seq_occurs_once_in_a_post) {
  struct results results = {0};
  struct error error;
  cr_expect_not(parsed(
      "{\"epoch\": 1, \"measurements\": [{\"seq\": 1, \"config\": 1, \"outcome\": \"compile\"},"
      " {\"seq\": 1, \"config\": 2, \"outcome\": \"compile\"}]}",
      &results, &error));
  cr_expect_neq(strstr(error.message, "occurs twice"), NULL);
}

Test(results, wrong_members_are_refused_with_a_pointer) {
  refuses("7", "/measurements/0");
  refuses("{\"config\": 1, \"outcome\": \"compile\"}", "/measurements/0/seq");
  refuses("{\"seq\": 0, \"config\": 1, \"outcome\": \"compile\"}", "/measurements/0/seq");
  refuses("{\"seq\": 1, \"config\": -1, \"outcome\": \"compile\"}", "/measurements/0/config");
  refuses("{\"seq\": 1, \"config\": 9223372036854775807, \"outcome\": \"compile\"}",
          "/measurements/0/config");
  refuses("{\"seq\": 1, \"config\": 1, \"outcome\": \"fine\"}", "/measurements/0/outcome");
  refuses("{\"seq\": 1, \"config\": 1, \"outcome\": \"compile\", \"extra\": 1}",
          "/measurements/0/extra");
  refuses(CORRECT(", \"clock_mhz\": -1"), "/measurements/0/clock_mhz");
  refuses(CORRECT(", \"device_us\": -1"), "/measurements/0/device_us");
  refuses(CORRECT(", \"vgprs\": 1.5"), "/measurements/0/vgprs");
}

Test(results, samples_are_paired_finite_and_positive) {
  refuses("{\"seq\": 1, \"config\": 1, \"outcome\": \"correct\"}", "/measurements/0/samples_us");
  refuses("{\"seq\": 1, \"config\": 1, \"outcome\": \"correct\", \"samples_us\": [1], "
          "\"baseline_us\": []}",
          "/measurements/0/baseline_us");
  refuses("{\"seq\": 1, \"config\": 1, \"outcome\": \"correct\", \"samples_us\": [1, 0], "
          "\"baseline_us\": [1, 1]}",
          "/measurements/0/samples_us/1");
  refuses("{\"seq\": 1, \"config\": 1, \"outcome\": \"correct\", \"samples_us\": [1], "
          "\"baseline_us\": [\"x\"]}",
          "/measurements/0/baseline_us/0");
  refuses("{\"seq\": 1, \"config\": 1, \"outcome\": \"correct\", \"samples_us\": [1e300], "
          "\"baseline_us\": [1]}",
          "/measurements/0/samples_us/0");
}

Test(results, too_many_samples_are_refused) {
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  fputs("{\"seq\": 1, \"config\": 1, \"outcome\": \"correct\", \"samples_us\": [1", out);
  for (int i = 0; i < MEASUREMENT_SAMPLES_MAX; i++)
    fputs(",1", out);
  fputs("]}", out);
  fclose(out);
  refuses(text, "/measurements/0/samples_us");
  free(text);
}

Test(results, too_long_a_detail_is_refused) {
  cleanup_free char *detail = xcalloc(20001, 1);
  memset(detail, 'x', 20000);
  cleanup_free char *text = xasprintf(
      "{\"seq\": 1, \"config\": 1, \"outcome\": \"compile\", \"detail\": \"%s\"}", detail);
  refuses(text, "/measurements/0/detail");
}

Test(results, too_many_measurements_are_refused) {
  cleanup_json json_t *post = json_pack("{s:i, s:[]}", "epoch", 1, "measurements");
  for (int i = 0; i <= RESULTS_MEASUREMENTS_MAX; i++)
    json_array_append_new(
        json_object_get(post, "measurements"),
        json_pack("{s:i, s:i, s:s}", "seq", i + 1, "config", i, "outcome", "compile"));
  struct results results;
  struct error error;
  cr_expect_not(results_parse(post, &results, &error));
  cr_expect_str_eq(error.pointer, "/measurements");
}

Test(results, the_epoch_is_required_and_positive) {
  struct results results;
  struct error error;
  cr_expect_not(parsed("{\"measurements\": [], \"done\": true}", &results, &error));
  cr_expect_str_eq(error.pointer, "/epoch");
  cr_expect_not(parsed("{\"epoch\": 0, \"measurements\": [], \"done\": true}", &results, &error));
  cr_expect_str_eq(error.pointer, "/epoch");
}

#define BODY_DIGEST "sha256:315166c66cf88c43aec6ac50e691fe5ea3dd7699fd1be30e0bbfd44a479cf8c7"

Test(results, a_body_has_the_digest_that_it_had_in_every_release) {
  /* Agents keep what they could not post while the server is upgraded: what was stored before must
   * be known again. */
  struct results results = {0};
  struct error error;
  char text[DIGEST_TEXT_SIZE];
  cr_assert(parsed(
      "{\"epoch\": 1, \"measurements\": [" CORRECT(", \"vgprs\": null, \"clock_mhz\": 2100.5") "]}",
      &results, &error));
  cr_expect_str_eq(digest_format(&results.posted[0].body, text), BODY_DIGEST);
  results_release(&results);
}

/* A held lease of configs 0 to 9 of which 3 to 9 remain, at epoch 2; the baseline is config 40. */
static struct lease lease_of(enum lease_state state) {
  struct lease lease = {.job = 7,
                        .process = 1,
                        .round = 0,
                        .epoch = 2,
                        .epoch_opening_us = 100,
                        .state = state,
                        .baseline = 40,
                        .best_ratio = NAN};
  for (uint64_t config = 0; config < 10; config++)
    config_ranges_add(&lease.configs, config);
  for (uint64_t config = 3; config < 10; config++)
    config_ranges_add(&lease.remaining, config);
  return lease;
}

/* Judges a post of epoch 2 with these measurements and members. Releases the lease. */
static struct judgement judge_for(struct lease lease, const char *measurements, const char *more,
                                  const struct known_measurement *known, size_t n_known) {
  struct results results = {0};
  struct error error;
  cleanup_free char *text =
      xasprintf("{\"epoch\": 2, \"measurements\": [%s]%s}", measurements, more);
  cr_assert(parsed(text, &results, &error), "%s: %s", text, error.message);
  struct judgement judgement = results_judge(&results, 5, &lease, known, n_known);
  results_release(&results);
  config_ranges_release(&lease.configs);
  config_ranges_release(&lease.remaining);
  return judgement;
}

static struct judgement judge(const char *measurements, const char *more, enum lease_state state,
                              const struct known_measurement *known, size_t n_known) {
  return judge_for(lease_of(state), measurements, more, known, n_known);
}

#define FAST(seq, config, more)                                                                    \
  "{\"seq\": " #seq ", \"config\": " #config ", \"outcome\": \"correct\", \"samples_us\": [10],"   \
  " \"baseline_us\": [20], \"device_us\": 5" more "}"

Test(judgement, accepted_measurements_leave_the_lease_and_are_summed) {
  struct judgement it = judge(
      FAST(1, 3, "") "," FAST(
          2, 4, ", \"end\": \"far\"") ", {\"seq\": 3, \"config\": 5, \"outcome\": \"compile\"}",
      ", \"opening_us\": 130", LEASE_HELD, NULL, 0);
  cr_expect_eq(it.verdict, POST_TAKEN);
  cr_expect_eq(it.n_fresh, 3);
  cr_expect_eq(it.n_late, 0);
  cr_expect_float_eq(it.best_ratio, 0.5, 1e-12);
  cr_assert(it.is_change);
  cr_expect_eq(it.change.from, LEASE_HELD);
  cr_expect_eq(it.change.to, LEASE_HELD);
  cr_expect_eq(config_ranges_count(&it.change.less), 3);
  cr_expect_eq(it.change.device_us, 10);
  cr_expect_eq(it.change.opening_us, 30, "more than was stated before");
  cr_expect_eq(it.change.outcomes[OUTCOME_CORRECT], 2);
  cr_expect_eq(it.change.outcomes[OUTCOME_COMPILE], 1);
  cr_expect_eq(it.change.fruitless_less, LEASE_FRUITFUL);
  judgement_release(&it);

  it = judge(FAST(1, 3, ", \"end\": \"behind\""), "", LEASE_HELD, NULL, 0);
  cr_expect(isnan(it.best_ratio), "what left early has no say in the best ratio");
  judgement_release(&it);
}

Test(judgement, a_config_counts_once_and_only_while_it_remains) {
  struct judgement it =
      judge(FAST(1, 2, "") "," FAST(2, 3, "") "," FAST(3, 3, ""), "", LEASE_HELD, NULL, 0);
  cr_expect_eq(it.verdict, POST_TAKEN);
  cr_expect_eq(it.n_fresh, 3);
  cr_expect_eq(it.n_late, 2);
  cr_expect(it.is_late[0] && !it.is_late[1] && it.is_late[2]);
  cr_expect_eq(config_ranges_count(&it.change.less), 1);
  judgement_release(&it);
}

Test(judgement, a_lease_is_done_with_its_last_config_and_open_when_its_holder_is_done_before) {
  struct judgement it =
      judge(FAST(1, 3, "") "," FAST(2, 4, "") "," FAST(3, 5, "") "," FAST(4, 6, "") "," FAST(
                5, 7, "") "," FAST(6, 8, "") "," FAST(7, 9, ""),
            "", LEASE_HELD, NULL, 0);
  cr_expect_eq(it.change.to, LEASE_DONE);
  judgement_release(&it);
  it = judge("", ", \"done\": true", LEASE_HELD, NULL, 0);
  cr_expect(it.is_change);
  cr_expect_eq(it.change.to, LEASE_OPEN);
  cr_expect_eq(it.change.fruitless_less, 0, "nothing was measured");
  judgement_release(&it);
}

Test(judgement, of_a_lease_that_is_not_held_everything_is_late) {
  static const enum lease_state states[] = {LEASE_OPEN, LEASE_DONE, LEASE_CANCELLED};
  for (size_t i = 0; i < ARRAY_LENGTH(states); i++) {
    struct judgement it =
        judge(FAST(1, 3, ""), ", \"done\": true, \"opening_us\": 500", states[i], NULL, 0);
    cr_expect_eq(it.verdict, POST_LATE);
    cr_expect_eq(it.n_late, 1);
    cr_expect(it.is_change, "that something was written");
    cr_expect_eq(it.change.to, states[i]);
    cr_expect_eq(it.change.opening_us, 0);
    cr_expect_eq(config_ranges_count(&it.change.less), 0);
    cr_expect(isnan(it.best_ratio));
    judgement_release(&it);
  }
}

static struct digest body_of(const char *measurement) {
  struct results results = {0};
  struct error error;
  cleanup_free char *text = xasprintf("{\"epoch\": 2, \"measurements\": [%s]}", measurement);
  cr_assert(parsed(text, &results, &error));
  struct digest body = results.posted[0].body;
  results_release(&results);
  return body;
}

Test(judgement, a_repetition_changes_nothing_and_a_contradiction_is_refused) {
  struct known_measurement known = {1, body_of(FAST(1, 3, ""))};
  struct judgement it = judge(FAST(1, 3, ""), ", \"opening_us\": 100", LEASE_HELD, &known, 1);
  cr_expect_eq(it.verdict, POST_TAKEN);
  cr_expect_eq(it.n_fresh, 0);
  cr_expect_not(it.is_change);
  judgement_release(&it);

  it = judge(FAST(2, 50, "") "," FAST(1, 4, ""), "", LEASE_HELD, &known, 1);
  cr_expect_eq(it.verdict, POST_CONFLICT, "before what is not the lease's");
  cr_expect_eq(it.refusal.kind, ERROR_CONFLICT);
  cr_expect_str_eq(it.refusal.pointer, "/measurements/1");
  cr_expect_eq(it.n_fresh, 0);
  judgement_release(&it);
}

Test(judgement, of_an_epoch_that_has_passed_everything_is_late_though_the_lease_is_held) {
  struct lease lease = lease_of(LEASE_HELD);
  lease.epoch = 3;
  struct judgement it = judge_for(lease, FAST(1, 3, ""), ", \"done\": true", NULL, 0);
  cr_expect_eq(it.verdict, POST_LATE);
  cr_expect_eq(it.n_late, 1);
  cr_expect_eq(it.change.to, LEASE_HELD);
  judgement_release(&it);
}

Test(judgement, a_lost_leases_measurements_are_refused_each_time_and_accepted_ones_never) {
  struct digest body = body_of(FAST(1, 3, ""));
  for (int is_known = 0; is_known < 2; is_known++)
    for (int is_refused = 0; is_refused < 2; is_refused++) {
      struct known_measurement known = {1, body, is_refused};
      struct judgement it = judge(FAST(1, 3, ""), "", LEASE_OPEN, &known, (size_t)is_known);
      cr_expect_eq(it.verdict, POST_LATE);
      cr_expect_eq(it.is_refused, !is_known || is_refused);
      judgement_release(&it);
    }
}

static void refused_as_outside(const char *measurement, const char *word) {
  struct judgement it = judge(measurement, "", LEASE_HELD, NULL, 0);
  cr_expect_eq(it.verdict, POST_OUTSIDE, "%s", measurement);
  cr_expect_eq(it.refusal.kind, ERROR_INVALID);
  cr_expect_str_eq(it.refusal.pointer, "/measurements/0");
  cr_expect_not_null(strstr(it.refusal.message, word), "%s", it.refusal.message);
  cr_expect_not(it.is_change);
  judgement_release(&it);
}

Test(judgement, a_regime_that_is_not_the_jobs_is_refused_and_one_that_is_absent_is_the_jobs) {
  struct judgement it =
      judge(FAST(1, 3, "") "," FAST(2, 4, ", \"regime\": \"warm\""), "", LEASE_HELD, NULL, 0);
  cr_expect_eq(it.verdict, POST_OUTSIDE);
  cr_expect_str_eq(it.refusal.pointer, "/measurements/1/regime");
  cr_expect_not_null(strstr(it.refusal.message, "measured warm, but its job is cold"));
  judgement_release(&it);

  it = judge(FAST(1, 3, "") "," FAST(2, 4, ", \"regime\": \"cold\""), "", LEASE_HELD, NULL, 0);
  cr_expect_eq(it.verdict, POST_TAKEN);
  judgement_release(&it);
}

#define BROKEN(config, more)                                                                       \
  "{\"seq\": 1, \"config\": " #config ", \"outcome\": \"runtime\", \"detail\": " more "}"

Test(judgement, what_was_not_leased_is_refused_but_for_the_baselines_failure) {
  refused_as_outside(FAST(1, 10, ""), "config 10");
  refused_as_outside(FAST(1, 40, ""), "config 40");
  refused_as_outside(FAST(1, 3, ", \"process\": 0"), "process 0");
  refused_as_outside(FAST(1, 3, ", \"round\": 1"), "round 1");
  refused_as_outside(BROKEN(3, "\"crashed\", \"baseline_failed\": true"), "baseline is config 40");
  refused_as_outside(BROKEN(41, "\"baseline: crashed\""), "config 41");

  static const char *const taken[] = {BROKEN(40, "\"crashed\", \"baseline_failed\": true"),
                                      BROKEN(40, "\"baseline: crashed\""),
                                      FAST(1, 3, ", \"process\": 1, \"round\": 0")};
  for (size_t i = 0; i < ARRAY_LENGTH(taken); i++) {
    struct judgement it = judge(taken[i], "", LEASE_HELD, NULL, 0);
    cr_expect_eq(it.verdict, POST_TAKEN, "%s", taken[i]);
    judgement_release(&it);
  }
}

Test(judgement, a_lease_that_does_not_exist_and_an_epoch_that_was_never_granted) {
  struct results results = {.epoch = 3};
  struct lease lease = lease_of(LEASE_HELD);
  struct judgement it = results_judge(&results, 5, NULL, NULL, 0);
  cr_expect_eq(it.verdict, POST_UNKNOWN);
  cr_expect_eq(it.refusal.kind, ERROR_MISSING);
  it = results_judge(&results, 5, &lease, NULL, 0);
  cr_expect_eq(it.verdict, POST_NEVER);
  cr_expect_not(it.is_change);
  config_ranges_release(&lease.configs);
  config_ranges_release(&lease.remaining);
}
