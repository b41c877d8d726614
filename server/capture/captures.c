/* The routes of captures. Memory and threads: captures.h. */
#include "server/capture/captures.h"

#include "common/base/log.h"
#include "common/cache/text.h"
#include "server/audit/audit.h"
#include "server/capture/captures.sql.h"
#include "server/db/db_record.h"
#include "server/http/rates.h"
#include "server/lease/lease_kind.h"
#include "server/records.h"

/* Posting */

static bool functions_add(struct worker *worker, const struct capture_report *report, int64_t token,
                          int64_t *ret_stored, struct error *error) {
  cleanup_rows struct db_rows *rows =
      db_query(worker->db, &sql_captures_functions_add, error,
               BIND_RECORDS(&captured_function_record, report->functions, report->n_functions),
               BIND("token", token), BIND("functions_max", CAPTURE_TOKEN_FUNCTIONS_MAX));
  if (!rows)
    return false;
  *ret_stored = db_count(rows);
  return true;
}

static bool launches_add(struct worker *worker, const struct capture_report *report, int64_t token,
                         int64_t *ret_stored, struct error *error) {
  cleanup_rows struct db_rows *rows =
      db_query(worker->db, &sql_captures_launches_add, error,
               BIND_RECORDS(&captured_launch_record, report->launches, report->n_launches),
               BIND("token", token), BIND("keys_max", CAPTURE_KEYS_MAX),
               BIND("day_max", server_options(worker->server)->captures_per_day));
  if (!rows)
    return false;
  *ret_stored = db_count(rows);
  return true;
}

bool route_capture_post(struct worker *worker, struct request *request, struct error *error) {
  cleanup_capture_report struct capture_report report = {0};
  int64_t functions = 0, launches = 0;
  if (!request_may_report(request, server_capture_rates(worker->server), error) ||
      !capture_report_parse(request->json, &report, error) ||
      !functions_add(worker, &report, request->token_id, &functions, error) ||
      !launches_add(worker, &report, request->token_id, &launches, error))
    return false;

  int64_t dropped = (int64_t)(report.n_functions + report.n_launches) - functions - launches;
  return request_answer_json(request, 202,
                             json_pack("{s:I, s:I, s:I}", "functions", (json_int_t)functions,
                                       "launches", (json_int_t)launches, "dropped",
                                       (json_int_t)dropped));
}

/* Reading and removing */

#define SCHEMA_MOVE "{\"enum\": [\"builder\", \"submitter\", \"policy\", \"agent\", \"publisher\"]}"

struct capture_item {
  int64_t id, keys, waiting, building, built, refused, without_job, queued, tuning, tuned,
      undecided, failed, proposed, released, served, job, proposal;
  struct digest closure;
  char *name, *owner, *why, *channel, *waits_for, *move, *seen_at;
  char *policy, *policy_of, *target, *not_queued, *reason; /* for waits_for */
};
#define RECORD_OF struct capture_item
static const struct field item_fields[] = {
    MEMBER(ID, id),
    MEMBER(DIGEST, closure),
    MEMBER(TEXT, name, .about = "MODULE:QUALNAME"),
    MEMBER(TEXT, owner, .about = "the token that posted it"),
    MEMBER(INTEGER, keys),
    MEMBER(INTEGER, waiting, .about = "keys without a build"),
    MEMBER(INTEGER, building, .about = "of these, leased to a builder"),
    MEMBER(INTEGER, built, .about = "keys with a build, whatever became of them"),
    MEMBER(INTEGER, refused),
    MEMBER(INTEGER, without_job, .about = "built keys that no job tunes"),
    MEMBER(INTEGER, queued),
    MEMBER(INTEGER, tuning),
    MEMBER(INTEGER, tuned, .about = "keys for which a job has a winner"),
    MEMBER(INTEGER, undecided),
    MEMBER(INTEGER, failed),
    MEMBER(INTEGER, proposed, .about = "of the tuned, in an open proposal"),
    MEMBER(INTEGER, released, .about = "of the tuned, in a release only"),
    MEMBER(INTEGER, served, .about = "of the tuned, served by a channel"),
    MEMBER(TEXT, why, .about = "one of the reasons of refusals"),
    MEMBER(ID, job, .about = "the one that it waits for, or one of its jobs"),
    MEMBER(ID, proposal),
    MEMBER(TEXT, channel),
    MEMBER(TEXT, waits_for, FIELD_NO_COLUMN, .about = "null: for nothing"),
    MEMBER(TEXT, move, FIELD_NO_COLUMN, .schema = SCHEMA_MOVE,
           .about = "the role that acts next; null: none"),
    MEMBER(TIME, seen_at),
    MEMBER(TEXT, policy, FIELD_NO_JSON),
    MEMBER(TEXT, policy_of, FIELD_NO_JSON),
    MEMBER(TEXT, target, FIELD_NO_JSON),
    MEMBER(TEXT, not_queued, FIELD_NO_JSON),
    MEMBER(TEXT, reason, FIELD_NO_JSON),
};
const struct record capture_item_record = ANSWER("CaptureItem", item_fields);
#undef RECORD_OF

