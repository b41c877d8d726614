/* Selecting jobs, and the routes POST /v1/jobs/cancel, /retry and /progress, which are about many.
 * Each works in bounded batches, so that no transaction holds the rows of thousands of jobs.
 *
 * Memory: a handler frees what it makes when it returns. Threads: database workers. */
#include "server/job/job_select.h"

#include <ctype.h>
#include <errno.h>

#include "common/base/numbers.h"
#include "server/counters.h"
#include "server/db/db_record.h"
#include "server/job/job_select.sql.h"
#include "server/job/jobs.h"
#include "server/job/submit.h"
#include "server/measurement/lease_plan.h"

#define CANCEL_BATCH 1000 /* jobs in one transaction */
#define CANCEL_MAX 20000  /* jobs in one request */
#define RETRY_BATCH 100   /* jobs in one request, which plans them all */

#define SELECTION_JOBS_MAX 10000 /* ids in one request */

struct job_selection {
  struct texts jobs; /* ids; none: all jobs that the other members describe */
  char *tag, *run;
  char *kernel;  /* its hash or its name */
  char *user;    /* the name of the token that submitted them */
  int64_t up_to; /* no newer job than this id; FIELD_NONE: any */
  int64_t after; /* only jobs with higher ids; FIELD_NONE: any */
  bool dry_run;  /* only count them */
  bool any;      /* also jobs that others submitted */
  size_t n_ids;
  int64_t *ids; /* the same as `jobs`, ascending and distinct */
};
#define FIELD(type, member, ...) RECORD_FIELD(type, struct job_selection, member, __VA_ARGS__)
static const struct field selection_fields[] = {
    FIELD(TEXTS, jobs, FIELD_NOT_NULL | FIELD_OR_INTEGER, .least = 1, .most = SELECTION_JOBS_MAX,
          .schema = "{\"type\": \"array\", \"minItems\": 1, \"maxItems\": 10000, \"items\": "
                    "{\"type\": [\"string\", \"integer\"]}}",
          .about = "ids"),
    FIELD(TEXT, tag, FIELD_NOT_NULL, .most = JOB_TEXT_MAX, .about = "only jobs with this tag"),
    FIELD(TEXT, run, FIELD_NOT_NULL, .most = JOB_TEXT_MAX, .about = "only jobs of this run"),
    FIELD(TEXT, kernel, FIELD_NOT_NULL, .least = 1, .most = JOB_TEXT_MAX,
          .about = "only jobs of this kernel: its hash or its name"),
    FIELD(TEXT, user, FIELD_NOT_NULL, .least = 1, .most = JOB_TEXT_MAX,
          .about = "only jobs that the token of this name submitted"),
    FIELD(ID, up_to, FIELD_NOT_NULL, .about = "no newer job than this one"),
    FIELD(ID, after, FIELD_NOT_NULL, .about = "only newer jobs than this one"),
    FIELD(BOOL, dry_run, FIELD_NOT_NULL, .about = "only counts them"),
    FIELD(BOOL, any, FIELD_NOT_NULL,
          .about = "also jobs that others submitted; needs the role operator"),
};
#undef FIELD
const struct record job_selection_record =
    RECORD("JobSelection", struct job_selection, selection_fields);

static void selection_release(struct job_selection *selection) {
  free(selection->ids);
  record_release(&job_selection_record, selection);
}
#define cleanup_selection __attribute__((cleanup(selection_release)))

/* The ids of `jobs`, ascending and distinct. */
static bool ids_parse(struct job_selection *selection, struct error *error) {
  char at[JSON_POINTER_SIZE];
  if (!selection->jobs.n)
    return true;

  selection->ids = xcalloc(selection->jobs.n, sizeof *selection->ids);
  for (size_t i = 0; i < selection->jobs.n; i++) {
    const char *text = selection->jobs.all[i];
    char *end;
    errno = 0;
    int64_t id = strtoll(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || *end || errno || id < 1)
      return error_at(error, json_pointer_index(at, sizeof at, "/jobs", i),
                      "\"%.40s\" is not the id of a job", text);
    selection->ids[i] = id;
  }

  selection->n_ids = sort_unique((uint64_t *)selection->ids, selection->jobs.n);
  return true;
}

