/* The routes of captures. Memory and threads: captures.h. */
#include "server/capture/captures.h"

#include "common/base/log.h"
#include "common/cache/text.h"
#include "server/audit/audit.h"
#include "server/capture/captures.sql.h"
#include "server/db/db_record.h"
#include "server/http/rates.h"
#include "server/records.h"
#include "server/server_private.h"

/* Posting */

static bool functions_add(struct worker *worker, const struct capture_report *report, int64_t token,
                          int64_t *ret_stored, struct error *error) {
  struct db_array closures, names, documents;
  cleanup_parameters struct db_parameters parameters = {0};
  cleanup_rows struct db_rows *rows = NULL;
  db_array_init(&closures);
  db_array_init(&names);
  db_array_init(&documents);
  for (size_t i = 0; i < report->n_functions; i++) {
    const struct captured_function *function = &report->functions[i];
    db_array_digest(&closures, &function->closure);
    db_array_text(&names, function->name);
    db_array_text(&documents, function->document);
  }

  bind_array(&parameters, "closure", &closures);
  bind_array(&parameters, "name", &names);
  bind_array(&parameters, "document", &documents);
  bind_integer(&parameters, "token", token);
  bind_integer(&parameters, "functions_max", CAPTURE_TOKEN_FUNCTIONS_MAX);
  if (!db_run(worker->db, &sql_captures_functions_add, &parameters, &rows, error))
    return false;
  *ret_stored = db_count(rows);
  return true;
}

static bool launches_add(struct worker *worker, const struct capture_report *report, int64_t token,
                         int64_t *ret_stored, struct error *error) {
  struct db_array closures, digests, keys, key_digests, arches, tritons, documents;
  cleanup_parameters struct db_parameters parameters = {0};
  cleanup_rows struct db_rows *rows = NULL;
  db_array_init(&closures);
  db_array_init(&digests);
  db_array_init(&keys);
  db_array_init(&key_digests);
  db_array_init(&arches);
  db_array_init(&tritons);
  db_array_init(&documents);
  for (size_t i = 0; i < report->n_launches; i++) {
    const struct captured_launch *launch = &report->launches[i];
    db_array_digest(&closures, &launch->closure);
    db_array_digest(&digests, &launch->digest);
    db_array_text(&keys, launch->key);
    db_array_digest(&key_digests, &launch->key_digest);
    db_array_text(&arches, launch->arch);
    db_array_text(&tritons, launch->triton);
    db_array_text(&documents, launch->document);
  }

  bind_array(&parameters, "closure", &closures);
  bind_array(&parameters, "digest", &digests);
  bind_array(&parameters, "key", &keys);
  bind_array(&parameters, "key_digest", &key_digests);
  bind_array(&parameters, "arch", &arches);
  bind_array(&parameters, "triton", &tritons);
  bind_array(&parameters, "document", &documents);
  bind_integer(&parameters, "token", token);
  bind_integer(&parameters, "keys_max", CAPTURE_KEYS_MAX);
  bind_integer(&parameters, "day_max", server_options(worker->server)->captures_per_day);
  if (!db_run(worker->db, &sql_captures_launches_add, &parameters, &rows, error))
    return false;
  *ret_stored = db_count(rows);
  return true;
}

void route_capture_post(struct worker *worker, struct request *request) {
  cleanup_capture_report struct capture_report report = {0};
  struct error error;
  int64_t functions = 0, launches = 0;
  if (!request_query_only(request, NULL) ||
      !request_may_report(request, worker->server->capture_rates))
    return;

  if (!capture_report_parse(request->json, &report, &error) ||
      !functions_add(worker, &report, request->token_id, &functions, &error) ||
      !launches_add(worker, &report, request->token_id, &launches, &error)) {
    answer_failure(request, &error);
    return;
  }

  int64_t dropped = (int64_t)(report.n_functions + report.n_launches) - functions - launches;
  request_answer_json(request, 202,
                      json_pack("{s:I, s:I, s:I}", "functions", (json_int_t)functions, "launches",
                                (json_int_t)launches, "dropped", (json_int_t)dropped));
}

