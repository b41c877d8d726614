/* POST /v1/demand: reports of deployments; GET /v1/demand: the untuned keys; POST /v1/demand/queue:
 * queueing jobs for them.
 *
 * Memory: a handler frees what it makes when it returns. Threads: database workers;
 * demand_housekeep: the housekeeper. */
#include "server/demand/demand.h"

#include <math.h>

#include "common/base/log.h"
#include "server/db/db_record.h"
#include "server/demand/demand.sql.h"
#include "server/http/rates.h"
#include "server/job/job_wish.h"
#include "server/records.h"
#include "server/server.h"

#define DEMAND_NAME_MAX 1024
#define DEMAND_KEY_MAX 256
#define DEMAND_KEY_BYTES_MAX 4096
#define DEMAND_WHY_MAX 1000

/* Policies */

const char *const demand_policy_names[] = {"off", "suggest", NULL};

bool demand_policy_parse(const char *name, enum demand_policy *ret_policy) {
  size_t i;
  if (!name_find(demand_policy_names, ARRAY_LENGTH(demand_policy_names) - 1, name, &i))
    return false;

  *ret_policy = (enum demand_policy)i;
  return true;
}

/* Reports */

#define RECORD_OF struct demand_item
static const struct field item_fields[] = {
    MEMBER_AS("kernel", TEXT, name, FIELD_REQUIRED, .about = "its hash, or its name"),
    MEMBER(JSON, key, FIELD_REQUIRED | FIELD_OBJECT, .schema = SCHEMA("Key")),
    MEMBER(INTEGER, hits, FIELD_NOT_NULL, .most = DEMAND_COUNT_MAX),
    MEMBER(INTEGER, misses, FIELD_NOT_NULL, .most = DEMAND_COUNT_MAX),
    MEMBER(NUMBER, tuning_ms, .most_number = DEMAND_MS_MAX),
    MEMBER(NUMBER, kernel_ms, .most_number = DEMAND_MS_MAX),
};
#undef RECORD_OF
static const struct record item_record = RECORD(NULL, struct demand_item, item_fields);

#define RECORD_OF struct demand_miss
static const struct field miss_fields[] = {
    MEMBER(DIGEST, function, FIELD_REQUIRED, .about = "its closure"),
    MEMBER(TEXT, name, FIELD_REQUIRED | FIELD_LINE, .least = 1, .most = DEMAND_NAME_MAX),
    MEMBER_AS("key", TEXTS, n_key, FIELD_REQUIRED | FIELD_NO_COLUMN, .least = 1,
              .most = DEMAND_KEY_MAX,
              .about = "the autotuner's key, each value as Python's repr writes it"),
    MEMBER(TEXT, why, FIELD_REQUIRED | FIELD_LINE, .least = 1, .most = DEMAND_WHY_MAX),
    MEMBER(NUMBER, tuning_ms, .most_number = DEMAND_MS_MAX,
           .about = "that the program then spent on tuning it"),
};
#undef RECORD_OF
static const struct record miss_record = RECORD(NULL, struct demand_miss, miss_fields);

#define RECORD_OF struct demand_report
static const struct field report_fields[] = {
    MEMBER(CUSTOM, environment, FIELD_REQUIRED, .custom = &environment_field),
    MEMBER(TEXT, image),
    MEMBER(TEXT, tag, FIELD_NOT_NULL, .least = 1, .most = JOB_TEXT_MAX),
    MEMBER(ENUM, regime, FIELD_NOT_NULL, .names = regime_names, .schema = SCHEMA("Regime")),
    MEMBER(RECORDS, items, FIELD_NOT_NULL, .least = 1, .most = DEMAND_ITEMS_MAX,
           .of = &item_record),
    MEMBER_AS("missed", RECORDS, n_missed, FIELD_NOT_NULL, .least = 1, .most = DEMAND_ITEMS_MAX,
              .of = &miss_record,
              .about = "keys for which a program that starts tuned had no config"),
};
#undef RECORD_OF
const struct record demand_report_record =
    RECORD("DemandReport", struct demand_report, report_fields);

void demand_report_release(struct demand_report *report) {
  record_release(&demand_report_record, report);
}