/* Reads the body of a request that changes jobs. Refuses a selection that names no jobs and no
 * property, because it would be all jobs. */
static bool selection_parse(const json_t *json, struct job_selection *ret, struct error *error) {
  cleanup_selection struct job_selection selection = {0};
  record_init(&job_selection_record, &selection);
  if (!record_read(&job_selection_record, json, "", &selection, error) ||
      !ids_parse(&selection, error))
    return false;
  if (!selection.n_ids && !selection.tag && !selection.run && !selection.kernel && !selection.user)
    return error_at(error, "",
                    "name \"jobs\", or state at least one of \"tag\", \"run\", \"kernel\" and "
                    "\"user\": without them these would be all jobs");

  *ret = selection;
  selection = (struct job_selection){0};
  record_init(&job_selection_record, &selection);
  return true;
}

bool bind_job_filters(struct db_parameters *parameters, const char *tag, const char *run,
                      const char *kernel, const char *user, struct error *error) {
  struct digest hash;
  bool is_hash = kernel && digest_parse(kernel, &hash);
  if (kernel && !is_hash && string_starts(kernel, "sha256:"))
    return error_set(error,
                     "kernel=\"%.80s\" is not a kernel hash (\"sha256:\" and 64 hexadecimal "
                     "digits), nor a name",
                     kernel);
  bind_text(parameters, "tag", tag);
  bind_text(parameters, "run", run);
  char bytea[BYTEA_TEXT_SIZE]; /* not bind_digest, which borrows what is local here */
  bind_taken(parameters, "kernel", is_hash ? xstrdup(digest_bytea(&hash, bytea)) : NULL, false);
  bind_text(parameters, "kernel_name", is_hash ? NULL : kernel);
  bind_text(parameters, "owner", user);
  return true;
}

static bool bind_selection(struct db_parameters *parameters, const struct job_selection *selection,
                           const struct author *author, struct error *error) {
  bind_text(parameters, "author", author->name);
  bind_integers(parameters, "jobs", selection->n_ids ? selection->ids : NULL, selection->n_ids);
  bind_integer(parameters, "up_to", selection->up_to);
  return bind_job_filters(parameters, selection->tag, selection->run, selection->kernel,
                          selection->user, error);
}

struct job_counts {
  int64_t open, ended, retriable, newest;
  int64_t others_open, others_retriable; /* of these, jobs that others than the author submitted */
  char other[TOKEN_NAME_SIZE];           /* one of those others; "": none, or not known */
};
/* Counts the jobs of a selection. ERROR_MISSING: an id is no job. */
static bool selection_count(struct db *db, const struct job_selection *selection,
                            const struct author *author, struct job_counts *ret,
                            struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  if (!bind_selection(&parameters, selection, author, error) ||
      !db_run(db, &sql_jobs_count, &parameters, &rows, error))
    return false;
  if (!db_is_null(rows, 0, "missing"))
    return job_absent(error, db_get_integer(rows, 0, "missing"));

  *ret = (struct job_counts){db_get_integer(rows, 0, "open"),
                             db_get_integer(rows, 0, "ended"),
                             db_get_integer(rows, 0, "retriable"),
                             db_get_integer(rows, 0, "newest"),
                             db_get_integer(rows, 0, "others_open"),
                             db_get_integer(rows, 0, "others_retriable"),
                             ""};
  if (!db_is_null(rows, 0, "other"))
    snprintf(ret->other, sizeof ret->other, "%s", db_get(rows, 0, "other"));
  return true;
}

