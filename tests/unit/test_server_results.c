/* What an agent posts of a lease: each refusal names the member. */
#include <criterion/criterion.h>

#include "server/measurement/results.h"

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
  cr_expect_str_eq(error.pointer, pointer, "%s: %s at %s", measurement, error.message, error.pointer);
}

#define CORRECT(members)                                                                                               \
  "{\"seq\": 1, \"config\": 4, \"outcome\": \"correct\", \"samples_us\": [10, 20, 30], \"baseline_us\": [20, 20, "     \
  "20]" members "}"

Test(results, a_measurement_has_the_median_of_its_paired_ratios) {
  struct results results = {0};
  struct error error;
  cr_assert(parsed("{\"epoch\": 3, \"measurements\": [" CORRECT("") "], \"done\": true}", &results, &error), "%s",
            error.message);
  cr_expect_eq(results.epoch, 3);
  cr_expect(results.done);
  cr_assert_eq(results.n, 1);
  cr_expect_float_eq(results.measurements[0].ratio, 1.0, 1e-12);
  results_release(&results);
}

static int64_t opening_read(const char *member, struct error *error) {
  struct results results = {0};
  cleanup_free char *body = xasprintf("{\"epoch\": 1, \"measurements\": [], \"done\": true%s}", member);
  int64_t opening_us = parsed(body, &results, error) ? results.opening_us : -1;
  results_release(&results);
  return opening_us;
}

Test(results, a_post_says_what_opening_the_kernel_took) {
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
      parsed("{\"epoch\": 3, \"measurements\": [" CORRECT(", \"vgprs\": 64, \"spills\": null") "]}", &results, &error));
  const struct measurement *measurement = &results.measurements[0];
  cr_expect_eq(measurement->vgprs, 64);
  cr_expect_eq(measurement->spills, MEASUREMENT_NONE);
  cr_expect_eq(measurement->process, MEASUREMENT_NONE);
  cr_expect_not(results.done);
  results_release(&results);
}

Test(results, the_body_digest_tells_a_repetition_from_a_contradiction) {
  struct results results = {0};
  struct error error;
  cr_assert(parsed("{\"epoch\": 1, \"measurements\": [{\"seq\": 1, \"config\": 1, \"outcome\": \"compile\"},"
                   " {\"outcome\": \"compile\", \"config\": 1, \"seq\": 2}]}",
                   &results, &error));
  cr_expect_not(digest_equal(&results.measurements[0].body, &results.measurements[1].body));
  results_release(&results);
}

#define FAILURE(rest) "{\"seq\": 1, \"config\": 1, \"outcome\": \"compile\"" rest "}"

static enum baseline_failure failure_read(const char *measurement) {
  struct results results = {0};
  struct error error;
  cleanup_free char *body = xasprintf("{\"epoch\": 1, \"measurements\": [%s]}", measurement);
  cr_assert(parsed(body, &results, &error), "%s", error.message);
  enum baseline_failure failure = results.measurements[0].baseline_failure;
  results_release(&results);
  return failure;
}

Test(results, a_baseline_that_failed_is_a_member) {
  cr_expect_eq(failure_read(FAILURE(", \"detail\": \"crashed\", \"baseline_failed\": true")), BASELINE_FAILED);
  cr_expect_eq(failure_read(FAILURE(", \"detail\": \"crashed\", \"baseline_failed\": false")), BASELINE_WORKED);
  cr_expect_eq(failure_read(FAILURE(", \"detail\": \"crashed\"")), BASELINE_WORKED);
  refuses(FAILURE(", \"baseline_failed\": true"), "/measurements/0/detail");
  refuses(FAILURE(", \"detail\": \"crashed\", \"baseline_failed\": 1"), "/measurements/0/baseline_failed");
  refuses(CORRECT(", \"baseline_failed\": true"), "/measurements/0/baseline_failed");
}

Test(results, a_detail_reports_a_failed_baseline_only_as_old_agents_write_it) {
  cr_expect_eq(failure_read(FAILURE(", \"detail\": \"baseline: crashed\"")), BASELINE_FAILED_BY_DETAIL);
  cr_expect_eq(failure_read(FAILURE(", \"detail\": \"baseline.hip:12:5: error: unknown type name\"")), BASELINE_WORKED);
  cr_expect_eq(failure_read(FAILURE(", \"detail\": \"baseline\"")), BASELINE_WORKED);
}

#define OBJECT "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

Test(results, a_correct_measurement_may_name_its_object_and_the_conditions) {
  struct results results = {0};
  struct error error;
  char text[DIGEST_TEXT_SIZE];
  cr_assert(parsed("{\"epoch\": 1, \"measurements\": [" CORRECT(
                       ", \"object\": \"" OBJECT "\", \"conditions\": {\"power_w\": 310.5, \"clock_mhz\": 2100}") "]}",
                   &results, &error),
            "%s", error.message);
  const struct measurement *measurement = &results.measurements[0];
  cr_assert(measurement->has_object);
  cr_expect_str_eq(digest_format(&measurement->object, text), OBJECT);
  cr_expect_str_eq(measurement->conditions, "{\"clock_mhz\":2100,\"power_w\":310.5}");
  results_release(&results);
}

Test(results, without_object_and_conditions_there_are_none) {
  struct results results = {0};
  struct error error;
  cr_assert(parsed("{\"epoch\": 1, \"measurements\": [" CORRECT(", \"object\": null, \"conditions\": null") "]}",
                   &results, &error));
  cr_expect_not(results.measurements[0].has_object);
  cr_expect_null(results.measurements[0].conditions);
  results_release(&results);
}

