/* How a config is launched: the spec that the supervisor sends, and the plan that a worker makes of
 * it. No device is opened: plans are for a device whose facts are here. */
#include "agent/measure/launch.h"

#include <criterion/criterion.h>

#define SPEC                                                                                       \
  "{\"entry\": \"k\", \"arguments\": [\"y\", \"n\", {\"i32\": -7}], \"scratch\": 2, "              \
  "\"fills\": [[\"y\", 8, 4294967295]], \"threads\": 256, "                                        \
  "\"shared_bytes\": 8192, "                                                                       \
  "\"cooperative\": true, \"cluster\": 2, \"resources\": {\"vgprs\": 112, \"lds_bytes\": 0}}"

static json_t *json_of(const char *text) {
  struct error error = {0};
  json_t *json = NULL;
  cr_assert(json_parse(text, strlen(text), &json, &error), "%s", error.message);
  return json;
}

#define cleanup_launch_spec __attribute__((cleanup(launch_spec_release)))
static struct launch_spec spec_of(const char *text) {
  struct launch_spec spec;
  struct error error = {0};
  cleanup_json json_t *json = json_of(text);
  cr_assert(launch_spec_from_json(json, &spec, &error), "%s", error.message);
  return spec;
}

Test(launch_spec, reads_every_member) {
  cleanup_launch_spec struct launch_spec spec = spec_of(SPEC);
  cr_expect_str_eq(spec.entry, "k");
  cr_assert_eq(spec.arguments.n, 3);
  cr_expect_str_eq(spec.arguments.all[1].name, "n");
  cr_expect_eq(spec.arguments.all[2].i32, -7);
  cr_assert_eq(spec.fills.n, 1);
  cr_expect(spec.fills.all[0].bytes == 8 && spec.fills.all[0].word == UINT32_MAX);
  cr_expect(spec.n_scratch == 2 && spec.threads == 256 && spec.shared_bytes == 8192 &&
            spec.cluster == 2);
  cr_expect(spec.cooperative);
  cr_expect_eq(spec.resources.vgprs, 112);
  cr_expect_eq(spec.resources.agprs, CODE_UNKNOWN);
}

Test(launch_spec, what_was_written_reads_back) {
  cleanup_launch_spec struct launch_spec spec = spec_of(SPEC);
  cleanup_json json_t *written = launch_spec_to_json(&spec), *expected = json_of(SPEC);
  cr_expect(json_equal(written, expected));
}

Test(launch_spec, a_copy_is_its_own) {
  struct launch_spec spec = spec_of(SPEC);
  cleanup_launch_spec struct launch_spec copy = launch_spec_copy(&spec);
  launch_spec_release(&spec);
  cleanup_json json_t *written = launch_spec_to_json(&copy), *expected = json_of(SPEC);
  cr_expect(json_equal(written, expected));
}

Test(launch_spec, an_empty_spec_is_the_default) {
  cleanup_launch_spec struct launch_spec spec = spec_of("{}");
  cleanup_json json_t *written = launch_spec_to_json(&spec);
  cr_expect_null(spec.arguments.all);
  cr_expect_eq(spec.cluster, 1);
  cr_expect_null(json_object_get(written, "entry"));
  cr_expect_null(json_object_get(written, "arguments"), "all of the manifest's");
  cr_expect_null(json_object_get(written, "fills"));
}

Test(launch_spec, refuses_invalid_values) {
  static const struct {
    const char *text, *pointer;
  } cases[] = {
      {"{\"entry\": 7}", "/entry"},
      {"{\"arguments\": [7]}", "/arguments"},
      {"{\"fills\": {}}", "/fills"},
      {"{\"fills\": [[\"y\", 8, 0], [\"y\", 6, 0]]}", "/fills/1"},
      {"{\"scratch\": 5}", "/scratch"},
      {"{\"threads\": -1}", "/threads"},
      {"{\"shared_bytes\": -1}", "/shared_"},
      {"{\"cluster\": 0}", "/cluster"},
      {"{\"grid\": [1, 1]}", "/grid"},
      {"{\"grid\": [1, 1, -1]}", "/grid"},
      {"{\"cooperative\": 1}", "/coop"},
      {"{\"resources\": {\"vgprs\": \"many\"}}", "/resources/vgprs"},
      {"{\"thread\": 1}", "/thread"},
      {"[]", ""},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
    struct launch_spec spec;
    struct error error = {0};
    cleanup_json json_t *json = json_of(cases[i].text);
    cr_expect_not(launch_spec_from_json(json, &spec, &error), "%s", cases[i].text);
    cr_expect(string_starts(error.pointer, cases[i].pointer), "%s: %s", cases[i].text,
              error.pointer);
  }
}

