/* From rows to facts. Pure. */
#include "server/job/job_campaign.h"

static struct campaign_race race_of(const struct screen_summary *summary) {
  struct campaign_race race = {summary->n, summary->candidates, .example = summary->example};
  for (int i = 0; i < OUTCOME_COUNT; i++)
    race.outcomes[i] = summary->outcomes[i];
  return race;
}

void job_facts(const struct job_brief *job, const struct screen_summary *screen,
               const struct screen_summary *halving, const struct final_summary *final,
               struct campaign_facts *ret_facts) {
  int64_t processes = final_processes(job->final_devices);
  struct campaign_facts facts = {
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
      .is_cut = job->is_spent,
  };
  if (job->stage == STAGE_FINAL) {
    facts.processes_begun =
        processes + job->round; /* each process that was added has a round of its own */
    facts.n_measurements = final->n;
    facts.measurements = final->measurements;
  } else {
    facts.screen = race_of(screen);
    if (job->stage == STAGE_HALVING)
      facts.halving = race_of(halving);
  }
  *ret_facts = facts;
}

bool job_search_round(const struct job_brief *job, const struct space *space,
                      const struct space_facts *facts, const uint64_t *warm_starts,
                      size_t n_warm_starts, const struct search_told *told, size_t n_told,
                      uint64_t ret_batch[SEARCH_BATCH_MAX], size_t *ret_n, struct error *error) {
  uint64_t first[SEARCH_FIRST_MAX];
  size_t n_first = search_first(job->baseline, job->has_default, job->default_config, warm_starts,
                                n_warm_starts, first);
  struct search_options options = {job->search.strategy, job->seed, (uint64_t)job->search.trials,
                                   n_first, first};
  return search_round(space, facts, &options, told, n_told, job->round + 1, ret_batch, ret_n,
                      error);
}

size_t job_warm_starts(const struct space *space, const struct key *key,
                       const struct digest *environment_digest, const struct past_winners *winners,
                       uint64_t ret[WARM_STARTS_MAX]) {
  cleanup_free struct key *keys = xcalloc(winners->n + 1, sizeof *keys);
  cleanup_free struct known_winner *known = xcalloc(winners->n + 1, sizeof *known);
  size_t n = 0;
  for (size_t i = 0; i < winners->n; i++) {
    const struct past_winner *past = &winners->all[i];
    struct error error; /* values of another space, or a key that was stored by a version that read
                           them otherwise */
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
