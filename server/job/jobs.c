/* Advancing jobs through their stages. */
#include "server/job/jobs.h"

#include "common/base/log.h"
#include "common/base/numbers.h"
#include "server/counters.h"
#include "server/db/db_record.h"
#include "server/job/catalog.h"
#include "server/job/jobs.sql.h"
#include "server/job/jobs_private.h"
#include "server/measurement/lease_plan.h"
#include "server/measurement/leases.h"

#define ADVANCE_MAX 1000

/* A change of a running job that applies only in the stage and round for which it was decided:
 * another server may have advanced the job meanwhile. */
static struct job_change change_of(const struct job_brief *job, enum job_state to,
                                   const json_t *detail) {
  return (struct job_change){
      .jobs = &job->id, .n = 1, .from = JOB_RUNNING, .to = to, .detail = detail, .at = job};
}

/* The next stage or round of a job, with its leases. */
struct next_round {
  enum stage stage;
  int64_t round;
  json_t *detail; /* of the event; stage and round are added */
  size_t n;
  struct new_lease *leases;
};

/* Moves the job there in one transaction, and wakes the requests that wait for leases or for the
 * job. *ret_moved: false when another server was first. */
static bool round_begin(struct worker *worker, const struct job_brief *job,
                        const struct next_round *next, bool *ret_moved, struct error *error) {
  json_put(next->detail, "stage", json_string(stage_name(next->stage)));
  json_put(next->detail, "round", json_integer(next->round));
  struct job_change change = change_of(job, JOB_RUNNING, next->detail);
  change.to_stage = next->stage;
  change.to_round = next->round;
  size_t changed = 0;
  bool ok = db_begin(worker->db, error) && job_change_state(worker->db, &change, &changed, error) &&
            (!changed ||
             (leases_insert(worker->db, next->stage, next->round, next->leases, next->n, error) &&
              job_poison_skip(worker->db, job->id, next->stage, next->round, error)));
  if (!db_end(worker->db, ok, error))
    return false;

  *ret_moved = changed > 0;
  if (*ret_moved) {
    leases_announce(worker, &job->hardware_digest, next->n);
    job_announce(worker, job->id);
  }

  return true;
}

/* Begins a halving or a final, or adds processes to a final. The first processes of a final on
 * several devices are reserved for different devices. */
static bool race_begin(struct worker *worker, const struct job_brief *job,
                       const struct campaign_step *step, struct error *error) {
  size_t n = (size_t)step->n_processes;
  bool is_final = step->kind == CAMPAIGN_FINAL, moved;
  json_t *configs = json_array();
  cleanup_config_ranges struct config_ranges ranges = {0};
  for (size_t i = 0; i < step->n_configs; i++) {
    config_ranges_add(&ranges, step->configs[i]);
    json_push(configs, json_integer((json_int_t)step->configs[i]));
  }

  cleanup_json json_t *detail =
      json_pack("{s:o, s:I}", "configs", configs, "processes", (json_int_t)n);

  cleanup_free struct new_lease *leases = xcalloc(n, sizeof *leases);
  for (size_t i = 0; i < n; i++) {
    int64_t process = step->first_process + (int64_t)i;
    bool is_reserved = is_final && job->final_devices > 1 && process < job->final_devices;
    leases[i] = (struct new_lease){job->id, process, ranges, .is_reserved = is_reserved};
  }

  struct next_round next = {is_final ? STAGE_FINAL : STAGE_HALVING, 0, detail, n, leases};
  if (job->stage == next.stage)
    next.round = job->round + 1;
  if (!round_begin(worker, job, &next, &moved, error))
    return false;
  if (moved)
    log_info("job: %s job=%lld configs=%zu processes=%zu", is_final ? "final" : "halving",
             (long long)job->id, step->n_configs, n);
  return true;
}

/* Binds how the winner agrees, and the rest of its equivalence set with how each of these does,
 * from which a release may take one that agrees better. */
