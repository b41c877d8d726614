/* GET /v1/agents/{id}/devices/{device}/baselines: how long the baselines of jobs took on a device,
 * from which its drift is judged (server/measurement/drift.h), with the rule of that judgement.
 *
 * Memory: a handler frees what it makes when it returns. Threads: database workers. */
#include "server/agent/baselines.sql.h"
#include "server/db/db_record.h"
#include "server/http/request.h"
#include "server/measurement/drift.h"
#include "server/records.h"

struct baseline_item {
  char *at, *subject, *name;
  int64_t job, config;
  json_t *key, *outcomes;
  double median_us, device_seconds;
  bool counts;
};
/* What is of the lease and its job is null where they are not stored any more. */
#define ALWAYS_THERE (FIELD_ANSWER | FIELD_NOT_NULL)
#define FIELD(type, member, ...) RECORD_FIELD(type, struct baseline_item, member, __VA_ARGS__)
static const struct field item_fields[] = {
    FIELD(TIME, at, ALWAYS_THERE, .about = "when the lease ended"),
    FIELD(TEXT, subject, ALWAYS_THERE,
          .about = "only medians of one subject can be compared with each other"),
    FIELD(ID, job, FIELD_ANSWER),
    FIELD(TEXT, name, FIELD_ANSWER, .about = "of the kernel"),
    FIELD(JSON, key, FIELD_ANSWER, .schema = "{\"$ref\": \"#/components/schemas/Key\"}"),
    FIELD(INTEGER, config, FIELD_ANSWER, .about = "the job's baseline"),
    FIELD(NUMBER, median_us, ALWAYS_THERE),
    FIELD(BOOL, counts, ALWAYS_THERE,
          .about = "whether it is compared with; false before a drifting device was resumed"),
    FIELD(NUMBER, device_seconds, FIELD_ANSWER, .about = "of the lease"),
    FIELD(JSON, outcomes, FIELD_ANSWER, .about = "of the lease's configs",
          .schema = "{\"type\": \"object\", \"additionalProperties\": {\"type\": \"integer\"}}"),
};
#undef FIELD
const struct record baseline_item_record =
    RECORD("BaselineItem", struct baseline_item, item_fields);

void route_agent_baselines(struct worker *worker, struct request *request) {
  static const char *const names[] = {"limit", NULL};
  struct error error;
  int64_t limit;
  const char *after;
  if (!request_query_only(request, names) || !request_page(request, &limit, &after))
    return;

  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_text(&parameters, "agent", request->segments[0]);
  bind_text(&parameters, "device", request->segments[1]);
  bind_integer(&parameters, "limit", limit);
  if (!db_run(worker->db, &sql_baselines_list, &parameters, &rows, &error)) {
    answer_failure(request, &error);
    return;
  }

  if (!db_count(rows)) {
    answer_refusal(request, ERROR_MISSING, "", "there is no device \"%.40s\" of an agent \"%.40s\"",
                   request->segments[1], request->segments[0]);
    return;
  }

  bool has_any = !db_is_null(rows, 0, "at");
  json_t *items = has_any ? db_rows_to_json(rows, &baseline_item_record) : json_array();
  json_t *rule = json_pack("{s:i, s:i, s:i, s:f, s:i}", "leases", DRIFT_LEASES, "history_min",
                           DRIFT_HISTORY_MIN, "history_max", DRIFT_HISTORY_MAX, "share",
                           DRIFT_SHARE, "spreads", DRIFT_SPREADS);
  request_answer_json(request, 200, json_pack("{s:o, s:o}", "items", items, "rule", rule));
}
