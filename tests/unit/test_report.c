/* What a person reads of a verdict: which columns and lines there are, and what stands in them. */
#include "common/verdict/report.h"

#include "tests/unit/kernel_fixture.h"

TestSuite(report);

/* The report of a job with the finalists 0 and 1, which took `resources`, and whose winner has the
 * class (NULL: not said). The caller's. */
static char *report_of_class(const char *resources_text, const char *baseline_from,
                             const char *agreement) {
  cleanup_kernel struct kernel *kernel = kernel_of(
      "{\"name\": \"add\", \"language\": \"triton\", \"entry\": \"add\", \"key\": [\"n\"],"
      " \"sources\": [{\"path\": \"a.py\", \"digest\": \"" DIGEST_A "\"}],"
      " \"arguments\": [{\"name\": \"y\", \"dtype\": \"float32\", \"shape\": [\"n\"], "
      "\"access\": \"write\"}],"
      " \"launch\": {\"grid\": [1]}}");
  cleanup_json json_t *space_json = json_of("{\"parameters\": {\"B\": [64, 128]}}");
  cleanup_json json_t *key_json = json_of("{\"n\": 5}");
  cleanup_json json_t *resources = resources_text ? json_of(resources_text) : NULL;
  cleanup_json json_t *verdict =
      json_of("{\"winner\": 1, \"equivalence_set\": [1], \"regret_bound\": 0.0, \"verdict\": "
              "\"FASTER\", \"speedup\": 1.5,"
              " \"baseline_lower\": 0.6, \"baseline_upper\": 0.7, \"samples\": 60, \"processes\": "
              "3, \"devices\": 2, "
              "\"finalists\": ["
              "  {\"config\": 1, \"ratio\": 1.0, \"median_us\": 10.0, \"equivalent\": true},"
              "  {\"config\": 0, \"ratio\": 1.5, \"median_us\": 15.0, \"equivalent\": false}]}");
  cleanup_space struct space *space = NULL;
  cleanup_key struct key key = {0};
  struct error error;
  cr_assert(space_parse(space_json, &space, &error) && key_parse(key_json, NULL, 0, &key, &error),
            "%s at %s", error.message, error.pointer);
  struct report report = {.kernel = kernel,
                          .key = &key,
                          .space = space,
                          .baseline_from = baseline_from,
                          .verdict = verdict,
                          .agreement = agreement,
                          .resources = resources};
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  report_print(&report, out);
  cr_assert(fclose(out) == 0);
  return text;
}

static char *report_from(const char *resources_text, const char *baseline_from) {
  return report_of_class(resources_text, baseline_from, NULL);
}

/* What is said of the configs. The caller's. */
static char *counts_text(struct report_counts counts, const char *outcomes) {
  cleanup_json json_t *json = outcomes ? json_of(outcomes) : NULL;
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  counts.outcomes = json;
  report_counts_print(&counts, out);
  cr_assert(fclose(out) == 0);
  return text;
}

Test(report, distinguishes_failed_configs_from_those_that_the_budget_left_untried) {
  cleanup_free char *all =
      counts_text((struct report_counts){.configs = 48}, "{\"correct\": 45, \"compile\": 3}");
  cr_expect_str_eq(all, "48 valid configs: 48 measured (45 correct, 3 compile)\n");
  struct report_counts cut = {
      .configs = 138, .budget_ended = true, .budget_seconds = 1.5, .spent_seconds = 1.2};
  cleanup_free char *some = counts_text(cut, "{\"correct\": 64}");
  cr_expect_str_eq(some, "138 valid configs: 64 measured (64 correct), 74 never tried: the budget "
                         "of 1.5 device-seconds "
                         "ended the screen\n");
  cleanup_free char *none =
      counts_text((struct report_counts){.configs = 7, .is_search = true}, NULL);
  cr_expect_str_eq(none, "7 trials of the search: 0 measured, 7 never tried\n");
}

Test(report, states_the_time_of_opening_the_kernel_where_it_is_known) {
  struct report_counts counts = {
      .configs = 1, .budget_seconds = 1, .spent_seconds = 1.25, .opening_seconds = 0.5};
  cleanup_free char *text = counts_text(counts, "{\"correct\": 1}");
  cr_expect_str_eq(text,
                   "1 valid configs: 1 measured (1 correct)\n"
                   "1.25 device-seconds were spent, 0.5 of them on opening the kernel\n"
                   "the budget of 1 device-seconds was exceeded by 0.25: a lease ends with the "
                   "opening, config or "
                   "round that passes its share, and the least final is measured in any case\n");
}