bool demand_report_parse(const json_t *json, struct demand_report *ret, struct error *error) {
  cleanup_demand_report struct demand_report report = {.tag = xstrdup("default"),
                                                       .regime = REGIME_IMPLIED};
  if (!record_read(&demand_report_record, json, "", &report, error))
    return false;

  if (!report.items.n && !report.n_missed)
    return error_at(error, "/items", "a report must have \"items\" or \"missed\"");
  for (size_t i = 0; i < report.n_missed; i++) {
    char at[JSON_POINTER_SIZE];
    size_t bytes = 0;
    for (size_t j = 0; j < report.missed[i].n_key; j++)
      bytes += strlen(report.missed[i].key[j]);
    if (bytes > DEMAND_KEY_BYTES_MAX)
      return error_at(error, json_pointer_index(at, sizeof at, "/missed", i),
                      "the values of a key have at most %d bytes", DEMAND_KEY_BYTES_MAX);
  }

  struct demand_item *items = report.items.all;
  for (size_t i = 0; i < report.items.n; i++) {
    struct demand_item *item = &items[i];
    item->hits = item->hits == FIELD_NONE ? 0 : item->hits;
    item->misses = item->misses == FIELD_NONE ? 0 : item->misses;
    item->tuning_ms = item->tuning_ms >= DEMAND_MS_MIN ? item->tuning_ms : NAN;
    item->kernel_ms = item->kernel_ms >= DEMAND_MS_MIN ? item->kernel_ms : NAN;
    item->has_hash = digest_parse(item->name, &item->kernel);
  }

  *ret = report;
  report = (struct demand_report){0};
  return true;
}

/* The counts of a key. */
struct demand_row {
  struct digest kernel, key_digest;
  char *key; /* JSON text, members in the kernel's order */
  int64_t hits, misses;
  double tuning_ms, kernel_ms;
};
#define RECORD_OF struct demand_row
static const struct field row_fields[] = {
    MEMBER(DIGEST, kernel),    MEMBER(DIGEST, key_digest), MEMBER(TEXT, key),
    MEMBER(INTEGER, hits),     MEMBER(INTEGER, misses),    MEMBER(NUMBER, tuning_ms),
    MEMBER(NUMBER, kernel_ms),
};
#undef RECORD_OF
static const struct record row_record = RECORD(NULL, struct demand_row, row_fields);

/* An untuned key that was missed. */
struct demand_wanted {
  int64_t id;
  struct digest kernel;
  enum regime regime;
  char *name, *tag, *last_at, *refused;
  json_t *key, *environment;
  int64_t hits, misses;
  double tuning_ms, kernel_ms, gain, saved_ms;
  json_t *space;     /* of the kernel's newest job that tuned; NULL: it has none */
  int64_t budget_ms; /* of that job; FIELD_NONE: none */
};
#define RECORD_OF struct demand_wanted
static const struct field wanted_fields[] = {
    MEMBER(INTEGER, id, FIELD_NO_JSON),
    MEMBER(DIGEST, kernel),
    MEMBER(TEXT, name),
    MEMBER(JSON, key, .schema = SCHEMA("Key")),
    MEMBER(JSON, environment, .schema = SCHEMA("Environment")),
    MEMBER(TEXT, tag),
    MEMBER(ENUM, regime, .names = regime_names, .schema = SCHEMA("Regime")),
    MEMBER(INTEGER, hits),
    MEMBER(INTEGER, misses),
    MEMBER(NUMBER, tuning_ms),
    MEMBER(NUMBER, kernel_ms),
    MEMBER(NUMBER, gain),
    MEMBER(NUMBER, saved_ms),
    MEMBER(TIME, last_at),
    MEMBER(TEXT, refused,
           .about = "why no job was queued, until an agent of the environment enrols"),
    MEMBER(JSON, space, FIELD_NO_JSON),
    MEMBER(INTEGER, budget_ms, FIELD_NO_JSON),
};
const struct record demand_item_record = ANSWER("DemandItem", wanted_fields);
#undef RECORD_OF