Test(launch_spec, refuses_more_arguments_and_fills_than_a_launch_can_have) {
  cleanup_json json_t *json = json_pack("{s:[]}", "arguments"),
                      *filled = json_pack("{s:[]}", "fills");
  struct launch_spec spec;
  struct error error = {0};
  for (int i = 0; i <= LAUNCH_ARGUMENTS_MAX; i++)
    json_array_append_new(json_object_get(json, "arguments"), json_string("y"));
  cr_expect_not(launch_spec_from_json(json, &spec, &error));
  cr_expect_str_eq(error.pointer, "/arguments");
  cr_expect_not_null(strstr(error.message, "256"), "%s", error.message);
  for (int i = 0; i <= LAUNCH_FILLS_MAX; i++)
    json_array_append_new(json_object_get(filled, "fills"), json_pack("[s, i, i]", "y", 4, 0));
  cr_expect_not(launch_spec_from_json(filled, &spec, &error));
  cr_expect_str_eq(error.pointer, "/fills");
  cr_expect_not_null(strstr(error.message, "16"), "%s", error.message);
}

#define GRID "\"grid\": [\"ceil_div(n, BLOCK)\"]"
#define HIP "{" GRID ", \"block\": [\"BLOCK\"]}"

struct planned {
  enum outcome outcome;
  struct launch_plan plan;
  struct error error;
};

static struct argument scalar_of(enum dtype dtype, struct value literal) {
  return (struct argument){.name = (char *)"s", .dtype = dtype, .literal = literal};
}

Test(scalar, a_literal_is_passed_in_its_type) {
  struct argument real = scalar_of(DTYPE_FLOAT32, value_float(0.088)),
                  whole = scalar_of(DTYPE_FLOAT64, value_int(3)),
                  integer = scalar_of(DTYPE_INT64, value_int(INT64_MIN));
  struct scope scope = {0};
  struct error error;
  uint64_t bits;
  float narrow = 0.088f, got;
  double three = 3, wide;
  cr_assert(scalar_store(&real, &scope, &bits, &error));
  memcpy(&got, &bits, sizeof got);
  cr_expect_eq(got, narrow);
  cr_assert(scalar_store(&whole, &scope, &bits, &error));
  memcpy(&wide, &bits, sizeof wide);
  cr_expect_eq(wide, three);
  cr_assert(scalar_store(&integer, &scope, &bits, &error));
  cr_expect_eq((int64_t)bits, INT64_MIN);
}

/* Plans a launch of a kernel f(y, x, n) with the key n = 1000 and the config BLOCK = 128 on a
 * device of `arch` with 304 compute units. The language "captured": a captured kernel without its
 * case. */