static char *report_of(const char *resources_text) { return report_from(resources_text, NULL); }

static bool holds(const char *text, const char *part) { return strstr(text, part) != NULL; }

Test(report, without_resources_there_are_no_columns_of_them) {
  cleanup_free char *text = report_of(NULL);
  cr_expect(!holds(text, "vgprs") && !holds(text, "conditions"), "%s", text);
  cleanup_free char *unknown =
      report_of("[{\"config\": 1, \"vgprs\": null, \"conditions\": null}]");
  cr_expect_str_eq(unknown, text);
}

Test(report, a_resource_that_one_finalist_states_has_a_column) {
  cleanup_free char *text =
      report_of("[{\"config\": 0, \"vgprs\": null, \"spills\": 3, \"lds_bytes\": 8192},"
                " {\"config\": 1, \"vgprs\": 168, \"spills\": 0, \"lds_bytes\": 16384}]");
  cr_expect(holds(text, "vgprs  spills  LDS bytes  values"), "%s", text);
  cr_expect(holds(text, "168       0      16384  B=128"), "%s", text);
  cr_expect(holds(text, "-       3       8192  B=64"), "%s", text);
}

Test(report, the_last_row_of_a_config_states_its_resources) {
  cleanup_free char *text = report_of("[{\"config\": 0, \"vgprs\": 7},"
                                      " {\"config\": 1, \"vgprs\": 168},"
                                      " {\"config\": 1, \"vgprs\": null}]");
  cr_expect(holds(text, "    -  B=128"), "%s", text);
  cr_expect(holds(text, "    7  B=64"), "%s", text);
}

Test(report, conditions_are_summed_up_over_the_finalists) {
  cleanup_free char *text = report_of("[{\"config\": 0, \"conditions\": {\"clock_mhz\": 2100, "
                                      "\"processes\": [], \"set\": true, \"mode\": \"a\"}},"
                                      " {\"config\": 1, \"conditions\": {\"clock_mhz\": 1900.5, "
                                      "\"processes\": [7], \"set\": true, \"mode\": \"b\","
                                      "  \"power_w\": 310, \"env\": {\"x\": 1}}}]");
  cr_expect(holds(text, "\nconditions          clock_mhz 1900.5 to 2100, processes 0 to 1, set "
                        "yes, mode differs, "
                        "power_w 310\n"),
            "%s", text);
}

Test(report, conditions_do_not_drive_a_terminal) {
  cleanup_free char *text =
      report_of("[{\"config\": 0, \"conditions\": {\"mode\": \"\\u001b[2J\"}}]");
  cr_expect(holds(text, "mode ?[2J\n"), "%s", text);
}

Test(report, states_the_gain_of_the_winner_and_the_evidence) {
  cleanup_free char *text = report_of(NULL);
  cr_expect(holds(text, "\nagainst the default 1.500 times as fast, FASTER (1.429 to 1.667, "
                        "simultaneous over all finalists)\n"),
            "%s", text);
  cr_expect(holds(text, "\nregret bound        0.00 % among the finalists (over 60 paired samples, "
                        "processes: 3, devices: 2)\n"),
            "%s", text);
  cr_expect(holds(text, "B=64  (default)"), "%s", text);
}

Test(report, names_the_incumbent_where_that_is_the_baseline) {
  cleanup_free char *text = report_from(NULL, "incumbent");
  cr_expect(holds(text, "\nagainst the incumbent"), "%s", text);
  cr_expect(holds(text, "B=64  (incumbent)"), "%s", text);
}

Test(report, states_the_class_of_agreement_unless_there_is_a_reference) {
  static const char *const classes[] = {"interpreted", "none", "", NULL};
  for (size_t i = 0; i < ARRAY_LENGTH(classes); i++) {
    cleanup_free char *text = report_of_class(NULL, NULL, classes[i]);
    cr_expect_eq(strstr(text, "agreement") != NULL, i == 0, "%s", text);
    cr_expect(i > 0 || strstr(text, "\nagreement           interpreted\n"), "%s", text);
  }
}
