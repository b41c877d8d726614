/* Routes of policies, their budgets and lock, and the thread that follows them.
 * Memory and threads: policy.h. */
#include "server/policy/policy.h"

#include <math.h>

#include "common/base/log.h"
#include "common/cache/signatures.h"
#include "server/audit/audit.h"
#include "server/channel/channels.h"
#include "server/db/db_record.h"
#include "server/http/request.h"
#include "server/job/job_request.h"
#include "server/measurement/lease_plan.h"
#include "server/policy/policy.sql.h"
#include "server/policy/proposals.h"
#include "server/records.h"

#define LOOK_EVERY_MS 50
#define POLLS 10          /* a pass is made every so many --poll-ms, */
#define REST 10           /* and takes at most one in so many parts of the thread's time */
#define POLICIES_MAX 1000 /* that are followed */

static const char *const mode_names[] = {"off", "suggest", "automatic", NULL};

static bool pattern_check(const char *text, struct error *error) {
  return *text || error_set(error, "an empty pattern names no image; leave it out");
}

#define RECORD_OF struct policy
static const struct field policy_fields[] = {
    MEMBER(ID, id, FIELD_ANSWER, .about = "null: the token has set none"),
    MEMBER(ENUM, mode, FIELD_REQUIRED, .names = mode_names),
    MEMBER(NUMBER, device_seconds_per_day, .least_number = 1e-3, .most_number = 1e9,
           .about = "of all jobs that the policy makes; null: no limit"),
    MEMBER(NUMBER, device_seconds_per_job, .least_number = 1e-3, .most_number = 1e9,
           .about = "the budget of each job; null: for demand that of the kernel's newest job"),
    MEMBER(INTEGER, jobs_per_hour, .least = 1, .most = 100000, .about = "null: no limit"),
    MEMBER(TEXT, run, FIELD_NOT_NULL, .most = JOB_TEXT_MAX,
           .about = "of its jobs; default: policy"),
    MEMBER(INTEGER, configs_max, .least = 1, .most = INT64_C(1) << 40,
           .about = "keys with more configs get no job; null: no limit"),
    MEMBER(TEXTS, tokens, FIELD_NOT_NULL, .most = POLICY_NAMES_MAX,
           .about = "only captures and demand of these tokens count; *: those of all"),
    MEMBER(TEXTS, images, FIELD_NOT_NULL, .most = POLICY_NAMES_MAX, .check = pattern_check,
           .about = "patterns with * and ?; none: every image"),
    MEMBER(TEXT, channel, .least = 1, .most = 64, .check = channel_name_check,
           .about = "where proposals go; null: none are made"),
    MEMBER(ENUM, require, FIELD_NOT_NULL, .names = agreement_requirement_names,
           .about = "the agreement that winners of proposals need; default: agrees"),
    MEMBER(BOOL, promote, FIELD_NOT_NULL,
           .about = "promote proposals of channels that need no signature"),
    MEMBER(TIME, set_at, FIELD_ANSWER),
    MEMBER(TEXT, set_by, FIELD_ANSWER, .about = "the token whose policy it is"),
    MEMBER(ID, set_by_id, FIELD_ANSWER),
    MEMBER(BOOL, acts, FIELD_ANSWER, .about = "its mode is not off, and its token has not ended"),
    MEMBER(INTEGER, token, FIELD_NO_JSON),
    MEMBER(TEXT, roles, FIELD_NO_JSON),
    MEMBER(NUMBER, used_today, FIELD_ANSWER | FIELD_NO_COLUMN,
           .about = "device seconds of its jobs since midnight (UTC); null in lists"),
    MEMBER(NUMBER, open, FIELD_ANSWER | FIELD_NO_COLUMN,
           .about = "device seconds that its unfinished jobs are estimated to need still"),
};
#undef RECORD_OF
const struct record policy_record = RECORD("Policy", struct policy, policy_fields);

void policy_release(struct policy *policy) { record_release(&policy_record, policy); }

struct policies {
  size_t n;
  struct policy *all; /* the older first */
};
static void policies_release(struct policies *policies) {
  db_records_free(&policy_record, policies->all, policies->n);
}
#define cleanup_policies __attribute__((cleanup(policies_release)))

/* All, or that of one owner. */
static bool policies_load(struct db *db, const char *owner, struct policies *ret,
                          struct error *error) {
  cleanup_rows struct db_rows *rows = db_query(db, &sql_policy_list, error, BIND("owner", owner),
                                               BIND("after", 0), BIND("limit", POLICIES_MAX));
  if (!rows)
    return false;
  ret->all = db_read_all(rows, &policy_record, &ret->n);
  return true;
}

bool policy_load(struct db *db, const char *owner, struct policy *ret, struct error *error) {
  cleanup_policies struct policies own = {0};
  if (!policies_load(db, owner, &own, error))
    return false;
  record_init(&policy_record, ret);
  if (own.n) {
    *ret = own.all[0];
    record_init(&policy_record, &own.all[0]);
    return true;
  }
  ret->mode = POLICY_OFF;
  ret->require = REQUIRE_AGREES;
  ret->run = xstrdup(POLICY_RUN);
  ret->tokens.all = xcalloc(1, sizeof(char *)); /* [] rather than null */
  ret->images.all = xcalloc(1, sizeof(char *));
  return true;
}

