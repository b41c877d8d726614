/* Moving jobs on. Memory and threads: as the header says. */
#include "server/job/jobs.h"

#include "common/base/log.h"
#include "server/job/flags.h"
#include "server/job/job_campaign.h"
#include "server/job/job_store.h"
#include "server/lease/announce.h"
#include "server/lease/lease.h"
#include "server/measurement/measurements.h"
#include "server/server.h"

#define ADVANCE_MAX 1000

bool jobs_start(struct worker *worker, const int64_t *jobs, size_t n, struct error *error) {
  struct job_change change = {.jobs = jobs, .n = n, .from = JOB_QUEUED, .to = JOB_RUNNING};
  size_t changed;
  if (!job_change_state(worker->db, &change, &changed, error))
    return false;
  for (size_t i = 0; changed && i < n; i++)
    job_announce(worker, jobs[i]);
  return true;
}

static json_t *reason_detail(const char *reason) {
  json_t *detail = json_object();
  if (reason)
    ALWAYS(json_object_set_new(detail, "reason", json_string(reason)) == 0);
  return detail;
}

/* After the job, not with it: nobody waits for leases while holding a job. The housekeeper repeats
 * it after a crash. */
static bool end_settle(struct worker *worker, const struct job_change *change, bool is_changed,
                       struct error *error) {
  if (!leases_cancel_ended(worker->db, change->jobs, change->n, error))
    return false;
  if (is_changed) {
    log_info("job: %s job=%lld reason=%s", job_state_name(change->to), (long long)*change->jobs,
             change->reason);
    job_announce(worker, *change->jobs);
  }
  return true;
}

/* From queued first: in the meantime it can only become running. */
static bool state_end(struct db *db, struct job_change *change, size_t *ret_changed,
                      struct error *error) {
  change->from = JOB_QUEUED;
  if (!job_change_state(db, change, ret_changed, error))
    return false;
  change->from = JOB_RUNNING;
  return *ret_changed > 0 || job_change_state(db, change, ret_changed, error);
}

static bool cancel_noted(struct db *db, struct job_change *change, size_t *ret_changed,
                         struct error *error) {
  char job[24];
  snprintf(job, sizeof job, "%lld", (long long)*change->jobs);
  if (!db_begin(db, error))
    return false;
  bool ok = state_end(db, change, ret_changed, error) &&
            (*ret_changed == 0 || audit_note(db, change->author, AUDIT_CANCEL, job, NULL, error));
  return db_end(db, ok, error);
}

bool job_end(struct worker *worker, int64_t job, enum job_state to, const char *reason,
             const struct author *author, bool *ret_ended, struct error *error) {
  cleanup_json json_t *detail = reason_detail(reason);
  struct job_change change = {
      .jobs = &job, .n = 1, .to = to, .reason = reason, .detail = detail, .author = author};
  size_t changed = 0;
  if (!(author ? cancel_noted : state_end)(worker->db, &change, &changed, error))
    return false;
  *ret_ended = changed > 0;
  return end_settle(worker, &change, *ret_ended, error);
}

/* What the job's measurements said holds for this stage and round only: another server may have
 * moved it on. */
static bool job_fail(struct worker *worker, const struct job_brief *job, const char *reason,
                     struct error *error) {
  cleanup_json json_t *detail = reason_detail(reason);
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
  return job_change_state(worker->db, &change, &changed, error) &&
         end_settle(worker, &change, changed > 0, error);
}

static json_t *configs_json(const struct campaign_step *step) {
  json_t *array = json_array();
  for (size_t i = 0; i < step->n_configs; i++)
    ALWAYS(json_array_append_new(array, json_integer((json_int_t)step->configs[i])) == 0);
  return array;
}

/* Takes over `detail`, which has stage and round to come. */
static bool stage_change(struct worker *worker, const struct job_brief *job, enum stage stage,
                         int64_t round, json_t *detail, bool *ret_moved, struct error *error) {
  cleanup_json json_t *owned = detail;
  ALWAYS(json_object_set_new(owned, "stage", json_string(stage_name(stage))) == 0);
  ALWAYS(json_object_set_new(owned, "round", json_integer(round)) == 0);
  struct job_change change = {.jobs = &job->id,
                              .n = 1,
                              .from = JOB_RUNNING,
                              .to = JOB_RUNNING,
                              .detail = owned,
                              .at_stage = true,
                              .stage = job->stage,
                              .round = job->round,
                              .to_stage = true,
                              .next_stage = stage,
                              .next_round = round};
  size_t changed;
  if (!job_change_state(worker->db, &change, &changed, error))
    return false;
  *ret_moved = changed > 0;
  return true;
}