/* Whether the request may change the jobs of which `n_others` are others'. */
static bool others_check(const struct request *request, bool any, int64_t n_others,
                         const char *other, struct error *error) {
  if (any && !(request->roles & MAY_OPERATE))
    return error_of_at(error, ERROR_FORBIDDEN, "/any",
                       "jobs that others submitted need the role operator or admin; the token "
                       "\"%.100s\" may change its own alone",
                       request->token_name);
  if (any || n_others == 0)
    return true;
  return error_of(error, ERROR_FORBIDDEN,
                  "%lld of these jobs were submitted by others than \"%.100s\"%s%.100s; to change "
                  "them, too, state \"any\" (--any), with the role operator or admin",
                  (long long)n_others, request->token_name, *other ? ", such as " : "", other);
}

bool job_may_change(struct worker *worker, struct request *request, int64_t job, bool any,
                    struct error *error) {
  cleanup_rows struct db_rows *rows = db_query(worker->db, &sql_job_others, error, BIND("job", job),
                                               BIND("author", request_author(request)->name));
  if (!rows)
    return false;
  if (!db_count(rows))
    return job_absent(error, job);
  return others_check(request, any, db_get_integer(rows, 0, "n"), db_get(rows, 0, "other"), error);
}

/* The next jobs of a selection in one of the states, after an id. */
static bool selection_next(struct db *db, const struct job_selection *selection,
                           const struct author *author, const char *states, int64_t after,
                           int64_t limit, struct db_rows **ret_rows, struct error *error) {
  cleanup_parameters struct db_parameters parameters = {0};
  bind_values(&parameters, BIND("states", states), BIND("after", after), BIND("limit", limit),
              BIND("any", selection->any));
  return bind_selection(&parameters, selection, author, error) &&
         db_run(db, &sql_jobs_choose, &parameters, ret_rows, error);
}

/* The ids of the jobs that may be changed: others' came after those were counted. */
static int64_t *ids_of(const struct db_rows *rows, size_t *ret_n) {
  int64_t *ids = xcalloc((size_t)db_count(rows) + 1, sizeof *ids);
  *ret_n = 0;
  for (int row = 0; row < db_count(rows); row++)
    if (db_get_bool(rows, row, "may_change"))
      ids[(*ret_n)++] = db_get_integer(rows, row, "id");
  return ids;
}

/* The detail of the one audit row of an act on many jobs: how many, and what selected them. */
static json_t *selection_detail(const struct request *request, int64_t n, int64_t newest) {
  json_t *selected = json_copy(request->json);
  json_object_del(selected, "dry_run");
  if (!json_object_get(selected, "up_to"))
    json_put(selected, "up_to", json_sprintf("%lld", (long long)newest));
  return json_pack("{s:I, s:o}", "jobs", (json_int_t)n, "selected", selected);
}

/* Cancels the unfinished jobs of a selection by batches. What was cancelled before a failure stays
 * so: the client tries again. The first batch that cancels one adds `note` to the audit table. */
static bool selection_cancel(struct worker *worker, const struct job_selection *selection,
                             const struct audit_row *note, int64_t *ret_cancelled, bool *ret_more,
                             struct error *error) {
  const struct author *author = note->author;
  int64_t after = 0;
  *ret_cancelled = 0;
  *ret_more = true;
  for (int64_t seen = 0; seen < CANCEL_MAX;) {
    cleanup_rows struct db_rows *rows = NULL;
    if (!selection_next(worker->db, selection, author, "{queued,running}", after, CANCEL_BATCH,
                        &rows, error))
      return false;

    int n_rows = db_count(rows);
    size_t n, cancelled;
    cleanup_free int64_t *ids = ids_of(rows, &n);
    bool ok = n == 0 ||
              jobs_cancel(worker, ids, n, author, *ret_cancelled ? NULL : note, &cancelled, error);
    *ret_cancelled += n ? (int64_t)cancelled : 0;
    if (!ok)
      return false;
    if (n_rows < CANCEL_BATCH) {
      *ret_more = false;
      return true;
    }
    after = db_get_integer(rows, n_rows - 1, "id");
    seen += n_rows;
  }

  return true;
}