/* How far a function or a key is, for what it waits for; borrows its texts. */
struct way {
  const char *state; /* as in a CaptureLaunch */
  int64_t function, job, proposal;
  const char *owner, *refused, *reason, *not_queued;
  const char *policy, *policy_of, *target; /* the policy that names the owner; NULL: none does */
};

/* What built keys without a job wait for. */
static char *job_wait(const struct way *way, const char **ret_move) {
  long long function = way->function;
  *ret_move = "submitter";
  if (!way->policy)
    return xasprintf(
        "a job: `wavetune captures tune %lld`, or a policy that names the token \"%s\"", function,
        way->owner ? way->owner : "");
  if (string_equal(way->policy, "suggest"))
    return xasprintf("a job, which the policy of \"%s\" suggests (wavetune policy run)",
                     way->policy_of);
  *ret_move = "policy";
  if (way->not_queued)
    return xasprintf("the policy of \"%s\": %s", way->policy_of, way->not_queued);
  return xasprintf("the policy of \"%s\", which makes jobs as its filters and budget allow",
                   way->policy_of);
}

/* What it waits for next, the caller's, and whose move that is. Both NULL: nothing. */
static char *wait_text(const struct way *way, const char **ret_move) {
  long long job = way->job, function = way->function;
  const char *state = way->state;
  *ret_move = "builder";
  if (string_equal(state, "waiting"))
    return xstrdup("a builder (python3 -m wavetune build --url)");
  if (string_equal(state, "building"))
    return xstrdup("its builder");
  if (string_equal(state, "built"))
    return job_wait(way, ret_move);

  *ret_move = "agent";
  if (string_equal(state, "tuning"))
    return xasprintf("job %lld", job);
  if (string_equal(state, "queued"))
    return xasprintf("an agent that takes job %lld", job);

  *ret_move = "submitter";
  if (string_equal(state, "undecided"))
    return xasprintf("another run (wavetune captures tune %lld --run NAME): job %lld found no "
                     "clear winner",
                     function, job);
  if (string_equal(state, "failed") || string_equal(state, "cancelled"))
    return xasprintf("job %lld %s: %s (wavetune retry %lld)", job,
                     string_equal(state, "failed") ? "failed" : "was cancelled",
                     way->reason ? way->reason : "it has no winner", job);

  *ret_move = string_equal(state, "tuned") && way->target ? "policy" : "publisher";
  if (string_equal(state, "tuned"))
    return way->target ? xasprintf("a proposal for channel %s, once all keys of the image are done",
                                   way->target)
                       : xstrdup("a release (wavetune publish)");
  if (string_equal(state, "proposed"))
    return xasprintf("proposal %lld (wavetune proposals promote)", (long long)way->proposal);
  if (string_equal(state, "released"))
    return xstrdup("a channel (wavetune promote)");

  *ret_move = NULL;
  return string_equal(state, "refused") ? xasprintf("refused: %s", way->refused) : NULL;
}

