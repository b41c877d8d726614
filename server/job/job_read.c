/* What GET /v1/jobs and its routes read. Memory and threads: as job_store.h says. */
#include "server/db/db_record.h"
#include "server/job/job_read.sql.h"
#include "server/job/job_store.h"
#include "server/records.h"

struct job_winner {
  int64_t config;
  json_t *config_values, *verdict, *resources;
};
static const struct field winner_item_fields[] = {
    {"config", FIELD_INTEGER, offsetof(struct job_winner, config), FIELD_ANSWER, "winner_config"},
    {"config_values", FIELD_JSON, offsetof(struct job_winner, config_values), FIELD_ANSWER,
     "winner_values", .schema = "{\"$ref\": \"#/components/schemas/Config\"}"},
};
const struct record job_winner_item_record =
    RECORD("JobWinnerValues", struct job_winner, winner_item_fields);

static const struct field winner_fields[] = {
    {"config", FIELD_INTEGER, offsetof(struct job_winner, config), FIELD_ANSWER, "winner_config"},
    {"config_values", FIELD_JSON, offsetof(struct job_winner, config_values), FIELD_ANSWER,
     "winner_values", .schema = "{\"$ref\": \"#/components/schemas/Config\"}"},
    {"verdict", FIELD_JSON, offsetof(struct job_winner, verdict), FIELD_ANSWER, "winner_verdict",
     .schema = "{\"type\": \"object\"}"},
    {"resources", FIELD_JSON, offsetof(struct job_winner, resources), FIELD_ANSWER,
     "winner_resources",
     .schema = "{\"type\": \"array\", \"items\": {\"$ref\": \"#/components/schemas/Resources\"}}"},
};
const struct record job_winner_record = RECORD("JobWinner", struct job_winner, winner_fields);

struct job_summary {
  int64_t id;
  enum job_state state;
  enum stage stage;
  int64_t round, priority, baseline, seed, configs, measured;
  struct digest kernel, space_digest, build;
  char *name, *tag, *run, *runner, *reason, *created_at, *finished_at;
  json_t *key, *environment, *outcomes;
  enum regime regime;
  enum job_purpose purpose;
  enum baseline_from baseline_from;
  struct job_budget budget;
  struct job_search search;
  struct job_finals finals;
  double spent_device_seconds, opening_device_seconds;
  char *submitted_by, *cancelled_by;
  int64_t submitted_by_id, cancelled_by_id;
  struct job_winner winner;
  /* Of a single job: */
  json_t *space, *flagged;
  char *waiting, *quarantined;
};

/* clang-format off */
#define ALWAYS_THERE (FIELD_ANSWER | FIELD_NOT_NULL)
#define AT(member) offsetof(struct job_summary, member)
#define SUMMARY_FIELDS \
  {"job", FIELD_ID, AT(id), ALWAYS_THERE}, \
  {"state", FIELD_ENUM, AT(state), ALWAYS_THERE, .names = job_state_names, \
   .schema = "{\"$ref\": \"#/components/schemas/JobState\"}"}, \
  {"stage", FIELD_ENUM, AT(stage), ALWAYS_THERE, .names = stage_names, \
   .schema = "{\"$ref\": \"#/components/schemas/Stage\"}"}, \
  {"round", FIELD_INTEGER, AT(round), ALWAYS_THERE}, \
  {"kernel", FIELD_DIGEST, AT(kernel), ALWAYS_THERE}, \
  {"name", FIELD_TEXT, AT(name), ALWAYS_THERE}, \
  {"key", FIELD_JSON, AT(key), ALWAYS_THERE, \
   .schema = "{\"$ref\": \"#/components/schemas/Key\"}"}, \
  {"space_digest", FIELD_DIGEST, AT(space_digest), ALWAYS_THERE}, \
  {"environment", FIELD_JSON, AT(environment), ALWAYS_THERE, \
   .schema = "{\"$ref\": \"#/components/schemas/Environment\"}"}, \
  {"tag", FIELD_TEXT, AT(tag), ALWAYS_THERE}, \
  {"run", FIELD_TEXT, AT(run), ALWAYS_THERE}, \
  {"regime", FIELD_ENUM, AT(regime), ALWAYS_THERE, .names = regime_names, \
   .schema = "{\"$ref\": \"#/components/schemas/Regime\"}"}, \
  {"purpose", FIELD_ENUM, AT(purpose), ALWAYS_THERE, .names = job_purpose_names}, \
  {"priority", FIELD_INTEGER, AT(priority), ALWAYS_THERE}, \
  {"budget", FIELD_RECORD, AT(budget), FIELD_ANSWER, .of = &job_budget_record}, \
  {"runner", FIELD_TEXT, AT(runner), ALWAYS_THERE}, \
  {"build", FIELD_DIGEST, AT(build), FIELD_ANSWER}, \
  {"baseline", FIELD_INTEGER, AT(baseline), ALWAYS_THERE}, \
  {"baseline_from", FIELD_ENUM, AT(baseline_from), ALWAYS_THERE, .names = baseline_from_names, \
   .schema = "{\"$ref\": \"#/components/schemas/BaselineFrom\"}"}, \
  {"seed", FIELD_INTEGER, AT(seed), ALWAYS_THERE}, \
  {"search", FIELD_RECORD, AT(search), FIELD_ANSWER, .of = &job_search_record}, \
  {"finals", FIELD_RECORD, AT(finals), ALWAYS_THERE, .of = &job_finals_record}, \
  {"configs", FIELD_INTEGER, AT(configs), ALWAYS_THERE}, \
  {"measured", FIELD_INTEGER, AT(measured), ALWAYS_THERE}, \
  {"outcomes", FIELD_JSON, AT(outcomes), ALWAYS_THERE, \
   .schema = "{\"type\": \"object\", \"additionalProperties\": {\"type\": \"integer\"}}"}, \
  {"spent_device_seconds", FIELD_NUMBER, AT(spent_device_seconds), ALWAYS_THERE}, \
  {"opening_device_seconds", FIELD_NUMBER, AT(opening_device_seconds), ALWAYS_THERE, \
   .about = "of spent_device_seconds: opening the kernel"}, \
  {"reason", FIELD_TEXT, AT(reason), FIELD_ANSWER}, \
  {"created_at", FIELD_TIME, AT(created_at), ALWAYS_THERE}, \
  {"finished_at", FIELD_TIME, AT(finished_at), FIELD_ANSWER}, \
  {"submitted_by", FIELD_TEXT, AT(submitted_by), FIELD_ANSWER, .schema = SCHEMA_BY}, \
  {"submitted_by_id", FIELD_ID, AT(submitted_by_id), FIELD_ANSWER, .schema = SCHEMA_BY_ID}, \
  {"cancelled_by", FIELD_TEXT, AT(cancelled_by), FIELD_ANSWER, .schema = SCHEMA_BY}, \
  {"cancelled_by_id", FIELD_ID, AT(cancelled_by_id), FIELD_ANSWER, .schema = SCHEMA_BY_ID}
