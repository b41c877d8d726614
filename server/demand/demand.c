/* Keeping reports, and queueing jobs for what is missed most. Memory and threads: as the header
 * says. */
#include "server/demand/demand.h"

#include "common/base/log.h"
#include "server/db/db_record.h"
#include "server/db/values.h"
#include "server/demand/demand.sql.h"
#include "server/demand/demand_rate.h"
#include "server/housekeep.h"
#include "server/job/submit.h"
#include "server/records.h"
#include "server/server_private.h"

#define QUEUE_EVERY_MS 10000
#define QUEUE_AT_ONCE 16
#define SCHEMA(name) "{\"$ref\": \"#/components/schemas/" name "\"}"

/* A key that is counted. */
struct demand_row {
  struct digest kernel, key_digest;
  char *key; /* JSON text, members in the kernel's order */
  int64_t hits, misses;
  double tuning_ms, kernel_ms;
};
static const struct field row_fields[] = {
    {"kernel", FIELD_DIGEST, offsetof(struct demand_row, kernel)},
    {"key_digest", FIELD_DIGEST, offsetof(struct demand_row, key_digest)},
    {"key", FIELD_TEXT, offsetof(struct demand_row, key)},
    {"hits", FIELD_INTEGER, offsetof(struct demand_row, hits)},
    {"misses", FIELD_INTEGER, offsetof(struct demand_row, misses)},
    {"tuning_ms", FIELD_NUMBER, offsetof(struct demand_row, tuning_ms)},
    {"kernel_ms", FIELD_NUMBER, offsetof(struct demand_row, kernel_ms)},
};
static const struct record row_record = RECORD(NULL, struct demand_row, row_fields);

/* A key that is wanted. */
struct demand_wanted {
  int64_t id;
  struct digest kernel;
  char *name, *tag, *regime, *last_at;
  json_t *key, *environment;
  int64_t hits, misses;
  double tuning_ms, kernel_ms, gain, saved_ms;
  json_t *space;     /* of the job that shows it; NULL: there is none */
  int64_t budget_ms; /* of that job; FIELD_NONE: none */
};
static const struct field wanted_fields[] = {
    {"id", FIELD_INTEGER, offsetof(struct demand_wanted, id), FIELD_NO_JSON},
    {"kernel", FIELD_DIGEST, offsetof(struct demand_wanted, kernel), FIELD_ANSWER},
    {"name", FIELD_TEXT, offsetof(struct demand_wanted, name), FIELD_ANSWER},
    {"key", FIELD_JSON, offsetof(struct demand_wanted, key), FIELD_ANSWER, .schema = SCHEMA("Key")},
    {"environment", FIELD_JSON, offsetof(struct demand_wanted, environment), FIELD_ANSWER,
     .schema = SCHEMA("Environment")},
    {"tag", FIELD_TEXT, offsetof(struct demand_wanted, tag), FIELD_ANSWER},
    {"regime", FIELD_TEXT, offsetof(struct demand_wanted, regime), FIELD_ANSWER,
     .schema = SCHEMA("Regime")},
    {"hits", FIELD_INTEGER, offsetof(struct demand_wanted, hits), FIELD_ANSWER},
    {"misses", FIELD_INTEGER, offsetof(struct demand_wanted, misses), FIELD_ANSWER},
    {"tuning_ms", FIELD_NUMBER, offsetof(struct demand_wanted, tuning_ms), FIELD_ANSWER},
    {"kernel_ms", FIELD_NUMBER, offsetof(struct demand_wanted, kernel_ms), FIELD_ANSWER},
    {"gain", FIELD_NUMBER, offsetof(struct demand_wanted, gain), FIELD_ANSWER},
    {"saved_ms", FIELD_NUMBER, offsetof(struct demand_wanted, saved_ms), FIELD_ANSWER},
    {"last_at", FIELD_TIME, offsetof(struct demand_wanted, last_at), FIELD_ANSWER},
    {"space", FIELD_JSON, offsetof(struct demand_wanted, space), FIELD_NO_JSON},
    {"budget_ms", FIELD_INTEGER, offsetof(struct demand_wanted, budget_ms), FIELD_NO_JSON},
};
const struct record demand_item_record = RECORD("DemandItem", struct demand_wanted, wanted_fields);

/* What came of one that was to be queued. */
struct demand_queued {
  struct digest kernel;
  const char *name, *refused;
  json_t *key;
  int64_t job; /* FIELD_NONE: it was refused */
};
static const struct field queued_fields[] = {
    {"kernel", FIELD_DIGEST, offsetof(struct demand_queued, kernel), FIELD_ANSWER},
    {"name", FIELD_TEXT, offsetof(struct demand_queued, name), FIELD_ANSWER},
    {"key", FIELD_JSON, offsetof(struct demand_queued, key), FIELD_ANSWER, .schema = SCHEMA("Key")},
    {"job", FIELD_ID, offsetof(struct demand_queued, job), FIELD_ANSWER | FIELD_OMITTED},
    {"refused", FIELD_TEXT, offsetof(struct demand_queued, refused), FIELD_ANSWER | FIELD_OMITTED},
};
const struct record demand_queued_record =
    RECORD("DemandQueued", struct demand_queued, queued_fields);