/* The first step that some key of a function has not reached. */
static const char *item_state(const struct capture_item *item) {
  const struct {
    const char *state;
    bool is_it;
  } steps[] = {
      {"waiting", item->waiting > item->building},
      {"building", item->building},
      {"built", item->without_job},
      {"tuning", item->tuning},
      {"queued", item->queued},
      {"undecided", item->undecided},
      {"tuned", item->tuned > item->proposed + item->released + item->served},
      {"proposed", item->proposed},
      {"released", item->released},
      {"failed", item->failed},
      {"refused", item->refused && !item->served},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(steps); i++)
    if (steps[i].is_it)
      return steps[i].state;
  return "served";
}

static json_t *item_write(const void *object) {
  struct capture_item item = *(const struct capture_item *)object;
  const char *move;
  const struct way way = {item_state(&item), item.id,        item.job,    item.proposal,
                          item.owner,        item.why,       item.reason, item.not_queued,
                          item.policy,       item.policy_of, item.target};
  cleanup_free char *text = wait_text(&way, &move);
  item.waits_for = text;
  item.move = (char *)move;
  return record_write(&capture_item_record, &item);
}

bool route_capture_list(struct worker *worker, struct request *request, struct error *error) {
  static const struct list list = {
      .statement = &sql_captures_list, .record = &capture_item_record, .write = item_write};
  return answer_page_by(worker, request, &list, error);
}

/* Finds the captured function of the path, if the token may read it. Else answers and returns NULL:
 * a token learns nothing of functions that are not its own. */
static struct db_rows *function_find(struct worker *worker, struct request *request,
                                     unsigned others, struct error *error) {
  int64_t id;
  if (!id_read(request, "captured function", &id, error))
    return NULL;

  cleanup_rows struct db_rows *rows =
      db_query(worker->db, &sql_captures_function, error, BIND("id", id));
  if (!rows)
    return NULL;
  if (!db_count(rows) ||
      (db_get_integer(rows, 0, "token_id") != request->token_id && !(request->roles & others))) {
    error_of(error, ERROR_MISSING, "there is no captured function %lld of this token",
             (long long)id);
    return NULL;
  }

  return TAKE(rows);
}

struct capture_launch {
  int64_t id, seen, job, proposal;
  json_t *key;
  char *state, *arch, *triton, *image, *refused, *not_queued, *reason, *channel, *seen_at;
  char *waits_for, *move;
  int64_t function; /* for waits_for, with the following */
  char *owner, *policy, *policy_of, *target;
  struct digest build, kernel;
};
#define RECORD_OF struct capture_launch
static const struct field launch_fields[] = {
    MEMBER(ID, id),
    MEMBER(JSON, key, .schema = SCHEMA("Key")),
    MEMBER(TEXT, state,
           .schema = "{\"enum\": [\"waiting\", \"building\", \"built\", \"refused\", \"queued\", "
                     "\"tuning\", \"tuned\", \"undecided\", \"failed\", \"cancelled\", "
                     "\"released\", \"proposed\", \"served\"]}"),
    MEMBER(TIME, seen_at),
    MEMBER(INTEGER, seen, .about = "how often it was posted"),
    MEMBER(TEXT, arch),
    MEMBER(TEXT, triton, .about = "the version in the program"),
    MEMBER(TEXT, image, .about = "empty where the program did not know it"),
    MEMBER(TEXT, refused, FIELD_OMITTED),
    MEMBER(DIGEST, build, FIELD_OMITTED),
    MEMBER(DIGEST, kernel, FIELD_OMITTED),
    MEMBER(ID, job, FIELD_OMITTED),
    MEMBER(TEXT, reason, FIELD_OMITTED, .about = "why the job has no winner"),
    MEMBER(TEXT, not_queued, FIELD_OMITTED, .about = "why the policy made no job"),
    MEMBER(ID, proposal, FIELD_OMITTED),
    MEMBER(TEXT, channel, FIELD_OMITTED),
    MEMBER(TEXT, waits_for, FIELD_NO_COLUMN, .about = "null: for nothing"),
    MEMBER(TEXT, move, FIELD_NO_COLUMN, .schema = SCHEMA_MOVE,
           .about = "the role that acts next; null: none"),
    MEMBER(INTEGER, function, FIELD_NO_JSON),
    MEMBER(TEXT, owner, FIELD_NO_JSON),
    MEMBER(TEXT, policy, FIELD_NO_JSON),
    MEMBER(TEXT, policy_of, FIELD_NO_JSON),
    MEMBER(TEXT, target, FIELD_NO_JSON),
};
const struct record capture_launch_record = ANSWER("CaptureLaunch", launch_fields);
#undef RECORD_OF

