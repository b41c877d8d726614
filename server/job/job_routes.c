/* Listing, reading, following and cancelling jobs.
 *
 * Memory: a handler frees what it makes when it returns. Threads: database workers. */
#include "server/db/db_record.h"
#include "server/http/request.h"
#include "server/job/job_read.sql.h"
#include "server/job/job_select.h"
#include "server/job/jobs.h"
#include "server/measurement/lease_plan.h"
#include "server/measurement/leases.h"
#include "server/measurement/measurement.sql.h"
#include "server/records.h"

#define WAIT_SECONDS_MAX 60
#define JOBS_SEARCHED 20000 /* in which one request looks for a text */

struct job_winner {
  int64_t config;
  char *agreement;
  json_t *config_values, *interpreted, *verdict, *resources;
};
static const struct field winner_fields[] = {
    RECORD_FIELD(INTEGER, struct job_winner, config, FIELD_ANSWER, "winner_config"),
    RECORD_FIELD(JSON, struct job_winner, config_values, FIELD_ANSWER, "winner_values",
                 .schema = "{\"$ref\": \"#/components/schemas/Config\"}"),
    RECORD_FIELD(TEXT, struct job_winner, agreement, FIELD_ANSWER, "winner_agreement",
                 .schema = "{\"$ref\": \"#/components/schemas/AgreementClass\"}"),
    RECORD_FIELD(JSON, struct job_winner, interpreted, FIELD_ANSWER, "winner_interpreted",
                 .schema = "{\"type\": \"boolean\"}", .about = "Triton's interpreter agrees"),
    RECORD_FIELD(JSON, struct job_winner, verdict, FIELD_ANSWER, "winner_verdict",
                 .schema = "{\"type\": \"object\"}"),
    RECORD_FIELD(
        JSON, struct job_winner, resources, FIELD_ANSWER, "winner_resources",
        .schema =
            "{\"type\": \"array\", \"items\": {\"$ref\": \"#/components/schemas/Resources\"}}"),
};
const struct record job_winner_record = RECORD("JobWinner", struct job_winner, winner_fields);
/* Without the verdict and the resources. */
const struct record job_winner_item_record = {"JobWinnerValues", winner_fields, 4,
                                              sizeof(struct job_winner)};

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
  int64_t submitted_by_id, cancelled_by_id, retry_of;
  struct job_winner winner;
  /* Of a single job: */
  json_t *space, *flagged;
  char *waiting, *handed_back, *quarantined, *measurements_removed_at;
};