static bool agreement_bind(struct worker *worker, const struct job_brief *job,
                           const struct space *space, const struct agreement_summary *summary,
                           const struct verdict *verdict, struct db_parameters *parameters,
                           struct error *error) {
  size_t n = verdict->n_equivalents;
  cleanup_free struct agreement_facts *facts = xcalloc(n + 1, sizeof *facts);
  cleanup_json json_t *others = job->has_reference ? NULL : json_array();
  struct agreement_facts of_winner = {0};
  uint64_t default_config = job->has_default ? job->default_config : job->baseline;
  if (!job->has_reference &&
      !measurements_agreement_of(worker->db, job->id, verdict->equivalents, n, facts, error))
    return false;

  for (size_t i = 0; i < verdict->n_finalists && others; i++) { /* the best first */
    uint64_t config = verdict->finalists[i].config;
    const uint64_t *found =
        bsearch(&config, verdict->equivalents, n, sizeof *verdict->equivalents, compare_ordinals);
    if (!found)
      continue;
    struct agreement_facts with_default = agreement_with_default(
        summary, &facts[found - verdict->equivalents], config == default_config);
    if (config == verdict->winner) {
      of_winner = with_default;
      continue;
    }
    json_t *other = json_pack("{s:I, s:o}", "config", (json_int_t)config, "config_values",
                              space_config_to_json(space, config));
    agreement_write(other, &with_default);
    json_push(others, other);
  }

  bool is_interpreted = of_winner.interpreted == AGREEMENT_AGREES;
  bind_values(parameters, BIND("agreement", agreement_class(&of_winner)),
              BIND("interpreted", is_interpreted), BIND("others", others));
  return true;
}

/* A job that becomes done, and what the statements of that take. */
struct finish {
  struct worker *worker;
  const struct job_brief *job;
  const struct space *space;
  struct job_change change;
  const struct db_parameters *of_winner;
  size_t n_changed;
  int64_t n_flagged;
};

static bool winner_store(struct db *db, void *context, struct error *error) {
  struct finish *finish = context;
  finish->n_flagged = 0;
  if (!job_change_state(db, &finish->change, &finish->n_changed, error))
    return false;
  if (!finish->n_changed)
    return true;

  return db_run(db, &sql_job_store_winner, finish->of_winner, NULL, error) &&
         (finish->job->has_reference ||
          db_execute(db, &sql_job_store_disagreeing, error, BIND("job", finish->job->id))) &&
         winners_flag(finish->worker, finish->job, finish->space, &finish->n_flagged, error);
}

static bool job_finish(struct worker *worker, const struct job_brief *job,
                       const struct agreement_summary *agreement, const struct verdict *verdict,
                       struct error *error) {
  cleanup_rows struct db_rows *rows =
      db_query(worker->db, &sql_job_space, error, BIND("job", job->id));
  if (!rows)
    return false;

  cleanup_space struct space *space = NULL;
  cleanup_json json_t *space_json = db_get_json(rows, 0, "space");
  if (!space_parse(space_json, &space, error))
    return false;

  cleanup_json json_t *values = space_config_to_json(space, verdict->winner);
  cleanup_json json_t *json = verdict_to_json(verdict);
  cleanup_json json_t *detail = json_pack("{s:I}", "winner", (json_int_t)verdict->winner);
  cleanup_parameters struct db_parameters parameters = {0};
  bind_values(&parameters, BIND("job", job->id), BIND("config", verdict->winner),
              BIND("config_values", values), parameter_taken("verdict", json_canonical(json)));
  if (!agreement_bind(worker, job, space, agreement, verdict, &parameters, error))
    return false;

  /* It locks earlier jobs after this one, and the drain of a device that drifts locks jobs in the
   * order of their ids: of the two, PostgreSQL ends one. */
  struct finish finish = {.worker = worker,
                          .job = job,
                          .space = space,
                          .change = change_of(job, JOB_DONE, detail),
                          .of_winner = &parameters};
  if (!db_transaction(worker->db, DB_ATTEMPTS, winner_store, &finish, error))
    return false;

  counter_add(COUNTER_jobs_done, finish.n_changed);
  counter_add(COUNTER_winners_flagged, (uint64_t)finish.n_flagged);
  if (finish.n_flagged)
    log_warning(
        "job: flagged by job=%lld: the winners of %lld earlier ones are slower than the default",
        (long long)job->id, (long long)finish.n_flagged);

  if (finish.n_changed) {
    log_info("job: done job=%lld winner=%llu verdict=%s", (long long)job->id,
             (unsigned long long)verdict->winner, verdict_outcome_name(verdict->outcome));
    job_announce(worker, job->id);
  }

  return true;
}

static struct campaign_race race_of(const struct screen_summary *summary) {
  struct campaign_race race = {summary->n, summary->candidates, .example = summary->example};
  memcpy(race.outcomes, summary->outcomes, sizeof race.outcomes);
  return race;
}

void job_facts(const struct job_brief *job, const struct screen_summary *screen,
               const struct screen_summary *halving, const struct final_summary *final,
               struct campaign_facts *ret_facts) {
  int64_t processes = final_processes(job->final_devices);
  *ret_facts = (struct campaign_facts){
      .baseline = job->baseline,
      .seed = job->seed,
      .has_default = job->has_default,
      .default_config = job->default_config,
      .finalists_max = FINALISTS_MAX,
      .processes = processes,
      .processes_max = FINAL_PROCESSES_MAX,
      .budget = job->budget,
      .budget_larger_by = "submit the job with another run and a larger one",
      .stage = job->stage,
      .is_cut =
          job->is_spent, /* also where leases were cut off: is_spent contains the brief's is_cut */
  };

  if (job->stage == STAGE_FINAL) {
    ret_facts->processes_begun =
        processes + job->round; /* each process that was added is one round */
    ret_facts->n_measurements = final->n;
    ret_facts->measurements = final->measurements;
  } else {
    ret_facts->screen = race_of(screen);
    if (job->stage == STAGE_HALVING)
      ret_facts->halving = race_of(halving);
  }
}

