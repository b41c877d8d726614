/* Submitting jobs. Memory and threads: as the header says. */
#include "server/job/submit.h"

#include "common/base/log.h"
#include "server/cache/environments.h"
#include "server/db/db_record.h"
#include "server/db/values.h"
#include "server/job/job_campaign.h"
#include "server/job/jobs.h"
#include "server/job/submit.sql.h"
#include "server/kernel/code_signatures.h"
#include "server/lease/announce.h"
#include "server/lease/lease_insert.h"

#define STORE_ATTEMPTS 5
#define SEED_BYTES 6 /* below 2^53: every JSON reader keeps it exactly */

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

/* What is stored was checked when it came in. */
static struct kernel *kernel_read(const char *manifest) {
  cleanup_json json_t *json = NULL;
  struct kernel *kernel;
  struct error error;
  if (json_parse(manifest, strlen(manifest), &json, &error) && kernel_parse(json, &kernel, &error))
    return kernel;
  log_error("kernel: a stored manifest is not valid any more: %s", error.message);
  return NULL;
}

bool catalog_load(struct worker *worker, const struct digest *kernels, size_t n,
                  struct catalog *ret, struct error *error) {
  cleanup_catalog struct catalog catalog = {0};
  for (size_t i = 0; i < n; i++) {
    if (catalog_find(&catalog, &kernels[i]))
      continue;
    GROW(catalog.kernels, catalog.n, catalog.capacity);
    catalog.kernels[catalog.n++] = (struct catalog_kernel){.hash = kernels[i]};
  }

  cleanup_free struct digest *hashes = xcalloc(catalog.n + 1, sizeof *hashes);
  cleanup_free int64_t *paces = xcalloc(catalog.n + 1, sizeof *paces);
  for (size_t i = 0; i < catalog.n; i++)
    hashes[i] = catalog.kernels[i].hash;
  cleanup_free char **manifests = xcalloc(catalog.n + 1, sizeof *manifests);
  if (!kernels_pace(worker->db, hashes, catalog.n, paces, error) ||
      !job_kernels_load(worker->db, hashes, catalog.n, manifests, error))
    return false;

  for (size_t i = 0; i < catalog.n; i++) {
    catalog.kernels[i].kernel = manifests[i] ? kernel_read(manifests[i]) : NULL;
    catalog.kernels[i].config_us = paces[i] > 0 ? paces[i] : CONFIG_US_DEFAULT;
    free(manifests[i]);
  }
  if (!environments_known(worker->db, agent_live_ms(server_options(worker->server)),
                          &catalog.environments, error))
    return false;

  *ret = catalog;
  catalog = (struct catalog){0};
  return true;
}

/* Only when a job runs compiled code. */
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
  entry->builds = (struct match_builds){
      .builds = xcalloc((size_t)db_count(rows) + 1, sizeof(struct build *)), .required = true};
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
  for (size_t i = 0; i < submission->row.n_incumbents; i++)
    json_decref(submission->row.incumbents[i].config);
  lease_plan_release(&submission->row.plan);
  json_decref(submission->agents);
}

static struct digest identity_digest(const struct job_row *row) {
  struct digest_stream *stream = digest_stream_new();
  digest_stream_add(stream, &row->kernel, sizeof row->kernel);
  digest_stream_add(stream, &row->key_digest, sizeof row->key_digest);
  digest_stream_add(stream, &row->space_digest, sizeof row->space_digest);
  digest_stream_add(stream, &row->environment_digest, sizeof row->environment_digest);
  digest_stream_add(stream, row->tag, strlen(row->tag) + 1);
  digest_stream_add(stream, row->run, strlen(row->run) + 1);
  if (row->regime !=
      REGIME_COLD) /* it seeds the search: cold jobs keep the seeds that they always had */
    digest_stream_add(stream, regime_name(row->regime), strlen(regime_name(row->regime)) + 1);
  return digest_stream_finish(stream);
}