static json_t *launch_write(const void *object) {
  struct capture_launch launch = *(const struct capture_launch *)object;
  const char *move;
  const struct way way = {launch.state,  launch.function,  launch.job,    launch.proposal,
                          launch.owner,  launch.refused,   launch.reason, launch.not_queued,
                          launch.policy, launch.policy_of, launch.target};
  cleanup_free char *text = wait_text(&way, &move);
  launch.waits_for = text;
  launch.move = (char *)move;
  return record_write(&capture_launch_record, &launch);
}

bool route_capture_get(struct worker *worker, struct request *request, struct error *error) {
  cleanup_rows struct db_rows *function =
      function_find(worker, request, TOKEN_BUILDER | TOKEN_OPERATOR | TOKEN_ADMIN, error);
  if (!function)
    return false;

  cleanup_rows struct db_rows *rows = db_query(worker->db, &sql_captures_launches, error,
                                               BIND("function", db_get_integer(function, 0, "id")));
  if (!rows)
    return false;

  json_t *launches =
      db_first_rows_to_json(rows, db_count(rows), &capture_launch_record, launch_write);
  const struct json_text members[] = {
      {"function", db_get(function, 0, "document")},
      {"example", db_count(rows) ? db_get(rows, 0, "document") : "null"}};
  return request_answer_json_with(request, 200, json_pack("{s:o}", "launches", launches), members,
                                  ARRAY_LENGTH(members));
}

bool route_capture_delete(struct worker *worker, struct request *request, struct error *error) {
  struct db *db = worker->db;
  cleanup_rows struct db_rows *removed = NULL;
  cleanup_rows struct db_rows *function =
      function_find(worker, request, TOKEN_OPERATOR | TOKEN_ADMIN, error);
  if (!function)
    return false;

  bool ok = db_begin(db, error);
  if (ok) {
    ok = (removed = db_query(db, &sql_captures_remove, error,
                             BIND("id", db_get_integer(function, 0, "id"))));
    if (ok && db_count(removed))
      ok = audit_note(db, request_author(request), AUDIT_REMOVE_CAPTURE, request->segments[0],
                      json_pack("{s:s}", "name", db_get(removed, 0, "name")), error);
    ok = db_end(db, ok, error);
  }

  if (!ok)
    return false;
  return request_answer_empty(request, 204);
}

/* Builders */

struct lease_request {
  char *triton;
  RECORD_ARRAY(char *, n_arches, arches);
};
#define RECORD_OF struct lease_request
static const struct field lease_fields[] = {
    MEMBER(TEXT, triton, FIELD_REQUIRED | FIELD_LINE, .least = 1, .most = CAPTURE_TRITON_MAX,
           .about = "the version that the builder compiles with"),
    MEMBER_AS("arches", TEXTS, n_arches, FIELD_REQUIRED, .least = 1, .most = 64,
              .about = "for which it compiles, such as gfx942"),
};
#undef RECORD_OF
const struct record capture_lease_request_record =
    RECORD("CaptureLeaseRequest", struct lease_request, lease_fields);

/* {"function": DOCUMENT, "seconds", "launches": [{"id", "epoch", "launch": DOCUMENT}]}, the
 * caller's: the documents are stored texts, joined without parsing them. Both rows are those of the
 * same launches. */
