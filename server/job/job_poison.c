/* What the ledger of poison changes in jobs that are stored (server/poison/poison.h).
 *
 * Memory: nothing is kept. Threads: a worker's own. */
#include "common/base/log.h"
#include "server/db/db_record.h"
#include "server/job/jobs.h"
#include "server/measurement/leases.h"
#include "server/poison/poison.h"
#include "server/poison/poison.sql.h"

/* A new entry is applied again in this time: a transaction that did not see it may insert leases.
 */
#define SETTLE_MS 20000
#define PAGE 200

/* What the ledger has of a stored job. */
struct poisoned_job {
  int64_t id;
  uint64_t baseline, default_config; /* the latter FIELD_NONE: none */
  struct poison_hits hits;
};

/* False with ERROR_INVALID: this version cannot read the job's space. */
static bool job_look_up(struct db *db, const struct db_rows *rows, int row,
                        struct poisoned_job *ret, struct error *error) {
  cleanup_json json_t *space_json = db_get_json(rows, row, "space"),
                      *key_json = db_get_json(rows, row, "key");
  cleanup_space struct space *space = NULL;
  cleanup_key struct key key = {0};
  if (!space_parse(space_json, &space, error) || !key_parse(key_json, NULL, 0, &key, error))
    return false;

  struct poison_place place = {.kernel = db_get_digest(rows, row, "kernel"),
                               .device_class = db_get_digest(rows, row, "device_class"),
                               .key = &key,
                               .space = space};
  if (!db_is_null(rows, row, "build"))
    place.build = db_get_digest(rows, row, "build");
  *ret = (struct poisoned_job){.id = db_get_integer(rows, row, "id"),
                               .baseline = (uint64_t)db_get_integer(rows, row, "baseline"),
                               .default_config =
                                   db_is_null(rows, row, "default_config")
                                       ? (uint64_t)FIELD_NONE
                                       : (uint64_t)db_get_integer(rows, row, "default_config")};
  return poison_find(db, &place, 1, &ret->hits, error);
}

bool job_poison_skip(struct db *db, int64_t job, enum stage stage, int64_t round,
                     struct error *error) {
  const struct poison_round inserted = {stage, round};
  cleanup_rows struct db_rows *rows = NULL;
  struct poisoned_job found = {0};
  size_t given_up;
  if (!db_run_by(db, &sql_poison_job, "job", job, &rows, error))
    return false;
  if (!db_count(rows))
    return true;

  bool ok = job_look_up(db, rows, 0, &found, error) &&
            poison_give_up(db, job, &inserted, &found.hits, &given_up, error);
  poison_hits_release(&found.hits);
  return ok;
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
    struct poisoned_job job = {0};
    *after = db_get_integer(rows, row, "id");
    bool ok = job_look_up(worker->db, rows, row, &job, error) && job_apply(worker, &job, error);
    poison_hits_release(&job.hits);
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
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0}, ended = {0};
  int64_t after = 0;
  bind_integer(&parameters, "settle_ms", SETTLE_MS);
  if (!db_run(worker->db, &sql_poison_is_unsettled, &parameters, &rows, error))
    return false;
  if (!db_get_bool(rows, 0, "is_unsettled"))
    return true;

  bool must_repeat = false;
  for (bool more = true; more;)
    if (!page_apply(worker, &after, &more, &must_repeat, error))
      return false;
  if (must_repeat)
    return true;
  bind_text(&ended, "ids", db_get(rows, 0, "ended"));
  return db_run(worker->db, &sql_poison_settle, &ended, NULL, error);
}