/* A final that is to be on several devices has its first processes apart. */
static bool race_begin(struct worker *worker, const struct job_brief *job,
                       const struct campaign_step *step, bool *ret_moved, struct error *error) {
  enum stage stage = step->kind == CAMPAIGN_HALVING ? STAGE_HALVING : STAGE_FINAL;
  int64_t round = job->stage == stage ? job->round + 1 : 0, first = step->first_process;
  json_t *detail = json_pack("{s:o, s:I}", "configs", configs_json(step), "processes",
                             (json_int_t)step->n_processes);
  cleanup_config_ranges struct config_ranges configs = {0};
  for (size_t i = 0; i < step->n_configs; i++)
    config_ranges_add(&configs, step->configs[i]);
  cleanup_free struct lease_row *rows = xcalloc((size_t)step->n_processes, sizeof *rows);
  for (int64_t i = 0; i < step->n_processes; i++)
    rows[i] = (struct lease_row){first + i, &configs,
                                 stage == STAGE_FINAL && job->final_devices > 1 &&
                                     first + i < job->final_devices};
  return stage_change(worker, job, stage, round, detail, ret_moved, error) &&
         (!*ret_moved ||
          leases_insert(worker->db, job->id, stage, round, rows, (size_t)step->n_processes, error));
}

static bool winner_values(struct worker *worker, int64_t job, uint64_t config, json_t **ret_values,
                          struct error *error) {
  cleanup_free char *text = NULL;
  cleanup_json json_t *json = NULL;
  cleanup_space struct space *space = NULL;
  if (!job_space(worker->db, job, &text, error) || !json_parse(text, strlen(text), &json, error) ||
      !space_parse(json, &space, error))
    return false;
  *ret_values = space_config_to_json(space, config);
  return true;
}

static bool job_finish(struct worker *worker, const struct job_brief *job,
                       const struct verdict *verdict, bool *ret_moved, struct error *error) {
  cleanup_json json_t *values = NULL;
  if (!winner_values(worker, job->id, verdict->winner, &values, error))
    return false;
  cleanup_json json_t *json = verdict_to_json(verdict);
  cleanup_json json_t *detail = json_pack("{s:I}", "winner", (json_int_t)verdict->winner);
  struct job_change change = {.jobs = &job->id,
                              .n = 1,
                              .from = JOB_RUNNING,
                              .to = JOB_DONE,
                              .detail = detail,
                              .at_stage = true,
                              .stage = job->stage,
                              .round = job->round};
  size_t changed;
  if (!job_change_state(worker->db, &change, &changed, error))
    return false;
  *ret_moved = changed > 0;
  return !changed || (job_store_winner(worker->db, job->id, verdict->winner, values, json, error) &&
                      flags_after_job(worker, job->id, error));
}

/* Reads what the stage measured and asks the campaign what follows. */
static bool step_choose(struct worker *worker, const struct job_brief *job,
                        struct campaign_step *ret_step, struct error *error) {
  const uint64_t always[FINALISTS_ALWAYS] = {job->baseline, job->has_default ? job->default_config
                                                                             : job->baseline};
  __attribute__((cleanup(screen_summary_release))) struct screen_summary screen = {0},
                                                                         halving = {0};
  __attribute__((cleanup(final_summary_release))) struct final_summary final = {0};
  bool ok = job->stage == STAGE_FINAL
                ? measurements_final(worker->db, job->id, &final, error)
                : measurements_screen(worker->db, job->id, STAGE_SCREEN, always, &screen, error);
  if (!ok || (job->stage == STAGE_HALVING &&
              !measurements_screen(worker->db, job->id, STAGE_HALVING, always, &halving, error)))
    return false;

  struct campaign_facts facts;
  job_facts(job, &screen, &halving, &final, &facts);
  campaign_next(&facts, ret_step);
  return true;
}

static bool step_apply(struct worker *worker, const struct job_brief *job,
                       const struct campaign_step *step, bool *ret_moved, struct error *error) {
  if (!db_begin(worker->db, error))
    return false;
  bool ok = step->kind == CAMPAIGN_DONE ? job_finish(worker, job, &step->verdict, ret_moved, error)
                                        : race_begin(worker, job, step, ret_moved, error);
  if (ok)
    return db_commit(worker->db, error);
  db_rollback(worker->db);
  return false;
}

