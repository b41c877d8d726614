/* Checking and planning jobs that are submitted. Memory and threads: submit.h. */
#include "server/job/submit.h"

#include "common/code/gpu_target.h"
#include "server/job/jobs.h"
#include "server/kernel/kernels.h"

#define SEED_BYTES 6 /* below 2^53: every JSON reader keeps it exactly */

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

  const char *regime = regime_member(request->regime);
  struct digest_stream *stream = digest_stream_new();
  digest_stream_add(stream, &request->kernel, sizeof request->kernel);
  digest_stream_add(stream, &submission->key_digest, sizeof submission->key_digest);
  digest_stream_add(stream, &submission->space_digest, sizeof submission->space_digest);
  digest_stream_add(stream, &submission->environment_digest, sizeof submission->environment_digest);
  digest_stream_add(stream, request->tag, strlen(request->tag) + 1);
  digest_stream_add(stream, request->run, strlen(request->run) + 1);
  if (regime) /* jobs without one keep the seeds that they had before there were regimes */
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
  bool is_able = true;
  submission->is_plain = kernel_space_is_plain(kernel, submission->space, &reason);
  const struct code_of_job code = {&submission->device_class, &kernel->hash,
                                   build ? &build->digest : NULL, submission->is_plain,
                                   submission->request.regime};
  if (submission->is_plain)
    error_set(&reason,
              "%s is not signed by a key that they trust; sign it with `wavetune kernel sign`",
              build ? "the kernel or the build that it runs" : "the kernel");
  if (match_is_selective(environment, &catalog->environments) &&
      !agents_refusing(worker->db, &code, agent_live_ms(server_options(worker->server)), &refusing,
                       &is_able, error))
    return false;
  if (!is_able)
    error_set(&reason, "they do not measure in the regime %s, as older agents may not",
              regime_name(code.regime));

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

  submission->kernel = kernel;
  columns_set(submission, build);
  submission->sizing = (struct lease_sizing){
      entry->config_us, server_options(worker->server)->lease_target_ms * 1000,
      match_devices(&submission->environment, &catalog->environments)};

  /* The first batch of a search depends on its warm-start configs; it is cut again if there are
   * others when the search begins. */
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
  const struct job_brief brief = {.round = -1, /* before the first, which is planned */
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

static bool budget_suffices(const struct submission *submission, struct error *error) {
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
  const struct environment *environment = &submission->environment;
  const struct gpu_target *target = gpu_target_find(environment->arch);
  struct space_facts facts = {&submission->key, environment->gpu, environment->arch};
  const struct launch_facts launch = {facts, environment->compute_units,
                                      target ? target->warp_size : 0};
  if (!budget_suffices(submission, error) ||
      !poison_allows(&submission->poison, submission->default_config, error) ||
      !kernel_takes_key(submission->kernel, submission->space, &launch, error))
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
  if (!kernel_takes_config(submission->kernel, submission->space, plan->baseline, &launch, error)) {
    lease_plan_release(plan);
    return false;
  }

  submission->known.configs = (int64_t)plan->configs;
  submission->known.baseline_from = plan->baseline_from;
  return true;
}