static char *lease_text(const struct db_rows *chosen, const struct db_rows *claimed,
                        size_t *ret_size) {
  cleanup_text struct text text = {0};
  cleanup_free char *seconds = xasprintf("%d", CAPTURE_LEASE_S);
  const char *const head[] = {"{\"function\":", db_get(chosen, 0, "function"),
                              ",\"seconds\":", seconds, ",\"launches\":["};
  for (size_t i = 0; i < ARRAY_LENGTH(head); i++)
    text_add_string(&text, head[i]);

  for (int row = 0; row < db_count(claimed); row++) {
    int at = 0;
    while (!string_equal(db_get(chosen, at, "id"), db_get(claimed, row, "id")))
      at++;
    const char *const launch[] = {row ? ",{\"id\":\"" : "{\"id\":\"",
                                  db_get(claimed, row, "id"),
                                  "\",\"epoch\":",
                                  db_get(claimed, row, "epoch"),
                                  ",\"launch\":",
                                  db_get(chosen, at, "document"),
                                  "}"};
    for (size_t i = 0; i < ARRAY_LENGTH(launch); i++)
      text_add_string(&text, launch[i]);
  }
  text_add_string(&text, "]}");
  return text_finish(&text, ret_size);
}

/* Chooses what the builder gets, and claims it. In a transaction. No rows: there is nothing. */
static bool launches_claim(struct db *db, const struct lease_request *wish, const char *author,
                           struct db_rows **ret_chosen, struct db_rows **ret_claimed,
                           struct error *error) {
  if (!(*ret_chosen =
            db_query(db, &sql_captures_choose, error, BIND("triton", wish->triton),
                     parameter_texts("arches", (const char *const *)wish->arches, wish->n_arches),
                     BIND("most", CAPTURE_LEASED_MAX))))
    return false;

  size_t n = (size_t)db_count(*ret_chosen);
  cleanup_free int64_t *launches = xcalloc(n + 1, sizeof *launches);
  for (size_t i = 0; i < n; i++)
    launches[i] = db_get_integer(*ret_chosen, (int)i, "id");
  return n == 0 || (db_execute(db, &sql_captures_rebuild, error, BIND_ALL("ids", launches, n)) &&
                    lease_claim(db, &build_kind, launches, n, author, CAPTURE_LEASE_S * 1000LL,
                                ret_claimed, error));
}

bool route_capture_lease(struct worker *worker, struct request *request, struct error *error) {
  struct lease_request wish = {0};
  struct db *db = worker->db;
  const char *author = request_author(request)->name;
  cleanup_rows struct db_rows *chosen = NULL, *claimed = NULL;
  bool ok = record_read(&capture_lease_request_record, request->json, "", &wish, error) &&
            db_begin(db, error) &&
            db_end(db, launches_claim(db, &wish, author, &chosen, &claimed, error), error);
  if (ok && !claimed) {
    request_answer_empty(request, 204);
  } else if (ok) {
    size_t size;
    char *body = lease_text(chosen, claimed, &size);
    request_answer_text(request, 200, "application/json", body, size);
  }
  record_release(&capture_lease_request_record, &wish);
  return ok;
}

#define RECORD_OF struct capture_result
static const struct field result_fields[] = {
    MEMBER(ID, id, FIELD_REQUIRED),
    MEMBER(INTEGER, epoch, FIELD_REQUIRED, .least = 1, .most = INT64_MAX),
    MEMBER(DIGEST, build, FIELD_NOT_NULL, .about = "the pushed build that has the key"),
    MEMBER(TEXT, refused, FIELD_NOT_NULL | FIELD_LINE, .least = 1, .most = 1000,
           .about = "why no build can be made"),
    MEMBER_AS("key", JSON, stated_key, FIELD_NOT_NULL | FIELD_OBJECT | FIELD_NO_COLUMN,
              .schema = SCHEMA("Key"), .about = "of an entry's build: in place of the launch's"),
    MEMBER_AS("space", JSON, stated_space, FIELD_NOT_NULL | FIELD_OBJECT | FIELD_NO_COLUMN,
              .schema = SCHEMA("Space"),
              .about = "of an entry's build: what its job tunes; default: what was compiled"),
    MEMBER(DIGEST, key_digest, FIELD_NO_JSON),
    MEMBER(TEXT, key, FIELD_NO_JSON),
    MEMBER(DIGEST, space_digest, FIELD_NO_JSON),
    MEMBER(TEXT, space, FIELD_NO_JSON),
    MEMBER(INTEGER, configs, FIELD_NO_JSON),
};
#undef RECORD_OF
static const struct record result_record = RECORD(NULL, struct capture_result, result_fields);

