/* Checking, planning and storing jobs that are submitted. */
#include "server/job/submit.h"

#include "common/base/log.h"
#include "server/db/db_record.h"
#include "server/http/limits.h"
#include "server/job/jobs.h"
#include "server/job/submit.sql.h"
#include "server/kernel/kernels.h"
#include "server/lease/lease.h"
#include "server/lease/shares.sql.h"

#define STORE_ATTEMPTS 5
#define SEED_BYTES 6 /* below 2^53: every JSON reader keeps it exactly */
#define PACE_JOBS 16
#define JOB_ID_SIZE 24

/* What earlier jobs found */

static const struct field past_fields[] = {
    RECORD_FIELD_AS("environment", DIGEST, struct past_winner, environment_digest),
    RECORD_FIELD(JSON, struct past_winner, key),
    RECORD_FIELD(JSON, struct past_winner, config_values),
};
static const struct record past_record = RECORD(NULL, struct past_winner, past_fields);

void past_winners_release(struct past_winners *winners) {
  db_records_free(&past_record, winners->all, winners->n);
  *winners = (struct past_winners){0};
}

bool winners_past(struct db *db, const struct digest *kernels, size_t n,
                  struct past_winners *ret_winners, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_digests(&parameters, "kernel", kernels, n);
  bind_integer(&parameters, "limit", PAST_WINNERS_MAX);
  if (!db_run(db, &sql_winners_past, &parameters, &rows, error))
    return false;

  for (size_t i = 0; i < n; i++)
    ret_winners[i] = (struct past_winners){0};
  for (int row = 0; row < db_count(rows); row++) {
    struct past_winners *winners = &ret_winners[db_get_integer(rows, row, "n") - 1];
    if (!winners->all)
      winners->all = xcalloc(PAST_WINNERS_MAX, sizeof *winners->all);
    db_read(rows, row, &past_record, &winners->all[winners->n++]);
  }

  return true;
}

size_t job_warm_starts(const struct space *space, const struct key *key,
                       const struct digest *environment_digest, const struct past_winners *winners,
                       uint64_t ret[WARM_STARTS_MAX]) {
  cleanup_free struct key *keys = xcalloc(winners->n + 1, sizeof *keys);
  cleanup_free struct known_winner *known = xcalloc(winners->n + 1, sizeof *known);
  size_t n = 0;
  for (size_t i = 0; i < winners->n; i++) {
    const struct past_winner *past = &winners->all[i];
    struct error error; /* values of another space, or a key that this version cannot read */
    if (!space_config_from_json(space, past->config_values, &known[n].config, &error) ||
        !key_parse(past->key, NULL, 0, &keys[n], &error))
      continue;
    known[n].key = &keys[n];
    known[n].is_elsewhere = !digest_equal(&past->environment_digest, environment_digest);
    n++;
  }

  size_t n_chosen = warm_starts_choose(key, known, n, ret);
  for (size_t i = 0; i < n; i++)
    key_release(&keys[i]);
  return n_chosen;
}

/* {17,3} */
static char *ordinals_format(const uint64_t *ordinals, size_t n) {
  struct db_array array;
  db_array_init(&array);
  for (size_t i = 0; i < n; i++)
    db_array_integer(&array, (int64_t)ordinals[i]);
  db_array_finish(&array);
  return array.text;
}

bool job_set_warm_starts(struct db *db, int64_t job, const uint64_t *warm_starts, size_t n,
                         struct error *error) {
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "job", job);
  bind_taken(&parameters, "likely", ordinals_format(warm_starts, n), false);
  return db_run(db, &sql_job_set_likely, &parameters, NULL, error);
}

/* The catalog */

void catalog_release(struct catalog *catalog) {
  for (size_t i = 0; i < catalog->n; i++) {
    if (catalog->kernels[i].kernel)
      kernel_free(catalog->kernels[i].kernel);
    for (size_t b = 0; b < catalog->kernels[i].builds.n; b++)
      build_free(catalog->kernels[i].builds.builds[b]);
    free(catalog->kernels[i].builds.builds);
    past_winners_release(&catalog->kernels[i].winners);
  }

  free(catalog->kernels);
  known_environments_release(&catalog->environments);
  *catalog = (struct catalog){0};
}