/* Reads and counts the jobs that a request is about, and checks that it may change them. Otherwise
 * answers. */
static bool selection_open(struct worker *worker, struct request *request, bool is_retry,
                           struct job_selection *selection, struct job_counts *counts) {
  struct error error;
  if (!request_query_only(request, NULL))
    return false;
  if (selection_parse(request->json, selection, &error) &&
      selection_count(worker->db, selection, request_author(request), counts, &error) &&
      others_check(request, selection->any,
                   is_retry ? counts->others_retriable : counts->others_open, counts->other,
                   &error))
    return true;
  answer_failure(request, &error);
  return false;
}

void route_job_cancel(struct worker *worker, struct request *request) {
  cleanup_selection struct job_selection selection = {0};
  struct job_counts counts;
  struct error error;
  int64_t cancelled = 0;
  bool is_more = false;
  const struct author *author = request_author(request);
  if (!selection_open(worker, request, false, &selection, &counts))
    return;

  char id[24];
  int64_t n = counts.open < CANCEL_MAX ? counts.open : CANCEL_MAX;
  cleanup_json json_t *detail =
      selection.n_ids == 1 ? NULL : selection_detail(request, n, counts.newest);
  snprintf(id, sizeof id, "%lld", (long long)counts.newest);
  const struct audit_row note = {author, AUDIT_CANCEL, detail ? "jobs" : id, detail};
  if (!selection.dry_run &&
      !selection_cancel(worker, &selection, &note, &cancelled, &is_more, &error)) {
    answer_failure(request, &error);
    return;
  }

  if (selection.dry_run)
    cancelled = counts.open;
  int64_t ended = counts.ended;
  if (!is_more && counts.open > cancelled) /* the others ended meanwhile */
    ended += counts.open - cancelled;
  request_answer_json(request, 200,
                      json_pack("{s:I, s:I, s:b, s:o}", "cancelled", (json_int_t)cancelled, "ended",
                                (json_int_t)ended, "more", is_more, "newest",
                                json_sprintf("%lld", (long long)counts.newest)));
}

/* Trying jobs again */

struct retry {
  int64_t of; /* the failed or cancelled job */
  struct submission submission;
  char *refused; /* why it cannot be submitted, or NULL */
};
struct retries {
  size_t n, n_done; /* those after n_done are left to the next request */
  struct retry *all;
  json_t *known;   /* of jobs that were retried before: {"job", "as", "created": false} */
  json_t *refused; /* of jobs that are not retried: {"job", "reason"} */
  int64_t last;    /* the last job that was looked at */
  bool is_more;
};

static void retries_release(struct retries *retries) {
  for (size_t i = 0; i < retries->n; i++) {
    submission_release(&retries->all[i].submission);
    free(retries->all[i].refused);
  }
  free(retries->all);
  json_decref(retries->known);
  json_decref(retries->refused);
}

/* Takes over the reason. */
static void refused_add(json_t *refused, int64_t job, char *reason) {
  json_push(refused,
            json_pack("{s:o, s:s}", "job", json_sprintf("%lld", (long long)job), "reason", reason));
  free(reason);
}

static json_t *retried_json(int64_t job, int64_t as, bool is_created) {
  return json_pack("{s:o, s:o, s:b}", "job", json_sprintf("%lld", (long long)job), "as",
                   json_sprintf("%lld", (long long)as), "created", is_created);
}

/* Notes why a job is refused, for what it is or because the ledger of poison has it; false for an
 * error that is not about the job. */
static bool refuse_one(struct retry *retry, const struct error *error) {
  if (error->kind != ERROR_INVALID && error->kind != ERROR_CONFLICT)
    return false;
  retry->refused = xstrdup(error->message);
  return true;
}

