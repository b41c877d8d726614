/* Reports of deployments are read strictly and limited. */
#include <criterion/criterion.h>
#include <math.h>

#include "server/demand/demand.h"

static bool parse(const char *text, struct demand_report *ret, struct error *error) {
  cleanup_json json_t *json = json_loads(text, 0, NULL);
  cr_assert(json, "%s", text);
  return demand_report_parse(json, ret, error);
}

#define ITEMS(item) "{\"environment\": {\"rocm\": \"6.4.1\"}, \"items\": [" item "]}"

Test(demand, a_report_names_kernels_by_hash_or_by_name) {
  struct error error;
  cleanup_demand_report struct demand_report report = {0};
  cr_assert(parse("{\"environment\": {\"rocm\": \"6.4.1\"}, \"image\": null, \"items\": ["
                  "{\"kernel\": \"matmul/triton\", \"key\": {\"M\": 1}, \"hits\": 3, \"misses\": "
                  "2, \"tuning_ms\": 12.5,"
                  " \"kernel_ms\": null},"
                  "{\"kernel\": "
                  "\"sha256:0000000000000000000000000000000000000000000000000000000000000001\", "
                  "\"key\": {}}]}",
                  &report, &error),
            "%s", error.message);
  const struct demand_item *items = report.items.all;
  cr_assert_eq(report.items.n, 2);
  cr_assert_str_eq(report.tag, "default");
  cr_assert_str_eq(items[0].name, "matmul/triton");
  cr_assert(!items[0].has_hash && items[1].has_hash);
  cr_assert_eq(items[0].hits, 3);
  cr_assert_eq(items[0].misses, 2);
  cr_assert_eq(items[0].tuning_ms, 12.5);
  cr_assert(isnan(items[0].kernel_ms));
  cr_assert_eq(items[1].kernel.bytes[31], 1);
}

Test(demand, a_time_below_a_nanosecond_is_not_known) {
  struct error error;
  cleanup_demand_report struct demand_report report = {0};
  cr_assert(
      parse(ITEMS("{\"kernel\": \"a\", \"key\": {}, \"tuning_ms\": 1e-320, \"kernel_ms\": 9e-7}"),
            &report, &error));
  cr_assert(isnan(((const struct demand_item *)report.items.all)->tuning_ms) &&
            isnan(((const struct demand_item *)report.items.all)->kernel_ms));
}

static void refused(const char *text, const char *pointer, const char *part) {
  struct error error;
  struct demand_report report = {0};
  cr_assert(!parse(text, &report, &error), "%s", text);
  cr_expect_str_eq(error.pointer, pointer, "%s: %s", text, error.pointer);
  cr_expect(strstr(error.message, part), "%s: %s", text, error.message);
}

Test(demand, a_malformed_report_is_refused_with_a_pointer) {
  refused("{\"items\": []}", "/environment", "environment");
  refused("{\"environment\": {}, \"items\": []}", "/items", "at least 1");
  refused("{\"environment\": {}, \"tag\": \"\", \"items\": [{\"kernel\": \"a\", \"key\": {}}]}",
          "/tag", "at least 1");
  refused("{\"environment\": {\"rocm\": 6}, \"items\": [{\"kernel\": \"a\", \"key\": {}}]}",
          "/environment/rocm", "string");
  refused(ITEMS("{\"key\": {}}"), "/items/0/kernel", "kernel");
  refused(ITEMS("{\"kernel\": \"a\", \"key\": []}"), "/items/0/key", "object");
  refused(ITEMS("{\"kernel\": \"a\", \"key\": {}, \"hits\": -1}"), "/items/0/hits", "hits");
  refused(ITEMS("{\"kernel\": \"a\", \"key\": {}, \"misses\": 2000000000}"), "/items/0/misses",
          "misses");
  refused(ITEMS("{\"kernel\": \"a\", \"key\": {}, \"tuning_ms\": -0.5}"), "/items/0/tuning_ms",
          "from 0 to 1e+09");
  refused(ITEMS("{\"kernel\": \"a\", \"key\": {}, \"kernel_ms\": 1e300}"), "/items/0/kernel_ms",
          "from 0");
  refused(ITEMS("{\"kernel\": \"a\", \"key\": {}, \"token\": \"\"}"), "/items/0/token", "token");
}

Test(demand, policies_have_names) {
  enum demand_policy policy;
  cr_assert(demand_policy_parse("suggest", &policy) && policy == DEMAND_SUGGEST);
  cr_assert_str_eq(demand_policy_names[DEMAND_OFF], "off");
  cr_assert(!demand_policy_parse("always", &policy));
}