struct catalog_kernel *catalog_find(struct catalog *catalog, const struct digest *hash) {
  for (size_t i = 0; i < catalog->n; i++)
    if (digest_equal(&catalog->kernels[i].hash, hash))
      return &catalog->kernels[i];
  return NULL;
}

bool catalog_load(struct worker *worker, const struct digest *kernels, size_t n,
                  struct catalog *ret, struct error *error) {
  cleanup_catalog struct catalog catalog = {0};
  cleanup_free struct digest *hashes = xcalloc(n + 1, sizeof *hashes);
  for (size_t i = 0; i < n; i++) {
    if (catalog_find(&catalog, &kernels[i]))
      continue;
    GROW(catalog.kernels, catalog.n, catalog.capacity);
    hashes[catalog.n] = kernels[i];
    catalog.kernels[catalog.n++] =
        (struct catalog_kernel){.hash = kernels[i], .config_us = CONFIG_US_DEFAULT};
  }

  cleanup_rows struct db_rows *paces = NULL, *manifests = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_digests(&parameters, "kernel", hashes, catalog.n);
  if (!db_run(worker->db, &sql_job_kernels_load, &parameters, &manifests, error))
    return false;

  bind_integer(&parameters, "limit", PACE_JOBS);
  if (!db_run(worker->db, &sql_kernels_pace, &parameters, &paces, error) ||
      !environments_known(worker->db, agent_live_ms(server_options(worker->server)),
                          &catalog.environments, error))
    return false;

  for (int row = 0; row < db_count(manifests); row++) {
    cleanup_json json_t *manifest = db_get_json(manifests, row, "manifest");
    struct error bad; /* it was valid when another version stored it */
    if (!kernel_parse(manifest, &catalog.kernels[db_get_integer(manifests, row, "n") - 1].kernel,
                      &bad))
      log_error("kernel: a stored manifest is not valid any more: %s", bad.message);
  }

  for (int row = 0; row < db_count(paces); row++)
    if (db_get_integer(paces, row, "config_us") > 0)
      catalog.kernels[db_get_integer(paces, row, "n") - 1].config_us =
          db_get_integer(paces, row, "config_us");

  *ret = catalog;
  catalog = (struct catalog){0};
  return true;
}

/* Loads the builds of a kernel; only jobs that run compiled code need them. */
static bool catalog_load_builds(struct worker *worker, struct catalog_kernel *entry,
                                struct error *error) {
  if (entry->has_builds)
    return true;

  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_digest(&parameters, "kernel", &entry->hash);
  if (!db_run(worker->db, &sql_job_builds_load, &parameters, &rows, error))
    return false;

  entry->has_builds = true;
  entry->builds =
      (struct match_builds){.builds = xcalloc((size_t)db_count(rows) + 1, sizeof(struct build *)),
                            .required = true,
                            .is_captured = entry->kernel->is_captured};
  for (int row = 0; row < db_count(rows); row++) {
    cleanup_json json_t *head = db_get_json(rows, row, "head");
    struct digest digest = db_get_digest(rows, row, "digest");
    struct error bad;
    if (build_parse_head(head, &digest, entry->kernel, &entry->builds.builds[entry->builds.n],
                         &bad))
      entry->builds.n++;
    else
      log_error("kernel: a stored build is not valid any more: %s", bad.message);
  }

  return true;
}

void submission_release(struct submission *submission) {
  job_request_release(&submission->request);
  key_release(&submission->key);
  if (submission->space)
    space_free(submission->space);
  environment_release(&submission->environment);
  free(submission->key_text);
  free(submission->space_text);
  for (size_t i = 0; i < submission->n_incumbents; i++)
    json_decref(submission->incumbents[i].config);
  poison_hits_release(&submission->poison);
  lease_plan_release(&submission->plan);
  json_decref(submission->agents);
}

/* Checking */