/* Reads the selected jobs as requests. */
static bool retries_load(struct worker *worker, const struct job_selection *selection,
                         const struct author *author, struct retries *ret, struct error *error) {
  cleanup_rows struct db_rows *chosen = NULL;
  int64_t after = selection->after == FIELD_NONE ? 0 : selection->after;
  const char *states =
      selection->n_ids ? "{queued,running,done,failed,cancelled}" : "{failed,cancelled}";
  if (!selection_next(worker->db, selection, author, states, after, RETRY_BATCH, &chosen, error))
    return false;

  size_t n_chosen = (size_t)db_count(chosen), n = 0;
  cleanup_free int64_t *ids = xcalloc(n_chosen + 1, sizeof *ids);
  ret->known = json_array();
  ret->refused = json_array();
  ret->is_more = n_chosen == RETRY_BATCH;
  for (int row = 0; row < (int)n_chosen; row++) {
    const char *state = db_get(chosen, row, "state");
    ret->last = db_get_integer(chosen, row, "id");
    if (!db_is_null(chosen, row, "successor"))
      json_push(ret->known,
                retried_json(ret->last, db_get_integer(chosen, row, "successor"), false));
    else if (!string_equal(state, "failed") && !string_equal(state, "cancelled"))
      refused_add(ret->refused, ret->last, xasprintf("it is %s", state));
    else if (db_get_bool(chosen, row, "may_change"))
      ids[n++] = ret->last;
    else /* it failed after the others' jobs were counted */
      refused_add(ret->refused, ret->last, xstrdup("others submitted it"));
  }

  cleanup_rows struct db_rows *rows =
      db_query(worker->db, &sql_jobs_requests, error, BIND_ALL("jobs", ids, n));
  if (!rows)
    return false;

  ret->n_done = (size_t)db_count(rows);
  ret->all = xcalloc(ret->n_done + 1, sizeof *ret->all);
  for (int row = 0; row < db_count(rows); row++) {
    struct retry *retry = &ret->all[ret->n++];
    cleanup_json json_t *json = db_get_json(rows, row, "request");
    struct error bad;
    retry->of = retry->submission.retry_of = db_get_integer(rows, row, "id");
    if (!job_request_parse(json, &retry->submission.request, &bad) && !refuse_one(retry, &bad)) {
      *error = bad;
      return false;
    }
  }
  return true;
}

/* Checks and plans the new jobs, and stores those that are possible in one transaction. Ends the
 * batch early where the spaces would be too large together. */
static bool retries_store(struct worker *worker, struct retries *retries,
                          const struct author *author, struct error *error) {
  cleanup_catalog struct catalog catalog = {0};
  cleanup_free struct digest *kernels = xcalloc(retries->n + 1, sizeof *kernels);
  cleanup_free struct submission **possible = xcalloc(retries->n + 1, sizeof *possible);
  size_t n = 0;
  for (size_t i = 0; i < retries->n; i++)
    if (!retries->all[i].refused)
      kernels[n++] = retries->all[i].submission.request.kernel;
  if (n == 0)
    return true;
  if (!catalog_load(worker, kernels, n, &catalog, error))
    return false;

  n = 0;
  for (size_t i = 0; i < retries->n; i++) {
    struct retry *retry = &retries->all[i];
    json_t *extra = NULL;
    if (retry->refused)
      continue;
    bool ok = submission_check(worker, &catalog, &retry->submission, &extra, error);
    json_decref(extra);
    if (ok)
      possible[n++] = &retry->submission;
    else if (!refuse_one(retry, error))
      return false;
  }
  if (n && !jobs_find(worker->db, possible, n, error))
    return false;

  uint64_t points_left = BATCH_POINTS_MAX;
  n = 0;
  for (size_t i = 0; i < retries->n; i++) {
    struct retry *retry = &retries->all[i];
    struct submission *job = &retry->submission;
    if (retry->refused || job->known.id)
      continue;
    if (points_left < JOB_POINTS_MAX) {
      retries->n_done = i;
      retries->last = retries->all[i - 1].of;
      retries->is_more = true;
      break;
    }
    if (submission_plan(job, JOB_POINTS_MAX, error)) {
      points_left -= job->request.search.wanted ? 0 : job->plan.configs;
      possible[n++] = job;
    } else if (!refuse_one(retry, error)) {
      return false;
    }
  }

  return submissions_store(worker, possible, n, author, error);
}