static void row_fill(struct submission *submission, const struct kernel *kernel,
                     const struct build *build) {
  const struct job_request *request = &submission->request;
  submission->key_text = key_to_text(&submission->key);
  submission->space_text = json_dumps(submission->space->json, JSON_COMPACT);
  ALWAYS(submission->space_text != NULL);
  struct job_row *row = &submission->row;
  *row = (struct job_row){.kernel = kernel->hash,
                          .key_digest = key_digest(&submission->key),
                          .space_digest = submission->space->digest,
                          .environment_digest = environment_digest(&submission->environment),
                          .tag = request->tag,
                          .run = request->run,
                          .regime = request->regime,
                          .purpose = request->purpose,
                          .key = submission->key_text,
                          .space = submission->space_text,
                          .environment = &submission->environment,
                          .priority = request->priority,
                          .budget_ms = request->budget_ms,
                          .search = request->search,
                          .final_devices = request->finals.devices,
                          .has_default = submission->space->has_default,
                          .default_config = submission->space->has_default
                                                ? submission->space->default_ordinal
                                                : (uint64_t)FIELD_NONE,
                          .device_class = environment_hardware_digest(&submission->environment)};
  if (build)
    row->build = build->digest;
  submission->identity = identity_digest(row);
  for (size_t i = 0; i < SEED_BYTES; i++)
    row->seed = row->seed << 8 | submission->identity.bytes[i];
}

/* A search depends on what it is told first, so that stays what it is when the job is submitted. */
static bool likely_read(struct worker *worker, struct catalog_kernel *entry,
                        struct submission *submission, struct error *error) {
  struct job_row *row = &submission->row;
  if (!entry->has_winners && !winners_past(worker->db, &entry->hash, 1, &entry->winners, error))
    return false;
  entry->has_winners = true;
  row->n_likely = job_warm_starts(submission->space, &submission->key, &row->environment_digest,
                                  &entry->winners, row->likely);
  return true;
}

/* Who can run the job, as its answer says. */
static bool agents_find(struct worker *worker, const struct catalog *catalog,
                        const struct kernel *kernel, const struct build *build,
                        struct submission *submission, struct error *error) {
  const struct environment *environment = &submission->environment;
  struct digest hardware = environment_hardware_digest(environment);
  struct error reason;
  int64_t refusing = 0;
  submission->row.is_plain = kernel_space_is_plain(kernel, submission->space, &reason);
  if (submission->row.is_plain)
    error_set(&reason, "no key that they trust signed %s; sign it with `wavetune kernel sign`",
              build ? "the kernel or the build that it runs" : "the kernel");
  if (match_wants_signatures(environment, &catalog->environments) &&
      !agents_refusing(worker->db, &hardware, &kernel->hash, build ? &build->digest : NULL,
                       submission->row.is_plain, agent_live_ms(server_options(worker->server)),
                       &refusing, error))
    return false;
  submission->agents = match_agents(environment, &catalog->environments, refusing, reason.message);
  return true;
}

bool submission_check(struct worker *worker, struct catalog *catalog, struct submission *submission,
                      json_t **ret_extra, struct error *error) {
  static const struct match_builds no_builds;
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

  const struct match_builds *builds = runs_builds ? &entry->builds : &no_builds;
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

  row_fill(submission, kernel, build);
  submission->row.sizing = (struct lease_sizing){
      entry->config_us, server_options(worker->server)->lease_target_ms * 1000,
      match_devices(&submission->environment, &catalog->environments)};
  return (!request->search.wanted || likely_read(worker, entry, submission, error)) &&
         agents_find(worker, catalog, kernel, build, submission, error);
}

/* Whether the config is a point of the space that holds. */
static bool incumbent_fits(const struct space *space, const struct space_facts *facts,
                           const json_t *config, bool *ret_fits, uint64_t *ret_ordinal,
                           struct error *error) {
  struct error no_point;
  *ret_fits = false;
  if (!space_config_from_json(space, config, ret_ordinal, &no_point))
    return true;
  return space_holds(space, facts, *ret_ordinal, ret_fits, error);
}