/* clang-format off */
#define ALWAYS_THERE (FIELD_ANSWER | FIELD_NOT_NULL)
#define FIELD(type, member, ...) RECORD_FIELD(type, struct job_summary, member, __VA_ARGS__)
#define SUMMARY_FIELDS \
  RECORD_FIELD_AS("job", ID, struct job_summary, id, ALWAYS_THERE), \
  FIELD(ENUM, state, ALWAYS_THERE, .names = job_state_names, \
   .schema = "{\"$ref\": \"#/components/schemas/JobState\"}"), \
  FIELD(ENUM, stage, ALWAYS_THERE, .names = stage_names, \
   .schema = "{\"$ref\": \"#/components/schemas/Stage\"}"), \
  FIELD(INTEGER, round, ALWAYS_THERE), \
  FIELD(DIGEST, kernel, ALWAYS_THERE), \
  FIELD(TEXT, name, ALWAYS_THERE), \
  FIELD(JSON, key, ALWAYS_THERE, \
   .schema = "{\"$ref\": \"#/components/schemas/Key\"}"), \
  FIELD(DIGEST, space_digest, ALWAYS_THERE), \
  FIELD(JSON, environment, ALWAYS_THERE, \
   .schema = "{\"$ref\": \"#/components/schemas/Environment\"}"), \
  FIELD(TEXT, tag, ALWAYS_THERE), \
  FIELD(TEXT, run, ALWAYS_THERE), \
  FIELD(ENUM, regime, ALWAYS_THERE, .names = regime_names, \
   .schema = "{\"$ref\": \"#/components/schemas/Regime\"}"), \
  FIELD(ENUM, purpose, ALWAYS_THERE, .names = job_purpose_names), \
  FIELD(INTEGER, priority, ALWAYS_THERE), \
  FIELD(RECORD, budget, FIELD_ANSWER, .of = &job_budget_record), \
  FIELD(TEXT, runner, ALWAYS_THERE), \
  FIELD(DIGEST, build, FIELD_ANSWER), \
  FIELD(INTEGER, baseline, ALWAYS_THERE), \
  FIELD(ENUM, baseline_from, ALWAYS_THERE, .names = baseline_from_names, \
   .schema = "{\"$ref\": \"#/components/schemas/BaselineFrom\"}"), \
  FIELD(INTEGER, seed, ALWAYS_THERE), \
  FIELD(RECORD, search, FIELD_ANSWER, .of = &job_search_record), \
  FIELD(RECORD, finals, ALWAYS_THERE, .of = &job_finals_record), \
  FIELD(INTEGER, configs, ALWAYS_THERE), \
  FIELD(INTEGER, measured, ALWAYS_THERE), \
  FIELD(JSON, outcomes, ALWAYS_THERE, \
   .schema = "{\"type\": \"object\", \"additionalProperties\": {\"type\": \"integer\"}}"), \
  FIELD(NUMBER, spent_device_seconds, ALWAYS_THERE), \
  FIELD(NUMBER, opening_device_seconds, ALWAYS_THERE, \
   .about = "of spent_device_seconds: opening the kernel"), \
  FIELD(TEXT, reason, FIELD_ANSWER), \
  FIELD(TIME, created_at, ALWAYS_THERE), \
  FIELD(TIME, finished_at, FIELD_ANSWER), \
  FIELD(TEXT, submitted_by, FIELD_ANSWER, .schema = SCHEMA_BY), \
  FIELD(ID, submitted_by_id, FIELD_ANSWER, .schema = SCHEMA_BY_ID), \
  FIELD(TEXT, cancelled_by, FIELD_ANSWER, .schema = SCHEMA_BY), \
  FIELD(ID, cancelled_by_id, FIELD_ANSWER, .schema = SCHEMA_BY_ID), \
  FIELD(ID, retry_of, FIELD_ANSWER, .about = "the failed or cancelled job that it tries again")
/* clang-format on */

static const struct field item_fields[] = {
    SUMMARY_FIELDS,
    FIELD(RECORD, winner, FIELD_ANSWER, .of = &job_winner_item_record),
};
const struct record job_item_record = RECORD("JobItem", struct job_summary, item_fields);

static const struct field job_fields[] = {
    SUMMARY_FIELDS,
    FIELD(RECORD, winner, FIELD_ANSWER, .of = &job_winner_record),
    FIELD(TEXT, waiting, FIELD_ANSWER, .about = "why its open leases are not granted"),
    FIELD(TEXT, handed_back, FIELD_ANSWER,
          .about = "why an agent handed back a lease of which nothing was measured since"),
    FIELD(JSON, space, ALWAYS_THERE, .schema = "{\"$ref\": \"#/components/schemas/Space\"}"),
    FIELD(JSON, flagged, FIELD_ANSWER, .schema = "{\"$ref\": \"#/components/schemas/Flagged\"}"),
    FIELD(TEXT, quarantined, FIELD_ANSWER),
    FIELD(TIME, measurements_removed_at, FIELD_ANSWER,
          .about = "when its measurements were removed, but for the final of a winner that may be "
                   "served"),
};
const struct record job_record = RECORD("Job", struct job_summary, job_fields);