/* For each i with a name: the hash of the kernel of this name that was registered last.
 * ret_known[i] is set to whether there is one; entries without a name stay as they are. */
static bool kernels_find(struct db *db, const char *const *names, size_t n,
                         struct digest *ret_hashes, bool *ret_known, struct error *error) {
  struct db_array array;
  db_array_init(&array);
  for (size_t i = 0; i < n; i++)
    db_array_text(&array, names[i]);

  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_array(&parameters, "names", &array);
  if (!db_run(db, &sql_demand_kernels, &parameters, &rows, error))
    return false;
  for (int row = 0; row < db_count(rows); row++) {
    size_t i = (size_t)db_get_integer(rows, row, "n") - 1;
    ret_hashes[i] = db_get_digest(rows, row, "hash");
    ret_known[i] = true;
  }
  return true;
}

static bool rows_add(struct db *db, const struct demand_row *rows, size_t n,
                     const struct demand_report *report, const struct author *author,
                     struct error *error) {
  struct digest digest = environment_digest(&report->environment);
  cleanup_json json_t *environment = environment_to_json(&report->environment);
  cleanup_parameters struct db_parameters parameters = {0};
  bind_records(&parameters, &row_record, rows, n);
  bind_digest(&parameters, "environment_digest", &digest);
  bind_taken(&parameters, "environment", json_canonical(environment), false);
  bind_text(&parameters, "tag", report->tag);
  bind_text(&parameters, "regime", regime_name(report->regime));
  bind_integer(&parameters, "rows_max", DEMAND_ROWS_MAX);
  bind_integer(&parameters, "total_max", DEMAND_TOTAL_MAX);
  bind_author(&parameters, author);
  return db_run(db, &sql_demand_add, &parameters, NULL, error);
}

/* The item as the kernel's key is written, or false: it says nothing of a kernel that can be
 * tuned. */
static bool row_make(const struct demand_item *item, const struct kernel *kernel,
                     struct demand_row *ret) {
  cleanup_key struct key key = {0};
  struct error why;
  if (!kernel || kernel->language == LANGUAGE_EXTERNAL ||
      !key_parse(item->key, (const char *const *)kernel->key_names, kernel->n_key_names, &key,
                 &why))
    return false;
  cleanup_json json_t *ordered = key_to_json(&key);
  *ret = (struct demand_row){.kernel = kernel->hash,
                             .key_digest = key_digest(&key),
                             .key = json_dumps(ordered, JSON_COMPACT),
                             .hits = item->hits,
                             .misses = item->misses,
                             .tuning_ms = item->tuning_ms,
                             .kernel_ms = item->kernel_ms};
  return true;
}

bool demand_keep(struct worker *worker, const struct demand_report *report,
                 const struct author *author, size_t *ret_accepted, struct error *error) {
  size_t n_items = report->items.n, n = 0;
  const struct demand_item *items = report->items.all;
  cleanup_free struct digest *hashes = xcalloc(n_items, sizeof *hashes);
  cleanup_free bool *known = xcalloc(n_items, sizeof *known);
  cleanup_free const char **names = xcalloc(n_items, sizeof *names);
  for (size_t i = 0; i < n_items; i++) {
    known[i] = items[i].has_hash;
    hashes[i] = items[i].kernel;
    names[i] = items[i].has_hash ? NULL : items[i].name;
  }

  cleanup_catalog struct catalog catalog = {0};
  if (!kernels_find(worker->db, names, n_items, hashes, known, error) ||
      !catalog_load(worker, hashes, n_items, &catalog, error))
    return false;

  struct demand_row *rows = xcalloc(n_items, sizeof *rows);
  for (size_t i = 0; i < n_items; i++)
    n += known[i] && row_make(&items[i], catalog_find(&catalog, &hashes[i])->kernel, &rows[n]);
  bool ok = n == 0 || rows_add(worker->db, rows, n, report, author, error);
  db_records_free(&row_record, rows, n);
  *ret_accepted = n;
  return ok;
}

static bool wanted_run(struct db *db, int64_t limit, struct db_rows **ret_rows,
                       struct error *error) {
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "limit", limit);
  bind_number(&parameters, "gain", DEMAND_GAIN);
  return db_run(db, &sql_demand_wanted, &parameters, ret_rows, error);
}

bool demand_list(struct db *db, int64_t limit, json_t **ret_items, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  if (!wanted_run(db, limit, &rows, error))
    return false;
  *ret_items = db_rows_to_json(rows, &demand_item_record);
  return true;
}