/* The newest incumbent that fits is the baseline. */
static bool incumbent_apply(const struct submission *submission, const struct space_facts *facts,
                            struct job_row *row, struct error *error) {
  bool fits = false;
  for (size_t i = 0; i < row->n_incumbents && !fits; i++) {
    uint64_t ordinal;
    if (!incumbent_fits(submission->space, facts, row->incumbents[i].config, &fits, &ordinal,
                        error))
      return false;
    if (fits) {
      row->plan.baseline = ordinal;
      row->plan.baseline_from = row->incumbents[i].from;
    }
  }
  return true;
}

/* The baseline, and the first batch of a search. */
static bool search_plan(const struct submission *submission, const struct space_facts *facts,
                        struct job_row *row, struct error *error) {
  uint64_t first[SEARCH_FIRST_MAX], batch[SEARCH_BATCH_MAX];
  size_t n;
  if (!lease_plan_baseline(submission->space, facts, &row->plan, error) ||
      !incumbent_apply(submission, facts, row, error))
    return false;
  size_t n_first = search_first(row->plan.baseline, row->has_default, row->default_config,
                                row->likely, row->n_likely, first);
  struct search_options options = {row->search.strategy, row->seed, (uint64_t)row->search.trials,
                                   n_first, first};
  if (!search_round(submission->space, facts, &options, NULL, 0, 0, batch, &n, error))
    return false;
  row->plan.configs = options.trials;
  lease_plan_cut(batch, n, options.trials, &row->sizing, &row->plan);
  return true;
}

bool submission_pays(const struct submission *submission, struct error *error) {
  const struct job_row *row = submission->stored;
  int64_t processes = final_processes(row->final_devices);
  int64_t least_ms = (BUDGET_FINALISTS_MIN * processes * row->quickest_us + 999) / 1000;
  if (row->budget_ms == 0 || row->budget_ms >= least_ms)
    return true;
  return error_at(error, "/budget/device_seconds",
                  "\"device_seconds\" is %g, and no final of this job can keep to it: its quickest "
                  "config took %g when "
                  "it was measured before, and a final measures %d configs in %lld processes; "
                  "state at least %g",
                  (double)row->budget_ms * 1e-3, (double)row->quickest_us * 1e-6,
                  BUDGET_FINALISTS_MIN, (long long)processes, (double)least_ms * 1e-3);
}

bool submission_plan(struct submission *submission, uint64_t points_max, struct error *error) {
  struct job_row *row = submission->stored;
  struct space_facts facts = {&submission->key, submission->environment.gpu,
                              submission->environment.arch};
  bool ok = row->search.wanted ? search_plan(submission, &facts, row, error)
                               : lease_plan_make(submission->space, &facts, points_max,
                                                 &row->sizing, &row->plan, error) &&
                                     incumbent_apply(submission, &facts, row, error);
  if (ok) {
    row->known.configs = (int64_t)row->plan.configs;
    row->known.baseline_from = row->plan.baseline_from;
    return true;
  }
  lease_plan_release(&row->plan);
  return error_pointer_prefix(error, "/space");
}

static bool rows_store(struct worker *worker, struct job_row *const *rows, size_t n,
                       const struct author *author, struct error *error) {
  return db_begin(worker->db, error) &&
         db_end(worker->db, jobs_insert(worker->db, rows, n, author, error), error);
}

bool submissions_store(struct worker *worker, struct job_row *const *rows, size_t n,
                       const struct author *author, struct error *error) {
  bool ok = n == 0 || rows_store(worker, rows, n, author, error);
  for (int attempt = 1; !ok && error->kind == ERROR_CONTENTION && attempt < STORE_ATTEMPTS;
       attempt++)
    ok = rows_store(worker, rows, n, author, error);
  if (!ok)
    return false;

  cleanup_free int64_t *raised = xcalloc(n + 1, sizeof *raised);
  size_t n_raised = 0;
  for (size_t i = 0; i < n; i++) {
    const struct job_row *row = rows[i];
    if (!row->known.created) {
      raised[n_raised++] = row->known.id;
      continue;
    }
    struct digest hardware = environment_hardware_digest(row->environment);
    leases_announce(worker, &hardware, row->plan.n);
    log_info("job: queued job=%lld configs=%lld leases=%zu", (long long)row->known.id,
             (long long)row->known.configs, row->plan.n);
  }
  return jobs_raise_leases(worker->db, raised, n_raised, error);
}