/* Sets the columns of the row, the identity, and the seed that is made from the identity. */
static void columns_set(struct submission *submission, const struct build *build) {
  const struct job_request *request = &submission->request;
  const struct space *space = submission->space;
  submission->key_text = key_to_text(&submission->key);
  submission->space_text = json_dumps(space->json, JSON_COMPACT);
  ALWAYS(submission->space_text != NULL);
  submission->key_digest = key_digest(&submission->key);
  submission->space_digest = space->digest;
  submission->environment_digest = environment_digest(&submission->environment);
  submission->device_class = environment_hardware_digest(&submission->environment);
  submission->default_config = space->has_default ? space->default_ordinal : (uint64_t)FIELD_NONE;
  if (build)
    submission->build = build->digest;

  const char *regime = regime_name(request->regime);
  struct digest_stream *stream = digest_stream_new();
  digest_stream_add(stream, &request->kernel, sizeof request->kernel);
  digest_stream_add(stream, &submission->key_digest, sizeof submission->key_digest);
  digest_stream_add(stream, &submission->space_digest, sizeof submission->space_digest);
  digest_stream_add(stream, &submission->environment_digest, sizeof submission->environment_digest);
  digest_stream_add(stream, request->tag, strlen(request->tag) + 1);
  digest_stream_add(stream, request->run, strlen(request->run) + 1);
  if (request->regime != REGIME_COLD) /* cold jobs keep the seeds that they had before regimes */
    digest_stream_add(stream, regime, strlen(regime) + 1);
  submission->identity = digest_stream_finish(stream);
  for (size_t i = 0; i < SEED_BYTES; i++)
    submission->seed = submission->seed << 8 | submission->identity.bytes[i];
}

/* Counts, for the answer, the agents that can run the job. */
static bool agents_find(struct worker *worker, const struct catalog *catalog,
                        const struct kernel *kernel, const struct build *build,
                        struct submission *submission, struct error *error) {
  const struct environment *environment = &submission->environment;
  struct error reason;
  int64_t refusing = 0;
  submission->is_plain = kernel_space_is_plain(kernel, submission->space, &reason);
  const struct code_of_job code = {&submission->device_class, &kernel->hash,
                                   build ? &build->digest : NULL, submission->is_plain};
  if (submission->is_plain)
    error_set(&reason,
              "%s is not signed by a key that they trust; sign it with `wavetune kernel sign`",
              build ? "the kernel or the build that it runs" : "the kernel");
  if (match_wants_signatures(environment, &catalog->environments) &&
      !agents_refusing(worker->db, &code, agent_live_ms(server_options(worker->server)), &refusing,
                       error))
    return false;

  submission->agents = match_agents(environment, &catalog->environments, refusing, reason.message);
  return true;
}

bool submission_check(struct worker *worker, struct catalog *catalog, struct submission *submission,
                      json_t **ret_extra, struct error *error) {
  const struct job_request *request = &submission->request;
  struct catalog_kernel *entry = catalog_find(catalog, &request->kernel);
  const struct kernel *kernel = entry->kernel;
  const struct build *build;
  json_t *fitting = NULL;
  *ret_extra = NULL;
  if (!kernel) {
    char text[DIGEST_TEXT_SIZE];
    return error_at(error, "/kernel", "kernel %s is not registered; POST /v1/kernels first",
                    digest_format(&request->kernel, text));
  }

  bool runs_builds = kernel->language == LANGUAGE_TRITON;
  if (runs_builds && !catalog_load_builds(worker, entry, error))
    return false;

  struct match_builds none = {0}, *builds = runs_builds ? &entry->builds : &none;
  builds->runs_on = kernel->language == LANGUAGE_C ? RUNS_ON_CPU : RUNS_ON_GPU;
  if (!key_parse(request->key, (const char *const *)kernel->key_names, kernel->n_key_names,
                 &submission->key, error))
    return error_pointer_prefix(error, "/key");
  if (!space_parse(request->space, &submission->space, error))
    return error_pointer_prefix(error, "/space");
  if (!kernel_accepts(kernel, &submission->key, submission->space, error) ||
      !match_has_build(&submission->key, builds, error))
    return false;

  if (!match_environment(&request->environment, &catalog->environments, builds,
                         &submission->environment, &fitting, error)) {
    *ret_extra = json_pack("{s:o}", "environments", fitting);
    return error_pointer_prefix(error, "/environment");
  }

  if (!match_build(&submission->environment, &submission->key, builds, &build, error))
    return false;

  columns_set(submission, build);
  submission->sizing = (struct lease_sizing){
      entry->config_us, server_options(worker->server)->lease_target_ms * 1000,
      match_devices(&submission->environment, &catalog->environments)};

  /* A search depends on its warm-start configs, so they are fixed when it is submitted. */
  if (request->search.wanted) {
    if (!entry->has_winners && !winners_past(worker->db, &entry->hash, 1, &entry->winners, error))
      return false;
    entry->has_winners = true;
    submission->n_warm_starts =
        job_warm_starts(submission->space, &submission->key, &submission->environment_digest,
                        &entry->winners, submission->warm_starts);
  }

  return agents_find(worker, catalog, kernel, build, submission, error);
}