/* clang-format on */

static const struct field item_fields[] = {
    SUMMARY_FIELDS,
    {"winner", FIELD_RECORD, AT(winner), FIELD_ANSWER, .of = &job_winner_item_record},
};
const struct record job_item_record = RECORD("JobItem", struct job_summary, item_fields);

static const struct field job_fields[] = {
    SUMMARY_FIELDS,
    {"winner", FIELD_RECORD, AT(winner), FIELD_ANSWER, .of = &job_winner_record},
    {"waiting", FIELD_TEXT, AT(waiting), FIELD_ANSWER,
     .about = "why nothing of it is measured that could be"},
    {"space", FIELD_JSON, AT(space), ALWAYS_THERE,
     .schema = "{\"$ref\": \"#/components/schemas/Space\"}"},
    {"flagged", FIELD_JSON, AT(flagged), FIELD_ANSWER,
     .schema = "{\"$ref\": \"#/components/schemas/Flagged\"}"},
    {"quarantined", FIELD_TEXT, AT(quarantined), FIELD_ANSWER},
};
const struct record job_record = RECORD("Job", struct job_summary, job_fields);

bool jobs_list(struct db *db, const struct job_filter *filter, json_t **ret_items,
               int64_t *ret_next, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "before", filter->before);
  bind_text(&parameters, "state", filter->state);
  bind_text(&parameters, "tag", filter->tag);
  bind_digest(&parameters, "kernel", filter->kernel);
  bind_integer(&parameters, "limit", filter->limit);
  if (!db_run(db, &sql_jobs_list, &parameters, &rows, error))
    return false;

  *ret_items = db_rows_to_json(rows, &job_item_record);
  *ret_next = db_count(rows) == filter->limit ? db_get_integer(rows, db_count(rows) - 1, "job") : 0;
  return true;
}

bool job_get(struct db *db, int64_t job, int64_t live_ms, json_t **ret_summary,
             struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "job", job);
  bind_integer(&parameters, "live_ms", live_ms);
  if (!db_run(db, &sql_job_get, &parameters, &rows, error))
    return false;

  *ret_summary = NULL;
  if (db_count(rows) > 0) {
    struct job_summary summary;
    db_read(rows, 0, &job_record, &summary);
    *ret_summary = record_write(&job_record, &summary);
    record_release(&job_record, &summary);
  }
  return true;
}

struct job_event {
  int64_t event;
  char *kind, *at;
  json_t *detail;
};
static const struct field event_fields[] = {
    {"event", FIELD_INTEGER, offsetof(struct job_event, event), ALWAYS_THERE},
    {"kind", FIELD_TEXT, offsetof(struct job_event, kind), ALWAYS_THERE},
    {"at", FIELD_TIME, offsetof(struct job_event, at), ALWAYS_THERE},
    {"detail", FIELD_JSON, offsetof(struct job_event, detail), ALWAYS_THERE,
     .schema = "{\"type\": \"object\"}"},
};
const struct record job_event_record = RECORD("JobEvent", struct job_event, event_fields);

bool job_events_list(struct db *db, int64_t job, int64_t after, int64_t limit, json_t **ret_items,
                     int64_t *ret_last, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "job", job);
  bind_integer(&parameters, "after", after);
  bind_integer(&parameters, "limit", limit);
  if (!db_run(db, &sql_job_events_list, &parameters, &rows, error))
    return false;

  int n = db_count(rows);
  bool has_events = n > 0 && !db_is_null(rows, 0, "event");
  *ret_last = has_events ? db_get_integer(rows, n - 1, "event") : after;
  *ret_items = has_events ? db_rows_to_json(rows, &job_event_record) : n > 0 ? json_array() : NULL;
  return true;
}
