/* The states of jobs, and ending jobs. Memory and threads: jobs.h. */
#include "common/base/log.h"
#include "server/counters.h"
#include "server/db/db_record.h"
#include "server/job/jobs.sql.h"
#include "server/job/jobs_private.h"
#include "server/measurement/leases.h"

#define X(id, name) name,
const char *const job_state_names[] = {JOB_STATES(X) NULL};
#undef X

/* Whether a job may go from the row's state to the column's. */
static const bool transitions[JOB_STATE_COUNT][JOB_STATE_COUNT] = {
    [JOB_QUEUED] = {[JOB_RUNNING] = true, [JOB_FAILED] = true, [JOB_CANCELLED] = true},
    [JOB_RUNNING] = {[JOB_RUNNING] = true, /* another stage or round */
                     [JOB_DONE] = true,
                     [JOB_FAILED] = true,
                     [JOB_CANCELLED] = true},
};

bool job_state_parse(const char *name, enum job_state *ret) {
  size_t i;
  if (!name_find(job_state_names, JOB_STATE_COUNT, name, &i))
    return false;

  *ret = (enum job_state)i;
  return true;
}

bool job_absent(struct error *error, int64_t job) {
  return error_of(error, ERROR_MISSING, "there is no job %lld", (long long)job);
}

bool job_state_may_change(enum job_state from, enum job_state to) { return transitions[from][to]; }

bool job_state_is_final(enum job_state state) {
  return state != JOB_QUEUED && state != JOB_RUNNING;
}

/* The one statement that changes a job's state; *ret_rows: the ids of the jobs that changed. */
static bool state_change(struct db *db, const struct job_change *change, struct db_rows **ret_rows,
                         struct error *error) {
  ALWAYS(job_state_may_change(change->from, change->to));
  static const struct author no_author;
  bool is_stage = change->from == change->to;
  cleanup_json json_t *nothing = json_object();
  const struct author *author = change->author ? change->author : &no_author;
  *ret_rows = db_query(db, &sql_job_change_state, error, BIND_ALL("jobs", change->jobs, change->n),
                       BIND("from_state", job_state_names[change->from]),
                       BIND("from_stage", change->at ? stage_name(change->at->stage) : NULL),
                       BIND("from_round", change->at ? change->at->round : 0),
                       BIND("to_state", job_state_names[change->to]),
                       BIND("to_stage", is_stage ? stage_name(change->to_stage) : NULL),
                       BIND("to_round", is_stage ? change->to_round : FIELD_NONE),
                       BIND("reason", change->reason),
                       BIND("detail", change->detail ? change->detail : nothing),
                       BIND("author", author->name), parameter_id("author_id", author->token));
  return *ret_rows != NULL;
}

bool job_change_state(struct db *db, const struct job_change *change, size_t *ret_changed,
                      struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  if (!state_change(db, change, &rows, error))
    return false;

  *ret_changed = (size_t)db_count(rows);
  return true;
}

/* After the transaction in which a job failed or was cancelled: cancels its leases and wakes the
 * requests that wait for it. It uses another transaction, because none may wait for leases while it
 * holds a job's row. The housekeeper repeats it after a crash. */
static bool end_settle(struct worker *worker, const struct job_change *change, bool is_changed,
                       struct error *error) {
  counter_add(COUNTER_jobs_failed, is_changed && change->to == JOB_FAILED);
  if (!leases_cancel_ended(worker->db, change->jobs, change->n, error))
    return false;
  if (is_changed) {
    log_info("job: %s job=%lld reason=%s", job_state_names[change->to], (long long)*change->jobs,
             change->reason);
    job_announce(worker, *change->jobs);
  }

  return true;
}