/* Rows */

#define REQUESTED(type, member, ...)                                                               \
  RECORD_FIELD_AS(#member, type, struct submission, request.member, __VA_ARGS__)
static const struct field row_fields[] = {
    REQUESTED(DIGEST, kernel),
    RECORD_FIELD(DIGEST, struct submission, key_digest),
    RECORD_FIELD(DIGEST, struct submission, space_digest),
    RECORD_FIELD_AS("environment", DIGEST, struct submission, environment_digest),
    REQUESTED(TEXT, tag),
    REQUESTED(TEXT, run),
    REQUESTED(ENUM, regime, .names = regime_names),
    REQUESTED(ENUM, purpose, .names = job_purpose_names),
    RECORD_FIELD(BOOL, struct submission, is_plain),
    RECORD_FIELD_AS("key", TEXT, struct submission, key_text),
    REQUESTED(INTEGER, priority),
    REQUESTED(INTEGER, budget_ms),
    RECORD_FIELD(DIGEST, struct submission, build),
    RECORD_FIELD(DIGEST, struct submission, device_class),
    RECORD_FIELD(INTEGER, struct submission, seed),
    RECORD_FIELD_AS("baseline", INTEGER, struct submission, plan.baseline),
    RECORD_FIELD_AS("baseline_from", ENUM, struct submission, known.baseline_from,
                    .names = baseline_from_names),
    RECORD_FIELD(INTEGER, struct submission, default_config),
    RECORD_FIELD_AS("configs", INTEGER, struct submission, known.configs),
    RECORD_FIELD_AS("config_us", INTEGER, struct submission, sizing.config_us),
    REQUESTED(RECORD, search, .of = &job_search_record),
    REQUESTED(RECORD, finals, .of = &job_finals_record),
    RECORD_FIELD(INTEGER, struct submission, retry_of),
};
#undef REQUESTED
static const struct record row_record = RECORD(NULL, struct submission, row_fields);

static const struct field known_fields[] = {
    RECORD_FIELD(INTEGER, struct job_known, id),
    RECORD_FIELD(INTEGER, struct job_known, priority),
    RECORD_FIELD(INTEGER, struct job_known, configs),
    RECORD_FIELD(ENUM, struct job_known, state, .names = job_state_names),
    RECORD_FIELD(ENUM, struct job_known, baseline_from, .names = baseline_from_names),
    RECORD_FIELD(BOOL, struct job_known, created),
};
static const struct record known_record = RECORD(NULL, struct job_known, known_fields);

static const struct field space_fields[] = {
    RECORD_FIELD_AS("digest", DIGEST, struct submission, space_digest),
    RECORD_FIELD_AS("space", TEXT, struct submission, space_text),
};
static const struct record space_record = RECORD(NULL, struct submission, space_fields);

static const struct field incumbent_fields[] = {
    RECORD_FIELD(JSON, struct job_incumbent, config),
    RECORD_FIELD_AS("baseline_from", ENUM, struct job_incumbent, from,
                    .names = baseline_from_names),
};
static const struct record incumbent_record = RECORD(NULL, struct job_incumbent, incumbent_fields);

/* Binds the columns of `n` rows as arrays, except `likely`. */
static void bind_jobs(struct db_parameters *parameters, struct submission *const *jobs, size_t n) {
  cleanup_free struct submission *rows = xcalloc(n + 1, sizeof *rows);
  for (size_t i = 0; i < n; i++)
    rows[i] = *jobs[i];
  bind_records(parameters, &row_record, rows, n);
}

static void known_read(const struct db_rows *rows, struct submission *const *jobs) {
  for (int row = 0; row < db_count(rows); row++)
    db_read(rows, row, &known_record, &jobs[db_get_integer(rows, row, "n") - 1]->known);
}

/* Fills the incumbents of new jobs: the values that won the newest done job of the same kernel,
 * key, environment, tag and regime, and those that were imported for them, the newer first. Imports
 * have no regime. An import's environment may have fewer members than the job's; an equal
 * environment is preferred to one that only fits. */
static bool incumbents_find(struct db *db, struct submission *const *jobs, size_t n,
                            struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  struct db_array identities;
  db_array_init(&identities);
  for (size_t i = 0; i < n; i++) {
    cleanup_json json_t *environment = environment_to_json(&jobs[i]->environment);
    cleanup_free char *identity = json_canonical(environment);
    db_array_text(&identities, identity);
  }

  bind_jobs(&parameters, jobs, n);
  bind_array(&parameters, "identity", &identities);
  if (!db_run(db, &sql_jobs_incumbents, &parameters, &rows, error))
    return false;

  for (int row = 0; row < db_count(rows); row++) {
    struct submission *job = jobs[db_get_integer(rows, row, "n") - 1];
    ALWAYS(job->n_incumbents < JOB_INCUMBENTS_MAX);
    db_read(rows, row, &incumbent_record, &job->incumbents[job->n_incumbents++]);
  }

  return true;
}

static struct poison_place place_of(const struct submission *job) {
  return (struct poison_place){job->request.kernel, job->build, job->device_class, &job->key,
                               job->space};
}

/* Fills what the ledger of poison has of new jobs. */
static bool poison_look_up(struct db *db, struct submission *const *jobs, size_t n,
                           struct error *error) {
  cleanup_free struct poison_place *places = xcalloc(n + 1, sizeof *places);
  cleanup_free struct poison_hits *hits = xcalloc(n + 1, sizeof *hits);
  for (size_t i = 0; i < n; i++)
    places[i] = place_of(jobs[i]);
  if (!poison_find(db, places, n, hits, error))
    return false;
  for (size_t i = 0; i < n; i++) {
    poison_hits_release(&jobs[i]->poison);
    jobs[i]->poison = hits[i];
  }
  return true;
}

bool jobs_find(struct db *db, struct submission *const *jobs, size_t n, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL, *quickest = NULL;
  cleanup_parameters struct db_parameters parameters = {0}, limited = {0};
  bind_jobs(&parameters, jobs, n);
  if (!db_run(db, &sql_jobs_find, &parameters, &rows, error))
    return false;

  known_read(rows, jobs);
  for (size_t i = 0; i < n; i++)
    if (jobs[i]->known.id == jobs[i]->retry_of) /* it steps aside when the jobs are stored */
      jobs[i]->known = (struct job_known){0};

  cleanup_free struct submission **added = xcalloc(n + 1, sizeof *added);
  cleanup_free struct submission **budgeted = xcalloc(n + 1, sizeof *budgeted);
  size_t n_added = 0, n_budgeted = 0;
  for (size_t i = 0; i < n; i++)
    if (!jobs[i]->known.id) {
      added[n_added++] = jobs[i];
      if (jobs[i]->request.budget_ms > 0)
        budgeted[n_budgeted++] = jobs[i];
    }
  if (n_added &&
      (!incumbents_find(db, added, n_added, error) || !poison_look_up(db, added, n_added, error)))
    return false;
  if (!n_budgeted)
    return true;

  bind_jobs(&limited, budgeted, n_budgeted);
  if (!db_run(db, &sql_jobs_quickest, &limited, &quickest, error))
    return false;

  for (int row = 0; row < db_count(quickest); row++)
    budgeted[db_get_integer(quickest, row, "n") - 1]->quickest_us =
        db_get_integer(quickest, row, "us");
  return true;
}

/* Planning */

/* Makes the newest incumbent that is a valid config of the space the baseline. */
static bool incumbent_apply(struct submission *submission, const struct space_facts *facts,
                            struct error *error) {
  bool holds = false;
  for (size_t i = 0; i < submission->n_incumbents && !holds; i++) {
    const struct job_incumbent *incumbent = &submission->incumbents[i];
    struct error no_config;
    uint64_t ordinal;
    if (!space_config_from_json(submission->space, incumbent->config, &ordinal, &no_config) ||
        poison_hit_of(&submission->poison, ordinal))
      continue;
    if (!space_is_valid(submission->space, facts, ordinal, &holds, error))
      return false;
    if (holds) {
      submission->plan.baseline = ordinal;
      submission->plan.baseline_from = incumbent->from;
    }
  }

  return true;
}

/* Replaces a poisoned baseline by the first valid config that is not poisoned. */
static bool poison_avoid(struct submission *submission, const struct space_facts *facts,
                         struct error *error) {
  cleanup_space_iterator struct space_iterator *iterator = NULL;
  uint64_t ordinal = submission->plan.baseline;
  if (!poison_hit_of(&submission->poison, ordinal))
    return true;
  if (!space_iterator_new(submission->space, facts, JOB_STEPS_MAX, &iterator, error))
    return false;

  enum space_step step;
  while ((step = space_iterator_next(iterator, &ordinal, error)) == SPACE_POINT)
    if (!poison_hit_of(&submission->poison, ordinal)) {
      submission->plan.baseline = ordinal;
      submission->plan.baseline_from = BASELINE_FIRST;
      return true;
    }
  return step == SPACE_END && error_of_at(error, ERROR_CONFLICT, "",
                                          "each valid config of the space is poisoned on this "
                                          "hardware; `wavetune poison list` says why");
}

/* Finds the baseline, and cuts the first batch of a search. */
static bool search_plan(struct submission *submission, const struct space_facts *facts,
                        struct error *error) {
  struct lease_plan *plan = &submission->plan;
  if (!lease_plan_baseline(submission->space, facts, plan, error) ||
      !incumbent_apply(submission, facts, error) || !poison_avoid(submission, facts, error))
    return false;

  uint64_t batch[SEARCH_BATCH_MAX];
  size_t n;
  const struct job_brief brief = {.round = -1,
                                  .baseline = plan->baseline,
                                  .seed = submission->seed,
                                  .has_default = submission->space->has_default,
                                  .default_config = submission->default_config,
                                  .search = submission->request.search};
  const struct job_search_input input = {.space = submission->space,
                                         .facts = *facts,
                                         .n_warm_starts = submission->n_warm_starts,
                                         .warm_starts = submission->warm_starts};
  if (!job_search_round(&brief, &input, batch, &n, error))
    return false;

  plan->configs = (uint64_t)brief.search.trials;
  lease_plan_cut(batch, n, plan->configs, &submission->sizing, plan);
  return true;
}

bool submission_pays(const struct submission *submission, struct error *error) {
  const struct job_request *request = &submission->request;
  int64_t processes = final_processes(request->finals.devices);
  int64_t least_ms = (BUDGET_FINALISTS_MIN * processes * submission->quickest_us + 999) / 1000;
  if (request->budget_ms == 0 || request->budget_ms >= least_ms)
    return true;
  return error_at(error, "/budget/device_seconds",
                  "\"device_seconds\" is %g, and no final of this job fits into it: its quickest "
                  "config took %g when it was measured before, and a final measures %d configs in "
                  "%lld processes; state at least %g",
                  (double)request->budget_ms * 1e-3, (double)submission->quickest_us * 1e-6,
                  BUDGET_FINALISTS_MIN, (long long)processes, (double)least_ms * 1e-3);
}

bool submission_plan(struct submission *submission, uint64_t points_max, struct error *error) {
  struct lease_plan *plan = &submission->plan;
  struct space_facts facts = {&submission->key, submission->environment.gpu,
                              submission->environment.arch};
  if (!poison_allows(&submission->poison, submission->default_config, error))
    return false;

  bool ok = submission->request.search.wanted
                ? search_plan(submission, &facts, error)
                : lease_plan_make(submission->space, &facts, points_max, &submission->sizing, plan,
                                  error) &&
                      incumbent_apply(submission, &facts, error) &&
                      poison_avoid(submission, &facts, error);
  if (!ok) {
    lease_plan_release(plan);
    return error_pointer_prefix(error, "/space");
  }

  submission->known.configs = (int64_t)plan->configs;
  submission->known.baseline_from = plan->baseline_from;
  return true;
}

/* Storing */

/* Notes new jobs and raised priorities in the audit log, but not a job that another transaction
 * stored meanwhile. */
static bool jobs_note(struct db *db, struct submission *const *jobs, size_t n,
                      const struct author *author, struct error *error) {
  cleanup_free struct audit_row *notes = xcalloc(n + 1, sizeof *notes);
  cleanup_json json_t *kept = json_array();
  cleanup_free char *ids = xcalloc(n + 1, JOB_ID_SIZE);
  size_t n_notes = 0;
  for (size_t i = 0; i < n; i++) {
    const struct submission *job = jobs[i];
    if (!job->known.created && job->plan.n)
      continue;

    char *id = &ids[n_notes * JOB_ID_SIZE];
    snprintf(id, JOB_ID_SIZE, "%lld", (long long)job->known.id);
    json_t *detail = json_pack("{s:I}", "priority", (json_int_t)job->request.priority);
    ALWAYS(json_array_append_new(kept, detail) == 0);
    enum audit_action action = AUDIT_RAISE;
    if (job->known.created) {
      action = job->retry_of                                ? AUDIT_RETRY
               : job->request.purpose == PURPOSE_REVALIDATE ? AUDIT_REVALIDATE
                                                            : AUDIT_SUBMIT;
      if (job->retry_of)
        json_object_set_new(detail, "of", json_sprintf("%lld", (long long)job->retry_of));
      json_object_set_new(detail, "kernel", json_digest_text(&job->request.kernel));
      json_object_set_new(detail, "tag", json_string(job->request.tag));
    }
    notes[n_notes++] = (struct audit_row){author, action, id, detail};
  }

  return audit_add(db, notes, n_notes, error);
}

/* Gives up what the ledger has of the jobs that were created. */
static bool poison_skip(struct db *db, struct submission *const *jobs, size_t n,
                        struct error *error) {
  static const struct poison_round first = {STAGE_SCREEN, 0};
  size_t given_up;
  for (size_t i = 0; i < n; i++)
    if (jobs[i]->known.created &&
        !poison_give_up(db, jobs[i]->known.id, &first, &jobs[i]->poison, &given_up, error))
      return false;
  return true;
}

/* Gives the jobs that are tried again another run, so that new ones can have their identity. A job
 * that another transaction retried meanwhile is not changed: its successor is then known. */
static bool retried_rename(struct db *db, struct submission *const *jobs, size_t n,
                           struct error *error) {
  cleanup_free int64_t *retried = xcalloc(n + 1, sizeof *retried);
  cleanup_parameters struct db_parameters parameters = {0};
  size_t n_retried = 0;
  for (size_t i = 0; i < n; i++)
    if (jobs[i]->retry_of)
      retried[n_retried++] = jobs[i]->retry_of;
  bind_integers(&parameters, "jobs", retried, n_retried);
  return n_retried == 0 || db_run(db, &sql_jobs_step_aside, &parameters, NULL, error);
}

/* Stores spaces, environments, jobs, their first leases and the notes, in the caller's
 * transaction. */
static bool jobs_insert(struct db *db, struct submission *const *jobs, size_t n,
                        const struct author *author, struct error *error) {
  cleanup_free const struct environment **environments =
      xcalloc(n + 1, sizeof(struct environment *));
  cleanup_free struct submission *spaces = xcalloc(n + 1, sizeof *spaces);
  size_t n_spaces = 0, n_leases = 0;
  struct db_array warm_starts;
  db_array_init(&warm_starts);
  for (size_t i = 0; i < n; i++) {
    environments[i] = &jobs[i]->environment;
    if (i == 0 || !digest_equal(&jobs[i - 1]->space_digest, &jobs[i]->space_digest))
      spaces[n_spaces++] = *jobs[i]; /* most jobs of a campaign have the same space */
    cleanup_free char *ordinals = ordinals_format(jobs[i]->warm_starts, jobs[i]->n_warm_starts);
    db_array_text(&warm_starts, ordinals);
    n_leases += jobs[i]->plan.n;
  }

  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters of_owner = {0}, of_spaces = {0}, parameters = {0};
  bind_text(&of_owner, "author", author->name);
  bind_records(&of_spaces, &space_record, spaces, n_spaces);
  bind_jobs(&parameters, jobs, n);
  bind_array(&parameters, "likely", &warm_starts);
  bind_author(&parameters, author);
  if (!db_send(db, &sql_owners_add, &of_owner, DB_ANY_ROWS, error) ||
      !db_run(db, &sql_spaces_store, &of_spaces, NULL, error) ||
      !environments_store(db, environments, n, error) || !retried_rename(db, jobs, n, error) ||
      !db_run(db, &sql_jobs_insert, &parameters, &rows, error))
    return false;

  ALWAYS((size_t)db_count(rows) == n);
  known_read(rows, jobs);

  cleanup_free struct new_lease *leases = xcalloc(n_leases + 1, sizeof *leases);
  n_leases = 0;
  for (size_t i = 0; i < n; i++)
    for (size_t l = 0; jobs[i]->known.created && l < jobs[i]->plan.n; l++) {
      const struct config_ranges *configs = &jobs[i]->plan.leases[l];
      leases[n_leases++] =
          (struct new_lease){jobs[i]->known.id, 0, *configs, lease_is_large(configs)};
    }

  return leases_insert(db, STAGE_SCREEN, 0, leases, n_leases, error) &&
         poison_skip(db, jobs, n, error) && jobs_note(db, jobs, n, author, error);
}

/* In the transaction that stored the jobs. */
static bool open_jobs_check(struct worker *worker, struct submission *const *jobs, size_t n,
                            const struct author *author, struct error *error) {
  bool any_created = false;
  for (size_t i = 0; i < n; i++)
    any_created = any_created || jobs[i]->known.created;
  if (!any_created || !limit_of(worker->server, author, LIMIT_OPEN_JOBS))
    return true;

  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "token", author->token);
  return db_run(worker->db, &sql_jobs_open_of, &parameters, &rows, error) &&
         limit_check(worker->server, author, LIMIT_OPEN_JOBS, db_get_integer(rows, 0, "n"), error);
}

bool submissions_store(struct worker *worker, struct submission *const *jobs, size_t n,
                       const struct author *author, struct error *error) {
  bool ok = n == 0;
  for (int attempt = 0; !ok; attempt++) {
    ok = db_begin(worker->db, error) && db_end(worker->db,
                                               jobs_insert(worker->db, jobs, n, author, error) &&
                                                   open_jobs_check(worker, jobs, n, author, error),
                                               error);
    if (!ok && (error->kind != ERROR_CONTENTION || attempt + 1 == STORE_ATTEMPTS))
      return false;
  }

  cleanup_free int64_t *raised = xcalloc(n + 1, sizeof *raised);
  size_t n_raised = 0;
  for (size_t i = 0; i < n; i++) {
    const struct submission *job = jobs[i];
    if (!job->known.created) {
      raised[n_raised++] = job->known.id;
      continue;
    }
    leases_announce(worker, &job->device_class, job->plan.n);
    log_info("job: queued job=%lld configs=%lld leases=%zu", (long long)job->known.id,
             (long long)job->known.configs, job->plan.n);
  }

  return jobs_raise_leases(worker->db, raised, n_raised, error);
}
