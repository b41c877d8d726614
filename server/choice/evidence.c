/* POST /v1/evidence: what containers measured themselves, and what they counted.
 *
 * Memory: what a handler makes lives as long as it runs. Threads: database workers. */
#include "server/choice/choices.h"

#include "common/base/log.h"
#include "server/choice/evidence.sql.h"
#include "server/counters.h"
#include "server/db/db_record.h"
#include "server/http/rates.h"
#include "server/records.h"

#define SCHEMA_CONFIGS                                                                             \
  "{\"type\": \"array\", \"minItems\": 1, \"maxItems\": 16, "                                      \
  "\"items\": {\"$ref\": \"#/components/schemas/Config\"}}"

static const struct field item_fields[] = {
    RECORD_FIELD(DIGEST, struct evidence_item, function, FIELD_REQUIRED,
                 .about = "the closure of the function"),
    RECORD_FIELD(TEXT, struct evidence_item, name, FIELD_REQUIRED | FIELD_LINE, .least = 1,
                 .most = EVIDENCE_NAME_MAX),
    {"key", FIELD_TEXTS, offsetof(struct evidence_item, n_key), FIELD_REQUIRED | FIELD_NO_COLUMN,
     .least = 1, .most = EVIDENCE_KEY_MAX,
     .about = "the autotuner's key, each value as Python's repr writes it"},
    RECORD_FIELD(JSON, struct evidence_item, near, FIELD_REQUIRED | FIELD_ARRAY | FIELD_NO_COLUMN,
                 .most = EVIDENCE_NEAR_MAX, .schema = SCHEMA_CONFIGS,
                 .about = "configs within 2 % of the best, the best first"),
    RECORD_FIELD(INTEGER, struct evidence_item, configs, FIELD_REQUIRED, .least = 1,
                 .most = INT32_MAX),
    RECORD_FIELD(NUMBER, struct evidence_item, ms, 0, .most_number = EVIDENCE_MS_MAX),
    RECORD_FIELD(NUMBER, struct evidence_item, tuning_ms, 0, .most_number = EVIDENCE_MS_MAX),
};
static const struct record item_record = RECORD(NULL, struct evidence_item, item_fields);

#define COUNTER(counter, what)                                                                     \
  RECORD_FIELD(INTEGER, struct evidence_counters, counter, FIELD_NOT_NULL,                         \
               .most = EVIDENCE_COUNT_MAX, .about = what)
static const struct field counters_fields[] = {
    COUNTER(hits, "keys that found a choice"),
    COUNTER(misses, "keys without a choice"),
    COUNTER(unfit, "choices that were not one config of the program"),
    COUNTER(failures, "requests without an answer, and errors in the wheel"),
    RECORD_FIELD(NUMBER, struct evidence_counters, saved_ms, FIELD_NOT_NULL,
                 .most_number = EVIDENCE_MS_MAX, .about = "the sum of the hits' tuning_ms"),
};
static const struct record counters_record =
    RECORD(NULL, struct evidence_counters, counters_fields);

static const struct field report_fields[] = {
    {"environment", FIELD_CUSTOM, offsetof(struct evidence_report, environment), FIELD_REQUIRED,
     .custom = &environment_field},
    RECORD_FIELD(TEXT, struct evidence_report, tag, FIELD_NOT_NULL | FIELD_LINE, .least = 1,
                 .most = EVIDENCE_NODE_MAX),
    RECORD_FIELD(TEXT, struct evidence_report, node, FIELD_REQUIRED | FIELD_LINE, .least = 1,
                 .most = EVIDENCE_NODE_MAX),
    RECORD_FIELD(ENUM, struct evidence_report, regime, FIELD_NOT_NULL, .names = regime_names,
                 .schema = "{\"$ref\": \"#/components/schemas/Regime\"}"),
    {"items", FIELD_RECORDS, offsetof(struct evidence_report, n_items), FIELD_NOT_NULL, .least = 1,
     .most = EVIDENCE_ITEMS_MAX, .of = &item_record},
    RECORD_FIELD(RECORD, struct evidence_report, counters, FIELD_NOT_NULL, .of = &counters_record,
                 .about = "what the program counted since its last report"),
};
const struct record evidence_report_record =
    RECORD("EvidenceReport", struct evidence_report, report_fields);

/* Configs have no nested values and occur once: each is one vote. */
static bool near_check(const json_t *near, const char *at, struct error *error) {
  cleanup_json json_t *seen = json_object();
  char pointer[JSON_POINTER_SIZE], below[JSON_POINTER_SIZE];
  const json_t *config;
  json_t *value;
  const char *name;
  size_t i;
  json_array_foreach (near, i, config) {
    json_pointer_index(pointer, sizeof pointer, at, i);
    if (!json_is_object(config))
      return error_at(error, pointer, "a config must be an object");

    json_object_foreach ((json_t *)config, name, value)
      if (json_is_object(value) || json_is_array(value))
        return error_at(error, json_pointer_member(below, sizeof below, pointer, name),
                        "a value of a config must be a number, a string, a boolean or null");

    cleanup_free char *text = json_canonical(config);
    if (strlen(text) > EVIDENCE_CONFIG_MAX)
      return error_at(error, pointer, "a config has at most %d bytes", EVIDENCE_CONFIG_MAX);
    if (json_object_get(seen, text))
      return error_at(error, pointer, "this config occurs twice");
    json_put(seen, text, json_true());
  }

  return json_array_size(near) > 0 || error_at(error, at, "\"near\" must have the best config");
}