bool job_end(struct worker *worker, int64_t job, const char *reason, const struct author *author,
             bool *ret_ended, struct error *error) {
  cleanup_json json_t *detail = json_pack("{s:s*}", "reason", reason);
  struct job_change change = {.jobs = &job,
                              .n = 1,
                              .from = JOB_QUEUED,
                              .to = author ? JOB_CANCELLED : JOB_FAILED,
                              .reason = reason,
                              .detail = detail,
                              .author = author};
  size_t changed = 0;
  if (!db_begin(worker->db, error))
    return false;

  /* Queued is tried first: a queued job may become running meanwhile, but not the other way
   * round. */
  bool ok = job_change_state(worker->db, &change, &changed, error);
  if (ok && !changed) {
    change.from = JOB_RUNNING;
    ok = job_change_state(worker->db, &change, &changed, error);
  }

  if (ok && changed && author) {
    char id[24];
    snprintf(id, sizeof id, "%lld", (long long)job);
    ok = audit_note(worker->db, author, AUDIT_CANCEL, id, NULL, error);
  }

  if (!db_end(worker->db, ok, error))
    return false;

  *ret_ended = changed > 0;
  return end_settle(worker, &change, *ret_ended, error);
}

struct cancellation {
  struct job_change change;
  const struct audit_row *note; /* NULL: none */
  struct db_rows *rows;         /* the ids of the jobs that changed */
};

/* Cancels the jobs that are in the state `from`, with the row of the audit log if there are any. */
static bool cancel(struct db *db, void *context, struct error *error) {
  struct cancellation *cancellation = context;
  const struct audit_row *note = cancellation->note;
  db_rows_free(TAKE(cancellation->rows));
  return state_change(db, &cancellation->change, &cancellation->rows, error) &&
         (!note || !db_count(cancellation->rows) || audit_add(db, note, 1, error));
}

bool jobs_cancel(struct worker *worker, const int64_t *jobs, size_t n, const struct author *author,
                 const struct audit_row *note, size_t *ret_cancelled, struct error *error) {
  /* Queued is tried first, as in job_end. Each state has its own transaction, which locks jobs in
   * the order of their ids: with two states in one, two of them could wait for each other. */
  static const enum job_state from[] = {JOB_QUEUED, JOB_RUNNING};
  struct cancellation each = {
      {.jobs = jobs, .n = n, .to = JOB_CANCELLED, .author = author}, note, NULL};
  cleanup_free int64_t *cancelled = xcalloc(n + 1, sizeof *cancelled);
  size_t n_cancelled = 0;
  bool ok = true;
  for (size_t i = 0; ok && i < ARRAY_LENGTH(from); i++) {
    each.change.from = from[i];
    ok = db_transaction(worker->db, DB_ATTEMPTS, cancel, &each, error);
    for (int row = 0; ok && row < db_count(each.rows); row++)
      cancelled[n_cancelled++] = db_get_integer(each.rows, row, "id");
    if (n_cancelled)
      each.note = NULL;
  }
  db_rows_free(each.rows);

  /* Also after a failure: what was cancelled before it is committed. */
  struct error unsettled;
  if (n_cancelled && !leases_cancel_ended(worker->db, cancelled, n_cancelled, &unsettled)) {
    if (ok)
      *error = unsettled;
    ok = false;
  }
  for (size_t i = 0; i < n_cancelled; i++)
    job_announce(worker, cancelled[i]);
  if (n_cancelled)
    log_info("job: cancelled jobs=%zu first=%lld by=%s", n_cancelled, (long long)cancelled[0],
             author->name);
  *ret_cancelled = n_cancelled;
  return ok;
}

bool job_end_without_winner(struct worker *worker, int64_t job, enum job_state to,
                            const struct job_brief *at, const char *reason, struct error *error) {
  cleanup_json json_t *detail = json_pack("{s:s}", "reason", reason);
  struct job_change change = {.jobs = &job,
                              .n = 1,
                              .from = JOB_RUNNING,
                              .to = to,
                              .reason = reason,
                              .detail = detail,
                              .at = at};
  size_t changed = 0;
  bool ok = db_begin(worker->db, error) && job_change_state(worker->db, &change, &changed, error) &&
            (!changed || to != JOB_DONE ||
             db_execute(worker->db, &sql_job_store_disagreeing, error, BIND("job", job)));
  if (!db_end(worker->db, ok, error))
    return false;

  counter_add(COUNTER_jobs_done, changed && to == JOB_DONE);
  return end_settle(worker, &change, changed > 0, error);
}
