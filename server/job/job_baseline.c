/* Another baseline for a job whose baseline does not compile, fit or run on its hardware, before
 * anything was measured.
 *
 * Memory: nothing is kept. Threads: a worker's own. */
#include "common/base/log.h"
#include "server/db/db_record.h"
#include "server/job/jobs.sql.h"
#include "server/job/jobs_private.h"
#include "server/measurement/lease_plan.h"
#include "server/measurement/leases.h"

/* What the choice needs of a job. */
struct based_job {
  struct poisoned_job of;
  bool is_changed; /* its baseline is another one already */
  bool may_change;
  struct environment environment;
  enum baseline_from from;
  struct digest hardware_digest;
};
static const struct field based_fields[] = {
    RECORD_FIELDS(BOOL, struct based_job, is_changed, may_change),
    RECORD_FIELD(CUSTOM, struct based_job, environment, .custom = &environment_field),
    RECORD_FIELD_AS("baseline_from", ENUM, struct based_job, from, .names = baseline_from_names),
    RECORD_FIELD(DIGEST, struct based_job, hardware_digest),
};
static const struct record based_record = RECORD(NULL, struct based_job, based_fields);

static void based_job_release(struct based_job *job) {
  poisoned_job_release(&job->of);
  record_release(&based_record, job);
}

static bool based_job_read(struct db *db, int64_t id, uint64_t failed, struct based_job *job,
                           struct error *error) {
  cleanup_rows struct db_rows *rows =
      db_query(db, &sql_job_baseline, error, BIND("job", id), BIND("baseline", failed),
               BIND("most", BASELINES_MAX));
  if (!rows)
    return false;
  if (!db_count(rows))
    return job_absent(error, id);
  db_read(rows, 0, &based_record, job);
  job->may_change = job->may_change && !job->is_changed;
  return !job->may_change || poisoned_job_read(db, rows, 0, &job->of, error);
}

/* The next baseline: the default after a winner of another job, then the valid configs by rising
 * ordinal. *ret_found: whether there is one. */
static bool next_find(struct based_job *job, bool *ret_found, struct error *error) {
  struct poisoned_job *of = &job->of;
  struct space_facts facts = {&of->key, job->environment.gpu, job->environment.arch};
  bool has_default = of->default_config != (uint64_t)FIELD_NONE;
  *ret_found = true;
  if (has_default && of->baseline != of->default_config) {
    of->baseline = of->default_config;
    job->from = BASELINE_DEFAULT;
    return true;
  }

  cleanup_space_iterator struct space_iterator *iterator = NULL;
  uint64_t ordinal;
  enum space_step step;
  if (!space_iterator_new(of->space, &facts, JOB_STEPS_MAX, &iterator, error))
    return false;
  while ((step = space_iterator_next(iterator, &ordinal, error)) == SPACE_POINT) {
    bool is_later = job->from != BASELINE_FIRST || ordinal > of->baseline;
    if (is_later && ordinal != of->baseline && !poison_hit_of(&of->hits, ordinal)) {
      of->baseline = ordinal;
      job->from = BASELINE_FIRST;
      of->default_config = (uint64_t)FIELD_NONE;
      return true;
    }
  }

  *ret_found = false;
  return step == SPACE_END;
}

/* Changes the baseline, and opens the leases that are held with the old one: what they measure is
 * compared with it, and is late from now on. *ret_changed: false when another transaction was
 * first. *ret_n: leases that are open now. */
static bool baseline_change(struct db *db, int64_t id, uint64_t failed, const struct based_job *job,
                            const char *reason, bool *ret_changed, size_t *ret_n,
                            struct error *error) {
  cleanup_json json_t *detail = json_pack("{s:s, s:I, s:I, s:s*}", "stage", "screen", "baseline",
                                          (json_int_t)job->of.baseline, "baseline_before",
                                          (json_int_t)failed, "reason", reason);
  cleanup_rows struct db_rows *leases = db_query(db, &sql_job_leases_lock, error, BIND("job", id));
  if (!leases)
    return false;

  cleanup_rows struct db_rows *changed = db_query(
      db, &sql_job_change_baseline, error, BIND("job", id), BIND("failed", failed),
      BIND("baseline", job->of.baseline), BIND("baseline_from", baseline_from_names[job->from]),
      BIND("default_config", job->of.default_config), BIND("detail", detail));
  if (!changed)
    return false;
  *ret_changed = db_count(changed) > 0;
  if (!*ret_changed)
    return true;

  *ret_n = (size_t)db_count(leases);
  const struct measure_change change = {.to = LEASE_OPEN, .fruitless_less = LEASE_FRUITFUL};
  return leases_change_locked(db, leases, &change, error);
}

bool job_move_baseline(struct worker *worker, int64_t id, uint64_t failed, const char *reason,
                       bool *ret_moved, struct error *error) {
  __attribute__((cleanup(based_job_release))) struct based_job job = {0};
  bool is_found, is_changed = false;
  size_t n = 0;
  *ret_moved = false;
  if (!based_job_read(worker->db, id, failed, &job, error))
    return false;
  *ret_moved = job.is_changed;
  if (!job.may_change)
    return true;
  if (!next_find(&job, &is_found, error))
    return false;
  if (!is_found)
    return true;

  if (!db_begin(worker->db, error) ||
      !db_end(worker->db,
              baseline_change(worker->db, id, failed, &job, reason, &is_changed, &n, error), error))
    return false;
  if (!is_changed) { /* another post of the same failure may have been first */
    based_job_release(&job);
    job = (struct based_job){0};
    if (!based_job_read(worker->db, id, failed, &job, error))
      return false;
    *ret_moved = job.is_changed;
    return true;
  }

  *ret_moved = true;
  log_info("job: baseline job=%lld config=%llu before=%llu reason=%s", (long long)id,
           (unsigned long long)job.of.baseline, (unsigned long long)failed, reason ? reason : "");
  leases_announce(worker, &job.hardware_digest, n);
  job_announce(worker, id);
  return true;
}
