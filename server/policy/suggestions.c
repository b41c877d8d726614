/* The jobs that a policy suggests, and making them. Memory and threads: policy.h. */
#include <math.h>

#include "server/db/db_record.h"
#include "server/demand/demand.h"
#include "server/http/request.h"
#include "server/job/job_wish.h"
#include "server/policy/policy.h"
#include "server/policy/policy.sql.h"
#include "server/records.h"

struct suggestion {
  int64_t id; /* of the captured launch, or of the demand */
  char *source, *name, *tag, *image, *not_queued;
  enum regime regime;
  struct digest kernel;
  json_t *key, *environment, *space;
  int64_t configs, budget_ms; /* FIELD_NONE: without a budget */
  double device_seconds, budget_s;
};
#define RECORD_OF struct suggestion
static const struct field suggestion_fields[] = {
    MEMBER(INTEGER, id, FIELD_NO_JSON),
    MEMBER(TEXT, source, .schema = "{\"enum\": [\"capture\", \"demand\"]}"),
    MEMBER(TEXT, name, .about = "of a captured function, or of a kernel"),
    MEMBER(DIGEST, kernel),
    MEMBER(JSON, key, .schema = SCHEMA("Key")),
    MEMBER(JSON, environment, .schema = SCHEMA_ENVIRONMENT),
    MEMBER(TEXT, tag),
    MEMBER(ENUM, regime, .names = regime_names, .schema = SCHEMA("Regime")),
    MEMBER(TEXT, image, .about = "empty where the program did not state it"),
    MEMBER(INTEGER, configs),
    MEMBER(NUMBER, device_seconds, .about = "an estimate"),
    MEMBER(TEXT, not_queued, .about = "why the last attempt made no job"),
    MEMBER(JSON, space, FIELD_NO_JSON),
    MEMBER(INTEGER, budget_ms, FIELD_NO_JSON),
};
const struct record suggestion_record = ANSWER("PolicySuggestion", suggestion_fields);
#undef RECORD_OF

/* What became of a suggestion. */
struct policy_decision {
  const char *source, *name, *refused;
  struct digest kernel;
  json_t *key;
  int64_t job; /* FIELD_NONE: it was refused */
};
#define RECORD_OF struct policy_decision
static const struct field decision_fields[] = {
    MEMBER(TEXT, source),           MEMBER(TEXT, name),
    MEMBER(DIGEST, kernel),         MEMBER(JSON, key, .schema = SCHEMA("Key")),
    MEMBER(ID, job, FIELD_OMITTED), MEMBER(TEXT, refused, FIELD_OMITTED),
};
const struct record decision_record = ANSWER("PolicyDecision", decision_fields);
#undef RECORD_OF

struct suggestions {
  size_t n;
  struct suggestion *all;
};
static void suggestions_release(struct suggestions *suggestions) {
  db_records_free(&suggestion_record, suggestions->all, suggestions->n);
}
#define cleanup_suggestions __attribute__((cleanup(suggestions_release)))

/* Captures first, then demand, at most `limit` in all. `is_listed`: also those that were tried a
 * short time ago. */
static bool suggestions_read(struct db *db, const struct policy *policy, int64_t limit,
                             bool is_listed, struct suggestions *ret, struct error *error) {
  cleanup_rows struct db_rows *captures = NULL, *demand = NULL;
  if (policy->id == FIELD_NONE)
    return true;
  if (!(captures = db_query(db, &sql_policy_captures, error, BIND("policy", policy->id),
                            BIND("limit", limit), BIND("config_us", CONFIG_US_DEFAULT),
                            BIND("retry_s", POLICY_RETRY_S), parameter_bool("is_listed", is_listed),
                            BIND("regime", regime_name(REGIME_IMPLIED)))) ||
      !demand_wanted_read(db, limit - db_count(captures), DEMAND_QUEUE, policy->id, &demand, error))
    return false;

  ret->n = (size_t)db_count(captures) + (size_t)db_count(demand);
  ret->all = xcalloc(ret->n + 1, sizeof *ret->all);
  for (size_t i = 0; i < ret->n; i++) {
    bool is_demand = i >= (size_t)db_count(captures);
    struct suggestion *one = &ret->all[i];
    db_read(is_demand ? demand : captures, (int)i - (is_demand ? db_count(captures) : 0),
            &suggestion_record, one);
    if (isnan(one->device_seconds))
      one->device_seconds = (double)one->configs * CONFIG_US_DEFAULT / 1e6;
    one->budget_s = policy->device_seconds_per_job;
    if (isnan(one->budget_s) && one->budget_ms != FIELD_NONE)
      one->budget_s = (double)one->budget_ms / 1e3;
    one->device_seconds = fmin(one->device_seconds, one->budget_s);
  }
  return true;
}