static bool filters_bind(const struct request *request, struct db_parameters *parameters,
                         struct error *error) {
  bind_text(parameters, "state", request_query(request, "state"));
  return bind_job_filters(parameters, request_query(request, "tag"), request_query(request, "run"),
                          request_query(request, "kernel"), request_query(request, "user"), error);
}

/* Where the search for a text ends in this request, because no index has parts of texts: the next
 * page goes on there. 0: all jobs are searched. Otherwise answers. */
static bool search_end(struct worker *worker, struct request *request, int64_t *ret_end) {
  struct error error;
  int64_t limit, before;
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  if (!page_by_id(request, INT64_MAX, &limit, &before))
    return false;

  bind_integer(&parameters, "before", before);
  bind_integer(&parameters, "searched", JOBS_SEARCHED);
  if (!filters_bind(request, &parameters, &error) ||
      !db_run(worker->db, &sql_jobs_search_end, &parameters, &rows, &error)) {
    answer_failure(request, &error);
    return false;
  }
  *ret_end = db_count(rows) ? db_get_integer(rows, 0, "id") : 0;
  return true;
}

void route_job_list(struct worker *worker, struct request *request) {
  static const char *const names[] = {"limit", "after", "state",    "tag", "kernel",
                                      "run",   "user",  "contains", NULL};
  struct list list = {
      .statement = &sql_jobs_list, .record = &job_item_record, .is_newest_first = true};
  const char *state = request_query(request, "state"),
             *contains = request_query(request, "contains");
  enum job_state known;
  struct error error;
  if (!request_query_only(request, names))
    return;

  if (state && !job_state_parse(state, &known)) {
    answer_refusal(request, ERROR_INVALID, "",
                   "state=\"%.40s\" is not one of queued, running, done, failed and cancelled",
                   state);
    return;
  }

  cleanup_parameters struct db_parameters parameters = {0};
  if (!filters_bind(request, &parameters, &error)) {
    answer_failure(request, &error);
    return;
  }
  if (contains && !search_end(worker, request, &list.end))
    return;
  bind_text(&parameters, "contains", contains);
  bind_integer(&parameters, "end", list.end);
  answer_page(worker, request, &list, &parameters);
}

/* The job's summary, a new reference; answers and returns NULL when there is no such job. */
static json_t *summary_load(struct worker *worker, struct request *request, int64_t job) {
  struct error error;
  cleanup_rows struct db_rows *rows =
      db_query(worker->db, &sql_job_get, &error, BIND("job", job),
               BIND("live_ms", agent_live_ms(server_options(worker->server))));
  if (!rows || (!db_count(rows) && !job_absent(&error, job))) {
    answer_failure(request, &error);
    return NULL;
  }

  cleanup_json json_t *summaries = db_rows_to_json(rows, &job_record);
  return json_incref(json_array_get(summaries, 0));
}

void route_job_get(struct worker *worker, struct request *request) {
  int64_t job;
  if (!request_query_only(request, NULL) || !answer_id(request, "job", &job))
    return;

  json_t *summary = summary_load(worker, request, job);
  if (summary)
    request_answer_json(request, 200, summary);
}

void route_job_delete(struct worker *worker, struct request *request) {
  static const char *const names[] = {"any", NULL};
  const char *any = request_query(request, "any");
  struct error error;
  int64_t job;
  bool ended;
  if (!request_query_only(request, names) || !answer_id(request, "job", &job))
    return;
  if (any && !string_equal(any, "true") && !string_equal(any, "false")) {
    answer_refusal(request, ERROR_INVALID, "", "any=\"%.40s\" must be true or false", any);
    return;
  }
  if (!job_may_change(worker, request, job, string_equal(any, "true"), &error) ||
      !job_end(worker, job, NULL, request_author(request), &ended, &error)) {
    answer_failure(request, &error);
    return;
  }

  cleanup_json json_t *summary = summary_load(worker, request, job);
  if (!summary)
    return;

  const char *state = json_string_value(json_object_get(summary, "state"));
  if (!ended && strcmp(state, job_state_names[JOB_CANCELLED]) != 0)
    answer_refusal(request, ERROR_CONFLICT, "", "job %lld is %s already; nothing is left to cancel",
                   (long long)job, state);
  else
    request_answer_json(request, 200, TAKE(summary));
}