bool policy_budget(struct db *db, struct policy *policy, double *ret_left, struct error *error) {
  cleanup_rows struct db_rows *rows =
      db_query(db, &sql_policy_usage, error, BIND("config_us", CONFIG_US_DEFAULT),
               BIND("owner", policy->set_by), BIND("run", policy->run));
  if (!rows)
    return false;

  policy->used_today = db_get_double(rows, 0, "used_us") / 1e6;
  policy->open = db_get_double(rows, 0, "open_us") / 1e6;
  policy->jobs_left = policy->jobs_per_hour == FIELD_NONE
                          ? INT64_MAX
                          : policy->jobs_per_hour - db_get_integer(rows, 0, "lately");
  double limit = policy->device_seconds_per_day;
  *ret_left = isnan(limit) ? INFINITY : limit - policy->used_today - policy->open;
  return true;
}

bool policy_lock(struct db *db, bool waits, bool *ret_locked, struct error *error) {
  cleanup_rows struct db_rows *rows =
      db_query(db, waits ? &sql_policy_lock_wait : &sql_policy_lock, error);
  if (!rows)
    return false;
  *ret_locked = waits || db_get_bool(rows, 0, "is_locked");
  return true;
}

/* A lost connection has lost the lock, too. */
void policy_unlock(struct db *db) {
  struct error error;
  if (!db_execute(db, &sql_policy_unlock, &error))
    log_warning("policy: %s", error.message);
}

/* Routes */

static bool policy_answer(struct worker *worker, struct request *request, struct policy *policy,
                          struct error *error) {
  double left;
  if (!policy_budget(worker->db, policy, &left, error))
    return false;
  return request_answer_json(request, 200, record_write(&policy_record, policy));
}

bool route_policy_get(struct worker *worker, struct request *request, struct error *error) {
  cleanup_policy struct policy policy = {0};
  return policy_load(worker->db, request->token_name, &policy, error) &&
         policy_answer(worker, request, &policy, error);
}

static bool is_of_operators(const struct request *request) {
  return request->roles & (TOKEN_OPERATOR | TOKEN_ADMIN);
}

bool route_policy_list(struct worker *worker, struct request *request, struct error *error) {
  static const struct list list = {.statement = &sql_policy_list, .record = &policy_record};
  return answer_page_by(worker, request, &list, error,
                        BIND("owner", is_of_operators(request) ? NULL : request->token_name));
}

/* Refuses a policy that could never do what it says. */
static bool policy_check(struct db *db, const struct policy *policy, struct error *error) {
  if (policy->mode != POLICY_OFF && !policy->tokens.n)
    return error_at(error, "/tokens",
                    "no token is named, so no capture and no demand would count; name those whose "
                    "programs may cause jobs");
  if (policy->mode == POLICY_AUTOMATIC && isnan(policy->device_seconds_per_day) &&
      policy->jobs_per_hour == FIELD_NONE)
    return error_at(error, "/device_seconds_per_day",
                    "an automatic policy needs a budget: state how many device seconds a day its "
                    "jobs may use, or how many jobs it may make in an hour");
  if (policy->promote && !policy->channel)
    return error_at(error, "/promote",
                    "there is nothing to promote without a \"channel\" for proposals");

  cleanup_rows struct db_rows *rows =
      db_query(db, &sql_policy_unknown_tokens, error, BIND_RECORD(&policy_record, policy));
  if (!rows)
    return false;
  return !db_count(rows) ||
         error_at(error, "/tokens", "there is no token \"%.64s\"; `wavetune token list` prints all",
                  db_get(rows, 0, "name"));
}

/* Two policies would replace each other's proposals for ever. Under policy_lock. */
static bool channel_check(struct db *db, const struct policy *policy, const struct author *author,
                          struct error *error) {
  cleanup_rows struct db_rows *rows =
      db_query(db, &sql_policy_of_channel, error, BIND("channel", policy->channel),
               BIND("author", author->name));
  if (!rows)
    return false;
  return !db_count(rows) ||
         error_of_at(error, ERROR_CONFLICT, "/channel",
                     "the policy of the token \"%.200s\" proposes to the channel \"%s\"; name "
                     "another channel, or have an operator remove that policy",
                     db_get(rows, 0, "set_by"), policy->channel);
}