/* A key that programs missed, as it is listed. */
struct demand_missed {
  struct digest function;
  enum regime regime;
  char *name, *tag, *why, *last_at;
  json_t *key, *environment;
  int64_t misses, capture;
  double tuning_ms, saved_ms;
};
#define RECORD_OF struct demand_missed
static const struct field missed_fields[] = {
    MEMBER(DIGEST, function, .about = "its closure"),
    MEMBER(TEXT, name),
    MEMBER(JSON, key, .schema = "{\"type\": \"array\", \"items\": {\"type\": \"string\"}}"),
    MEMBER(JSON, environment, .schema = SCHEMA("Environment")),
    MEMBER(TEXT, tag),
    MEMBER(ENUM, regime, .names = regime_names, .schema = SCHEMA("Regime")),
    MEMBER(INTEGER, misses),
    MEMBER(NUMBER, tuning_ms, .about = "that a program spent on the key last"),
    MEMBER(NUMBER, saved_ms, .about = "misses times tuning_ms"),
    MEMBER(TEXT, why, .about = "as a program reported it last"),
    MEMBER(ID, capture, .about = "the captured function; null: it was not captured"),
    MEMBER(TIME, last_at),
};
const struct record demand_missed_record = ANSWER("DemandMissed", missed_fields);
#undef RECORD_OF

/* The answer for a key whose job was to be queued. */
struct demand_queued {
  struct digest kernel;
  const char *name, *refused;
  json_t *key;
  int64_t job; /* FIELD_NONE: it was refused */
};
#define RECORD_OF struct demand_queued
static const struct field queued_fields[] = {
    MEMBER(DIGEST, kernel),
    MEMBER(TEXT, name),
    MEMBER(JSON, key, .schema = SCHEMA("Key")),
    MEMBER(ID, job, FIELD_OMITTED),
    MEMBER(TEXT, refused, FIELD_OMITTED),
};
const struct record demand_queued_record = ANSWER("DemandQueued", queued_fields);
#undef RECORD_OF

/* Adds a report to the counts. *ret_accepted: how many items were stored; the others have a kernel
 * that is not registered or cannot be tuned, or a key that does not fit it. */
static bool demand_keep(struct worker *worker, const struct demand_report *report,
                        const struct author *author, size_t *ret_accepted, struct error *error) {
  size_t n_items = report->items.n, n = 0;
  if (!n_items)
    return true;
  const struct demand_item *items = report->items.all;
  cleanup_free struct digest *hashes = xcalloc(n_items, sizeof *hashes);
  cleanup_free bool *known = xcalloc(n_items, sizeof *known);
  struct db_array names;
  db_array_init(&names);
  for (size_t i = 0; i < n_items; i++) {
    known[i] = items[i].has_hash;
    hashes[i] = items[i].kernel;
    db_array_text(&names, items[i].has_hash ? NULL : items[i].name);
  }

  /* A name refers to the kernel of this name that was registered last. */
  cleanup_catalog struct catalog catalog = {0};
  cleanup_rows struct db_rows *named =
      db_query(worker->db, &sql_demand_kernels, error, parameter_array("names", &names));
  if (!named)
    return false;

  for (int row = 0; row < db_count(named); row++) {
    size_t i = (size_t)db_get_integer(named, row, "n") - 1;
    hashes[i] = db_get_digest(named, row, "hash");
    known[i] = true;
  }

  if (!catalog_load(worker, hashes, n_items, &catalog, error))
    return false;

  struct demand_row *rows = xcalloc(n_items, sizeof *rows);
  for (size_t i = 0; i < n_items; i++) {
    const struct kernel *kernel = known[i] ? catalog_find(&catalog, &hashes[i])->kernel : NULL;
    cleanup_key struct key key = {0};
    struct error why;
    if (!kernel || kernel->language == LANGUAGE_EXTERNAL ||
        !key_parse(items[i].key, (const char *const *)kernel->key_names, kernel->n_key_names, &key,
                   &why))
      continue;
    cleanup_json json_t *ordered = key_to_json(&key);
    rows[n++] = (struct demand_row){.kernel = kernel->hash,
                                    .key_digest = key_digest(&key),
                                    .key = json_dumps(ordered, JSON_COMPACT),
                                    .hits = items[i].hits,
                                    .misses = items[i].misses,
                                    .tuning_ms = items[i].tuning_ms,
                                    .kernel_ms = items[i].kernel_ms};
  }

  struct digest digest = environment_digest(&report->environment);
  cleanup_json json_t *environment = environment_to_json(&report->environment);
  *ret_accepted = n;
  bool ok =
      n == 0 ||
      db_execute(worker->db, &sql_demand_add, error, BIND_RECORDS(&row_record, rows, n),
                 BIND("environment_digest", &digest),
                 parameter_taken("environment", json_canonical(environment)),
                 BIND("tag", report->tag), BIND("image", report->image ? report->image : ""),
                 BIND("regime", regime_name(report->regime)), BIND("rows_max", DEMAND_ROWS_MAX),
                 BIND("total_max", DEMAND_TOTAL_MAX), BIND_AUTHOR(author));
  db_records_free(&row_record, rows, n);
  return ok;
}