static struct planned plan_on(const char *arch, const char *language, const char *launch,
                              const char *spec_text) {
  static char gpu_name[] = "a GPU";
  cleanup_free char *arch_copy = xstrdup(arch);
  struct device device = {
      .gpu_name = gpu_name, .arch = arch_copy, .compute_units = 304, .warp_size = 64};
  cleanup_launch_spec struct launch_spec spec = spec_of(spec_text);
  cleanup_kernel struct kernel *kernel = NULL;
  struct planned planned = {0};
  struct scope scope = {0};
  bool is_captured = string_equal(language, "captured");
  cleanup_json json_t *manifest = json_pack(
      "{s:s, s:s, s:s, s:[{s:s, s:s}], s:[s], s:o, s:o*}", "name", "test", "language",
      is_captured ? "triton" : language, "entry", "f", "sources", "path", "f.hip", "digest",
      "sha256:0000000000000000000000000000000000000000000000000000000000000000", "key", "n",
      "arguments",
      json_of(
          "[{\"name\": \"y\", \"dtype\": \"float32\", \"shape\": [\"n\"], \"access\": \"write\"},"
          "{\"name\": \"x\", \"dtype\": \"float32\", \"shape\": [\"n\"], \"access\": \"read\"},"
          "{\"name\": \"n\", \"dtype\": \"int64\", \"value\": \"n\"}]"),
      "launch", launch ? json_of(launch) : NULL);
  if (is_captured) {
    json_object_set_new(manifest, "cases", json_string("build"));
    json_array_clear(json_object_get(manifest, "arguments"));
  }
  cr_assert(kernel_parse(manifest, &kernel, &planned.error), "%s", planned.error.message);
  cr_assert(scope_add(&scope, "n", value_int(1000), &planned.error));
  cr_assert(scope_add(&scope, "BLOCK", value_int(128), &planned.error));
  planned.outcome = launch_plan_make(&device, kernel, &spec, &scope, &planned.plan, &planned.error);
  return planned;
}

static struct planned plan(const char *launch, const char *spec) {
  return plan_on("gfx942", "hip", launch, spec);
}

static void expect_geometry(struct planned planned, const uint32_t grid[3],
                            const uint32_t block[3]) {
  cr_assert_eq(planned.outcome, OUTCOME_CORRECT, "%s", planned.error.message);
  for (int i = 0; i < 3; i++) {
    cr_expect_eq(planned.plan.geometry.grid[i], grid[i]);
    cr_expect_eq(planned.plan.geometry.block[i], block[i]);
  }
}

static void expect_refused(struct planned planned, enum outcome outcome, const char *message) {
  cr_expect_eq(planned.outcome, outcome, "%s", outcome_name(planned.outcome));
  cr_expect_not_null(strstr(planned.error.message, message), "%s", planned.error.message);
}

Test(launch_plan, takes_grid_and_block_from_the_manifest) {
  expect_geometry(plan(HIP, "{\"threads\": 64}"), (uint32_t[]){8, 1, 1}, (uint32_t[]){128, 1, 1});
}

Test(launch_plan, has_up_to_three_dimensions) {
  expect_geometry(plan("{\"grid\": [2, 3, 4], \"block\": [8, 4, 2]}", "{}"), (uint32_t[]){2, 3, 4},
                  (uint32_t[]){8, 4, 2});
}

Test(launch_plan, takes_the_block_from_the_object_where_the_manifest_has_none) {
  expect_geometry(plan_on("gfx942", "triton", "{" GRID "}", "{\"threads\": 256}"),
                  (uint32_t[]){8, 1, 1}, (uint32_t[]){256, 1, 1});
}

Test(launch_plan, takes_the_grid_from_the_object_of_a_captured_kernel) {
  expect_geometry(plan_on("gfx942", "captured", NULL, "{\"threads\": 64, \"grid\": [5, 2, 3]}"),
                  (uint32_t[]){5, 2, 3}, (uint32_t[]){64, 1, 1});
  expect_refused(plan_on("gfx942", "captured", NULL, "{\"threads\": 64}"), OUTCOME_RUNTIME,
                 "neither the manifest nor the object of test states the grid");
}

Test(launch_plan, needs_a_block_from_the_manifest_or_the_object) {
  expect_refused(plan_on("gfx942", "triton", "{" GRID "}", "{}"), OUTCOME_RUNTIME,
                 "how many threads a workgroup has");
}

Test(launch_plan, takes_dynamic_memory_from_the_manifest_before_the_object) {
  struct planned planned = plan("{" GRID ", \"block\": [64], \"shared_bytes\": \"4 * BLOCK\"}",
                                "{\"shared_bytes\": 99}");
  cr_assert_eq(planned.outcome, OUTCOME_CORRECT, "%s", planned.error.message);
  cr_expect_eq(planned.plan.geometry.shared_bytes, 512);
  planned = plan(HIP, "{\"shared_bytes\": 99}");
  cr_expect_eq(planned.plan.geometry.shared_bytes, 99);
}