bool route_policy_suggestions(struct worker *worker, struct request *request, struct error *error) {
  cleanup_suggestions struct suggestions suggestions = {0};
  cleanup_policy struct policy policy = {0};
  int64_t limit;
  const char *after;
  double left;
  if (!page_read(request, &limit, &after, error) ||
      !policy_load(worker->db, request->token_name, &policy, error) ||
      !policy_budget(worker->db, &policy, &left, error) ||
      !suggestions_read(worker->db, &policy, limit, true, &suggestions, error))
    return false;

  json_t *items = json_array();
  for (size_t i = 0; i < suggestions.n; i++)
    json_push(items, record_write(&suggestion_record, &suggestions.all[i]));
  return request_answer_json(request, 200,
                             json_pack("{s:o, s:n, s:o}", "items", items, "next",
                                       "device_seconds_left",
                                       isinf(left) ? json_null() : json_real(left)));
}

/* Makes the job of a suggestion and notes what became of it. What the limit of one token refuses is
 * not noted: the policy of another one may make it. */
static bool job_make(struct worker *worker, const struct suggestion *one, const char *run,
                     double budget_s, const struct author *author, struct policy_decision *ret,
                     struct error *refused, struct error *error) {
  const struct job_wish wish = {.kernel = one->kernel,
                                .key = one->key,
                                .space = one->space,
                                .environment = one->environment,
                                .tag = one->tag,
                                .run = run,
                                .regime = one->regime,
                                .priority = POLICY_PRIORITY,
                                .budget_s = budget_s};
  struct job_known job;
  if (!job_wish_submit(worker, &wish, author, &job, refused, error))
    return false;
  const char *why = job.id ? NULL : refused->message;
  *ret = (struct policy_decision){.source = one->source,
                                  .name = one->name,
                                  .refused = why,
                                  .kernel = one->kernel,
                                  .key = one->key,
                                  .job = job.id ? job.id : FIELD_NONE};
  if (!job.id && refused->kind == ERROR_RATE)
    return true;
  if (string_equal(one->source, "demand"))
    return demand_decide(worker->db, one->id, job.id, refused, error);

  return db_execute(worker->db, &sql_policy_decided, error, BIND("id", one->id),
                    BIND_RECORD(&decision_record, ret));
}

bool policy_jobs_make(struct worker *worker, struct policy *policy, int64_t most, json_t *answers,
                      struct error *error) {
  cleanup_suggestions struct suggestions suggestions = {0};
  const struct author author = {policy->token == FIELD_NONE ? 0 : policy->token, policy->set_by,
                                policy->roles ? policy->roles : "", NULL};
  double left;
  if (!db_execute(worker->db, &sql_policy_attach, error) ||
      !policy_budget(worker->db, policy, &left, error))
    return false;
  if (most > policy->jobs_left)
    most = policy->jobs_left;
  if (left > 0 && most > 0 &&
      !suggestions_read(worker->db, policy, most, false, &suggestions, error))
    return false;

  bool is_unused = policy->used_today + policy->open <= 0;
  for (size_t i = 0; i < suggestions.n; i++) {
    const struct suggestion *one = &suggestions.all[i];
    double limit = policy->device_seconds_per_day;
    bool fits = one->device_seconds <= left, is_large = one->device_seconds > limit;
    struct policy_decision decision;
    struct error refused = {0};
    if ((!fits && !(is_large && is_unused)) ||
        (policy->configs_max != FIELD_NONE && one->configs > policy->configs_max))
      continue;
    if (!job_make(worker, one, policy->run, fits ? one->budget_s : limit, &author, &decision,
                  &refused, error))
      return false;

    json_push(answers, record_write(&decision_record, &decision));
    if (refused.kind == ERROR_RATE)
      break; /* so are the others */
    if (decision.job != FIELD_NONE) {
      left -= fits ? one->device_seconds : limit;
      is_unused = false;
    }
  }
  return true;
}

struct run_request {
  int64_t top;
};
#define RECORD_OF struct run_request
static const struct field run_fields[] = {
    MEMBER(INTEGER, top, FIELD_NOT_NULL, .least = 1, .most = POLICY_JOBS_MAX,
           .about = "default: 100"),
};
#undef RECORD_OF
const struct record policy_run_record = RECORD("PolicyRun", struct run_request, run_fields);

bool route_policy_run(struct worker *worker, struct request *request, struct error *error) {
  struct run_request wanted = {.top = 100};
  cleanup_policy struct policy policy = {0};
  cleanup_json json_t *answers = json_array();
  bool is_locked = false;
  bool ok = record_read(&policy_run_record, request->json, "", &wanted, error) &&
            policy_load(worker->db, request->token_name, &policy, error);
  if (ok && policy.mode == POLICY_OFF)
    ok = error_of(error, ERROR_CONFLICT,
                  "the policy of the token \"%s\" is off, so it suggests nothing; PUT /v1/policy "
                  "sets another one",
                  request->token_name);
  ok = ok && policy_lock(worker->db, true, &is_locked, error);
  ok = ok && policy_jobs_make(worker, &policy, wanted.top, answers, error);
  if (is_locked)
    policy_unlock(worker->db);
  if (ok)
    request_answer_json(request, 200, json_pack("{s:O}", "items", answers));
  return ok;
}