bool evidence_report_parse(const json_t *json, struct evidence_report *ret, struct error *error) {
  cleanup_evidence_report struct evidence_report report = {.tag = xstrdup("default"),
                                                           .regime = REGIME_COLD};
  if (!record_read(&evidence_report_record, json, "", &report, error))
    return false;
  if (!json_object_get(json, "items") && !json_object_get(json, "counters"))
    return error_at(error, "/items", "a report must have \"items\" or \"counters\"");

  for (size_t i = 0; i < report.n_items; i++) {
    const struct evidence_item *item = &report.items[i];
    char at[JSON_POINTER_SIZE], below[JSON_POINTER_SIZE];
    json_pointer_index(at, sizeof at, "/items", i);
    size_t key_bytes = 0;
    for (size_t j = 0; j < item->n_key; j++)
      key_bytes += strlen(item->key[j]);
    if (key_bytes > EVIDENCE_KEY_BYTES_MAX)
      return error_at(error, json_pointer_member(below, sizeof below, at, "key"),
                      "the values of a key have at most %d bytes", EVIDENCE_KEY_BYTES_MAX);
    if (!near_check(item->near, json_pointer_member(below, sizeof below, at, "near"), error))
      return false;
  }

  *ret = report;
  report = (struct evidence_report){0};
  return true;
}

void evidence_report_release(struct evidence_report *report) {
  record_release(&evidence_report_record, report);
}

/* Stores a report. *ret_stored: how many different keys of it. */
static bool evidence_keep(struct worker *worker, const struct evidence_report *report,
                          int64_t token, int64_t *ret_stored, struct error *error) {
  struct db_array digests, keys, nears;
  struct digest digest = environment_digest(&report->environment);
  cleanup_json json_t *environment = environment_to_json(&report->environment);
  cleanup_parameters struct db_parameters parameters = {0};
  cleanup_rows struct db_rows *rows = NULL;
  db_array_init(&digests);
  db_array_init(&keys);
  db_array_init(&nears);
  for (size_t i = 0; i < report->n_items; i++) {
    const struct evidence_item *item = &report->items[i];
    cleanup_json json_t *key = json_array();
    for (size_t j = 0; j < item->n_key; j++)
      json_push(key, json_string(item->key[j]));
    cleanup_free char *text = json_canonical(key), *near = json_canonical(item->near);
    struct digest of_key = digest_of(text, strlen(text));
    db_array_digest(&digests, &of_key);
    db_array_text(&keys, text);
    db_array_text(&nears, near);
  }

  bind_records(&parameters, &item_record, report->items, report->n_items);
  bind_array(&parameters, "key_digest", &digests);
  bind_array(&parameters, "key", &keys);
  bind_array(&parameters, "near", &nears);
  bind_digest(&parameters, "environment_digest", &digest);
  bind_taken(&parameters, "environment", json_canonical(environment), false);
  bind_text(&parameters, "tag", report->tag);
  bind_text(&parameters, "regime", regime_name(report->regime));
  bind_text(&parameters, "node", report->node);
  bind_integer(&parameters, "token", token);
  bind_integer(&parameters, "rows_max", EVIDENCE_ROWS_MAX);
  bind_integer(&parameters, "token_rows_max", EVIDENCE_TOKEN_ROWS_MAX);
  if (!db_run(worker->db, &sql_evidence_add, &parameters, &rows, error))
    return false;

  *ret_stored = db_count(rows);
  return true;
}

/* Adds the counters of a report to /metrics: by its tag if a channel has that tag, so that a client
 * cannot make labels. */
static bool counters_keep(struct worker *worker, const struct evidence_report *report,
                          struct error *error) {
  const struct evidence_counters *counters = &report->counters;
  const double counts[PROGRAM_COUNTER_COUNT] = {
      [PROGRAM_hits] = (double)counters->hits,
      [PROGRAM_misses] = (double)counters->misses,
      [PROGRAM_unfit] = (double)counters->unfit,
      [PROGRAM_failures] = (double)counters->failures,
      [PROGRAM_saved_seconds] = counters->saved_ms / 1e3,
  };
  cleanup_parameters struct db_parameters parameters = {0};
  cleanup_rows struct db_rows *rows = NULL;
  bool is_there = program_tag_is_counted(report->tag);
  bind_text(&parameters, "tag", report->tag);
  if (!is_there && !db_run(worker->db, &sql_evidence_tag, &parameters, &rows, error))
    return false;

  program_counters_add(is_there || db_count(rows) ? report->tag : "", counts);
  return true;
}

void route_evidence_post(struct worker *worker, struct request *request) {
  cleanup_evidence_report struct evidence_report report = {0};
  struct error error;
  int64_t stored = 0;
  if (!request_query_only(request, NULL))
    return;

  bool has_items = json_object_get(request->json, "items") != NULL;
  if (!request_may_report(request, has_items ? server_evidence_rates(worker->server)
                                             : server_counters_rates(worker->server)))
    return;

  if (!evidence_report_parse(request->json, &report, &error) ||
      (has_items && !evidence_keep(worker, &report, request->token_id, &stored, &error)) ||
      !counters_keep(worker, &report, &error)) {
    answer_failure(request, &error);
    return;
  }

  request_answer_json(request, 202,
                      json_pack("{s:I, s:I}", "stored", (json_int_t)stored, "dropped",
                                (json_int_t)((int64_t)report.n_items - stored)));
}

void evidence_housekeep(struct worker *worker) {
  struct error error;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "days", EVIDENCE_DAYS);
  bind_integer(&parameters, "at_once", EVIDENCE_AT_ONCE);
  if (!db_run(worker->db, &sql_evidence_collect, &parameters, NULL, &error))
    log_warning("evidence: %s", error.message);
}