Test(launch_plan, counts_static_and_dynamic_memory) {
  struct planned planned =
      plan(HIP, "{\"shared_bytes\": 100, \"resources\": {\"lds_bytes\": 1000}}");
  cr_expect_eq(planned.plan.lds_bytes, 1100);
  cr_expect_eq(plan(HIP, "{}").plan.lds_bytes, CODE_UNKNOWN);
}

/* 128 VGPRs: 4 waves an EU, 16 a compute unit; workgroups of 2 waves: 8. */
Test(launch_plan, computes_the_occupancy_and_grids_may_read_it) {
  struct planned planned =
      plan("{\"grid\": [\"cus * occupancy\", \"warp_size\"], \"block\": [\"BLOCK\"]}",
           "{\"resources\": {\"vgprs\": 128, \"lds_bytes\": 0}}");
  expect_geometry(planned, (uint32_t[]){304 * 8, 64, 1}, (uint32_t[]){128, 1, 1});
  cr_expect_eq(planned.plan.occupancy, 8);
}

Test(launch_plan, memory_limits_the_occupancy) {
  struct planned planned =
      plan(HIP, "{\"shared_bytes\": 16384, \"resources\": {\"vgprs\": 128, \"lds_bytes\": 16384}}");
  cr_expect_eq(planned.plan.occupancy, 2);
}

Test(launch_plan, an_occupancy_that_is_not_known_reads_as_one) {
  struct planned planned =
      plan_on("gfx_of_tomorrow", "hip", "{\"grid\": [\"cus * occupancy\"], \"block\": [64]}", "{}");
  expect_geometry(planned, (uint32_t[]){304, 1, 1}, (uint32_t[]){64, 1, 1});
  cr_expect_eq(planned.plan.occupancy, CODE_UNKNOWN);
}

/* 304 compute units of 8 such workgroups: 3040 are a round and a quarter of one, which is 5/8 of
 * two. */
Test(launch_plan, computes_how_much_of_its_last_round_a_grid_uses) {
  struct device device = {.compute_units = 304};
  struct planned planned = plan("{\"grid\": [3040], \"block\": [\"BLOCK\"]}",
                                "{\"resources\": {\"vgprs\": 128, \"lds_bytes\": 0}}");
  cr_expect_eq(launch_utilization(&device, &planned.plan), 0.625);
  planned.plan.occupancy = CODE_UNKNOWN;
  cr_expect_eq(launch_utilization(&device, &planned.plan), 1);
  planned.plan.geometry.grid[0] = 0;
  cr_expect_eq(launch_utilization(&device, &planned.plan), 0);
}

Test(launch_plan, a_block_cannot_read_the_occupancy_that_follows_from_it) {
  expect_refused(plan("{\"grid\": [1], \"block\": [\"64 * occupancy\"]}", "{}"), OUTCOME_RUNTIME,
                 "the block[0]: ");
}

Test(launch_plan, more_memory_than_there_is_violates_constraints) {
  expect_refused(plan(HIP, "{\"shared_bytes\": 65537}"), OUTCOME_CONSTRAINTS, "LDS");
}

Test(launch_plan, more_threads_than_a_workgroup_can_have_violate_constraints) {
  expect_refused(plan("{\"grid\": [1], \"block\": [2048]}", "{}"), OUTCOME_CONSTRAINTS, "2048");
}

Test(launch_plan, more_threads_than_the_code_was_compiled_for_violate_constraints) {
  expect_refused(plan(HIP, "{\"resources\": {\"workgroup_max\": 64}}"), OUTCOME_CONSTRAINTS,
                 "at most 64");
}

Test(launch_plan, what_an_unknown_target_can_run_is_not_guessed) {
  cr_expect_eq(plan_on("gfx_of_tomorrow", "hip", HIP, "{\"shared_bytes\": 65537}").outcome,
               OUTCOME_CORRECT);
}

