/* How a job is cut into leases. */
#include <criterion/criterion.h>

#include "server/measurement/lease_plan.h"

TestSuite(lease_plan);

static struct space *space_of(const char *text) {
  cleanup_json json_t *json = NULL;
  struct space *space;
  struct error error;
  cr_assert(json_parse(text, strlen(text), &json, &error), "%s", error.message);
  cr_assert(space_parse(json, &space, &error), "%s", error.message);
  return space;
}

/* Four configs to a second and no device. */
static const struct lease_sizing second = {250000, 1000000, 0};

static struct lease_plan plan_of(const char *text) {
  cleanup_space struct space *space = space_of(text);
  struct space_facts facts = {0};
  struct lease_plan plan;
  struct error error;
  cr_assert(lease_plan_make(space, &facts, JOB_POINTS_MAX, &second, &plan, &error), "%s",
            error.message);
  return plan;
}

static struct error refusal_of(const char *text, uint64_t points_max) {
  cleanup_space struct space *space = space_of(text);
  struct space_facts facts = {0};
  struct lease_plan plan;
  struct error error = {0};
  cr_assert_not(lease_plan_make(space, &facts, points_max, &second, &plan, &error));
  return error;
}

static uint64_t size_of(uint64_t configs, int64_t config_us, int64_t devices) {
  struct lease_sizing sizing = {config_us, 10000000, devices};
  return lease_plan_size(configs, configs, &sizing);
}

Test(lease_plan, a_lease_has_the_configs_of_its_predicted_seconds) {
  cr_expect_eq(size_of(1000, 100000, 0), 100);
  cr_expect_eq(size_of(1000, 20000, 0), 500);
}

Test(lease_plan, a_lease_has_8_to_4096_configs) {
  cr_expect_eq(size_of(1000, 5000000, 1), 8);
  cr_expect_eq(size_of(1000000, 1, 1), 4096);
}

Test(lease_plan, a_job_that_is_short_is_one_lease_on_any_number_of_devices) {
  cr_expect_geq(size_of(108, CONFIG_US_DEFAULT, 1), 108);
  cr_expect_geq(size_of(108, CONFIG_US_DEFAULT, 8), 108);
}

Test(lease_plan, a_long_job_has_two_leases_for_each_device) {
  cr_expect_eq(size_of(400, 30000, 2), 100);
  cr_expect_eq(size_of(401, 30000, 2), 101);
}

Test(lease_plan, a_batch_of_a_long_search_is_shared_by_the_devices) {
  struct lease_sizing sizing = {30000, 10000000, 2};
  cr_expect_eq(lease_plan_size(64, 64, &sizing), 333);
  cr_expect_eq(lease_plan_size(64, 5000, &sizing), 16);
}

Test(lease_plan, a_batch_is_cut_in_ordinal_order) {
  uint64_t configs[] = {90, 3, 4, 17, 60, 5, 2, 1, 0, 6};
  cleanup_lease_plan struct lease_plan plan = {0};
  lease_plan_cut(configs, ARRAY_LENGTH(configs), ARRAY_LENGTH(configs), &second, &plan);
  cr_assert_eq(plan.n, 2);
  cr_expect_eq(config_ranges_count(&plan.leases[0]), 8);
  cr_expect_eq(plan.leases[0].ranges[0].count, 7);
  cr_expect_eq(plan.leases[1].ranges[0].first, 60);
  cr_expect_eq(plan.leases[1].ranges[1].first, 90);
}

static struct config_ranges ranges_of(const char *text) {
  cleanup_json json_t *json = NULL;
  struct config_ranges ranges;
  struct error error;
  cr_assert(json_parse(text, strlen(text), &json, &error));
  cr_assert(config_ranges_from_json(json, &ranges, &error), "%s", error.message);
  return ranges;
}

Test(lease_plan, the_tail_is_the_later_half_of_what_remains) {
  cleanup_config_ranges struct config_ranges remaining = ranges_of("[[0, 5], [10, 10], [40, 4]]");
  cleanup_config_ranges struct config_ranges tail = lease_tail(&remaining);
  cleanup_json json_t *json = config_ranges_to_json(&tail);
  cleanup_free char *text = json_canonical(json);
  cr_expect_str_eq(text, "[[15,5],[40,4]]");
}

Test(lease_plan, a_lease_that_is_not_large_has_no_tail) {
  cleanup_config_ranges struct config_ranges remaining = {0};
  for (uint64_t n = 1; n <= 2 * SPLIT_CONFIGS_MIN; n++) {
    config_ranges_add(&remaining, n);
    cleanup_config_ranges struct config_ranges tail = lease_tail(&remaining);
    cr_expect_eq(tail.n > 0, n >= SPLIT_CONFIGS_MIN, "%d configs", (int)n);
    cr_expect_eq(lease_is_large(&remaining), n >= SPLIT_CONFIGS_MIN, "%d configs", (int)n);
  }
}