bool job_search_round(const struct job_brief *job, const struct job_search_input *input,
                      uint64_t ret_batch[SEARCH_BATCH_MAX], size_t *ret_n, struct error *error) {
  uint64_t first[SEARCH_FIRST_MAX];
  size_t n_first = search_first(job->baseline, job->has_default, job->default_config,
                                input->warm_starts, input->n_warm_starts, first);
  struct search_options options = {job->search.strategy, job->seed, (uint64_t)job->search.trials,
                                   n_first, first};
  return search_round(input->space, &input->facts, &options, input->results, input->n_results,
                      job->round + 1, ret_batch, ret_n, error);
}

/* The space, the key and the environment of a search, from a row. */
struct search_place {
  struct space *space;
  struct key key;
  struct environment environment;
};

static void search_place_release(struct search_place *place) {
  if (place->space)
    space_free(place->space);
  key_release(&place->key);
  environment_release(&place->environment);
}

static bool search_place_read(const struct db_rows *rows, struct search_place *ret,
                              struct error *error) {
  cleanup_json json_t *space = db_get_json(rows, 0, "space"), *key = db_get_json(rows, 0, "key"),
                      *environment = db_get_json(rows, 0, "environment");
  return space_parse(space, &ret->space, error) && key_parse(key, NULL, 0, &ret->key, error) &&
         environment_parse(environment, &ret->environment, error);
}

bool job_search_warm(struct db *db, int64_t job, const uint64_t *warm_starts, size_t n,
                     uint64_t ret_batch[SEARCH_BATCH_MAX], size_t *ret_n, struct error *error) {
  cleanup_by(search_place_release) struct search_place place = {0};
  cleanup_rows struct db_rows *rows =
      db_query(db, &sql_job_search_warm, error, BIND("job", job),
               parameter_taken("likely", job_warm_starts_text(warm_starts, n)));
  *ret_n = 0;
  if (!rows || !db_count(rows))
    return rows != NULL;
  if (!search_place_read(rows, &place, error))
    return false;

  struct job_brief brief = {.round = -1, /* before the first */
                            .baseline = (uint64_t)db_get_integer(rows, 0, "baseline"),
                            .seed = (uint64_t)db_get_integer(rows, 0, "seed"),
                            .default_config = (uint64_t)db_get_integer(rows, 0, "default_config"),
                            .search.trials = db_get_integer(rows, 0, "search_trials")};
  brief.has_default = (int64_t)brief.default_config != FIELD_NONE;
  ALWAYS(search_strategy_parse(db_get(rows, 0, "search_strategy"), &brief.search.strategy));
  const struct job_search_input input = {
      .space = place.space,
      .facts = {&place.key, place.environment.gpu, place.environment.arch},
      .n_warm_starts = n,
      .warm_starts = warm_starts};
  return job_search_round(&brief, &input, ret_batch, ret_n, error);
}

/* Begins the next batch of a search, which is the next round of its screen. *ret_over: there is
 * none, and the screen is over. */
static bool search_advance(struct worker *worker, const struct job_brief *job, bool *ret_over,
                           struct error *error) {
  cleanup_free struct search_result *results = NULL;
  size_t n_results, n;
  cleanup_rows struct db_rows *rows =
      db_query(worker->db, &sql_job_search_input, error, BIND("job", job->id));
  if (!rows || !measurements_search(worker->db, job->id, &results, &n_results, error))
    return false;

  cleanup_by(search_place_release) struct search_place place = {0};
  uint64_t warm_starts[WARM_STARTS_MAX], batch[SEARCH_BATCH_MAX];
  if (!search_place_read(rows, &place, error))
    return false;

  struct job_search_input input = {
      .space = place.space,
      .facts = {&place.key, place.environment.gpu, place.environment.arch},
      .n_warm_starts = ordinals_parse(db_get(rows, 0, "likely"), warm_starts, WARM_STARTS_MAX),
      .warm_starts = warm_starts,
      .n_results = n_results,
      .results = results};
  if (!job_search_round(job, &input, batch, &n, error))
    return false;

  *ret_over = n == 0;
  if (*ret_over)
    return true;

  cleanup_lease_plan struct lease_plan plan = {0};
  struct lease_sizing sizing = {
      job->config_us, server_options(worker->server)->lease_target_ms * 1000, job->devices};
  lease_plan_cut(batch, n, (uint64_t)job->search.trials, &sizing, &plan);
  cleanup_free struct new_lease *leases = xcalloc(plan.n, sizeof *leases);
  for (size_t i = 0; i < plan.n; i++)
    leases[i] = (struct new_lease){job->id, 0, plan.leases[i], lease_is_large(&plan.leases[i])};

  cleanup_json json_t *detail = json_pack("{s:I}", "trials", (json_int_t)n);
  const struct next_round next = {STAGE_SCREEN, job->round + 1, detail, plan.n, leases};
  bool moved;
  if (!round_begin(worker, job, &next, &moved, error))
    return false;
  if (moved)
    log_info("job: round job=%lld round=%lld configs=%zu", (long long)job->id,
             (long long)next.round, n);
  return true;
}