void route_job_measurements(struct worker *worker, struct request *request) {
  struct error error;
  int64_t job, limit, after;
  if (!request_query_only(request, list_arguments) || !page_by_id(request, 0, &limit, &after) ||
      !answer_id(request, "job", &job))
    return;

  cleanup_rows struct db_rows *rows =
      db_query(worker->db, &sql_job_measurements_list, &error, BIND("job", job),
               BIND("after", after), BIND("limit", limit));
  int n = rows ? db_count(rows) : 0;
  if (!rows || (n == 0 && !job_absent(&error, job))) {
    answer_failure(request, &error);
    return;
  }

  bool has_any = !db_is_null(rows, 0, "id"); /* a job without measurements gives one row */
  int64_t n_page =
      db_get_integer(rows, 0, "n"); /* the rows of the page before its end was cut off */
  bool is_more = has_any && (n_page == limit || n_page > n);
  json_t *items = has_any ? db_rows_to_json(rows, &stored_measurement_record) : json_array();
  request_answer_json(request, 200,
                      page_to_json(items, is_more ? db_get_integer(rows, n - 1, "id") : 0));
}

struct job_event {
  int64_t event;
  char *kind, *at;
  json_t *detail;
};
static const struct field event_fields[] = {
    RECORD_FIELD(INTEGER, struct job_event, event, ALWAYS_THERE),
    RECORD_FIELD(TEXT, struct job_event, kind, ALWAYS_THERE),
    RECORD_FIELD(TIME, struct job_event, at, ALWAYS_THERE),
    RECORD_FIELD(JSON, struct job_event, detail, ALWAYS_THERE, .schema = "{\"type\": \"object\"}"),
};
const struct record job_event_record = RECORD("JobEvent", struct job_event, event_fields);

void route_job_events(struct worker *worker, struct request *request) {
  static const char *const names[] = {"limit", "after", "wait", NULL};
  const char *wait = request_query(request, "wait");
  char *end;
  struct error error;
  int64_t job, limit, after;
  if (!request_query_only(request, names) || !page_by_id(request, 0, &limit, &after))
    return;

  double seconds = wait && *wait ? strtod(wait, &end) : 0;
  if (wait && (!*wait || *end || !(seconds >= 0 && seconds <= WAIT_SECONDS_MAX))) {
    answer_refusal(request, ERROR_INVALID, "", "wait=\"%.40s\" must be 0 to %d seconds", wait,
                   WAIT_SECONDS_MAX);
    return;
  }

  if (!answer_id(request, "job", &job))
    return;

  cleanup_rows struct db_rows *rows =
      db_query(worker->db, &sql_job_events_list, &error, BIND("job", job), BIND("after", after),
               BIND("limit", limit));
  int n = rows ? db_count(rows) : 0;
  if (!rows || (n == 0 && !job_absent(&error, job))) {
    answer_failure(request, &error);
    return;
  }

  bool has_events = !db_is_null(rows, 0, "event"); /* a job without newer events gives one row */
  int64_t deadline_ms = request->arrived_ms + (int64_t)(seconds * 1000);
  if (!has_events && !request->deadline_passed && clock_monotonic_ms() < deadline_ms) {
    char key[PARK_KEY_SIZE];
    request_park(worker, request, job_park_key(job, key), false, deadline_ms);
    return;
  }

  cleanup_free char *next =
      xasprintf("%lld", (long long)(has_events ? db_get_integer(rows, n - 1, "event") : after));
  json_t *items = has_events ? db_rows_to_json(rows, &job_event_record) : json_array();
  request_answer_json(request, 200, json_pack("{s:o, s:s}", "items", items, "next", next));
}