/* The job that a person would submit for it, from the kernel's newest one. */
static json_t *job_body(const struct demand_wanted *wanted) {
  json_t *body =
      json_pack("{s:o, s:O, s:O, s:O, s:s, s:s, s:i}", "kernel", json_digest_text(&wanted->kernel),
                "key", wanted->key, "space", wanted->space, "environment", wanted->environment,
                "tag", wanted->tag, "regime", wanted->regime, "priority", DEMAND_PRIORITY);
  ALWAYS(body != NULL);
  if (wanted->budget_ms != FIELD_NONE)
    json_object_set_new(body, "budget",
                        json_pack("{s:f}", "device_seconds", (double)wanted->budget_ms / 1000));
  return body;
}

/* Queues one; refused, with a sentence that is kept, is an answer too. False: the database. */
static bool wanted_queue(struct worker *worker, const struct demand_wanted *wanted,
                         const struct author *author, int64_t *ret_job, struct error *refused,
                         struct error *error) {
  struct submission submission = {0};
  *ret_job = 0;
  if (!wanted->space) {
    error_set(
        refused,
        "no job of this kernel is done yet, so nothing shows which space to tune: submit one");
    return true;
  }
  cleanup_json json_t *body = job_body(wanted);
  if (!job_request_parse(body, &submission.request, refused))
    return true;
  cleanup_catalog struct catalog catalog = {0};
  struct job_row *row = &submission.row;
  json_t *extra = NULL;
  bool ok = catalog_load(worker, &wanted->kernel, 1, &catalog, error);
  bool is_right = ok && submission_check(worker, &catalog, &submission, &extra, refused);
  json_decref(extra);
  if (ok && !is_right && refused->kind != ERROR_INVALID) {
    *error = *refused;
    ok = false;
  }
  if (is_right && json_integer_value(json_object_get(submission.agents, "matching")) == 0)
    error_set(refused, "no live agent matches its environment, so a job would only wait");
  else if (is_right) {
    submission.stored = row;
    ok = jobs_find(worker->db, &row, 1, error);
    bool is_planned =
        ok && (row->known.id || submission_plan(&submission, JOB_POINTS_MAX, refused));
    if (is_planned) {
      ok = row->known.id || submissions_store(worker, &row, 1, author, error);
      *ret_job = ok ? row->known.id : 0;
    }
  }
  submission_release(&submission);
  return ok;
}

static bool wanted_decide(struct db *db, const struct demand_wanted *wanted,
                          const struct demand_queued *queued, struct error *error) {
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "id", wanted->id);
  bind_record(&parameters, &demand_queued_record, queued);
  return db_run(db, &sql_demand_decided, &parameters, NULL, error);
}

/* Queues each and adds what came of it to `answers`. */
static bool wanted_queue_all(struct worker *worker, const struct demand_wanted *all, size_t n,
                             const struct author *author, json_t *answers, struct error *error) {
  for (size_t i = 0; i < n; i++) {
    const struct demand_wanted *wanted = &all[i];
    struct error refused = {0};
    int64_t job;
    if (!wanted_queue(worker, wanted, author, &job, &refused, error))
      return false;

    const struct demand_queued queued = {.kernel = wanted->kernel,
                                         .name = wanted->name,
                                         .refused = job ? NULL : refused.message,
                                         .key = wanted->key,
                                         .job = job ? job : FIELD_NONE};
    if (!wanted_decide(worker->db, wanted, &queued, error))
      return false;
    ALWAYS(json_array_append_new(answers, record_write(&demand_queued_record, &queued)) == 0);
  }
  return true;
}

bool demand_queue(struct worker *worker, int64_t top, const struct author *author,
                  json_t **ret_answers, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  if (!wanted_run(worker->db, top, &rows, error))
    return false;

  size_t n;
  struct demand_wanted *all = db_read_all(rows, &demand_item_record, &n);
  cleanup_json json_t *answers = json_array();
  bool ok = wanted_queue_all(worker, all, n, author, answers, error);
  db_records_free(&demand_item_record, all, n);
  if (ok)
    *ret_answers = TAKE(answers);
  return ok;
}

/* Jobs that were queued for demand in the last hour. */
static bool queued_lately(struct db *db, int64_t *ret_jobs, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(db, &sql_demand_queued_lately, NULL, &rows, error))
    return false;
  *ret_jobs = db_get_integer(rows, 0, "n");
  return true;
}

void demand_housekeep(struct worker *worker) {
  struct error error;
  int64_t queued;
  const struct server_options *options = server_options(worker->server);
  if (options->demand != DEMAND_AUTOMATIC ||
      !demand_rate_is_due(worker->server->demand_rate, QUEUE_EVERY_MS, clock_monotonic_ms()))
    return;

  if (!queued_lately(worker->db, &queued, &error)) {
    log_warning("demand: %s", error.message);
    return;
  }
  int64_t room = options->demand_per_hour - queued;
  cleanup_json json_t *answers = NULL;
  if (room > 0 && !demand_queue(worker, room < QUEUE_AT_ONCE ? room : QUEUE_AT_ONCE, &author_server,
                                &answers, &error))
    log_warning("demand: %s", error.message);
  else if (answers && json_array_size(answers))
    log_info("demand: %zu keys that deployments missed were looked at for jobs",
             json_array_size(answers));
}
