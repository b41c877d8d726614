/* Moving jobs on. Memory and threads: as the header says. */
#include "server/core/jobs.h"

#include "common/log.h"
#include "server/server.h"
#include "server/store/jobs.h"
#include "server/store/leases.h"
#include "server/store/measurements.h"

#define ADVANCE_MAX 1000

char *lease_park_key(const struct digest *hardware_digest, char text[PARK_KEY_SIZE]) {
  char digest[DIGEST_TEXT_SIZE];
  snprintf(text, PARK_KEY_SIZE, "lease:%s", digest_format(hardware_digest, digest));
  return text;
}

char *job_park_key(int64_t job, char text[PARK_KEY_SIZE]) {
  snprintf(text, PARK_KEY_SIZE, "job:%lld", (long long)job);
  return text;
}

void leases_announce(struct worker *worker, const struct digest *hardware_digest, size_t n) {
  char key[PARK_KEY_SIZE];
  park_wake(worker->server, lease_park_key(hardware_digest, key), n);
}

void job_announce(struct worker *worker, int64_t job) {
  char key[PARK_KEY_SIZE];
  park_wake(worker->server, job_park_key(job, key), SIZE_MAX);
}

bool jobs_start(struct worker *worker, const int64_t *jobs, size_t n, struct error *error) {
  struct job_change change = {.jobs = jobs, .n = n, .from = JOB_QUEUED, .to = JOB_RUNNING};
  size_t changed;
  if (!job_change_state(worker->db, &change, &changed, error))
    return false;
  for (size_t i = 0; changed && i < n; i++)
    job_announce(worker, jobs[i]);
  return true;
}

static char *reason_detail(const char *reason) {
  cleanup_json json_t *detail = json_object();
  if (reason)
    ALWAYS(json_object_set_new(detail, "reason", json_string(reason)) == 0);
  return json_canonical(detail);
}

/* After the job, not with it: nobody waits for leases while holding a job. The housekeeper repeats it after a crash. */
static bool end_settle(struct worker *worker, const struct job_change *change, bool is_changed, struct error *error) {
  if (!leases_cancel_ended(worker->db, change->jobs, change->n, error))
    return false;
  if (is_changed) {
    log_info("job: %s job=%lld%s%s", job_state_name(change->to), (long long)*change->jobs,
             change->reason ? " reason=" : "", change->reason ? change->reason : "");
    job_announce(worker, *change->jobs);
  }
  return true;
}

bool job_end(struct worker *worker, int64_t job, enum job_state to, const char *reason, bool *ret_ended,
             struct error *error) {
  cleanup_free char *detail = reason_detail(reason);
  /* From queued first: in the meantime it can only become running. */
  struct job_change change = {.jobs = &job, .n = 1, .from = JOB_QUEUED, .to = to, .reason = reason, .detail = detail};
  size_t changed = 0;
  if (!job_change_state(worker->db, &change, &changed, error))
    return false;
  change.from = JOB_RUNNING;
  if (!changed && !job_change_state(worker->db, &change, &changed, error))
    return false;
  *ret_ended = changed > 0;
  return end_settle(worker, &change, *ret_ended, error);
}

/* What the job's measurements said holds for this stage and round only: another server may have moved it on. */
static bool job_fail(struct worker *worker, const struct job_brief *job, const char *reason, struct error *error) {
  cleanup_free char *detail = reason_detail(reason);
  struct job_change change = {.jobs = &job->id,
                              .n = 1,
                              .from = JOB_RUNNING,
                              .to = JOB_FAILED,
                              .reason = reason,
                              .detail = detail,
                              .at_stage = true,
                              .stage = job->stage,
                              .round = job->round};
  size_t changed;
  return job_change_state(worker->db, &change, &changed, error) && end_settle(worker, &change, changed > 0, error);
}

static json_t *finalists_json(const struct job_plan *plan) {
  json_t *array = json_array();
  for (size_t i = 0; i < plan->n_finalists; i++)
    ALWAYS(json_array_append_new(array, json_integer((json_int_t)plan->finalists[i])) == 0);
  return array;
}

static bool final_begin(struct worker *worker, const struct job_brief *job, const struct job_plan *plan,
                        bool *ret_moved, struct error *error) {
  int64_t round = job->stage == STAGE_FINAL ? job->round + 1 : 0;
  cleanup_json json_t *detail =
      json_pack("{s:s, s:I, s:o, s:I}", "stage", stage_name(STAGE_FINAL), "round", (json_int_t)round, "configs",
                finalists_json(plan), "processes", (json_int_t)plan->n_processes);
  cleanup_free char *text = json_canonical(detail);
  return job_change_stage(worker->db, job->id, job->stage, job->round, STAGE_FINAL, round, text, ret_moved, error) &&
         (!*ret_moved || leases_insert_final(worker->db, job->id, round, plan, error));
}