/* Adds what programs missed to the counts. *ret_stored: how many of them. */
static bool misses_keep(struct worker *worker, const struct demand_report *report,
                        const struct author *author, size_t *ret_stored, struct error *error) {
  struct db_array keys, digests;
  struct digest digest = environment_digest(&report->environment);
  cleanup_json json_t *environment = environment_to_json(&report->environment);
  if (!report->n_missed)
    return true;

  db_array_init(&keys);
  db_array_init(&digests);
  for (size_t i = 0; i < report->n_missed; i++) {
    cleanup_json json_t *key = json_array();
    for (size_t j = 0; j < report->missed[i].n_key; j++)
      json_push(key, json_string(report->missed[i].key[j]));
    cleanup_free char *text = json_canonical(key);
    struct digest of_key = digest_of(text, strlen(text));
    db_array_text(&keys, text);
    db_array_digest(&digests, &of_key);
  }
  cleanup_rows struct db_rows *rows = db_query(
      worker->db, &sql_demand_misses_add, error,
      BIND_RECORDS(&miss_record, report->missed, report->n_missed), parameter_array("key", &keys),
      parameter_array("key_digest", &digests), BIND("environment_digest", &digest),
      parameter_taken("environment", json_canonical(environment)), BIND("tag", report->tag),
      BIND("regime", regime_name(report->regime)), BIND("rows_max", DEMAND_ROWS_MAX),
      BIND("total_max", DEMAND_TOTAL_MAX), BIND_AUTHOR(author));
  if (!rows)
    return false;
  *ret_stored = (size_t)db_count(rows);
  return true;
}

struct demand_answer {
  int64_t accepted, ignored;
  enum demand_policy policy;
};
#define RECORD_OF struct demand_answer
static const struct field answer_fields[] = {
    MEMBER(INTEGER, accepted),
    MEMBER(INTEGER, ignored),
    MEMBER(ENUM, policy, .names = demand_policy_names),
};
const struct record demand_answer_record = ANSWER("DemandAnswer", answer_fields);
#undef RECORD_OF

bool route_demand_post(struct worker *worker, struct request *request, struct error *error) {
  enum demand_policy policy = server_options(worker->server)->demand;
  cleanup_demand_report struct demand_report report = {0};
  size_t accepted = 0, stored = 0;
  if (!request_may_report(request, server_demand_rates(worker->server), error) ||
      !demand_report_parse(request->json, &report, error))
    return false;

  if (policy != DEMAND_OFF &&
      (!demand_keep(worker, &report, request_author(request), &accepted, error) ||
       !misses_keep(worker, &report, request_author(request), &stored, error)))
    return false;

  size_t n = report.items.n + report.n_missed;
  accepted += stored;
  const struct demand_answer answer = {(int64_t)accepted, (int64_t)(n - accepted), policy};
  return request_answer_json(request, 202, record_write(&demand_answer_record, &answer));
}

/* Queueing */

bool demand_wanted_read(struct db *db, int64_t limit, enum demand_use use, int64_t policy,
                        struct db_rows **ret_rows, struct error *error) {
  return (*ret_rows = db_query(
              db, &sql_demand_wanted, error, BIND("limit", limit), BIND("gain", DEMAND_GAIN),
              parameter_bool("is_list", use == DEMAND_LIST), parameter_id("policy", policy)));
}

bool demand_decide(struct db *db, int64_t id, int64_t job, const struct error *refused,
                   struct error *error) {
  return db_execute(db, &sql_demand_decided, error, BIND("id", id),
                    BIND("refused", job ? NULL : refused->message),
                    parameter_bool("waits", !job && refused->kind == ERROR_UNAVAILABLE),
                    parameter_id("job", job));
}

