/* How a job is cut into leases. */
#include <criterion/criterion.h>

#include "server/core/lease_plan.h"

TestSuite(lease_plan);

static struct space *space_of(const char *text) {
  cleanup_json json_t *json = NULL;
  struct space *space;
  struct error error;
  cr_assert(json_parse(text, strlen(text), &json, &error), "%s", error.message);
  cr_assert(space_parse(json, &space, &error), "%s", error.message);
  return space;
}

static struct lease_plan plan_of(const char *text) {
  cleanup_space struct space *space = space_of(text);
  struct space_facts facts = {0};
  struct lease_plan plan;
  struct error error;
  cr_assert(lease_plan_make(space, &facts, JOB_POINTS_MAX, &plan, &error), "%s", error.message);
  return plan;
}

static struct error refusal_of(const char *text, uint64_t points_max) {
  cleanup_space struct space *space = space_of(text);
  struct space_facts facts = {0};
  struct lease_plan plan;
  struct error error = {0};
  cr_assert_not(lease_plan_make(space, &facts, points_max, &plan, &error));
  return error;
}

Test(lease_plan, a_lease_is_a_sixteenth_of_the_job_but_8_to_256_configs) {
  cr_expect_eq(lease_plan_size(1), 8);
  cr_expect_eq(lease_plan_size(160), 10);
  cr_expect_eq(lease_plan_size(4096), 256);
  cr_expect_eq(lease_plan_size(1000000), 256);
}

Test(lease_plan, leases_are_disjoint_in_order_and_hold_every_point) {
  cleanup_lease_plan struct lease_plan plan = plan_of("{\"parameters\": {\"A\": [0,1,2,3,4,5,6,7,8,9], \"B\": [1,2]},"
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
  cleanup_lease_plan struct lease_plan plan = plan_of("{\"parameters\": {\"A\": [1,2,3]}, \"default\": {\"A\": 3}}");
  cr_expect_eq(plan.baseline, 2);
}

Test(lease_plan, without_a_default_the_baseline_is_the_first_point_that_holds) {
  cleanup_lease_plan struct lease_plan plan =
      plan_of("{\"parameters\": {\"A\": [1,2,3]}, \"conditions\": [\"A > 1\"]}");
  cr_expect_eq(plan.baseline, 1);
}

Test(lease_plan, a_default_that_a_condition_excludes_is_refused) {
  struct error error =
      refusal_of("{\"parameters\": {\"A\": [1,2]}, \"conditions\": [\"A > 1\"], \"default\": {\"A\": 1}}", 10);
  cr_expect_str_eq(error.pointer, "/default");
}

Test(lease_plan, a_space_without_points_is_refused) {
  cr_expect_neq(
      strstr(refusal_of("{\"parameters\": {\"A\": [1]}, \"conditions\": [\"A > 1\"]}", 10).message, "no point"), NULL);
}

Test(lease_plan, more_points_than_allowed_are_refused) {
  struct error error = refusal_of("{\"parameters\": {\"A\": [1,2,3]}}", 2);
  cr_expect_neq(strlen(error.message), 0);
}
