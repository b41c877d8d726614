/* Another baseline for a job whose baseline does not compile, fit or run on its hardware, before
 * anything was measured.
 *
 * Memory: nothing is kept. Threads: a worker's own. */
#include "common/base/log.h"
#include "server/db/db_record.h"
#include "server/job/jobs.h"
#include "server/job/jobs.sql.h"
#include "server/measurement/lease_plan.h"
#include "server/measurement/leases.h"
#include "server/poison/poison.h"

/* What the choice needs of a job. */
struct based_job {
  bool is_changed; /* its baseline is another one already */
  bool may_change;
  struct space *space;
  struct key key;
  struct environment environment;
  struct poison_hits hits;
  uint64_t baseline, default_config; /* the latter FIELD_NONE: none, or it does not run */
  enum baseline_from from;
  struct digest hardware_digest;
};

static void based_job_release(struct based_job *job) {
  space_free(job->space);
  key_release(&job->key);
  environment_release(&job->environment);
  poison_hits_release(&job->hits);
}

static bool based_job_read(struct db *db, int64_t id, uint64_t failed, struct based_job *job,
                           struct error *error) {
  cleanup_rows struct db_rows *rows =
      db_query(db, &sql_job_baseline, error, BIND("job", id), BIND("baseline", (int64_t)failed),
               BIND("most", BASELINES_MAX));
  if (!rows)
    return false;
  if (!db_count(rows))
    return error_of(error, ERROR_MISSING, "there is no job %lld", (long long)id);
  job->is_changed = db_get_bool(rows, 0, "is_changed");
  job->may_change = !job->is_changed && db_get_bool(rows, 0, "may_change");
  if (!job->may_change)
    return true;

  size_t from;
  cleanup_json json_t *space_json = db_get_json(rows, 0, "space"),
                      *key_json = db_get_json(rows, 0, "key"),
                      *environment_json = db_get_json(rows, 0, "environment");
  if (!space_parse(space_json, &job->space, error) ||
      !key_parse(key_json, NULL, 0, &job->key, error) ||
      !environment_parse(environment_json, &job->environment, error))
    return false;
  ALWAYS(
      name_find(baseline_from_names, BASELINE_FROM_COUNT, db_get(rows, 0, "baseline_from"), &from));
  job->from = (enum baseline_from)from;
  job->baseline = failed;
  job->default_config = db_is_null(rows, 0, "default_config")
                            ? (uint64_t)FIELD_NONE
                            : (uint64_t)db_get_integer(rows, 0, "default_config");
  job->hardware_digest = db_get_digest(rows, 0, "hardware_digest");

  struct poison_place place = {.kernel = db_get_digest(rows, 0, "kernel"),
                               .device_class = db_get_digest(rows, 0, "device_class"),
                               .key = &job->key,
                               .space = job->space};
  if (!db_is_null(rows, 0, "build"))
    place.build = db_get_digest(rows, 0, "build");
  return poison_find(db, &place, 1, &job->hits, error);
}

/* The next baseline: the default after a winner of another job, then the valid configs by rising
 * ordinal. *ret_found: whether there is one. */
static bool next_find(struct based_job *job, bool *ret_found, struct error *error) {
  struct space_facts facts = {&job->key, job->environment.gpu, job->environment.arch};
  bool has_default = job->default_config != (uint64_t)FIELD_NONE;
  *ret_found = true;
  if (has_default && job->baseline != job->default_config) {
    job->baseline = job->default_config;
    job->from = BASELINE_DEFAULT;
    return true;
  }

  cleanup_space_iterator struct space_iterator *iterator = NULL;
  uint64_t ordinal;
  enum space_step step;
  if (!space_iterator_new(job->space, &facts, JOB_STEPS_MAX, &iterator, error))
    return false;
  while ((step = space_iterator_next(iterator, &ordinal, error)) == SPACE_POINT) {
    bool is_later = job->from != BASELINE_FIRST || ordinal > job->baseline;
    if (is_later && ordinal != job->baseline && !poison_hit_of(&job->hits, ordinal)) {
      job->baseline = ordinal;
      job->from = BASELINE_FIRST;
      job->default_config = (uint64_t)FIELD_NONE;
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
  cleanup_rows struct db_rows *leases = NULL, *changed = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  cleanup_json json_t *detail =
      json_pack("{s:s, s:I, s:I, s:s*}", "stage", "screen", "baseline", (json_int_t)job->baseline,
                "baseline_before", (json_int_t)failed, "reason", reason);
  bind_integer(&parameters, "job", id);
  if (!db_run(db, &sql_job_leases_lock, &parameters, &leases, error))
    return false;

  bind_integer(&parameters, "failed", (int64_t)failed);
  bind_integer(&parameters, "baseline", (int64_t)job->baseline);
  bind_text(&parameters, "baseline_from", baseline_from_names[job->from]);
  bind_integer(&parameters, "default_config", (int64_t)job->default_config);
  bind_json(&parameters, "detail", detail);
  if (!db_run(db, &sql_job_change_baseline, &parameters, &changed, error))
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
           (unsigned long long)job.baseline, (unsigned long long)failed, reason ? reason : "");
  leases_announce(worker, &job.hardware_digest, n);
  job_announce(worker, id);
  return true;
}