void route_job_retry(struct worker *worker, struct request *request) {
  cleanup_selection struct job_selection selection = {0};
  __attribute__((cleanup(retries_release))) struct retries retries = {0};
  struct job_counts counts;
  struct error error;
  if (!selection_open(worker, request, true, &selection, &counts))
    return;
  if (selection.dry_run) {
    request_answer_json(request, 200,
                        json_pack("{s:I, s:o}", "retriable", (json_int_t)counts.retriable, "newest",
                                  json_sprintf("%lld", (long long)counts.newest)));
    return;
  }
  if (!retries_load(worker, &selection, request_author(request), &retries, &error) ||
      !retries_store(worker, &retries, request_author(request), &error)) {
    answer_failure(request, &error);
    return;
  }

  for (size_t i = 0; i < retries.n_done; i++) {
    const struct retry *retry = &retries.all[i];
    const struct job_known *known = &retry->submission.known;
    if (retry->refused)
      refused_add(retries.refused, retry->of, xstrdup(retry->refused));
    else
      json_push(retries.known, retried_json(retry->of, known->id, known->created));
    counter_add(COUNTER_jobs_submitted, !retry->refused && known->created);
  }

  char next[24];
  snprintf(next, sizeof next, "%lld", (long long)retries.last);
  request_answer_json(request, 200,
                      json_pack("{s:O, s:O, s:s?}", "retried", retries.known, "refused",
                                retries.refused, "next", retries.is_more ? next : NULL));
}

/* Counting jobs */

void route_job_progress(struct worker *worker, struct request *request) {
  cleanup_selection struct job_selection selection = {0};
  struct error error;
  int64_t states[JOB_STATE_COUNT] = {0}, measured = 0, configs = 0;
  if (!request_query_only(request, NULL))
    return;

  cleanup_rows struct db_rows *rows = NULL;
  if (selection_parse(request->json, &selection, &error) &&
      (selection.n_ids || error_at(&error, "/jobs", "state the ids of the jobs in \"jobs\"")))
    rows = db_query(worker->db, &sql_jobs_progress, &error,
                    BIND_ALL("jobs", selection.ids, selection.n_ids));
  if (!rows) {
    answer_failure(request, &error);
    return;
  }

  cleanup_json json_t *ended = json_array();
  size_t n = (size_t)db_count(rows);
  for (size_t i = 0; i < selection.n_ids; i++) {
    int row = (int)i;
    if (i == n || db_get_integer(rows, row, "id") != selection.ids[i]) {
      job_absent(&error, selection.ids[i]);
      answer_failure(request, &error);
      return;
    }

    enum job_state state;
    int64_t all = db_get_integer(rows, row, "configs");
    ALWAYS(job_state_parse(db_get(rows, row, "state"), &state));
    bool is_final = job_state_is_final(state);
    states[state]++;
    configs += all;
    measured += is_final ? all : db_get_integer(rows, row, "measured");
    if (is_final)
      json_push(ended, json_pack("{s:s, s:s, s:I}", "job", db_get(rows, row, "id"), "state",
                                 job_state_names[state], "configs", (json_int_t)all));
  }

  json_t *answer = json_object();
  for (size_t i = 0; i < JOB_STATE_COUNT; i++)
    json_put(answer, job_state_names[i], json_integer(states[i]));
  json_put(answer, "configs", json_integer(configs));
  json_put(answer, "measured", json_integer(measured));
  json_object_set(answer, "ended", ended);
  request_answer_json(request, 200, answer);
}
