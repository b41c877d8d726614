/* Reading reports, and the operator's policies. Pure functions. */
#include <math.h>

#include "server/demand/demand.h"
#include "server/job/job_request.h"
#include "server/records.h"

#define SCHEMA(name) "{\"$ref\": \"#/components/schemas/" name "\"}"

const char *const demand_policy_names[] = {"off", "suggest", "automatic", NULL};

const char *demand_policy_name(enum demand_policy policy) { return demand_policy_names[policy]; }

bool demand_policy_parse(const char *name, enum demand_policy *ret_policy) {
  for (size_t i = 0; demand_policy_names[i]; i++)
    if (strcmp(name, demand_policy_names[i]) == 0) {
      *ret_policy = (enum demand_policy)i;
      return true;
    }
  return false;
}

static const struct field item_fields[] = {
    {"kernel", FIELD_TEXT, offsetof(struct demand_item, name), FIELD_REQUIRED,
     .about = "its hash, or its name"},
    {"key", FIELD_JSON, offsetof(struct demand_item, key), FIELD_REQUIRED | FIELD_OBJECT,
     .schema = SCHEMA("Key")},
    {"hits", FIELD_INTEGER, offsetof(struct demand_item, hits), FIELD_NOT_NULL,
     .most = DEMAND_COUNT_MAX},
    {"misses", FIELD_INTEGER, offsetof(struct demand_item, misses), FIELD_NOT_NULL,
     .most = DEMAND_COUNT_MAX},
    {"tuning_ms", FIELD_NUMBER, offsetof(struct demand_item, tuning_ms),
     .most_number = DEMAND_MS_MAX},
    {"kernel_ms", FIELD_NUMBER, offsetof(struct demand_item, kernel_ms),
     .most_number = DEMAND_MS_MAX},
};
static const struct record item_record = RECORD(NULL, struct demand_item, item_fields);

static const struct field report_fields[] = {
    {"environment", FIELD_JSON, offsetof(struct demand_report, environment_json), FIELD_REQUIRED,
     .schema = SCHEMA("Environment")},
    {"image", FIELD_TEXT, offsetof(struct demand_report, image)},
    {"tag", FIELD_TEXT, offsetof(struct demand_report, tag), FIELD_NOT_NULL, .least = 1,
     .most = JOB_TEXT_MAX},
    {"regime", FIELD_ENUM, offsetof(struct demand_report, regime), FIELD_NOT_NULL,
     .names = regime_names, .schema = SCHEMA("Regime")},
    {"items", FIELD_RECORDS, offsetof(struct demand_report, items), FIELD_REQUIRED, .least = 1,
     .most = DEMAND_ITEMS_MAX, .of = &item_record},
};
const struct record demand_report_record =
    RECORD("DemandReport", struct demand_report, report_fields);

void demand_report_release(struct demand_report *report) {
  environment_release(&report->environment);
  record_release(&demand_report_record, report);
}

static double known_ms(double ms) { return ms >= DEMAND_MS_MIN ? ms : NAN; }

static void item_settle(struct demand_item *item) {
  item->hits = item->hits == FIELD_NONE ? 0 : item->hits;
  item->misses = item->misses == FIELD_NONE ? 0 : item->misses;
  item->tuning_ms = known_ms(item->tuning_ms);
  item->kernel_ms = known_ms(item->kernel_ms);
  item->has_hash = digest_parse(item->name, &item->kernel);
}

bool demand_report_parse(const json_t *json, struct demand_report *ret, struct error *error) {
  cleanup_demand_report struct demand_report report = {.tag = xstrdup("default"),
                                                       .regime = REGIME_COLD};
  if (!record_read(&demand_report_record, json, "", &report, error))
    return false;

  struct demand_item *items = report.items.all;
  for (size_t i = 0; i < report.items.n; i++)
    item_settle(&items[i]);
  if (!environment_parse(report.environment_json, &report.environment, error))
    return error_pointer_prefix(error, "/environment");
  *ret = report;
  report = (struct demand_report){0};
  return true;
}