static bool winner_values(struct worker *worker, int64_t job, uint64_t config, char **ret_text, struct error *error) {
  cleanup_free char *text = NULL;
  cleanup_json json_t *json = NULL;
  cleanup_space struct space *space = NULL;
  if (!job_space(worker->db, job, &text, error) || !json_parse(text, strlen(text), &json, error) ||
      !space_parse(json, &space, error))
    return false;
  cleanup_json json_t *values = space_config_to_json(space, config);
  *ret_text = json_dumps(values, JSON_COMPACT);
  ALWAYS(*ret_text != NULL);
  return true;
}

static bool job_finish(struct worker *worker, const struct job_brief *job, const struct verdict *verdict,
                       bool *ret_moved, struct error *error) {
  cleanup_free char *values = NULL;
  if (!winner_values(worker, job->id, verdict->winner, &values, error))
    return false;
  cleanup_json json_t *json = verdict_to_json(verdict);
  cleanup_free char *text = json_canonical(json);
  cleanup_json json_t *detail = json_pack("{s:I}", "winner", (json_int_t)verdict->winner);
  cleanup_free char *detail_text = json_canonical(detail);
  struct job_change change = {.jobs = &job->id,
                              .n = 1,
                              .from = JOB_RUNNING,
                              .to = JOB_DONE,
                              .detail = detail_text,
                              .at_stage = true,
                              .stage = job->stage,
                              .round = job->round};
  size_t changed;
  if (!job_change_state(worker->db, &change, &changed, error))
    return false;
  *ret_moved = changed > 0;
  return !changed || job_store_winner(worker->db, job->id, verdict->winner, values, text, error);
}

static bool plan_make(struct worker *worker, const struct job_brief *job, struct job_plan *ret_plan,
                      struct error *error) {
  if (job->stage == STAGE_FINAL) {
    struct final_summary summary;
    if (!measurements_final(worker->db, job->id, &summary, error))
      return false;
    job_after_final(summary.measurements, summary.n, job->baseline, job->seed, ret_plan);
    final_summary_release(&summary);
    return true;
  }
  struct screen_summary summary;
  if (!measurements_screen(worker->db, job->id, &summary, error))
    return false;
  job_after_screen(&summary.facts, ret_plan);
  screen_summary_release(&summary);
  return true;
}

static bool plan_apply(struct worker *worker, const struct job_brief *job, const struct job_plan *plan, bool *ret_moved,
                       struct error *error) {
  if (!db_begin(worker->db, error))
    return false;
  bool ok = plan->step == PLAN_FINAL ? final_begin(worker, job, plan, ret_moved, error)
                                     : job_finish(worker, job, &plan->verdict, ret_moved, error);
  if (ok)
    return db_commit(worker->db, error);
  db_rollback(worker->db);
  return false;
}

static bool job_advance(struct worker *worker, const struct job_brief *job, struct error *error) {
  cleanup_job_plan struct job_plan plan = {.step = PLAN_FAIL};
  bool moved = false;
  if (job->state == JOB_QUEUED && !jobs_start(worker, &job->id, 1, error))
    return false;
  if (!plan_make(worker, job, &plan, error))
    return false;
  if (plan.step == PLAN_FAIL)
    return job_fail(worker, job, plan.reason, error);
  if (!plan_apply(worker, job, &plan, &moved, error))
    return false;
  if (!moved)
    return true;
  if (plan.step == PLAN_FINAL) {
    log_info("job: final job=%lld configs=%zu processes=%lld", (long long)job->id, plan.n_finalists,
             (long long)plan.n_processes);
    leases_announce(worker, &job->hardware_digest, (size_t)plan.n_processes);
  } else {
    log_info("job: done job=%lld winner=%llu verdict=%s", (long long)job->id, (unsigned long long)plan.verdict.winner,
             verdict_outcome_name(plan.verdict.outcome));
  }
  job_announce(worker, job->id);
  return true;
}

void jobs_advance(struct worker *worker, const int64_t *jobs, size_t n) {
  struct error error;
  struct job_brief *ready = NULL;
  size_t n_ready = 0;
  if (!jobs_ready(worker->db, jobs, n, ADVANCE_MAX, &ready, &n_ready, &error)) {
    log_warning("jobs: %s", error.message);
    return;
  }
  for (size_t i = 0; i < n_ready; i++)
    if (!job_advance(worker, &ready[i], &error))
      log_warning("job: cannot move on job=%lld: %s", (long long)ready[i].id, error.message);
  free(ready);
}