/* Advances a job that has nothing left to measure in its stage. */
static bool job_advance(struct worker *worker, const struct job_brief *job, struct error *error) {
  cleanup_campaign_step struct campaign_step step = {0};
  if (job->state == JOB_QUEUED) {
    const struct job_change start = {
        .jobs = &job->id, .n = 1, .from = JOB_QUEUED, .to = JOB_RUNNING};
    size_t changed;
    if (!job_change_state(worker->db, &start, &changed, error))
      return false;
    if (changed)
      job_announce(worker, job->id);
  }

  if (job->search.wanted && job->stage == STAGE_SCREEN && !job->is_spent) {
    bool is_over;
    if (!search_advance(worker, job, &is_over, error))
      return false;
    if (!is_over)
      return true;
  }

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
  cleanup_free char *example = NULL;
  job_facts(job, &screen, &halving, &final, &facts);
  if (!job->has_reference &&
      !measurements_agreement(worker->db, job->id, always, &facts.agreement, &example, error))
    return false;

  campaign_next(&facts, &step);
  if (step.kind == CAMPAIGN_DONE)
    return job_finish(worker, job, &facts.agreement, &step.verdict, error);
  if (step.kind == CAMPAIGN_DISAGREED || step.kind == CAMPAIGN_FAILED)
    return job_end_without_winner(worker, job->id,
                                  step.kind == CAMPAIGN_DISAGREED ? JOB_DONE : JOB_FAILED, job,
                                  step.reason.message, error);
  return race_begin(worker, job, &step, error);
}

#define FIELD(type, member, ...) RECORD_FIELD(type, struct job_brief, member, __VA_ARGS__)
static const struct field brief_fields[] = {
    RECORD_FIELDS(INTEGER, struct job_brief, id, round, baseline, seed, default_config,
                  final_devices, config_us, devices),
    FIELD(ENUM, state, .names = job_state_names),
    FIELD(ENUM, stage, .names = stage_names),
    FIELD(RECORD, search, .of = &job_search_record),
    RECORD_FIELDS(BOOL, struct job_brief, is_cut, has_reference),
    RECORD_FIELD(DIGEST, struct job_brief, hardware_digest),
};
#undef FIELD
static const struct record brief_record = RECORD(NULL, struct job_brief, brief_fields);

void jobs_advance(struct worker *worker, const int64_t *jobs, size_t n) {
  struct error error;
  cleanup_rows struct db_rows *all = NULL, *rows = NULL;
  if (!jobs)
    all = db_query(worker->db, &sql_jobs_ready_all, &error, BIND("limit", ADVANCE_MAX));
  if (jobs || all)
    rows = db_query(worker->db, &sql_jobs_ready, &error,
                    jobs ? BIND_ALL("jobs", jobs, n) : BIND("jobs", db_get(all, 0, "jobs")),
                    BIND("limit", ADVANCE_MAX),
                    BIND("live_ms", agent_live_ms(server_options(worker->server))));
  if (!rows) {
    log_warning("jobs: %s", error.message);
    return;
  }

  size_t n_ready;
  cleanup_free struct job_brief *ready = db_read_all(rows, &brief_record, &n_ready);
  for (size_t i = 0; i < n_ready; i++) {
    struct job_brief *brief = &ready[i];
    brief->has_default = (int64_t)brief->default_config != FIELD_NONE;
    brief->search.wanted = brief->search.trials != FIELD_NONE;
    brief->budget = db_get_budget(rows, (int)i);
    brief->is_spent =
        brief->is_cut ||
        budget_screen_left_us(&brief->budget, final_processes(brief->final_devices)) == 0;
    if (!job_advance(worker, brief, &error))
      log_warning("job: cannot advance job=%lld: %s", (long long)brief->id, error.message);
  }
}
