/* Keys for which no problem can be made: expressions of scalars and buffers give no valid value. */
#include "tests/unit/agent_fixture.h"

#include "agent/measure/problem.h"

static void expect_refused(const char *arguments, const char *space, const char *expected) {
  struct error error = {0};
  struct fixture fixture =
      fixture_new(FIXTURE_GOOD, (struct fixture_options){.arguments = arguments, .space = space});
  struct device *device;
  struct problem *problem;
  cr_assert(device_open("cpu0", &device, &error));
  struct problem_setup setup = {.device = device,
                                .kernel = fixture.kernel,
                                .key = &fixture.key,
                                .space = fixture.space,
                                .seed = 1,
                                .regime = REGIME_WARM,
                                .rotation_bytes_max = ROTATION_BYTES_MAX};
  cr_expect_not(problem_new(&setup, &problem, &error));
  cr_expect_not_null(strstr(error.message, expected), "%s", error.message);
  device_close(device);
  fixture_free(&fixture);
}

#define Y "{\"name\":\"y\",\"dtype\":\"float32\",\"shape\":[\"n\"],\"access\":\"write\"}"

Test(problem_refused, a_scalar_that_its_type_cannot_hold_is_refused) {
  expect_refused("[" Y ",{\"name\":\"s\",\"dtype\":\"int8\",\"value\":\"n\"}]", NULL,
                 "argument \"s\": n does not give a value of int8");
  expect_refused("[" Y ",{\"name\":\"s\",\"dtype\":\"uint32\",\"value\":\"-n\"}]", NULL,
                 "a value of uint32");
  expect_refused("[" Y ",{\"name\":\"s\",\"dtype\":\"float32\",\"value\":\"2 ** 60\"}]", NULL,
                 "a value of float32");
  expect_refused("[" Y ",{\"name\":\"s\",\"dtype\":\"int32\",\"value\":\"None\"}]", NULL,
                 "a value of int32");
}

Test(problem_refused, a_scalar_that_cannot_be_computed_is_refused) {
  expect_refused("[" Y ",{\"name\":\"s\",\"dtype\":\"int64\",\"value\":\"n // (n - 1000)\"}]", NULL,
                 "argument \"s\": ");
}

Test(problem_refused, an_empty_buffer_is_refused) {
  expect_refused(
      "[{\"name\":\"y\",\"dtype\":\"float32\",\"shape\":[\"n - 1000\"],\"access\":\"write\"}]",
      NULL, "\"y\"");
}

Test(problem_refused, a_buffer_whose_extent_depends_on_the_config_is_refused) {
  expect_refused(
      "[" Y ",{\"name\":\"s\",\"dtype\":\"float32\",\"shape\":[\"BLOCK\"],\"access\":\"read\"}]",
      "{\"parameters\": {\"BLOCK\": [1, 2]}}", "BLOCK");
}
