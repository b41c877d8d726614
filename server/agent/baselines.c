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
#define RECORD_OF struct baseline_item
static const struct field item_fields[] = {
    MEMBER(TIME, at, FIELD_NOT_NULL, .about = "when the lease ended"),
    MEMBER(TEXT, subject, FIELD_NOT_NULL,
           .about = "only medians of one subject can be compared with each other"),
    MEMBER(ID, job),
    MEMBER(TEXT, name, .about = "of the kernel"),
    MEMBER(JSON, key, .schema = SCHEMA("Key")),
    MEMBER(INTEGER, config, .about = "the job's baseline"),
    MEMBER(NUMBER, median_us, FIELD_NOT_NULL),
    MEMBER(BOOL, counts, FIELD_NOT_NULL,
           .about = "whether it is compared with; false before a drifting device was resumed"),
    MEMBER(NUMBER, device_seconds, .about = "of the lease"),
    MEMBER(JSON, outcomes, .about = "of the lease's configs",
           .schema = "{\"type\": \"object\", \"additionalProperties\": {\"type\": \"integer\"}}"),
};
const struct record baseline_item_record = ANSWER("BaselineItem", item_fields);
#undef RECORD_OF

bool route_agent_baselines(struct worker *worker, struct request *request, struct error *error) {
  int64_t limit;
  const char *after;
  if (!page_read(request, &limit, &after, error))
    return false;

  cleanup_rows struct db_rows *rows =
      db_query(worker->db, &sql_baselines_list, error, BIND("agent", request->segments[0]),
               BIND("device", request->segments[1]), BIND("limit", limit));
  if (!rows)
    return false;

  if (!db_count(rows))
    return error_of(error, ERROR_MISSING, "there is no device \"%.40s\" of an agent \"%.40s\"",
                    request->segments[1], request->segments[0]);

  bool has_any = !db_is_null(rows, 0, "at");
  json_t *items = has_any ? db_rows_to_json(rows, &baseline_item_record) : json_array();
  json_t *rule = json_pack("{s:i, s:i, s:i, s:f, s:i}", "leases", DRIFT_LEASES, "history_min",
                           DRIFT_HISTORY_MIN, "history_max", DRIFT_HISTORY_MAX, "share",
                           DRIFT_SHARE, "spreads", DRIFT_SPREADS);
  return request_answer_json(request, 200, json_pack("{s:o, s:o}", "items", items, "rule", rule));
}