/* What the job's search asks for in the round after this one. */
static bool search_ask_next(struct worker *worker, const struct job_brief *job,
                            uint64_t ret_batch[SEARCH_BATCH_MAX], size_t *ret_n,
                            struct error *error) {
  __attribute__((cleanup(job_search_input_release))) struct job_search_input input = {0};
  cleanup_free struct search_told *told = NULL;
  cleanup_space struct space *space = NULL;
  cleanup_key struct key key = {0};
  __attribute__((cleanup(environment_release))) struct environment environment = {0};
  size_t n_told;
  if (!job_search_input(worker->db, job->id, &input, error) ||
      !measurements_search(worker->db, job->id, &told, &n_told, error) ||
      !space_parse(input.space, &space, error) || !key_parse(input.key, NULL, 0, &key, error) ||
      !environment_parse(input.environment, &environment, error))
    return false;
  struct space_facts facts = {&key, environment.gpu, environment.arch};
  return job_search_round(job, space, &facts, input.likely, input.n_likely, told, n_told, ret_batch,
                          ret_n, error);
}

static bool round_begin(struct worker *worker, const struct job_brief *job,
                        const struct lease_plan *plan, size_t n, bool *ret_moved,
                        struct error *error) {
  cleanup_free struct lease_row *rows = xcalloc(plan->n, sizeof *rows);
  for (size_t i = 0; i < plan->n; i++)
    rows[i] = (struct lease_row){.configs = &plan->leases[i]};
  if (!db_begin(worker->db, error))
    return false;
  if (stage_change(worker, job, STAGE_SCREEN, job->round + 1,
                   json_pack("{s:I}", "trials", (json_int_t)n), ret_moved, error) &&
      (!*ret_moved ||
       leases_insert(worker->db, job->id, STAGE_SCREEN, job->round + 1, rows, plan->n, error)))
    return db_commit(worker->db, error);
  db_rollback(worker->db);
  return false;
}

/* The next batch of a search is the next round of its screen. *ret_over: there is none, and the job
 * goes on without. */
static bool search_advance(struct worker *worker, const struct job_brief *job, bool *ret_over,
                           struct error *error) {
  uint64_t batch[SEARCH_BATCH_MAX];
  size_t n;
  bool moved = false;
  if (!search_ask_next(worker, job, batch, &n, error))
    return false;
  *ret_over = n == 0;
  if (*ret_over)
    return true;
  cleanup_lease_plan struct lease_plan plan = {0};
  struct lease_sizing sizing = {
      job->config_us, server_options(worker->server)->lease_target_ms * 1000, job->devices};
  lease_plan_cut(batch, n, (uint64_t)job->search.trials, &sizing, &plan);
  if (!round_begin(worker, job, &plan, n, &moved, error))
    return false;
  if (moved) {
    log_info("job: round job=%lld round=%lld configs=%zu", (long long)job->id,
             (long long)job->round + 1, n);
    leases_announce(worker, &job->hardware_digest, plan.n);
    job_announce(worker, job->id);
  }
  return true;
}

static bool job_advance(struct worker *worker, const struct job_brief *job, struct error *error) {
  cleanup_campaign_step struct campaign_step step = {0};
  bool moved = false, is_over = true;
  if (job->state == JOB_QUEUED && !jobs_start(worker, &job->id, 1, error))
    return false;
  if (job->search.wanted && job->stage == STAGE_SCREEN && !job->is_spent &&
      !search_advance(worker, job, &is_over, error))
    return false;
  if (!is_over)
    return true;
  if (!step_choose(worker, job, &step, error))
    return false;
  if (step.kind == CAMPAIGN_FAILED)
    return job_fail(worker, job, step.reason.message, error);
  if (!step_apply(worker, job, &step, &moved, error))
    return false;
  if (!moved)
    return true;
  if (step.kind == CAMPAIGN_DONE) {
    log_info("job: done job=%lld winner=%llu verdict=%s", (long long)job->id,
             (unsigned long long)step.verdict.winner, verdict_outcome_name(step.verdict.outcome));
  } else {
    log_info("job: %s job=%lld configs=%zu processes=%lld",
             step.kind == CAMPAIGN_HALVING ? "halving" : "final", (long long)job->id,
             step.n_configs, (long long)step.n_processes);
    leases_announce(worker, &job->hardware_digest, (size_t)step.n_processes);
  }
  job_announce(worker, job->id);
  return true;
}

void jobs_advance(struct worker *worker, const int64_t *jobs, size_t n) {
  struct error error;
  struct job_brief *ready = NULL;
  size_t n_ready = 0;
  if (!jobs_ready(worker->db, jobs, n, agent_live_ms(server_options(worker->server)), ADVANCE_MAX,
                  &ready, &n_ready, &error)) {
    log_warning("jobs: %s", error.message);
    return;
  }
  for (size_t i = 0; i < n_ready; i++)
    if (!job_advance(worker, &ready[i], &error))
      log_warning("job: cannot move on job=%lld: %s", (long long)ready[i].id, error.message);
  free(ready);
}