static bool policy_store(struct db *db, const struct policy *policy, const struct author *author,
                         struct error *error) {
  if (!db_begin(db, error))
    return false;
  json_t *detail = record_write(&policy_record, policy);
  static const char *const answers[] = {"id",   "set_at",     "set_by", "set_by_id",
                                        "acts", "used_today", "open"};
  for (size_t i = 0; i < ARRAY_LENGTH(answers); i++)
    json_object_del(detail, answers[i]);
  bool ok = db_execute(db, &sql_policy_set, error, BIND_RECORD(&policy_record, policy),
                       BIND_AUTHOR(author));
  if (ok)
    ok = audit_note(db, author, AUDIT_SET_POLICY, mode_names[policy->mode], detail, error);
  else
    json_decref(detail);
  return db_end(db, ok, error);
}

bool route_policy_put(struct worker *worker, struct request *request, struct error *error) {
  cleanup_policy struct policy wanted = {0}, policy = {0};
  const struct author *author = request_author(request);
  bool is_locked = false;
  record_init(&policy_record, &wanted);
  bool ok = record_read(&policy_record, request->json, "", &wanted, error) &&
            policy_check(worker->db, &wanted, error);
  /* What the server promotes for a policy its token could promote itself; operators may, because
   * they could before policies belonged to tokens. */
  if (ok && wanted.promote && !is_of_operators(request) &&
      !channel_may_be_moved(worker, request, wanted.channel, error))
    return false;

  ok = ok && policy_lock(worker->db, true, &is_locked, error) &&
       channel_check(worker->db, &wanted, author, error) &&
       policy_store(worker->db, &wanted, author, error);
  if (is_locked)
    policy_unlock(worker->db);
  return ok && policy_load(worker->db, author->name, &policy, error) &&
         policy_answer(worker, request, &policy, error);
}

/* Under policy_lock: a pass that read it before would propose, and promote, what it said. */
static bool policy_remove(struct db *db, int64_t id, const char *owner, const struct author *author,
                          bool *ret_removed, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  bool ok = db_begin(db, error) &&
            (rows = db_query(db, &sql_policy_remove, error, BIND("id", id), BIND("owner", owner)));
  *ret_removed = ok && db_count(rows);
  if (*ret_removed)
    ok = audit_note(db, author, AUDIT_REMOVE_POLICY, db_get(rows, 0, "set_by"), NULL, error) &&
         proposals_end(db, "the policy that made it was removed", author, error);
  return db_end(db, ok, error);
}

bool route_policy_delete(struct worker *worker, struct request *request, struct error *error) {
  const char *owner = is_of_operators(request) ? NULL : request->token_name;
  bool is_removed, is_locked = false;
  int64_t id;
  if (!id_read(request, "policy", &id, error))
    return false;

  bool ok = policy_lock(worker->db, true, &is_locked, error) &&
            policy_remove(worker->db, id, owner, request_author(request), &is_removed, error);
  if (is_locked)
    policy_unlock(worker->db);
  if (!ok)
    return false;
  if (!is_removed)
    return error_of(error, ERROR_MISSING, "there is no policy %lld%s; GET /v1/policies lists them",
                    (long long)id, owner ? " of this token" : "");
  return request_answer_empty(request, 204);
}

/* The thread */

static bool jobs_make(struct worker *worker, struct policies *policies, struct error *error) {
  cleanup_json json_t *answers = json_array();
  for (size_t i = 0; i < policies->n; i++)
    if (policies->all[i].acts && policies->all[i].mode == POLICY_AUTOMATIC &&
        !policy_jobs_make(worker, &policies->all[i], POLICY_AT_ONCE, answers, error))
      return false;
  if (json_array_size(answers))
    log_info("policy: jobs were made or refused for %zu keys", json_array_size(answers));
  return true;
}

/* One pass. Failures are logged; the next pass tries again. */
static void policies_follow(struct worker *worker, struct proposed_places *places) {
  cleanup_policies struct policies policies = {0};
  struct error error;
  bool is_locked = false, any_acts = false;
  bool ok = policies_load(worker->db, NULL, &policies, &error);
  for (size_t i = 0; i < policies.n; i++)
    any_acts = any_acts || policies.all[i].acts;
  if (ok && !any_acts)
    return;

  ok = ok && policy_lock(worker->db, false, &is_locked, &error);
  if (ok && is_locked)
    ok = jobs_make(worker, &policies, &error) &&
         proposals_make(worker, policies.all, policies.n, places, &error);
  if (!ok)
    log_warning("policy: %s", error.message);
  if (is_locked)
    policy_unlock(worker->db);
}

void *policy_main(void *context) {
  struct worker *worker = context;
  struct server *server = worker->server;
  struct proposed_places places = {0};
  int64_t next_ms = 0;
  MAGIC_CHECK(worker, WORKER_MAGIC);
  while (server_pause(server, LOOK_EVERY_MS)) {
    int64_t now_ms = clock_monotonic_ms();
    if (!server_is_ready(server) || now_ms < next_ms)
      continue;
    policies_follow(worker, &places);
    int64_t end_ms = clock_monotonic_ms(), rest_ms = REST * (end_ms - now_ms),
            least_ms = POLLS * server_options(server)->poll_ms;
    next_ms = end_ms + (rest_ms > least_ms ? rest_ms : least_ms);
  }

  proposed_places_release(&places);
  return NULL;
}
