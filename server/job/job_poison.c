/* What the ledger of poison changes in jobs that are stored (server/poison/poison.h).
 *
 * Memory: nothing is kept. Threads: a worker's own. */
#include "common/base/log.h"
#include "server/db/db_record.h"
#include "server/job/jobs_private.h"
#include "server/measurement/leases.h"
#include "server/poison/poison.sql.h"

/* A new entry is applied again in this time: a transaction that did not see it may insert leases.
 */
#define SETTLE_MS 20000
#define PAGE 200

static const struct field job_fields[] = {
    RECORD_FIELDS(INTEGER, struct poisoned_job, id, baseline, default_config),
    RECORD_FIELDS(DIGEST, struct poisoned_job, kernel, build, device_class),
    RECORD_FIELD_AS("space", JSON, struct poisoned_job, space_json),
    RECORD_FIELD_AS("key", JSON, struct poisoned_job, key_json),
};
static const struct record job_record = RECORD(NULL, struct poisoned_job, job_fields);

bool poisoned_job_read(struct db *db, const struct db_rows *rows, int row, struct poisoned_job *ret,
                       struct error *error) {
  db_read(rows, row, &job_record, ret);
  if (!space_parse(ret->space_json, &ret->space, error) ||
      !key_parse(ret->key_json, NULL, 0, &ret->key, error))
    return false;

  const struct poison_place place = {ret->kernel, ret->build, ret->device_class, &ret->key,
                                     ret->space};
  return poison_find(db, &place, 1, &ret->hits, error);
}

void poisoned_job_release(struct poisoned_job *job) {
  space_free(job->space);
  key_release(&job->key);
  poison_hits_release(&job->hits);
  record_release(&job_record, job);
}

bool job_poison_skip(struct db *db, int64_t job, enum stage stage, int64_t round,
                     struct error *error) {
  const struct poison_round inserted = {stage, round};
  cleanup_poisoned_job struct poisoned_job found = {0};
  size_t given_up;
  cleanup_rows struct db_rows *rows = db_query(db, &sql_poison_job, error, BIND("job", job));
  if (!rows)
    return false;
  if (!db_count(rows))
    return true;

  return poisoned_job_read(db, rows, 0, &found, error) &&
         poison_give_up(db, job, &inserted, &found.hits, &given_up, error);
}

bool job_poison_filter(struct db *db, int64_t job, uint64_t *configs, size_t *n,
                       struct error *error) {
  cleanup_poisoned_job struct poisoned_job found = {0};
  cleanup_rows struct db_rows *rows =
      *n ? db_query(db, &sql_poison_job, error, BIND("job", job)) : NULL;
  size_t kept = 0;
  if (!*n || (rows && !db_count(rows)))
    return true;
  if (!rows || !poisoned_job_read(db, rows, 0, &found, error))
    return false;
  for (size_t i = 0; i < *n; i++)
    if (!poison_hit_of(&found.hits, configs[i]))
      configs[kept++] = configs[i];
  *n = kept;
  return true;
}

/* Whether the job may go on; else *error is the reason. Its measurements are all paired with its
 * baseline. */
static bool job_may_go_on(const struct poisoned_job *job, struct error *error) {
  const struct poison_hit *hit = poison_hit_of(&job->hits, job->baseline);
  if (!poison_allows(&job->hits, job->default_config, error))
    return false;
  return !hit || error_set(error,
                           "the baseline is poisoned on this hardware, by entry %lld of the "
                           "ledger: %s; release it, then retry the job",
                           (long long)hit->entry, hit->reason);
}

static bool job_apply(struct worker *worker, const struct poisoned_job *job, struct error *error) {
  struct error reason;
  if (!job_may_go_on(job, &reason)) {
    bool is_ended;
    return job_end(worker, job->id, reason.message, NULL, &is_ended, error);
  }

  size_t given_up = 0;
  if (!db_begin(worker->db, error) ||
      !db_end(worker->db, poison_give_up(worker->db, job->id, NULL, &job->hits, &given_up, error),
              error))
    return false;
  if (!given_up)
    return true;

  log_warning("job: poisoned configs were given up in %zu leases of job=%lld", given_up,
              (long long)job->id);
  job_announce(worker, job->id);
  jobs_advance(worker, &job->id, 1);
  return true;
}

/* Applies the entries to the next jobs after *after. *ret_more: there may be others. *must_repeat
 * becomes true when another transaction interfered with one. */
static bool page_apply(struct worker *worker, int64_t *after, bool *ret_more, bool *must_repeat,
                       struct error *error) {
  cleanup_rows struct db_rows *rows = db_query(worker->db, &sql_poison_open_jobs, error,
                                               BIND("after", *after), BIND("limit", PAGE));
  if (!rows)
    return false;

  *ret_more = db_count(rows) == PAGE;
  for (int row = 0; row < db_count(rows); row++) {
    cleanup_poisoned_job struct poisoned_job job = {0};
    *after = db_get_integer(rows, row, "id");
    bool ok =
        poisoned_job_read(worker->db, rows, row, &job, error) && job_apply(worker, &job, error);
    if (!ok && error->kind != ERROR_INVALID && error->kind != ERROR_CONTENTION)
      return false;
    *must_repeat = *must_repeat || (!ok && error->kind == ERROR_CONTENTION);
    if (!ok)
      log_warning("job: cannot apply the ledger of poison to job=%lld: %s", (long long)*after,
                  error->message);
  }
  return true;
}

bool jobs_poison(struct worker *worker, struct error *error) {
  int64_t after = 0;
  cleanup_rows struct db_rows *rows =
      db_query(worker->db, &sql_poison_is_unsettled, error, BIND("settle_ms", SETTLE_MS));
  if (!rows)
    return false;
  if (!db_get_bool(rows, 0, "is_unsettled"))
    return true;

  bool must_repeat = false;
  for (bool more = true; more;)
    if (!page_apply(worker, &after, &more, &must_repeat, error))
      return false;
  return must_repeat ||
         db_execute(worker->db, &sql_poison_settle, error, BIND("ids", db_get(rows, 0, "ended")));
}