Test(launch_plan, a_grid_may_be_empty) {
  expect_geometry(plan("{\"grid\": [\"n - 1000\"], \"block\": [64]}", "{}"), (uint32_t[]){0, 1, 1},
                  (uint32_t[]){64, 1, 1});
}

Test(launch_plan, programs_of_a_clustered_object_are_clusters) {
  struct planned planned = plan(HIP, "{\"cluster\": 2, \"cooperative\": true}");
  expect_geometry(planned, (uint32_t[]){16, 1, 1}, (uint32_t[]){128, 1, 1});
  cr_expect_eq(planned.plan.geometry.cluster, 2);
  cr_expect(planned.plan.geometry.cooperative);
}

Test(launch_plan, refuses_extents_that_no_launch_can_have) {
  static const struct {
    const char *launch, *message;
  } cases[] = {
      {"{\"grid\": [\"0 - 1\"], \"block\": [64]}", "the grid[0]: "},
      {"{\"grid\": [1, \"n // 0\"], \"block\": [64]}", "the grid[1]: "},
      {"{\"grid\": [1], \"block\": [0]}", "the block[0]: "},
      {"{\"grid\": [4294967296], \"block\": [64]}", "the grid[0]: "},
      {"{\"grid\": [2147483647], \"block\": [64]}", "larger than a launch can be"},
      {"{\"grid\": [2000000000, 2000000000, 2000000000], \"block\": [1]}",
       "larger than a launch can be"},
      {"{\"grid\": [1], \"block\": [2000000000, 2000000000, 2000000000]}", "has too many threads"},
      {"{\"grid\": [1], \"block\": [64], \"shared_bytes\": \"0 - 1\"}", "\"shared_bytes\": "},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++)
    expect_refused(plan(cases[i].launch, "{}"), OUTCOME_RUNTIME, cases[i].message);
}

Test(launch_plan, passes_the_arguments_that_the_object_takes) {
  struct planned planned = plan(HIP, "{\"arguments\": [\"n\", \"y\"], \"scratch\": 2}");
  cr_assert_eq(planned.outcome, OUTCOME_CORRECT);
  cr_expect_eq(planned.plan.n_arguments, 2);
  cr_expect(planned.plan.arguments[0] == 2 && planned.plan.arguments[1] == 0);
  cr_expect_eq(planned.plan.n_scratch, 2);
}

Test(launch_plan, passes_all_arguments_where_the_object_does_not_list_them) {
  struct planned planned = plan(HIP, "{}");
  cr_expect_eq(planned.plan.n_arguments, 3);
  cr_expect_eq(planned.plan.arguments[2], 2);
  cr_expect_eq(planned.plan.n_scratch, 0);
}

Test(launch_plan, finds_what_is_passed_beside_arguments_and_what_is_filled) {
  struct planned planned =
      plan(HIP, "{\"arguments\": [{\"i64\": 5}, {\"tensormap\": {\"base\": \"x\", \"type\": 7, "
                "\"shape\": [10, 100], \"strides\": [400], \"box\": [8, 8], \"swizzle\": 0, "
                "\"fill\": 0}}, \"n\"], \"fills\": [[\"y\", 4000, 0]]}");
  cr_assert_eq(planned.outcome, OUTCOME_CORRECT, "%s", planned.error.message);
  cr_assert_eq(planned.plan.n_arguments, 3);
  cr_expect(planned.plan.arguments[0] == 3 && planned.plan.arguments[1] == 1 &&
            planned.plan.arguments[2] == 2);
  cr_expect_eq(planned.plan.fills[0], 0);
}

Test(launch_plan, refuses_fills_that_the_buffer_does_not_hold) {
  expect_refused(plan(HIP, "{\"fills\": [[\"y\", 4004, 0]]}"), OUTCOME_RUNTIME,
                 "4004 bytes of argument \"y\" are filled, which has 4000 from where it points");
}

Test(launch_plan, refuses_an_argument_that_the_manifest_lacks) {
  expect_refused(plan(HIP, "{\"arguments\": [\"z\"]}"), OUTCOME_RUNTIME, "an argument \"z\"");
}