bool route_demand_get(struct worker *worker, struct request *request, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL, *missed = NULL;
  int64_t limit;
  const char *after;
  if (!page_read(request, &limit, &after, error) ||
      !demand_wanted_read(worker->db, limit, DEMAND_LIST, 0, &rows, error) ||
      !(missed = db_query(worker->db, &sql_demand_missed, error, BIND("limit", limit),
                          BIND("days", DEMAND_MISS_DAYS))))
    return false;
  return request_answer_json(
      request, 200,
      json_pack("{s:o, s:n, s:o, s:s}", "items", db_rows_to_json(rows, &demand_item_record), "next",
                "missed", db_rows_to_json(missed, &demand_missed_record), "policy",
                demand_policy_names[server_options(worker->server)->demand]));
}

/* Queues a job for the key with the space and budget of the kernel's newest job, as a person would.
 * *ret_job: 0 when it was refused for the reason in *refused. Fails only if the database does. */
static bool wanted_queue(struct worker *worker, const struct demand_wanted *wanted,
                         const struct author *author, int64_t *ret_job, struct error *refused,
                         struct error *error) {
  const struct job_wish wish = {
      .kernel = wanted->kernel,
      .key = wanted->key,
      .space = wanted->space,
      .environment = wanted->environment,
      .tag = wanted->tag,
      .run = "",
      .regime = wanted->regime,
      .priority = DEMAND_PRIORITY,
      .budget_s = wanted->budget_ms == FIELD_NONE ? NAN : (double)wanted->budget_ms / 1000};
  struct job_known job;
  *ret_job = 0;
  if (wanted->space) {
    if (!job_wish_submit(worker, &wish, author, &job, refused, error))
      return false;
    *ret_job = job.id;
    if (job.id || refused->kind != ERROR_RATE)
      return true;
    *error = *refused; /* it is the token's limit: the key stays listed for others */
    return false;
  }
  error_set(refused,
            "no job of this kernel is done yet, so it is not known which space to tune: submit a "
            "job");
  return true;
}

/* Queues jobs for the first `top` untuned keys. A key whose job is refused is tried again after a
 * day, or when an agent has enrolled that it waits for. *ret_answers: [{"kernel", "name", "key",
 * "job" or "refused"}]. */
static bool demand_queue(struct worker *worker, int64_t top, const struct author *author,
                         json_t **ret_answers, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  if (!demand_wanted_read(worker->db, top, DEMAND_QUEUE, 0, &rows, error))
    return false;

  size_t n;
  struct demand_wanted *all = db_read_all(rows, &demand_item_record, &n);
  cleanup_json json_t *answers = json_array();
  bool ok = true;
  for (size_t i = 0; ok && i < n; i++) {
    const struct demand_wanted *wanted = &all[i];
    struct error refused = {0};
    int64_t job;
    ok = wanted_queue(worker, wanted, author, &job, &refused, error);
    if (!ok)
      break;

    const struct demand_queued queued = {.kernel = wanted->kernel,
                                         .name = wanted->name,
                                         .refused = job ? NULL : refused.message,
                                         .key = wanted->key,
                                         .job = job ? job : FIELD_NONE};
    ALWAYS(json_array_append_new(answers, record_write(&demand_queued_record, &queued)) == 0);
    ok = demand_decide(worker->db, wanted->id, job, &refused, error);
  }

  db_records_free(&demand_item_record, all, n);
  if (ok)
    *ret_answers = TAKE(answers);
  return ok;
}

struct queue_request {
  int64_t top;
};
#define RECORD_OF struct queue_request
static const struct field queue_request_fields[] = {
    MEMBER(INTEGER, top, FIELD_REQUIRED, .least = 1, .most = DEMAND_QUEUE_MAX),
};
#undef RECORD_OF
const struct record demand_queue_request_record =
    RECORD("DemandQueueRequest", struct queue_request, queue_request_fields);

bool route_demand_queue(struct worker *worker, struct request *request, struct error *error) {
  struct queue_request asked;
  json_t *answers;
  if (!record_read(&demand_queue_request_record, request->json, "", &asked, error) ||
      !demand_queue(worker, asked.top, request_author(request), &answers, error))
    return false;
  return request_answer_json(request, 200, json_pack("{s:o}", "items", answers));
}

void demand_housekeep(struct worker *worker) {
  struct error error;
  if (!db_execute(worker->db, &sql_demand_misses_collect, &error, BIND("days", DEMAND_MISS_DAYS),
                  BIND("at_once", DEMAND_ITEMS_MAX)))
    log_warning("demand: %s", error.message);
}