struct results_request {
  RECORD_ARRAY(struct capture_result, n, launches);
};
#define RECORD_OF struct results_request
static const struct field results_fields[] = {
    MEMBER_AS("launches", RECORDS, n, FIELD_REQUIRED, .least = 1, .most = CAPTURE_LEASED_MAX,
              .of = &result_record),
};
#undef RECORD_OF
const struct record capture_results_record =
    RECORD("CaptureResults", struct results_request, results_fields);

/* What a builder says of launches: an answer to the tasks. */
struct capture_answer {
  const struct capture_result *results;
  size_t n;
  int64_t accepted;
};

/* Stores the results of launches that the builder holds. One without build and refusal says that it
 * still works at the launch. */
static bool launches_answer(struct db *db, void *context, struct error *error) {
  struct capture_answer *answer = context;
  size_t n = answer->n, n_ended = 0, n_renewed = 0;
  cleanup_free struct lease_hold *holds = xcalloc(n, sizeof *holds);
  cleanup_free struct lease_hold *renewed = xcalloc(n, sizeof *renewed);
  cleanup_free struct capture_result *ended = xcalloc(n, sizeof *ended);
  cleanup_free int64_t *launches = xcalloc(n, sizeof *launches);
  cleanup_free bool *is_held = xcalloc(n, sizeof *is_held);
  for (size_t i = 0; i < n; i++)
    holds[i] = (struct lease_hold){answer->results[i].id, answer->results[i].epoch};
  if (!lease_lock_held(db, &build_kind, holds, n, is_held, error))
    return false;

  for (size_t i = 0; i < n; i++) {
    const struct capture_result *result = &answer->results[i];
    if (is_held[i] && (result->refused || !digest_is_none(&result->build)))
      ended[n_ended++] = *result;
    else if (is_held[i])
      renewed[n_renewed++] = holds[i];
  }

  cleanup_rows struct db_rows *stored = NULL, *still = NULL;
  if (!(stored = db_query(db, &sql_captures_results, error,
                          BIND_RECORDS(&result_record, ended, n_ended))) ||
      !lease_renew(db, &build_kind, renewed, n_renewed, CAPTURE_LEASE_S * 1000LL, NULL, &still,
                   error))
    return false;

  for (int row = 0; row < db_count(stored); row++)
    launches[row] = db_get_integer(stored, row, "id");
  answer->accepted = db_count(stored) + db_count(still);
  return lease_end(db, &build_kind, launches, (size_t)db_count(stored), error);
}

/* An expired launch waits for any builder, and its old one may still answer until it has one. */
static struct lease_table statements;
const struct lease_kind build_kind = {.name = "build",
                                      .table = "captured_launches",
                                      .statements = &statements,
                                      .answer = launches_answer};

bool route_capture_results(struct worker *worker, struct request *request, struct error *error) {
  struct results_request results = {0};
  record_init(&capture_results_record, &results);
  bool ok = record_read(&capture_results_record, request->json, "", &results, error);
  for (size_t i = 0; ok && i < results.n; i++)
    if (results.launches[i].refused && !digest_is_none(&results.launches[i].build))
      ok = error_at(error, "/launches", "launch %zu has both a build and a refusal", i + 1);

  struct capture_answer answer = {.results = results.launches, .n = results.n};
  ok = ok && capture_spaces_set(worker->db, results.launches, results.n, error) &&
       lease_answer(worker, &build_kind, &answer, error);
  if (ok)
    request_answer_json(request, 200,
                        json_pack("{s:I, s:I}", "accepted", (json_int_t)answer.accepted, "stale",
                                  (json_int_t)((int64_t)results.n - answer.accepted)));
  record_release(&capture_results_record, &results);
  return ok;
}

void captures_housekeep(struct worker *worker) {
  struct error error;
  int64_t days = server_options(worker->server)->capture_days;
  if (!db_execute(worker->db, &sql_captures_collect, &error, BIND("days", days),
                  BIND("at_once", CAPTURE_AT_ONCE)))
    log_warning("captures: %s", error.message);
  if (!db_execute(worker->db, &sql_captures_collect_functions, &error, BIND("days", days)))
    log_warning("captures: %s", error.message);
}