/* Reading and removing */

struct capture_item {
  int64_t id, keys, waiting, building, built, refused, tuned;
  struct digest closure;
  char *name, *owner, *why, *seen_at;
};
#define FIELD(type, member, ...) RECORD_FIELD(type, struct capture_item, member, __VA_ARGS__)
static const struct field item_fields[] = {
    FIELD(ID, id, FIELD_ANSWER),
    FIELD(DIGEST, closure, FIELD_ANSWER),
    FIELD(TEXT, name, FIELD_ANSWER, .about = "MODULE:QUALNAME"),
    FIELD(TEXT, owner, FIELD_ANSWER, .about = "the token that posted it"),
    FIELD(INTEGER, keys, FIELD_ANSWER),
    FIELD(INTEGER, waiting, FIELD_ANSWER, .about = "keys without a build"),
    FIELD(INTEGER, building, FIELD_ANSWER, .about = "of these, leased to a builder"),
    FIELD(INTEGER, built, FIELD_ANSWER),
    FIELD(INTEGER, refused, FIELD_ANSWER),
    FIELD(INTEGER, tuned, FIELD_ANSWER, .about = "built keys for which a job has a winner"),
    FIELD(TEXT, why, FIELD_ANSWER, .about = "one of the reasons of refusals"),
    FIELD(TIME, seen_at, FIELD_ANSWER),
};
#undef FIELD
const struct record capture_item_record = RECORD("CaptureItem", struct capture_item, item_fields);

void route_capture_list(struct worker *worker, struct request *request) {
  static const char *const names[] = {"limit", "after", NULL};
  static const struct list list = {.statement = &sql_captures_list, .record = &capture_item_record};
  cleanup_parameters struct db_parameters parameters = {0};
  if (request_query_only(request, names))
    answer_page(worker, request, &list, &parameters);
}

/* Finds the captured function of the path, if the token may read it. Else answers and returns NULL:
 * a token learns nothing of functions that are not its own. */
static struct db_rows *function_find(struct worker *worker, struct request *request,
                                     unsigned others) {
  struct error error;
  int64_t id;
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  if (!request_query_only(request, NULL) || !answer_id(request, "captured function", &id))
    return NULL;

  bind_integer(&parameters, "id", id);
  if (!db_run(worker->db, &sql_captures_function, &parameters, &rows, &error)) {
    answer_failure(request, &error);
    return NULL;
  }
  if (!db_count(rows) ||
      (db_get_integer(rows, 0, "token_id") != request->token_id && !(request->roles & others))) {
    answer_refusal(request, ERROR_MISSING, "", "there is no captured function %lld of this token",
                   (long long)id);
    return NULL;
  }

  return TAKE(rows);
}

static const char *launch_state(const struct db_rows *rows, int row) {
  if (!db_is_null(rows, row, "build"))
    return "built";
  if (!db_is_null(rows, row, "refused"))
    return "refused";
  return db_get_bool(rows, row, "is_building") ? "building" : "waiting";
}

static json_t *launch_to_json(const struct db_rows *rows, int row) {
  json_t *json =
      json_pack("{s:s, s:o, s:s, s:s, s:I, s:s, s:s*}", "id", db_get(rows, row, "id"), "key",
                db_get_json(rows, row, "key"), "state", launch_state(rows, row), "seen_at",
                db_get(rows, row, "seen_at"), "seen", (json_int_t)db_get_integer(rows, row, "seen"),
                "arch", db_get(rows, row, "arch"), "refused",
                db_is_null(rows, row, "refused") ? NULL : db_get(rows, row, "refused"));
  if (!db_is_null(rows, row, "build")) {
    struct digest build = db_get_digest(rows, row, "build"),
                  kernel = db_get_digest(rows, row, "kernel");
    json_put(json, "build", json_digest_text(&build));
    json_put(json, "kernel", json_digest_text(&kernel));
  }
  return json;
}

