/* POST /v1/captures/tune: jobs of captured keys, which a submitter chooses. A key has one job,
 * whoever made it, unless the request names another run. Memory and threads: policy.h. */
#include <math.h>

#include "server/db/db_record.h"
#include "server/http/request.h"
#include "server/job/job_wish.h"
#include "server/policy/policy.h"
#include "server/policy/policy.sql.h"
#include "server/records.h"

#define FUNCTIONS_MAX 1000
#define KEYS_MAX 1000
#define PATTERN_MAX 1024

struct tune_request {
  struct texts functions; /* ids */
  char *name, *run;
  json_t *keys;
  int64_t priority;
  struct job_budget budget;
};
#define RECORD_OF struct tune_request
static const struct field request_fields[] = {
    MEMBER(TEXTS, functions, FIELD_NOT_NULL | FIELD_OR_INTEGER, .least = 1, .most = FUNCTIONS_MAX,
           .about = "ids of captured functions"),
    MEMBER(TEXT, name, FIELD_NOT_NULL | FIELD_LINE, .least = 1, .most = PATTERN_MAX,
           .about = "or a pattern of their names, with * and ?"),
    MEMBER(JSON, keys, FIELD_NOT_NULL | FIELD_ARRAY, .least = 1, .most = KEYS_MAX,
           .schema = SCHEMA("Key"),
           .about = "only keys that have all members of one of these; default: all"),
    MEMBER(TEXT, run, FIELD_NOT_NULL | FIELD_LINE, .most = JOB_TEXT_MAX,
           .about = "also where the key has a job of another run; default: only where it has none"),
    MEMBER(INTEGER, priority, FIELD_NOT_NULL, .least = -1000, .most = 1000, .about = "default: 0"),
    MEMBER(RECORD, budget, .of = &job_budget_record),
};
#undef RECORD_OF
const struct record capture_tune_record =
    RECORD("CaptureTune", struct tune_request, request_fields);

/* A captured key, and its job. */
struct tunable {
  int64_t id; /* of the launch */
  int64_t function, job;
  char *name, *state, *why;
  struct digest kernel;
  json_t *key, *environment, *space;
  bool created;
};
#define RECORD_OF struct tunable
static const struct field tunable_fields[] = {
    MEMBER(INTEGER, id, FIELD_NO_JSON),
    MEMBER(ID, function),
    MEMBER(TEXT, name, .about = "MODULE:QUALNAME"),
    MEMBER(DIGEST, kernel, FIELD_OMITTED),
    MEMBER(JSON, key, .schema = SCHEMA("Key")),
    MEMBER(JSON, environment, .schema = SCHEMA_ENVIRONMENT),
    MEMBER(TEXT, state, .about = "as in a CaptureLaunch, after the request"),
    MEMBER(ID, job, FIELD_OMITTED),
    MEMBER(BOOL, created, FIELD_NO_COLUMN, .about = "whether the request made it"),
    MEMBER(TEXT, why, FIELD_OMITTED, .about = "why there is no job, or no winner"),
    MEMBER(JSON, space, FIELD_NO_JSON),
};
const struct record tunable_record = ANSWER("CaptureKeyJob", tunable_fields);
#undef RECORD_OF

static bool wanted_check(const struct tune_request *wanted, struct error *error) {
  size_t index;
  json_t *key;
  char at[JSON_POINTER_SIZE];
  if (!wanted->functions.n == !wanted->name)
    return error_set(error, "state either \"functions\", by their ids, or a pattern as \"name\"");
  json_array_foreach (wanted->keys, index, key)
    if (!json_is_object(key))
      return error_at(error, json_pointer_index(at, sizeof at, "/keys", index),
                      "a key is an object, such as {\"M\": 4096}");
  return true;
}

static bool tunable_read(struct db *db, const struct tune_request *wanted,
                         struct db_rows **ret_rows, struct error *error) {
  if (!(*ret_rows =
            db_query(db, &sql_policy_tunable, error, BIND_RECORD(&capture_tune_record, wanted),
                     BIND("limit", POLICY_JOBS_MAX))))
    return false;
  return db_count(*ret_rows) ||
         error_of(error, ERROR_MISSING,
                  "no captured function%s has such a key; GET /v1/captures lists all functions",
                  wanted->name ? " of such a name" : " of these ids");
}

/* Makes the job of a built key, and notes it. */
static bool tunable_submit(struct worker *worker, const struct tune_request *wanted,
                           const struct author *author, struct tunable *one, struct error *error) {
  struct job_known job;
  struct error refused = {0};
  const struct job_wish wish = {.kernel = one->kernel,
                                .key = one->key,
                                .space = one->space,
                                .environment = one->environment,
                                .tag = "default",
                                .run = wanted->run ? wanted->run : "",
                                .regime = REGIME_IMPLIED,
                                .priority = wanted->priority,
                                .budget_s = wanted->budget.device_seconds,
                                .may_wait = true};
  if (!job_wish_submit(worker, &wish, author, &job, &refused, error))
    return false;

  free(one->why);
  one->why = job.id ? NULL : xstrdup(refused.message);
  if (!job.id)
    return true;
  one->job = job.id;
  one->created = job.created;
  if (job.created) {
    free(one->state);
    one->state = xstrdup(job_state_names[job.state]);
  }
  return db_execute(worker->db, &sql_policy_decided, error, BIND("id", one->id),
                    BIND("job", job.id), parameter_text("refused", NULL));
}

static bool keys_tune(struct worker *worker, const struct tune_request *wanted,
                      const struct author *author, json_t **ret, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  if (!tunable_read(worker->db, wanted, &rows, error))
    return false;

  size_t n;
  struct tunable *all = db_read_all(rows, &tunable_record, &n);
  cleanup_json json_t *items = json_array();
  bool ok = true;
  for (size_t i = 0; ok && i < n; i++) {
    struct tunable *one = &all[i];
    if (one->space && (wanted->run || one->job == FIELD_NONE))
      ok = tunable_submit(worker, wanted, author, one, error);
    json_push(items, record_write(&tunable_record, one));
  }
  if (ok)
    *ret = json_pack("{s:O, s:I}", "items", items, "left",
                     (json_int_t)(db_get_integer(rows, 0, "n") - (int64_t)n));
  db_records_free(&tunable_record, all, n);
  return ok;
}

bool route_capture_tune(struct worker *worker, struct request *request, struct error *error) {
  struct tune_request wanted;
  json_t *answer = NULL;
  bool is_locked = false;
  record_init(&capture_tune_record, &wanted);
  wanted.priority = 0;
  bool ok = record_read(&capture_tune_record, request->json, "", &wanted, error) &&
            wanted_check(&wanted, error);
  /* So that a policy does not make a job of the same key meanwhile. */
  ok = ok && policy_lock(worker->db, true, &is_locked, error);
  ok = ok && keys_tune(worker, &wanted, request_author(request), &answer, error);
  if (is_locked)
    policy_unlock(worker->db);
  if (ok)
    request_answer_json(request, 200, answer);
  record_release(&capture_tune_record, &wanted);
  return ok;
}