Test(results, object_and_conditions_belong_to_the_body) {
  static const char *const members[] = {"", ", \"object\": \"" OBJECT "\"", ", \"conditions\": {}",
                                        ", \"conditions\": {\"power_w\": 1}"};
  struct digest bodies[ARRAY_LENGTH(members)];
  for (size_t i = 0; i < ARRAY_LENGTH(members); i++) {
    struct results results = {0};
    struct error error;
    cleanup_free char *text = xasprintf("{\"epoch\": 1, \"measurements\": [" CORRECT("%s") "]}", members[i]);
    cr_assert(parsed(text, &results, &error), "%s", error.message);
    bodies[i] = results.measurements[0].body;
    results_release(&results);
    for (size_t k = 0; k < i; k++)
      cr_expect_not(digest_equal(&bodies[i], &bodies[k]), "%s and %s", members[i], members[k]);
  }
}

Test(results, wrong_objects_and_conditions_are_refused_where_they_stand) {
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
    cleanup_free char *measurement = xasprintf(CORRECT(", \"conditions\": {\"a\": \"%0*d\"}"), width, 0);
    cleanup_free char *text = xasprintf("{\"epoch\": 1, \"measurements\": [%s]}", measurement);
    if (extra) {
      refuses(measurement, "/measurements/0/conditions");
    } else {
      cr_assert(parsed(text, &results, &error), "%s", error.message);
      cr_expect_eq(strlen(results.measurements[0].conditions), MEASUREMENT_CONDITIONS_MAX);
      results_release(&results);
    }
  }
}

Test(results, a_refusal_leaves_nothing_of_what_was_read_before_it) {
  refuses(CORRECT(", \"conditions\": {\"power_w\": 310}") ", {\"seq\": 0}", "/measurements/1/seq");
}

Test(results, an_agent_may_say_that_a_config_breaks_the_devices_constraints) {
  struct results results = {0};
  struct error error;
  cr_assert(parsed("{\"epoch\": 1, \"measurements\": [{\"seq\": 1, \"config\": 1, \"outcome\": \"constraints\","
                   " \"detail\": \"baseline: 98304 bytes of LDS, the device has 65536\"}]}",
                   &results, &error));
  cr_expect_eq(results.measurements[0].outcome, OUTCOME_CONSTRAINTS);
  cr_expect_eq(results.measurements[0].baseline_failure, BASELINE_FAILED_BY_DETAIL);
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
  cr_expect_not(parsed("{\"epoch\": 1, \"measurements\": [{\"seq\": 1, \"config\": 1, \"outcome\": \"compile\"},"
                       " {\"seq\": 1, \"config\": 2, \"outcome\": \"compile\"}]}",
                       &results, &error));
  cr_expect_neq(strstr(error.message, "occurs twice"), NULL);
}

Test(results, wrong_members_are_refused_where_they_stand) {
  refuses("7", "/measurements/0");
  refuses("{\"config\": 1, \"outcome\": \"compile\"}", "/measurements/0/seq");
  refuses("{\"seq\": 0, \"config\": 1, \"outcome\": \"compile\"}", "/measurements/0/seq");
  refuses("{\"seq\": 1, \"config\": -1, \"outcome\": \"compile\"}", "/measurements/0/config");
  refuses("{\"seq\": 1, \"config\": 9223372036854775807, \"outcome\": \"compile\"}", "/measurements/0/config");
  refuses("{\"seq\": 1, \"config\": 1, \"outcome\": \"fine\"}", "/measurements/0/outcome");
  refuses("{\"seq\": 1, \"config\": 1, \"outcome\": \"compile\", \"extra\": 1}", "/measurements/0/extra");
  refuses(CORRECT(", \"clock_mhz\": -1"), "/measurements/0/clock_mhz");
  refuses(CORRECT(", \"device_us\": -1"), "/measurements/0/device_us");
  refuses(CORRECT(", \"vgprs\": 1.5"), "/measurements/0/vgprs");
}

Test(results, samples_are_paired_finite_and_positive) {
  refuses("{\"seq\": 1, \"config\": 1, \"outcome\": \"correct\"}", "/measurements/0/samples_us");
  refuses("{\"seq\": 1, \"config\": 1, \"outcome\": \"correct\", \"samples_us\": [1], \"baseline_us\": []}",
          "/measurements/0/baseline_us");
  refuses("{\"seq\": 1, \"config\": 1, \"outcome\": \"correct\", \"samples_us\": [1, 0], \"baseline_us\": [1, 1]}",
          "/measurements/0/samples_us/1");
  refuses("{\"seq\": 1, \"config\": 1, \"outcome\": \"correct\", \"samples_us\": [1], \"baseline_us\": [\"x\"]}",
          "/measurements/0/baseline_us/0");
  refuses("{\"seq\": 1, \"config\": 1, \"outcome\": \"correct\", \"samples_us\": [1e300], \"baseline_us\": [1]}",
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
  cleanup_free char *text =
      xasprintf("{\"seq\": 1, \"config\": 1, \"outcome\": \"compile\", \"detail\": \"%s\"}", detail);
  refuses(text, "/measurements/0/detail");
}

Test(results, too_many_measurements_are_refused) {
  cleanup_json json_t *post = json_pack("{s:i, s:[]}", "epoch", 1, "measurements");
  for (int i = 0; i <= RESULTS_MEASUREMENTS_MAX; i++)
    json_array_append_new(json_object_get(post, "measurements"),
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