void route_capture_get(struct worker *worker, struct request *request) {
  struct error error;
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_rows struct db_rows *function =
      function_find(worker, request, TOKEN_BUILDER | TOKEN_OPERATOR | TOKEN_ADMIN);
  cleanup_parameters struct db_parameters parameters = {0};
  if (!function)
    return;

  bind_integer(&parameters, "function", db_get_integer(function, 0, "id"));
  if (!db_run(worker->db, &sql_captures_launches, &parameters, &rows, &error)) {
    answer_failure(request, &error);
    return;
  }

  json_t *launches = json_array();
  for (int row = 0; row < db_count(rows); row++)
    json_push(launches, launch_to_json(rows, row));
  const struct json_text members[] = {{"function", db_get(function, 0, "document")}};
  request_answer_json_with(request, 200, json_pack("{s:o}", "launches", launches), members, 1);
}

void route_capture_delete(struct worker *worker, struct request *request) {
  struct error error;
  struct db *db = worker->db;
  cleanup_rows struct db_rows *removed = NULL;
  cleanup_rows struct db_rows *function =
      function_find(worker, request, TOKEN_OPERATOR | TOKEN_ADMIN);
  cleanup_parameters struct db_parameters parameters = {0};
  if (!function)
    return;

  bind_integer(&parameters, "id", db_get_integer(function, 0, "id"));
  bool ok = db_begin(db, &error);
  if (ok) {
    ok = db_run(db, &sql_captures_remove, &parameters, &removed, &error);
    if (ok && db_count(removed))
      ok = audit_note(db, request_author(request), AUDIT_REMOVE_CAPTURE, request->segments[0],
                      json_pack("{s:s}", "name", db_get(removed, 0, "name")), &error);
    ok = db_end(db, ok, &error);
  }

  if (!ok)
    answer_failure(request, &error);
  else
    request_answer_empty(request, 204);
}

/* Builders */

struct lease_request {
  char *triton;
  RECORD_ARRAY(char *, n_arches, arches);
};
static const struct field lease_fields[] = {
    RECORD_FIELD(TEXT, struct lease_request, triton, FIELD_REQUIRED | FIELD_LINE, .least = 1,
                 .most = CAPTURE_TRITON_MAX, .about = "the version that the builder compiles with"),
    RECORD_FIELD_AS("arches", TEXTS, struct lease_request, n_arches, FIELD_REQUIRED, .least = 1,
                    .most = 64, .about = "for which it compiles, such as gfx942"),
};
const struct record capture_lease_request_record =
    RECORD("CaptureLeaseRequest", struct lease_request, lease_fields);

/* {"function": DOCUMENT, "seconds", "launches": [{"id", "epoch", "launch": DOCUMENT}]}, the
 * caller's: the documents are stored texts, joined without parsing them. */
static char *lease_text(const struct db_rows *rows, size_t *ret_size) {
  cleanup_text struct text text = {0};
  cleanup_free char *seconds = xasprintf("%d", CAPTURE_LEASE_S);
  const char *const head[] = {"{\"function\":", db_get(rows, 0, "function"),
                              ",\"seconds\":", seconds, ",\"launches\":["};
  for (size_t i = 0; i < ARRAY_LENGTH(head); i++)
    text_add_string(&text, head[i]);

  for (int row = 0; row < db_count(rows); row++) {
    const char *const launch[] = {row ? ",{\"id\":\"" : "{\"id\":\"",
                                  db_get(rows, row, "id"),
                                  "\",\"epoch\":",
                                  db_get(rows, row, "epoch"),
                                  ",\"launch\":",
                                  db_get(rows, row, "document"),
                                  "}"};
    for (size_t i = 0; i < ARRAY_LENGTH(launch); i++)
      text_add_string(&text, launch[i]);
  }
  text_add_string(&text, "]}");
  return text_finish(&text, ret_size);
}