Test(lease_plan, each_part_of_the_smallest_split_is_a_whole_lease) {
  cleanup_config_ranges struct config_ranges remaining = {0};
  for (uint64_t n = 0; n < SPLIT_CONFIGS_MIN; n++)
    config_ranges_add(&remaining, n);
  cleanup_config_ranges struct config_ranges tail = lease_tail(&remaining);
  uint64_t given = config_ranges_count(&tail);
  cr_expect_geq(given, LEASE_CONFIGS_MIN);
  cr_expect_geq(SPLIT_CONFIGS_MIN - given, LEASE_CONFIGS_MIN);
}

Test(lease_plan, a_space_that_is_not_enumerated_has_the_same_baseline) {
  cleanup_space struct space *space =
      space_of("{\"parameters\": {\"A\": [1,2,3]}, \"conditions\": [\"A > 1\"]}");
  struct space_facts facts = {0};
  cleanup_lease_plan struct lease_plan plan = {0};
  struct error error;
  cr_assert(lease_plan_baseline(space, &facts, &plan, &error), "%s", error.message);
  cr_expect_eq(plan.baseline, 1);
  cr_expect_eq(plan.baseline_from, BASELINE_FIRST);
}

Test(lease_plan, a_space_that_is_not_enumerated_and_has_no_point_is_refused) {
  cleanup_space struct space *space =
      space_of("{\"parameters\": {\"A\": [1]}, \"conditions\": [\"A > 1\"]}");
  struct space_facts facts = {0};
  cleanup_lease_plan struct lease_plan plan = {0};
  struct error error = {0};
  cr_expect_not(lease_plan_baseline(space, &facts, &plan, &error));
  cr_expect_neq(strstr(error.message, "no point"), NULL);
}

Test(lease_plan, leases_are_disjoint_in_order_and_hold_every_point) {
  cleanup_lease_plan struct lease_plan plan =
      plan_of("{\"parameters\": {\"A\": [0,1,2,3,4,5,6,7,8,9], \"B\": [1,2]},"
              " \"conditions\": [\"A % 3 != 0\"]}");
  cr_assert_eq(plan.configs, 12);
  cr_assert_eq(plan.n, 2);
  cr_expect_eq(config_ranges_count(&plan.leases[0]), 8);
  cr_expect_eq(config_ranges_count(&plan.leases[1]), 4);
  uint64_t next = 0;
  for (size_t lease = 0; lease < plan.n; lease++)
    for (size_t i = 0; i < plan.leases[lease].n; i++) {
      cr_expect_geq(plan.leases[lease].ranges[i].first, next);
      next = plan.leases[lease].ranges[i].first + plan.leases[lease].ranges[i].count;
    }
  cr_expect_eq(next, 18); /* A = 8, B = 2 */
}

Test(lease_plan, the_baseline_is_the_default) {
  cleanup_lease_plan struct lease_plan plan =
      plan_of("{\"parameters\": {\"A\": [1,2,3]}, \"default\": {\"A\": 3}}");
  cr_expect_eq(plan.baseline, 2);
  cr_expect_eq(plan.baseline_from, BASELINE_DEFAULT);
}

Test(lease_plan, without_a_default_the_baseline_is_the_first_valid_config) {
  cleanup_lease_plan struct lease_plan plan =
      plan_of("{\"parameters\": {\"A\": [1,2,3]}, \"conditions\": [\"A > 1\"]}");
  cr_expect_eq(plan.baseline, 1);
}

Test(lease_plan, a_default_that_a_condition_excludes_is_refused) {
  struct error error = refusal_of(
      "{\"parameters\": {\"A\": [1,2]}, \"conditions\": [\"A > 1\"], \"default\": {\"A\": 1}}", 10);
  cr_expect_str_eq(error.pointer, "/default");
}

Test(lease_plan, a_space_without_points_is_refused) {
  cr_expect_neq(
      strstr(refusal_of("{\"parameters\": {\"A\": [1]}, \"conditions\": [\"A > 1\"]}", 10).message,
             "no point"),
      NULL);
}

Test(lease_plan, more_points_than_allowed_are_refused) {
  struct error error = refusal_of("{\"parameters\": {\"A\": [1,2,3]}}", 2);
  cr_expect_neq(strlen(error.message), 0);
}