void route_capture_lease(struct worker *worker, struct request *request) {
  struct lease_request wish = {0};
  struct error error;
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  if (!request_query_only(request, NULL))
    return;

  bool ok = record_read(&capture_lease_request_record, request->json, "", &wish, &error);
  if (ok) {
    struct db_array arches;
    db_array_init(&arches);
    for (size_t i = 0; i < wish.n_arches; i++)
      db_array_text(&arches, wish.arches[i]);
    bind_text(&parameters, "triton", wish.triton);
    bind_array(&parameters, "arches", &arches);
    bind_text(&parameters, "author", request_author(request)->name);
    bind_integer(&parameters, "most", CAPTURE_LEASED_MAX);
    bind_integer(&parameters, "lease_s", CAPTURE_LEASE_S);
    ok = db_run(worker->db, &sql_captures_lease, &parameters, &rows, &error);
  }

  if (!ok) {
    answer_failure(request, &error);
  } else if (!db_count(rows)) {
    request_answer_empty(request, 204);
  } else {
    size_t size;
    char *body = lease_text(rows, &size);
    request_answer_text(request, 200, "application/json", body, size);
  }
  record_release(&capture_lease_request_record, &wish);
}

struct build_result {
  int64_t id, epoch;
  struct digest build;
  char *refused;
};
static const struct field result_fields[] = {
    RECORD_FIELD(ID, struct build_result, id, FIELD_REQUIRED),
    RECORD_FIELD(INTEGER, struct build_result, epoch, FIELD_REQUIRED, .least = 1,
                 .most = INT64_MAX),
    RECORD_FIELD(DIGEST, struct build_result, build, FIELD_NOT_NULL,
                 .about = "the pushed build that has the key"),
    RECORD_FIELD(TEXT, struct build_result, refused, FIELD_NOT_NULL | FIELD_LINE, .least = 1,
                 .most = 1000, .about = "why no build can be made"),
};
static const struct record result_record = RECORD(NULL, struct build_result, result_fields);

struct results_request {
  RECORD_ARRAY(struct build_result, n, launches);
};
static const struct field results_fields[] = {
    {"launches", FIELD_RECORDS, offsetof(struct results_request, n), FIELD_REQUIRED, .least = 1,
     .most = CAPTURE_LEASED_MAX, .of = &result_record},
};
const struct record capture_results_record =
    RECORD("CaptureResults", struct results_request, results_fields);

void route_capture_results(struct worker *worker, struct request *request) {
  struct results_request results = {0};
  struct error error;
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  if (!request_query_only(request, NULL))
    return;

  record_init(&capture_results_record, &results);
  bool ok = record_read(&capture_results_record, request->json, "", &results, &error);
  for (size_t i = 0; ok && i < results.n; i++)
    if (results.launches[i].refused && !digest_is_none(&results.launches[i].build))
      ok = error_at(&error, "/launches", "launch %zu has both a build and a refusal", i + 1);
  if (ok) {
    bind_records(&parameters, &result_record, results.launches, results.n);
    bind_integer(&parameters, "lease_s", CAPTURE_LEASE_S);
    ok = db_run(worker->db, &sql_captures_results, &parameters, &rows, &error);
  }

  int64_t accepted = ok ? db_count(rows) : 0;
  if (!ok)
    answer_failure(request, &error);
  else
    request_answer_json(request, 200,
                        json_pack("{s:I, s:I}", "accepted", (json_int_t)accepted, "stale",
                                  (json_int_t)((int64_t)results.n - accepted)));
  record_release(&capture_results_record, &results);
}

void captures_housekeep(struct worker *worker) {
  struct error error;
  int64_t days = server_options(worker->server)->capture_days;
  for (int i = 0; i < 2; i++) {
    cleanup_parameters struct db_parameters parameters = {0};
    bind_integer(&parameters, "days", days);
    if (i == 0)
      bind_integer(&parameters, "at_once", CAPTURE_AT_ONCE);
    if (!db_run(worker->db, i ? &sql_captures_collect_functions : &sql_captures_collect,
                &parameters, NULL, &error))
      log_warning("captures: %s", error.message);
  }
}
